//! Event queue entries in words.

use mlx5::{AsyncEvent, Element};
use mlx5_hw::eqe::{
    CmdInterCompEvent, CompEvent, CqError, CqErrorSyndrome, DbBfCongestionEvent, DctEvents, Eqe, Event, EventType,
    GpioEvent, PageReq, PortModule, PortStateChangeEvent, QpEvents, QueueType, RdmaPageFaultEvent, StallVlEvent,
    TempWarning, VportChange, XrqErr,
};
use mlx5_hw::prm::{Field, Layout};
use serde_json::Value;

use super::messages::values;
use super::record::{hex, layout, meaning, named, number, words};
use super::{Kind, Record};

/// Where the event's data begins.
const DATA: std::ops::Range<usize> = 32..60;

/// Decodes the entry at the head of `bytes`, and says how many bytes it takes; `None` if there are too few.
pub fn decode(bytes: &[u8]) -> Option<(Record, usize)> {
    let bytes = bytes.get(..Eqe::BYTES)?;
    let eqe: Eqe = layout(bytes, 0);
    let kind = EventType(eqe.event_type() as u8);
    let doc = EventType::VALUES.iter().find(|(_, n, _)| *n == u64::from(kind.0)).map_or("", |(_, _, doc)| *doc);
    let mut record = Record::new(Kind::Eqe, headline(&eqe, kind, doc));
    record.put("event_type", kind.0);
    record.put("event_name", kind.name().map_or(Value::Null, Value::from));
    record.put("sub_type", eqe.event_sub_type());
    record.put("signature", eqe.signature());
    record.put("owner_bit", u8::from(eqe.owner()));
    record.put("data", hex(bytes.get(DATA)?));
    record.row("event_type", named(kind.0.into(), kind.name()), meaning(doc));
    record.row_of::<Eqe>("event_sub_type", number(eqe.event_sub_type().into()));
    data(&mut record, kind, bytes.get(DATA)?);
    record.row_of::<Eqe>("signature", number(eqe.signature().into()));
    record.row_of::<Eqe>("owner", u8::from(eqe.owner()).to_string());
    details(&mut record, &eqe);
    Some((record, Eqe::BYTES))
}

fn headline(eqe: &Eqe, kind: EventType, doc: &str) -> String {
    let name = kind.name().map_or(format!("Event {:#x}", kind.0), String::from);
    let event = eqe.event();
    if let Some(event) = AsyncEvent::of_entry(&event) {
        return format!("{name}: {event}.");
    }
    match event {
        Event::Completion { cqn } => format!("{name}: CQ {cqn:#x} has completions."),
        Event::Command { vector } => format!("{name}: the commands in slots {} completed.", slots(vector)),
        Event::PageRequest { func_id, release_all: true, .. } => {
            format!("{name}: all pages of function {func_id} are free.")
        }
        Event::PageRequest { func_id, num_pages, .. } if num_pages < 0 => {
            format!("{name}: the firmware gives {} pages of function {func_id} back.", num_pages.unsigned_abs())
        }
        Event::PageRequest { func_id, num_pages, .. } => {
            format!("{name}: the firmware wants {num_pages} pages for function {func_id}.")
        }
        Event::Port { port, change } => format!("{name}: port {port}, change {change}, which is not known."),
        Event::Queue { queue_type, number, .. } => format!("{name}: {} ({queue_type} {number:#x})", doc.trim()),
        _ => format!("{name}: {}", if doc.is_empty() { "an event that is not known." } else { doc.trim() }),
    }
}

/// Slot numbers in a vector of bits.
fn slots(vector: u32) -> String {
    (0..32).filter(|n| vector >> n & 1 != 0).map(|n| n.to_string()).collect::<Vec<_>>().join(", ")
}

/// The fields of the data, by the event's type.
fn data(record: &mut Record, kind: EventType, data: &[u8]) {
    let fields: &[Field] = match kind {
        EventType::COMP => CompEvent::FIELDS,
        EventType::CQ_ERROR => CqError::FIELDS,
        EventType::CMD => CmdInterCompEvent::FIELDS,
        EventType::PAGE_REQUEST => PageReq::FIELDS,
        EventType::PORT_CHANGE => PortStateChangeEvent::FIELDS,
        EventType::PAGE_FAULT => RdmaPageFaultEvent::FIELDS,
        EventType::NIC_VPORT_CHANGE => VportChange::FIELDS,
        EventType::GPIO_EVENT => GpioEvent::FIELDS,
        EventType::PORT_MODULE_EVENT => PortModule::FIELDS,
        EventType::TEMP_WARN_EVENT => TempWarning::FIELDS,
        EventType::XRQ_ERROR => XrqErr::FIELDS,
        EventType::DB_BF_CONGESTION => DbBfCongestionEvent::FIELDS,
        EventType::STALL_EVENT => StallVlEvent::FIELDS,
        EventType::DCT_DRAINED | EventType::DCT_KEY_VIOLATION => DctEvents::FIELDS,
        EventType(0x01..=0x07 | 0x10..=0x14) => QpEvents::FIELDS,
        _ => return,
    };
    let fields: Vec<&Field> = fields.iter().collect();
    let all = values(&fields, &words(data));
    record.rows_of_some("data.", &fields, &words(data));
    record.put("event_data", Value::Object(all));
}

