//! `mlx5 decode`: bytes of the device, and messages about it, in plain words.
//!
//! [`decode_text`] takes what people have: hex in any of the usual forms, lines of logs, both mixed with other text. [`decode_bytes`] takes the bytes. Both give one
//! [`Record`] a structure found. No input panics.

use std::borrow::Cow;

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
mod session;
mod tag;
mod text;

pub(crate) use command::errno_name;
pub use error::DecodeError;
pub use record::{FieldRow, Record};
pub(crate) use record::{meaning, number, table};

pub use crate::options::{Compress, Layout};

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
    /// Log text: lines of kernels, libraries and programs.
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

/// What is known of bytes beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// What they are; guessed if `None`.
    pub kind: Option<Kind>,
    /// Bytes of a completion queue entry, 64 or 128; guessed if `None`.
    pub cqe_size: Option<usize>,
    /// Format of compressed completions: what each has beside its length.
    pub compress: Option<Compress>,
    /// Where compressed completions lie.
    pub layout: Layout,
}

impl From<Option<Kind>> for Hints {
    fn from(kind: Option<Kind>) -> Self {
        Self { kind, ..Self::default() }
    }
}

/// Decodes a text: all dumps in it, and unless the hints say what the bytes are, all known lines of logs.
///
/// # Errors
/// Says what could not be read and where.
pub fn decode_text(text: &str, hints: impl Into<Hints>) -> Result<Vec<Record>, DecodeError> {
    let hints = hints.into();
    if hints.kind.is_some_and(|kind| kind != Kind::Text) {
        return decode_dumps(text, &hints);
    }
    // In the dumps among log text each is a kind of its own.
    let guess = Hints { kind: None, ..hints };
    let text = without_colours(text);
    let lines: Vec<&str> = text.lines().collect();
    let spots = text::scan(&lines);
    // Without any known line this is a dump, where everything has to be right; or a log that has nothing but a dump.
    let strict = (spots.is_empty() && hints.kind.is_none()).then(|| decode_dumps(&text, &guess));
    if let Some(Ok(records)) = strict {
        return Ok(records);
    }
    let found = decode_log(&lines, spots, &guess);
    if !found.is_empty() {
        return Ok(found);
    }
    match strict {
        // A wrong digit is worth a word in a dump only: in other text it would be the first letter.
        Some(Err(error)) if !error.is_of_a_word() || hex::looks_like_dump(&text) => Err(error),
        _ => Err(DecodeError::Empty { text_lines: lines.iter().filter(|line| !line.trim().is_empty()).count() }),
    }
}

/// A text without the escape sequences that colour it.
fn without_colours(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return Cow::Borrowed(text);
    }
    let mut pieces = text.split('\u{1b}');
    let mut out = String::from(pieces.next().unwrap_or(""));
    for piece in pieces {
        let letter = piece.find(|c: char| c.is_ascii_alphabetic()).filter(|_| piece.starts_with('['));
        out.push_str(letter.and_then(|at| piece.get(at + 1..)).unwrap_or(piece));
    }
    Cow::Owned(out)
}

/// Decodes a text that is all dumps, with perhaps log text between them.
fn decode_dumps(text: &str, hints: &Hints) -> Result<Vec<Record>, DecodeError> {
    let input = hex::read(text)?;
    let many = text.trim().lines().count() > 1;
    let mut records = Vec::new();
    for chunk in &input.chunks {
        records.append(&mut decode_dump(chunk, hints, many)?);
    }
    passed_over(&mut records, input.text_lines);
    Ok(records)
}

