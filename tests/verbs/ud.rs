//! Unreliable datagrams over the model.

use crate::support::{Port, SIZES, close, open, open_with, pattern, poll_n};
use mlx5::{
    AccessFlags, Ah, AhAttr, Cq, CqInitAttrEx, Device, DmaBuf, Error, Gid, GlobalRoute, Pd, PollAttr, PollError, Qp,
    QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState, QpType, RecvWr, Remote, SendFlags, SendWr, Sge, UdAddress, WcFlags,
    WcOpcode, WcResultFlags, WcStatus, WrOpcode, ibv,
};
use mlx5_model::{CapConfig, ModelConfig};

const UD_INIT: QpAttrMask =
    QpAttrMask::STATE.union(QpAttrMask::PKEY_INDEX).union(QpAttrMask::PORT).union(QpAttrMask::QKEY);
const UD_RTR: QpAttrMask = QpAttrMask::STATE;
const UD_RTS: QpAttrMask = QpAttrMask::STATE.union(QpAttrMask::SQ_PSN);
const STEPS: [(QpState, QpAttrMask); 3] = [(QpState::Init, UD_INIT), (QpState::Rtr, UD_RTR), (QpState::Rts, UD_RTS)];

pub const QKEY: u32 = 0x1122_3344;
/// Bytes in front of each datagram's payload.
pub const GRH: usize = 40;

fn create(pd: &Pd, send: &Cq, recv: &Cq, cap: QpCap) -> Qp {
    pd.create_qp(&mut QpInitAttr { qp_type: QpType::Ud, ..QpInitAttr::new(send, recv, cap) }).unwrap()
}

fn ready(qp: &mut Qp, qkey: u32) {
    for (qp_state, mask) in STEPS {
        qp.modify(&QpAttr { qp_state, qkey, port_num: 1, sq_psn: 5, ..Default::default() }, mask).unwrap();
    }
}

/// The way to the port itself.
pub fn way(dev: &Device) -> AhAttr {
    let info = dev.info();
    let grh = GlobalRoute { dgid: info.gid.unwrap_or_default(), hop_limit: 64, ..Default::default() };
    AhAttr { grh: Some(grh), port_num: 1, ..Default::default() }
}

pub struct Bench {
    pub port: Port,
    pub dev: Device,
    pub pd: Pd,
    /// Of sends, and of receives, of both.
    pub cq: [Cq; 2],
    pub qp: [Qp; 2],
    buf: DmaBuf,
}

pub fn bench() -> Bench {
    bench_on(open(), SIZES)
}

pub fn bench_on((port, dev): (Port, Device), cap: QpCap) -> Bench {
    let pd = dev.alloc_pd().unwrap();
    let ex = CqInitAttrEx { cqe: 63, wc_flags: WcFlags::STANDARD, ..Default::default() };
    let cq = [(); 2].map(|()| dev.create_cq_ex(&ex).unwrap());
    let mut qp = [(); 2].map(|()| create(&pd, &cq[0], &cq[1], cap));
    qp.iter_mut().for_each(|qp| ready(qp, QKEY));
    let buf = pd.alloc_buf(1 << 14, AccessFlags::LOCAL_WRITE).unwrap();
    Bench { port, dev, pd, cq, qp, buf }
}

impl Bench {
    fn sge(&self, at: usize, length: usize) -> Sge {
        Sge { addr: self.buf.addr() + at as u64, length: length as u32, lkey: self.buf.lkey() }
    }

    fn ah(&self) -> Ah {
        self.pd.create_ah(&way(&self.dev)).unwrap()
    }

    /// Posts a receive to the second half of the buffer.
    pub fn recv(&mut self, n: usize, wr_id: u64) {
        let to = self.sge(0x2000, 0x2000);
        self.qp[n].post_recv(&[RecvWr { wr_id, sg_list: &[to] }]).unwrap();
    }

    pub fn bytes(&self, at: usize, length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        self.buf.read(at, &mut out).unwrap();
        out
    }

    pub fn end(self) {
        let Self { port, dev, pd, cq, qp, buf } = self;
        drop((qp, cq, buf, pd));
        close(&port, dev);
    }
}

pub fn to<'a>(ah: &'a Ah, qp: &Qp) -> Option<UdAddress<'a>> {
    Some(UdAddress { ah, remote_qpn: qp.qp_num(), remote_qkey: QKEY })
}