/// Short names, and what usually causes the event.
fn details(record: &mut Record, eqe: &Eqe) {
    let event = eqe.event();
    if let Some(event) = AsyncEvent::of_entry(&event) {
        record.put("verbs_event", event.name());
        record.row("verbs' event", event.name(), "what ibv_get_async_event(3) calls it");
    }
    match event {
        Event::Completion { cqn } => record.put("cqn", cqn),
        Event::CqError { cqn, syndrome } => {
            put_cq_error(record, cqn, syndrome);
        }
        Event::Command { vector } => record.put("command_vector", vector),
        Event::PageRequest { func_id, num_pages, ec_function, release_all } => {
            record.put("func_id", func_id);
            record.put("num_pages", num_pages);
            record.put("ec_function", ec_function);
            record.put("release_all", release_all);
        }
        Event::Port { port, change } => {
            record.put("port", port);
            record.put("port_change", change.name().map_or(Value::Null, Value::from));
        }
        Event::Queue { event_type, queue_type, number } => {
            record.put("queue_type", queue_type.0);
            record.put("queue_type_name", queue_type.name().map_or(Value::Null, Value::from));
            record.put("queue_number", number);
            if queue_type == QueueType::QP {
                record.put("qpn", number);
            }
            record.causes.extend(queue_cause(event_type).map(String::from));
        }
        _ => {}
    }
}

/// A CQ's error in one sentence.
pub fn cq_error(cqn: u32, syndrome: CqErrorSyndrome) -> String {
    format!("{}.", AsyncEvent::CqErr { cq: Element { number: cqn, context: 0 }, syndrome })
}

/// Its fields and causes.
pub fn put_cq_error(record: &mut Record, cqn: u32, syndrome: CqErrorSyndrome) {
    record.put("cqn", cqn);
    record.put("cq_err_syndrome", syndrome.0);
    record.put("cq_err_name", cq_error_name(syndrome).map_or(Value::Null, Value::from));
    record.causes.extend(cq_error_causes(syndrome).iter().map(|c| c.to_string()));
}

/// The verbs' words for it.
fn cq_error_name(syndrome: CqErrorSyndrome) -> Option<&'static str> {
    match syndrome {
        CqErrorSyndrome::CQ_OVERRUN => Some("CQ overrun"),
        CqErrorSyndrome::CQ_ACCESS_VIOLATION_ERROR => Some("CQ access violation"),
        _ => None,
    }
}

fn cq_error_causes(syndrome: CqErrorSyndrome) -> &'static [&'static str] {
    match syndrome {
        CqErrorSyndrome::CQ_OVERRUN => &[
            "The CQ is smaller than the sum of the work requests of all queues on it that may be outstanding.",
            "Room was given to a producer before the consumer index was written to the doorbell record.",
            "The program does not poll often enough.",
        ],
        CqErrorSyndrome::CQ_ACCESS_VIOLATION_ERROR => &[
            "The ring's memory was unmapped or freed while the CQ was alive, or its page list was wrong from the start.",
        ],
        _ => &[],
    }
}

fn queue_cause(event: EventType) -> Option<&'static str> {
    match event {
        EventType::WQ_CATAS_ERROR => Some(
            "The device could not read the queue: its memory or doorbell record was unmapped, or an entry makes no sense.",
        ),
        EventType::WQ_INVAL_REQ_ERROR => Some("The other side sent something that this queue does not allow."),
        EventType::WQ_ACCESS_ERROR => Some("The other side used a key or an address that does not allow it."),
        EventType::SRQ_RQ_LIMIT => {
            Some("The shared receive queue ran below the limit that was set: post more receives.")
        }
        EventType::SRQ_LAST_WQE => {
            Some("The queue pair is in error and takes no more receives: it can be drained and destroyed.")
        }
        _ => None,
    }
}
