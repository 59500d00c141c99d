//! Unreliable connections over the model: what arrives is as on reliable ones, what gets lost is lost in silence.

use crate::support::{REMOTE, SIZES, close, open, path_to, pattern, poll_n};
use mlx5::{
    AccessFlags, Cq, Device, Error, PollAttr, PollError, Qp, QpAttr, QpAttrMask, QpInitAttr, QpState, QpType, RecvWr,
    Remote, SendFlags, SendWr, Sge, WcOpcode, WcResultFlags, WcStatus, WrOpcode,
};

pub const UC_INIT: QpAttrMask =
    QpAttrMask::STATE.union(QpAttrMask::PKEY_INDEX).union(QpAttrMask::PORT).union(QpAttrMask::ACCESS_FLAGS);
pub const UC_RTR: QpAttrMask = QpAttrMask::STATE
    .union(QpAttrMask::AV)
    .union(QpAttrMask::PATH_MTU)
    .union(QpAttrMask::DEST_QPN)
    .union(QpAttrMask::RQ_PSN);
pub const UC_RTS: QpAttrMask = QpAttrMask::STATE.union(QpAttrMask::SQ_PSN);

const STEPS: [(QpState, QpAttrMask); 3] = [(QpState::Init, UC_INIT), (QpState::Rtr, UC_RTR), (QpState::Rts, UC_RTS)];

fn create(pd: &mlx5::Pd, send: &Cq, recv: &Cq) -> Qp {
    pd.create_qp(&mut QpInitAttr { qp_type: QpType::Uc, ..QpInitAttr::new(send, recv, SIZES) }).unwrap()
}

fn connect(dev: &Device, qp: &mut Qp, peer: u32) {
    for (qp_state, mask) in STEPS {
        qp.modify(&QpAttr { qp_state, ..path_to(dev, peer) }, mask).unwrap();
    }
}

/// Two connected queue pairs, each with one CQ for sends and one for receives, and a buffer; `run` gets the first two CQs of
/// senders and receivers each.
fn with_pair(run: impl FnOnce(&crate::support::Port, &Device, &mut [Qp; 2], &mut [Cq; 2], Sge, &mlx5::DmaBuf)) {
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    let mut cq = [(); 2].map(|()| dev.create_cq(63, 0, 0).unwrap());
    let mut qp = [create(&pd, &cq[0], &cq[1]), create(&pd, &cq[0], &cq[1])];
    let numbers = [qp[0].qp_num(), qp[1].qp_num()];
    connect(&dev, &mut qp[0], numbers[1]);
    connect(&dev, &mut qp[1], numbers[0]);
    let buf = pd.alloc_buf(1 << 16, REMOTE | AccessFlags::LOCAL_WRITE).unwrap();
    let sge = Sge { addr: buf.addr(), length: 5000, lkey: buf.lkey() };
    run(&port, &dev, &mut qp, &mut cq, sge, &buf);
    drop((qp, cq, buf, pd));
    close(&port, dev);
}

#[test]
fn messages_and_writes_arrive_whole() {
    with_pair(|port, _, qp, cq, sge, buf| {
        let remote = Remote { addr: buf.addr() + 0x4000, rkey: buf.rkey() };
        let to = Sge { addr: sge.addr + 0x4000, ..sge };
        let imm_data = 0x1234_5678_u32.to_be();
        for (n, (opcode, sent, received)) in [
            (WrOpcode::Send, WcOpcode::SEND, Some(WcOpcode::RECV)),
            (WrOpcode::SendWithImm { imm_data }, WcOpcode::SEND, Some(WcOpcode::RECV)),
            (WrOpcode::RdmaWrite { remote }, WcOpcode::RDMA_WRITE, None),
            (WrOpcode::RdmaWriteWithImm { remote, imm_data }, WcOpcode::RDMA_WRITE, Some(WcOpcode::RECV_RDMA_WITH_IMM)),
        ]
        .into_iter()
        .enumerate()
        {
            let bytes = pattern(n as u64, 5000);
            buf.write(0, &bytes).unwrap();
            qp[1].post_recv(&[RecvWr { wr_id: 7, sg_list: &[to] }]).unwrap();
            let send_flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
            qp[0].post_send(&[SendWr { wr_id: 8, sg_list: &[sge], opcode, send_flags, ..Default::default() }]).unwrap();
            let wc = poll_n(port, &mut cq[0], 1)[0];
            assert_eq!((wc.wr_id, wc.status, wc.opcode, wc.qp_num), (8, WcStatus::SUCCESS, sent, qp[0].qp_num()));
            let mut got = vec![0; 5000];
            buf.read(0x4000, &mut got).unwrap();
            assert!(got == bytes, "{opcode:?}");
            let Some(received) = received else {
                assert_eq!(cq[1].start_poll(&PollAttr::default()).err(), Some(PollError::Empty));
                // Its receive request is still there: the next message takes it.
                continue;
            };
            let wc = poll_n(port, &mut cq[1], 1)[0];
            assert_eq!((wc.wr_id, wc.opcode, wc.byte_len, wc.qp_num), (7, received, 5000, qp[1].qp_num()));
            assert!(!wc.flags().contains(WcResultFlags::GRH), "no header in the data");
        }
    });
}