#[test]
fn payloads_of_all_sizes_arrive_behind_the_network_header() {
    let mut b = bench();
    let ah = ibv::create_ah(&b.pd, &way(&b.dev)).unwrap();
    for length in [0, 1, 63, 64, 65, 1024, 4095, 4096] {
        let bytes = pattern(length as u64, length);
        b.buf.write(0, &bytes).unwrap();
        b.recv(1, 30);
        let (list, ud) = ([b.sge(0, length)], to(&ah, &b.qp[1]));
        let send_flags = SendFlags::SIGNALED;
        b.qp[0].post_send(&[SendWr { wr_id: 31, sg_list: &list, ud, send_flags, ..Default::default() }]).unwrap();
        let sent = poll_n(&b.port, &mut b.cq[0], 1)[0];
        assert_eq!((sent.wr_id, sent.status, sent.opcode), (31, WcStatus::SUCCESS, WcOpcode::SEND));
        let got = poll_n(&b.port, &mut b.cq[1], 1)[0];
        assert_eq!((got.wr_id, got.status, got.opcode), (30, WcStatus::SUCCESS, WcOpcode::RECV));
        assert_eq!((got.byte_len as usize, got.flags()), (GRH + length, WcResultFlags::GRH));
        assert_eq!((got.qp_num, got.src_qp), (b.qp[1].qp_num(), b.qp[0].qp_num()));
        assert!(b.bytes(0x2000 + GRH, length) == bytes, "{length} bytes");
        // An IPv6 header: version, next header UDP, hop limit, both addresses.
        let (header, gid) = (b.bytes(0x2000, GRH), b.dev.info().gid.unwrap());
        assert_eq!((header[0] >> 4, header[6], header[7]), (6, 17, 64));
        assert_eq!((&header[8..24], &header[24..40]), (&gid[..], &gid[..]));
    }
    ibv::destroy_ah(ah);
    b.end();
}

#[test]
fn inlined_payloads_and_immediate_data_arrive() {
    let mut b = bench_on(open(), QpCap { max_inline_data: 900, max_send_sge: 1, ..SIZES });
    let (ah, most) = (b.ah(), b.qp[0].cap().max_inline_data as usize);
    assert!(most >= 900);
    for length in [1, 12, 13, 28, 60, 61, 128, 899, most] {
        b.recv(1, 1);
        let bytes = pattern(length as u64, length);
        let ud = to(&ah, &b.qp[1]);
        let opcode = WrOpcode::SendWithImm { imm_data: 0x0a0b_0c0d_u32.to_be() };
        let send_flags = SendFlags::SIGNALED | SendFlags::INLINE;
        let wr = SendWr { wr_id: 2, inline_data: &bytes, opcode, ud, send_flags, ..Default::default() };
        b.qp[0].post_send(&[wr]).unwrap();
        poll_n(&b.port, &mut b.cq[0], 1);
        let got = poll_n(&b.port, &mut b.cq[1], 1)[0];
        assert_eq!((got.imm(), got.flags()), (Some(0x0a0b_0c0d), WcResultFlags::GRH | WcResultFlags::WITH_IMM));
        assert!(b.bytes(0x2000 + GRH, length) == bytes, "{length} bytes");
    }
    drop(ah);
    b.end();
}

#[test]
fn the_largest_requests_that_were_promised_fit() {
    let cap = QpCap { max_send_wr: 8, max_send_sge: 7, ..SIZES };
    let mut b = bench_on(open(), cap);
    let (ah, given) = (b.ah(), b.qp[0].cap());
    assert!(given.max_send_wr >= 8 && given.max_send_sge >= 7);
    let pieces: Vec<_> = (0..given.max_send_sge as usize).map(|n| b.sge(64 * n, 16)).collect();
    let ud = to(&ah, &b.qp[1]);
    for lap in 0..5 {
        let wr = SendWr { wr_id: lap, sg_list: &pieces, ud, send_flags: SendFlags::SIGNALED, ..Default::default() };
        let wrs = vec![wr; given.max_send_wr as usize];
        b.qp[0].post_send(&wrs).unwrap();
        let full = b.qp[0].post_send(&[wr]).unwrap_err();
        poll_n(&b.port, &mut b.cq[0], wrs.len());
        assert_eq!(full.error, Error::NoMemory, "lap {lap}");
    }
    drop(ah);
    b.end();
}

