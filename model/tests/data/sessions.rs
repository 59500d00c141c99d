//! Sessions of the basic layout, byte for byte.

use mlx5_hw::platform::Platform;
use mlx5_model::{CapConfig, ViolationKind};

use crate::raw::{get, load, put, store32};
use crate::squeeze::{
    BASIC, CSUM, CSUM_STRIDX, FTAG, Form, HASH, HEADERS, SEND, SEND_IMM, Squeeze, slot, squeeze, squeeze_with, title,
    untouched,
};
use crate::wqe::{inline, remote};

const ONES: &str =
    " 0101010101010101 0101010101010101 0101010101010101 0101010101010101 0101010101010101 0101010101010101";
const ZEROS: &str =
    " 0000000000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000";

/// A receive title: its count, counter and last byte. Source QP 0x40, user index 0x1235, QP 0x41.
fn receive_title(count: u8, counter: u16, op_own: u8) -> String {
    let empty = "0000000000000000";
    let count = format!("00000000000000{count:02x}").split_at(8).1.to_owned();
    format!(
        "{empty} {empty} {empty} 0000004000000000 0000123500000000 00000000{count} ................ 00000041{counter:04x}..{op_own:02x}"
    )
}

fn array(cq: &crate::rdma::Cq, index: usize) -> Vec<String> {
    slot(cq, index).split(' ').map(str::to_owned).collect()
}

#[test]
fn two_completions_are_a_title_and_an_array_of_two() {
    let mut s = squeeze(BASIC);
    s.burst(2);
    assert_eq!(title(&s.recv, 0), receive_title(2, 0, 0x2c));
    assert_eq!(slot(&s.recv, 1), format!("c0de000000000001 c0de000100000002{ONES}"));
    assert_eq!(untouched(&s.recv), (2..32).collect::<Vec<_>>());
    s.rdma.assert_clean();
}

#[test]
fn one_completion_is_a_plain_entry() {
    let mut s = squeeze(BASIC);
    s.burst(1);
    assert_eq!(title(&s.recv, 0), receive_title(1, 0, 0x20));
    assert_eq!(untouched(&s.recv), (1..32).collect::<Vec<_>>());
}

#[test]
fn a_session_takes_as_many_slots_as_completions_and_writes_the_title_and_each_eighth() {
    for (count, arrays) in [(8, vec![1]), (9, vec![1, 8]), (16, vec![1, 8]), (17, vec![1, 8, 16])] {
        let mut s = squeeze(BASIC);
        s.burst(count);
        assert_eq!(title(&s.recv, 0), receive_title(count as u8, 0, 0x2c));
        let old = untouched(&s.recv);
        let written: Vec<usize> = (1..32).filter(|index| !old.contains(index)).collect();
        assert_eq!(written, arrays, "{count}");
        let minis: Vec<String> = arrays.iter().flat_map(|index| array(&s.recv, *index)).take(count).collect();
        let right: Vec<String> = (0..count).map(|n| format!("c0de{n:04x}000000{:02x}", n + 1)).collect();
        assert_eq!(minis, right);
        assert_eq!(s.rdma.poll(&mut s.send)[63], 0x0c);
        let mut body = [0; 8];
        put(&mut body, 8, 24, s.recv.cqn.into());
        let context = s.rdma.raw.command(0x402, 0, &body, 272);
        assert_eq!(get(&context[16..80], 360, 24), count as u64, "QUERY_CQ: the producer counter");
    }
}

#[test]
fn a_session_goes_on_at_the_start_of_the_ring_where_the_lap_is_another() {
    let mut s = squeeze(Form { log_size: 4, ..BASIC });
    for n in 1..=13 {
        s.burst(1);
        s.consumed(n);
    }
    s.burst(9);
    assert_eq!(title(&s.recv, 13), receive_title(9, 13, 0x2c));
    assert_eq!(array(&s.recv, 14)[0], "c0de000d00000001");
    assert_eq!(array(&s.recv, 14)[7], "c0de001400000008");
    // Position 13 + 8: slot 5 of lap 1. What the array does not need looks like an entry of lap 2.
    assert_eq!(slot(&s.recv, 5), format!("c0de001500000009 0000000000000000{ZEROS}"));
    assert_eq!(title(&s.recv, 6), receive_title(1, 6, 0x20), "a hole");
    s.consumed(22);
    s.burst(2);
    assert_eq!(title(&s.recv, 6), receive_title(2, 22, 0x2d), "the odd lap");
    assert_eq!(slot(&s.recv, 7), format!("c0de001600000001 c0de001700000002{ZEROS}"));
    s.rdma.assert_clean();
}

