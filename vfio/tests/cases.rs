//! Every case with bytes from public reports decodes to what is known about it, by the library and by the tool.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/cases.rs"]
mod fixtures;
#[path = "common/hex.rs"]
mod hexes;

use common::tool;
use fixtures::{Case, Tally, cases};
use hexes::hex;
use mlx5_vfio::decode::{Kind, decode_bytes};
use serde_json::{Map, Value, json};

/// The bytes of a hex string in a case.
fn bytes(hex: &Value) -> Vec<u8> {
    unhex(hex.as_str().expect("a hex string"))
}

/// The bytes of a hex string.
fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// What `mlx5 decode --json --hex` prints about bytes.
fn tool_json(bytes: &[u8]) -> Value {
    let out = tool(&["decode", "--json", "--hex", &hex(bytes)], b"");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

/// Keys of `expected` that are not compared with a field, and why.
const NOT_FIELDS: &[(&str, &str)] = &[
    ("qpn_note", "a sentence; the tool says it in the field's meaning"),
    ("note", "a sentence"),
    ("meaning", "a sentence"),
    ("rule", "a rule for the driver, tested with its polling"),
    ("signature_rule", "a sentence; xor_of_64 is compared"),
    ("signature_note", "a sentence; xor_of_64 is compared"),
    ("slot_note", "a sentence"),
    ("in_len_rule", "a formula; in_len is compared"),
    ("not_this", "a sentence about a wrong reading"),
    ("trap", "a sentence about a wrong reading"),
    ("driver_action", "a rule for the driver"),
    ("slot", "which slot a command took is not in its bytes"),
    ("doorbell", "which doorbell bit was rung is not in the bytes"),
    ("num_pages_signed", "a rule: checked by negative_page_counts_are_read_as_such"),
    ("supported_issi_dw0_offset_in_outbox", "a place: checked by places_that_the_cases_name_are_the_ones_read"),
    ("field_offset", "a place: checked by places_that_the_cases_name_are_the_ones_read"),
    ("cqn_mask", "a rule: checked by cqn_is_cut_to_24_bits"),
    ("qp_raw_fields", "printed by a driver from a queue pair's event, not in the bytes of this one"),
    ("wqe_index", "needs the size of the queue: checked here against wqe_counter and sq_size"),
    ("mailbox_block", "compared with the mailbox's own record"),
    ("before", "compared with the record of descriptor_before_hex"),
    ("after", "compared with the record of descriptor_after_hex"),
];

/// The record of one structure, the same from the library with and without its kind and from the tool.
fn record(bytes: &[u8], kind: Kind) -> Map<String, Value> {
    let guessed = decode_bytes(bytes, None).expect("the kind is guessed");
    assert_eq!(guessed.len(), 1);
    assert_eq!(guessed[0].kind, kind, "guessed kind");
    assert_eq!(guessed, decode_bytes(bytes, Some(kind)).expect("decodes"));
    assert_eq!(tool_json(bytes), json!([guessed[0].json]), "the tool prints the same");
    guessed[0].json.clone()
}

#[test]
fn error_completions_decode_to_what_the_reports_say() {
    let mut tally = Tally::default();
    for Case { id, input, expected } in cases("error-cqe-bytes") {
        let got = record(&bytes(&input["cqe_hex"]), Kind::Cqe);
        tally.compare(&id, &expected, &got, NOT_FIELDS);
        if let (Some(size), Some(index)) = (input["sq_size"].as_u64(), expected["wqe_index"].as_u64()) {
            assert_eq!(got["wqe_counter"].as_u64().unwrap() & (size - 1), index);
        }
        tally.cases += 1;
    }
    tally.finish("error-cqe-bytes", 13);
}

#[test]
fn command_descriptors_and_their_mailboxes_decode_to_what_the_trace_says() {
    let mut tally = Tally::default();
    for Case { id, input, expected } in cases("command-bytes") {
        let blocks: Vec<u8> = ["in_mailbox_blocks_hex", "out_mailbox_blocks_hex"]
            .iter()
            .filter_map(|key| input[key].as_array())
            .flatten()
            .flat_map(bytes)
            .collect();
        for (when, key) in [("before", "descriptor_before_hex"), ("after", "descriptor_after_hex")] {
            let descriptor = bytes(&input[key]);
            tally.compare(&format!("{id} {when}"), &expected[when], &record(&descriptor, Kind::Command), NOT_FIELDS);
            if when == "after" {
                let whole = record(&[descriptor, blocks.clone()].concat(), Kind::Command);
                tally.compare(&id, &expected, &whole, NOT_FIELDS);
            }
        }
        if let Some(block) = expected.get("mailbox_block") {
            tally.compare(&format!("{id} mailbox"), block, &record(&blocks[..576], Kind::Mailbox), NOT_FIELDS);
        }
        tally.cases += 1;
    }
    tally.finish("command-bytes", 10);
}

#[test]
fn health_buffers_decode_to_what_was_printed() {
    let mut tally = Tally::default();
    for Case { id, input, expected } in cases("health-buffer") {
        let buffer = match input.get("health_hex") {
            Some(hex) => bytes(hex),
            None => health_of(&input["printed"]),
        };
        tally.compare(&id, &expected, &record(&buffer, Kind::Health), NOT_FIELDS);
        tally.cases += 1;
    }
    tally.finish("health-buffer", 3);
}

/// A health buffer with the printed numbers, at the places that the cases' README gives.
fn health_of(printed: &Value) -> Vec<u8> {
    let mut buffer = vec![0; 64];
    let put = |at: usize, v: &Value, buffer: &mut Vec<u8>| {
        buffer[at..at + 4].copy_from_slice(&(v.as_u64().unwrap() as u32).to_be_bytes())
    };
    for (i, word) in printed["assert_var"].as_array().unwrap().iter().enumerate() {
        put(4 * i, word, &mut buffer);
    }
    put(32, &printed["assert_exit_ptr"], &mut buffer);
    put(36, &printed["assert_callra"], &mut buffer);
    put(48, &json!(0x1020_01ec), &mut buffer); // the firmware version and the hardware id were not printed
    put(52, &json!(0x20d), &mut buffer);
    buffer[56] = 0x08 | printed["severity"].as_u64().unwrap() as u8;
    buffer
}

/// An EQE of a CQ error at the places that Linux's driver reads: type at 1, CQ number at 0x20, syndrome at 0x2b.
fn cq_error(cqn: u32, syndrome: u8) -> Vec<u8> {
    let mut eqe = vec![0; 64];
    eqe[1] = 4;
    eqe[0x20..0x24].copy_from_slice(&cqn.to_be_bytes());
    eqe[0x2b] = syndrome;
    eqe
}

#[test]
fn asynchronous_events_decode_to_what_was_logged() {
    let mut tally = Tally::default();
    for Case { id, input, expected } in cases("async-event") {
        assert_eq!(input["event_type"], 4);
        let (cqn, syndrome) = (input["cqn"].as_u64().unwrap(), input["cq_err_syndrome"].as_u64().unwrap());
        let got = record(&cq_error(cqn as u32, syndrome as u8), Kind::Eqe);
        tally.compare(&id, &expected, &got, NOT_FIELDS);
        for key in ["event_type", "cqn", "cq_err_syndrome"] {
            assert_eq!(got[key], input[key], "{id}");
            tally.fields += 1;
        }
        tally.cases += 1;
    }
    tally.finish("async-event", 2);
}

#[test]
fn refused_commands_decode_to_status_errno_and_syndrome() {
    let mut tally = Tally::default();
    for Case { id, input, expected } in cases("command-status") {
        let mut entry = vec![0; 64];
        entry[0] = 7;
        (entry[7], entry[59]) = (16, 16);
        entry[16..24].copy_from_slice(&bytes(&input["inbox_head_hex"]));
        entry[32..40].copy_from_slice(&bytes(&input["outbox_head_hex"]));
        tally.compare(&id, &expected, &record(&entry, Kind::Command), NOT_FIELDS);
        tally.cases += 1;
    }
    tally.finish("command-status", 9);
}

/// `ibv_get_async_event(3)` and Linux's `device.h`: the words are those of the driver's own typed events.
#[test]
fn events_are_called_what_the_verbs_call_them() {
    let event = |event_type: u8, sub_type: u8| {
        let mut eqe = vec![0; 64];
        (eqe[1], eqe[3], eqe[0x28], eqe[0x3b]) = (event_type, sub_type, 0x10, 0x41);
        let mut records = decode_bytes(&eqe, Some(Kind::Eqe)).unwrap();
        records.swap_remove(0)
    };
    for (event_type, sub_type, name, words) in [
        (0x01, 0, "IBV_EVENT_PATH_MIG", "queue pair 0x41 has moved"),
        (0x02, 0, "IBV_EVENT_COMM_EST", "queue pair 0x41 got its first message"),
        (0x03, 0, "IBV_EVENT_SQ_DRAINED", "queue pair 0x41 has drained"),
        (0x05, 0, "IBV_EVENT_QP_FATAL", "queue pair 0x41 is in the error state"),
        (0x07, 0, "IBV_EVENT_PATH_MIG_ERR", "queue pair 0x41 could not move"),
        (0x10, 0, "IBV_EVENT_QP_REQ_ERR", "queue pair 0x41 got a request that is not valid"),
        (0x11, 0, "IBV_EVENT_QP_ACCESS_ERR", "queue pair 0x41 got a request for memory"),
        (0x12, 0, "IBV_EVENT_SRQ_ERR", "shared receive queue 0x41 failed"),
        (0x13, 0, "IBV_EVENT_QP_LAST_WQE_REACHED", "queue pair 0x41 takes nothing more"),
        (0x14, 0, "IBV_EVENT_SRQ_LIMIT_REACHED", "shared receive queue 0x41 has fewer requests"),
        (0x09, 1, "IBV_EVENT_PORT_ERR", "port 1 is not active"),
        (0x09, 4, "IBV_EVENT_PORT_ACTIVE", "port 1 is active"),
        (0x09, 5, "IBV_EVENT_PORT_ERR", "port 1 is not active"),
        (0x09, 6, "IBV_EVENT_LID_CHANGE", "port 1 has another LID"),
        (0x09, 7, "IBV_EVENT_PKEY_CHANGE", "port 1 has other P_Keys"),
        (0x09, 8, "IBV_EVENT_GID_CHANGE", "port 1 has other GIDs"),
        (0x09, 9, "IBV_EVENT_CLIENT_REREGISTER", "clients of port 1"),
    ] {
        let got = event(event_type, sub_type);
        assert_eq!(got.json["verbs_event"], name);
        assert!(got.headline.contains(words), "{name}: {}", got.headline);
    }
    for (event_type, sub_type) in [(0x00, 0), (0x0a, 0), (0x0b, 0), (0x09, 2), (0x17, 0), (0xee, 0)] {
        assert!(event(event_type, sub_type).json.get("verbs_event").is_none(), "{event_type:#x}");
    }
}

#[test]
fn cqn_is_cut_to_24_bits() {
    assert_eq!(decode_bytes(&cq_error(0xff00_0487, 1), None).unwrap()[0].json["cqn"], 1159);
}

#[test]
fn negative_page_counts_are_read_as_such() {
    let case = cases("command-bytes").into_iter().find(|c| c.id == "B-035").unwrap();
    let mut entry = bytes(&case.input["descriptor_after_hex"]);
    entry[44..48].copy_from_slice(&(-6_i32).to_be_bytes());
    assert_eq!(decode_bytes(&entry, Some(Kind::Command)).unwrap()[0].json["num_pages"], -6);
}

#[test]
fn places_that_the_cases_name_are_the_ones_read() {
    let find = |id: &str| cases("command-bytes").into_iter().find(|c| c.id == id).unwrap();
    let set_issi = find("B-034");
    let mut entry = bytes(&set_issi.input["descriptor_after_hex"]);
    entry[16 + set_issi.expected["field_offset"].as_u64().unwrap() as usize] = 0x7f;
    assert_eq!(decode_bytes(&entry, Some(Kind::Command)).unwrap()[0].json["current_issi"], 0x7f01);

    let query = find("B-033");
    let at = query.expected["supported_issi_dw0_offset_in_outbox"].as_u64().unwrap() as usize;
    let mut message = bytes(&query.input["descriptor_after_hex"]);
    message.extend(bytes(&query.input["out_mailbox_blocks_hex"][0]));
    message[64 + at - 16] = 0x80;
    assert_eq!(decode_bytes(&message, Some(Kind::Command)).unwrap()[0].json["supported_issi_dw0"], 0x8000_0002_u32);
}

#[test]
fn a_list_ends_where_the_length_of_the_input_says() {
    let case = cases("command-bytes").into_iter().find(|c| c.id == "B-047").unwrap();
    let mut message = bytes(&case.input["descriptor_after_hex"]);
    message.extend(bytes(&case.input["in_mailbox_blocks_hex"][0]));
    let pas = |message: &[u8]| decode_bytes(message, None).unwrap()[0].json["pas"].clone();
    assert_eq!(pas(&message), json!([32886751232_u64]), "280 bytes: one address behind the 272 of the context");
    message[4..8].copy_from_slice(&296_u32.to_be_bytes());
    assert_eq!(pas(&message), json!([32886751232_u64, 0, 0]));
}

#[test]
fn two_dumps_give_two_records() {
    let case = cases("command-bytes").remove(0);
    let both = [bytes(&case.input["descriptor_before_hex"]), bytes(&case.input["descriptor_after_hex"])].concat();
    let records = decode_bytes(&both, None).unwrap();
    assert_eq!(records.iter().map(|r| r.json["owner_bit"].clone()).collect::<Vec<_>>(), [1, 0]);
    let cqe = unhex(
        "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000f0078062500005800daacd2",
    );
    let records = decode_bytes(&[cqe.clone(), cqe.clone()].concat(), None).unwrap();
    assert_eq!(records.len(), 2, "two entries of 64 bytes");
    let wide = decode_bytes(&[vec![0; 64], cqe].concat(), None).unwrap();
    assert_eq!((wide.len(), wide[0].json["cqe_bytes"].clone()), (1, json!(128)));
    assert_eq!(wide[0].json["qpn"], 88);
}

#[test]
fn a_block_with_another_token_is_named_and_shown_on_its_own() {
    let case = cases("command-bytes").into_iter().find(|c| c.id == "B-047").unwrap();
    let mut message = bytes(&case.input["descriptor_after_hex"]);
    message.extend(bytes(&case.input["in_mailbox_blocks_hex"][0]));
    message[64 + 573] ^= 0x80;
    for kind in [None, Some(Kind::Command)] {
        let records = decode_bytes(&message, kind).unwrap();
        assert_eq!(records.iter().map(|r| r.kind).collect::<Vec<_>>(), [Kind::Command, Kind::Mailbox]);
        assert!(
            records[0].notes.iter().any(|n| n.contains("token 0x9f and number 0 instead of 0x1f and 0")),
            "{records:?}"
        );
        assert!(records[0].json.get("pas0").is_none(), "its fields are not taken for the command's");
    }
}