/// The readers of a datagram's way, on Ethernet: the sender's number; the type of the packet where InfiniBand has the service
/// level (1: IPv6, 2: IPv4); no LIDs.
#[test]
fn completions_tell_the_way_over_roce() {
    let mut b = bench();
    let v4 = |d| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, d];
    b.dev.set_gid(1, Some(&Gid { gid: v4(1), mac: b.dev.info().mac, vlan: None })).unwrap();
    let own = way(&b.dev);
    let route = GlobalRoute { dgid: v4(1), sgid_index: 1, hop_limit: 9, ..Default::default() };
    let ipv4 = AhAttr { grh: Some(route), dmac: b.dev.info().mac, ..own };
    for (attr, kind) in [(own, 1), (ipv4, 2)] {
        let ah = b.pd.create_ah(&attr).unwrap();
        b.recv(1, 1);
        let ud = to(&ah, &b.qp[1]);
        b.qp[0]
            .post_send(&[SendWr { inline_data: b"way", send_flags: SendFlags::INLINE, ud, ..Default::default() }])
            .unwrap();
        b.port.model.step(1000);
        let poller = b.cq[1].start_poll(&PollAttr::default()).unwrap();
        let c = poller.completion();
        assert_eq!((c.src_qp(), c.qp_num()), (Some(b.qp[0].qp_num()), Some(b.qp[1].qp_num())));
        assert_eq!((c.sl(), c.slid(), c.dlid_path_bits()), (Some(kind), Some(0), Some(0)));
        assert_eq!((c.wc_flags(), c.byte_len()), (WcResultFlags::GRH, Some(43)));
    }
    assert_eq!(b.bytes(0x2000 + 20, 1), [0x45], "an IPv4 header has the last 20 bytes");
    b.end();
}

/// The same over InfiniBand: source LID and path bits, service level, and the header only where it was asked for.
#[test]
fn completions_tell_the_way_over_infiniband() {
    let caps = CapConfig { ethernet: false, roce: false, ..CapConfig::default() };
    let mut b = bench_on(open_with(ModelConfig { caps, ..ModelConfig::default() }), SIZES);
    for grh in [None, Some(GlobalRoute { dgid: [7; 16], hop_limit: 3, ..Default::default() })] {
        let attr = AhAttr { grh, dlid: 0x35, sl: 11, src_path_bits: 0x21, port_num: 1, ..Default::default() };
        let ah = b.pd.create_ah(&attr).unwrap();
        b.recv(1, 1);
        let ud = to(&ah, &b.qp[1]);
        b.qp[0]
            .post_send(&[SendWr { inline_data: b"way", send_flags: SendFlags::INLINE, ud, ..Default::default() }])
            .unwrap();
        b.port.model.step(1000);
        let poller = b.cq[1].start_poll(&PollAttr::default()).unwrap();
        let c = poller.completion();
        assert_eq!((c.sl(), c.slid(), c.dlid_path_bits()), (Some(11), Some(0x21), Some(0x35)));
        assert_eq!(c.wc_flags().contains(WcResultFlags::GRH), grh.is_some());
        assert_eq!((c.src_qp(), c.byte_len()), (Some(b.qp[0].qp_num()), Some(43)));
        let wc = c.to_wc();
        assert_eq!((wc.sl, wc.slid, wc.dlid_path_bits, wc.src_qp), (11, 0x21, 0x35, b.qp[0].qp_num()));
    }
    assert_eq!(b.bytes(0x2000 + GRH, 3), b"way");
    b.end();
}

#[test]
fn datagrams_that_do_not_fit_their_receiver_are_lost() {
    let mut b = bench();
    let ah = b.ah();
    let stranger = AhAttr { dmac: [2, 0, 0, 0, 0, 9], ..way(&b.dev) };
    let nowhere = b.pd.create_ah(&stranger).unwrap();
    let qpn = b.qp[1].qp_num();
    b.recv(1, 1);
    for ud in [
        UdAddress { ah: &ah, remote_qpn: qpn, remote_qkey: QKEY ^ 1 },
        UdAddress { ah: &ah, remote_qpn: 0xff_fff0, remote_qkey: QKEY },
        UdAddress { ah: &nowhere, remote_qpn: qpn, remote_qkey: QKEY },
    ] {
        b.qp[0].post_send(&[SendWr { ud: Some(ud), send_flags: SendFlags::SIGNALED, ..Default::default() }]).unwrap();
        assert_eq!(poll_n(&b.port, &mut b.cq[0], 1)[0].status, WcStatus::SUCCESS);
        assert_eq!(b.cq[1].start_poll(&PollAttr::default()).err(), Some(PollError::Empty));
    }
    // The top bit stands for the sender's own Q_Key.
    let own = UdAddress { ah: &ah, remote_qpn: qpn, remote_qkey: 0x8000_0000 };
    b.qp[0].post_send(&[SendWr { ud: Some(own), ..Default::default() }]).unwrap();
    assert_eq!(poll_n(&b.port, &mut b.cq[1], 1)[0].wr_id, 1);
    drop((ah, nowhere));
    b.end();
}

