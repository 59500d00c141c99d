//! Compressed completions through the verbs: they come like full ones, whatever the batch, and the life of queues is the same.

use mlx5::dv::{self, CqeCompLayout, CqeCompResFormat};
use mlx5::hw::cmd::QueryQp;
use mlx5::{
    AccessFlags, CompChannel, Cq, CqInitAttrEx, Device, DmaBuf, ExclusiveCqs, Pd, PollError, Qp, RecvWr, SendFlags,
    SendWr, Sge, Wc, WcFlags, WcOpcode, WcStatus, WrOpcode,
};

use crate::cq_semantics::{POLL, Ring};
use crate::support::{Pair, Port, QP_CAP_64 as CAP, connect, create_qp, open, pair_with};
use mlx5_model::ModelConfig;

/// What a compressed CQ can be created as.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub layout: CqeCompLayout,
    pub cqe_size: u16,
    pub format: CqeCompResFormat,
}

impl Kind {
    pub fn create(self, dev: &Device, cqe: u32) -> Cq {
        self.create_on(dev, cqe, None)
    }

    pub fn create_on(self, dev: &Device, cqe: u32, channel: Option<&CompChannel>) -> Cq {
        let comp_mask =
            dv::CqInitAttrMask::COMPRESSED_CQE | dv::CqInitAttrMask::CQE_SIZE | dv::CqInitAttrMask::CQE_COMP_LAYOUT;
        let (cqe_comp_res_format, cqe_comp_layout, cqe_size) = (self.format, self.layout, self.cqe_size);
        let dv = dv::CqInitAttr { comp_mask, cqe_comp_res_format, cqe_comp_layout, cqe_size, ..Default::default() };
        let attr = CqInitAttrEx { cqe, channel, wc_flags: WcFlags::STANDARD, ..Default::default() };
        dev.dv_create_cq(&attr, &dv).unwrap()
    }
}

/// Both layouts and sizes, and each format.
pub fn kinds() -> Vec<Kind> {
    let mut all = vec![];
    for (layout, cqe_size) in [
        (CqeCompLayout::Basic, 64),
        (CqeCompLayout::Basic, 128),
        (CqeCompLayout::Enhanced, 64),
        (CqeCompLayout::Enhanced, 128),
    ] {
        all.extend(CqeCompResFormat::all().iter().map(|format| Kind { layout, cqe_size, format }));
    }
    all
}

/// The same without the formats.
pub fn forms() -> impl Iterator<Item = Kind> {
    kinds().into_iter().filter(|kind| kind.format == CqeCompResFormat::HASH)
}

