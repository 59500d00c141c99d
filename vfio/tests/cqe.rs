//! `mlx5 decode` of completions that are more than one entry each, or less: sessions, data in entries, tags, signatures.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/hex.rs"]
mod hexes;

use common::tool;
use hexes::hex;
use serde_json::{Value, json};

/// An entry: bytes at places.
fn entry(parts: &[(usize, &[u8])]) -> [u8; 64] {
    let mut entry = [0; 64];
    for (at, bytes) in parts {
        entry[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    entry
}

/// A full entry of queue 0x1234 with work request `counter`; `count` bytes, or completions for a title.
fn full(op_own: u8, counter: u16, count: u32) -> [u8; 64] {
    let queue = 0x1234_u32.to_be_bytes();
    entry(&[(44, &count.to_be_bytes()), (56, &queue), (60, &counter.to_be_bytes()), (63, &[op_own])])
}

/// An array of small entries of eight bytes.
fn array(minis: &[[u8; 8]]) -> [u8; 64] {
    entry(&minis.iter().enumerate().map(|(i, mini)| (8 * i, &mini[..])).collect::<Vec<_>>())
}

/// A small entry: first dword, second dword.
fn mini(first: u32, second: u32) -> [u8; 8] {
    (u64::from(first) << 32 | u64::from(second)).to_be_bytes()
}

/// A slot that the device did not write in this lap.
const HOLE: [u8; 64] = [0xa5; 64];

fn decode(slots: &[[u8; 64]], options: &str) -> (Vec<Value>, String) {
    let bytes = hex(&slots.concat());
    let args: Vec<&str> =
        ["decode", "--as", "cqe", "--hex", &bytes].into_iter().chain(options.split_whitespace()).collect();
    let out = tool(&[&args[..], &["--json"]].concat(), b"");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let records: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let text = tool(&args, b"");
    (records.as_array().unwrap().clone(), String::from_utf8(text.stdout).expect("UTF-8"))
}

/// Title in slot 0, arrays in slots 1 and 8 (`mini_cqe8`: `rx_hash_result` at 0, `byte_cnt` at 4), nine entries and one more.
#[test]
fn a_session_of_the_basic_layout_is_read_over_its_holes() {
    let minis: Vec<[u8; 8]> = (0..10).map(|i| mini(0xa000_0000 + i, 100 + i)).collect();
    let mut slots = vec![HOLE; 11];
    slots[0] = full(0x2c, 0xfffc, 10);
    slots[1] = array(&minis[..8]);
    slots[8] = array(&minis[8..]);
    slots[10] = full(0x20, 6, 77);
    let (records, text) = decode(&slots, "--compress hash");
    assert_eq!(records.len(), 2, "{text}");
    let list = records[0]["minis"].as_array().unwrap();
    assert_eq!(list.len(), 10);
    for (i, got) in list.iter().enumerate() {
        let counter = (0xfffc + i) & 0xffff;
        let want = json!({ "wqe_counter": counter, "byte_cnt": 100 + i, "rx_hash_result": 0xa000_0000_u32 + i as u32 });
        assert_eq!(*got, want);
    }
    assert_eq!((&records[1]["byte_cnt"], &records[1]["wqe_counter"]), (&77.into(), &6.into()));
    assert_eq!((&records[0]["layout"], &records[0]["mini_format"]), (&"basic".into(), &"hash".into()));
    for says in
        ["A session of 10 compressed completions of receives of queue 0x1234", "completion 9", "byte_cnt 0x6d (109)"]
    {
        assert!(text.contains(says), "{says}: {text}");
    }
}

/// Cases C-050 and C-051: bytes of each format, in the order of the full entry.
#[test]
fn each_format_reads_its_own_fields_of_the_small_entries() {
    let slots = [full(0x2c, 7, 1), array(&[mini(0x1122_3344, 0x5500_0066)])];
    for (format, want) in [
        ("hash", json!({ "rx_hash_result": 0x1122_3344, "byte_cnt": 0x5500_0066 })),
        ("csum", json!({ "checksum": 0x1122, "byte_cnt": 0x5500_0066 })),
        ("csum-stridx", json!({ "checksum": 0x1122, "stride_idx": 0x3344, "byte_cnt": 0x5500_0066 })),
        ("ftag-stridx", json!({ "flow_tag": 0x55_1122, "stride_idx": 0x3344, "byte_cnt": 0x66 })),
        ("l34h-stridx", json!({ "hdr_type": 0x11, "stride_idx": 0x3344, "byte_cnt": 0x5500_0066 })),
    ] {
        let (records, _) = decode(&slots, &format!("--compress {format}"));
        let mut want = want;
        want["wqe_counter"] = 7.into();
        assert_eq!(records[0]["minis"], json!([want]), "{format}");
    }
    let (records, text) = decode(&slots, "");
    assert_eq!(records[0]["minis"][0]["first_dword"], 0x1122_3344);
    assert!(text.contains("pass --compress FORMAT"), "{text}");
}

/// Case C-061: counter and opcode of a requester's completion are its own.
#[test]
fn a_session_of_sends_has_counter_and_opcode_of_each() {
    let slots = [full(0x0c, 40, 2), array(&[mini(41 << 16 | 8 << 8, 0), mini(45 << 16 | 10 << 8, 0)])];
    let (records, text) = decode(&slots, "");
    let minis = json!([
        { "wqe_counter": 41, "wqe_opcode": 8, "byte_cnt": 0 },
        { "wqe_counter": 45, "wqe_opcode": 10, "byte_cnt": 0 },
    ]);
    assert_eq!(records[0]["minis"], minis);
    assert!(
        text.contains("of sends of queue 0x1234") && text.contains("RDMA_WRITE") && text.contains("SEND"),
        "{text}"
    );
    assert!(!text.contains("--compress"), "the format is the receives' affair: {text}");
}

/// Case C-060: byte 63 0x3c is a block of four; byte 62 is the lap; the next entry is four slots on.
#[test]
fn blocks_of_the_enhanced_layout_go_on_from_the_last_full_entry() {
    let block = |n: u32, op_own: u8| {
        let minis: Vec<[u8; 8]> = (0..n).map(|i| mini(0xcc00_0000 + i, 10 * n + i)).collect();
        let mut block = array(&minis);
        (block[62], block[63]) = (1, op_own);
        block
    };
    let mut slots = vec![HOLE; 8];
    slots[0] = full(0x20, 76, 5);
    slots[1] = block(4, 0x3c);
    slots[5] = block(2, 0x1c);
    slots[7] = full(0x21, 83, 6);
    let (records, text) = decode(&slots, "--layout enhanced --compress hash");
    assert_eq!(records.len(), 4, "{text}");
    let counters = |i: usize| {
        let minis = records[i]["minis"].as_array().unwrap();
        minis.iter().map(|m| m["wqe_counter"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((counters(1), counters(2)), (vec![77, 78, 79, 80], vec![81, 82]));
    assert_eq!((&records[1]["lap"], &records[1]["layout"]), (&1.into(), &"enhanced".into()));
    assert_eq!(records[2]["minis"][1]["byte_cnt"], 21);
    assert!(text.contains("A block of 4 compressed completions that go on from receives of queue 0x1234"), "{text}");
    let (alone, text) = decode(&[block(3, 0x2c)], "--layout enhanced --compress hash");
    assert_eq!(alone[0]["minis"].as_array().unwrap().len(), 3);
    assert!(alone[0]["minis"][0].get("wqe_counter").is_none(), "nothing to count from: {text}");
    let (none, text) = decode(&[block(0, 0x7c)], "--layout enhanced");
    assert!(none[0].get("minis").is_none() && text.contains("at most 7"), "{text}");
}

#[test]
fn a_session_that_the_bytes_end_in_says_what_is_missing_whatever_its_count() {
    let minis: Vec<[u8; 8]> = (0..8).map(|i| mini(i, i)).collect();
    for (count, read) in [(8, 8), (9, 8), (64, 8), (u32::MAX, 8), (0, 0)] {
        let (records, text) = decode(&[full(0x2c, 0, count), array(&minis)], "--compress hash");
        assert_eq!(records[0]["minis"].as_array().unwrap().len(), read, "{text}");
        let missing = u64::from(count) - read as u64;
        assert_eq!(records[0].get("minis_missing").map(|m| m.as_u64().unwrap()), (missing > 0).then_some(missing));
        assert_eq!(text.contains("The bytes end before the session does"), missing > 0, "{text}");
    }
    let (records, _) = decode(&[full(0x2c, 0, 3)], "");
    assert_eq!((&records[0]["minis"], &records[0]["minis_missing"]), (&json!([]), &3.into()));
}

#[test]
fn an_error_is_told_as_one_though_its_format_is_that_of_a_session() {
    let mut error = full(0xdc, 5, 0);
    (error[54], error[55]) = (0x81, 0x15);
    let (records, text) = decode(&[error], "");
    assert_eq!((&records[0]["syndrome"], records[0].get("minis")), (&0x15.into(), None), "{text}");
}

#[test]
fn slots_of_128_bytes_have_titles_and_arrays_in_their_second_halves() {
    let minis = [mini(0xabc, 1), mini(0xdef, 2)];
    let slots = [HOLE, full(0x2c, 9, 2), HOLE, array(&minis)];
    let (records, text) = decode(&slots, "--cqe-size 128 --compress hash");
    assert_eq!(records.len(), 1, "{text}");
    assert_eq!(records[0]["minis"][1], json!({ "wqe_counter": 10, "byte_cnt": 2, "rx_hash_result": 0xdef }));
}

#[test]
fn data_in_an_entry_is_as_long_as_the_entry_says() {
    let data: Vec<u8> = (1..=32).collect();
    let mut inlined = full(0x24, 0, 5);
    inlined[..32].copy_from_slice(&data);
    let (records, _) = decode(&[inlined], "");
    assert_eq!(records[0]["inline_data"], "0102030405");
    inlined[47] = 33;
    let (records, text) = decode(&[inlined], "");
    assert_eq!(records[0]["inline_data"], hex(&data));
    assert!(text.contains("says 33 bytes but has room for 32"), "{text}");
    let first = [7; 64];
    let (records, _) = decode(&[first, full(0x28, 0, 40)], "");
    assert_eq!((records.len(), &records[0]["inline_data"]), (1, &hex(&[7; 40]).into()));
}

/// The header of a message (`struct ibv_tmh`: opcode, `app_ctx` at 4, `tag` at 8), `app` at 40, `app_op` at 41, `app_info` at 42.
#[test]
fn tag_matching_says_what_was_done_and_with_which_tag() {
    let header: [u8; 16] = [3, 0, 0, 0, 0, 0, 0, 9, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
    let mut matched = full(0x20, 0, 5);
    matched[..16].copy_from_slice(&header);
    matched[40..44].copy_from_slice(&[1, 10, 0, 6]);
    let (records, text) = decode(&[matched], "");
    assert_eq!((&records[0]["app_op_name"], &records[0]["app_info"]), (&"TM_CONSUMED_MSG".into(), &6.into()));
    assert_eq!((&records[0]["tag"], &records[0]["app_ctx"]), (&0x1122_3344_5566_7788_u64.into(), &9.into()));
    assert!(text.contains("A message matched a tag and its data is in place"), "{text}");
    let mut list = full(0x60, 0, 0);
    list[..6].copy_from_slice(&[0x80, 0, 0, 0, 0, 3]);
    list[40..44].copy_from_slice(&[1, 5, 0, 2]);
    let (records, text) = decode(&[list], "");
    assert_eq!((&records[0]["success"], &records[0]["hw_phase_cnt"]), (&true.into(), &3.into()));
    assert!(text.contains("A tag was added to the list"), "{text}");
    list[0] = 0x7f;
    assert_eq!(decode(&[list], "").0[0]["success"], false);
    let (records, _) = decode(&[full(0x20, 0, 5)], "");
    assert!(records[0].get("app_op").is_none());
}

/// `sig_err_cqe`: syndrome at 32 (bit 13 guard, 11 reference tag), domain at 35, mkey at 36, offset at 40.
#[test]
fn a_signature_error_says_what_differs_and_where() {
    let failed = entry(&[
        (24, &[0, 0, 0, 5, 0, 0, 0, 6]),
        (32, &[0x28, 0, 0, 1]),
        (36, &[0, 0x12, 0x34, 0]),
        (46, &[2, 0]),
        (63, &[0xc0]),
    ]);
    let (records, text) = decode(&[failed], "");
    assert_eq!(records[0]["differs"], json!(["guard", "reference tag"]));
    assert_eq!((&records[0]["mkey_index"], &records[0]["err_offset"]), (&0x1234.into(), &512.into()));
    assert_eq!((&records[0]["expected_ref_tag"], &records[0]["actual_ref_tag"]), (&5.into(), &6.into()));
    assert!(text.contains("wrong guard and reference tag in memory, at offset 512"), "{text}");
}