/// Decodes the known lines and the dumps of a log; the rest is counted.
fn decode_log(lines: &[&str], spots: Vec<text::Spot>, hints: &Hints) -> Vec<Record> {
    let mut known = vec![false; lines.len()];
    for spot in &spots {
        known.iter_mut().skip(spot.begin()).take(spot.span).for_each(|k| *k = true);
    }
    let mut input = hex::read_log(lines, |i| known.get(i).copied().unwrap_or(false));
    let mut dumps = Vec::new();
    let mut rows = 0;
    for chunk in &input.chunks {
        match decode_dump(chunk, hints, true) {
            Ok(mut records) => {
                dumps.append(&mut records);
                rows += chunk.rows.len();
            }
            Err(error) if chunk.bytes.len() >= NOTEWORTHY || chunk.hint.is_some() => input.misfits.push(error),
            Err(_) => {}
        }
    }
    let (mut records, used) = text::records(spots, &mut dumps);
    records.append(&mut dumps);
    records.sort_by_key(|record| record.lines.first().copied());
    for record in &mut records {
        number_lines(record);
    }
    let all = lines.iter().filter(|line| !line.trim().is_empty()).count();
    passed_over(&mut records, all.saturating_sub(used + rows));
    if let Some(last) = records.last_mut() {
        last.notes.extend(input.misfits.iter().map(|misfit| format!("Bytes that could not be read: {misfit}")));
    }
    records
}

/// From so many bytes on, a dump in a log that cannot be read is worth a note.
const NOTEWORTHY: usize = 32;

/// Decodes one dump; `many`: the input has more lines than this.
fn decode_dump(chunk: &hex::Chunk, hints: &Hints, many: bool) -> Result<Vec<Record>, DecodeError> {
    let mut found = decode_chunk(&chunk.bytes, hints, chunk.hint, chunk.line)?;
    let mut at = 0;
    for (record, used) in &mut found {
        if many {
            record.lines = vec![chunk.line_of(at)];
            number_lines(record);
        }
        at += *used;
    }
    if let Some((first, _)) = found.first_mut() {
        first.notes.extend(chunk.notes.iter().cloned());
    }
    Ok(found.into_iter().map(|(record, _)| record).collect())
}

/// Puts the lines into the object.
fn number_lines(record: &mut Record) {
    if let Some(&first) = record.lines.first() {
        record.put("line", first);
    }
    if record.lines.len() > 1 {
        record.put("lines", record.lines.clone());
    }
}

/// Says how many lines of other text there were.
fn passed_over(records: &mut [Record], lines: usize) {
    if let (Some(last), 1..) = (records.last_mut(), lines) {
        last.put("lines_passed_over", lines);
        last.notes.push(format!("{lines} line(s) of other text were passed over."));
    }
}

/// Decodes bytes: one structure, or several one behind the other.
///
/// # Errors
/// When the number of bytes fits nothing, or the bytes look like nothing known and the hints do not say what they are.
pub fn decode_bytes(bytes: &[u8], hints: impl Into<Hints>) -> Result<Vec<Record>, DecodeError> {
    let found = decode_chunk(bytes, &hints.into(), None, 0)?;
    Ok(found.into_iter().map(|(record, _)| record).collect())
}

/// The structures in bytes that lie one behind the other, each with the number of its bytes.
fn decode_chunk(
    bytes: &[u8],
    hints: &Hints,
    hint: Option<Kind>,
    line: usize,
) -> Result<Vec<(Record, usize)>, DecodeError> {
    if bytes.is_empty() {
        return Err(DecodeError::Empty { text_lines: 0 });
    }
    let mut records = Vec::new();
    let mut at = 0;
    let mut title = session::Title::default();
    while let Some(rest) = bytes.get(at..).filter(|r| !r.is_empty()) {
        let kind = match hints.kind {
            // Blocks that belong to no command before them.
            Some(Kind::Command) if rest.len() >= command::BLOCK && rest.first() != Some(&command::TYPE) => {
                Kind::Mailbox
            }
            Some(kind) => kind,
            None => guess::kind(rest, hint).map_err(|e| e.at(line, at, bytes.len()))?,
        };
        let (record, used) = match kind {
            Kind::Cqe => cqe::decode(rest, hints, &mut title),
            Kind::Command => command::decode(rest),
            Kind::Mailbox => mailbox::decode(rest),
            Kind::Eqe => eqe::decode(rest),
            Kind::Health => health::decode(rest),
            Kind::Text => return Err(DecodeError::NotText),
        }
        .ok_or(DecodeError::Length { line, found: bytes.len(), kind: Some(kind) })?;
        let used = used.max(1);
        records.push((record, used));
        at += used;
    }
    Ok(records)
}
