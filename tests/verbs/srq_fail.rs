//! Shared receive queues when something fails: a queue pair or a request, a device that refuses, says nothing or lies.

use mlx5::{
    AsyncEvent, Element, ExclusiveCqs, PollError, QpAttr, QpAttrMask, QpInitAttr, QpState, RecvWr, SendFlags, SendWr,
    Wc, WcStatus,
};
use mlx5_model::{DataFault, Effect, Fault, Match};

use crate::srq::{RECEIVER, Shared, event, srq_of};
use crate::support::{SIZES, connect, create_qp, open, poll_n};

/// The last request that a queue pair in error had taken is told: nothing is flushed, as the requests are for others.
#[test]
fn a_queue_pair_in_error_leaves_the_requests_to_others() {
    let mut s = Shared::new(2, 3);
    (0..3).for_each(|id| s.post(id).unwrap());
    let err = QpAttr { qp_state: QpState::Err, ..Default::default() };
    s.receivers[0].modify(&err, QpAttrMask::STATE).unwrap();
    let number = s.receivers[0].qp_num();
    assert_eq!(event(&s.dev), Some(AsyncEvent::QpLastWqeReached(Element { number, context: RECEIVER })));
    assert_eq!(s.receivers[0].context(), RECEIVER);
    s.port.model.step(1_000_000);
    assert_eq!(s.came[0].poll_cq(&mut [Wc::default()]), Ok(0));
    for id in 0..3 {
        s.send(1, b"x");
        assert_eq!(s.poll(1, 1)[0].wr_id, id);
    }
    s.end();
}

/// A message that does not fit breaks the connection it came over, and takes one request.
#[test]
fn a_request_that_fails_ends_with_its_error_and_its_place_comes_free() {
    let mut s = Shared::new(2, 3);
    let small = s.sge(0, 4);
    s.srq.post_recv(&[RecvWr { wr_id: 8, sg_list: &[small] }]).unwrap();
    let send_flags = SendFlags::INLINE | SendFlags::SIGNALED;
    s.senders[0].post_send(&[SendWr { inline_data: b"too long", send_flags, ..Default::default() }]).unwrap();
    let wc = s.poll(0, 1)[0];
    assert_eq!((wc.wr_id, wc.status), (8, WcStatus::LOC_LEN_ERR));
    assert_eq!(poll_n(&s.port, &mut s.sent, 1)[0].status, WcStatus::REM_INV_REQ_ERR);
    (0..3).for_each(|id| s.post(id).unwrap());
    s.send(1, b"fine");
    assert_eq!(s.poll(1, 1)[0].wr_id, 0);
    s.end();
}

/// A completion that the device never writes: its request's place is the one that does not come back, whoever polls, is reset or goes.
/// The queue works on with the others, and gives all its memory back.
#[test]
fn a_request_whose_completion_is_never_written_keeps_its_place_until_the_queue_is_destroyed() {
    let mut s = Shared::new(2, 7);
    (0..7).for_each(|id| s.post(id).unwrap());
    // The receiver's completion comes before its sender's.
    s.port.model.inject_data(DataFault::LostCqe, 2);
    for _ in 0..7 {
        s.send(0, b"x");
    }
    let ids: Vec<u64> = s.poll(0, 6).iter().map(|wc| wc.wr_id).collect();
    assert_eq!(ids, [0, 2, 3, 4, 5, 6]);
    let nothing = |s: &mut Shared| assert_eq!(s.came[0].poll_cq(&mut [Wc::default(); 4]), Ok(0));
    nothing(&mut s);
    assert_eq!(s.room(), 6);
    for lap in 0..3 {
        for _ in 0..6 {
            s.send(1, b"x");
        }
        s.poll(1, 6);
        match lap {
            0 => s.receivers[0].reset(ExclusiveCqs::Same(&mut s.came[0])).unwrap(),
            1 => s.receivers.remove(0).destroy().map_err(|e| e.error).unwrap(),
            _ => s.came.remove(0).destroy().map_err(|e| e.error).unwrap(),
        }
        assert_eq!(s.room(), 6, "{lap}");
    }
    s.end();
}

