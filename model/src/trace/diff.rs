//! Two traces compared by what their commands mean.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::align::align;
use super::meaning::{comparable, is_answer, is_subject, labels, makes, subject};
use super::numbers::Numbers;
use super::{Detail, Line, Value};
use crate::command::opcode_named;

/// How two traces differ in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The first trace has a command that the second has not.
    OnlyA,
    /// The second trace has a command that the first has not.
    OnlyB,
    /// Both have the command, but not in the same place.
    Order,
    /// Input or output is longer in one of them.
    Lengths,
    /// The command asks for something else.
    Inputs,
    /// The device answered something else.
    Answers,
    /// The command ended otherwise.
    Status,
    /// The command works on another object, or on one that was never made.
    Objects,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::OnlyA,
        Self::OnlyB,
        Self::Order,
        Self::Lengths,
        Self::Inputs,
        Self::Answers,
        Self::Status,
        Self::Objects,
    ];

    /// The name in one word: `only-a`, `lengths`…
    pub fn name(self) -> &'static str {
        match self {
            Self::OnlyA => "only-a",
            Self::OnlyB => "only-b",
            Self::Order => "order",
            Self::Lengths => "lengths",
            Self::Inputs => "inputs",
            Self::Answers => "answers",
            Self::Status => "status",
            Self::Objects => "objects",
        }
    }
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which kind.
    pub kind: Kind,
    /// Place of the command in the first trace, from 0.
    pub a: Option<usize>,
    /// Place of the command in the second trace, from 0.
    pub b: Option<usize>,
    /// The command and what it is about.
    pub command: String,
    /// What differs, the first trace's on the left of `|`; empty when the kind says all.
    pub what: String,
}

impl fmt::Display for Difference {
    /// Without places: the same difference reads the same wherever it occurs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.command)?;
        if self.what.is_empty() { Ok(()) } else { write!(f, ": {}", self.what) }
    }
}

/// The traces differ over so many commands that they cannot be laid side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the traces differ over too many commands; compare shorter pieces of them")
    }
}

impl std::error::Error for TooLong {}

/// What the head of a line tells, by the names that differences have for it.
const HEAD_DETAILS: [&str; 5] = ["in", "out", "st", "uid", "asks"];

/// What to leave out of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignore {
    /// Kinds of differences.
    pub kinds: Vec<Kind>,
    /// Names of commands.
    pub commands: Vec<String>,
    /// Keys of details.
    pub details: Vec<String>,
}

impl Ignore {
    /// Adds a word: the name of a kind, of a command (in capitals), or else the key of a detail.
    pub fn add(&mut self, word: &str) {
        if let Some(kind) = Kind::ALL.iter().find(|kind| kind.name() == word) {
            self.kinds.push(*kind);
        } else if word.chars().any(|c| c.is_ascii_uppercase()) {
            self.commands.push(word.into());
        } else {
            self.details.push(word.into());
        }
    }

    /// The words of [`add`](Self::add) that cannot be about these traces: no kind, no command that the model knows or a trace
    /// has, no detail that a trace has.
    pub fn strangers(&self, a: &[Line], b: &[Line]) -> Vec<String> {
        let lines = || a.iter().chain(b);
        let command = |word: &str| opcode_named(word).is_some() || lines().any(|line| line.name == word);
        let in_line = |word: &str, line: &Line| line.details.iter().any(|detail| detail.key == word);
        let detail = |word: &str| HEAD_DETAILS.contains(&word) || lines().any(|line| in_line(word, line));
        let commands = self.commands.iter().filter(|word| !command(word));
        commands.chain(self.details.iter().filter(|word| !detail(word))).cloned().collect()
    }

    fn covers(&self, difference: &Difference) -> bool {
        let command = difference.command.split(' ').next().unwrap_or("");
        self.kinds.contains(&difference.kind) || self.commands.iter().any(|name| name == command)
    }
}

/// A trace, and what each of its commands is about.
pub(super) struct Trace<'a> {
    pub(super) lines: &'a [Line],
    pub(super) labels: Vec<String>,
}

impl<'a> Trace<'a> {
    fn new(lines: &'a [Line]) -> Self {
        Self { lines, labels: labels(lines, &HashMap::new()) }
    }

    /// The same trace, but what works on an object is about what the other trace's object is for.
    fn in_terms_of(&self, other: &Trace<'_>, pairs: &[(usize, usize)]) -> Self {
        let made = pairs.iter().filter(|(i, _)| makes(&other.lines[*i].name).is_some());
        let makers = made.map(|(i, j)| (*j, subject(&other.lines[*i]))).collect();
        Self { lines: self.lines, labels: labels(self.lines, &makers) }
    }
}

