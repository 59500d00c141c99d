//! One command as a line of text, written and read.

use std::fmt;

use crate::record::CommandRecord;

/// Details that both kinds of logs write in hexadecimal: numbers of objects, masks, addresses.
const HEX: [&str; 26] = [
    "cqn",
    "cqr",
    "cqs",
    "delivery",
    "eqn",
    "fg",
    "ft",
    "gid",
    "key",
    "len",
    "mask",
    "mkey",
    "pd",
    "qpn",
    "reg",
    "remote",
    "rmpn",
    "rqn",
    "rqtn",
    "sqn",
    "srqn",
    "start",
    "supported",
    "syndrome",
    "uar",
    "uidx",
];
/// Words of logs for what has another name here, since `st` is the status.
const SYNONYMS: [(&str, &str); 2] = [("->", "to"), ("st", "service")];
/// No line of a command is longer, in bytes.
const MOST_BYTES: usize = 1 << 16;
/// No number has more digits.
const MOST_DIGITS: usize = 16;

/// One command of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Microseconds on the clock of who wrote the trace, when it says.
    pub time: Option<u64>,
    /// Command slot.
    pub slot: u8,
    /// Name of the opcode.
    pub name: String,
    /// Opcode.
    pub opcode: u16,
    /// Operation modifier.
    pub op_mod: u16,
    /// User context; 0 for none.
    pub uid: u16,
    /// Input length in bytes.
    pub in_len: u32,
    /// Output length in bytes.
    pub out_len: u32,
    /// Command status; `None` when the command has not completed.
    pub status: Option<u8>,
    /// Inputs and answers that matter.
    pub details: Vec<Detail>,
}

/// An input or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    /// Its name, in lower case.
    pub key: String,
    /// Its value; `None` for a word that says all by itself, like `cur`.
    pub value: Option<Value>,
}

/// The value of a detail.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A number.
    Number(u64),
    /// Text without spaces.
    Text(String),
}

impl Detail {
    pub(crate) fn number(key: &str, value: impl Into<u64>) -> Self {
        Self { key: key.into(), value: Some(Value::Number(value.into())) }
    }

    pub(crate) fn text(key: &str, value: impl Into<String>) -> Self {
        Self { key: key.into(), value: Some(Value::Text(value.into())) }
    }

    pub(crate) fn word(key: &str) -> Self {
        Self { key: key.into(), value: None }
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value } = self;
        match value {
            None => f.write_str(key),
            Some(Value::Number(n)) if is_hex(key) => write!(f, "{key}={n:#x}"),
            Some(Value::Number(n)) => write!(f, "{key}={n}"),
            Some(Value::Text(text)) => write!(f, "{key}={text}"),
        }
    }
}

fn is_hex(key: &str) -> bool {
    HEX.contains(&key)
}

impl Line {
    /// The value of a detail.
    pub fn detail(&self, key: &str) -> Option<&Value> {
        self.details.iter().find(|detail| detail.key == key).and_then(|detail| detail.value.as_ref())
    }

    /// Reads a line; `None` when it tells of no command.
    pub fn parse(text: &str) -> Option<Self> {
        // What takes a while for each pair of words must not do so for a line of millions.
        if text.len() > MOST_BYTES {
            return None;
        }
        let mut words = text.split_whitespace();
        let first = words.next()?;
        let time = microseconds(first);
        let marker = if time.is_some() { words.next()? } else { first };
        if marker != "CMD" {
            return None;
        }
        let mut words = words.peekable();
        let slot = field(words.next()?, "slot")?;
        let (name, opcode) = words.next()?.strip_suffix(')')?.split_once("(0x")?;
        let op_mod = field(words.next()?, "opmod")?;
        let uid = words.next_if(|word| word.starts_with("uid=")).map_or(Some(0), |word| field(word, "uid"))?;
        let mut line = Self {
            time,
            slot: u8::try_from(slot).ok()?,
            name: name.into(),
            opcode: u16::from_str_radix(opcode, 16).ok()?,
            op_mod: u16::try_from(op_mod).ok()?,
            uid: u16::try_from(uid).ok()?,
            in_len: u32::try_from(field(words.next()?, "inlen")?).ok()?,
            out_len: u32::try_from(field(words.next()?, "outlen")?).ok()?,
            status: None,
            details: Vec::new(),
        };
        let status = words.next()?;
        if status != "st=?" {
            line.status = Some(u8::try_from(field(status, "st")?).ok()?);
        }
        line.details = details(&words.collect::<Vec<_>>());
        Some(line)
    }
}

