//! A line of a log as a pattern, and what a line that fits it says.
//!
//! A pattern is the text of the line with its numbers left open: `{name:base}`. The base is part of the pattern, since the same
//! number is printed in decimal by one program and in hex by another:
//!
//! | base | number or text |
//! |---|---|
//! | `x` | hex with `0x` in front |
//! | `X` | hex without anything in front |
//! | `d` | decimal, perhaps negative |
//! | `n` | hex if `0x` is in front, else decimal |
//! | `w` | a word without blanks |
//! | `t` | any text, as short as possible |
//! | `s` | the text of a completion status |
//!
//! `[[` and `]]` enclose what may be missing, a blank stands for any number of blanks (in front: or the line's beginning), a
//! `~` for none or any number of them, a `$` at the end for the line's end.

use std::sync::OnceLock;

use regex::{Regex, RegexSet};
use serde_json::{Map, Value};

use super::notice::Notice;
use super::{sources, status};

/// What a line is about.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// A completion with an error.
    Completion(Side),
    /// Belongs to the completion on one of the next lines.
    Lead,
    /// Belongs to the completion on one of the lines before.
    Tail,
    /// A dump of a CQE follows.
    DumpHead,
    /// A command that was refused.
    Command,
    /// A command that did not complete in time.
    Timeout,
    /// A command that was found complete after its time.
    Recovered,
    /// The completion of a command that was given up before.
    Late,
    /// A field of the health buffer. `true`: the line needs a neighbour or a driver's name to be one.
    Health(bool),
    /// A queue pair's own error event: the driver takes the syndrome for a completion status.
    QpError,
    /// A CQ's error event.
    CqError,
    /// Anything else that has one meaning.
    Notice(&'static Notice),
    /// The same in words that other programs print as well: it counts on a line that names the driver.
    Ours(&'static Notice),
}

impl What {
    /// Whether it is a completion with an error.
    pub const fn is_completion(self) -> bool {
        matches!(self, Self::Completion(_))
    }
}

/// Whose work request failed, as far as the form of the line tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The line does not tell.
    Unknown,
    /// A send queue's.
    Requester,
    /// A receive queue's.
    Responder,
}

/// One form of line.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Who prints it.
    pub source: &'static str,
    /// What it is about.
    pub what: What,
    /// The pattern.
    pub line: &'static str,
}

/// A line that fits a form.
#[derive(Clone, Debug)]
pub struct Hit {
    /// Its form.
    pub format: &'static Format,
    /// Numbers and texts, by the names in the pattern.
    pub fields: Map<String, Value>,
    /// Where the form begins in the line, in bytes.
    pub start: usize,
}

