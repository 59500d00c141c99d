//! What lies in the send queue after a post, byte for byte, as the headers' structures say: `mlx5_wqe_ctrl_seg`,
//! `mlx5_wqe_raddr_seg`, `mlx5_wqe_atomic_seg`, `mlx5_wqe_data_seg`.

use std::sync::atomic::Ordering;

use crate::support::{Pair, pair};
use mlx5::{RecvWr, Remote, SendFlags, SendWr, Sge, WcStatus, WrOpcode};

/// Numbers, each with its width in bytes.
type Parts = [(u64, usize)];

/// Segments from lists of numbers, each with its width in bytes, big-endian.
fn segments(parts: &Parts) -> Vec<u8> {
    parts.iter().flat_map(|(value, width)| value.to_be_bytes()[8 - width..].to_vec()).collect()
}

const REMOTE: Remote = Remote { addr: 0x1112_1314_1516_1718, rkey: 0x2122_2324 };
const LOCAL: [Sge; 1] = [Sge { addr: 0x3132_3334_3536_3738, length: 8, lkey: 0x4142_4344 }];
const RADDR: [(u64, usize); 3] = [(0x1112_1314_1516_1718, 8), (0x2122_2324, 4), (0, 4)];
const DATA: [(u64, usize); 3] = [(8, 4), (0x4142_4344, 4), (0x3132_3334_3536_3738, 8)];
const IMM: u32 = 0x5152_5354;

#[test]
fn each_operation_lies_in_the_queue_as_the_headers_say() {
    let mut p = pair();
    let compare = 0x6162_6364_6566_6768;
    let swap = 0x7172_7374_7576_7778;
    // MLX5_OPCODE_*, the immediate word, and the segments between control and data.
    let cases: [(WrOpcode, u64, u64, &Parts); 8] = [
        (WrOpcode::Send, 0x0a, 0, &[]),
        (WrOpcode::SendWithImm { imm_data: IMM.to_be() }, 0x0b, IMM.into(), &[]),
        (WrOpcode::SendWithInv { invalidate_rkey: IMM }, 0x01, IMM.into(), &[]),
        (WrOpcode::RdmaWrite { remote: REMOTE }, 0x08, 0, &RADDR),
        (WrOpcode::RdmaWriteWithImm { remote: REMOTE, imm_data: IMM.to_be() }, 0x09, IMM.into(), &RADDR),
        (WrOpcode::RdmaRead { remote: REMOTE }, 0x10, 0, &RADDR),
        (
            WrOpcode::AtomicCmpAndSwp { remote: REMOTE, compare, swap },
            0x11,
            0,
            &[RADDR[0], RADDR[1], RADDR[2], (swap, 8), (compare, 8)],
        ),
        (
            WrOpcode::AtomicFetchAndAdd { remote: REMOTE, add: swap },
            0x12,
            0,
            &[RADDR[0], RADDR[1], RADDR[2], (swap, 8), (0, 8)],
        ),
    ];
    // The device must not read what is made up.
    p.port.deaf.store(true, Ordering::Relaxed);
    for (block, (opcode, number, imm, operands)) in cases.into_iter().enumerate() {
        let send_flags = SendFlags::SIGNALED | SendFlags::FENCE | SendFlags::SOLICITED;
        p.qp[0].post_send(&[SendWr { sg_list: &LOCAL, opcode, send_flags, ..Default::default() }]).unwrap();
        let body = [segments(operands), segments(&DATA)].concat();
        let ds = 1 + body.len() as u64 / 16;
        // Opcode modifier, index, opcode; queue and length; signature, stream, MLX5_WQE_CTRL_FENCE, _CQ_UPDATE, _SOLICITED.
        let ctrl = [(block as u64, 3), (number, 1), (p.qp[0].qp_num().into(), 3), (ds, 1), (0x8a, 4), (imm, 4)];
        let right = [segments(&ctrl), body].concat();
        let words = &p.send_queue(16 * (block + 1))[16 * block..];
        let written: Vec<u8> =
            words[..right.len() / 4].iter().flat_map(|w| w.load(Ordering::Relaxed).to_ne_bytes()).collect();
        assert_eq!(written, right, "{opcode:?}");
    }
    p.port.deaf.store(false, Ordering::Relaxed);
    p.end();
}

/// Case C-077, of a driver whose list of devices had no end marker. No list here needs one but those that the device reads: the pieces
/// of a receive (`mlx5_wqe_data_seg` with `MLX5_INVALID_LKEY`, 0x100), and mailboxes (`messages_of_every_size_arrive_and_come_back`).
/// A shorter list than the one before in its place ends where its pieces do, a full one fills its place and nothing behind it.
#[test]
fn a_list_of_pieces_ends_where_its_last_piece_does() {
    const PIECE: usize = 16;
    let mut p = pair();
    // SAFETY: a query names no memory and takes nothing away.
    let qpc = unsafe { p.dev.general_cmd(&mlx5::hw::cmd::QueryQp { qpn: p.qp[1].qp_num() }) }.unwrap();
    let base = p.port.allocation(qpc.dbr_addr());
    let queue = |p: &Pair| -> Vec<u8> {
        let words = p.port.words(base, 16 * 64 / 4);
        words.iter().flat_map(|w| w.load(Ordering::Relaxed).to_ne_bytes()).collect()
    };
    let piece = |p: &Pair, n: usize| p.sge(1, n * 4096, PIECE);
    let send = |p: &mut Pair, pieces: usize, length: usize| {
        let list: Vec<_> = (0..pieces).map(|n| piece(p, n)).collect();
        p.qp[1].post_recv(&[RecvWr { wr_id: 0, sg_list: &list }]).unwrap();
        let (from, send_flags) = ([p.sge(0, 0, length)], SendFlags::SIGNALED);
        p.qp[0].post_send(&[SendWr { sg_list: &from, send_flags, ..Default::default() }]).unwrap();
        p.poll(0, 1);
        p.poll(1, 1)[0]
    };
    p.buf[0].write(0, &[0xab; 4 * PIECE]).unwrap();
    for _ in 0..16 {
        assert_eq!(send(&mut p, 4, 4 * PIECE).byte_len, 64);
    }
    for (place, pieces) in [4, 3, 2, 1, 1, 2, 3, 4].into_iter().enumerate() {
        let mut right = queue(&p);
        assert_eq!(send(&mut p, pieces, pieces * PIECE).status, WcStatus::SUCCESS);
        let end = [(0, 4), (0x100, 4), (0, 8)];
        if pieces < 4 {
            let at = 64 * place + PIECE * pieces;
            right[at..at + 16].copy_from_slice(&segments(&end));
        }
        assert_eq!(queue(&p), right, "{pieces} pieces in place {place}");
    }
    // A message that is too long for the pieces does not go on in those of the lap before.
    p.buf[1].write(2 * 4096, &[0; PIECE]).unwrap();
    assert_eq!(send(&mut p, 2, 4 * PIECE).status, WcStatus::LOC_LEN_ERR);
    assert_eq!(p.bytes(1, 2 * 4096, PIECE), [0; PIECE]);
    p.end();
}
