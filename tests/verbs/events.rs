//! Completion channels: asking for events, taking, acknowledging, and what ends when.

use std::sync::atomic::Ordering::Relaxed;

use crate::support::{Pair, Port, QP_CAP_64, close, open, open_config, pair_on};
use mlx5::hw::cmd::QueryCq;
use mlx5::hw::cqc::{CqState, Cqc};
use mlx5::{
    CompChannel, Cq, CqEvent, CqInitAttrEx, Device, DeviceConfig, Error, PollError, RecvWr, SendFlags, SendWr, Wc,
    WcFlags, ibv,
};
use mlx5_model::{Effect, Fault, Match, ModelConfig};

pub const EBUSY: i32 = 16;
pub const EINVAL: i32 = 22;
pub const ETIMEDOUT: i32 = 110;
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1000 * MS;

/// A CQ on a channel.
pub fn cq_on(dev: &Device, channel: &CompChannel, cqe: u32, cq_context: u64, comp_vector: u32) -> Cq {
    let (wc_flags, channel) = (WcFlags::STANDARD, Some(channel));
    dev.create_cq_ex(&CqInitAttrEx { cqe, cq_context, channel, comp_vector, wc_flags, ..Default::default() }).unwrap()
}

/// Connected queue pairs whose CQs, with 100 and 101 as context, are on one channel.
pub fn pair_on_channel(device: DeviceConfig) -> (CompChannel, Pair) {
    let (port, dev) = open_config(ModelConfig::default(), device);
    let (channel, mut side) = (dev.create_comp_channel(), 99);
    let pair = pair_on((port, dev), 63, QP_CAP_64, |dev, cqe| {
        side += 1;
        cq_on(dev, &channel, cqe, side, 0)
    });
    (channel, pair)
}

pub fn channel_pair() -> (CompChannel, Pair) {
    pair_on_channel(DeviceConfig::default())
}

pub fn end(channel: CompChannel, pair: Pair) {
    let Pair { port, dev, pd, cq, qp, buf } = pair;
    for qp in qp {
        qp.destroy().map_err(|e| e.error).unwrap();
    }
    for cq in cq {
        cq.destroy().map_err(|e| e.error).unwrap();
    }
    for buf in buf {
        buf.dereg().map_err(|e| e.error).unwrap();
    }
    pd.dealloc().map_err(|e| e.error).unwrap();
    ibv::destroy_comp_channel(channel).map_err(|e| e.error).unwrap();
    close(&port, dev);
}

impl Pair {
    /// Sends an empty message from side 0 to side 1.
    pub fn post(&mut self, wr_id: u64, flags: SendFlags) {
        self.qp[1].post_recv(&[RecvWr { wr_id, sg_list: &[] }]).unwrap();
        let send_flags = flags | SendFlags::SIGNALED;
        self.qp[0].post_send(&[SendWr { wr_id, send_flags, ..Default::default() }]).unwrap();
    }

    /// Asks for an event of each CQ.
    pub fn arm(&mut self, solicited_only: bool) {
        self.cq.iter_mut().for_each(|cq| cq.req_notify(solicited_only).unwrap());
    }

    /// Acknowledges an event of each CQ.
    pub fn ack(&self) {
        self.cq.iter().for_each(|cq| cq.ack_events(1).unwrap());
    }
}

pub fn context(dev: &Device, cq: &Cq) -> Cqc {
    // SAFETY: a query names no memory and takes nothing away.
    unsafe { dev.general_cmd(&QueryCq { cqn: cq.cqn() }) }.unwrap()
}

fn of(cq: &Cq) -> Option<(u32, u64)> {
    Some((cq.cqn(), cq.context()))
}

fn took(event: Option<CqEvent>) -> Option<(u32, u64)> {
    event.map(|event| (event.cqn, event.context))
}

#[test]
fn an_event_comes_once_for_each_request_and_names_its_cq() {
    let (channel, mut pair) = channel_pair();
    pair.post(1, SendFlags::empty());
    assert_eq!(channel.try_get_event(), None, "nobody asked");
    pair.poll(0, 1);
    pair.poll(1, 1);
    for round in 2..7 {
        ibv::req_notify_cq(&mut pair.cq[1], false).unwrap();
        assert_eq!(CqState(context(&pair.dev, &pair.cq[1]).st() as u8), CqState::NOTIFICATION_REQUEST_ARMED);
        assert_eq!(channel.try_get_event(), None, "nothing has come");
        pair.post(round, SendFlags::empty());
        pair.post(round, SendFlags::empty());
        assert_eq!(CqState(context(&pair.dev, &pair.cq[1]).st() as u8), CqState::FIRED);
        let event = ibv::get_cq_event(&channel, pair.dev.now() + SECOND).unwrap();
        assert_eq!((event.cqn, event.context), (pair.cq[1].cqn(), 101));
        assert_eq!(channel.try_get_event(), None, "one for both completions, and none for the sender's");
        ibv::ack_cq_events(&pair.cq[1], 1).unwrap();
        pair.poll(0, 2);
        pair.poll(1, 2);
    }
    end(channel, pair);
}

