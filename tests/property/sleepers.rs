//! A device with random queues, channels and vectors, and a ledger that knows when an event has to come.
//!
//! A CQ *owes* an event when a completion that its last request asked for was certainly not there yet when the request was made: it
//! was posted afterwards, or polling found nothing afterwards. Then waiting on its channel has to end with an event in time. More
//! events may come, but never more than were asked for.

use std::collections::VecDeque;

use mlx5::hw::platform::Platform;
use mlx5::{
    CompChannel, Cq, CqAttrMask, CqEvent, Device, DeviceConfig, Error, ModerateCq, ModifyCqAttr, Pd, PollAttr,
    PollError, Qp, QpAttr, QpAttrMask, QpCap, QpState, RecvWr, SendFlags, SendWr, Wc, WcStatus,
};
use mlx5_model::{DataFault, EventPace, ModelConfig, ModelThread};

use crate::plan::Plan;
use crate::queues::name;
use crate::support::{Port, connect, create_qp, open_config};

/// CQs, queue pairs and channels of a case.
pub const CQS: usize = 4;
pub const QPS: usize = 3;
pub const CHANNELS: usize = 2;
/// Completion vectors.
pub const VECTORS: u32 = 3;
const DEPTH: u32 = 16;
const MS: u64 = 1_000_000;
/// A wait that has to end well before.
const FOR_EVER: u64 = 10_000 * MS;

/// What makes a CQ: its entries, its channel ([`CHANNELS`] for none) and its vector.
#[derive(Clone, Debug)]
pub struct Wish {
    pub plan: Plan,
    pub channel: usize,
    pub vector: u32,
}

/// A CQ, and what the test knows of its events.
struct Watched {
    cq: Cq,
    wish: Wish,
    context: u64,
    /// The last request that no event has answered: for solicited completions only?
    armed: Option<bool>,
    /// An event has to come.
    owes: bool,
    /// Requests made and events taken, for as long as the test sees them all.
    requests: Option<u64>,
    events: u64,
    unacked: u32,
    /// Entries that queue pairs which were destroyed may have left.
    ghosts: usize,
}

/// A request that is posted: its name, and whether its completion is certainly a solicited one or an error.
struct Request {
    wr_id: u64,
    loud: bool,
}

/// A queue pair that is connected to itself.
struct Loop {
    qp: Qp,
    /// CQs of sends and of receives.
    cqs: [usize; 2],
    /// What is outstanding, sends and receives.
    posted: [VecDeque<Request>; 2],
    failed: bool,
}

/// How CQs are polled.
#[derive(Clone, Copy, Debug)]
pub enum How {
    Array,
    Iterator,
}

pub struct World {
    port: Port,
    dev: Device,
    pd: Pd,
    idle: (usize, usize),
    channels: Vec<CompChannel>,
    cqs: Vec<Watched>,
    qps: Vec<Option<Loop>>,
    next: u64,
    /// How long an event that has to come may take.
    patience: u64,
    thread: Option<ModelThread>,
}

impl World {
    /// A device whose event queues share one interrupt or have their own.
    pub fn new(interrupts: u32, threaded: bool) -> Self {
        let mut config = DeviceConfig::default();
        (config.completion_vectors, config.interrupts) = (VECTORS, interrupts);
        let (port, dev) = open_config(ModelConfig::default(), config);
        let pd = dev.alloc_pd().unwrap();
        let thread = threaded.then(|| port.model.spawn().unwrap());
        let idle = port.model.dma_outstanding();
        let (channels, cqs, qps) = (Vec::new(), Vec::new(), Vec::new());
        Self { port, dev, pd, idle, channels, cqs, qps, next: 0, patience: 0, thread }
    }

    pub fn begin(&mut self, wishes: &[Wish], arms_see_waiting: bool, arms_need_new_numbers: bool) {
        self.patience = if self.thread.is_some() { 5_000 * MS } else { 10 * MS };
        self.port.model.set_arm_sees_waiting(arms_see_waiting);
        self.port.model.set_arm_needs_new_number(arms_need_new_numbers);
        self.channels = (0..CHANNELS).map(|_| self.dev.create_comp_channel()).collect();
        self.qps.resize_with(QPS, || None);
        self.cqs = wishes.iter().map(|wish| self.make_cq(wish)).collect();
    }

