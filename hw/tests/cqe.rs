//! Completion entries: real error entries from public reports, and each field of a made-up entry.

#![allow(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

use std::sync::atomic::AtomicU32;

use mlx5_hw::be::Be32;
use mlx5_hw::cqe::{CqeOpcode, CqeRef, CqeSyndrome, ErrCqe};
use mlx5_hw::prm::Layout;
use mlx5_hw::wqe::WqeOpcode;
use serde_json::Value;

const CASES: &str = include_str!("../../tests/data/public-cases.jsonl");

/// Members of `expected` that explain instead of naming a value of the entry.
const SENTENCES: [&str; 3] = ["ci_xor_fold_note", "qpn_note", "software_marker_bytes_1_to_4"];

/// The verbs names of completion statuses, from ibv_poll_cq(3) and verbs.h's order.
const WC_STATUS: [&str; 24] = [
    "SUCCESS",
    "LOC_LEN_ERR",
    "LOC_QP_OP_ERR",
    "LOC_EEC_OP_ERR",
    "LOC_PROT_ERR",
    "WR_FLUSH_ERR",
    "MW_BIND_ERR",
    "BAD_RESP_ERR",
    "LOC_ACCESS_ERR",
    "REM_INV_REQ_ERR",
    "REM_ACCESS_ERR",
    "REM_OP_ERR",
    "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR",
    "LOC_RDD_VIOL_ERR",
    "REM_INV_RD_REQ_ERR",
    "REM_ABORT_ERR",
    "INV_EECN_ERR",
    "INV_EEC_STATE_ERR",
    "FATAL_ERR",
    "RESP_TIMEOUT_ERR",
    "GENERAL_ERR",
    "TM_ERR",
    "TM_RNDV_INCOMPLETE",
];

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|b| u8::from_str_radix(std::str::from_utf8(b).unwrap(), 16).unwrap()).collect()
}

fn words(bytes: &[u8]) -> [AtomicU32; 16] {
    std::array::from_fn(|i| AtomicU32::new(u32::from_ne_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap())))
}

/// The folded CQ index that the signature byte implies. DPDK marks an error entry that it has printed with "seen" in bytes 1
/// to 4, which the device left zero.
fn index_fold(raw: &[u8]) -> u8 {
    let mut raw = raw.to_vec();
    if raw[1..5] == *b"seen" {
        raw[1..5].fill(0);
    }
    raw.iter().fold(0xff, |x, b| x ^ b)
}

/// What the view says, under the names of the cases. `None` for a name it does not know.
fn seen(name: &str, cqe: CqeRef<'_>, raw: &[u8]) -> Option<Value> {
    let requester = cqe.opcode() == CqeOpcode::REQ_ERR;
    Some(match name {
        "cqe_opcode" => cqe.opcode().0.into(),
        "cqe_opcode_name" => cqe.opcode().name().into(),
        "owner_bit" => u8::from(cqe.owner()).into(),
        "solicited_bit" => u8::from(cqe.solicited()).into(),
        "format_bits" => cqe.format().0.into(),
        "syndrome" => cqe.syndrome().0.into(),
        "syndrome_name" => cqe.syndrome().name().into(),
        "wc_status" => cqe.syndrome().wc_status().into(),
        "wc_status_name" => format!("IBV_WC_{}", WC_STATUS[cqe.syndrome().wc_status() as usize]).into(),
        "vendor_err" => cqe.vendor_err_synd().into(),
        "hw_err_synd" => cqe.hw_err_synd().into(),
        "hw_synd_type" => cqe.hw_synd_type().into(),
        "qpn" => cqe.qpn().into(),
        "wqe_opcode" => cqe.sop_opcode().into(),
        "wqe_opcode_name" => requester.then(|| WqeOpcode(cqe.sop_opcode()).name()).flatten().into(),
        "wqe_counter" => cqe.wqe_counter().into(),
        "signature" => cqe.signature().into(),
        "srqn_or_uidx" => cqe.srqn_or_uidx().into(),
        "ci_xor_fold" => index_fold(raw).into(),
        _ => return None,
    })
}

#[test]
fn error_entries_of_public_reports_decode_as_expected() {
    let mut compared = 0;
    let cases = CASES.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let cases: Vec<Value> = cases.filter(|case| case["kind"] == "error-cqe-bytes").collect();
    for case in &cases {
        let raw = bytes(case["input"]["cqe_hex"].as_str().unwrap());
        let words = words(&raw);
        let sq_size = case["input"]["sq_size"].as_u64();
        let values = case["expected"].as_object().unwrap();
        for (name, expected) in values.iter().filter(|(name, _)| !SENTENCES.contains(&name.as_str())) {
            if name == "wqe_index" {
                let counter = u64::from(CqeRef::new(&words).wqe_counter());
                assert_eq!(Some(counter & (sq_size.unwrap() - 1)), expected.as_u64(), "{} {name}", case["id"]);
                continue;
            }
            let seen = seen(name, CqeRef::new(&words), &raw);
            assert_eq!(seen.as_ref(), Some(expected), "{} {name}", case["id"]);
            compared += 1;
        }
    }
    println!("{} entries, {compared} values", cases.len());
    assert!(cases.len() >= 13);
}