/// Case C-066.
#[test]
fn the_sequence_number_counts_events_taken_and_not_requests() {
    let (channel, mut pair) = channel_pair();
    let record = context(&pair.dev, &pair.cq[1]).dbr_addr();
    let word = |port: &Port| u32::from_be(port.words(record + 4, 1)[0].load(Relaxed));
    for taken in 0..9 {
        for (solicited_only, cmd) in [(true, 1), (false, 0), (false, 0)] {
            pair.cq[1].req_notify(solicited_only).unwrap();
            assert_eq!(word(&pair.port), (taken % 4) << 28 | cmd << 24 | taken, "however often one asks");
        }
        pair.post(taken.into(), SendFlags::empty());
        pair.poll(0, 1);
        pair.poll(1, 1);
        pair.cq[1].req_notify(true).unwrap();
        assert_eq!(word(&pair.port), (taken % 4) << 28 | 1 << 24 | (taken + 1), "the event has come, but is not taken");
        assert_eq!(took(channel.try_get_event()), of(&pair.cq[1]));
    }
    pair.cq[1].ack_events(9).unwrap();
    end(channel, pair);
}

#[test]
fn solicited_only_means_solicited_receives_and_errors() {
    let (channel, mut pair) = channel_pair();
    let [first, second] = [of(&pair.cq[0]), of(&pair.cq[1])];
    pair.arm(true);
    pair.post(1, SendFlags::empty());
    assert_eq!(channel.try_get_event(), None);
    pair.post(2, SendFlags::SOLICITED);
    assert_eq!(took(channel.try_get_event()), second, "the receive, not the send");
    assert_eq!(channel.try_get_event(), None);
    pair.cq[1].ack_events(1).unwrap();
    pair.poll(0, 2);
    pair.poll(1, 2);
    // A receive that is too short fails on both sides.
    pair.cq[1].req_notify(true).unwrap();
    let long = pair.sge(0, 0, 8);
    pair.qp[1].post_recv(&[RecvWr { wr_id: 3, sg_list: &[] }]).unwrap();
    pair.qp[0].post_send(&[SendWr { wr_id: 3, sg_list: &[long], ..Default::default() }]).unwrap();
    let mut both = [took(channel.try_get_event()), took(channel.try_get_event())];
    both.sort();
    assert_eq!(both, { [first.min(second), first.max(second)] });
    pair.ack();
    pair.poll(0, 1);
    pair.poll(1, 1);
    end(channel, pair);
}

/// The queue of a channel: one turn for each CQ, in the order in which they came.
#[test]
fn cqs_of_a_channel_have_their_turns() {
    let (port, dev) = open();
    let channel = dev.create_comp_channel();
    let cqs: Vec<Cq> = (0..5).map(|i| cq_on(&dev, &channel, 7, i, 0)).collect();
    let eqn = context(&dev, &cqs[0]).c_eqn();
    // Those with numbers 3, 0, 1 have two events, three, and one; number 0 is the busiest.
    for i in [3, 0, 0, 1, 0, 3] {
        port.model.inject(Fault::StrayCompletionEvent { eqn, cqn: cqs[i].cqn() });
    }
    let order: Vec<u64> = std::iter::from_fn(|| channel.try_get_event()).map(|event| event.context).collect();
    assert_eq!(order, [3, 0, 1, 3, 0, 0]);
    for (cq, taken) in cqs.iter().zip([3, 1, 0, 2, 0]) {
        assert_eq!(cq.ack_events(taken + 1).map_err(Error::errno), Err(EINVAL));
        cq.ack_events(taken).unwrap();
    }
    drop((cqs, channel));
    close(&port, dev);
}

