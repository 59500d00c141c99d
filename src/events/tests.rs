//! Events from their bytes, and objects that come and go with the same numbers.

extern crate std;

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::fs;

use mlx5_hw::be::Be32;
use mlx5_hw::eqe::{CqErrorSyndrome, Eqe, Event};
use mlx5_hw::prm::Layout;
use serde_json::Value;

use super::{AsyncEvent, CqNotice, Element, Events, KEPT_EVENTS, Kind};
use crate::error::Failure;

/// The entry of an event: type, subtype, and what stands in its data (`eqe`, bytes 0x20 to 0x3b) where the PRM has it.
fn entry(event_type: u8, sub_type: u8, at: &[(usize, &[u8])]) -> Event {
    let mut bytes = [0_u8; 64];
    (bytes[1], bytes[3]) = (event_type, sub_type);
    for (offset, data) in at {
        bytes[*offset..offset + data.len()].copy_from_slice(data);
    }
    let dword = |i: usize| Be32::new(u32::from_be_bytes(core::array::from_fn(|n| bytes[4 * i + n])));
    let words: [Be32; 16] = core::array::from_fn(dword);
    Eqe::from_words(&words).event()
}

/// `cq_error`: the number in bytes 0x20 to 0x23, the syndrome in byte 0x2b.
fn cq_error(cqn: u32, syndrome: u8) -> Event {
    entry(4, 0, &[(0x20, &cqn.to_be_bytes()), (0x2b, &[syndrome])])
}

/// `qp_events`: the kind of queue in byte 0x34, the number in bytes 0x39 to 0x3b.
fn queue(event_type: u8, queue_type: u8, number: u32) -> Event {
    entry(event_type, 0, &[(0x34, &[queue_type]), (0x38, &number.to_be_bytes())])
}

fn cq(events: &Events, cqn: u32, context: u64) -> Arc<CqNotice> {
    let notice = Arc::new(CqNotice::new(cqn, context, None));
    events.insert_cq(notice.clone());
    notice
}

fn taken(events: &Events) -> Vec<AsyncEvent> {
    core::iter::from_fn(|| events.next()).collect()
}

/// Cases B-029 and B-030: syndrome 1 of a CQ error is an overrun, of the CQ whose number has 24 bits, and nothing of a
/// queue pair's; the queue pair's event beside it is one of its own.
#[test]
fn the_reports_of_full_cqs_are_overruns_of_those_cqs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/public-cases.jsonl");
    let text = fs::read_to_string(path).unwrap();
    let cases: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for id in ["B-029", "B-030"] {
        let input = &cases.iter().find(|case| case["id"] == id).unwrap()["input"];
        let number = |name: &str| input[name].as_u64().unwrap() as u32;
        let events = Events::default();
        let notice = cq(&events, number("cqn"), 7);
        let other = cq(&events, number("cqn") + 1, 8);
        assert_eq!(number("event_type"), 4);
        events.on_event(&cq_error(0xff00_0000 | number("cqn"), number("cq_err_syndrome") as u8));
        let element = Element { number: number("cqn"), context: 7 };
        let mut expected = Vec::from([AsyncEvent::CqErr { cq: element, syndrome: CqErrorSyndrome::CQ_OVERRUN }]);
        if let Some(qpn) = input["qp_event"]["qpn"].as_u64() {
            events.insert(Kind::Qp, qpn as u32, 9);
            events.on_event(&queue(5, 0, qpn as u32));
            expected.push(AsyncEvent::QpFatal(Element { number: qpn as u32, context: 9 }));
        }
        assert_eq!(taken(&events), expected, "{id}");
        let words = expected[0].to_string();
        assert!(words.starts_with(&std::format!("CQ {:#x} failed: CQ overrun;", number("cqn"))), "{id}: {words}");
        assert_eq!((notice.error(), other.error()), (Some(CqErrorSyndrome::CQ_OVERRUN), None), "{id}");
    }
}