/// Sends `n` messages of `1 + wr_id % 50` bytes from side 0 to side 1, posted at once.
pub fn burst(p: &mut Pair, first: u64, n: u64) {
    let lists: Vec<_> = (first..first + n).map(|id| ([p.sge(0, 0, length(id))], [p.sge(1, 0, 64)])).collect();
    let ids = first..first + n;
    let recvs: Vec<_> = ids.clone().zip(&lists).map(|(wr_id, l)| RecvWr { wr_id, sg_list: &l.1 }).collect();
    p.qp[1].post_recv(&recvs).unwrap();
    let send_flags = SendFlags::SIGNALED;
    let send = |(wr_id, l): (u64, &'_ ([Sge; 1], [Sge; 1]))| (wr_id, l.0);
    let sends: Vec<_> = ids.zip(&lists).map(send).collect();
    let sends: Vec<_> =
        sends.iter().map(|(wr_id, l)| SendWr { wr_id: *wr_id, sg_list: l, send_flags, ..Default::default() }).collect();
    p.qp[0].post_send(&sends).unwrap();
    p.port.model.step(1_000_000);
}

const fn length(wr_id: u64) -> usize {
    1 + wr_id as usize % 50
}

/// Checks one completion of a burst, of the side given.
pub fn check(wc: &Wc, side: usize, wr_id: u64, qp_num: u32) {
    let (opcode, bytes) = if side == 0 { (WcOpcode::SEND, 0) } else { (WcOpcode::RECV, length(wr_id) as u32) };
    assert_eq!((wc.wr_id, wc.status, wc.opcode, wc.qp_num), (wr_id, WcStatus::SUCCESS, opcode, qp_num));
    assert_eq!(wc.byte_len, bytes);
}

/// Polls up to `n`, as a poller if `iterate`.
pub fn poll_some(cq: &mut Cq, n: usize, iterate: bool) -> Vec<Wc> {
    if !iterate {
        let mut wcs = vec![Wc::default(); n];
        let polled = cq.poll_cq(&mut wcs).unwrap();
        wcs.truncate(polled);
        return wcs;
    }
    if n == 0 {
        return vec![];
    }
    let Ok(mut poller) = cq.start_poll(&POLL) else { return vec![] };
    let mut wcs = vec![poller.completion().to_wc()];
    while wcs.len() < n {
        match poller.next() {
            Ok(c) => wcs.push(c.to_wc()),
            Err(error) => {
                assert_eq!(error, PollError::Empty);
                break;
            }
        }
    }
    wcs
}

#[test]
fn compressed_completions_come_like_full_ones_in_batches_of_any_size() {
    for kind in kinds() {
        let mut p = pair_with(ModelConfig::default(), 63, CAP, |d, n| kind.create(d, n));
        let rings = [0, 1].map(|side| Ring::of(&p.port, &p.cq[side]));
        let numbers = [p.qp[0].qp_num(), p.qp[1].qp_num()];
        let (mut done, batches) = (0, [1, 3, 16, 64, 2, 7]);
        for round in 0..24 {
            let n = [40, 1, 9, 17, 2, 64, 8][round % 7];
            burst(&mut p, done, n);
            for side in [0, 1] {
                let mut next = done;
                for batch in batches.iter().cycle().skip(round) {
                    let wcs = poll_some(&mut p.cq[side], *batch, (round + batch) % 2 == 0);
                    for wc in &wcs {
                        check(wc, side, next, numbers[side]);
                        next += 1;
                    }
                    assert_eq!(rings[side].consumer() as u64, next, "{kind:?}: what was taken is given back");
                    if wcs.is_empty() {
                        break;
                    }
                }
                assert_eq!(next, done + n, "{kind:?}, round {round}");
            }
            done += n;
        }
        let counts = p.port.model.completions();
        assert!(counts.sessions > 24, "{kind:?}: {counts:?}");
        p.end();
    }
}

/// Every length up to the device's limit, at every place of a ring of 128.
#[test]
fn sessions_of_every_length_are_read_at_every_place() {
    for kind in forms() {
        let mut p = pair_with(ModelConfig::default(), 127, CAP, |d, n| kind.create(d, n));
        let numbers = [p.qp[0].qp_num(), p.qp[1].qp_num()];
        let mut done = 0;
        for length in (1..=64).chain([64; 9]).chain((1..64).rev()) {
            p.port.model.set_session_limit(length);
            burst(&mut p, done, 64);
            for side in [0, 1] {
                let wcs = p.poll(side, 64);
                (done..).zip(&wcs).for_each(|(id, wc)| check(wc, side, id, numbers[side]));
            }
            done += 64;
        }
        p.end();
    }
}

/// Requests of several opcodes in one session: each mini of a send queue has its own.
#[test]
fn a_session_of_sends_has_the_opcode_and_the_request_of_each() {
    for kind in kinds() {
        let mut p = pair_with(ModelConfig::default(), 63, CAP, |d, n| kind.create(d, n));
        for round in 0..5 {
            let remote = p.remote(1, 0);
            let kinds = [
                (WrOpcode::RdmaWrite { remote }, WcOpcode::RDMA_WRITE),
                (WrOpcode::RdmaRead { remote }, WcOpcode::RDMA_READ),
                (WrOpcode::Send, WcOpcode::SEND),
            ];
            p.qp[1].post_recv(&[RecvWr { wr_id: 9, sg_list: &[p.sge(1, 0, 64)] }; 10]).unwrap();
            let list = [p.sge(0, 0, 24)];
            // Every other one is silent.
            let send = |i: usize| {
                let send_flags = if i % 2 == 1 { SendFlags::SIGNALED } else { SendFlags::empty() };
                SendWr {
                    wr_id: 100 + i as u64,
                    sg_list: &list,
                    opcode: kinds[i % 3].0,
                    send_flags,
                    ..Default::default()
                }
            };
            p.qp[0].post_send(&(0..30).map(send).collect::<Vec<_>>()).unwrap();
            let wcs = p.poll(0, 15);
            for (wc, i) in wcs.iter().zip((1..30_usize).step_by(2)) {
                let (opcode, length) = (kinds[i % 3].1, if i % 3 == 1 { 24 } else { 0 });
                assert_eq!((wc.wr_id, wc.status, wc.opcode), (100 + i as u64, WcStatus::SUCCESS, opcode), "{kind:?}");
                assert_eq!(wc.byte_len, length, "{kind:?} round {round}");
            }
            p.poll(1, 10);
        }
        p.end();
    }
}

/// A batch that is forgotten in the middle of a session has changed nothing, wherever the one before it ended.
#[test]
fn a_poller_forgotten_in_a_session_makes_its_completions_come_again() {
    for kind in forms() {
        let mut p = pair_with(ModelConfig::default(), 31, CAP, |d, n| kind.create(d, n));
        let numbers = [p.qp[0].qp_num(), p.qp[1].qp_num()];
        let mut done = 0;
        for (before, forgotten) in (0..20).flat_map(|b| [1, 2, 7, 8, 9, 20].map(|f| (b, f))) {
            burst(&mut p, done, 20);
            for side in [0, 1] {
                let mut wcs = poll_some(&mut p.cq[side], before, false);
                for _ in 0..2 {
                    let mut poller = p.cq[side].start_poll(&POLL).unwrap();
                    let mut taken = 1;
                    while taken < forgotten && poller.next().is_ok() {
                        taken += 1;
                    }
                    std::mem::forget(poller);
                }
                wcs.extend(poll_some(&mut p.cq[side], 64, true));
                assert_eq!(wcs.len(), 20, "{kind:?}: {forgotten} forgotten behind {before}");
                (done..).zip(&wcs).for_each(|(id, wc)| check(wc, side, id, numbers[side]));
            }
            done += 20;
        }
        p.end();
    }
}

/// Two senders, each to a receiver of its own; the receivers share a CQ.
struct Fan {
    port: Port,
    dev: Device,
    pd: Pd,
    sends: Cq,
    recvs: Cq,
    from: Vec<Qp>,
    to: Vec<Qp>,
    buf: DmaBuf,
}

impl Fan {
    fn new(kind: Kind, cqe: u32) -> Self {
        let (port, dev) = open();
        let pd = dev.alloc_pd().unwrap();
        let (sends, recvs) = (dev.create_cq(255, 0, 0).unwrap(), kind.create(&dev, cqe));
        let buf = pd.alloc_buf(64, AccessFlags::LOCAL_WRITE).unwrap();
        let mut fan = Self { port, dev, pd, sends, recvs, from: vec![], to: vec![], buf };
        fan.add();
        fan.add();
        fan
    }

    fn add(&mut self) {
        self.from.push(create_qp(&self.pd, &self.sends, &self.sends, CAP));
        self.to.push(create_qp(&self.pd, &self.recvs, &self.recvs, CAP));
        self.connect(self.to.len() - 1);
    }

    fn connect(&mut self, i: usize) {
        let (from, to) = (self.from[i].qp_num(), self.to[i].qp_num());
        connect(&self.dev, &mut self.from[i], to);
        connect(&self.dev, &mut self.to[i], from);
    }

    /// `n` messages to receiver `i`, in one session as far as the device makes one.
    fn burst(&mut self, i: usize, first: u64, n: u64) {
        let list = [Sge { addr: self.buf.addr(), length: 8, lkey: self.buf.lkey() }];
        let recvs: Vec<_> = (first..first + n).map(|wr_id| RecvWr { wr_id, sg_list: &list }).collect();
        self.to[i].post_recv(&recvs).unwrap();
        let send = SendWr { sg_list: &list, send_flags: SendFlags::SIGNALED, ..Default::default() };
        self.from[i].post_send(&vec![send; n as usize]).unwrap();
        self.port.model.step(1_000_000);
        crate::support::poll_n(&self.port, &mut self.sends, n as usize);
    }

    /// Polls `n` at most.
    fn ids(&mut self, n: usize) -> Vec<u64> {
        poll_some(&mut self.recvs, n, n.is_multiple_of(2)).iter().map(|wc| wc.wr_id).collect()
    }

    fn reset(&mut self, i: usize) {
        self.to[i].reset(ExclusiveCqs::Same(&mut self.recvs)).unwrap();
        self.from[i].reset(ExclusiveCqs::Same(&mut self.sends)).unwrap();
    }

    fn end(self) {
        let Self { port, dev, pd, sends, recvs, from, to, buf } = self;
        drop((from, to));
        sends.destroy().map_err(|e| e.error).unwrap();
        recvs.destroy().map_err(|e| e.error).unwrap();
        drop((buf, pd));
        crate::support::close(&port, dev);
    }
}

/// A reset drops what its queue left in sessions, open or waiting; what others left stays; the queue starts again.
#[test]
fn a_reset_drops_its_queues_part_of_open_and_waiting_sessions() {
    for kind in forms() {
        let mut f = Fan::new(kind, 63);
        // Many starts in the ring: 30 completions a round in a ring of 64.
        for round in 0..70_u64 {
            let polled = round % 11;
            f.burst(0, 0, 10);
            f.burst(1, 100, 9);
            f.burst(0, 10, 6);
            f.burst(1, 109, 5);
            let before: Vec<_> = (0..10).collect();
            assert_eq!(f.ids(polled as usize), before[..polled as usize], "{kind:?}");
            f.reset(0);
            assert_eq!(f.ids(4), [100, 101, 102, 103], "{kind:?} round {round}, {polled} polled");
            if round % 2 == 0 {
                assert_eq!(f.ids(64), (104..114).collect::<Vec<_>>());
            }
            f.connect(0);
            f.burst(0, 200, 12);
            let rest = if round % 2 == 0 { 114..114 } else { 104..114 };
            assert_eq!(f.ids(64), rest.chain(200..212).collect::<Vec<_>>(), "{kind:?} round {round}");
            // The other queue goes on as if nothing had been.
            f.burst(1, 300, 3);
            assert_eq!(f.ids(64), [300, 301, 302]);
        }
        f.end();
    }
}

/// The entry that a reset dropped is still the title of what a device, which knows of no reset in its CQs, may compress after it.
#[test]
fn a_title_that_a_reset_dropped_serves_the_sessions_behind_it() {
    for kind in forms().filter(|kind| kind.layout == CqeCompLayout::Enhanced) {
        for polled in 0..11 {
            let mut p = pair_with(ModelConfig::default(), 63, CAP, |d, n| kind.create(d, n));
            burst(&mut p, 20, 10);
            assert_eq!(poll_some(&mut p.cq[0], polled, false).len(), polled);
            // SAFETY: a query changes nothing.
            let index = unsafe { p.dev.general_cmd(&QueryQp { qpn: p.qp[0].qp_num() }) }.unwrap().user_index();
            let [cq, _] = &mut p.cq;
            p.qp[0].reset(ExclusiveCqs::Same(cq)).unwrap();
            // Sends at places 3 and 5 of the queue: counter, opcode, no bytes.
            let minis = [[0, 3, 0x0a, 0, 0, 0, 0, 0], [0, 5, 0x0a, 0, 0, 0, 0, 0]];
            assert!(p.port.model.inject_session(p.cq[0].cqn(), None, &minis));
            // Their requests are forgotten with the reset, but the queue that the title names is told.
            let right = PollError::UnknownQueue { user_index: index, qpn: p.qp[0].qp_num() };
            for _ in minis {
                assert_eq!(p.cq[0].poll_cq(&mut [Wc::default()]), Err(right), "{kind:?} {polled}");
            }
            assert_eq!(p.cq[0].poll_cq(&mut [Wc::default()]), Ok(0));
            p.poll(1, 10);
            p.end();
        }
    }
}

/// Cases C-025, C-036 and C-043 with sessions: what a destroyed queue left is taken and not delivered, also the rest of a session that
/// is open when it goes, and in the middle of a batch.
#[test]
fn sessions_of_a_destroyed_queue_are_taken_and_not_delivered() {
    for kind in forms() {
        let mut f = Fan::new(kind, 63);
        let ring = Ring::of(&f.port, &f.recvs);
        let mut total = 0;
        for round in 0..40_usize {
            f.add();
            f.burst(2, 0, 20);
            f.burst(1, 100, 10);
            f.burst(2, 20, 5);
            total += 35;
            let gone = f.to.pop().unwrap();
            drop(f.from.pop());
            if round % 2 == 0 {
                let polled = round % 19;
                assert_eq!(f.ids(polled), (0..polled as u64).collect::<Vec<_>>());
                gone.destroy().map_err(|e| e.error).unwrap();
                assert_eq!(f.ids(3), [100, 101, 102], "{kind:?} round {round}");
                assert_eq!(f.ids(64), (103..110).collect::<Vec<_>>());
            } else {
                let mut poller = f.recvs.start_poll(&POLL).unwrap();
                for id in 1..round as u64 % 20 {
                    assert_eq!(poller.next().unwrap().wr_id(), id);
                }
                gone.destroy().map_err(|e| e.error).unwrap();
                for id in 100..110 {
                    assert_eq!(poller.next().unwrap().wr_id(), id, "{kind:?} round {round}");
                }
                assert_eq!(poller.next().err(), Some(PollError::Empty));
            }
            assert_eq!(ring.consumer(), total, "{kind:?}: all of it counts");
        }
        f.end();
    }
}

/// The bytes of a receive's title: for queue `index`, opcode RESP_SEND unless `op_own` says else.
fn title(index: u32, count: u32, op_own: u8) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[32..36].copy_from_slice(&index.to_be_bytes());
    bytes[44..48].copy_from_slice(&count.to_be_bytes());
    bytes[63] = op_own;
    bytes
}

