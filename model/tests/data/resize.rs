//! MODIFY_CQ with op_mod 1: another ring for a completion queue, byte for byte.

use mlx5_hw::platform::{DmaMem, Platform};
use mlx5_model::{CapConfig, DataFault, ViolationKind, syndrome_text};

use crate::qp::QpWish;
use crate::raw::{Raw, get, load, put, store, store32};
use crate::rdma::{Cq, CqWish, OLD, Rdma, pages_body};
use crate::squeeze::{BASIC, ENHANCED, compressed, squeeze, untouched};
use crate::wqe::{Wqe, inline};

const MODIFY_CQ: u16 = 0x403;
const RESIZE: u16 = 1;
/// `resize_field_select`: size, page offset, page size.
const ALL: u64 = 7;
const BAD_PARAM: u8 = 0x03;
const BAD_RES_STATE: u8 = 0x09;
const BAD_SIZE_OUTS_CQES: u8 = 0x40;

/// A ring in which nothing was written yet.
fn ring(rdma: &Rdma, wish: CqWish) -> DmaMem {
    let mem = rdma.alloc(wish.entry << wish.log_size);
    for i in 0..1 << wish.log_size {
        store(&mem, i * wish.entry, &vec![OLD; wish.entry - 2]);
        store(&mem, (i + 1) * wish.entry - 2, &[0xff, 0xf0]);
    }
    mem
}

/// What follows the first 8 bytes of the command.
fn body(cqn: u32, log_size: u32, mem: &DmaMem) -> Vec<u8> {
    let mut body = pages_body(264, mem);
    put(&mut body, 8, 24, cqn.into());
    put(&mut body, 32, 32, ALL);
    put(&mut body[8..72], 99, 5, log_size.into());
    body
}

/// Resizes, and returns the old ring.
fn resize(rdma: &Rdma, cq: &mut Cq, log_size: u32) -> DmaMem {
    let wish = CqWish { log_size, ..cq.wish };
    let mem = ring(rdma, wish);
    rdma.raw.command(MODIFY_CQ, RESIZE, &body(cq.cqn, log_size, &mem), 16);
    cq.wish = wish;
    std::mem::replace(&mut cq.mem, mem)
}

fn entry(n: u8) -> [u8; 64] {
    let mut entry = [n; 64];
    entry[63] = 0x20;
    entry
}

fn write(rdma: &Rdma, cq: &Cq, n: u8) {
    assert!(rdma.raw.model.inject_cqe(cq.cqn, entry(n)));
}

/// The descriptor in slot `index`.
fn descriptor(mem: &DmaMem, entry: usize, index: usize) -> Vec<u8> {
    load(mem, (index + 1) * entry - 64, 64)
}

fn context(rdma: &Rdma, cqn: u32) -> Vec<u8> {
    let mut body = [0; 8];
    put(&mut body, 8, 24, cqn.into());
    rdma.raw.command(0x402, 0, &body, 4096)[16..].to_vec()
}

#[test]
fn the_old_ring_ends_with_an_entry_that_says_so_and_the_new_one_goes_on_behind_its_position() {
    for (size, old_log, new_log) in [(64, 3, 5), (64, 4, 1), (128, 2, 4), (128, 3, 3), (64, 0, 3)] {
        for consumed in 0..20_u32 {
            let rdma = Rdma::up();
            let mut cq = rdma.cq(CqWish { log_size: old_log, entry: size, ignore_overrun: false });
            for n in 0..consumed {
                write(&rdma, &cq, n as u8);
                store32(&cq.record, 0, n + 1);
            }
            let waiting = if old_log > 1 { 2 } else { 0 };
            (0..waiting).for_each(|n| write(&rdma, &cq, 100 + n as u8));
            let end = consumed + waiting;
            let old = resize(&rdma, &mut cq, new_log);
            let last = descriptor(&old, size, end as usize & ((1 << old_log) - 1));
            assert_eq!(last[63], 0x50 | (end >> old_log & 1) as u8, "opcode 5 and the old ring's owner");
            for n in 0..waiting {
                let there = descriptor(&old, size, (consumed + n) as usize & ((1 << old_log) - 1));
                assert_eq!(there[..63], entry(100 + n as u8)[..63], "what waits stays where it is");
            }
            store32(&cq.record, 0, end + 1);
            for n in end + 1..end + 6 {
                write(&rdma, &cq, n as u8);
                let there = descriptor(&cq.mem, size, n as usize & ((1 << new_log) - 1));
                assert_eq!(there[..63], entry(n as u8)[..63]);
                assert_eq!(there[63], 0x20 | (n >> new_log & 1) as u8, "the new ring's owner");
                store32(&cq.record, 0, n + 1);
            }
            assert_eq!(get(&context(&rdma, cq.cqn), 360, 24), u64::from(end) + 6, "the producer counter goes on");
            rdma.assert_clean();
        }
    }
}