/// Case C-062.
#[test]
fn each_cq_counts_its_own_events_and_is_not_destroyed_before_they_are_acknowledged() {
    let (port, dev) = open();
    let channel = dev.create_comp_channel();
    let [a, b] = [1, 2].map(|context| cq_on(&dev, &channel, 7, context, 0));
    let eqn = context(&dev, &a).c_eqn();
    let (of_a, of_b) = (of(&a), of(&b));
    let mut events = Vec::new();
    for cq in [&a, &b, &a] {
        port.model.inject(Fault::StrayCompletionEvent { eqn, cqn: cq.cqn() });
        events.push(took(channel.try_get_event()));
    }
    assert_eq!(events, [of_a, of_b, of_a]);

    assert_eq!(b.ack_events(3).map_err(Error::errno), Err(EINVAL), "all three on the wrong one");
    let refused = a.destroy().unwrap_err();
    assert_eq!((refused.error, refused.error.errno()), (Error::UnackedEvents { count: 2 }, EBUSY));
    let refused_b = b.destroy().unwrap_err();
    assert_eq!(refused_b.error, Error::UnackedEvents { count: 1 });
    let (a, b) = (refused.object, refused_b.object);
    a.ack_events(1).unwrap();
    let a = a.destroy().map(|()| "destroyed").unwrap_err().object;
    assert_eq!(port.model.violations(), []);
    a.ack_events(1).unwrap();
    b.ack_events(1).unwrap();
    assert_eq!(a.ack_events(1).map_err(Error::errno), Err(EINVAL), "acknowledged before");
    for cq in [a, b] {
        cq.destroy().map_err(|e| e.error).unwrap();
    }
    channel.destroy().map_err(|e| e.error).unwrap();
    close(&port, dev);
}

#[test]
fn a_cq_that_could_not_be_destroyed_still_raises_events() {
    let (channel, mut pair) = channel_pair();
    pair.cq[1].req_notify(false).unwrap();
    pair.post(1, SendFlags::empty());
    pair.poll(0, 1);
    pair.poll(1, 1);
    let Pair { port, dev, pd, cq: [a, b], qp, buf } = pair;
    let refused = b.destroy().unwrap_err();
    assert_eq!(refused.error, Error::Busy, "queue pairs");
    for qp in qp {
        qp.destroy().map_err(|e| e.error).unwrap();
    }
    // The event has come and is not taken; the device refuses.
    port.model.inject(Fault::Command { at: Match::Opcode(0x401), effect: Effect::Status { status: 0x6, syndrome: 1 } });
    let refused = refused.object.destroy().unwrap_err();
    assert!(matches!(refused.error, Error::Command { .. }), "{}", refused.error);
    let b = refused.object;
    assert_eq!(took(channel.try_get_event()), of(&b), "it is still there");
    let b = b.destroy().unwrap_err();
    assert_eq!(b.error, Error::UnackedEvents { count: 1 });
    // The same with events that come while the device makes up its mind.
    let b = b.object;
    b.ack_events(1).unwrap();
    port.model.inject(Fault::Command { at: Match::Opcode(0x401), effect: Effect::Status { status: 0x6, syndrome: 1 } });
    let (model, eqn, cqns) = (port.model.clone(), context(&dev, &b).c_eqn(), [b.cqn(), b.cqn(), a.cqn()]);
    let raise = move || cqns.iter().for_each(|cqn| model.inject(Fault::StrayCompletionEvent { eqn, cqn: *cqn }));
    *port.at_now.lock().unwrap() = Some((2, Box::new(raise)));
    let b = b.destroy().unwrap_err().object;
    let taken: Vec<_> = std::iter::from_fn(|| took(channel.try_get_event())).map(Some).collect();
    assert_eq!(taken, [of(&a), of(&b), of(&b)], "its turn is when it is back");
    drop((a, b, buf, pd, channel));
    close(&port, dev);
}

#[test]
fn events_that_nobody_took_go_with_their_cq() {
    let (port, dev) = open();
    let channel = dev.create_comp_channel();
    let (old, other) = (cq_on(&dev, &channel, 7, 1, 0), cq_on(&dev, &channel, 7, 2, 0));
    let (cqn, eqn) = (old.cqn(), context(&dev, &old).c_eqn());
    let raise = |cqn| port.model.inject(Fault::StrayCompletionEvent { eqn, cqn });
    // One has been taken out of the event queue, one is in it still.
    raise(cqn);
    dev.service();
    raise(other.cqn());
    raise(cqn);
    old.destroy().map_err(|e| e.error).unwrap();
    assert_eq!(took(channel.try_get_event()), of(&other));
    other.ack_events(1).unwrap();
    // Late ones find nobody, the next CQ of the number included, which was made after them.
    raise(cqn);
    let new = cq_on(&dev, &channel, 7, 3, 0);
    assert_eq!(channel.try_get_event(), None);
    assert_eq!(dev.event_counters().unknown, 1);
    raise(new.cqn());
    assert_eq!(took(channel.try_get_event()), of(&new));
    // One that is dropped, with an event taken and one that is not.
    raise(new.cqn());
    raise(other.cqn());
    dev.service();
    drop(new);
    assert_eq!(took(channel.try_get_event()), of(&other));
    assert_eq!(channel.try_get_event(), None);
    drop((other, channel));
    close(&port, dev);
}

