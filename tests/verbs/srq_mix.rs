//! Random lives of queue pairs of every transport that take from one shared queue, compared with lists of what each CQ holds.

use std::collections::VecDeque;

use proptest::prelude::*;

use mlx5::dv::{CqeCompLayout, CqeCompResFormat};
use mlx5::{
    AccessFlags, Ah, AhAttr, Cq, Device, DmaBuf, ExclusiveCqs, GlobalRoute, Pd, Qp, QpAttr, QpAttrMask, QpInitAttr,
    QpState, QpType, RecvWr, SendFlags, SendWr, Sge, Srq, UdAddress, Wc, WcStatus,
};

use crate::poll_sessions::Kind;
use crate::srq::srq_of;
use crate::support::{INIT, Port, RTR, RTS, SIZES, close, open, path_to, poll_n};
use crate::uc::{UC_INIT, UC_RTR, UC_RTS};

const Q_KEY: u32 = 0x77;
const UD_INIT: QpAttrMask =
    QpAttrMask::STATE.union(QpAttrMask::PKEY_INDEX).union(QpAttrMask::PORT).union(QpAttrMask::QKEY);
/// Places of the shared queue that can be posted to.
const PLACES: usize = 15;
const LANES: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    Post(usize),
    Send(usize, usize),
    Poll(usize, usize),
    /// Both queue pairs are destroyed, and others made.
    Replace(usize, usize),
    Reset(usize),
    /// The CQ as well.
    ReplaceCq(usize, usize),
}

fn op() -> impl Strategy<Value = Op> {
    let (lane, few) = (0..LANES, 1..6_usize);
    prop_oneof![
        4 => (1..16_usize).prop_map(Op::Post),
        4 => (lane.clone(), few.clone()).prop_map(|(lane, n)| Op::Send(lane, n)),
        3 => (lane.clone(), few).prop_map(|(lane, n)| Op::Poll(lane, n)),
        1 => (lane.clone(), 0..3_usize).prop_map(|(lane, kind)| Op::Replace(lane, kind)),
        1 => lane.clone().prop_map(Op::Reset),
        1 => (lane, 0..9_usize).prop_map(|(lane, kind)| Op::ReplaceCq(lane, kind)),
    ]
}

/// A sender, and a receiver with a CQ of its own.
struct Lane {
    transport: QpType,
    sender: Qp,
    receiver: Qp,
    cq: Cq,
    /// What is in the CQ: the request, and whether its queue pair lives.
    entries: VecDeque<(u64, bool)>,
}

struct World {
    port: Port,
    dev: Device,
    pd: Pd,
    ah: Ah,
    srq: Srq,
    sent: Cq,
    buf: DmaBuf,
    lanes: Vec<Lane>,
    /// Posted and not taken yet.
    waiting: VecDeque<u64>,
    next: u64,
}

fn cq(dev: &Device, kind: usize) -> Cq {
    let of = |layout| Kind { layout, cqe_size: 64, format: CqeCompResFormat::HASH }.create(dev, 63);
    match kind % 3 {
        0 => dev.create_cq(63, 0, 0).unwrap(),
        1 => of(CqeCompLayout::Basic),
        _ => of(CqeCompLayout::Enhanced),
    }
}

fn bring_up(dev: &Device, qp: &mut Qp, transport: QpType, peer: u32) {
    let masks = match transport {
        QpType::Uc => [UC_INIT, UC_RTR, UC_RTS],
        QpType::Ud => [UD_INIT, QpAttrMask::STATE, QpAttrMask::STATE | QpAttrMask::SQ_PSN],
        _ => [INIT, RTR, RTS],
    };
    for (qp_state, mask) in [QpState::Init, QpState::Rtr, QpState::Rts].into_iter().zip(masks) {
        qp.modify(&QpAttr { qp_state, qkey: Q_KEY, ..path_to(dev, peer) }, mask).unwrap();
    }
}

impl World {
    fn new() -> Self {
        let (port, dev) = open();
        let pd = dev.alloc_pd().unwrap();
        let info = *dev.info();
        let grh = GlobalRoute { dgid: info.gid.unwrap(), hop_limit: 64, ..Default::default() };
        let ah = pd.create_ah(&AhAttr { grh: Some(grh), port_num: 1, dmac: info.mac, ..Default::default() }).unwrap();
        let (srq, attr) = srq_of(&pd, PLACES as u32, 1).unwrap();
        assert_eq!(attr.max_wr as usize, PLACES);
        let sent = dev.create_cq(63, 0, 0).unwrap();
        let buf = pd.alloc_buf(4096, AccessFlags::LOCAL_WRITE).unwrap();
        let (waiting, next) = (VecDeque::new(), 0);
        let mut world = Self { port, dev, pd, ah, srq, sent, buf, lanes: vec![], waiting, next };
        for n in 0..LANES {
            let cq = cq(&world.dev, n);
            let (sender, receiver) = world.pair(&cq, n);
            world.lanes.push(Lane { transport: transport(n), sender, receiver, cq, entries: VecDeque::new() });
        }
        world
    }

