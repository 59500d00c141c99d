//! Completion queue entries in words.

use mlx5::WcStatus;
use mlx5_hw::cqe::{Cqe64Layout, CqeDataFormat, CqeOpcode, CqeSyndrome, ErrCqe, INDEX_MASK, OpOwn, SigErrCqe};
use mlx5_hw::prm::Layout;
use mlx5_hw::wqe::WqeOpcode;
use serde_json::Value;

use super::cause::{self, Failed};
use super::record::{hex, layout, named, number};
use super::session::{self, Title};
use super::{Hints, Kind, Layout as Lies, Record, tag};

/// What DPDK writes into bytes 1 to 4 of an entry that it has printed.
const SEEN: &[u8] = b"seen";

/// Decodes the entry at the head of `bytes`, and says how many bytes it takes; `None` if there are too few.
pub fn decode<'a>(bytes: &'a [u8], hints: &Hints, title: &mut Title<'a>) -> Option<(Record, usize)> {
    let size = hints.cqe_size.filter(|size| matches!(size, 64 | 128)).or_else(|| entry_size(bytes, hints.layout))?;
    let entry = bytes.get(..size)?;
    let (data, descriptor) = entry.split_at(size - 64);
    if session::is_compressed(descriptor, hints.layout) {
        return Some(session::decode(bytes, size, hints, title));
    }
    title.follow(entry);
    let op_own = OpOwn::from_bits(*descriptor.last()?);
    let mut record = match op_own.opcode() {
        CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR => failed(descriptor, op_own),
        CqeOpcode::SIG_ERR => signature(descriptor),
        _ => completed(descriptor, op_own),
    };
    common(&mut record, descriptor, op_own);
    record.put("cqe_bytes", size);
    if size == 128 {
        record
            .notes
            .push("128-byte entry: the descriptor is its second half, the first holds inlined data or nothing.".into());
        if op_own.format() == CqeDataFormat::INLINE_DATA64_SEG {
            inlined(&mut record, data, descriptor, "The data, in the 64 bytes before the descriptor.");
        }
    } else if matches!(op_own.opcode(), CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR) {
        index_fold(&mut record, descriptor);
    }
    Some((record, size))
}

/// 64 or 128: two entries of 64 bytes are told from one of 128 by whether the first half is an entry itself.
fn entry_size(bytes: &[u8], lies: Lies) -> Option<usize> {
    let first = bytes.get(..64)?;
    let Some(second) = bytes.get(64..128) else { return Some(64) };
    if !bytes.len().is_multiple_of(128) {
        return Some(64);
    }
    let op_own = |half: &[u8]| OpOwn::from_bits(half.last().copied().unwrap_or(0));
    let inlined = op_own(second).format() == CqeDataFormat::INLINE_DATA64_SEG;
    if session::is_compressed(first, lies) && first.iter().any(|&b| b != 0) {
        return Some(64);
    }
    let alone = first.iter().any(|&b| b != 0) && op_own(first).opcode().name().is_some();
    Some(if inlined || !alone { 128 } else { 64 })
}

/// What every entry has.
pub fn common(record: &mut Record, descriptor: &[u8], op_own: OpOwn) {
    let cqe: Cqe64Layout = layout(descriptor, 0);
    let opcode = op_own.opcode();
    record.put("cqe_opcode", opcode.0);
    record.put("cqe_opcode_name", opcode.name().map_or(Value::Null, Value::from));
    record.put("owner_bit", u8::from(op_own.owner()));
    record.put("solicited_bit", u8::from(op_own.solicited()));
    record.put("format_bits", op_own.format().0);
    record.put("srqn_or_uidx", cqe.srqn_uidx() & INDEX_MASK);
    record.put("qpn", cqe.sop_drop_qpn() & INDEX_MASK);
    record.put("wqe_counter", cqe.wqe_counter());
    record.put("signature", cqe.signature());
    record.row_of::<Cqe64Layout>("srqn_uidx", number((cqe.srqn_uidx() & INDEX_MASK).into()));
    record.row("qpn", number((cqe.sop_drop_qpn() & INDEX_MASK).into()), queue_meaning(opcode));
    record.row_of::<Cqe64Layout>("wqe_counter", number(cqe.wqe_counter().into()));
    record.row_of::<Cqe64Layout>("signature", number(cqe.signature().into()));
    let meaning = opcode_meaning(opcode);
    record.row("op_own: opcode", named(opcode.0.into(), opcode.name()), meaning);
    record.row("op_own: format", named(op_own.format().0.into(), op_own.format().name()), "What the data area holds.");
    record.row("op_own: solicited", u8::from(op_own.solicited()).to_string(), "The sender asked for an event.");
    record.row(
        "op_own: owner",
        u8::from(op_own.owner()).to_string(),
        "Flips with each lap of the device around the ring.",
    );
}

