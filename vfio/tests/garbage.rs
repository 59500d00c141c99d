//! No input makes the decoders panic, and what they cannot read they say.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use mlx5_vfio::decode::{DecodeError, Kind, decode_bytes, decode_text};
use proptest::prelude::*;

const KINDS: [(Kind, usize); 5] =
    [(Kind::Cqe, 64), (Kind::Command, 64), (Kind::Mailbox, 576), (Kind::Eqe, 64), (Kind::Health, 64)];

/// Decodes bytes in every way that they can be taken.
fn decode_anyhow(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for kind in [None, Some(Kind::Text)].into_iter().chain(KINDS.map(|(kind, _)| Some(kind))) {
        let results = [decode_bytes(data, kind), decode_text(&text, kind)].map(Result::unwrap_or_default);
        // The tables take most of the time, and are the same for all kinds.
        for record in results.iter().flatten().take(if kind.is_none() { 2 } else { 0 }) {
            let _ = (record.title(), record.to_text());
        }
    }
}

/// Bytes that get past the first checks: type 7, zeros, lengths and pointers that call for mailboxes, known opcodes.
fn almost() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just([0; 4]),
        Just([7, 0, 0, 0]),
        Just([0, 0, 0, 16]),
        Just([0xff; 4]),
        any::<[u8; 4]>(),
        (any::<u16>(), 0x100_u16..0x120).prop_map(|(a, b)| [(b >> 8) as u8, b as u8, (a >> 8) as u8, a as u8]),
    ];
    proptest::collection::vec(word, 0..400).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..1400)) {
        decode_anyhow(&bytes);
    }

    #[test]
    fn no_near_miss_panics(bytes in almost()) {
        decode_anyhow(&bytes);
    }

    #[test]
    fn no_text_panics(text in "[ -~\\n\\té0-9a-f:|x]{0,300}") {
        decode_anyhow(text.as_bytes());
    }

    #[test]
    fn whole_structures_always_decode_when_their_kind_is_given(bytes in almost(), which in 0..KINDS.len()) {
        let (kind, size) = KINDS[which];
        let result = decode_bytes(&bytes, Some(kind));
        if bytes.len() % size == 0 && !bytes.is_empty() {
            let records = result.expect("whole structures");
            let fits = |k| k == kind || (kind, k) == (Kind::Command, Kind::Mailbox);
            prop_assert!(records.iter().all(|r| fits(r.kind) && !r.headline.is_empty()));
        } else if !bytes.is_empty() && kind != Kind::Command {
            prop_assert_eq!(result, Err(DecodeError::Length { line: 0, found: bytes.len(), kind: Some(kind) }));
        }
    }

    #[test]
    fn hex_of_bytes_reads_as_the_bytes(bytes in proptest::collection::vec(any::<u8>(), 64..=64)) {
        let hex: String = bytes.iter().map(|b| format!("{b:02x} ")).collect();
        prop_assert_eq!(decode_text(&hex, Some(Kind::Cqe)), decode_bytes(&bytes, Some(Kind::Cqe)));
    }
}

#[test]
fn lengths_around_those_of_the_structures_are_handled() {
    for len in (0..130).chain(570..=580).chain(636..=644).chain(1150..=1154) {
        for fill in [0x00, 0x07, 0xff] {
            let mut bytes = vec![fill; len];
            if let Some(first) = bytes.first_mut() {
                *first = 7;
            }
            decode_anyhow(&bytes);
        }
    }
}

#[test]
fn a_command_that_claims_four_gigabytes_takes_no_such_memory() {
    let mut entry = vec![0xff; 64];
    entry[0] = 7;
    let records = decode_bytes(&entry, Some(Kind::Command)).expect("decodes");
    assert_eq!(records[0].json["in_len"], u32::MAX);
}

#[test]
fn a_slot_that_was_never_written_is_told_from_noise() {
    let slot = |last: u8| {
        let mut slot = [0; 64];
        (slot[0], slot[63]) = (0xa5, last);
        slot
    };
    for last in [0xf0, 0xf1] {
        assert!(decode_bytes(&slot(last), None).expect("a CQE")[0].headline.starts_with("Not an entry"));
    }
    for last in [0xf2, 0xf5, 0xff] {
        assert!(matches!(decode_bytes(&slot(last), None), Err(DecodeError::Unknown { .. })), "{last:#x}");
        assert!(decode_bytes(&slot(last), Some(Kind::Cqe)).expect("named")[0].headline.starts_with("Not an entry"));
    }
}

#[test]
fn what_is_no_answered_command_is_not_called_one() {
    let mut entry = [0; 64];
    let text = |entry: &[u8]| decode_bytes(entry, Some(Kind::Command)).expect("a command")[0].to_text();
    let empty = text(&entry);
    assert!(empty.contains("An empty slot") && !empty.contains("type is 7"), "{empty}");
    (entry[0], entry[63]) = (9, 1);
    let waiting = text(&entry);
    assert!(waiting.contains("The device sets it with its answer") && !waiting.contains("Delivered"), "{waiting}");
    assert!(waiting.contains("A command's type is 7"), "{waiting}");
    (entry[0], entry[63]) = (7, 0);
    assert!(text(&entry).contains("Delivered") && !text(&entry).contains("type is 7"));
    let health = decode_bytes(&[0; 64], Some(Kind::Health)).expect("a health buffer")[0].to_text();
    assert!(health.contains(" 0 no failure") && !health.contains("no name known"), "{health}");
}

#[test]
fn wrong_lengths_and_unknown_bytes_are_named() {
    let length = |found, kind| Err(DecodeError::Length { line: 0, found, kind });
    assert_eq!(decode_bytes(&[0; 63], None), length(63, None));
    assert_eq!(decode_bytes(&[7; 65], None), length(65, None));
    assert_eq!(decode_bytes(&[0; 64], Some(Kind::Mailbox)), length(64, Some(Kind::Mailbox)));
    assert_eq!(decode_text("00 01 02", None), Err(DecodeError::Length { line: 1, found: 3, kind: None }));
    let Err(DecodeError::Unknown { at: 0, reasons, .. }) = decode_bytes(&[0xa5; 64], None) else { panic!("unknown") };
    assert_eq!(reasons.len(), 5, "one a kind: {reasons:?}");
    let Err(DecodeError::Unknown { .. }) = decode_bytes(&[0; 64], None) else { panic!("all zero is nothing") };
    let Err(DecodeError::Unknown { reasons, .. }) = decode_bytes(&[0xff; 64], None) else { panic!("all ones") };
    assert!(reasons[0].contains("left the bus"), "{reasons:?}");
    assert_eq!(decode_text("00", Some(Kind::Text)), Err(DecodeError::Empty { text_lines: 1 }));
    assert_eq!(decode_bytes(&[0; 64], Some(Kind::Text)), Err(DecodeError::NotText));
}
