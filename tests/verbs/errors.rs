//! Each wrong argument gets the error number of its man page, and leaves everything as it was.

use std::ptr::NonNull;

use crate::support::{INIT, RTR, RTS, SIZES, connect, create_qp, open, pair, path_to};
use mlx5::{
    AccessFlags, Cq, Device, Error, Pd, Qp, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState, QpType, RecvWr, SendFlags,
    SendWr, Sge, ibv,
};

const EINVAL: i32 = 22;
const ENOMEM: i32 = 12;
const EOPNOTSUPP: i32 = 95;

fn errno<T>(result: Result<T, Error>) -> Option<i32> {
    result.err().map(Error::errno)
}

/// `ibv_reg_mr(3)`.
#[test]
fn reg_mr_refuses_impossible_access() {
    use AccessFlags as A;
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    let mut memory = [0_u8; 64];
    let ptr = NonNull::from(&mut memory).cast();
    for (access, length, right) in [
        (A::REMOTE_WRITE, 64, Some(EINVAL)),
        (A::REMOTE_ATOMIC, 64, Some(EINVAL)),
        (A::REMOTE_WRITE | A::REMOTE_READ, 64, Some(EINVAL)),
        (A::from_bits_retain(1 << 4), 64, Some(EINVAL)),
        (A::from_bits_retain(1 << 31), 64, Some(EINVAL)),
        (A::from_bits_retain(1 << 19), 64, Some(EINVAL)),
        (A::from_bits_retain(1 << 30), 64, Some(EINVAL)),
        // IBV_ACCESS_RELAXED_ORDERING and the last of IBV_ACCESS_OPTIONAL_RANGE.
        (A::LOCAL_WRITE | A::from_bits_retain(1 << 20), 64, None),
        (A::from_bits_retain(1 << 29), 64, None),
        (A::LOCAL_WRITE, 0, Some(EINVAL)),
        (A::empty(), 64, None),
        (A::REMOTE_READ, 64, None),
        (A::LOCAL_WRITE | A::REMOTE_WRITE | A::REMOTE_ATOMIC | A::REMOTE_READ, 64, None),
    ] {
        // SAFETY: `memory` outlives the region, which is dropped at once, and is not looked at meanwhile.
        assert_eq!(errno(unsafe { pd.reg_mr(ptr, length, access) }), right, "{access:?}, length {length}");
        assert_eq!(errno(pd.alloc_buf(length, access)), right, "{access:?}, length {length}");
    }
    let buf = pd.alloc_buf(10, A::LOCAL_WRITE).unwrap();
    for (offset, len) in [(0, 11), (10, 1), (usize::MAX, 2), (11, 0)] {
        assert_eq!(errno(buf.read(offset, &mut vec![0; len])), Some(EINVAL));
        assert_eq!(errno(buf.write(offset, &vec![0; len])), Some(EINVAL));
    }
    assert_eq!((buf.len(), buf.words().len(), buf.is_empty()), (10, 3, false));
    drop(buf);
    drop(pd);
    crate::support::close(&port, dev);
}