#[test]
fn the_ending_entry_counts_laps_where_entries_do() {
    let rdma = Rdma::up();
    let mut cq = compressed(&rdma, crate::squeeze::Form { log_size: 1, ..ENHANCED });
    for n in 0..11 {
        write(&rdma, &cq, n);
        store32(&cq.record, 0, u32::from(n) + 1);
    }
    let old = resize(&rdma, &mut cq, 2);
    assert_eq!(descriptor(&old, 64, 1)[62..], [5, 0x50], "position 11 of a ring of 2");
    store32(&cq.record, 0, 12);
    write(&rdma, &cq, 12);
    assert_eq!(descriptor(&cq.mem, 64, 0)[62..], [3, 0x20], "position 12 of a ring of 4");
    rdma.assert_clean();
}

#[test]
fn a_session_is_written_out_before_and_the_next_one_has_a_title_in_the_new_ring() {
    for form in [BASIC, ENHANCED] {
        let mut s = squeeze(form);
        s.burst(5);
        let mut recv = std::mem::replace(&mut s.recv, compressed(&s.rdma, form));
        let old = resize(&s.rdma, &mut recv, 6);
        assert_eq!(descriptor(&old, 64, 5)[63] >> 4, 5);
        s.burst(2);
        assert_eq!(untouched(&recv).len(), 62, "two slots of the new ring are taken");
        let first = descriptor(&recv.mem, 64, 6)[63];
        let (title, second) = if form.enhanced { (0x20, 0x0c) } else { (0x2c, 0x01) };
        assert_eq!((first, descriptor(&recv.mem, 64, 7)[63]), (title, second));
        s.rdma.assert_clean();
    }
}

#[test]
fn completions_that_a_fault_holds_back_come_to_the_new_ring() {
    let mut rdma = Rdma::up();
    let wish = CqWish { log_size: 3, entry: 64, ignore_overrun: false };
    let (send, mut recv) = (rdma.cq(wish), rdma.cq(wish));
    let (mut a, mut b) = rdma.pair(QpWish::default(), &send, &recv);
    let to = rdma.register(4096, 0, crate::rdma::LW);
    rdma.recv(&mut b, &[to.seg(0, 64)]);
    rdma.raw.model.inject_data(DataFault::LateCqe { ns: 1000 }, 0);
    let bell = rdma.write_send(&mut a, Wqe { opcode: 0x0a, flags: 8, imm: 0, segments: &inline(b"late") });
    rdma.ring(&a, bell);
    let old = resize(&rdma, &mut recv, 4);
    assert_eq!(descriptor(&old, 64, 0)[63], 0x50);
    rdma.raw.model.step(2000);
    assert_eq!(descriptor(&recv.mem, 64, 1)[63], 0x20);
    assert_eq!(rdma.drain_async_events(), 0);
    rdma.assert_clean();
}

