//! Lengths and lists at their edges.

use std::ptr::NonNull;

use mlx5::{AccessFlags, QpCap, SendFlags, SendWr, Sge, WcOpcode, WrOpcode};

use super::{Entries, FILL, allowing, assert_success, bytes, next, post_recv, send_bytes, settle, untouched};
use crate::support::{Pair, REMOTE, SIZES};

/// Sizes of rdma-core's own tests (60, 70, 140; 16, 60, 70; 16, 40, 60), and each side of each edge.
const LENGTHS: [usize; 16] = [0, 1, 4, 8, 16, 31, 32, 33, 40, 60, 63, 64, 65, 70, 140, 1000];

/// Where a message or an answer of `len` bytes lies: 0 in memory, 1 in the descriptor, 2 before it.
fn place(size: u16, len: usize) -> u32 {
    match len {
        1..=32 => 1,
        33..=64 if size == 128 => 2,
        _ => 0,
    }
}

#[test]
fn messages_of_any_length_arrive_whether_or_not_they_lie_in_the_completion() {
    for size in [64, 128] {
        let mut p = allowing(size, SIZES);
        let entries = Entries::of(&p.port, &p.cq[1]);
        for (n, len) in LENGTHS.into_iter().enumerate() {
            let (data, at) = (bytes(n, len), 2048 * n);
            let to = p.sge(1, at, 2000);
            post_recv(&mut p.qp[1], n as u64, &[to]);
            send_bytes(&mut p, n as u64, &data);
            assert_eq!(entries.format(n as u64), place(size, len), "{len} bytes, entries of {size}");
            let in_memory = p.bytes(1, at, len) == data;
            assert_eq!(in_memory, place(size, len) == 0, "before polling");
            let wc = next(&mut p, 1);
            assert_success(&wc, n as u64);
            assert_eq!((wc.opcode, wc.byte_len), (WcOpcode::RECV, len as u32));
            assert!(p.bytes(1, at, len) == data, "{len} bytes, entries of {size}");
            assert_eq!(p.bytes(1, at + len, 1), [FILL]);
            assert_success(&next(&mut p, 0), n as u64);
        }
        p.end();
    }
}

/// The opcodes that use up a receive: with immediate data the message lies in the completion too.
#[test]
fn a_message_with_immediate_data_arrives_with_it() {
    for size in [64, 128] {
        let mut p = allowing(size, SIZES);
        let (data, to) = (bytes(1, 24), p.sge(1, 0, 100));
        p.buf[0].write(0, &data).unwrap();
        post_recv(&mut p.qp[1], 1, &[to]);
        post_recv(&mut p.qp[1], 2, &[to]);
        let (remote, imm_data) = (p.remote(1, 4096), 0x0102_0304_u32.to_be());
        let sg_list = &[p.sge(0, 0, 24)];
        let send = SendWr { sg_list, opcode: WrOpcode::SendWithImm { imm_data }, ..Default::default() };
        let write = SendWr { opcode: WrOpcode::RdmaWriteWithImm { remote, imm_data }, ..send };
        p.qp[0].post_send(&[send, write]).unwrap();
        settle(&p);
        for (wr_id, opcode) in [(1, WcOpcode::RECV), (2, WcOpcode::RECV_RDMA_WITH_IMM)] {
            let wc = next(&mut p, 1);
            assert_success(&wc, wr_id);
            assert_eq!((wc.opcode, wc.byte_len, wc.imm_data), (opcode, 24, imm_data));
        }
        assert_eq!((p.bytes(1, 0, 24), p.bytes(1, 4096, 24)), (data.clone(), data));
        assert!(untouched(&p, 1, &[(0, 24), (4096, 24)]));
        p.end();
    }
}

fn read(p: &mut Pair, wr_id: u64, from: usize, list: &[Sge]) {
    let opcode = WrOpcode::RdmaRead { remote: p.remote(1, from) };
    let send_flags = SendFlags::SIGNALED;
    p.qp[0].post_send(&[SendWr { wr_id, sg_list: list, opcode, send_flags, ..Default::default() }]).unwrap();
    settle(p);
}