/// `ibv_create_qp(3)`.
#[test]
fn create_qp_refuses_what_the_device_does_not_have() {
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    let cq = dev.create_cq(7, 0, 0).unwrap();
    let most = dev.query_device();
    let cap = |f: fn(&mut QpCap, u32), n| {
        let mut cap = SIZES;
        f(&mut cap, n);
        cap
    };
    for (cap, what) in [
        (cap(|c, n| c.max_send_wr = n, most.max_qp_wr + 1), "max_send_wr"),
        (cap(|c, n| c.max_send_wr = n, u32::MAX), "max_send_wr"),
        (cap(|c, n| c.max_recv_wr = n, most.max_qp_wr + 1), "max_recv_wr"),
        (cap(|c, n| c.max_recv_wr = n, u32::MAX), "max_recv_wr"),
        (cap(|c, n| c.max_send_sge = n, 1000), "max_send_sge"),
        (cap(|c, n| c.max_recv_sge = n, 1000), "max_recv_sge"),
        (cap(|c, n| c.max_inline_data = n, 1024), "max_inline_data"),
        (QpCap::default(), "no queue at all"),
    ] {
        assert_eq!(errno(pd.create_qp(&mut QpInitAttr::new(&cq, &cq, cap))), Some(EINVAL), "{what}");
    }
    let mut raw = QpInitAttr { qp_type: QpType::RawPacket, ..QpInitAttr::new(&cq, &cq, SIZES) };
    assert_eq!(errno(ibv::create_qp(&pd, &mut raw)), Some(EOPNOTSUPP));
    let (other_port, other) = open();
    let foreign = other.create_cq(7, 0, 0).unwrap();
    assert_eq!(errno(pd.create_qp(&mut QpInitAttr::new(&cq, &foreign, SIZES))), Some(EINVAL));
    drop(foreign);
    crate::support::close(&other_port, other);
    // What is given is at least what was asked for.
    let mut attr = QpInitAttr::new(
        &cq,
        &cq,
        QpCap { max_send_wr: 5, max_recv_wr: 3, max_send_sge: 3, max_recv_sge: 3, max_inline_data: 1 },
    );
    let qp = pd.create_qp(&mut attr).unwrap();
    assert_eq!(attr.cap, qp.cap());
    assert!(qp.cap().max_send_wr >= 5 && qp.cap().max_recv_wr >= 3 && qp.cap().max_recv_sge >= 3);
    drop(qp);
    // The CQ is free again: no refused queue pair has stayed attached.
    cq.destroy().map_err(|e| e.error).unwrap();
    pd.dealloc().map_err(|e| e.error).unwrap();
    crate::support::close(&port, dev);
}

struct Fresh {
    dev: Device,
    pd: Pd,
    cq: Cq,
}

impl Fresh {
    /// A queue pair in the state that leads to `to`, connected to itself.
    fn qp_before(&self, to: QpState) -> (Qp, QpAttr) {
        let mut qp = create_qp(&self.pd, &self.cq, &self.cq, SIZES);
        let attr = path_to(&self.dev, qp.qp_num());
        for (qp_state, mask) in STEPS {
            if qp_state == to {
                break;
            }
            qp.modify(&QpAttr { qp_state, ..attr }, mask).unwrap();
        }
        (qp, QpAttr { qp_state: to, cur_qp_state: qp_before_state(to), ..attr })
    }
}

const STEPS: [(QpState, QpAttrMask); 3] = [(QpState::Init, INIT), (QpState::Rtr, RTR), (QpState::Rts, RTS)];

fn qp_before_state(to: QpState) -> QpState {
    match to {
        QpState::Init => QpState::Reset,
        QpState::Rtr => QpState::Init,
        _ => QpState::Rtr,
    }
}

/// `ibv_modify_qp(3)`: its table for reliable connections, attribute by attribute.
#[test]
fn modify_qp_takes_exactly_the_attributes_of_the_man_page() {
    use QpAttrMask as M;
    let (port, dev) = open();
    let (pd, cq) = (dev.alloc_pd().unwrap(), dev.create_cq(7, 0, 0).unwrap());
    let f = Fresh { dev, pd, cq };
    let optional = |to| match to {
        QpState::Rtr => M::ACCESS_FLAGS | M::PKEY_INDEX,
        QpState::Rts => M::ACCESS_FLAGS | M::MIN_RNR_TIMER | M::CUR_STATE,
        _ => M::empty(),
    };
    for (to, required) in STEPS {
        let (mut qp, attr) = f.qp_before(to);
        for bit in (required - M::STATE).iter() {
            assert_eq!(errno(qp.modify(&attr, required - bit)), Some(EINVAL), "{to:?} without {bit:?}");
        }
        for bit in (M::all() - required - optional(to)).iter() {
            let right = match bit {
                M::ALT_PATH if to != QpState::Init => EOPNOTSUPP,
                M::PATH_MIG_STATE if to == QpState::Rts => EOPNOTSUPP,
                _ => EINVAL,
            };
            assert_eq!(errno(qp.modify(&attr, required | bit)), Some(right), "{to:?} with {bit:?}");
        }
        assert_eq!(errno(qp.modify(&attr, required | M::from_bits_retain(1 << 30))), Some(EINVAL));
        assert_eq!(qp.state(), qp_before_state(to), "still where it was");
        assert_eq!(qp.query().unwrap().qp_state, qp_before_state(to), "on the device too");
        qp.modify(&attr, required | optional(to)).unwrap();
        assert_eq!((qp.state(), qp.query().unwrap().qp_state), (to, to));
    }
    let Fresh { dev, pd, cq } = f;
    drop((pd, cq));
    crate::support::close(&port, dev);
}

