//! Compressed completions in words: a title and the small entries that go with it.

use mlx5_hw::cqe::{Cqe64Layout, CqeDataFormat, CqeOpcode, INDEX_MASK, OpOwn};
use mlx5_hw::mini_cqe::MiniCqe8;
use mlx5_hw::wqe::WqeOpcode;
use serde_json::{Map, Value};

use super::record::{layout, named, number};
use super::{Compress, Hints, Kind, Layout, Record, cqe};
use crate::options::word;

/// Bytes of a small entry.
const MINI: usize = 8;
/// Small entries in an array, in the basic layout.
const ARRAY: usize = 8;
/// Most small entries in a block, in the enhanced layout: the last eight bytes say what the block is.
const BLOCK: usize = 7;

/// The full entry that blocks of the enhanced layout go on from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Title<'a> {
    descriptor: Option<&'a [u8]>,
    /// Small entries since.
    minis: u16,
}

impl<'a> Title<'a> {
    /// Takes note of an entry that was decoded, if others can go on from it.
    pub fn follow(&mut self, entry: &'a [u8]) {
        let descriptor = entry.get(entry.len().saturating_sub(64)..).unwrap_or(entry);
        let op_own = op_own(descriptor);
        let full = op_own.format() != CqeDataFormat::COMPRESSED && op_own.opcode() != CqeOpcode::INVALID;
        if full {
            *self = Self { descriptor: Some(descriptor), minis: 0 };
        }
    }
}

fn op_own(descriptor: &[u8]) -> OpOwn {
    OpOwn::from_bits(descriptor.last().copied().unwrap_or(0))
}

/// Whether the entry begins a session, or is a block of one. An error is no title, whatever its format says; in a block
/// its number would be a count.
pub fn is_compressed(descriptor: &[u8], lies: Layout) -> bool {
    let op_own = op_own(descriptor);
    let error = matches!(op_own.opcode(), CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR) && lies == Layout::Basic;
    op_own.format() == CqeDataFormat::COMPRESSED && op_own.opcode() != CqeOpcode::INVALID && !error
}

/// Decodes the session at the head of `slots`, entries of `size` bytes; says how many bytes it takes.
pub fn decode<'a>(slots: &'a [u8], size: usize, hints: &Hints, title: &mut Title<'a>) -> (Record, usize) {
    let descriptor = |slot: usize| slots.get(slot * size + size - 64..(slot + 1) * size);
    let head = descriptor(0).unwrap_or(slots);
    let there = slots.len() / size;
    let (record, entries) = match hints.layout {
        Layout::Basic => basic(head, descriptor, hints.compress),
        Layout::Enhanced => enhanced(head, hints.compress, title),
    };
    (record, entries.clamp(1, there.max(1)) * size)
}

/// A title and its arrays: the first right behind it, the next at the eighth slot from the title, and so on.
fn basic<'a>(title: &[u8], slot: impl Fn(usize) -> Option<&'a [u8]>, format: Option<Compress>) -> (Record, usize) {
    let cqe: Cqe64Layout = layout(title, 0);
    let count = cqe.byte_cnt() as usize;
    let array = |i: usize| slot(if i < ARRAY { 1 } else { i - i % ARRAY });
    let minis: Vec<&[u8]> = (0..count).map_while(|i| array(i)?.get(i % ARRAY * MINI..)?.get(..MINI)).collect();
    let headline = format!("A session of {count} compressed completions of {}.", whose(title));
    let mut record = Record::new(Kind::Cqe, headline);
    cqe::common(&mut record, title, op_own(title));
    if minis.len() < count {
        let (read, missing) = (minis.len(), count - minis.len());
        record.put("minis_missing", missing);
        record.notes.push(format!("The bytes end before the session does: {read} of {count} completions are there."));
    }
    put(&mut record, Layout::Basic, format, title, &minis, cqe.wqe_counter());
    (record, count)
}

