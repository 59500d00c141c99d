//! `mlx5 decode`: bytes of the device in plain words.
//!
//! [`decode_text`] takes what people have: hex in any of the usual forms. [`decode_bytes`] takes the bytes. Both give one
//! [`Record`] a structure found. No input panics.

mod cause;
mod command;
mod cqe;
mod eqe;
mod error;
mod guess;
mod health;
pub mod hex;
mod mailbox;
mod messages;
mod record;

pub use error::DecodeError;
pub use record::{FieldRow, Record};
pub(crate) use record::{meaning, number, table};

/// What bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Kind {
    /// A completion queue entry of 64 or 128 bytes.
    Cqe,
    /// A command queue entry of 64 bytes, perhaps with its mailbox blocks behind it.
    Command,
    /// A mailbox block of 576 bytes.
    Mailbox,
    /// An event queue entry of 64 bytes.
    Eqe,
    /// The health buffer of 64 bytes.
    Health,
    /// Log text; not read yet in this version.
    Text,
}

impl Kind {
    /// The word of `--as`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cqe => "cqe",
            Self::Command => "command",
            Self::Mailbox => "mailbox",
            Self::Eqe => "eqe",
            Self::Health => "health",
            Self::Text => "text",
        }
    }

    /// What it is, for sentences.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Cqe => "a CQE",
            Self::Command => "a command",
            Self::Mailbox => "a mailbox block",
            Self::Eqe => "an EQE",
            Self::Health => "a health buffer",
            Self::Text => "log text",
        }
    }

    /// Which lengths it can have, in words.
    pub const fn lengths(self) -> &'static str {
        match self {
            Self::Cqe => "a completion queue entry has 64 or 128 bytes",
            Self::Command => "a command descriptor has 64 bytes, and each mailbox block behind it 576",
            Self::Mailbox => "a mailbox block has 576 bytes",
            Self::Eqe => "an event queue entry has 64 bytes",
            Self::Health => "a health buffer has 64 bytes",
            Self::Text => "log text has no fixed length",
        }
    }
}

/// Decodes all dumps in a text.
///
/// # Errors
/// Says what could not be read and where.
pub fn decode_text(text: &str, kind: Option<Kind>) -> Result<Vec<Record>, DecodeError> {
    if kind == Some(Kind::Text) {
        return Err(DecodeError::LogText);
    }
    let input = hex::read(text)?;
    let mut records = Vec::new();
    for chunk in &input.chunks {
        let mut found = decode_chunk(&chunk.bytes, kind, chunk.hint, chunk.line)?;
        if let Some(first) = found.first_mut() {
            first.notes.extend(chunk.notes.iter().cloned());
        }
        records.append(&mut found);
    }
    if let (Some(last), 1..) = (records.last_mut(), input.text_lines) {
        last.notes.push(format!("{} line(s) of log text were passed over: only the bytes are read", input.text_lines));
    }
    Ok(records)
}

/// Decodes bytes: one structure, or several one behind the other.
///
/// # Errors
/// When the number of bytes fits nothing, or the bytes look like nothing known and `kind` does not say what they are.
pub fn decode_bytes(bytes: &[u8], kind: Option<Kind>) -> Result<Vec<Record>, DecodeError> {
    decode_chunk(bytes, kind, None, 0)
}

/// Feeds bytes to every decoder, as bytes and as text: the entry of a fuzz target. The result is of no interest; not to
/// panic is.
pub fn fuzz(data: &[u8]) {
    for kind in [None, Some(Kind::Cqe), Some(Kind::Command), Some(Kind::Mailbox), Some(Kind::Eqe), Some(Kind::Health)] {
        for records in [decode_bytes(data, kind), decode_text(&String::from_utf8_lossy(data), kind)] {
            for record in records.unwrap_or_default().iter().take(2) {
                let _ = record.to_text();
            }
        }
    }
}

fn decode_chunk(bytes: &[u8], kind: Option<Kind>, hint: Option<Kind>, line: usize) -> Result<Vec<Record>, DecodeError> {
    if bytes.is_empty() {
        return Err(DecodeError::Empty { text_lines: 0 });
    }
    let mut records = Vec::new();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|r| !r.is_empty()) {
        let kind = match kind {
            // Blocks that belong to no command before them.
            Some(Kind::Command) if rest.len() >= command::BLOCK && rest.first() != Some(&command::TYPE) => {
                Kind::Mailbox
            }
            Some(kind) => kind,
            None => guess::kind(rest, hint).map_err(|e| e.at(line, at, bytes.len()))?,
        };
        let (record, used) = match kind {
            Kind::Cqe => cqe::decode(rest),
            Kind::Command => command::decode(rest),
            Kind::Mailbox => mailbox::decode(rest),
            Kind::Eqe => eqe::decode(rest),
            Kind::Health => health::decode(rest),
            Kind::Text => return Err(DecodeError::LogText),
        }
        .ok_or(DecodeError::Length { line, found: bytes.len(), kind: Some(kind) })?;
        records.push(record);
        at += used.max(1);
    }
    Ok(records)
}