#[test]
fn modify_qp_refuses_transitions_that_are_not_there() {
    use QpState::{Err as Error_, Init, Reset, Rtr, Rts, Sqd, Sqe};
    let (port, dev) = open();
    let (pd, cq) = (dev.alloc_pd().unwrap(), dev.create_cq(7, 0, 0).unwrap());
    let f = Fresh { dev, pd, cq };
    for (from, to, right) in [
        (Reset, Rtr, EINVAL),
        (Reset, Rts, EINVAL),
        (Reset, Error_, EINVAL),
        (Reset, Reset, EINVAL),
        (Init, Rts, EINVAL),
        (Init, Sqd, EINVAL),
        (Init, Init, EOPNOTSUPP),
        (Rtr, Init, EINVAL),
        (Rtr, Rtr, EINVAL),
        (Rtr, Sqe, EINVAL),
        (Rts, Rtr, EINVAL),
        (Rts, Rts, EOPNOTSUPP),
        (Rts, Sqd, EOPNOTSUPP),
        (Error_, Rts, EINVAL),
        (Error_, Init, EINVAL),
    ] {
        let mut qp = create_qp(&f.pd, &f.cq, &f.cq, SIZES);
        let attr = path_to(&f.dev, qp.qp_num());
        for (qp_state, mask) in STEPS {
            if qp.state() == from {
                break;
            }
            qp.modify(&QpAttr { qp_state, ..attr }, mask).unwrap();
        }
        if from == Error_ {
            qp.modify(&QpAttr { qp_state: Error_, ..attr }, QpAttrMask::STATE).unwrap();
        }
        let mask = STEPS.iter().find(|s| s.0 == to).map_or(QpAttrMask::STATE, |s| s.1);
        assert_eq!(errno(qp.modify(&QpAttr { qp_state: to, ..attr }, mask)), Some(right), "{from:?} to {to:?}");
        assert_eq!((qp.state(), qp.query().unwrap().qp_state), (from, from));
    }
    let Fresh { dev, pd, cq } = f;
    drop((pd, cq));
    crate::support::close(&port, dev);
}

