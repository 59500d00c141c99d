//! What each form of mini says, byte by byte, and what public reports say about it.

use std::sync::atomic::AtomicU32;

use mlx5_hw::cqe::{Cqe64Layout, CqeOpcode, CqeRef};
use mlx5_hw::mini_cqe::MiniFormat;
use mlx5_hw::prm::Layout;
use mlx5_hw::ring::{Basic, Cqe64, Enhanced, Ring};
use mlx5_hw::wqe::WqeOpcode;
use proptest::prelude::*;

use super::device::{memory, peek, poke};
use super::sessions::bytes;
use super::writer::{Entry, Expected, Noise, Writer};

/// A full entry with these bytes.
fn words(bytes: Entry) -> [AtomicU32; 16] {
    std::array::from_fn(|i| AtomicU32::new(u32::from_ne_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap())))
}

/// Byte `i` is `i`, but for the last: so each field shows where it came from.
fn counting(opcode: u8) -> Entry {
    let mut entry: Entry = std::array::from_fn(|i| i as u8);
    entry[63] = opcode << 4;
    entry
}

/// Calls `look` with each completion of a session in a ring of 32.
fn session(format: MiniFormat, title: Entry, minis: &[[u8; 8]], mut look: impl FnMut(usize, CqeRef<'_>)) {
    let mut ring = Ring::<Basic<Cqe64>>::new(5).unwrap().with_sessions(format, 64);
    let mem = memory(ring.bytes());
    Ring::<Basic<Cqe64>>::init_memory(&mem);
    Writer::new(&mem, 64, false, format, 0).session(title, minis);
    let mut entries = ring.consume(&mem).unwrap();
    for i in 0..minis.len() {
        look(i, entries.next().unwrap());
    }
    assert!(entries.next().is_none());
}

const MINI: [u8; 8] = [0xa1, 0xb2, 0xc3, 0xd4, 0x05, 0x16, 0x27, 0x38];

/// C-045: a mini has the hash or the checksum, and the title's other one is no completion's.
/// C-050: each form's fields are where they are in bytes, the header type in byte 0.
/// C-051: the flow tag's bytes are in the order of the full entry.
/// C-052: the form is the one that the CQ was created with; nothing in the ring tells it.
#[test]
fn each_form_of_mini_has_its_fields_and_no_others() {
    for (format, hash, checksum, stride, length, tag, l3, l4) in [
        (MiniFormat::Hash, Some(0xa1b2_c3d4), None, None, 0x0516_2738, 0x39_3a3b, 3, 1),
        (MiniFormat::Csum, None, Some(0xa1b2), None, 0x0516_2738, 0x39_3a3b, 3, 1),
        (MiniFormat::FtagStridx, None, None, Some(0xc3d4), 0x16_2738, 0x05_a1b2, 3, 1),
        (MiniFormat::CsumStridx, None, Some(0xa1b2), Some(0xc3d4), 0x0516_2738, 0x39_3a3b, 3, 1),
        (MiniFormat::L34hStridx, None, None, Some(0xc3d4), 0x0516_2738, 0x39_3a3b, 0, 2),
    ] {
        session(format, counting(2), &[MINI; 2], |_, cqe| {
            assert!(cqe.is_compressed());
            let sums = (cqe.rss_hash_result(), cqe.check_sum(), cqe.stride_index());
            assert_eq!(sums, (hash, checksum, stride), "{format:?}");
            assert_eq!((cqe.byte_cnt(), cqe.flow_tag()), (length, tag), "{format:?}");
            // The VLAN bit stays the title's.
            assert_eq!((cqe.l3_hdr_type(), cqe.l4_hdr_type(), cqe.vlan_stripped()), (l3, l4, true), "{format:?}");
        });
    }
}

/// The number of a form is split in the CQ context: two bits, and those above.
#[test]
fn forms_have_the_numbers_of_the_context() {
    let numbers = MiniFormat::ALL.map(|format| (format.res_format(), format.res_format_ext()));
    assert_eq!(numbers, [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1)]);
}

/// C-056: what the mini lacks is the title's, for each completion: metadata, user index, time stamp, flags, queue.
#[test]
fn what_minis_lack_is_inherited_from_the_title() {
    for format in MiniFormat::ALL {
        let mut title = counting(3);
        title[36..40].copy_from_slice(&4660u32.to_be_bytes());
        title[63] |= 2;
        let mut metadata = Vec::new();
        session(format, title, &[MINI; 4], |_, cqe| {
            metadata.push(cqe.imm_inval_pkey().get());
            assert_eq!((cqe.srqn_or_uidx(), cqe.timestamp()), (0x21_2223, 0x3031_3233_3435_3637));
            assert_eq!((cqe.flags_rqpn(), cqe.slid(), cqe.vlan_info()), (0x1819_1a1b, 0x1617, 0x1e1f));
            assert_eq!((cqe.opcode(), cqe.solicited()), (CqeOpcode::RESP_SEND_IMM, true));
        });
        assert_eq!(metadata, [4660; 4]);
    }
}