#[test]
fn a_ring_too_small_for_what_waits_is_refused_and_nothing_happens() {
    let rdma = Rdma::up();
    let mut cq = rdma.cq(CqWish { log_size: 3, entry: 64, ignore_overrun: false });
    (0..5).for_each(|n| write(&rdma, &cq, n));
    let small = ring(&rdma, CqWish { log_size: 2, ..cq.wish });
    let out = rdma.raw.try_command(MODIFY_CQ, RESIZE, &body(cq.cqn, 2, &small), 16);
    assert_eq!(out[0], BAD_SIZE_OUTS_CQES);
    assert_eq!(syndrome_text(get(&out, 32, 32) as u32), Some("more entries wait than the ring has room for"));
    assert_eq!(load(&small, 0, 256), load(&ring(&rdma, CqWish { log_size: 2, ..cq.wish }), 0, 256));
    assert_eq!(descriptor(&cq.mem, 64, 5)[63], 0xf0, "no entry that ends the ring");
    store32(&cq.record, 0, 1);
    resize(&rdma, &mut cq, 2);
    rdma.assert_clean();
}

#[test]
fn a_full_ring_has_no_room_for_the_entry_that_ends_it_unless_it_may_overrun() {
    let rdma = Rdma::up();
    let cq = rdma.cq(CqWish { log_size: 2, entry: 64, ignore_overrun: false });
    (0..4).for_each(|n| write(&rdma, &cq, n));
    let large = ring(&rdma, CqWish { log_size: 4, ..cq.wish });
    let out = rdma.raw.try_command(MODIFY_CQ, RESIZE, &body(cq.cqn, 4, &large), 16);
    assert_eq!(out[0], BAD_SIZE_OUTS_CQES);
    let mut cq = rdma.cq(CqWish { log_size: 2, entry: 64, ignore_overrun: true });
    (0..4).for_each(|n| write(&rdma, &cq, n));
    let old = resize(&rdma, &mut cq, 4);
    assert_eq!(descriptor(&old, 64, 0)[63], 0x51);
    rdma.assert_clean();
}

#[test]
fn the_old_ring_belongs_to_the_driver_again_and_the_new_one_to_the_device() {
    let rdma = Rdma::up();
    let mut cq = rdma.cq(CqWish { log_size: 6, entry: 64, ignore_overrun: false });
    let old = resize(&rdma, &mut cq, 7);
    // SAFETY: from this platform's `alloc`; the device does not use it any more.
    unsafe { rdma.raw.model.free(old) };
    for n in 1..=200 {
        write(&rdma, &cq, 7);
        store32(&cq.record, 0, n + 1);
    }
    rdma.assert_clean();
    // SAFETY: from this platform's `alloc`; that the device still owns it is the point.
    unsafe { rdma.raw.model.free(cq.mem) };
    assert_eq!(rdma.raw.model.take_violations()[0].kind, ViolationKind::FreedWhileOwned);
}

#[test]
fn the_query_tells_size_pages_and_offset_of_the_new_ring() {
    let rdma = Rdma::up();
    let cq = rdma.cq(CqWish { log_size: 2, entry: 64, ignore_overrun: false });
    // 512 entries of 64 bytes, 3/64 of a page of 16 KiB behind the start of the first of three.
    let mem = rdma.raw.model.alloc(3 << 14, 1 << 14).unwrap();
    (0..3 << 8).for_each(|i| store(&mem, i * 64 + 62, &[0xff, 0xf0]));
    let mut command = body(cq.cqn, 9, &mem);
    command.truncate(264);
    (0..3).for_each(|i| command.extend_from_slice(&(mem.iova() + (i << 14)).to_be_bytes()));
    put(&mut command[8..72], 84, 6, 3);
    put(&mut command[8..72], 195, 5, 2);
    rdma.raw.command(MODIFY_CQ, RESIZE, &command, 16);
    let context = context(&rdma, cq.cqn);
    assert_eq!([(99, 5), (84, 6), (195, 5)].map(|(at, bits)| get(&context, at, bits)), [9, 3, 2]);
    assert_eq!(get(&context, 8 * 0x100 + 64, 64), mem.iova() + (1 << 14), "the list's second page");
    write(&rdma, &cq, 9);
    assert_eq!(load(&mem, 3 * 256 + 64, 62), entry(9)[..62]);
    rdma.assert_clean();
}

