//! Destroying completion queues (`ibv_destroy_cq(3)`): not while a queue is attached; then everything is given back.

use mlx5::dv::CqeCompLayout;
use mlx5::{Error, Pd, Qp, QpCap, QpInitAttr, ibv};

use crate::cq_create::Attr;
use crate::cq_semantics::{complete, ids};
use crate::parent_domain::traffic;
use crate::support::{SIZES, close, create_qp, open, pair_with};

/// Either queue of a queue pair keeps its CQ, until it is destroyed; the CQ that could not be destroyed is as it was.
#[test]
fn a_cq_is_busy_while_any_queue_is_attached_and_works_on() {
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    let other = dev.create_cq(7, 0, 0).unwrap();
    type Attach = fn(&Pd, &mlx5::Cq, &mlx5::Cq) -> Qp;
    let ways: [Attach; 4] = [
        |pd, cq, other| create_qp(pd, cq, other, SIZES),
        |pd, cq, other| create_qp(pd, other, cq, SIZES),
        |pd, cq, _| create_qp(pd, cq, cq, SIZES),
        // A queue without room is attached all the same.
        |pd, cq, other| create_qp(pd, cq, other, QpCap { max_send_wr: 0, ..SIZES }),
    ];
    for attach in ways {
        let cq = dev.create_cq(7, 0, 0).unwrap();
        let qps = [attach(&pd, &cq, &other), attach(&pd, &cq, &other)];
        let mut cq = cq;
        for qp in qps {
            let back = ibv::destroy_cq(cq).unwrap_err();
            assert_eq!((back.error, back.error.errno()), (Error::Busy, 16));
            cq = back.object;
            traffic(&port, &dev, &pd, &mut cq);
            qp.destroy().map_err(|e| e.error).unwrap();
        }
        cq.destroy().map_err(|e| e.error).unwrap();
    }
    // A queue pair that could not be created is not attached.
    let cq = dev.create_cq(7, 0, 0).unwrap();
    let too_much = QpCap { max_send_wr: u32::MAX, ..SIZES };
    pd.create_qp(&mut QpInitAttr::new(&cq, &cq, too_much)).unwrap_err();
    cq.destroy().map_err(|e| e.error).unwrap();
    drop((other, pd));
    close(&port, dev);
}

/// With entries that nobody has polled, in every format.
#[test]
fn a_cq_with_unpolled_entries_is_destroyed_and_all_is_given_back() {
    let kinds: [fn(&mut Attr<'_>); 7] = [
        |_| {},
        |a| a.size(128),
        |a| {
            a.size(128);
            a.dv_flags(1);
        },
        |a| a.compress(1),
        |a| {
            a.size(128);
            a.compress(2);
        },
        |a| {
            a.compress(4);
            a.layout(CqeCompLayout::Enhanced);
        },
        |a| {
            a.size(128);
            a.compress(1);
            a.layout(CqeCompLayout::Enhanced);
        },
    ];
    for kind in kinds {
        let mut p = pair_with(Default::default(), 15, SIZES, |dev, cqe| {
            let mut attr = Attr::default();
            attr.ex.cqe = cqe;
            kind(&mut attr);
            attr.create(dev).unwrap()
        });
        complete(&mut p, 1, 9);
        assert_eq!(ids(&mut p.cq[1]).len(), 9);
        complete(&mut p, 10, 5);
        p.end();
    }
}
