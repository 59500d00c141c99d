//! Reads and atomics under way at once: what the requester sends before it has answers, what the responder has room for, and
//! fences.

use crate::one_sided::{Bench, FAA, READ, WRITE};
use crate::qp::QpWish;
use crate::raw::get;
use crate::rdma::Rdma;
use crate::wqe::{Wqe, data, inline, operands, remote};

/// Fence modes as `fm_ce_se` has them, with a completion asked for.
const NONE: u8 = 8;
const FENCE: u8 = 2 << 5 | 8;
const SMALL_AND_FENCE: u8 = 4 << 5 | 8;

fn bench(log_sra: u8, log_rra: u8) -> Bench {
    Bench::with(Rdma::up(), QpWish { log_sra, ..QpWish::default() }, QpWish { log_rra, ..QpWish::default() })
}

/// Writes reads and atomics in turn, with these flags, and rings once for all.
fn requests(b: &mut Bench, flags: &[u8]) {
    let mut last = 0;
    for (n, flags) in flags.iter().enumerate() {
        let (there, into) = (remote(b.theirs.there(0)), data(b.mine.seg(8 * n as u64, 8)));
        let (opcode, middle) = if n % 2 == 0 { (READ, Vec::new()) } else { (FAA, operands(1, 0).to_vec()) };
        let segments = [&there[..], &middle, &into].concat();
        last = b.rdma.write_send(&mut b.a, Wqe { opcode, flags: *flags, imm: 0, segments: &segments });
    }
    b.rdma.ring(&b.a, last);
}

fn statuses(b: &mut Bench, count: usize) -> Vec<(u8, u8)> {
    let one = |b: &mut Bench| {
        let cqe = b.rdma.poll(&mut b.cq_a);
        (cqe[63] >> 4, if cqe[63] >> 4 == 0 { 0 } else { cqe[55] })
    };
    (0..count).map(|_| one(b)).collect()
}

#[test]
fn more_reads_at_once_than_the_responder_has_room_for_are_an_invalid_request() {
    let mut b = bench(2, 1);
    requests(&mut b, &[NONE; 4]);
    assert_eq!(statuses(&mut b, 4), [(0, 0), (0, 0), (13, 0x12), (13, 0x05)]);
    let event = b.rdma.async_eq.take().expect("an event of the responder");
    assert_eq!((event[1], get(&event, 0x39 * 8, 24)), (0x10, b.b.qpn.into()));
    assert_eq!((b.rdma.state(&b.a), b.rdma.state(&b.b)), (6, 6));
    b.rdma.assert_clean();
}

#[test]
fn a_requester_never_has_more_under_way_than_log_sra_max_says() {
    let mut b = bench(1, 1);
    requests(&mut b, &[NONE; 12]);
    assert_eq!(statuses(&mut b, 12), [(0, 0); 12]);
    b.rdma.assert_clean();
}

#[test]
fn a_fence_waits_for_the_answers_before_it() {
    for fence in [FENCE, SMALL_AND_FENCE] {
        let mut b = bench(2, 1);
        requests(&mut b, &[NONE, NONE, fence, NONE, fence, NONE]);
        assert_eq!(statuses(&mut b, 6), [(0, 0); 6]);
        b.rdma.assert_clean();
    }
}

#[test]
fn what_follows_a_read_without_a_fence_may_use_its_memory_before_the_answer_is_there() {
    for (flags, expected) in [(NONE, b"stale"), (FENCE, b"fresh")] {
        let mut b = Bench::new();
        b.theirs.fill(0, b"fresh");
        b.mine.fill(0, b"stale");
        let read = [remote(b.theirs.there(0)), data(b.mine.seg(0, 5))].concat();
        let write = [remote(b.theirs.there(64)), data(b.mine.seg(0, 5))].concat();
        b.rdma.write_send(&mut b.a, Wqe { opcode: READ, flags: NONE, imm: 0, segments: &read });
        let last = b.rdma.write_send(&mut b.a, Wqe { opcode: WRITE, flags, imm: 0, segments: &write });
        b.rdma.ring(&b.a, last);
        assert_eq!(statuses(&mut b, 2), [(0, 0); 2]);
        assert_eq!((&b.theirs.bytes(64, 5), &b.mine.bytes(0, 5)), (&expected.to_vec(), &b"fresh".to_vec()));
        b.rdma.assert_clean();
    }
}

#[test]
fn a_read_after_a_write_sees_it() {
    let mut b = Bench::new();
    let write = [&remote(b.theirs.there(0))[..], &inline(b"first")].concat();
    let read = [remote(b.theirs.there(0)), data(b.mine.seg(0, 5))].concat();
    b.rdma.write_send(&mut b.a, Wqe { opcode: WRITE, flags: NONE, imm: 0, segments: &write });
    let last = b.rdma.write_send(&mut b.a, Wqe { opcode: READ, flags: NONE, imm: 0, segments: &read });
    b.rdma.ring(&b.a, last);
    assert_eq!(statuses(&mut b, 2), [(0, 0); 2]);
    assert_eq!(b.mine.bytes(0, 5), b"first");
    b.rdma.assert_clean();
}