    /// Sets how the events of a completion vector come. A lost interrupt costs a tenth of a second.
    pub fn pace(&mut self, vector: u32, pace: EventPace) {
        let queues = self.port.model.event_queues().into_iter().filter(|eq| eq.event_mask == 0);
        let eq = queues.into_iter().nth(vector as usize).expect("an event queue for each vector");
        assert!(self.port.model.set_event_pace(eq.eqn, pace));
        if pace.lose_one_in > 0 {
            self.patience = self.patience.max(115 * MS);
        }
    }

    pub fn late(&self, ns: u64, skip: u64) {
        self.port.model.inject_data(DataFault::LateCqe { ns }, skip);
    }

    pub fn step(&self, ns: u64) {
        self.port.model.step(ns);
    }

    fn make_cq(&mut self, wish: &Wish) -> Watched {
        self.next += 1;
        let context = self.next;
        let cq = wish.plan.make_on(&self.dev, |attr| {
            (attr.cq_context, attr.comp_vector) = (context, wish.vector);
            attr.channel = self.channels.get(wish.channel);
        });
        let (cq, wish) = (cq.unwrap(), wish.clone());
        Watched { cq, wish, context, armed: None, owes: false, requests: Some(0), events: 0, unacked: 0, ghosts: 0 }
    }

    /// Entries that CQ `cq` may get or hold.
    fn pending(&self, cq: usize) -> usize {
        let of = |qp: &Loop| (0..2).filter(|side| qp.cqs[*side] == cq).map(|side| qp.posted[side].len()).sum::<usize>();
        self.qps.iter().flatten().map(of).sum()
    }

    fn has_room(&self, cqs: [usize; 2]) -> bool {
        cqs.iter().all(|cq| {
            let more = cqs.iter().filter(|other| *other == cq).count();
            self.pending(*cq) + self.cqs[*cq].ghosts + more <= self.cqs[*cq].cq.cqe() as usize
        })
    }