#[test]
fn modify_qp_refuses_values_out_of_range() {
    let (port, dev) = open();
    let (pd, cq) = (dev.alloc_pd().unwrap(), dev.create_cq(7, 0, 0).unwrap());
    let f = Fresh { dev, pd, cq };
    type Break = fn(&mut QpAttr);
    let wrong: [(QpState, Break, &str); 18] = [
        (QpState::Init, |a| a.port_num = 0, "port 0"),
        (QpState::Init, |a| a.port_num = 2, "port 2"),
        (QpState::Init, |a| a.qp_access_flags = AccessFlags::from_bits_retain(1 << 20), "access"),
        (QpState::Rtr, |a| a.rq_psn = 1 << 24, "rq_psn"),
        (QpState::Rtr, |a| a.dest_qp_num = 1 << 24, "dest_qp_num"),
        (QpState::Rtr, |a| a.min_rnr_timer = 32, "min_rnr_timer"),
        (QpState::Rtr, |a| a.max_dest_rd_atomic = 129, "max_dest_rd_atomic"),
        (QpState::Rtr, |a| a.ah_attr.grh = None, "no route on Ethernet"),
        (QpState::Rtr, |a| a.ah_attr.sl = 8, "sl"),
        (QpState::Rtr, |a| a.ah_attr.port_num = 2, "the path's port"),
        (QpState::Rtr, |a| a.ah_attr.static_rate = 16, "static_rate"),
        (
            QpState::Rtr,
            |a| {
                if let Some(g) = &mut a.ah_attr.grh {
                    g.flow_label = 1 << 20
                }
            },
            "flow_label",
        ),
        (
            QpState::Rtr,
            |a| {
                if let Some(g) = &mut a.ah_attr.grh {
                    g.sgid_index = 255
                }
            },
            "sgid_index",
        ),
        (QpState::Rts, |a| a.sq_psn = 1 << 24, "sq_psn"),
        (QpState::Rts, |a| a.timeout = 32, "timeout"),
        (QpState::Rts, |a| a.retry_cnt = 8, "retry_cnt"),
        (QpState::Rts, |a| a.rnr_retry = 8, "rnr_retry"),
        (QpState::Rts, |a| a.max_rd_atomic = 129, "max_rd_atomic"),
    ];
    for (to, break_it, what) in wrong {
        let (mut qp, good) = f.qp_before(to);
        let mask = STEPS.iter().find(|s| s.0 == to).unwrap().1;
        let mut attr = good;
        break_it(&mut attr);
        assert_eq!(errno(qp.modify(&attr, mask)), Some(EINVAL), "{what}");
        qp.modify(&good, mask).unwrap();
    }
    let (mut qp, mut attr) = f.qp_before(QpState::Rts);
    attr.cur_qp_state = QpState::Init;
    assert_eq!(errno(qp.modify(&attr, RTS | QpAttrMask::CUR_STATE)), Some(EINVAL), "not the state it is in");
    drop(qp);
    let Fresh { dev, pd, cq } = f;
    drop((pd, cq));
    crate::support::close(&port, dev);
}

/// `ibv_post_send(3)` and `ibv_post_recv(3)`.
#[test]
fn posting_refuses_bad_requests_and_posts_those_before_them() {
    let mut p = pair();
    let cap = p.qp[0].cap();
    let (some, long) = (p.sge(0, 0, 4), vec![0; cap.max_inline_data as usize + 1]);
    let many = vec![some; cap.max_send_sge as usize + 1];
    let huge = [Sge { length: 1 << 31, ..some }];
    let good = SendWr { wr_id: 1, send_flags: SendFlags::SIGNALED, ..Default::default() };
    let wrong = [
        (SendWr { sg_list: &many, ..good }, "too many pieces"),
        (SendWr { sg_list: &huge, ..good }, "a piece of 2 GiB"),
        (SendWr { inline_data: &long, send_flags: SendFlags::INLINE, ..good }, "too much inlined"),
        (SendWr { inline_data: &[1], ..good }, "inlined data without the flag"),
        (
            SendWr { sg_list: &[some], inline_data: &[1], send_flags: SendFlags::INLINE, ..good },
            "pieces with inlined data",
        ),
        (SendWr { send_flags: SendFlags::from_bits_retain(1 << 4), ..good }, "unknown flag"),
    ];
    for (bad, what) in wrong {
        p.qp[1].post_recv(&[RecvWr::default(); 2]).unwrap();
        let error = ibv::post_send(&mut p.qp[0], &[good, good, bad, good]).unwrap_err();
        assert_eq!((error.index, error.errno()), (2, EINVAL), "{what}");
        assert_eq!((p.poll(0, 2).len(), p.poll(1, 2).len()), (2, 2), "those before it are sent");
        p.port.model.step(1_000_000);
        assert_eq!(p.cq[0].poll_cq(&mut [mlx5::Wc::default()]), Ok(0), "those behind it are not");
    }
    let many = vec![p.sge(1, 0, 4); p.qp[1].cap().max_recv_sge as usize + 1];
    for (list, what) in [(&many[..], "too many pieces"), (&huge[..], "a piece of 2 GiB")] {
        let error = ibv::post_recv(&mut p.qp[1], &[RecvWr { wr_id: 1, sg_list: list }]).unwrap_err();
        assert_eq!((error.index, error.errno()), (0, EINVAL), "{what}");
    }
    // Full.
    let size = p.qp[1].cap().max_recv_wr as usize;
    let error = p.qp[1].post_recv(&vec![RecvWr::default(); size + 1]).unwrap_err();
    assert_eq!((error.index, error.errno()), (size, ENOMEM));
    let size = cap.max_send_wr as usize;
    let error = p.qp[0].post_send(&vec![good; size + 1]).unwrap_err();
    assert_eq!((error.index, error.errno()), (size, ENOMEM));
    p.poll(0, size);
    p.poll(1, size);
    p.qp[0].post_send(&[]).unwrap();
    p.end();
}

