//! What entries of given bytes say.

use super::*;

/// An entry of these bytes: offset, then bytes in memory order.
fn entry(parts: &[(usize, &[u8])]) -> [AtomicU32; 16] {
    let mut bytes = [0_u8; 64];
    for (at, part) in parts {
        bytes[*at..at + part.len()].copy_from_slice(part);
    }
    core::array::from_fn(|i| AtomicU32::new(u32::from_ne_bytes([0, 1, 2, 3].map(|b| bytes[4 * i + b]))))
}

fn read<T>(parts: &[(usize, &[u8])], asked: WcFlags, with: impl FnOnce(Completion<'_>) -> T) -> T {
    let words = entry(parts);
    let cqe = CqeRef::new(&words);
    let status = if cqe.is_error() { WcStatus(cqe.syndrome().wc_status()) } else { WcStatus::SUCCESS };
    let current = Current { cqe, wr_id: 1, status };
    let mut told = Told::new(asked, None);
    told.of_one(current);
    with(Completion::new(&words, 1, &told))
}

const RESP_SEND: (usize, &[u8]) = (63, &[0x20]);
const INLINE_32: (usize, &[u8]) = (63, &[0x24]);
const REQ_SEND: [(usize, &[u8]); 2] = [(63, &[0x00]), (56, &[0x0a])];

/// Case C-038: the same four bytes.
#[test]
fn immediate_data_is_in_network_order_and_the_invalidated_key_in_the_cpus() {
    let word: (usize, &[u8]) = (36, &[0, 0, 0, 0x2a]);
    for op_own in [0x10, 0x30] {
        read(&[word, (63, &[op_own])], WcFlags::IMM, |c| {
            assert_eq!(c.imm_data().map(u32::to_ne_bytes), Some([0, 0, 0, 0x2a]));
            assert_eq!((c.invalidated_rkey(), c.pkey_index()), (None, None));
            assert_eq!((c.to_wc().imm_data.to_ne_bytes(), c.to_wc().imm()), ([0, 0, 0, 0x2a], Some(42)));
        });
    }
    read(&[word, (63, &[0x40])], WcFlags::IMM, |c| {
        assert_eq!((c.imm_data(), c.invalidated_rkey(), c.pkey_index()), (None, Some(42), None));
        assert_eq!((c.to_wc().imm_data, c.to_wc().imm()), (42, None));
    });
    read(&[word, RESP_SEND], WcFlags::all(), |c| {
        assert_eq!((c.imm_data(), c.invalidated_rkey(), c.pkey_index()), (None, None, Some(42)));
    });
}

/// `hds_ip_ext` at 28 (bit 1 layer 3, bit 2 layer 4 good), header types at 29 (bits 3:2: 1 IPv6, 2 IPv4).
#[test]
fn checksums_are_good_when_both_are_and_the_packet_is_ipv4() {
    let is_ok = |ext, types| {
        read(&[(28, &[ext, types]), RESP_SEND], WcFlags::empty(), |c| {
            assert_eq!(c.wc_flags(), c.to_wc().flags());
            c.wc_flags().contains(WcResultFlags::IP_CSUM_OK)
        })
    };
    assert!(is_ok(0b110, 0b1000) && is_ok(0b111, 0b1001));
    assert!(!is_ok(0b010, 0b1000) && !is_ok(0b100, 0b1000), "one of the two");
    assert!(!is_ok(0b110, 0b0100) && !is_ok(0b110, 0), "IPv6, no IP");
}

#[test]
fn a_vlan_tag_is_there_when_the_device_took_one_out() {
    let cvlan =
        |types, op_own: (usize, &[u8]), asked| read(&[(29, &[types, 0xe1, 0x23]), op_own], asked, |c| c.cvlan());
    assert_eq!(cvlan(1, RESP_SEND, WcFlags::CVLAN), Some(0xe123));
    assert_eq!(cvlan(0, RESP_SEND, WcFlags::CVLAN), None, "not stripped");
    assert_eq!(cvlan(1, RESP_SEND, WcFlags::all() - WcFlags::CVLAN), None, "not asked for");
    assert_eq!(cvlan(1, INLINE_32, WcFlags::CVLAN), None, "data lies there");
}

#[test]
fn a_flow_tag_is_what_a_queue_number_would_be() {
    let parts = [(56, &[0xff, 0xab, 0xcd, 0xef][..]), RESP_SEND];
    assert_eq!(read(&parts, WcFlags::FLOW_TAG, |c| (c.flow_tag(), c.qp_num())), (Some(0xab_cdef), None));
    assert_eq!(read(&parts, WcFlags::QP_NUM, |c| (c.flow_tag(), c.qp_num())), (None, Some(0xab_cdef)));
    assert_eq!(read(&REQ_SEND, WcFlags::FLOW_TAG, |c| c.flow_tag()), None, "a send has met no rule");
}

/// The real-time format has seconds in the upper 32 bits and nanoseconds in the lower.
#[test]
fn wall_clock_time_is_nanoseconds_made_of_seconds_and_nanoseconds() {
    let stamp = [0x65, 0x53, 0xf1, 0x00, 0x3b, 0x9a, 0xc9, 0xff];
    let parts = [(48, &stamp[..]), RESP_SEND];
    read(&parts, WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK, |c| {
        assert_eq!((c.completion_wallclock_ns(), c.completion_ts()), (Some(1_700_000_000_999_999_999), None));
    });
    read(&parts, WcFlags::COMPLETION_TIMESTAMP, |c| {
        assert_eq!((c.completion_wallclock_ns(), c.completion_ts()), (None, Some(0x6553_f100_3b9a_c9ff)));
    });
    assert_eq!(real_time_ns(u64::MAX), 0xffff_ffff * 1_000_000_001, "any bits have a value");
    let failed = [(48, &stamp[..]), (63, &[0xe0])];
    assert_eq!(read(&failed, WcFlags::all(), |c| (c.completion_wallclock_ns(), c.completion_ts())), (None, None));
}

/// Opcode and flags as libmlx5 gives them: for each operation of `MLX5_CQE_APP_OP_TM_*`.
#[test]
fn tag_matching_shows_in_opcode_flags_and_info() {
    use WcResultFlags as F;
    let header = [0, 0, 0, 0, 1, 2, 3, 4, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17];
    let both = F::TM_MATCH | F::TM_DATA_VALID;
    for (app_op, opcode, flags) in [
        (1, 128, F::TM_MATCH),
        (2, 133, F::TM_DATA_VALID),
        (3, 133, F::empty()),
        (4, 134, F::empty()),
        (9, 133, F::TM_MATCH),
        (10, 133, both),
        (11, 133, both),
        (12, 128, both),
        (0, 128, F::empty()),
        (255, 128, F::empty()),
    ] {
        let parts = [(0, &header[..]), (40, &[1, app_op]), RESP_SEND];
        read(&parts, WcFlags::TM_INFO, |c| {
            assert_eq!((c.opcode(), c.wc_flags()), (Some(WcOpcode(opcode)), flags), "operation {app_op}");
            let info = TmInfo { tag: 0x1011_1213_1415_1617, r#priv: 0x0102_0304 };
            assert_eq!(c.tm_info(), Some(info));
        });
        assert_eq!(read(&parts, WcFlags::STANDARD, |c| c.tm_info()), None, "not asked for");
    }
    let plain = |op_own: (usize, &[u8]), app| {
        read(&[(0, &header), (40, &[app, 3]), op_own], WcFlags::TM_INFO, |c| (c.tm_info(), c.wc_flags()))
    };
    assert_eq!(plain(RESP_SEND, 0), (None, F::empty()), "no application");
    assert_eq!(plain(INLINE_32, 1).0, None, "data lies there");
    assert_eq!(plain((63, &[0x10]), 1), (None, F::WITH_IMM), "a write goes through no tag list");
}

/// With 32 bytes of data in the entry, nothing that lies in their place may be handed out.
#[test]
fn data_in_the_entry_hides_the_headers() {
    let parts = [(0, &[0xff_u8; 32][..]), (44, &[0, 0, 0, 32]), INLINE_32];
    read(&parts, WcFlags::all(), |c| {
        assert_eq!((c.byte_len(), c.opcode()), (Some(32), Some(WcOpcode::RECV)));
        assert_eq!((c.src_qp(), c.slid(), c.sl(), c.dlid_path_bits()), (None, None, None, None));
        assert_eq!((c.wc_flags(), c.cvlan(), c.tm_info()), (WcResultFlags::empty(), None, None));
        let wc = c.to_wc();
        assert_eq!((wc.src_qp, wc.slid, wc.sl, wc.dlid_path_bits, wc.wc_flags), (0, 0, 0, 0, 0));
    });
}

/// Bytes 52 to 55: `hw_err_synd`, `hw_synd_type` (upper half), `vendor_err`, `syndrome`.
#[test]
fn an_error_entry_carries_all_four_of_its_codes_and_a_good_one_none() {
    for op_own in [0xd0, 0xe1] {
        read(&[(52, &[0x5d, 0xaf, 0x88, 0x13]), (63, &[op_own])], WcFlags::all(), |c| {
            assert_eq!((c.hw_err_synd(), c.hw_synd_type(), c.vendor_err()), (Some(0x5d), Some(0xa), Some(0x88)));
            assert_eq!((c.status(), c.opcode()), (WcStatus::REM_ACCESS_ERR, None));
            assert_eq!((c.flow_tag(), c.pkey_index(), c.byte_len()), (None, None, None));
            assert_eq!((c.to_wc().vendor_err, c.to_wc().opcode), (0x88, WcOpcode(0)));
        });
    }
    read(&[(48, &[0xff; 8]), RESP_SEND], WcFlags::all(), |c| {
        assert_eq!((c.hw_err_synd(), c.hw_synd_type(), c.vendor_err()), (None, None, None));
        assert_eq!(c.to_wc().vendor_err, 0);
    });
}