#[test]
fn a_channel_with_cqs_is_busy_and_comes_back() {
    let (port, dev) = open();
    let channel = ibv::create_comp_channel(&dev);
    let cq = ibv::create_cq(&dev, 7, 9, Some(&channel), 0).unwrap();
    let refused = ibv::destroy_comp_channel(channel).unwrap_err();
    assert_eq!(refused.error.errno(), EBUSY);
    let channel = refused.object;
    let eqn = context(&dev, &cq).c_eqn();
    port.model.inject(Fault::StrayCompletionEvent { eqn, cqn: cq.cqn() });
    assert_eq!(took(channel.try_get_event()), of(&cq), "it works on");
    cq.ack_events(1).unwrap();
    cq.destroy().map_err(|e| e.error).unwrap();
    let dev = dev.close().map(|()| "closed").unwrap_err();
    assert_eq!(dev.error.errno(), EBUSY, "the channel is the device's");
    channel.destroy().map_err(|e| e.error).unwrap();
    close(&port, dev.object);
}

#[test]
fn a_channel_that_was_dropped_leaves_its_cqs_working() {
    let (channel, mut pair) = channel_pair();
    drop(channel);
    pair.cq[1].req_notify(false).unwrap();
    pair.post(1, SendFlags::empty());
    pair.dev.service();
    pair.poll(0, 1);
    pair.poll(1, 1);
    pair.end();
}

#[test]
fn a_channel_of_another_device_is_einval_after_the_vector_and_before_the_size() {
    let ((port, dev), (other_port, other)) = (open(), open());
    let channel = other.create_comp_channel();
    let create = |cqe, comp_vector, channel| {
        dev.create_cq_ex(&CqInitAttrEx { cqe, comp_vector, channel, ..Default::default() }).map(drop)
    };
    let what = |result: Result<(), Error>| match result {
        Err(Error::Invalid { what }) => what,
        other => panic!("{other:?}"),
    };
    assert!(what(create(7, 0, Some(&channel))).contains("channel of another device"));
    assert!(what(create(1 << 20, 0, Some(&channel))).contains("channel"));
    assert!(what(create(7, 5, Some(&channel))).contains("comp_vector"));
    drop(channel);
    close(&port, dev);
    close(&other_port, other);
}

#[test]
fn a_cq_without_a_channel_can_be_asked_and_tells_nobody() {
    let (port, dev) = open();
    let mut cq = dev.create_cq(7, 0, 0).unwrap();
    let doorbells = port.doorbells.load(Relaxed);
    cq.req_notify(false).unwrap();
    assert_eq!(port.doorbells.load(Relaxed), doorbells, "it would fill the event queue");
    let eqn = context(&dev, &cq).c_eqn();
    port.model.inject(Fault::StrayCompletionEvent { eqn, cqn: cq.cqn() });
    dev.service();
    assert_eq!((dev.event_counters().completions, dev.event_counters().unknown), (1, 0));
    assert_eq!(cq.ack_events(0), Ok(()));
    assert_eq!(cq.ack_events(1).map_err(Error::errno), Err(EINVAL));
    assert_eq!(cq.wait(u64::MAX).map_err(Error::errno), Err(EINVAL));
    cq.destroy().map_err(|e| e.error).unwrap();
    close(&port, dev);
}

/// Arming says how far the CQ was read, which is what decides whether the device has something new to tell.
#[test]
fn asking_at_an_index_tells_of_what_came_behind_it() {
    let (channel, mut pair) = channel_pair();
    for _ in 0..3 {
        pair.post(1, SendFlags::empty());
    }
    pair.poll(0, 3);
    pair.poll(1, 2);
    pair.arm(false);
    assert_eq!(took(channel.try_get_event()), of(&pair.cq[1]), "one of three is not polled");
    assert_eq!(channel.try_get_event(), None);
    pair.cq[1].ack_events(1).unwrap();
    pair.poll(1, 1);
    end(channel, pair);
}

/// Entries that cannot be completions raise events too: the poll that follows tells.
#[test]
fn a_bad_entry_wakes_its_poller() {
    let (channel, mut pair) = channel_pair();
    pair.cq[1].req_notify(false).unwrap();
    let mut entry = [0; 64];
    entry[63] = 0x70;
    assert!(pair.port.model.inject_cqe(pair.cq[1].cqn(), entry));
    assert_eq!(took(channel.try_get_event()), of(&pair.cq[1]));
    pair.cq[1].ack_events(1).unwrap();
    assert_eq!(pair.cq[1].wait(0), Ok(()));
    assert!(matches!(pair.cq[1].poll_cq(&mut [Wc::default(); 2]), Err(PollError::UnknownOpcode { .. })));
    end(channel, pair);
}
