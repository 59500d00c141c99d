//! Finds out what bytes are, from what each structure must and cannot have.

use mlx5_hw::cmd_entry::{CmdIfBox, CmdQueueEntry, ENTRY_TYPE};
use mlx5_hw::cqe::{CqeDataFormat, CqeOpcode, CqeSyndrome, ErrCqe, OpOwn};
use mlx5_hw::eqe::{Eqe, EventType};
use mlx5_hw::health::HealthBuffer;

use super::record::layout;
use super::{DecodeError, Kind};

/// What 64 bytes of ones say whatever they were read as.
const GONE: &str = "all bits are one, as when a device that has left the bus is read";

/// Why nothing was found.
pub enum NoKind {
    /// There are too few bytes, or too many for whole structures.
    Length,
    /// No structure fits; one reason each.
    Unlike(Vec<String>),
}

impl NoKind {
    /// The error, for bytes at position `at` of `total` that begin at a line.
    pub fn at(self, line: usize, at: usize, total: usize) -> DecodeError {
        match self {
            Self::Length => DecodeError::Length { line, found: total, kind: None },
            Self::Unlike(reasons) => DecodeError::Unknown { line, at, reasons },
        }
    }
}

/// The kind of the structure at the head of `bytes`. A hint of the text around them counts if it is possible.
pub fn kind(bytes: &[u8], hint: Option<Kind>) -> Result<Kind, NoKind> {
    let Some(entry) = bytes.get(..64) else { return Err(NoKind::Length) };
    if !bytes.len().is_multiple_of(64) {
        return Err(NoKind::Length);
    }
    if hint.is_none() && entry.iter().all(|&b| b == 0xff) {
        return Err(NoKind::Unlike(vec![GONE.into()]));
    }
    let mailbox = bytes.get(..CmdIfBox::BYTES).map(mailbox);
    let tests: [(Kind, Result<(), String>); 6] = [
        (Kind::Command, command(entry)),
        (Kind::Cqe, error_cqe(entry)),
        (Kind::Health, health(entry)),
        (Kind::Eqe, eqe(entry)),
        (Kind::Mailbox, mailbox.unwrap_or_else(|| Err(format!("{} bytes are fewer than 576", bytes.len())))),
        (Kind::Cqe, cqe(entry, bytes)),
    ];
    let found = tests.iter().filter(|(_, r)| r.is_ok()).map(|(kind, _)| *kind);
    let hinted = hint.filter(|h| *h == Kind::Cqe || found.clone().any(|kind| kind == *h));
    hinted.or_else(|| found.clone().next()).ok_or_else(|| {
        let last = tests.iter().skip(2).chain(tests.first());
        NoKind::Unlike(last.filter_map(|(k, r)| r.as_ref().err().map(|e| format!("not {}: {e}", k.noun()))).collect())
    })
}

/// Ok, or the first reason against.
fn all(reasons: &[(bool, &dyn Fn() -> String)]) -> Result<(), String> {
    reasons.iter().find(|(good, _)| !good).map_or(Ok(()), |(_, why)| Err(why()))
}

fn zero(bytes: &[u8], from: usize, to: usize) -> bool {
    bytes.get(from..to).is_some_and(|b| b.iter().all(|&b| b == 0))
}

fn command(entry: &[u8]) -> Result<(), String> {
    let e: CmdQueueEntry = layout(entry, 0);
    all(&[
        (e.r#type() == ENTRY_TYPE, &|| format!("its type byte is {:#x} and not {ENTRY_TYPE}", e.r#type())),
        (zero(entry, 1, 4) && zero(entry, 62, 63), &|| "reserved bytes 1 to 3 or 62 are not zero".into()),
        (e.input_length() >= 8 && e.output_length() >= 8, &|| "its lengths are below 8 bytes".into()),
    ])
}

/// An error entry is told by its opcode and a syndrome that has a name.
fn error_cqe(entry: &[u8]) -> Result<(), String> {
    let e: ErrCqe = layout(entry, 0);
    let opcode = OpOwn::from_bits(e.op_own() as u8).opcode();
    let named = CqeSyndrome(e.syndrome() as u8).name().is_some();
    if matches!(opcode, CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR) && named { Ok(()) } else { Err(String::new()) }
}

fn health(entry: &[u8]) -> Result<(), String> {
    let h: HealthBuffer = layout(entry, 0);
    let major = h.fw_version() >> 24;
    all(&[
        (zero(entry, 24, 32) && zero(entry, 40, 44) && zero(entry, 57, 60), &|| "reserved bytes are not zero".into()),
        ((10..100).contains(&major), &|| format!("its firmware version would begin with {major}")),
        (h.hw_id() != 0 && h.hw_id() < 0x1_0000, &|| format!("its hardware id would be {:#x}", h.hw_id())),
    ])
}

fn eqe(entry: &[u8]) -> Result<(), String> {
    let e: Eqe = layout(entry, 0);
    let kind = EventType(e.event_type() as u8);
    all(&[
        (zero(entry, 0, 1) && zero(entry, 2, 3) && zero(entry, 4, 32), &|| {
            "reserved bytes before its data are not zero".into()
        }),
        (entry.last().is_some_and(|&b| b <= 1), &|| "its last byte holds more than the owner bit".into()),
        (kind.name().is_some(), &|| format!("event type {:#x} has no name", kind.0)),
        (!zero(entry, 0, 62), &|| "it is all zero".into()),
    ])
}

fn mailbox(block: &[u8]) -> Result<(), String> {
    let b: CmdIfBox = layout(block, 0);
    all(&[
        (zero(block, 512, 560) && zero(block, 572, 573), &|| "reserved bytes 512 to 559 or 572 are not zero".into()),
        (b.block_number() < 0x1_0000, &|| format!("its block number would be {:#x}", b.block_number())),
        (block.get(564..568).is_some_and(|n| n.last() == Some(&0)), &|| "its next pointer is not aligned".into()),
    ])
}

fn cqe(entry: &[u8], bytes: &[u8]) -> Result<(), String> {
    let known = |half: &[u8]| half.last().is_some_and(|&b| opcode_fits(OpOwn::from_bits(b)));
    let wide = bytes.len().is_multiple_of(128) && bytes.get(64..128).is_some_and(known);
    all(&[
        (wide || known(entry), &|| "its last byte holds no completion opcode that is known".into()),
        (!bytes.iter().all(|&b| b == 0), &|| "it is all zero".into()),
    ])
}

/// An opcode that has a name. A slot that no entry was written to has nothing but the opcode and perhaps the owner bit.
fn opcode_fits(op_own: OpOwn) -> bool {
    let nothing_else = !op_own.solicited() && op_own.format() == CqeDataFormat::NO_INLINE_DATA;
    op_own.opcode().name().is_some() && (op_own.opcode() != CqeOpcode::INVALID || nothing_else)
}