fn opcode_meaning(opcode: CqeOpcode) -> &'static str {
    let known = CqeOpcode::VALUES.iter().find(|(_, n, _)| *n == u64::from(opcode.0));
    known.map_or("No opcode that is known.", |(_, _, doc)| doc.trim())
}

fn queue_meaning(opcode: CqeOpcode) -> &'static str {
    match opcode {
        CqeOpcode::RESP_ERR => {
            "Queue number; 0 for some receive queues: the queue is then known by the user index or the CQ."
        }
        _ => "Queue pair or send queue number (raw Ethernet: of the send queue); flow tag where flow tags are used.",
    }
}

/// A failed work request.
fn failed(descriptor: &[u8], op_own: OpOwn) -> Record {
    let cqe: ErrCqe = layout(descriptor, 0);
    let syndrome = CqeSyndrome(cqe.syndrome() as u8);
    let vendor = cqe.vendor_err_synd() as u8;
    let requester = op_own.opcode() == CqeOpcode::REQ_ERR;
    let opcode = WqeOpcode((cqe.s_wqe_opcode_qpn() >> 24) as u8);
    let qpn = cqe.s_wqe_opcode_qpn() & INDEX_MASK;
    let queue = (requester || qpn != 0).then_some(qpn);
    let what = failed_request(Some(requester), opcode.name(), queue);
    let mut record = Record::new(Kind::Cqe, format!("{what}: {}", syndrome_sentence(syndrome)));
    let status = syndrome.wc_status();
    record.put("syndrome", syndrome.0);
    record.put("syndrome_name", syndrome.name().map_or(Value::Null, Value::from));
    record.put("wc_status", status);
    record.put("wc_status_name", wc_status_name(status).map_or(Value::Null, Value::from));
    record.put("vendor_err", vendor);
    record.put("hw_err_synd", cqe.hw_err_synd());
    record.put("hw_synd_type", cqe.hw_synd_type() >> 4);
    record.put("wqe_opcode", if requester { opcode.0 } else { 0 });
    record.put("wqe_opcode_name", opcode.name().filter(|_| requester).map_or(Value::Null, Value::from));
    record.row("syndrome", named(syndrome.0.into(), syndrome.name()), syndrome.meaning());
    record.row("wc_status", named(status.into(), wc_status_name(status).as_deref()), "What verbs report for it.");
    record.row("vendor_err_synd", number(vendor.into()), cause::vendor(syndrome, vendor));
    record.row_of::<ErrCqe>("hw_err_synd", number(cqe.hw_err_synd().into()));
    record.row_of::<ErrCqe>("hw_synd_type", number((cqe.hw_synd_type() >> 4).into()));
    if requester {
        record.row("wqe_opcode", named(opcode.0.into(), opcode.name()), "What the failed work request was to do.");
    }
    cause::explain(&mut record, &Failed { syndrome, requester, opcode, vendor });
    record
}

/// Whose work request failed, as the beginning of a sentence; `opcode` counts for a requester.
pub fn failed_request(requester: Option<bool>, opcode: Option<&str>, queue: Option<u32>) -> String {
    let kind = match requester {
        Some(true) => "send work request",
        Some(false) => "receive work request",
        None => "work request",
    };
    let opcode = opcode.filter(|_| requester == Some(true)).map_or(String::new(), |name| format!(" ({name})"));
    let queue = queue.map_or(String::new(), |n| format!(" of queue {n:#x}"));
    format!("A {kind}{opcode}{queue} failed")
}

/// A syndrome and what it means.
pub fn syndrome_sentence(syndrome: CqeSyndrome) -> String {
    format!("{} ({:#x}). {}", syndrome.name().unwrap_or("no public name"), syndrome.0, syndrome.meaning())
}

/// A data-integrity check that failed.
fn signature(descriptor: &[u8]) -> Record {
    let cqe: SigErrCqe = layout(descriptor, 0);
    let mkey = cqe.mkey() >> 8;
    let parts = [(13, "guard"), (12, "application tag"), (11, "reference tag")];
    let differs: Vec<&str> =
        parts.iter().filter(|(bit, _)| cqe.syndrome() >> bit & 1 != 0).map(|(_, name)| *name).collect();
    let place = if cqe.domain() & 7 == 0 { "on the wire" } else { "in memory" };
    let what = match differs.as_slice() {
        [] => String::new(),
        some => format!(": wrong {} {place}, at offset {}", some.join(" and "), cqe.err_offset()),
    };
    let headline = format!("A data-integrity check failed on the memory key with index {mkey:#x}{what}.");
    let mut record = Record::new(Kind::Cqe, headline);
    record.rows_of(&cqe);
    record.put("syndrome", cqe.syndrome());
    record.put("differs", differs);
    record.put("mkey_index", mkey);
    record.put("err_offset", cqe.err_offset());
    record.put("expected_trans_sig", cqe.expected_trans_sig());
    record.put("actual_trans_sig", cqe.actual_trans_sig());
    record.put("expected_ref_tag", cqe.expected_ref_tag());
    record.put("actual_ref_tag", cqe.actual_ref_tag());
    record
        .causes
        .push("Guard, application tag or reference tag in the data differ from what the memory key describes.".into());
    record
}