#[test]
fn what_nobody_waits_for_is_lost_and_the_sender_is_content() {
    with_pair(|port, _, qp, cq, sge, _| {
        for (wr_id, posted) in [(1, false), (2, true)] {
            if posted {
                qp[1].post_recv(&[RecvWr { wr_id: 20, sg_list: &[sge] }]).unwrap();
            }
            let send_flags = SendFlags::SIGNALED | SendFlags::INLINE;
            let wr = SendWr { wr_id, inline_data: &[wr_id as u8; 40], send_flags, ..Default::default() };
            qp[0].post_send(&[wr]).unwrap();
            let wc = poll_n(port, &mut cq[0], 1)[0];
            assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::SUCCESS));
        }
        let wc = poll_n(port, &mut cq[1], 1)[0];
        assert_eq!((wc.wr_id, wc.byte_len), (20, 40));
        assert_eq!(cq[1].start_poll(&PollAttr::default()).err(), Some(PollError::Empty), "the first is lost");
        assert_eq!((qp[0].query().unwrap().qp_state, qp[1].query().unwrap().qp_state), (QpState::Rts, QpState::Rts));
    });
}

/// The table of `ibv_post_send(3)`: reads and atomics are for reliable ones.
#[test]
fn reads_and_atomics_are_refused() {
    with_pair(|_, _, qp, _, sge, _| {
        let (remote, eight) = (Remote::default(), [Sge { length: 8, ..sge }]);
        for opcode in [
            WrOpcode::RdmaRead { remote },
            WrOpcode::AtomicCmpAndSwp { remote, compare: 0, swap: 0 },
            WrOpcode::AtomicFetchAndAdd { remote, add: 0 },
        ] {
            let wr = SendWr { sg_list: &eight, opcode, send_flags: SendFlags::SIGNALED, ..Default::default() };
            let refused = qp[0].post_send(&[SendWr::default(), wr]).unwrap_err();
            assert_eq!((refused.index, refused.errno()), (1, 22), "{opcode:?}");
        }
    });
}

/// A key that the peer invalidates: the man page lists it, the InfiniBand specification has it for reliable ones. The device says.
#[test]
fn a_send_with_invalidation_is_the_devices_to_refuse() {
    with_pair(|port, _, qp, cq, sge, _| {
        let opcode = WrOpcode::SendWithInv { invalidate_rkey: 0x100 };
        qp[0].post_send(&[SendWr { wr_id: 3, sg_list: &[sge], opcode, ..Default::default() }]).unwrap();
        let wc = poll_n(port, &mut cq[0], 1)[0];
        assert_eq!((wc.wr_id, wc.status), (3, WcStatus::LOC_QP_OP_ERR));
    });
}

/// The table of `ibv_modify_qp(3)` for IBV_QPT_UC, one attribute left out at a time; and what only reliable ones have.
#[test]
fn transitions_need_what_the_man_page_lists() {
    let (port, dev) = open();
    let (pd, cq) = (dev.alloc_pd().unwrap(), dev.create_cq(15, 0, 0).unwrap());
    let mut qp = create(&pd, &cq, &cq);
    assert_eq!(qp.qp_type(), QpType::Uc);
    let errno = |result: Result<(), Error>| result.map_err(Error::errno);
    let of_rc = [
        QpAttrMask::TIMEOUT,
        QpAttrMask::RETRY_CNT,
        QpAttrMask::RNR_RETRY,
        QpAttrMask::MAX_QP_RD_ATOMIC,
        QpAttrMask::MAX_DEST_RD_ATOMIC,
        QpAttrMask::MIN_RNR_TIMER,
        QpAttrMask::QKEY,
    ];
    for (qp_state, mask) in STEPS {
        let attr = QpAttr { qp_state, ..path_to(&dev, 0x77) };
        for missing in mask.iter().filter(|bit| *bit != QpAttrMask::STATE) {
            assert_eq!(errno(qp.modify(&attr, mask - missing)), Err(22), "{qp_state:?} without {missing:?}");
        }
        for extra in of_rc {
            assert_eq!(errno(qp.modify(&attr, mask | extra)), Err(22), "{qp_state:?} with {extra:?}");
        }
        qp.modify(&attr, mask).unwrap();
    }
    // SAFETY: a query names no memory and takes nothing away.
    let qpc = unsafe { dev.general_cmd(&mlx5::hw::cmd::QueryQp { qpn: qp.qp_num() }) }.unwrap();
    assert_eq!((qpc.st(), qpc.remote_qpn(), qpc.next_send_psn(), qpc.next_rcv_psn()), (1, 0x77, 0x12_3456, 0x12_3456));
    assert_eq!((qpc.rwe(), qpc.rre(), qpc.rae(), qpc.mtu()), (true, false, false, 3));
    drop((qp, cq, pd));
    close(&port, dev);
}