    fn pair(&self, cq: &Cq, kind: usize) -> (Qp, Qp) {
        let qp_type = transport(kind);
        let sender = QpInitAttr { qp_type, ..QpInitAttr::new(&self.sent, &self.sent, SIZES) };
        let receiver = QpInitAttr { qp_type, srq: Some(&self.srq), ..QpInitAttr::new(cq, cq, SIZES) };
        let [mut sender, mut receiver] = [sender, receiver].map(|mut attr| self.pd.create_qp(&mut attr).unwrap());
        bring_up(&self.dev, &mut sender, qp_type, receiver.qp_num());
        bring_up(&self.dev, &mut receiver, qp_type, sender.qp_num());
        (sender, receiver)
    }

    fn taken(&self) -> usize {
        self.waiting.len() + self.lanes.iter().map(|lane| lane.entries.len()).sum::<usize>()
    }

    fn post(&mut self) {
        let sge = Sge { addr: self.buf.addr(), length: 64, lkey: self.buf.lkey() };
        let posted = self.srq.post_recv(&[RecvWr { wr_id: self.next, sg_list: &[sge] }]);
        assert_eq!(posted.map_err(|full| full.errno()), if self.taken() < PLACES { Ok(()) } else { Err(12) });
        if posted.is_ok() {
            self.waiting.push_back(self.next);
            self.next += 1;
        }
    }

    fn send(&mut self, lane: usize) {
        let Some(id) = self.waiting.pop_front() else { return };
        let lane = &mut self.lanes[lane];
        let to = UdAddress { ah: &self.ah, remote_qpn: lane.receiver.qp_num(), remote_qkey: Q_KEY };
        let ud = (lane.transport == QpType::Ud).then_some(to);
        let send_flags = SendFlags::INLINE | SendFlags::SIGNALED;
        lane.sender.post_send(&[SendWr { inline_data: b"message", ud, send_flags, ..Default::default() }]).unwrap();
        assert_eq!(poll_n(&self.port, &mut self.sent, 1)[0].status, WcStatus::SUCCESS);
        lane.entries.push_back((id, true));
    }

    fn poll(&mut self, lane: usize, most: usize) {
        let lane = &mut self.lanes[lane];
        let mut wcs = vec![Wc::default(); most];
        let polled = lane.cq.poll_cq(&mut wcs).unwrap();
        let mut right = Vec::new();
        while right.len() < most
            && let Some((id, live)) = lane.entries.pop_front()
        {
            right.extend(live.then_some(id));
        }
        assert_eq!(wcs[..polled].iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), right);
        let length = if lane.transport == QpType::Ud { 47 } else { 7 };
        let number = lane.receiver.qp_num();
        assert!(
            wcs[..polled].iter().all(|wc| (wc.status, wc.byte_len, wc.qp_num) == (WcStatus::SUCCESS, length, number))
        );
    }

    fn replace(&mut self, lane: usize, kind: usize, with_cq: Option<Cq>) {
        let Lane { sender, receiver, cq: old, mut entries, .. } = self.lanes.remove(lane);
        receiver.destroy().map_err(|e| e.error).unwrap();
        sender.destroy().map_err(|e| e.error).unwrap();
        entries.iter_mut().for_each(|entry| entry.1 = false);
        let cq = match with_cq {
            None => old,
            Some(other) => {
                old.destroy().map_err(|e| e.error).unwrap();
                entries.clear();
                other
            }
        };
        let (sender, receiver) = self.pair(&cq, kind);
        self.lanes.insert(lane, Lane { transport: transport(kind), sender, receiver, cq, entries });
    }

    fn reset(&mut self, lane: usize) {
        let lane = &mut self.lanes[lane];
        lane.receiver.reset(ExclusiveCqs::Same(&mut lane.cq)).unwrap();
        lane.sender.reset(ExclusiveCqs::Same(&mut self.sent)).unwrap();
        lane.entries.retain(|(_, live)| !live);
        let numbers = (lane.sender.qp_num(), lane.receiver.qp_num());
        bring_up(&self.dev, &mut lane.sender, lane.transport, numbers.1);
        bring_up(&self.dev, &mut lane.receiver, lane.transport, numbers.0);
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Post(n) => (0..n).for_each(|_| self.post()),
            Op::Send(lane, n) => (0..n).for_each(|_| self.send(lane)),
            Op::Poll(lane, n) => self.poll(lane, n),
            Op::Replace(lane, kind) => self.replace(lane, kind, None),
            Op::Reset(lane) => self.reset(lane),
            Op::ReplaceCq(lane, kind) => {
                let cq = cq(&self.dev, kind / 3);
                self.replace(lane, kind, Some(cq));
            }
        }
    }

    /// All places come back.
    fn end(mut self) {
        (0..LANES).for_each(|lane| self.poll(lane, 64));
        while self.taken() < PLACES {
            self.post();
        }
        self.post();
        let Self { port, dev, pd, ah, srq, sent, buf, lanes, .. } = self;
        drop((lanes, srq, sent, buf, ah, pd));
        close(&port, dev);
    }
}

fn transport(kind: usize) -> QpType {
    [QpType::Rc, QpType::Uc, QpType::Ud][kind % 3]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, ..ProptestConfig::default() })]

    /// Each request ends once, in the order in which its CQ holds it, and no place is lost, whoever comes and goes.
    #[test]
    fn no_place_is_lost_and_none_is_used_twice_whoever_comes_and_goes(ops in prop::collection::vec(op(), 1..80)) {
        let mut world = World::new();
        ops.iter().for_each(|op| world.run(op));
        world.end();
    }
}