/// An entry that is no error.
fn completed(descriptor: &[u8], op_own: OpOwn) -> Record {
    let cqe: Cqe64Layout = layout(descriptor, 0);
    let opcode = op_own.opcode();
    let request = WqeOpcode((cqe.sop_drop_qpn() >> 24) as u8);
    let headline = match opcode {
        CqeOpcode::REQ => format!(
            "A send work request ({}) of queue {:#x} completed.",
            request.name().map_or(format!("opcode {:#x}", request.0), String::from),
            cqe.sop_drop_qpn() & INDEX_MASK
        ),
        CqeOpcode::INVALID => {
            "Not an entry: this is how a ring is initialised, the device has not written it yet.".into()
        }
        _ if opcode.name().is_none() => format!("An entry with opcode {:#x}, which is not known.", opcode.0),
        _ => format!("{} {} bytes.", opcode_meaning(opcode), cqe.byte_cnt()),
    };
    let mut record = Record::new(Kind::Cqe, headline);
    let tagged = matches!(opcode, CqeOpcode::RESP_SEND | CqeOpcode::RESP_SEND_IMM | CqeOpcode::NO_PACKET);
    if let Some(sentence) = tagged.then(|| tag::explain(&mut record, descriptor)).flatten() {
        record.headline = format!("Tag matching. {sentence}");
    }
    if opcode == CqeOpcode::REQ {
        record.put("wqe_opcode", request.0);
        record.put("wqe_opcode_name", request.name().map_or(Value::Null, Value::from));
        record.row("wqe_opcode", named(request.0.into(), request.name()), "What the work request did.");
    }
    record.put("byte_cnt", cqe.byte_cnt());
    record.put("imm_inval_pkey", cqe.imm_inval_pkey());
    record.put("timestamp", cqe.timestamp());
    let has_data = op_own.format() == CqeDataFormat::INLINE_DATA32_SEG;
    if has_data {
        let data = descriptor.get(..32).unwrap_or(&[]);
        inlined(&mut record, data, descriptor, "The data, in the first 32 bytes.");
    }
    let own = ["srqn_uidx", "sop_drop_qpn", "wqe_counter", "signature", "op_own"];
    for field in Cqe64Layout::FIELDS.iter().filter(|f| f.nested.is_empty() && !own.contains(&f.name)) {
        let value = (field.get)(cqe.words(), 0);
        if value != 0 && !(has_data && field.bit_offset < 256) {
            record.row_of::<Cqe64Layout>(field.name, number(value));
        }
    }
    record
}

/// Data in the entry: as much of it as was transferred.
fn inlined(record: &mut Record, data: &[u8], descriptor: &[u8], place: &str) {
    let bytes = layout::<Cqe64Layout>(descriptor, 0).byte_cnt() as usize;
    let data = data.get(..bytes).unwrap_or(data);
    record.put("inline_data", hex(data));
    record.row("inline data", hex(data), place);
    if bytes > data.len() {
        record.notes.push(format!("The entry says {bytes} bytes but has room for {}: it is damaged.", data.len()));
    }
}

/// The exclusive or of the bytes of an entry and of its CQ index is 0xff in the dumps where the index is known.
fn index_fold(record: &mut Record, descriptor: &[u8]) {
    let mut entry = descriptor.to_vec();
    if let Some(marker) = entry.get_mut(1..5).filter(|m| *m == SEEN) {
        marker.fill(0);
        record.put("software_marker_bytes_1_to_4", "ASCII \"seen\", written by the driver, not by the device");
        record.put("ci_xor_fold_note", "after putting bytes 1-4 back to zero");
        record
            .notes
            .push("Bytes 1 to 4 say \"seen\" in ASCII: the driver (DPDK) marked the entry, the device did not.".into());
    }
    let fold = entry.iter().fold(0xff, |x, b| x ^ b);
    record.put("ci_xor_fold", fold);
    record.row(
        "ci_xor_fold",
        number(fold.into()),
        "The bytes of the CQ index XORed together, if the entry was copied without a mistake (seen, not documented).",
    );
}

/// Name of a verbs completion status.
pub fn wc_status_name(status: u32) -> Option<String> {
    WcStatus(status).name().map(|name| format!("IBV_WC_{name}"))
}
