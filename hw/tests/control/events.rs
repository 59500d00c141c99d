//! Event queue entries, from raw bytes.

use mlx5_hw::eqe::{CqErrorSyndrome, Eqe, Event, EventType, PortChange, QueueType};
use mlx5_hw::prm::Layout;

use super::{case, words};

/// An entry of a type and sub-type with some bytes set.
fn event(event_type: u8, sub_type: u8, at: &[(usize, &[u8])]) -> Event {
    let mut entry = [0; 64];
    entry[1] = event_type;
    entry[3] = sub_type;
    for (offset, bytes) in at {
        entry[*offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    Eqe::from_words(&words(&entry)).event()
}

#[test]
fn a_completion_names_its_cq_in_24_bits() {
    assert_eq!(event(0x00, 0, &[(0x38, &[0xff, 0x12, 0x34, 0x56])]), Event::Completion { cqn: 0x12_3456 });
}

#[test]
fn a_cq_error_is_the_reports() {
    for id in ["B-029", "B-030"] {
        let case = case(id);
        let number = |name: &str| case["input"][name].as_u64().expect("a number") as u32;
        let syndrome = number("cq_err_syndrome") as u8;
        let bytes = (number("cqn") | 0xff00_0000).to_be_bytes();
        let event = event(number("event_type") as u8, 0, &[(0x20, &bytes), (0x2b, &[syndrome])]);
        assert_eq!(event, Event::CqError { cqn: number("cqn"), syndrome: CqErrorSyndrome::CQ_OVERRUN }, "{id}");
        let name = EventType(number("event_type") as u8).name();
        assert_eq!(name, case["expected"]["event_name"].as_str(), "{id}");
    }
}

#[test]
fn a_command_completion_carries_the_slots() {
    assert_eq!(event(0x0a, 0, &[(0x20, &[0x80, 0, 0, 0x05])]), Event::Command { vector: 0x8000_0005 });
}

#[test]
fn a_page_request_is_signed_and_has_two_flags() {
    let request = |flags: [u8; 2], pages: i32| {
        event(0x0b, 0, &[(0x20, &flags), (0x22, &[0x01, 0x02]), (0x24, &pages.to_be_bytes())])
    };
    let expected = |ec_function, release_all, num_pages| Event::PageRequest {
        func_id: 0x0102,
        num_pages,
        ec_function,
        release_all,
    };
    assert_eq!(request([0, 0], 16), expected(false, false, 16));
    assert_eq!(request([0x80, 0], -4), expected(true, false, -4));
    assert_eq!(request([0x40, 0], i32::MIN), expected(false, true, i32::MIN));
}

#[test]
fn a_port_change_names_the_port_in_the_high_nibble() {
    assert_eq!(event(0x09, 4, &[(0x28, &[0x10])]), Event::Port { port: 1, change: PortChange::ACTIVE });
    assert_eq!(event(0x09, 1, &[(0x28, &[0x2f])]), Event::Port { port: 2, change: PortChange::DOWN });
}

#[test]
fn queue_events_name_kind_and_number() {
    for event_type in [0x01, 0x02, 0x03, 0x05, 0x07, 0x10, 0x11, 0x12, 0x13, 0x14] {
        let event = event(event_type, 0, &[(0x34, &[2]), (0x38, &[0xee, 0, 0x04, 0xd2])]);
        let expected = Event::Queue { event_type: EventType(event_type), queue_type: QueueType::SQ, number: 1234 };
        assert_eq!(event, expected, "type {event_type:#x}");
    }
}

#[test]
fn an_unknown_event_is_passed_on() {
    assert_eq!(event(0xee, 3, &[]), Event::Other { event_type: EventType(0xee), sub_type: 3 });
}

#[test]
fn the_bit_of_a_type_is_its_number() {
    assert_eq!(EventType::CMD.bit() | EventType::PAGE_REQUEST.bit(), 0xc00);
    assert_eq!(EventType(64).bit(), 0);
    assert_eq!(EventType(255).bit(), 0);
}