/// A block that goes on from an earlier entry.
fn enhanced(block: &[u8], format: Option<Compress>, title: &mut Title<'_>) -> (Record, usize) {
    let count = usize::from(op_own(block).opcode().0) + 1;
    let lap = block.get(62).copied().unwrap_or(0);
    let known = title.descriptor.map_or("an entry that is not among the bytes".to_string(), whose);
    let mut record =
        Record::new(Kind::Cqe, format!("A block of {count} compressed completions that go on from {known}."));
    record.put("lap", lap);
    record.row("op_own: count", count.to_string(), "Completions in the block: the upper four bits and one.");
    record.row(
        "lap",
        number(lap.into()),
        "Laps of the device around the ring, modulo 256: the slot is valid in that lap.",
    );
    if count > BLOCK {
        record.notes.push(format!("A block has at most {BLOCK} completions: this is none, or of the basic layout."));
        return (record, 1);
    }
    let minis: Vec<&[u8]> = block.chunks_exact(MINI).take(count).collect();
    let first = title.descriptor.map_or(0, |t| layout::<Cqe64Layout>(t, 0).wqe_counter() as u16);
    let counter = first.wrapping_add(title.minis).wrapping_add(1);
    put(&mut record, Layout::Enhanced, format, title.descriptor.unwrap_or(&[]), &minis, counter.into());
    title.minis = title.minis.wrapping_add(count as u16);
    (record, count)
}

/// Whose completions a title is about.
fn whose(title: &[u8]) -> String {
    let cqe: Cqe64Layout = layout(title, 0);
    let side = if op_own(title).opcode() == CqeOpcode::REQ { "sends" } else { "receives" };
    format!("{side} of queue {:#x}", cqe.sop_drop_qpn() & INDEX_MASK)
}

/// Adds the small entries. The first receive has work request `counter`.
fn put(record: &mut Record, lies: Layout, format: Option<Compress>, title: &[u8], minis: &[&[u8]], counter: u32) {
    let requester = !title.is_empty() && op_own(title).opcode() == CqeOpcode::REQ;
    record.put("layout", word(lies));
    record.put("mini_format", format.map_or(Value::Null, |format| word(format).into()));
    let mut list = Vec::new();
    for (i, mini) in minis.iter().enumerate() {
        let fields = if requester {
            sent(mini)
        } else {
            // Without a title nothing is known to count from.
            let counter = (!title.is_empty()).then_some((counter as u16).wrapping_add(i as u16));
            received(mini, counter, format)
        };
        let words =
            fields.iter().map(|(name, value, shown)| format!("{name} {}", shown.clone().unwrap_or(number(*value))));
        record.row(format!("completion {i}"), words.collect::<Vec<_>>().join(", "), "");
        let object: Map<String, Value> =
            fields.iter().map(|(name, value, _)| (name.to_string(), (*value).into())).collect();
        list.push(Value::Object(object));
    }
    record.put("minis", list);
    if format.is_none() && !requester {
        record
            .notes
            .push("What each completion has beside its length depends on the queue: pass --compress FORMAT.".into());
    }
}

/// Name, value, and the value in words if the number does not do.
type Part = (&'static str, u64, Option<String>);

/// What a requester's small entry says.
fn sent(mini: &[u8]) -> Vec<Part> {
    let mini: MiniCqe8 = layout(mini, 0);
    let opcode = WqeOpcode(mini.s_wqe_opcode() as u8);
    vec![
        ("wqe_counter", mini.s_wqe_counter().into(), None),
        ("wqe_opcode", opcode.0.into(), Some(named(opcode.0.into(), opcode.name()))),
        ("byte_cnt", mini.byte_cnt().into(), None),
    ]
}

/// What a responder's small entry says.
fn received(mini: &[u8], counter: Option<u16>, format: Option<Compress>) -> Vec<Part> {
    let mini: MiniCqe8 = layout(mini, 0);
    let stride = ("stride_idx", mini.stride_idx().into(), None);
    let (mut own, byte_cnt) = match format {
        None | Some(Compress::Hash) => {
            let name = if format.is_none() { "first_dword" } else { "rx_hash_result" };
            (vec![(name, mini.rx_hash_result().into(), None)], mini.byte_cnt())
        }
        Some(Compress::Csum) => (vec![("checksum", mini.checksum().into(), None)], mini.byte_cnt()),
        Some(Compress::CsumStridx) => (vec![("checksum", mini.checksum().into(), None), stride], mini.byte_cnt()),
        Some(Compress::FtagStridx) => {
            let tag = mini.byte_cnt() >> 24 << 16 | mini.flow_tag_high();
            (vec![("flow_tag", tag.into(), None), stride], mini.byte_cnt() & INDEX_MASK)
        }
        Some(Compress::L34hStridx) => (vec![("hdr_type", mini.hdr_type().into(), None), stride], mini.byte_cnt()),
    };
    let mut parts: Vec<Part> = counter.map(|n| ("wqe_counter", n.into(), None)).into_iter().collect();
    parts.push(("byte_cnt", byte_cnt.into(), None));
    parts.append(&mut own);
    parts
}
