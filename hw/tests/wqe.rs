//! Work request segments, byte for byte.

use mlx5_hw::be::Be32;
use mlx5_hw::prm::Layout;
use mlx5_hw::wqe::{self, CtrlSeg, DataSeg, FmCeSe, OpmodIdxOpcode, QpnDs, WqeOpcode};

fn bytes(segment: &[Be32]) -> Vec<u8> {
    segment.iter().flat_map(|w| w.to_raw().to_ne_bytes()).collect()
}

#[test]
fn control_segment_is_opcode_queue_flags_immediate() {
    let flags = FmCeSe::of_flags(true, true, true);
    let imm = Be32::new(0xdead_beef);
    let seg = wqe::ctrl(WqeOpcode::SEND_IMM, 0x1234, 0xff_abcdef, 5, flags, imm);
    // MLX5_WQE_CTRL_FENCE 0x80, _CQ_UPDATE 0x08, _SOLICITED 0x02.
    let expected = [0x00, 0x12, 0x34, 0x0b, 0xab, 0xcd, 0xef, 0x05, 0x00, 0x00, 0x00, 0x8a, 0xde, 0xad, 0xbe, 0xef];
    assert_eq!(bytes(&seg), expected);

    let read = CtrlSeg::from_words(&seg);
    let first = OpmodIdxOpcode::from_bits(read.opmod_idx_opcode());
    assert_eq!((first.opcode(), first.wqe_index(), first.opc_mod()), (0x0b, 0x1234, 0));
    let second = QpnDs::from_bits(read.qpn_ds());
    assert_eq!((second.ds(), second.qpn()), (5, 0xabcdef));
    assert_eq!(FmCeSe::from_bits(read.fm_ce_se() as u8), flags);
}

#[test]
fn each_send_flag_is_its_own_bit() {
    assert_eq!(FmCeSe::of_flags(false, false, false).into_bits(), 0);
    assert_eq!(FmCeSe::of_flags(true, false, false).into_bits(), 0x08);
    assert_eq!(FmCeSe::of_flags(false, true, false).into_bits(), 0x02);
    assert_eq!(FmCeSe::of_flags(false, false, true).into_bits(), 0x80);
}

#[test]
fn an_oversized_length_does_not_reach_the_queue_number() {
    let seg = wqe::ctrl(WqeOpcode::NOP, 0, 1, 0xff, FmCeSe::new(), Be32::ZERO);
    assert_eq!(bytes(&seg)[4..8], [0, 0, 1, 0x3f]);
}

#[test]
fn memory_segments_are_big_endian() {
    let data = wqe::data(0x8000_0040, 0x0102_0304, 0x1112_1314_1516_1718);
    let expected = [0, 0, 0, 0x40, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
    assert_eq!(bytes(&data), expected);
    assert_eq!(DataSeg::from_words(&data).addr(), 0x1112_1314_1516_1718);
    let raddr = wqe::raddr(0x1112_1314_1516_1718, 0x0102_0304);
    assert_eq!(bytes(&raddr), [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 1, 2, 3, 4, 0, 0, 0, 0]);
    let atomic = wqe::atomic(0x0102, 0x0304_0000_0000_0000);
    assert_eq!(bytes(&atomic), [0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0]);
    // MLX5_INVALID_LKEY 0x100.
    assert_eq!(bytes(&wqe::end_of_list()), [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn inlined_data_is_counted_with_its_header() {
    assert_eq!(bytes(&[wqe::inline_header(12)]), [0x80, 0, 0, 12]);
    assert_eq!(bytes(&[wqe::inline_header(0xffff)]), [0x80, 0, 3, 0xff]);
    let segments: Vec<usize> = [0, 1, 12, 13, 28, 29].map(wqe::inline_segments).into();
    assert_eq!(segments, [1, 1, 1, 2, 2, 3]);
    let blocks: Vec<usize> = [1, 4, 5, 8, 9, 63].map(wqe::basic_blocks).into();
    assert_eq!(blocks, [1, 1, 2, 2, 3, 16]);
}
