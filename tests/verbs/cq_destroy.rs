//! Destroying completion queues (`ibv_destroy_cq(3)`): not while a queue is attached; then everything is given back.

use mlx5::dv::CqeCompLayout;
use mlx5::hw::cmd::QueryQp;
use mlx5::{Device, Error, Pd, PollAttr, PollError, Qp, QpCap, QpInitAttr, RecvWr, SendFlags, SendWr, Wc, ibv};

use crate::cq_create::Attr;
use crate::cq_semantics::{complete, ids};
use crate::parent_domain::traffic;
use crate::support::{SIZES, close, connect, create_qp, open, pair_with};

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

/// The user index that the device writes into a queue pair's entries.
fn index(dev: &Device, qp: &Qp) -> u32 {
    // SAFETY: the command only reads.
    unsafe { dev.general_cmd(&QueryQp { qpn: qp.qp_num() }) }.unwrap().user_index()
}

/// A batch that took every slot has not looked at what comes behind them, nor has one that stopped before the end.
#[test]
fn the_index_of_a_destroyed_queue_waits_for_a_batch_that_found_the_ring_empty() {
    let (port, dev) = open();
    let (pd, mut cq) = (dev.alloc_pd().unwrap(), dev.create_cq(3, 0, 0).unwrap());
    let mut live = create_qp(&pd, &cq, &cq, SIZES);
    let me = live.qp_num();
    connect(&dev, &mut live, me);
    let gone = create_qp(&pd, &cq, &cq, SIZES);
    let old = index(&dev, &gone);
    gone.destroy().map_err(|back| back.error).unwrap();
    let mut others = Vec::new();
    for most in [1, 3, 4] {
        live.post_recv(&[RecvWr::default(); 2]).unwrap();
        live.post_send(&[SendWr { send_flags: SendFlags::SIGNALED, ..Default::default() }; 2]).unwrap();
        port.model.step(1_000_000);
        let mut left = 4;
        while left >= most {
            let mut poller = cq.start_poll(&PollAttr::default()).unwrap();
            (1..most).for_each(|_| _ = poller.next().unwrap());
            if most == 4 {
                assert_eq!(poller.next().err(), Some(PollError::Empty), "a whole ring");
            }
            drop(poller);
            left -= most;
            others.push(create_qp(&pd, &cq, &cq, SIZES));
            assert_ne!(index(&dev, others.last().unwrap()), old, "batches of {most}");
        }
        if left != 0 {
            assert_eq!(cq.poll_cq(&mut [Wc::default()]), Ok(left));
        }
    }
    assert_eq!(cq.poll_cq(&mut [Wc::default()]), Ok(0));
    others.push(create_qp(&pd, &cq, &cq, SIZES));
    assert_eq!(index(&dev, &others[others.len() - 1]), old);
    drop((others, live, cq, pd));
    close(&port, dev);
}