#[test]
fn a_datagram_longer_than_a_packet_is_a_local_length_error() {
    let mut b = bench();
    let ah = b.ah();
    let (list, ud) = ([b.sge(0, 4097)], to(&ah, &b.qp[1]));
    b.qp[0].post_send(&[SendWr { wr_id: 9, sg_list: &list, ud, ..Default::default() }]).unwrap();
    let wc = poll_n(&b.port, &mut b.cq[0], 1)[0];
    assert_eq!((wc.wr_id, wc.status), (9, WcStatus::LOC_LEN_ERR));
    drop(ah);
    b.end();
}

/// Many senders to one receiver, and one sender to many receivers, on the same two CQs.
#[test]
fn several_queue_pairs_share_a_cq_of_sends_and_one_of_receives() {
    let mut b = bench();
    let ah = b.ah();
    let mut third = create(&b.pd, &b.cq[0], &b.cq[1], SIZES);
    ready(&mut third, QKEY);
    let numbers = [b.qp[0].qp_num(), b.qp[1].qp_num(), third.qp_num()];
    let room = b.sge(0x2000, 0x2000);
    for round in 0..50_u64 {
        for (n, qp) in b.qp.iter_mut().chain([&mut third]).enumerate() {
            qp.post_recv(&[RecvWr { wr_id: round * 10 + n as u64, sg_list: &[room] }]).unwrap();
        }
        // Each sends to the next one.
        for (n, qp) in b.qp.iter_mut().chain([&mut third]).enumerate() {
            let ud = Some(UdAddress { ah: &ah, remote_qpn: numbers[(n + 1) % 3], remote_qkey: QKEY });
            let wr_id = round * 10 + n as u64;
            qp.post_send(&[SendWr { wr_id, ud, send_flags: SendFlags::SIGNALED, ..Default::default() }]).unwrap();
        }
        for wc in poll_n(&b.port, &mut b.cq[0], 3) {
            assert_eq!(wc.qp_num, numbers[(wc.wr_id - round * 10) as usize]);
        }
        for wc in poll_n(&b.port, &mut b.cq[1], 3) {
            let n = (wc.wr_id - round * 10) as usize;
            assert_eq!((wc.qp_num, wc.src_qp), (numbers[n], numbers[(n + 2) % 3]));
        }
    }
    drop((ah, third));
    b.end();
}

#[test]
fn requests_that_datagrams_do_not_have_are_refused() {
    let mut b = bench();
    let (ah, remote, eight) = (b.ah(), Remote::default(), [b.sge(0, 8)]);
    let other_pd = b.dev.alloc_pd().unwrap();
    let foreign = other_pd.create_ah(&way(&b.dev)).unwrap();
    let ud = to(&ah, &b.qp[1]);
    let plain = SendWr { sg_list: &eight, ud, send_flags: SendFlags::SIGNALED, ..Default::default() };
    let wide = UdAddress { ah: &ah, remote_qpn: 1 << 24, remote_qkey: 0 };
    let strange = UdAddress { ah: &foreign, remote_qpn: 1, remote_qkey: 0 };
    for wr in [
        SendWr { opcode: WrOpcode::RdmaWrite { remote }, ..plain },
        SendWr { opcode: WrOpcode::RdmaWriteWithImm { remote, imm_data: 0 }, ..plain },
        SendWr { opcode: WrOpcode::RdmaRead { remote }, ..plain },
        SendWr { opcode: WrOpcode::AtomicFetchAndAdd { remote, add: 1 }, ..plain },
        SendWr { opcode: WrOpcode::SendWithInv { invalidate_rkey: 1 }, ..plain },
        SendWr { ud: None, ..plain },
        SendWr { ud: Some(wide), ..plain },
        SendWr { ud: Some(strange), ..plain },
    ] {
        assert_eq!(b.qp[0].post_send(&[wr]).unwrap_err().errno(), 22, "{wr:?}");
    }
    b.qp[0].post_send(&[plain]).unwrap();
    assert_eq!(poll_n(&b.port, &mut b.cq[0], 1).len(), 1);
    let mut rc = crate::support::create_qp(&b.pd, &b.cq[0], &b.cq[1], SIZES);
    crate::support::connect(&b.dev, &mut rc, 1);
    assert_eq!(rc.post_send(&[plain]).unwrap_err().errno(), 22, "a destination on a connection");
    drop((ah, foreign, other_pd, rc));
    b.end();
}

