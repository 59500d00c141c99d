//! Faults of the data path on demand.

use mlx5_model::DataFault;

use crate::completions::wire;
use crate::one_sided::{Bench, READ};
use crate::qp::QpWish;
use crate::raw::get;
use crate::wqe::{data, inline, remote, signalled};

#[test]
fn a_corrupted_message_differs_in_one_byte() {
    let mut w = wire(4, false);
    w.rdma.raw.model.inject_data(DataFault::CorruptPayload { offset: 6, xor: 0x10 }, 1);
    for expected in [b"same", b"saMe", b"same"] {
        let expected: Vec<u8> = expected.iter().map(|b| if *b == b'M' { b'm' ^ 0x10 } else { *b }).collect();
        w.message(8, b"same");
        w.rdma.poll(&mut w.send);
        assert_eq!(w.to.bytes(0, 4), expected);
    }
}

#[test]
fn what_a_read_brings_back_can_be_corrupted_too() {
    let mut b = Bench::new();
    b.theirs.fill(0, b"same");
    b.rdma.raw.model.inject_data(DataFault::CorruptPayload { offset: 1, xor: 0x20 }, 0);
    let segments = [remote(b.theirs.there(0)), data(b.mine.seg(0, 4))].concat();
    b.done(READ, 0, &segments);
    assert_eq!((b.mine.bytes(0, 4), b.theirs.bytes(0, 4)), (b"sAme".to_vec(), b"same".to_vec()));
}

#[test]
fn a_lost_completion_is_never_written() {
    let mut w = wire(4, false);
    // Of one message the receiver's completion comes first.
    w.rdma.raw.model.inject_data(DataFault::LostCqe, 1);
    w.message(8, b"x");
    w.message(8, b"x");
    assert_eq!(get(&w.rdma.poll(&mut w.send), 480, 16), 1);
    assert!(w.rdma.take(&mut w.send).is_none());
}

#[test]
fn swapped_completions_come_in_the_wrong_order() {
    let mut w = wire(4, false);
    w.rdma.raw.model.inject_data(DataFault::SwappedCqe { ns: 1000 }, 1);
    w.message(8, b"x");
    assert!(w.rdma.take(&mut w.send).is_none());
    w.message(8, b"x");
    assert_eq!([get(&w.rdma.poll(&mut w.send), 480, 16), get(&w.rdma.poll(&mut w.send), 480, 16)], [1, 0]);
    w.rdma.raw.model.inject_data(DataFault::SwappedCqe { ns: 1000 }, 1);
    w.message(8, b"x");
    w.rdma.raw.model.step(1000);
    assert_eq!(get(&w.rdma.take(&mut w.send).unwrap(), 480, 16), 2, "alone, it comes late");
}

#[test]
fn of_two_swapped_completions_in_a_row_none_is_lost() {
    let mut w = wire(4, false);
    // Each message has two completions, the receiver's first: those of sends 0 and 1.
    for skip in [1, 3] {
        w.rdma.raw.model.inject_data(DataFault::SwappedCqe { ns: 1000 }, skip);
    }
    for _ in 0..3 {
        w.message(8, b"x");
    }
    let counters = [(); 3].map(|()| get(&w.rdma.poll(&mut w.send), 480, 16));
    assert_eq!(counters, [0, 2, 1]);
    w.rdma.raw.model.step(10_000);
    assert!(w.rdma.take(&mut w.send).is_none());
}

#[test]
fn a_late_completion_without_room_breaks_its_queue_pair_down() {
    let mut w = wire(1, false);
    for _ in 0..2 {
        w.message(8, b"x");
    }
    w.rdma.raw.model.inject_data(DataFault::LateCqe { ns: 5000 }, 1);
    w.message(8, b"x");
    assert_eq!(w.rdma.state(&w.a), 3);
    w.rdma.raw.model.step(5000);
    let kinds: Vec<u8> = std::iter::from_fn(|| w.rdma.async_eq.take()).map(|event| event[1]).collect();
    assert_eq!(kinds, [4, 5], "CQ_ERROR, and of the queue pair");
    assert_eq!(w.rdma.state(&w.a), 6);
    w.rdma.assert_clean();
}