/// What is left out of the selection stays: here the page size.
#[test]
fn a_field_that_is_not_selected_stays_as_it_was() {
    let rdma = Rdma::up();
    let mut cq = rdma.cq(CqWish { log_size: 2, entry: 128, ignore_overrun: false });
    let wish = CqWish { log_size: 3, ..cq.wish };
    let mem = ring(&rdma, wish);
    let mut command = body(cq.cqn, 3, &mem);
    put(&mut command, 32, 32, 1);
    put(&mut command[8..72], 8, 3, 1); // cqe_sz, as Linux repeats it
    rdma.raw.command(MODIFY_CQ, RESIZE, &command, 16);
    (cq.wish, cq.mem) = (wish, mem);
    write(&rdma, &cq, 3);
    assert_eq!(descriptor(&cq.mem, 128, 1)[..62], entry(3)[..62]);
    rdma.assert_clean();
}

#[test]
fn the_arm_outlives_the_ring_and_the_ending_entry_raises_no_event() {
    let mut rdma = Rdma::up();
    let mut cq = rdma.cq(CqWish { log_size: 2, entry: 64, ignore_overrun: false });
    rdma.arm(&cq, 0, false);
    resize(&rdma, &mut cq, 3);
    assert_eq!(rdma.drain_events(), 0);
    store32(&cq.record, 0, 1);
    write(&rdma, &cq, 1);
    assert_eq!(rdma.drain_events(), 1);
    rdma.assert_clean();
}

#[test]
fn a_queue_in_error_is_neither_resized_nor_moderated() {
    let mut rdma = Rdma::up();
    let cq = rdma.cq(CqWish { log_size: 0, entry: 64, ignore_overrun: false });
    write(&rdma, &cq, 1);
    assert!(!rdma.raw.model.inject_cqe(cq.cqn, entry(2)));
    assert_eq!(rdma.drain_async_events(), 1);
    let mem = ring(&rdma, CqWish { log_size: 3, ..cq.wish });
    let mut command = body(cq.cqn, 3, &mem);
    for (op_mod, len) in [(RESIZE, command.len()), (0, 264)] {
        if op_mod == 0 {
            command[8..].fill(0);
            put(&mut command, 32, 32, 1);
        }
        let out = rdma.raw.try_command(MODIFY_CQ, op_mod, &command[..len], 16);
        assert_eq!((out[0], syndrome_text(get(&out, 32, 32) as u32)), (BAD_RES_STATE, Some("the CQ is in error")));
    }
}

#[test]
fn a_new_ring_of_old_bytes_is_a_violation() {
    let rdma = Rdma::up();
    let cq = rdma.cq(CqWish { log_size: 2, entry: 64, ignore_overrun: false });
    let mem = ring(&rdma, CqWish { log_size: 3, ..cq.wish });
    store(&mem, 7 * 64 + 63, &[0x21]);
    rdma.raw.command(MODIFY_CQ, RESIZE, &body(cq.cqn, 3, &mem), 16);
    assert_eq!(rdma.raw.model.take_violations()[0].kind, ViolationKind::CqNotInitialised);
}

type Spoil = fn(&mut Vec<u8>);