/// The table of `ibv_modify_qp(3)` for IBV_QPT_UD, one attribute left out at a time; what is optional is what Linux takes.
#[test]
fn transitions_of_datagrams_need_what_the_man_page_lists() {
    let (port, dev) = open();
    let (pd, cq) = (dev.alloc_pd().unwrap(), dev.create_cq(15, 0, 0).unwrap());
    let mut qp = create(&pd, &cq, &cq, SIZES);
    let errno = |result: Result<(), Error>| result.map_err(Error::errno);
    for (qp_state, mask) in STEPS {
        let attr = QpAttr { qp_state, qkey: QKEY, sq_psn: 0xab, ..crate::support::path_to(&dev, 0x77) };
        for missing in mask.iter().filter(|bit| *bit != QpAttrMask::STATE) {
            assert_eq!(errno(qp.modify(&attr, mask - missing)), Err(22), "{qp_state:?} without {missing:?}");
        }
        for extra in
            [QpAttrMask::AV, QpAttrMask::PATH_MTU, QpAttrMask::DEST_QPN, QpAttrMask::RQ_PSN, QpAttrMask::TIMEOUT]
        {
            assert_eq!(errno(qp.modify(&attr, mask | extra)), Err(22), "{qp_state:?} with {extra:?}");
        }
        qp.modify(&attr, mask).unwrap();
    }
    // SAFETY: a query names no memory and takes nothing away.
    let qpc = unsafe { dev.general_cmd(&mlx5::hw::cmd::QueryQp { qpn: qp.qp_num() }) }.unwrap();
    assert_eq!((qpc.st(), qpc.q_key(), qpc.next_send_psn(), qpc.mtu(), qpc.log_msg_max()), (2, QKEY, 0xab, 5, 12));
    assert_eq!(qp.query().unwrap().qkey, QKEY);
    drop((qp, cq, pd));
    close(&port, dev);
}

#[test]
fn a_q_key_may_change_on_the_way() {
    let (port, dev) = open();
    let (pd, cq) = (dev.alloc_pd().unwrap(), dev.create_cq(15, 0, 0).unwrap());
    let mut qp = create(&pd, &cq, &cq, SIZES);
    for (n, (qp_state, mask)) in STEPS.into_iter().enumerate() {
        let attr = QpAttr { qp_state, qkey: n as u32, port_num: 1, ..Default::default() };
        qp.modify(&attr, mask | QpAttrMask::QKEY).unwrap();
        // SAFETY: a query names no memory and takes nothing away.
        let qpc = unsafe { dev.general_cmd(&mlx5::hw::cmd::QueryQp { qpn: qp.qp_num() }) }.unwrap();
        assert_eq!(qpc.q_key(), n as u32);
    }
    drop((qp, cq, pd));
    close(&port, dev);
}

/// Its limit, its order and the header in front are those of any receive; an empty one loses the datagram.
#[test]
fn datagrams_take_from_a_shared_queue() {
    let mut b = bench();
    let ah = b.ah();
    let mut srq = crate::srq::srq_of(&b.pd, 7, 1).unwrap().0;
    let init = QpInitAttr { qp_type: QpType::Ud, srq: Some(&srq), ..QpInitAttr::new(&b.cq[0], &b.cq[1], SIZES) };
    let mut qps = [(); 2].map(|()| pd_create(&b.pd, init));
    qps.iter_mut().for_each(|qp| ready(qp, QKEY));
    let room = [b.sge(0x2000, 0x100)];
    for round in 0..20 {
        srq.post_recv(&[RecvWr { wr_id: round, sg_list: &room }, RecvWr { wr_id: round + 100, sg_list: &room }])
            .unwrap();
        for n in [1, 0, 1] {
            let ud = to(&ah, &qps[n]);
            let send_flags = SendFlags::INLINE | SendFlags::SIGNALED;
            b.qp[0].post_send(&[SendWr { inline_data: b"to all", ud, send_flags, ..Default::default() }]).unwrap();
            assert_eq!(poll_n(&b.port, &mut b.cq[0], 1)[0].status, WcStatus::SUCCESS);
        }
        let got =
            poll_n(&b.port, &mut b.cq[1], 2).iter().map(|wc| (wc.wr_id, wc.qp_num, wc.byte_len)).collect::<Vec<_>>();
        assert_eq!(got, [(round, qps[1].qp_num(), 46), (round + 100, qps[0].qp_num(), 46)]);
        assert_eq!(b.cq[1].start_poll(&PollAttr::default()).err(), Some(PollError::Empty), "the third is lost");
    }
    drop((ah, qps));
    srq.destroy().map_err(|back| back.error).unwrap();
    b.end();
}