#[test]
fn layout_of_an_error_entry_agrees_with_the_view() {
    let raw: Vec<u8> = (0..64).map(|i| 0x80 | i).collect();
    let words = words(&raw);
    let cqe = CqeRef::new(&words);
    let dwords: Vec<Be32> =
        words.iter().map(|w| Be32::from_raw(w.load(std::sync::atomic::Ordering::Relaxed))).collect();
    let err = ErrCqe::from_words(&dwords);
    assert_eq!(err.syndrome(), u32::from(cqe.syndrome().0));
    assert_eq!(err.hw_synd_type() >> 4, u32::from(cqe.hw_synd_type()));
    assert_eq!(err.s_wqe_opcode_qpn(), u32::from(cqe.sop_opcode()) << 24 | cqe.qpn());
    assert_eq!(err.srqn() & 0xff_ffff, cqe.srqn_or_uidx());
    assert_eq!(cqe.field(ErrCqe::VENDOR_ERR_SYND), 0xb6);
}

#[test]
fn every_accessor_reads_its_bytes() {
    // Each byte holds 0x80 plus its offset, so the value names the place.
    let raw: Vec<u8> = (0..64).map(|i| 0x80 | i).collect();
    let words = words(&raw);
    let cqe = CqeRef::new(&words);
    assert_eq!(cqe.rss_hash_result(), Some(0x8c8d8e8f));
    assert_eq!(cqe.dlid_path_bits(), 0x91 & 0x7f);
    assert_eq!(cqe.slid(), 0x9697);
    assert_eq!(cqe.flags_rqpn(), 0x98999a9b);
    assert_eq!((cqe.has_grh(), cqe.sl(), cqe.src_qp()), (true, 0x8, 0x999a9b));
    assert_eq!(cqe.vlan_info(), 0x9e9f);
    assert_eq!(cqe.srqn_or_uidx(), 0xa1a2a3);
    assert_eq!(cqe.imm_inval_pkey().get(), 0xa4a5a6a7);
    assert_eq!(cqe.imm_inval_pkey().to_raw().to_ne_bytes(), [0xa4, 0xa5, 0xa6, 0xa7]);
    assert_eq!(cqe.byte_cnt(), 0xacadaeaf);
    assert_eq!(cqe.timestamp(), 0xb0b1b2b3b4b5b6b7);
    assert_eq!((cqe.sop_opcode(), cqe.qpn()), (0xb8, 0xb9babb));
    assert_eq!((cqe.wqe_counter(), cqe.signature()), (0xbcbd, 0xbe));
    assert_eq!((cqe.opcode().0, cqe.format().0, cqe.solicited(), cqe.owner()), (0xb, 3, true, true));
}

#[test]
fn checksum_is_good_only_for_ipv4_with_both_layers_good() {
    let ok = |hds: u8, l4: u8| {
        let mut raw = [0; 64];
        (raw[28], raw[29]) = (hds, l4);
        CqeRef::new(&words(&raw)).ip_csum_ok()
    };
    assert!(ok(0b110, 2 << 2) && ok(0b111, 2 << 2 | 0x71));
    assert!(!ok(0b010, 2 << 2) && !ok(0b100, 2 << 2) && !ok(0b110, 1 << 2) && !ok(0b110, 3 << 2));
}

#[test]
fn every_syndrome_has_a_status_a_meaning_and_a_cause() {
    let table = [
        (0x01, "LOC_LEN_ERR"),
        (0x02, "LOC_QP_OP_ERR"),
        (0x04, "LOC_PROT_ERR"),
        (0x05, "WR_FLUSH_ERR"),
        (0x06, "MW_BIND_ERR"),
        (0x10, "BAD_RESP_ERR"),
        (0x11, "LOC_ACCESS_ERR"),
        (0x12, "REM_INV_REQ_ERR"),
        (0x13, "REM_ACCESS_ERR"),
        (0x14, "REM_OP_ERR"),
        (0x15, "RETRY_EXC_ERR"),
        (0x16, "RNR_RETRY_EXC_ERR"),
        (0x22, "REM_ABORT_ERR"),
    ];
    for number in 0..=u8::MAX {
        let syndrome = CqeSyndrome(number);
        let known = table.iter().find(|row| row.0 == number).map(|row| row.1);
        assert_eq!(WC_STATUS[syndrome.wc_status() as usize], known.unwrap_or("GENERAL_ERR"), "{number:#x}");
        assert_eq!(syndrome.name().is_some(), known.is_some());
        assert!(syndrome.meaning().ends_with('.') && syndrome.usual_cause().ends_with('.'), "{number:#x}");
        assert_eq!(syndrome.meaning().contains("no public name"), known.is_none());
    }
}