/// Reads all commands of a trace, with the numbers of their lines, from 1.
pub fn read(text: &str) -> Vec<(usize, Line)> {
    let numbered = (1..).zip(text.lines());
    numbered.filter_map(|(number, line)| Line::parse(line).map(|command| (number, command))).collect()
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slot, name, opcode, op_mod, uid, in_len, out_len, .. } = self;
        if let Some(time) = self.time {
            write!(f, "{}.{:06} ", time / 1_000_000, time % 1_000_000)?;
        }
        write!(f, "CMD slot={slot} {name}({opcode:#x}) opmod={op_mod} uid={uid} inlen={in_len} outlen={out_len}")?;
        match self.status {
            Some(status) => write!(f, " st={status}")?,
            None => f.write_str(" st=?")?,
        }
        self.details.iter().try_for_each(|detail| write!(f, " {detail}"))
    }
}

impl From<&CommandRecord> for Line {
    /// The time is when the command completed, or was taken when it has not.
    fn from(record: &CommandRecord) -> Self {
        let mut details = record.details.clone();
        if record.delivery != 0 {
            details.push(Detail::number("delivery", record.delivery));
        }
        if record.syndrome != 0 {
            details.push(Detail::number("syndrome", record.syndrome));
        }
        Self {
            time: Some(record.done.unwrap_or(record.taken) / 1000),
            slot: record.slot,
            name: record.name.into(),
            opcode: record.opcode,
            op_mod: record.op_mod,
            uid: record.uid,
            in_len: record.in_len,
            out_len: record.out_len,
            status: record.done.map(|_| record.status),
            details,
        }
    }
}

/// Seconds with a fraction.
fn microseconds(word: &str) -> Option<u64> {
    let (seconds, fraction) = word.split_once('.')?;
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) {
        return None;
    }
    let micro: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micro)
}

/// The number of `name=number`.
fn field(word: &str, name: &str) -> Option<u64> {
    word.strip_prefix(name)?.strip_prefix('=')?.parse().ok()
}

/// Reads details in both styles.
fn details(words: &[&str]) -> Vec<Detail> {
    let mut found = Vec::new();
    let mut rest = words;
    while let Some((word, after)) = rest.split_first() {
        rest = after;
        if let Some((key, text)) = word.split_once('=') {
            let key = name(key);
            let value = Some(value(text, false));
            found.push(Detail { key, value });
            continue;
        }
        let key = name(word);
        let taken = bracketed(rest);
        let value = match rest.first() {
            Some(next) if taken > 0 && next.starts_with(['(', '[']) => Some(Value::Text(rest[..taken].concat())),
            Some(next) if is_value(next, is_hex(&key)) => Some(value(next, is_hex(&key))),
            _ => None,
        };
        if value.is_some() {
            rest = &rest[taken.max(1)..];
        }
        found.push(Detail { key, value });
    }
    found
}

fn name(word: &str) -> String {
    let other = SYNONYMS.iter().find(|(from, _)| *from == word);
    other.map_or_else(|| word.to_lowercase(), |(_, to)| (*to).into())
}

/// How many words it takes until the bracket that the first one opens is closed; 0 when it opens none.
fn bracketed(words: &[&str]) -> usize {
    let opens = words.first().is_some_and(|word| word.starts_with(['(', '[']));
    let end = words.iter().position(|word| word.ends_with([')', ']']));
    if opens { end.map_or(words.len(), |at| at + 1) } else { 0 }
}

/// Whether a word is the value of the one before it, not a detail of its own.
fn is_value(word: &str, hex: bool) -> bool {
    let digits = |digit: fn(&u8) -> bool| word.as_bytes().first().is_some_and(digit);
    digits(u8::is_ascii_digit) || hex && word.bytes().all(|byte| byte.is_ascii_hexdigit()) || word == "None"
}

fn value(text: &str, hex: bool) -> Value {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, if hex { 16 } else { 10 }),
    };
    let number = Some(digits).filter(|digits| digits.len() <= MOST_DIGITS && !digits.starts_with('+'));
    let number = number.and_then(|digits| u64::from_str_radix(digits, radix).ok());
    number.map_or_else(|| Value::Text(text.into()), Value::Number)
}
