//! Random mixes of all operations, compared with two byte arrays.
//!
//! The InfiniBand specification leaves the order of a read or atomic and what follows it open unless the latter is fenced, so
//! it is fenced here; everything else comes in order. What is read goes to another half of the buffer than what is sent from.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use crate::support::{BUF, Pair, pair, pattern};
use mlx5::{RecvWr, SendFlags, SendWr, Sge, Wc, WcOpcode, WcStatus, WrOpcode};

/// What is sent from lies below this, what answers go to above; at the peer receives lie above it.
const HALF: usize = BUF / 2;

/// A request to be made: offsets are taken modulo what there is.
#[derive(Clone, Debug)]
struct Wish {
    kind: usize,
    local: Vec<(usize, usize)>,
    remote: usize,
    value: u64,
    flags: u32,
    inline: bool,
}

fn wish() -> impl Strategy<Value = Wish> {
    let piece = (0..HALF - 3000, prop_oneof![0usize..80, 900usize..1100, 0usize..3000]);
    let value = prop_oneof![0u64..4, any::<u64>()];
    (0usize..7, prop::collection::vec(piece, 0..4), 0..HALF - 9000, value, any::<u32>(), any::<bool>())
        .prop_map(|(kind, local, remote, value, flags, inline)| Wish { kind, local, remote, value, flags, inline })
}

/// The naive memories of both sides, and what completions are right.
struct Naive {
    bytes: [Vec<u8>; 2],
    sent: Vec<(u64, WcOpcode, Option<usize>)>,
    received: Vec<(u64, WcOpcode, usize, Option<u32>)>,
    recvs: usize,
    after_read: bool,
}

const RECV_ROOM: usize = 9000;

impl Naive {
    /// Room for the next message: a ring of three places.
    fn recv_at(&self) -> usize {
        HALF + self.recvs % 3 * RECV_ROOM
    }

    fn gather(&self, pieces: &[(usize, usize)]) -> Vec<u8> {
        pieces.iter().flat_map(|(at, len)| self.bytes[0][*at..at + len].to_vec()).collect()
    }

    fn put(&mut self, side: usize, at: usize, data: &[u8]) {
        self.bytes[side][at..at + data.len()].copy_from_slice(data);
    }

    fn number(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes[1][at..at + 8].try_into().expect("eight bytes"))
    }

    fn scatter(&mut self, pieces: &[(usize, usize)], mut data: &[u8]) {
        for (at, len) in pieces {
            let (now, rest) = data.split_at(*len);
            self.put(0, *at, now);
            data = rest;
        }
    }

    /// Does what the request does: `pieces` are its list, `data` what they hold, `at` is its place at the peer.
    fn carry_out(&mut self, opcode: WrOpcode, pieces: &[(usize, usize)], data: &[u8], at: usize) {
        let aligned = at & !7;
        match opcode {
            WrOpcode::Send | WrOpcode::SendWithImm { .. } => self.put(1, self.recv_at(), data),
            WrOpcode::RdmaRead { .. } => {
                let length: usize = pieces.iter().map(|(_, l)| l).sum();
                let read = self.bytes[1][at..at + length].to_vec();
                self.scatter(pieces, &read);
            }
            WrOpcode::AtomicCmpAndSwp { compare, swap, .. } => {
                let old = self.number(aligned);
                self.scatter(pieces, &old.to_ne_bytes());
                self.put(1, aligned, &if old == compare { swap } else { old }.to_ne_bytes());
            }
            WrOpcode::AtomicFetchAndAdd { add, .. } => {
                let old = self.number(aligned);
                self.scatter(pieces, &old.to_ne_bytes());
                self.put(1, aligned, &old.wrapping_add(add).to_ne_bytes());
            }
            _ => self.put(1, at, data),
        }
    }
}