#[test]
fn a_wrong_counter_names_another_work_request() {
    let mut w = wire(4, false);
    w.rdma.raw.model.inject_data(DataFault::WrongCounter { add: 1 }, 1);
    w.message(8, b"x");
    assert_eq!(get(&w.rdma.poll(&mut w.send), 480, 16), 1);
}

#[test]
fn late_completions_stay_in_order() {
    let mut w = wire(4, false);
    w.rdma.raw.model.inject_data(DataFault::LateCqe { ns: 5000 }, 1);
    w.message(8, b"x");
    w.message(8, b"x");
    w.rdma.raw.model.step(4999);
    assert!(w.rdma.take(&mut w.send).is_none());
    w.rdma.raw.model.step(1);
    assert_eq!(get(&w.rdma.take(&mut w.send).unwrap(), 480, 16), 0);
    assert_eq!(get(&w.rdma.take(&mut w.send).unwrap(), 480, 16), 1);
}

#[test]
fn a_failed_send_completes_with_the_syndrome_asked_for() {
    let mut w = wire(4, false);
    w.rdma.raw.model.inject_data(DataFault::FailSend { syndrome: 0x22, vendor: 0x99 }, 0);
    w.message(8, b"x");
    let cqe = w.rdma.poll(&mut w.send);
    assert_eq!((cqe[63] >> 4, cqe[55], cqe[54]), (13, 0x22, 0x99));
    assert_eq!(w.rdma.state(&w.a), 6);
}

#[test]
fn nothing_completes_behind_the_command_that_ends_its_queue_pair() {
    for (opcode, fault) in [
        (0x50a, DataFault::LateCqe { ns: 5000 }), // 2RST_QP
        (0x501, DataFault::LateCqe { ns: 5000 }), // DESTROY_QP
        (0x501, DataFault::SwappedCqe { ns: 5000 }),
    ] {
        let mut w = wire(4, false);
        w.rdma.raw.model.inject_data(fault, 1);
        w.message(8, b"x");
        assert!(w.rdma.take(&mut w.send).is_none());
        w.rdma.leave(opcode, &w.a);
        assert_eq!(get(&w.rdma.take(&mut w.send).unwrap(), 480, 16), 0, "it comes before the command is done");
        w.rdma.raw.model.step(10_000);
        assert!(w.rdma.take(&mut w.send).is_none());
    }
}

#[test]
fn faults_that_were_taken_back_hit_nothing() {
    let mut w = wire(4, false);
    w.rdma.raw.model.inject_data(DataFault::LostCqe, 0);
    w.rdma.raw.model.inject_data(DataFault::FailSend { syndrome: 0x22, vendor: 0x99 }, 0);
    w.rdma.raw.model.clear_faults();
    w.message(8, b"x");
    assert_eq!(w.rdma.poll(&mut w.send)[63] >> 4, 0);
}

#[test]
fn a_message_that_has_to_wait_for_its_receiver_counts_once_and_arrives_corrupted() {
    let cq = crate::connections::CQ;
    let wish = QpWish { rnr_retry: 7, ..QpWish::default() };
    for (skip, expected) in [(0, b"Same"), (1, b"same")] {
        let mut p = crate::connections::pair_with(wish, cq);
        p.rdma.raw.model.inject_data(DataFault::CorruptPayload { offset: 0, xor: 0x20 }, skip);
        p.rdma.send(&mut p.a, signalled(&inline(b"same")));
        p.rdma.raw.model.step(100_000);
        p.recv(64);
        assert_eq!(p.rdma.poll(&mut p.cq_b)[63] >> 4, 2);
        assert_eq!(&p.to.bytes(0, 4), expected, "skip {skip}");
    }
}