#[test]
fn the_signature_of_a_title_folds_like_that_of_every_entry() {
    let mut s = squeeze(BASIC);
    s.burst(3);
    assert_eq!(load(&s.recv.mem, 0, 64).iter().fold(0, |x, b| x ^ b), 0xff);
}

#[test]
fn each_form_of_minis_has_its_own_first_dword() {
    for (minis, second) in [
        (HASH, "c0de000100000002"),
        (CSUM, "c0de000100000002"),
        // The queue's number, 0x41, stands for the tag: its low 16 bits first, its top byte beside the byte count.
        (FTAG, "0041000100000002"),
        (CSUM_STRIDX, "c0de000100000002"),
        (HEADERS, "c0de000100000002"),
    ] {
        let mut s = squeeze(Form { minis, ..BASIC });
        s.burst(2);
        assert_eq!(array(&s.recv, 1)[1], second, "format {minis}");
        assert_eq!(array(&s.send, 1)[1], "00010a0000000002", "a requester's is the same in all: format {minis}");
    }
}

#[test]
fn a_requesters_minis_have_counter_opcode_and_bytes() {
    let mut s = squeeze(BASIC);
    let there = remote(s.to.there(0));
    let write = [&there[..], &inline(&[1; 3])].concat();
    s.post(&[
        (SEND, 8, 0, inline(&[1; 9])),
        (SEND, 0, 0, inline(&[1; 8])), // without a completion
        (8, 8, 0, write),
        (0, 8, 0, Vec::new()),
    ]);
    assert_eq!(
        title(&s.send, 0),
        "0000000000000000 0000000000000000 0000000000000000 0000000000000000 \
         0000123400000000 0000000000000003 ................ 0a0000400000..0c"
    );
    assert_eq!(
        array(&s.send, 1)[..4],
        ["00000a0000000009", "0002080000000003", "0003000000000000", "0101010101010101"]
    );
    s.rdma.assert_clean();
}

#[test]
fn in_128_bytes_title_and_arrays_are_second_halves() {
    let mut s = squeeze(Form { entry: 128, ..BASIC });
    s.burst(2);
    assert_eq!(title(&s.recv, 0), receive_title(2, 0, 0x2c));
    assert_eq!(slot(&s.recv, 1), format!("c0de000000000001 c0de000100000002{ONES}"));
    assert_eq!(load(&s.recv.mem, 0, 64), [0xee; 64]);
    assert_eq!(load(&s.recv.mem, 128, 64), [0xee; 64]);
}

#[test]
fn padding_is_zeros_before_each_entry_that_is_written() {
    let mut s = squeeze(Form { entry: 128, padded: true, ..BASIC });
    s.burst(3);
    assert_eq!(title(&s.recv, 0), receive_title(3, 0, 0x2c));
    assert_eq!(load(&s.recv.mem, 0, 64), [0; 64]);
    assert_eq!(load(&s.recv.mem, 128, 64), [0; 64]);
    assert_eq!(load(&s.recv.mem, 256, 64), [0xee; 64], "a hole is a hole");
}

/// Lengths of the sessions of the receive queue, of plain entries 1.
fn lengths(s: &Squeeze) -> Vec<u32> {
    let (mut at, mut found) = (0_usize, Vec::new());
    while at < 32 && !untouched(&s.recv).contains(&at) {
        let entry = load(&s.recv.mem, (at + 1) * s.recv.wish.entry - 64, 64);
        let count = if entry[63] >> 2 & 3 == 3 { get(&entry, 352, 32) as u32 } else { 1 };
        found.push(count);
        at += count as usize;
    }
    found
}