#[test]
fn each_wrong_command_is_refused_for_a_reason_of_its_own_and_the_driver_s_faults_are_violations() {
    use ViolationKind::*;
    let rows: &[(&str, Option<ViolationKind>, Spoil)] = &[
        ("no such CQ", None, |b| put(b, 8, 24, 0xabc)),
        ("a field is selected that cannot be changed", Some(ReservedBits), |b| put(b, 32, 32, 0xf)),
        ("a field that is not selected differs from the CQ's", Some(ReservedBits), |b| put(b, 32, 32, 6)),
        ("a field that is not selected differs from the CQ's", Some(ReservedBits), |b| put(&mut b[8..], 8, 3, 1)),
        ("a field that is not selected differs from the CQ's", Some(ReservedBits), |b| put(&mut b[8..], 132, 12, 1)),
        ("a reserved bit is set", Some(ReservedBits), |b| put(b, 0, 8, 1)),
        ("a reserved bit is set", Some(ReservedBits), |b| put(b, 640 - 64, 64, 1)),
        ("log_cq_size exceeds log_max_cq_sz", None, |b| put(&mut b[8..], 99, 5, 17)),
        ("length of the list differs from what the context says", Some(CommandLength), |b| put(&mut b[8..], 99, 5, 9)),
        ("input length differs from the command's", Some(CommandLength), |b| b.truncate(200)),
        ("a page of the queue is not aligned to its log_page_size", Some(ReservedBits), |b| {
            put(b, 264 * 8, 64, 0x7000_0000_0800);
        }),
        ("a page of the queue is not mapped for the device", Some(DmaUnmapped), |b| {
            put(b, 264 * 8, 64, 0x7000_0000_0000);
        }),
    ];
    for (reason, kind, spoil) in rows {
        let rdma = Rdma::up();
        let cq = rdma.cq(CqWish { log_size: 2, entry: 64, ignore_overrun: false });
        let mem = ring(&rdma, CqWish { log_size: 3, ..cq.wish });
        let mut command = body(cq.cqn, 3, &mem);
        spoil(&mut command);
        let out = rdma.raw.try_command(MODIFY_CQ, RESIZE, &command, 16);
        assert_ne!(out[0], 0, "{reason}");
        assert_eq!(syndrome_text(get(&out, 32, 32) as u32), Some(*reason));
        let broken: Vec<_> = rdma.raw.model.take_violations().iter().map(|violation| violation.kind).collect();
        assert_eq!(broken, kind.as_slice(), "{reason}");
    }
}

#[test]
fn only_a_function_that_can_resizes_and_only_a_ring_that_is_one() {
    let caps = CapConfig { cq_resize: false, ..CapConfig::default() };
    let collapsed: fn(&mut [u8]) = |cqc| put(cqc, 11, 1, 1);
    for (caps, change, reason) in [
        (caps, (|_| ()) as fn(&mut [u8]), "resizing without the cq_resize capability"),
        (CapConfig::default(), collapsed, "a collapsed CQ has no ring to resize"),
    ] {
        let rdma = Rdma::on(Raw::up_with(caps, true));
        let cq = rdma.cq_as(CqWish { log_size: 2, entry: 64, ignore_overrun: false }, change);
        let mem = ring(&rdma, CqWish { log_size: 3, ..cq.wish });
        let out = rdma.raw.try_command(MODIFY_CQ, RESIZE, &body(cq.cqn, 3, &mem), 16);
        assert_eq!((out[0], syndrome_text(get(&out, 32, 32) as u32)), (BAD_PARAM, Some(reason)));
        rdma.assert_clean();
    }
}

/// Both modes: completions go on while the ring changes, and each is in the one ring or in the other.
#[test]
fn no_completion_is_lost_while_the_ring_changes_under_traffic() {
    for threaded in [false, true] {
        let mut rdma = Rdma::up();
        let wish = CqWish { log_size: 7, entry: 64, ignore_overrun: false };
        let (send, recv) = (rdma.cq(wish), rdma.cq(wish));
        let (mut a, mut b) = rdma.pair(QpWish { log_rq: 6, log_sq: 6, ..QpWish::default() }, &send, &recv);
        let to = rdma.register(4096, 0, crate::rdma::LW);
        let thread = threaded.then(|| rdma.raw.model.spawn().unwrap());
        let mut cq = recv;
        for round in 0..20 {
            for _ in 0..16 {
                rdma.recv(&mut b, &[to.seg(0, 64)]);
                let bell = rdma.write_send(&mut a, Wqe { opcode: 0x0a, flags: 0, imm: 0, segments: &inline(b"x") });
                rdma.ring(&a, bell);
            }
            let old = resize(&rdma, &mut cq, 6 + round % 2);
            let mut before = Cq { mem: old, wish: CqWish { log_size: 6 + (round + 1) % 2, ..wish }, ..cq };
            let count = (0..=16).take_while(|_| rdma.poll(&mut before)[63] >> 4 != 5).count();
            (cq.ci, cq.record) = (before.ci, before.record);
            (count..16).for_each(|_| assert_eq!(rdma.poll(&mut cq)[63] >> 4, 2));
        }
        drop(thread);
        assert_eq!(rdma.drain_async_events(), 0);
        rdma.assert_clean();
    }
}