/// Every form, compiled.
struct Compiled {
    formats: Vec<&'static Format>,
    set: RegexSet,
    each: Vec<(Regex, Vec<(&'static str, char)>)>,
}

/// All forms, those that say most first.
fn compiled() -> Option<&'static Compiled> {
    static COMPILED: OnceLock<Option<Compiled>> = OnceLock::new();
    COMPILED.get_or_init(compile).as_ref()
}

/// `None` if a pattern is none; a test compiles them all.
fn compile() -> Option<Compiled> {
    let formats: Vec<&Format> = sources::ALL.iter().copied().flatten().collect();
    let parsed: Vec<_> = formats.iter().map(|f| pattern(f.line)).collect();
    let set = RegexSet::new(parsed.iter().map(|(regex, _)| regex)).ok()?;
    let each = parsed.into_iter().map(|(regex, names)| Some((Regex::new(&regex).ok()?, names)));
    Some(Compiled { set, each: each.collect::<Option<_>>()?, formats })
}

/// The first form that a line fits.
pub fn find(line: &str) -> Option<Hit> {
    let compiled = compiled()?;
    let fits = compiled.set.matches(line);
    fits.iter().find_map(|i| {
        let (regex, names) = compiled.each.get(i)?;
        let captures = regex.captures(line)?;
        let mut fields = Map::new();
        for (group, (name, base)) in names.iter().enumerate() {
            if let Some(text) = captures.get(group + 1) {
                fields.insert((*name).into(), value(text.as_str(), *base)?);
            }
        }
        let format = *compiled.formats.get(i)?;
        belongs(format, &fields, line).then_some(Hit { format, fields, start: captures.get(0)?.start() })
    })
}

/// Largest numbers of fields that a device has: a line with a larger one is something else, or damaged.
const LARGEST: &[(&str, u64)] = &[
    ("status", 0xff),
    ("opcode", 0xffff),
    ("op_mod", 0xffff),
    ("fw_syndrome", 0xffff_ffff),
    ("cq_err_syndrome", 0xff),
    ("cqn", 0xff_ffff),
];

/// Whether a line is about a device, and not only like one that is.
fn belongs(format: &Format, fields: &Map<String, Value>, line: &str) -> bool {
    let number = |name: &str| fields.get(name).and_then(Value::as_u64);
    if LARGEST.iter().any(|(name, most)| number(name).is_some_and(|n| n > *most)) {
        return false;
    }
    match format.what {
        What::Ours(_) => line.contains("mlx5"),
        What::Completion(_) if format.line.starts_with("{status_text:s}") => {
            let text = fields.get("status_text").and_then(Value::as_str).unwrap_or("");
            !status::is_everyday(text) || status::speaks_of_verbs(line)
        }
        _ => true,
    }
}

/// A captured text as the pattern says; `None` for a number that does not fit 64 bits.
fn value(text: &str, base: char) -> Option<Value> {
    let hex = |digits| u64::from_str_radix(digits, 16).ok().map(Value::from);
    match base {
        'x' => hex(text.get(2..)?),
        'X' => hex(text),
        'n' if text.starts_with("0x") => hex(text.get(2..)?),
        'd' | 'n' if text.starts_with('-') => text.parse::<i64>().ok().map(Value::from),
        'd' | 'n' => text.parse::<u64>().ok().map(Value::from),
        _ => Some(text.trim().into()),
    }
}

/// The regular expression of a pattern, and the names and bases of its groups.
fn pattern(line: &'static str) -> (String, Vec<(&'static str, char)>) {
    let mut names = Vec::new();
    let (open, end) = line.strip_suffix('$').map_or((line, ""), |line| (line, "[ \\t]*$"));
    let (mut rest, mut regex) = match open.strip_prefix(' ') {
        Some(rest) => (rest, String::from("(?:^|[ \\t])")),
        None => (open, String::new()),
    };
    while let Some(c) = rest.chars().next() {
        if let Some((field, after)) = rest.strip_prefix('{').and_then(|r| r.split_once('}')) {
            let (name, base) = field.split_once(':').unwrap_or((field, "t"));
            let base = base.chars().next().unwrap_or('t');
            names.push((name, base));
            regex.push_str(&class(base));
            rest = after;
            continue;
        }
        let (piece, used) = match c {
            _ if rest.starts_with("[[") => ("(?:".to_string(), 2),
            _ if rest.starts_with("]]") => (")?".to_string(), 2),
            ' ' => ("[ \\t]+".to_string(), 1),
            '~' => ("[ \\t]*".to_string(), 1),
            c => (regex::escape(c.encode_utf8(&mut [0; 4])), c.len_utf8()),
        };
        regex.push_str(&piece);
        rest = rest.get(used..).unwrap_or("");
    }
    // A number at the end is whole: `0x1f` is not read out of `0x1fg`.
    if names.last().is_some_and(|(_, base)| *base != 't') && line.ends_with('}') {
        regex.push_str("(?-u:\\b)");
    }
    regex.push_str(end);
    (regex, names)
}

fn class(base: char) -> String {
    let class = match base {
        'x' => "(0x[0-9a-fA-F]{1,16})",
        'X' => "([0-9a-fA-F]{1,16})",
        'd' => "(-?[0-9]{1,20})",
        'n' => "(0x[0-9a-fA-F]{1,16}|-?[0-9]{1,20})",
        'w' => "([0-9A-Za-z_.:/<>+-]+)",
        's' => return format!("({})", status::texts().map(regex::escape).collect::<Vec<_>>().join("|")),
        _ => "([^\\n]*?)",
    };
    class.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles_and_names_its_fields_once() {
        assert!(compiled().is_some());
        for format in sources::ALL.iter().copied().flatten() {
            let (_, names) = pattern(format.line);
            for (i, (name, base)) in names.iter().enumerate() {
                assert!("xXdnwts".contains(*base), "{}: {base}", format.line);
                assert!(!names.iter().skip(i + 1).any(|(other, _)| other == name), "{}: {name} twice", format.line);
            }
        }
    }

    #[test]
    fn a_number_has_the_base_that_its_pattern_says() {
        for (text, base, number) in
            [("0x10", 'x', 16), ("10", 'X', 16), ("10", 'd', 10), ("10", 'n', 10), ("0x10", 'n', 16)]
        {
            assert_eq!(value(text, base), Some(Value::from(number)), "{text} {base}");
        }
        assert_eq!(value("-110", 'd'), Some(Value::from(-110)));
        assert_eq!(value("99999999999999999999", 'd'), None);
    }
}