/// Carries one wish out on both: the naive memories, and the queue pair.
fn make(p: &mut Pair, naive: &mut Naive, wr_id: u64, wish: &Wish) {
    let (reads, atomic) = (wish.kind == 4, wish.kind >= 5);
    let at = wish.remote;
    let mut pieces: Vec<_> = wish.local.iter().map(|(o, l)| (o + if reads { HALF } else { 0 }, *l)).collect();
    if atomic {
        pieces = vec![(HALF + at, 8)];
    }
    let length: usize = pieces.iter().map(|(_, l)| l).sum();
    let aligned = at & !7;
    let remote = p.remote(1, if atomic { aligned } else { at });
    let imm = wish.value as u32;
    let opcode = match wish.kind {
        0 => WrOpcode::Send,
        1 => WrOpcode::SendWithImm { imm_data: imm },
        2 => WrOpcode::RdmaWrite { remote },
        3 => WrOpcode::RdmaWriteWithImm { remote, imm_data: imm },
        4 => WrOpcode::RdmaRead { remote },
        5 => {
            // Every other one hits.
            let compare = if wish.inline { naive.number(aligned) } else { wish.value };
            WrOpcode::AtomicCmpAndSwp { remote, compare, swap: wish.value.rotate_left(9) }
        }
        _ => WrOpcode::AtomicFetchAndAdd { remote, add: wish.value },
    };
    let data = naive.gather(if reads || atomic { &[] } else { &pieces });
    if matches!(wish.kind, 0 | 1 | 3) {
        let to = p.sge(1, naive.recv_at(), RECV_ROOM);
        p.qp[1].post_recv(&[RecvWr { wr_id, sg_list: &[to] }]).unwrap();
        let kind = if wish.kind == 3 { WcOpcode::RECV_RDMA_WITH_IMM } else { WcOpcode::RECV };
        naive.received.push((wr_id, kind, length, (wish.kind != 0).then_some(imm)));
    }
    let inline = wish.inline && !reads && !atomic && data.len() <= 64;
    let mut send_flags = SendFlags::from_bits_truncate(wish.flags) - SendFlags::INLINE;
    if naive.after_read {
        send_flags |= SendFlags::FENCE;
    }
    if inline {
        send_flags |= SendFlags::INLINE;
    }
    let list: Vec<Sge> = pieces.iter().map(|(at, len)| p.sge(0, *at, *len)).collect();
    let wr = SendWr {
        wr_id,
        sg_list: if inline { &[] } else { &list },
        inline_data: if inline { &data } else { &[] },
        opcode,
        send_flags,
        ud: None,
    };
    p.qp[0].post_send(&[wr]).unwrap();
    naive.after_read = reads || atomic;
    let kind = [WcOpcode::SEND, WcOpcode::SEND, WcOpcode::RDMA_WRITE, WcOpcode::RDMA_WRITE, WcOpcode::RDMA_READ];
    let kind = *kind.get(wish.kind).unwrap_or(if wish.kind == 5 { &WcOpcode::COMP_SWAP } else { &WcOpcode::FETCH_ADD });
    if send_flags.contains(SendFlags::SIGNALED) {
        naive.sent.push((wr_id, kind, (reads || atomic).then_some(length)));
    }
    naive.carry_out(opcode, &pieces, &data, at);
    if matches!(wish.kind, 0 | 1 | 3) {
        naive.recvs += 1;
    }
}

/// Requests in bursts of up to `burst`; completions are waited for by `poll`.
fn run(p: &mut Pair, wishes: &[Wish], burst: usize, mut poll: impl FnMut(&mut Pair, usize, usize) -> Vec<Wc>) {
    let mut naive = Naive {
        bytes: [pattern(1, BUF), pattern(2, BUF)],
        sent: Vec::new(),
        received: Vec::new(),
        recvs: 0,
        after_read: false,
    };
    for side in 0..2 {
        p.buf[side].write(0, &naive.bytes[side]).unwrap();
    }
    for (number, burst) in wishes.chunks(burst).enumerate() {
        for (i, wish) in burst.iter().enumerate() {
            // The last one tells when all are over.
            let flags = wish.flags | if i + 1 == burst.len() { SendFlags::SIGNALED.bits() } else { 0 };
            make(p, &mut naive, (number * 100 + i) as u64, &Wish { flags, ..wish.clone() });
        }
        let sent = poll(p, 0, naive.sent.len());
        for (wc, (wr_id, opcode, byte_len)) in sent.iter().zip(naive.sent.drain(..)) {
            assert_eq!((wc.wr_id, wc.status, wc.opcode), (wr_id, WcStatus::SUCCESS, opcode));
            assert_eq!(wc.byte_len as usize, byte_len.unwrap_or(0), "{opcode}");
        }
        let received = poll(p, 1, naive.received.len());
        for (wc, (wr_id, opcode, byte_len, imm)) in received.iter().zip(naive.received.drain(..)) {
            assert_eq!((wc.wr_id, wc.status, wc.opcode), (wr_id, WcStatus::SUCCESS, opcode));
            assert_eq!((wc.byte_len as usize, wc.imm()), (byte_len, imm.map(u32::from_be)));
        }
        for side in 0..2 {
            assert!(p.bytes(side, 0, BUF) == naive.bytes[side], "side {side}, burst {number}: {burst:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.min(64), ..Default::default() })]

    #[test]
    fn any_mix_leaves_what_byte_arrays_would_hold(wishes in prop::collection::vec(wish(), 1..60), burst in 1usize..=12) {
        let mut p = pair();
        run(&mut p, &wishes, burst, |p, side, n| p.poll(side, n));
        p.end();
    }
}

/// The same with the device on a thread of its own.
#[test]
fn a_device_that_runs_beside_gives_the_same() {
    let mut p = pair();
    let model = p.port.model.spawn().unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for burst in 1..=12 {
        let wishes = prop::collection::vec(wish(), 40..60).new_tree(&mut runner).unwrap().current();
        run(&mut p, &wishes, burst, |p, side, n| {
            let (mut out, mut have) = (vec![Wc::default(); n], 0);
            while have < n {
                have += p.cq[side].poll_cq(&mut out[have..]).unwrap();
                assert!(Instant::now() < limit, "{have} of {n} completions came");
                std::thread::yield_now();
            }
            out
        });
    }
    drop(model);
    p.end();
}