#[test]
fn a_session_ends_before_what_its_title_and_a_mini_do_not_tell() {
    let send = |len: usize| (SEND, 8, 0, inline(&vec![1; len]));
    let solicited = |len: usize| (SEND, 0x0a, 0, inline(&vec![1; len]));
    let imm = |imm| (SEND_IMM, 8, imm, inline(&[1; 4]));
    let rows: &[(&str, Vec<_>, &[u32])] = &[
        ("nothing", vec![send(1), send(2), send(3)], &[3]),
        ("immediate data", vec![send(1), send(1), imm(7), imm(7), imm(8), send(1)], &[2, 2, 1, 1]),
        ("the solicited bit", vec![send(1), solicited(1), solicited(1), send(1), send(1)], &[1, 2, 2]),
    ];
    for (what, requests, right) in rows {
        let mut s = squeeze(BASIC);
        s.post(requests);
        assert_eq!(lengths(&s), *right, "{what}");
        s.rdma.assert_clean();
    }
}

#[test]
fn an_error_is_never_part_of_a_session() {
    let mut s = squeeze(BASIC);
    for _ in 0..2 {
        s.rdma.recv(&mut s.b, &[s.to.seg(0, 4)]);
    }
    let sends: Vec<_> = [1, 2, 9].map(|len| (SEND, 8, 0, inline(&vec![1; len]))).into();
    let mut bell = 0;
    s.rdma.recv(&mut s.b, &[s.to.seg(0, 4)]);
    for (opcode, flags, imm, segments) in &sends {
        bell = s.rdma.write_send(&mut s.a, crate::wqe::Wqe { opcode: *opcode, flags: *flags, imm: *imm, segments });
    }
    s.rdma.ring(&s.a, bell);
    assert_eq!(lengths(&s), [2, 1]);
    assert_eq!(load(&s.recv.mem, 2 * 64 + 63, 1), [0xe0], "a responder error of position 2");
}

#[test]
fn sessions_are_as_long_as_the_capability_and_the_knob_allow() {
    for (caps, knob, right) in
        [(64, None, &[12][..]), (5, None, &[5, 5, 2]), (64, Some(7), &[7, 5]), (3, Some(7), &[3; 4])]
    {
        let mut s = squeeze_with(CapConfig { cqe_compression_max_num: caps, ..CapConfig::default() }, BASIC);
        if let Some(knob) = knob {
            s.rdma.raw.model.set_session_limit(knob);
        }
        s.burst(12);
        assert_eq!(lengths(&s), right, "{caps} {knob:?}");
    }
    for off in [0, 1] {
        let mut s = squeeze(BASIC);
        s.rdma.raw.model.set_session_limit(off);
        s.burst(5);
        assert_eq!(lengths(&s), [1; 5]);
    }
}

#[test]
fn an_overrun_ends_a_session_with_what_there_is_room_for() {
    let mut s = squeeze(Form { log_size: 2, ..BASIC });
    s.burst(1);
    s.burst(6);
    assert_eq!(title(&s.recv, 0), receive_title(1, 0, 0x20));
    assert_eq!(title(&s.recv, 1), receive_title(3, 1, 0x2c));
    assert_eq!(
        array(&s.recv, 2)[..4],
        ["c0de000100000001", "c0de000200000002", "c0de000300000003", "0101010101010101"]
    );
    let errors: Vec<u8> = std::iter::from_fn(|| s.rdma.async_eq.take()).map(|event| event[1]).collect();
    assert_eq!(errors.iter().filter(|kind| **kind == 4).count(), 2, "both queues overrun: {errors:?}");
    assert_eq!((s.rdma.state(&s.a), s.rdma.state(&s.b)), (6, 6));
    s.rdma.assert_clean();
}

/// What waits for more cannot be written, and there is no room for what comes: one error, and it is the first.
#[test]
fn a_queue_that_cannot_be_written_fails_once_even_if_it_is_full() {
    let mut s = squeeze(Form { log_size: 2, ..BASIC });
    s.burst(1);
    let other = s.rdma.alloc(4096);
    let ring = std::mem::replace(&mut s.recv.mem, other);
    // SAFETY: nothing refers to the memory any more, and the device writes it only to be caught.
    unsafe { s.rdma.raw.model.free(ring) };
    s.burst(5);
    let mut errors: Vec<_> = std::iter::from_fn(|| s.rdma.async_eq.take()).collect();
    errors.retain(|event| event[1] == 4 && get(event, 0x21 * 8, 24) == u64::from(s.recv.cqn));
    assert_eq!(errors.iter().map(|event| event[0x2b]).collect::<Vec<_>>(), [2], "access");
    let mut body = [0; 8];
    put(&mut body, 8, 24, s.recv.cqn.into());
    assert_eq!(get(&s.rdma.raw.command(0x402, 0, &body, 272), 128, 4), 0xa, "QUERY_CQ: status write failed");
    assert_eq!(s.rdma.state(&s.b), 6);
    let kinds: Vec<ViolationKind> = s.rdma.raw.model.take_violations().iter().map(|v| v.kind).collect();
    assert_eq!(kinds, [ViolationKind::FreedWhileOwned, ViolationKind::DmaAfterFree]);
}