fn pd_create(pd: &Pd, mut init: QpInitAttr<'_>) -> Qp {
    pd.create_qp(&mut init).unwrap()
}

/// Of rdma-core's tests: its ring and its number of iterations, with an extended CQ.
#[test]
fn an_extended_cq_of_2000_carries_a_hundred_datagrams() {
    let b = bench();
    let ah = b.ah();
    let ex = CqInitAttrEx { cqe: 2000, wc_flags: WcFlags::STANDARD, ..Default::default() };
    let mut cq = b.dev.create_cq_ex(&ex).unwrap();
    let mut qps = [(); 2].map(|()| create(&b.pd, &cq, &cq, SIZES));
    qps.iter_mut().for_each(|qp| ready(qp, QKEY));
    let room = [b.sge(0x2000, 0x800)];
    for iteration in 0..100_u64 {
        let (from, to_) = if iteration % 2 == 0 { (0, 1) } else { (1, 0) };
        let bytes = pattern(iteration, 1000);
        b.buf.write(0, &bytes).unwrap();
        qps[to_].post_recv(&[RecvWr { wr_id: iteration, sg_list: &room }]).unwrap();
        let (list, ud) = ([b.sge(0, 1000)], to(&ah, &qps[to_]));
        let wr = SendWr { wr_id: 1000, sg_list: &list, ud, send_flags: SendFlags::SIGNALED, ..Default::default() };
        qps[from].post_send(&[wr]).unwrap();
        b.port.model.step(1000);
        let mut poller = cq.start_poll(&PollAttr::default()).unwrap();
        let mut seen = vec![(poller.completion().wr_id(), poller.completion().src_qp())];
        let next = poller.next().unwrap();
        seen.push((next.wr_id(), next.src_qp()));
        seen.sort_unstable();
        assert_eq!(seen, [(iteration, Some(qps[from].qp_num())), (1000, None)]);
        drop(poller);
        assert!(b.bytes(0x2000 + GRH, 1000) == bytes);
    }
    drop((ah, qps, cq));
    b.end();
}

/// Requests carry a copy of the address vector.
#[test]
fn an_address_handle_may_go_before_its_datagram_does() {
    let mut b = bench();
    let ah = b.ah();
    b.recv(1, 1);
    b.port.deaf.store(true, std::sync::atomic::Ordering::Relaxed);
    let ud = to(&ah, &b.qp[1]);
    b.qp[0].post_send(&[SendWr { ud, ..Default::default() }]).unwrap();
    ah.destroy();
    b.port.deaf.store(false, std::sync::atomic::Ordering::Relaxed);
    // The doorbell that got lost is made up for by the next one.
    let ah = b.ah();
    let ud = to(&ah, &b.qp[0]);
    b.qp[0].post_send(&[SendWr { ud, ..Default::default() }]).unwrap();
    assert_eq!(poll_n(&b.port, &mut b.cq[1], 1)[0].wr_id, 1);
    drop(ah);
    b.end();
}

#[test]
fn posting_datagrams_allocates_nothing() {
    let mut b = bench();
    let ah = b.ah();
    let (list, ud) = ([b.sge(0, 100)], to(&ah, &b.qp[1]));
    let plain = SendWr { sg_list: &list, ud, send_flags: SendFlags::SIGNALED, ..Default::default() };
    let inline = SendWr { sg_list: &[], inline_data: &[7; 60], send_flags: SendFlags::INLINE, ..plain };
    b.port.deaf.store(true, std::sync::atomic::Ordering::Relaxed);
    let qp = &mut b.qp[0];
    let n = crate::no_alloc::calls(|| qp.post_send(&[plain, inline]).unwrap());
    b.port.deaf.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(n, 0, "allocations and frees");
    drop(ah);
    b.end();
}