/// C-061: a requester's minis have counter and opcode of their own, in any form that responders of the CQ have.
#[test]
fn a_requesters_minis_have_their_own_counter_and_opcode() {
    for format in MiniFormat::ALL {
        let mut title = counting(0);
        title[60..62].copy_from_slice(&[0, 40]);
        let minis = [[0, 41, 0x08, 0xee, 0, 0, 0, 7], [0, 45, 0x0a, 0xee, 0, 0, 0, 8]];
        let mut seen = Vec::new();
        session(format, title, &minis, |_, cqe| {
            seen.push((cqe.wqe_counter(), WqeOpcode(cqe.sop_opcode()), cqe.byte_cnt(), cqe.qpn()));
            assert_eq!((cqe.rss_hash_result(), cqe.check_sum(), cqe.stride_index()), (None, None, None));
        });
        assert_eq!(seen, [(41, WqeOpcode::RDMA_WRITE, 7, 0x39_3a3b), (45, WqeOpcode::SEND, 8, 0x39_3a3b)]);
    }
}

/// C-061, the other side: a responder's counter is the title's and its place in the session; it wraps at 16 bits.
#[test]
fn a_responders_counter_goes_on_from_the_title_and_wraps() {
    for first in [0u16, 100, 0xfff0, 0xffff] {
        let mut title = counting(2);
        title[60..62].copy_from_slice(&first.to_be_bytes());
        session(MiniFormat::Hash, title, &[MINI; 30], |i, cqe| {
            assert_eq!(cqe.wqe_counter(), first.wrapping_add(i as u16));
        });
    }
}

/// C-060: a block of four at index 77 of a ring of 64 is there when byte 62 is the lap, has four minis, and index 81
/// is next.
#[test]
fn an_enhanced_block_goes_by_the_lap_byte_and_its_opcode_nibble() {
    for owner in [0, 1] {
        let mut ring = Ring::<Enhanced<Cqe64>>::with_ci(6, 76).unwrap();
        let mem = memory(ring.bytes());
        Ring::<Enhanced<Cqe64>>::init_memory(&mem);
        let mut writer = Writer::new(&mem, 64, true, MiniFormat::Hash, 76);
        writer.full(counting(2));
        writer.block(&[MINI; 4]);
        let at = 64 * (77 - 64);
        assert_eq!(peek(&mem, at + 62), 1);
        // The owner bit counts for nothing.
        poke(&mem, at + 63, 0x3c | owner);
        let mut entries = ring.consume(&mem).unwrap();
        let counters: Vec<u16> = std::iter::from_fn(|| entries.next()).map(|cqe| cqe.wqe_counter()).collect();
        assert_eq!(counters, [0x3c3d, 0x3c3e, 0x3c3f, 0x3c40, 0x3c41]);
        assert_eq!(entries.ci(), 81);
        drop(entries);
        let mut ring = Ring::<Enhanced<Cqe64>>::with_ci(6, 77).unwrap();
        for byte_62 in [0, 2, 0xff] {
            poke(&mem, at + 62, byte_62);
            assert!(ring.consume(&mem).unwrap().next().is_none());
        }
    }
}

/// Every accessor, as text.
fn fields(cqe: CqeRef<'_>) -> String {
    let all: Vec<u32> = Cqe64Layout::FIELDS
        .iter()
        .filter(|f| f.bit_width <= 32)
        .map(|f| cqe.field(mlx5_hw::prm::Bits::new(f.bit_offset, f.bit_width)))
        .collect();
    let dwords = [cqe.dword::<0>(), cqe.dword::<1>(), cqe.dword::<2>(), cqe.dword::<3>(), cqe.dword::<4>()];
    let more = [cqe.dword::<5>(), cqe.dword::<6>(), cqe.dword::<7>(), cqe.dword::<8>(), cqe.dword::<9>()];
    let last = [cqe.dword::<10>(), cqe.dword::<11>(), cqe.dword::<12>(), cqe.dword::<13>(), cqe.dword::<14>()];
    format!(
        "{cqe:?} {all:?} {dwords:?} {more:?} {last:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        (cqe.dword::<15>(), cqe.op_own(), cqe.opcode(), cqe.format(), cqe.solicited(), cqe.owner(), cqe.is_error()),
        (cqe.wqe_counter(), cqe.signature(), cqe.sop_opcode(), cqe.qpn(), cqe.flow_tag(), cqe.srqn_or_uidx()),
        (cqe.byte_cnt(), cqe.imm_inval_pkey(), cqe.timestamp(), cqe.flags_rqpn(), cqe.src_qp(), cqe.sl()),
        (cqe.has_grh(), cqe.slid(), cqe.dlid_path_bits(), cqe.vlan_info(), cqe.vlan_stripped(), cqe.ip_csum_ok()),
        (cqe.l3_hdr_type(), cqe.l4_hdr_type(), cqe.inline_data().is_some()),
        (cqe.rss_hash_result().unwrap_or(0), cqe.check_sum().unwrap_or(0)),
        (cqe.syndrome(), cqe.vendor_err_synd(), cqe.hw_err_synd(), cqe.hw_synd_type()),
        cqe.expand(),
    )
}

proptest! {
    /// Out of a session or out of a full entry: each field reads the same. (A hash or checksum that the session lacks
    /// is 0 in the full entry, which has no way to say that there is none.)
    #[test]
    fn each_field_of_a_sessions_completion_is_that_of_its_full_entry(
        opcode in 0u8..=4,
        noise in any::<u64>(),
        format in prop::sample::select(MiniFormat::ALL.to_vec()),
    ) {
        let mut noise = Noise(noise);
        let minis = noise.minis(9);
        let title = noise.entry(opcode);
        session(format, title, &minis, |i, cqe| {
            let full = words(bytes(cqe));
            assert_eq!(fields(cqe), fields(CqeRef::new(&full)));
            let mut title = title;
            title[63] |= 3 << 2;
            assert_eq!(bytes(cqe), Expected::of_mini(title, minis[i], format, i as u16, 0).bytes);
        });
    }
}