/// The device is not trusted: it names places that do not exist, were never posted or are over, and writes to the links.
#[test]
fn a_device_that_names_anything_ends_no_request_twice() {
    let mut s = Shared::new(1, 7);
    s.post(5).unwrap();
    s.send(0, b"x");
    let mut raw = [0; 64];
    {
        // SAFETY: the command only reads.
        let asked = unsafe { s.dev.general_cmd(&mlx5::hw::cmd::QueryQp { qpn: s.receivers[0].qp_num() }) };
        raw[32..36].copy_from_slice(&asked.unwrap().user_index().to_be_bytes());
    }
    raw[56..60].copy_from_slice(&s.receivers[0].qp_num().to_be_bytes());
    raw[63] = 0x20;
    assert_eq!(s.poll(0, 1)[0].wr_id, 5);
    for place in [1_u16, 6, 7, 8, 0x8000, 0xffff] {
        raw[60..62].copy_from_slice(&place.to_be_bytes());
        assert!(s.port.model.inject_cqe(s.came[0].cqn(), raw));
        let error = s.came[0].poll_cq(&mut [Wc::default()]).unwrap_err();
        assert!(matches!(error, PollError::UnknownQueue { .. }), "{place}: {error:?}");
    }
    // Place 0 is over: it comes again and again, and comes free once.
    raw[60..62].copy_from_slice(&[0, 0]);
    for _ in 0..20 {
        assert!(s.port.model.inject_cqe(s.came[0].cqn(), raw));
        assert_eq!(s.poll(0, 1)[0].wr_id, 5);
    }
    assert_eq!(s.room(), 7);
    s.end();
}

/// Whatever `ALLOW_SCATTER_TO_CQE` says: the context asks for no data in completions, and an entry that claims to hold some ends
/// nothing.
#[test]
fn data_never_lies_in_completions_of_a_shared_queues_requests() {
    let mut s = Shared::new(1, 3);
    let create_flags = mlx5::dv::QpCreateFlags::ALLOW_SCATTER_TO_CQE;
    let init = QpInitAttr { srq: Some(&s.srq), create_flags, ..QpInitAttr::new(&s.came[0], &s.came[0], SIZES) };
    let mut qp = s.pd.create_qp(&mut { init }).unwrap();
    // SAFETY: the command only reads.
    let qpc = unsafe { s.dev.general_cmd(&mlx5::hw::cmd::QueryQp { qpn: qp.qp_num() }) }.unwrap();
    assert_eq!((qpc.cs_req(), qpc.cs_res()), (0x11, 0));
    let mut sender = create_qp(&s.pd, &s.sent, &s.sent, SIZES);
    connect(&s.dev, &mut sender, qp.qp_num());
    connect(&s.dev, &mut qp, sender.qp_num());
    s.senders.push(sender);
    s.receivers.push(qp);
    s.post(1).unwrap();
    let mut raw = [0; 64];
    raw[32..36].copy_from_slice(&qpc.user_index().to_be_bytes());
    // Four bytes of data in the first half of the entry, for the request in place 0.
    raw[44..48].copy_from_slice(&4_u32.to_be_bytes());
    raw[63] = 0x24;
    assert!(s.port.model.inject_cqe(s.came[0].cqn(), raw));
    let error = s.came[0].poll_cq(&mut [Wc::default()]).unwrap_err();
    assert!(matches!(error, PollError::UnexpectedFormat { .. }), "{error:?}");
    s.send(1, b"real");
    assert_eq!(s.poll(0, 1)[0].wr_id, 1);
    s.end();
}

/// Dropped, while the device refuses to end it: nothing is told of it any more, and its memory is kept.
#[test]
fn a_queue_that_cannot_be_ended_is_forgotten_all_the_same() {
    let Shared { port, dev, pd, srq, sent, buf, .. } = Shared::new(0, 3);
    let number = srq.srq_num();
    let limit = || port.model.inject(Fault::QueueEvent { kind: 0x14, number });
    limit();
    assert!(event(&dev).is_some());
    let busy = Effect::Status { status: 9, syndrome: 1 };
    port.model.inject(Fault::Command { at: Match::Every(0x90e), effect: busy });
    limit();
    dev.service();
    drop(srq);
    limit();
    assert_eq!(event(&dev), None);
    assert_eq!(dev.leaked().iter().map(|piece| piece.what).collect::<Vec<_>>(), ["shared receive queue"]);
    drop((pd, sent, buf));
}

/// What the device refused to make, it does not use; what it has not answered to, it may.
#[test]
fn a_creation_that_is_refused_gives_its_memory_back_and_one_without_an_answer_does_not() {
    for (effect, kept) in [(Effect::Status { status: 8, syndrome: 1 }, 0), (Effect::Never, 1)] {
        let (port, dev) = open();
        let pd = dev.alloc_pd().unwrap();
        let before = port.model.dma_outstanding();
        port.model.inject(Fault::Command { at: Match::Every(0x90c), effect });
        let error = srq_of(&pd, 3, 1).unwrap_err();
        let queues = dev.leaked().iter().filter(|piece| piece.what == "shared receive queue").count();
        assert_eq!(queues, kept, "{error}");
        assert_eq!(port.model.dma_outstanding() == before, kept == 0);
        drop((pd, dev));
    }
}