/// Compares two traces. Slots, times, addresses and the numbers of objects are not compared; but commands that belong
/// together must work on objects that belong together. A detail counts only where both traces tell it.
///
/// # Errors
/// [`TooLong`] when the commands from the first difference to the last one are too many.
pub fn compare(a: &[Line], b: &[Line], ignore: &Ignore) -> Result<Vec<Difference>, TooLong> {
    let (one, other) = (Trace::new(a), Trace::new(b));
    let first = align(&one, &other).ok_or(TooLong)?;
    let aligned = align(&one, &other.in_terms_of(&one, &first)).ok_or(TooLong)?;
    let (mut found, moved) = unpaired(&one, &other, &aligned);
    let mut pairs = [aligned.clone(), moved].concat();
    pairs.sort_unstable();
    found.extend(Numbers::check(&one, &other, &pairs));
    for (i, j) in pairs {
        let command = &one.labels[i];
        let differences = of_pair(&a[i], &b[j], ignore).into_iter();
        found.extend(differences.map(|(kind, what)| Difference {
            kind,
            a: Some(i),
            b: Some(j),
            command: command.clone(),
            what,
        }));
    }
    found.retain(|difference| !ignore.covers(difference));
    found.sort_by_key(|difference| place(difference, &aligned));
    Ok(found)
}

/// Commands of one trace alone, and those that both have but elsewhere; these also as pairs.
fn unpaired(a: &Trace<'_>, b: &Trace<'_>, aligned: &[(usize, usize)]) -> (Vec<Difference>, Vec<(usize, usize)>) {
    let in_a: HashSet<usize> = aligned.iter().map(|(i, _)| *i).collect();
    let in_b: HashSet<usize> = aligned.iter().map(|(_, j)| *j).collect();
    let mut only_b: Vec<usize> = (0..b.lines.len()).filter(|j| !in_b.contains(j)).collect();
    let (mut found, mut moved) = (Vec::new(), Vec::new());
    for i in (0..a.lines.len()).filter(|i| !in_a.contains(i)) {
        let same = |j: &usize| a.lines[i].op_mod == b.lines[*j].op_mod && a.labels[i] == b.labels[*j];
        let j = only_b.iter().position(same).map(|at| only_b.remove(at));
        let kind = if j.is_some() { Kind::Order } else { Kind::OnlyA };
        found.push(Difference { kind, a: Some(i), b: j, command: a.labels[i].clone(), what: String::new() });
        moved.extend(j.map(|j| (i, j)));
    }
    let differences = only_b.into_iter().map(|j| {
        let command = b.labels[j].clone();
        Difference { kind: Kind::OnlyB, a: None, b: Some(j), command, what: String::new() }
    });
    found.extend(differences);
    (found, moved)
}

/// Where a difference stands among the others: by the first trace, and what only the second has where it would come.
fn place(difference: &Difference, aligned: &[(usize, usize)]) -> (usize, bool, usize) {
    let b = difference.b.unwrap_or(0);
    match difference.a {
        Some(a) => (a, true, b),
        None => {
            let before = aligned.partition_point(|(_, j)| *j < b);
            (before.checked_sub(1).map_or(0, |last| aligned[last].0 + 1), false, b)
        }
    }
}

/// What differs between two commands that belong together.
fn of_pair(a: &Line, b: &Line, ignore: &Ignore) -> Vec<(Kind, String)> {
    let mut found = Vec::new();
    let mut differ = |kind, key: &str, a: String, b: String| {
        if a != b && !ignore.details.iter().any(|other| other == key) {
            found.push((kind, format!("{key} {a} | {b}")));
        }
    };
    differ(Kind::Lengths, "in", a.in_len.to_string(), b.in_len.to_string());
    differ(Kind::Lengths, "out", a.out_len.to_string(), b.out_len.to_string());
    let status = |line: &Line| line.status.map_or("?".into(), |status| status.to_string());
    differ(Kind::Status, "st", status(a), status(b));
    differ(Kind::Inputs, "uid", a.uid.to_string(), b.uid.to_string());
    let words = |line: &Line| {
        let words = line.details.iter().filter(|detail| is_subject(detail));
        words.map(|detail| detail.key.as_str()).collect::<Vec<_>>().join(" ")
    };
    if !words(a).is_empty() && !words(b).is_empty() {
        differ(Kind::Inputs, "asks", words(a), words(b));
    }
    for Detail { key, value } in &a.details {
        let (Some(ours), Some(theirs)) = (value, b.detail(key)) else { continue };
        let kind = if is_answer(&a.name, key) { Kind::Answers } else { Kind::Inputs };
        if comparable(key) {
            differ(kind, key, text(key, ours), text(key, theirs));
        }
    }
    found
}

fn text(key: &str, value: &Value) -> String {
    let detail = Detail { key: key.into(), value: Some(value.clone()) }.to_string();
    detail.split_once('=').map_or_else(String::new, |(_, text)| text.into())
}