#[test]
fn answers_of_reads_of_any_length_arrive() {
    for size in [64, 128] {
        let mut p = allowing(size, SIZES);
        let entries = Entries::of(&p.port, &p.cq[0]);
        for (n, len) in LENGTHS.into_iter().enumerate() {
            let (data, at) = (bytes(n, len), 2048 * n);
            p.buf[1].write(100, &data).unwrap();
            let to = p.sge(0, at, len);
            read(&mut p, n as u64, 100, &[to]);
            assert_eq!(entries.format(n as u64), place(size, len), "{len} bytes, entries of {size}");
            assert_eq!(p.bytes(0, at, len) == data, place(size, len) == 0, "before polling");
            let wc = next(&mut p, 0);
            assert_success(&wc, n as u64);
            assert_eq!((wc.opcode, wc.byte_len), (WcOpcode::RDMA_READ, len as u32));
            assert!(p.bytes(0, at, len) == data, "{len} bytes, entries of {size}");
            assert_eq!(p.bytes(0, at + len, 1), [FILL]);
        }
        p.end();
    }
}

#[test]
fn answers_of_atomics_arrive() {
    for size in [64, 128] {
        let mut p = allowing(size, SIZES);
        let entries = Entries::of(&p.port, &p.cq[0]);
        p.buf[1].write(64, &40_u64.to_ne_bytes()).unwrap();
        let (remote, list) = (p.remote(1, 64), [p.sge(0, 128, 8)]);
        let ops = [
            (WrOpcode::AtomicFetchAndAdd { remote, add: 2 }, WcOpcode::FETCH_ADD, 40),
            (WrOpcode::AtomicCmpAndSwp { remote, compare: 42, swap: 7 }, WcOpcode::COMP_SWAP, 42),
            (WrOpcode::AtomicFetchAndAdd { remote, add: 0 }, WcOpcode::FETCH_ADD, 7),
        ];
        for (n, (opcode, done, was)) in ops.into_iter().enumerate() {
            p.buf[0].write(128, &[FILL; 8]).unwrap();
            let send_flags = SendFlags::SIGNALED;
            p.qp[0].post_send(&[SendWr { sg_list: &list, opcode, send_flags, ..Default::default() }]).unwrap();
            settle(&p);
            assert_eq!(entries.format(n as u64), 1);
            assert_eq!(p.bytes(0, 128, 8), [FILL; 8], "before polling");
            let wc = next(&mut p, 0);
            assert_success(&wc, 0);
            assert_eq!((wc.opcode, wc.byte_len), (done, 8));
            assert_eq!(p.bytes(0, 128, 8), u64::to_ne_bytes(was));
            assert!(untouched(&p, 0, &[(128, 8)]));
        }
        p.end();
    }
}

/// Lists of (offset, length): odd ones, empty ones, more room than data, each piece one byte.
const LISTS: [&[(usize, usize)]; 7] = [
    &[(1, 3), (7, 5), (13, 24)],
    &[(3, 0), (2, 1), (100, 0), (5, 31)],
    &[(1, 2), (3, 1), (4, 4), (9, 1000)],
    &[(53, 1), (52, 1), (51, 1), (20, 29)],
    &[(11, 13), (31, 0), (35, 14), (300, 5)],
    &[(6, 32)],
    &[(0, 4), (4, 4), (8, 4), (12, 20)],
];

/// Where the first `len` bytes of `list` lie.
fn used(list: &[(usize, usize)], mut len: usize) -> Vec<(usize, usize)> {
    let cut = |(at, room): &(usize, usize)| {
        let n = len.min(*room);
        len -= n;
        (*at, n)
    };
    list.iter().map(cut).collect()
}

#[test]
fn data_fills_the_pieces_in_order_and_nothing_beside_them() {
    let mut p = allowing(64, SIZES);
    for list in LISTS {
        for len in [32, 31, 17, 3, 1] {
            super::fill(&p);
            let data = bytes(len, len);
            let pieces: Vec<_> = list.iter().map(|(at, len)| p.sge(1, *at, *len)).collect();
            post_recv(&mut p.qp[1], 5, &pieces);
            send_bytes(&mut p, 6, &data);
            assert_success(&next(&mut p, 1), 5);
            let used = used(list, len);
            let got: Vec<u8> = used.iter().flat_map(|(at, len)| p.bytes(1, *at, *len)).collect();
            assert_eq!(got, data, "{list:?}");
            assert!(untouched(&p, 1, &used), "{list:?}");
            // A read scatters the same way; the atomics of the verbs have one piece.
            p.buf[1].write(4000, &data).unwrap();
            p.buf[0].write(0, &[FILL; 2000]).unwrap();
            let pieces: Vec<_> = used.iter().map(|(at, len)| p.sge(0, *at, *len)).collect();
            assert_success(&next(&mut p, 0), 6);
            read(&mut p, 7, 4000, &pieces);
            assert_success(&next(&mut p, 0), 7);
            let got: Vec<u8> = used.iter().flat_map(|(at, len)| p.bytes(0, *at, *len)).collect();
            assert_eq!(got, data, "{list:?}");
            assert_eq!(p.bytes(0, 2000, 8), [FILL; 8]);
        }
    }
    p.end();
}