#[test]
fn posting_follows_the_state() {
    let (port, dev) = open();
    let (pd, cq) = (dev.alloc_pd().unwrap(), dev.create_cq(15, 0, 0).unwrap());
    let f = Fresh { dev, pd, cq };
    for (before, may_recv) in [(QpState::Init, false), (QpState::Rtr, true), (QpState::Rts, true)] {
        let (mut qp, _) = f.qp_before(before);
        let recv = qp.post_recv(&[RecvWr::default()]).err().map(|e| e.errno());
        assert_eq!(recv, (!may_recv).then_some(EINVAL), "{:?}", qp.state());
        let send = qp.post_send(&[SendWr::default()]).err().map(|e| e.errno());
        assert_eq!(send, Some(EINVAL), "{:?}", qp.state());
    }
    // A queue pair without one of its queues.
    let only = |send, recv| QpCap { max_send_wr: send, max_recv_wr: recv, ..SIZES };
    let mut sender = create_qp(&f.pd, &f.cq, &f.cq, only(4, 0));
    let mut receiver = create_qp(&f.pd, &f.cq, &f.cq, only(0, 4));
    let numbers = (sender.qp_num(), receiver.qp_num());
    connect(&f.dev, &mut sender, numbers.1);
    connect(&f.dev, &mut receiver, numbers.0);
    assert_eq!(sender.post_recv(&[RecvWr::default()]).unwrap_err().errno(), ENOMEM);
    assert_eq!(receiver.post_send(&[SendWr::default()]).unwrap_err().errno(), ENOMEM);
    receiver.post_recv(&[RecvWr { wr_id: 1, sg_list: &[] }]).unwrap();
    sender.post_send(&[SendWr { wr_id: 2, send_flags: SendFlags::SIGNALED, ..Default::default() }]).unwrap();
    let Fresh { dev, pd, mut cq } = f;
    assert_eq!(crate::support::poll_n(&port, &mut cq, 2).len(), 2);
    drop((sender, receiver, pd, cq));
    crate::support::close(&port, dev);
}

#[test]
fn gids_and_ports_beyond_the_tables_are_einval() {
    let (port, dev) = open();
    let ports = dev.query_device().phys_port_cnt;
    for wrong in [0, ports + 1, 255] {
        assert_eq!(errno(ibv::query_port(&dev, wrong)), Some(EINVAL));
    }
    let attr = ibv::query_port(&dev, 1).unwrap();
    assert!(attr.ethernet && attr.active);
    let gid =
        mlx5::Gid { gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 9, 2], mac: dev.info().mac, vlan: None };
    assert_eq!(errno(dev.set_gid(attr.gid_tbl_len as u16, Some(&gid))), Some(EINVAL));
    assert_eq!(attr.pkey_tbl_len, 1, "as Linux's mlx5_query_port_roce says");
    assert_eq!(errno(dev.set_gid(1, Some(&mlx5::Gid { vlan: Some(4096), ..gid }))), Some(EINVAL));
    dev.set_gid(1, Some(&gid)).unwrap();
    dev.set_gid(1, None).unwrap();
    crate::support::close(&port, dev);
}