#[test]
fn a_queue_that_ignores_overruns_is_overwritten_session_by_session() {
    let mut s = squeeze(Form { log_size: 2, ignore_overrun: true, ..BASIC });
    s.burst(6);
    // Four completions on lap 0, then two on lap 1 over them.
    assert_eq!(title(&s.recv, 0), receive_title(2, 4, 0x2d));
    assert_eq!(array(&s.recv, 1)[..3], ["c0de000400000005", "c0de000500000006", "0000000000000000"]);
    assert!(s.rdma.async_eq.take().is_none());
    s.rdma.assert_clean();
}

#[test]
fn a_session_raises_one_event_and_counts_as_solicited_by_its_title() {
    let mut s = squeeze(BASIC);
    s.rdma.arm(&s.recv, 0, true);
    s.burst(3);
    assert!(s.rdma.comp_eq.take().is_none());
    s.post(&[(SEND, 0x0a, 0, inline(b"x")), (SEND, 0x0a, 0, inline(b"y"))]);
    assert_eq!(s.rdma.drain_events(), 1);
    s.recv.ci = 4;
    store32(&s.recv.record, 0, 4);
    s.rdma.arm(&s.recv, 1, true);
    assert_eq!(s.rdma.drain_events(), 1, "the second of the two is not seen yet");
    s.rdma.assert_clean();
}

#[test]
fn sessions_of_the_same_seed_are_the_same_bytes() {
    let ring = || {
        let mut s = squeeze(BASIC);
        s.burst(9);
        s.burst(4);
        load(&s.recv.mem, 0, 32 * 64)
    };
    assert_eq!(ring(), ring());
}

/// On a thread of its own the device often finds both register writes at once.
#[test]
fn a_command_finds_written_what_was_done_before_it() {
    let mut s = squeeze(BASIC);
    let thread = s.rdma.raw.model.spawn().unwrap();
    let mut body = [0; 8];
    put(&mut body, 8, 24, s.recv.cqn.into());
    for n in 1..=200 {
        s.burst(2);
        let context = s.rdma.raw.command(0x402, 0, &body, 272);
        assert_eq!(get(&context[16..80], 360, 24), 2 * n, "QUERY_CQ: the producer counter");
        s.consumed(2 * n as u32);
    }
    drop(thread);
    s.rdma.assert_clean();
}

/// On a thread of its own the device writes the title after its arrays, so who sees the one can read the others.
#[test]
fn whoever_sees_a_title_sees_its_arrays() {
    let mut s = squeeze(BASIC);
    let thread = s.rdma.raw.model.spawn().unwrap();
    let (mut at, mut compressed) = (0_usize, 0);
    for _ in 0..300 {
        s.burst(9);
        let end = at + 9;
        while at < end {
            s.recv.ci = at as u32;
            let title = s.rdma.poll(&mut s.recv);
            let count = if title[63] >> 2 & 3 == 3 { get(&title, 352, 32) as usize } else { 1 };
            for n in 0..count {
                let slot = (at + if n < 8 { 1 } else { n & !7 }) & 31;
                let mini = load(&s.recv.mem, 64 * slot + 8 * (n & 7), 8);
                let right = (0xc0de << 16 | (at + n) as u64 & 0xffff, (9 - (end - at - n) + 1) as u64);
                assert!(count == 1 || (get(&mini, 0, 32), get(&mini, 32, 32)) == right, "{at}+{n}: {mini:x?}");
            }
            compressed += usize::from(count > 1);
            at += count;
        }
        s.consumed(at as u32);
    }
    drop(thread);
    assert!(compressed > 0);
    s.rdma.assert_clean();
}
