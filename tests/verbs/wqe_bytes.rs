//! What lies in the send queue after a post, byte for byte, as the headers' structures say: `mlx5_wqe_ctrl_seg`,
//! `mlx5_wqe_raddr_seg`, `mlx5_wqe_atomic_seg`, `mlx5_wqe_data_seg`.

use std::sync::atomic::Ordering;

use crate::support::pair;
use mlx5::{Remote, SendFlags, SendWr, Sge, WrOpcode};

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