/// The events of `ibv_get_async_event(3)` by the numbers of Linux's `device.h` (`MLX5_EVENT_TYPE_*`), as Linux's
/// `mlx5_ib_qp_event` and `mlx5_ib_srq_event` pair them.
#[test]
fn each_event_of_a_queue_has_its_verbs_name() {
    let (qp, srq) = (Element { number: 0x41, context: 1 }, Element { number: 0x41, context: 2 });
    for (event_type, right) in [
        (0x01, AsyncEvent::PathMig(qp)),
        (0x02, AsyncEvent::CommEst(qp)),
        (0x03, AsyncEvent::SqDrained(qp)),
        (0x05, AsyncEvent::QpFatal(qp)),
        (0x07, AsyncEvent::PathMigErr(qp)),
        (0x10, AsyncEvent::QpReqErr(qp)),
        (0x11, AsyncEvent::QpAccessErr(qp)),
        (0x13, AsyncEvent::QpLastWqeReached(qp)),
        (0x12, AsyncEvent::SrqErr(srq)),
        (0x14, AsyncEvent::SrqLimitReached(srq)),
    ] {
        let events = Events::default();
        events.insert(Kind::Qp, 0x41, 1);
        events.insert(Kind::Srq, 0x41, 2);
        events.on_event(&queue(event_type, 0, 0xab00_0041));
        assert_eq!(taken(&events), [right], "{event_type:#x}");
    }
}

/// Subtypes by Linux's `device.h` (`MLX5_PORT_CHANGE_SUBTYPE_*`), paired as in its `handle_port_change`; the port is the high
/// nibble of byte 0x28.
#[test]
fn each_change_of_a_port_has_its_verbs_name() {
    let port_num = 1;
    for (sub_type, right) in [
        (1, Some(AsyncEvent::PortErr { port_num })),
        (4, Some(AsyncEvent::PortActive { port_num })),
        (5, Some(AsyncEvent::PortErr { port_num })),
        (6, Some(AsyncEvent::LidChange { port_num })),
        (7, Some(AsyncEvent::PkeyChange { port_num })),
        (8, Some(AsyncEvent::GidChange { port_num })),
        (9, Some(AsyncEvent::ClientReregister { port_num })),
        (0, None),
        (2, None),
        (0xff, None),
    ] {
        let events = Events::default();
        events.on_event(&entry(9, sub_type, &[(0x28, &[0x1f])]));
        assert_eq!(taken(&events), Vec::from_iter(right), "{sub_type}");
        assert_eq!(events.counters().unknown, u64::from(right.is_none()), "{sub_type}");
    }
}

/// Every type, for every kind of queue, about an object that is not there: counted, and nothing else.
#[test]
fn an_event_about_an_object_that_is_not_there_is_counted_and_dropped() {
    let events = Events::default();
    cq(&events, 0x101, 0);
    let own = events.insert(Kind::Qp, 0x41, 0);
    events.insert(Kind::Srq, 0x42, 0);
    let mut sent = 0;
    // Commands, pages, completions and ports concern no object of these; they are counted elsewhere.
    for event_type in (0..=0xff).filter(|t| ![0x00, 0x09, 0x0a, 0x0b].contains(t)) {
        for queue_type in [0, 1, 2, 6, 0xff] {
            events.on_event(&queue(event_type, queue_type, 0x43));
            events.on_event(&queue(event_type, queue_type, 0x101));
            sent += 2;
        }
    }
    // The numbers of the kinds are apart, and a receive queue's or send queue's is no queue pair's.
    for other in
        [queue(0x05, 0, 0x42), queue(0x14, 0, 0x41), queue(0x05, 1, 0x41), queue(0x05, 2, 0x41), cq_error(0x41, 1)]
    {
        events.on_event(&other);
        sent += 1;
    }
    assert_eq!((events.counters().unknown, taken(&events)), (sent, Vec::new()));
    events.remove(own);
    events.on_event(&queue(0x05, 0, 0x41));
    assert_eq!((events.counters().unknown, taken(&events)), (sent + 1, Vec::new()));
}