    /// Makes a queue pair in place of another.
    pub fn make_qp(&mut self, at: usize, cqs: [usize; 2]) {
        self.destroy_qp(at);
        let cap =
            QpCap { max_send_wr: DEPTH, max_recv_wr: DEPTH, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
        let mut qp = create_qp(&self.pd, &self.cqs[cqs[0]].cq, &self.cqs[cqs[1]].cq, cap);
        let me = qp.qp_num();
        connect(&self.dev, &mut qp, me);
        self.qps[at] = Some(Loop { qp, cqs, posted: Default::default(), failed: false });
    }

    pub fn destroy_qp(&mut self, at: usize) {
        let Some(Loop { qp, cqs, posted, .. }) = self.qps[at].take() else { return };
        qp.destroy().map_err(|e| e.error).unwrap();
        for (cq, left) in cqs.iter().zip(&posted).filter(|(_, left)| !left.is_empty()) {
            self.cqs[*cq].ghosts += left.len();
            // What was to come may not have come.
            self.cqs[*cq].owes = false;
        }
    }

    /// Moves a queue pair to the error state: what is outstanding and what comes later is flushed.
    pub fn fail_qp(&mut self, at: usize) {
        let Some(Loop { qp, failed, .. }) = &mut self.qps[at] else { return };
        qp.modify(&QpAttr { qp_state: QpState::Err, ..Default::default() }, QpAttrMask::STATE).unwrap();
        *failed = true;
    }

    /// Sends messages through a queue pair, as far as there is room for what completes.
    pub fn post(&mut self, at: usize, messages: usize, solicited: bool) {
        for _ in 0..messages {
            let Some(Loop { cqs, posted, .. }) = &self.qps[at] else { return };
            let cqs = *cqs;
            if posted.iter().any(|queue| queue.len() == DEPTH as usize) || !self.has_room(cqs) {
                return;
            }
            self.next += 1;
            let [send, recv] = [name(self.next, false), name(self.next, true)];
            let qp = self.qps[at].as_mut().expect("it is there");
            let flags = if solicited { SendFlags::SOLICITED } else { SendFlags::empty() };
            // The ledger first: on a thread of its own the device may be faster than this one.
            qp.posted[0].push_back(Request { wr_id: send, loud: qp.failed });
            qp.posted[1].push_back(Request { wr_id: recv, loud: qp.failed || solicited });
            qp.qp.post_recv(&[RecvWr { wr_id: recv, sg_list: &[] }]).unwrap();
            let wr = SendWr { wr_id: send, send_flags: flags | SendFlags::SIGNALED, ..Default::default() };
            qp.qp.post_send(&[wr]).unwrap();
            let loud = [qp.failed, qp.failed || solicited];
            cqs.iter().zip(loud).for_each(|(cq, loud)| self.cqs[*cq].comes(loud));
        }
    }

    /// Polls a CQ once; whether it was empty.
    pub fn poll(&mut self, at: usize, how: How, most: usize) -> bool {
        let cq = &mut self.cqs[at].cq;
        let mut wcs = vec![Wc::default(); most];
        let found = match how {
            How::Array => cq.poll_cq(&mut wcs).unwrap(),
            How::Iterator => iterate(cq, &mut wcs),
        };
        wcs[..found].iter().for_each(|wc| self.completed(at, wc));
        if found == 0 {
            self.cqs[at].ghosts = 0;
            let on = |qp: &Loop, loud: bool| {
                let posted = (0..2).filter(|side| qp.cqs[*side] == at).flat_map(|side| &qp.posted[side]);
                posted.filter(|request| request.loud || !loud).count() > 0
            };
            let any = self.qps.iter().flatten().any(|qp| on(qp, false));
            let loud = self.qps.iter().flatten().any(|qp| on(qp, true));
            if any {
                self.cqs[at].comes(loud);
            }
        }
        found == 0
    }

    /// Each request completes once, and in order.
    fn completed(&mut self, cq: usize, wc: &Wc) {
        let side = (wc.wr_id & 1) as usize;
        let of = |qp: &&mut Loop| qp.posted[side].front().is_some_and(|request| request.wr_id == wc.wr_id);
        let qp = self.qps.iter_mut().flatten().find(of);
        let qp = qp.unwrap_or_else(|| panic!("completed before, out of turn or never posted: {wc:?}"));
        assert_eq!(qp.cqs[side], cq, "the CQ of its queue");
        assert!(wc.status == WcStatus::SUCCESS || qp.failed, "{wc:?}");
        qp.posted[side].pop_front();
    }

    pub fn arm(&mut self, at: usize, solicited_only: bool) {
        let watched = &mut self.cqs[at];
        watched.cq.req_notify(solicited_only).unwrap();
        watched.requests = watched.requests.map(|requests| requests + 1);
        // It takes the place of an older request that nothing has answered yet.
        (watched.armed, watched.owes) = (Some(solicited_only), false);
    }

    /// Waits for an event of a channel; without one that has to come only for a moment.
    pub fn wait(&mut self, channel: usize) {
        let owes = self.cqs.iter().any(|watched| watched.wish.channel == channel && watched.owes);
        let begun = self.dev.now();
        let deadline = begun + if owes { FOR_EVER } else { 20_000 };
        match self.channels[channel].get_event(deadline) {
            Ok(event) => {
                self.in_time(begun);
                self.took(channel, event);
            }
            Err(Error::NoEvent) if !owes => {}
            Err(error) => panic!("a wake-up is lost: {error} after {} ns", self.dev.now() - begun),
        }
    }

    pub fn try_get(&mut self, channel: usize) -> bool {
        let event = self.channels[channel].try_get_event();
        if let Some(event) = event {
            self.took(channel, event);
        }
        event.is_some()
    }

    fn took(&mut self, channel: usize, event: CqEvent) {
        let of = |watched: &&mut Watched| watched.context == event.context;
        let watched = self.cqs.iter_mut().find(of).expect("an event of a CQ that is there");
        assert_eq!((watched.cq.cqn(), watched.wish.channel), (event.cqn, channel));
        watched.events += 1;
        watched.unacked += 1;
        // Whether it answers the last request or one before it, nobody can tell.
        (watched.armed, watched.owes) = (None, false);
        assert!(watched.requests.is_none_or(|requests| watched.events <= requests), "events that nobody asked for");
    }

    /// Sleeps until there is something to poll, if there will be.
    pub fn wait_for_cq(&mut self, at: usize) {
        let comes = self.pending(at) > 0;
        let begun = self.dev.now();
        let deadline = begun + if comes { FOR_EVER } else { 20_000 };
        let watched = &mut self.cqs[at];
        match watched.cq.wait(deadline) {
            Err(Error::Invalid { .. }) if watched.wish.channel == CHANNELS => return,
            Ok(()) => {}
            Err(Error::NoEvent) if !comes => {}
            Err(error) => panic!("a wake-up is lost: {error}"),
        }
        (watched.armed, watched.owes, watched.requests) = (None, false, None);
        self.in_time(begun);
    }

    /// A wait that is over by a look at its deadline would be over in time without any interrupt.
    fn in_time(&self, begun: u64) {
        let took = self.dev.now() - begun;
        assert!(took <= self.patience, "it woke after {took} ns");
    }

    pub fn ack(&mut self, at: usize, events: u32) {
        let watched = &mut self.cqs[at];
        let acked = watched.cq.ack_events(events);
        if events <= watched.unacked {
            acked.unwrap();
            watched.unacked -= events;
        } else {
            assert_eq!(acked.map_err(|e| e.errno()), Err(22), "more than were taken");
        }
    }

    /// Gives a CQ room for what it may get or hold, and for `more`.
    pub fn resize(&mut self, at: usize, more: usize) {
        let cqe = self.pending(at) + self.cqs[at].ghosts + more;
        self.cqs[at].cq.resize(cqe.max(1) as u32).unwrap();
    }

    /// Holds events of a CQ back until so many entries are there or so many microseconds are over.
    pub fn moderate(&self, at: usize, cq_count: u16, cq_period: u16) {
        let moderate = ModerateCq { cq_count, cq_period };
        self.cqs[at].cq.modify(&ModifyCqAttr { attr_mask: CqAttrMask::MODERATE, moderate }).unwrap();
    }

    /// Destroys a CQ and makes another in its place; with queue pairs, or events that are not acknowledged, it is busy and stays.
    pub fn replace_cq(&mut self, at: usize, wish: &Wish) {
        let Watched { cq, .. } = &self.cqs[at];
        let busy = self.cqs[at].unacked > 0 || self.qps.iter().flatten().any(|qp| qp.cqs.contains(&at));
        let cqn = cq.cqn();
        let mut old = self.cqs.remove(at);
        match old.cq.destroy() {
            Ok(()) => {
                assert!(!busy);
                let new = self.make_cq(wish);
                self.cqs.insert(at, new);
            }
            Err(back) => {
                assert!(busy && back.error.errno() == 16 && back.object.cqn() == cqn, "{}", back.error);
                old.cq = back.object;
                self.cqs.insert(at, old);
            }
        }
    }

    /// Destroys a channel and makes another in its place; with CQs it is busy and stays.
    pub fn replace_channel(&mut self, at: usize) {
        let busy = self.cqs.iter().any(|watched| watched.wish.channel == at);
        let channel = match self.channels.remove(at).destroy() {
            Ok(()) => self.dev.create_comp_channel(),
            Err(back) => {
                assert!(back.error.errno() == 16 && busy);
                back.object
            }
        };
        self.channels.insert(at, channel);
    }

    /// Completes all that is outstanding, as a program does that sleeps whenever it can: ask, look again, sleep.
    pub fn quiesce(&mut self) {
        for at in 0..CQS {
            while self.pending(at) > 0 {
                self.arm(at, false);
                while !self.poll(at, How::Array, 8) {}
                match self.cqs[at].wish.channel {
                    CHANNELS => self.port.relax(),
                    channel if self.pending(at) > 0 => {
                        assert!(self.cqs[at].owes);
                        self.wait(channel);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Destroys all queues; no rule was broken and nothing is left.
    pub fn end(&mut self) {
        (0..QPS).for_each(|at| self.destroy_qp(at));
        for channel in 0..CHANNELS {
            while self.try_get(channel) {}
        }
        for watched in self.cqs.drain(..) {
            watched.cq.ack_events(watched.unacked).unwrap();
            watched.cq.destroy().map_err(|e| e.error).unwrap();
        }
        self.channels.drain(..).for_each(|channel| channel.destroy().map_err(|e| e.error).unwrap());
        self.port.model.clear_faults();
        (0..VECTORS).for_each(|vector| self.pace(vector, EventPace::default()));
        assert_eq!(self.dev.try_get_async_event(), None);
        assert_eq!(self.port.model.violations(), [], "rules broken");
        assert_eq!(self.port.model.dma_outstanding(), self.idle, "memory left behind");
    }
}

impl Watched {
    /// A completion, a solicited one or an error if `loud`, comes later than the last request was made.
    fn comes(&mut self, loud: bool) {
        self.owes |= self.armed.is_some_and(|solicited_only| loud || !solicited_only);
    }
}

fn iterate(cq: &mut Cq, wcs: &mut [Wc]) -> usize {
    let mut poller = match cq.start_poll(&PollAttr::default()) {
        Ok(poller) => poller,
        Err(PollError::Empty) => return 0,
        Err(error) => panic!("{error}"),
    };
    wcs[0] = poller.completion().to_wc();
    let room = wcs.len();
    for (at, wc) in wcs.iter_mut().enumerate().skip(1) {
        match poller.next() {
            Ok(completion) => *wc = completion.to_wc(),
            Err(PollError::Empty) => return at,
            Err(error) => panic!("{error}"),
        }
    }
    room
}