/// As Linux: a UC receiver may have messages in its completions, and a request that asks for no completion is over all the same.
#[test]
fn data_in_completions_is_for_connections() {
    let (port, dev) = open();
    let (pd, cq) = (dev.alloc_pd().unwrap(), dev.create_cq(15, 0, 0).unwrap());
    for (qp_type, right) in [(QpType::Rc, (0x11, 1)), (QpType::Uc, (0, 1)), (QpType::Ud, (0, 0))] {
        let create_flags = mlx5::dv::QpCreateFlags::ALLOW_SCATTER_TO_CQE;
        let init = QpInitAttr { qp_type, create_flags, ..QpInitAttr::new(&cq, &cq, SIZES) };
        let qp = pd.create_qp(&mut { init }).unwrap();
        // SAFETY: a query names no memory and takes nothing away.
        let qpc = unsafe { dev.general_cmd(&mlx5::hw::cmd::QueryQp { qpn: qp.qp_num() }) }.unwrap();
        assert_eq!((qpc.cs_req(), qpc.cs_res()), right, "{qp_type:?}");
    }
    drop((cq, pd));
    close(&port, dev);
}

#[test]
fn a_short_message_may_lie_in_its_completion() {
    let (port, dev) = open();
    let (pd, mut cq) = (dev.alloc_pd().unwrap(), dev.create_cq(15, 0, 0).unwrap());
    let create_flags = mlx5::dv::QpCreateFlags::ALLOW_SCATTER_TO_CQE;
    let init = QpInitAttr { qp_type: QpType::Uc, create_flags, ..QpInitAttr::new(&cq, &cq, SIZES) };
    let mut qp = [(); 2].map(|()| pd.create_qp(&mut { init }).unwrap());
    let numbers = [qp[0].qp_num(), qp[1].qp_num()];
    connect(&dev, &mut qp[0], numbers[1]);
    connect(&dev, &mut qp[1], numbers[0]);
    let buf = pd.alloc_buf(64, AccessFlags::LOCAL_WRITE).unwrap();
    let to = [Sge { addr: buf.addr(), length: 64, lkey: buf.lkey() }];
    qp[1].post_recv(&[RecvWr { wr_id: 4, sg_list: &to }]).unwrap();
    qp[0].post_send(&[SendWr { inline_data: b"short", send_flags: SendFlags::INLINE, ..Default::default() }]).unwrap();
    assert_eq!(poll_n(&port, &mut cq, 1)[0].wr_id, 4);
    let mut got = [0; 5];
    buf.read(0, &mut got).unwrap();
    assert_eq!((&got, port.model.completions().inlined), (b"short", 1));
    drop((qp, cq, buf, pd));
    close(&port, dev);
}

/// Optional attributes of `ibv_modify_qp(3)`: what the peer may do is told again at each step, and only writes are there to allow.
#[test]
fn what_the_peer_may_do_can_change_on_the_way() {
    let (port, dev) = open();
    let (pd, cq) = (dev.alloc_pd().unwrap(), dev.create_cq(15, 0, 0).unwrap());
    let mut qp = create(&pd, &cq, &cq);
    for ((qp_state, mask), allowed) in STEPS.into_iter().zip([AccessFlags::empty(), REMOTE, AccessFlags::REMOTE_READ]) {
        let attr = QpAttr { qp_state, qp_access_flags: allowed, ..path_to(&dev, 0x77) };
        qp.modify(&attr, mask | QpAttrMask::ACCESS_FLAGS).unwrap();
        // SAFETY: a query names no memory and takes nothing away.
        let qpc = unsafe { dev.general_cmd(&mlx5::hw::cmd::QueryQp { qpn: qp.qp_num() }) }.unwrap();
        let right = (allowed.contains(AccessFlags::REMOTE_WRITE), false, false);
        assert_eq!((qpc.rwe(), qpc.rre(), qpc.rae()), right, "{qp_state:?}");
    }
    drop((qp, cq, pd));
    close(&port, dev);
}