#[test]
fn a_cq_that_failed_says_so_for_good_and_with_its_first_syndrome() {
    let events = Events::default();
    let notice = cq(&events, 5, 0);
    assert_eq!(notice.error(), None);
    for syndrome in [0, 2, 1] {
        events.on_event(&cq_error(5, syndrome));
        // A syndrome without a name is one too.
        assert_eq!(notice.error(), Some(CqErrorSyndrome(0)));
    }
    assert_eq!(taken(&events).len(), 3);
    assert_eq!(notice.error(), Some(CqErrorSyndrome(0)));
}

/// What nobody has taken of an object goes with it; what concerns others stays, in its order.
#[test]
fn events_of_an_object_go_with_it() {
    let events = Events::default();
    let gone = cq(&events, 5, 0);
    cq(&events, 6, 1);
    let qp = events.insert(Kind::Qp, 5, 2);
    events.insert(Kind::Srq, 5, 3);
    let all = || {
        for event in
            [cq_error(5, 1), cq_error(6, 1), queue(5, 0, 5), queue(0x14, 0, 5), entry(9, 4, &[(0x28, &[0x10])])]
        {
            events.on_event(&event);
        }
    };
    let numbers = || taken(&events).iter().map(|e| e.object().map(|(kind, _)| kind)).collect::<Vec<_>>();
    all();
    events.remove_cq(&gone);
    events.remove_cq(&gone);
    assert_eq!(numbers(), [Some(Kind::Cq), Some(Kind::Qp), Some(Kind::Srq), None]);
    all();
    events.remove(qp);
    events.remove(qp);
    assert_eq!(numbers(), [Some(Kind::Cq), Some(Kind::Srq), None]);
}

/// A number that was given again before its first owner was taken out: the new one gets nothing of the old one's, is not taken
/// out with it, and loses nothing.
#[test]
fn a_number_that_is_used_again_is_the_new_objects() {
    let events = Events::default();
    let old = cq(&events, 5, 10);
    let old_qp = events.insert(Kind::Qp, 5, 20);
    let old_srq = events.insert(Kind::Srq, 5, 30);
    let fail = || [cq_error(5, 1), queue(5, 0, 5), queue(0x12, 0, 5)].iter().for_each(|event| events.on_event(event));
    fail();
    let new = cq(&events, 5, 11);
    events.insert(Kind::Qp, 5, 21);
    events.insert(Kind::Srq, 5, 31);
    assert_eq!((taken(&events), new.error()), (Vec::new(), None));
    fail();
    events.remove_cq(&old);
    events.remove(old_qp);
    events.remove(old_srq);
    let contexts: Vec<_> = taken(&events)
        .iter()
        .map(|event| match event {
            AsyncEvent::CqErr { cq, .. } => cq.context,
            AsyncEvent::QpFatal(qp) => qp.context,
            AsyncEvent::SrqErr(srq) => srq.context,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(contexts, [11, 21, 31]);
    assert_eq!(new.error(), Some(CqErrorSyndrome::CQ_OVERRUN));
}

#[test]
fn of_more_than_64_events_the_oldest_are_dropped_and_counted() {
    let events = Events::default();
    for i in 0..KEPT_EVENTS + 3 {
        let port = (i % 15 + 1) as u8;
        events.on_event(&entry(9, 4, &[(0x28, &[port << 4])]));
    }
    events.on_failure(Failure::Gone);
    let kept = taken(&events);
    assert_eq!((kept.len(), events.counters().dropped, events.counters().kept), (64, 4, 68));
    assert_eq!(kept[0], AsyncEvent::PortActive { port_num: 5 });
    assert_eq!(kept[63], AsyncEvent::DeviceFatal(Failure::Gone));
}