/// Memory of the caller's own starts and ends anywhere.
#[test]
fn data_reaches_memory_of_the_callers_own_at_any_offset() {
    let mut p = allowing(128, SIZES);
    let mut memory = vec![FILL; 2 * 4096].into_boxed_slice();
    let start = NonNull::from(&mut memory[..]).cast::<u8>();
    // SAFETY: within the memory.
    let at = unsafe { start.add(1001) };
    // SAFETY: no reference to the memory is made until it is deregistered, and it lives longer.
    let mr = unsafe { p.pd.reg_mr(at, 61, AccessFlags::LOCAL_WRITE | REMOTE) }.unwrap();
    let piece = |from: usize, length| Sge { addr: (at.as_ptr() as usize + from) as u64, length, lkey: mr.lkey() };
    let lists = [[piece(0, 5), piece(7, 54)], [piece(60, 1), piece(1, 58)]];
    let mut wanted = vec![FILL; 2 * 4096];
    for (list, cuts) in lists.iter().zip([[(0, 5), (7, 54)], [(60, 1), (1, 58)]]) {
        let data = bytes(3, 59);
        post_recv(&mut p.qp[1], 5, list);
        send_bytes(&mut p, 6, &data);
        assert_success(&next(&mut p, 1), 5);
        assert_success(&next(&mut p, 0), 6);
        let mut rest = &data[..];
        for (from, len) in cuts {
            wanted[1001 + from..1001 + from + len].copy_from_slice(&rest[..len]);
            rest = &rest[len..];
        }
    }
    mr.dereg().map_err(|e| e.error).unwrap();
    assert!(memory[..] == wanted[..]);
    p.end();
}

/// Case C-078: the work requests wrap around their rings; the driver's lists do not read them, and do as well.
#[test]
fn lists_that_go_around_the_end_of_a_queue_are_whole() {
    let cap = QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 6, max_recv_sge: 4, max_inline_data: 0 };
    let mut p = allowing(64, cap);
    let mut wrapped = false;
    let mut blocks = 0;
    for n in 0..40 {
        // Two pieces fill a basic block, six need two: every lap starts at another place.
        let count = if n % 3 == 0 { 6 } else { 2 };
        wrapped |= blocks % 8 == 7 && count == 6;
        blocks += if count == 6 { 2 } else { 1 };
        let data = bytes(n, 5 * count);
        p.buf[1].write(4000, &data).unwrap();
        p.buf[0].write(0, &[FILL; 400]).unwrap();
        let list: Vec<_> = (0..count).map(|i| p.sge(0, 16 * i + 1, 5)).collect();
        read(&mut p, n as u64, 4000, &list);
        assert_success(&next(&mut p, 0), n as u64);
        let got: Vec<u8> = (0..count).flat_map(|i| p.bytes(0, 16 * i + 1, 5)).collect();
        assert_eq!(got, data, "read {n}");
        // Receives: the last place of four has its four pieces at the end.
        p.buf[1].write(0, &[FILL; 400]).unwrap();
        let list: Vec<_> = (0..4).map(|i| p.sge(1, 16 * i + 1, 7)).collect();
        post_recv(&mut p.qp[1], n as u64, &list);
        send_bytes(&mut p, 0, &bytes(n, 28));
        assert_success(&next(&mut p, 1), n as u64);
        let got: Vec<u8> = (0..4).flat_map(|i| p.bytes(1, 16 * i + 1, 7)).collect();
        assert_eq!(got, bytes(n, 28), "receive {n}");
        assert!(untouched(&p, 1, &[(1, 7), (17, 7), (33, 7), (49, 7), (4000, 30)]));
        next(&mut p, 0);
        blocks += 1;
    }
    assert!(wrapped, "a request lay around the end");
    p.end();
}
