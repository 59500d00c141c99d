//! The switch.

use mlx5::dv::QpCreateFlags;
use mlx5::hw::cmd::QueryQp;
use mlx5::{Device, Error, Qp, QpInitAttr, SendFlags, SendWr, WrOpcode};
use mlx5_model::{CapConfig, ModelConfig};

use super::{ALLOW, allowing, assert_success, cq_of, next, settle};
use crate::support::{SIZES, close, open, open_with};

/// `cs_req` and `cs_res` of the queue pair's context.
fn sizes(dev: &Device, qp: &Qp) -> (u32, u32) {
    // SAFETY: a query names no memory and takes nothing away.
    let qpc = unsafe { dev.general_cmd(&QueryQp { qpn: qp.qp_num() }) }.unwrap();
    (qpc.cs_req(), qpc.cs_res())
}

/// Linux's numbers: 0x11 and 0x22 for the requester, 1 and 2 for the responder, by the size of each CQ's entries.
#[test]
fn the_size_of_the_data_is_that_of_each_cqs_entries() {
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    let (small, large) = (cq_of(&dev, 7, 64), cq_of(&dev, 7, 128));
    for (send, recv, wanted) in [
        (&small, &small, (0x11, 1)),
        (&small, &large, (0x11, 2)),
        (&large, &small, (0x22, 1)),
        (&large, &large, (0x22, 2)),
    ] {
        for (create_flags, wanted) in
            [(ALLOW, wanted), (QpCreateFlags::empty(), (0, 0)), (QpCreateFlags::DISABLE_SCATTER_TO_CQE, (0, 0))]
        {
            for sq_sig_all in [false, true] {
                let base = QpInitAttr::new(send, recv, SIZES);
                let qp = pd.create_qp(&mut QpInitAttr { create_flags, sq_sig_all, ..base }).unwrap();
                assert_eq!(sizes(&dev, &qp), wanted, "{create_flags:?}");
            }
        }
    }
    drop((small, large, pd));
    close(&port, dev);
}

/// mlx5dv.h's numbers. Unknown bits, bits for raw packets and the contradiction are EINVAL as with libmlx5 and Linux.
#[test]
fn flags_that_cannot_be_had_are_refused() {
    assert_eq!((QpCreateFlags::DISABLE_SCATTER_TO_CQE.bits(), ALLOW.bits()), (1 << 3, 1 << 4));
    let (port, dev) = open();
    let (pd, cq) = (dev.alloc_pd().unwrap(), cq_of(&dev, 7, 64));
    let errno = |bits: u32| {
        let create_flags = QpCreateFlags::from_bits_retain(bits);
        let made = pd.create_qp(&mut QpInitAttr { create_flags, ..QpInitAttr::new(&cq, &cq, SIZES) });
        made.map_or_else(Error::errno, |_| 0)
    };
    let each: Vec<_> = (0..32).map(|bit| errno(1 << bit)).collect();
    assert_eq!(each[..8], [22, 22, 22, 0, 0, 95, 95, 95]);
    assert!(each[8..].iter().all(|e| *e == 22));
    assert_eq!(errno(3 << 3), 22, "allowed and disabled");
    drop((cq, pd));
    close(&port, dev);
}

/// Linux drops the wish where the device cannot (`sctr_data_cqe`), and so do we.
#[test]
fn on_a_device_without_the_flag_has_no_effect() {
    let caps = CapConfig { sctr_data_cqe: false, ..CapConfig::default() };
    let (port, dev) = open_with(ModelConfig { caps, ..ModelConfig::default() });
    let (pd, cq) = (dev.alloc_pd().unwrap(), cq_of(&dev, 7, 64));
    let base = QpInitAttr::new(&cq, &cq, SIZES);
    let qp = pd.create_qp(&mut QpInitAttr { create_flags: ALLOW, ..base }).unwrap();
    assert_eq!(sizes(&dev, &qp), (0, 0));
    drop((qp, cq, pd));
    close(&port, dev);
}

/// An answer has no other way than its completion, so it must have one.
#[test]
fn small_answers_must_be_signalled() {
    for (size, most) in [(64, 32), (128, 64)] {
        let mut p = allowing(size, SIZES);
        let remote = p.remote(1, 0);
        let read = WrOpcode::RdmaRead { remote };
        let add = WrOpcode::AtomicFetchAndAdd { remote, add: 1 };
        let swap = WrOpcode::AtomicCmpAndSwp { remote, compare: 0, swap: 1 };
        for (opcode, pieces, is_ok) in [
            (read, vec![most], false),
            (read, vec![1], false),
            (read, vec![most - 1, 1], false),
            (read, vec![most, 1], true),
            (read, vec![most + 1], true),
            (read, vec![], true),
            (add, vec![8], false),
            (swap, vec![8], false),
            (WrOpcode::Send, vec![8], true),
        ] {
            let list: Vec<_> = pieces.iter().map(|len| p.sge(0, 0, *len)).collect();
            if opcode == WrOpcode::Send {
                let to = p.sge(1, 0, 8);
                super::post_recv(&mut p.qp[1], 0, &[to]);
            }
            let wr = SendWr { sg_list: &list, opcode, ..Default::default() };
            let posted = p.qp[0].post_send(&[wr]);
            assert_eq!(posted.map_err(|e| e.errno()), if is_ok { Ok(()) } else { Err(22) }, "{opcode:?} {pieces:?}");
            p.qp[0].post_send(&[SendWr { send_flags: SendFlags::SIGNALED, wr_id: 9, opcode: read, ..wr }]).unwrap();
            settle(&p);
            assert_success(&next(&mut p, 0), 9);
        }
        p.end();
    }
}