/// An entry that claims to start a session which cannot be: told once with its number, and polling goes on behind it.
#[test]
fn a_session_that_cannot_be_is_told_once_and_polling_goes_on() {
    for kind in forms().filter(|kind| kind.layout == CqeCompLayout::Basic) {
        let mut p = pair_with(ModelConfig::default(), 255, CAP, |d, n| kind.create(d, n));
        let max = p.dev.query_device().cqe_comp_caps.max_num;
        let mut done = 0;
        // Too few, more than the device's limit (less than the ring), more than the ring; an error, an opcode that cannot be
        // a title's.
        for (count, op_own) in
            [(0, 0x2c), (1, 0x2c), (max + 1, 0x2c), (257, 0x2c), (u32::MAX, 0x2c), (4, 0xec), (4, 0x5c)]
        {
            burst(&mut p, done, 10);
            assert!(p.port.model.inject_cqe(p.cq[1].cqn(), title(0, count, op_own)));
            burst(&mut p, done + 10, 10);
            let (mut got, mut told) = (0, vec![]);
            while got < 20 {
                match p.cq[1].poll_cq(&mut [Wc::default(); 7]) {
                    Ok(0) => panic!("{kind:?}: {got} came, {told:?}"),
                    Ok(n) => got += n,
                    Err(error) => told.push(error),
                }
            }
            assert_eq!(told, [PollError::BadSession { count }], "{kind:?}");
            p.poll(0, 20);
            done += 20;
        }
        p.end();
    }
}

#[test]
fn a_block_without_a_title_is_told_and_polling_goes_on() {
    for kind in forms().filter(|kind| kind.layout == CqeCompLayout::Enhanced) {
        let mut p = pair_with(ModelConfig::default(), 63, CAP, |d, n| kind.create(d, n));
        assert!(p.port.model.inject_session(p.cq[1].cqn(), None, &[[0; 8]; 5]));
        burst(&mut p, 0, 10);
        assert_eq!(p.cq[1].poll_cq(&mut [Wc::default(); 8]), Err(PollError::BadSession { count: 5 }), "{kind:?}");
        let wcs = p.poll(1, 10);
        (0..).zip(&wcs).for_each(|(id, wc)| check(wc, 1, id, p.qp[1].qp_num()));
        p.poll(0, 10);
        p.end();
    }
}
