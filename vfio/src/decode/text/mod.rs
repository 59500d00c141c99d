//! Lines of logs in plain words: messages of kernels, libraries and programs about mlx5 devices.
//!
//! [`scan`] finds the lines whose form is known ([`sources`]); [`records`] makes one record of lines that belong together: the
//! fields of a health buffer, the two lines of a completion, the tries of one command, the flushes behind an error, a message
//! and the dump that follows it.

mod command;
mod completion;
mod format;
mod health;
mod notice;
mod place;
mod sources;
mod status;

use std::collections::HashMap;

use serde_json::{Map, Value};

use self::format::{Format, Hit, What};
use self::place::Place;
use super::{Kind, Record};

/// A known line of the input.
#[derive(Debug)]
pub struct Spot {
    format: &'static Format,
    fields: Map<String, Value>,
    place: Place,
    /// Index of the line, from 0.
    line: usize,
    /// Lines that it takes: more than one if it was broken.
    pub span: usize,
    /// The line, cut.
    text: String,
    /// Other lines that belong to it, as people count them.
    also: Vec<usize>,
    /// It went into a record.
    used: bool,
}

impl Spot {
    fn new(hit: Hit, text: &str, line: usize, span: usize) -> Self {
        let place = Place::of(text, text.get(..hit.start).unwrap_or(text));
        Self {
            format: hit.format,
            fields: hit.fields,
            place,
            line,
            span,
            text: shorten(text),
            also: Vec::new(),
            used: false,
        }
    }

    /// Index of the line behind it.
    pub fn end(&self) -> usize {
        self.line + self.span
    }

    /// Index of its line.
    pub fn begin(&self) -> usize {
        self.line
    }

    /// Its lines as people count them.
    fn lines(&self) -> impl Iterator<Item = usize> + use<> {
        self.line + 1..self.line + self.span + 1
    }

    /// A record about it, with what is known of its place.
    fn record(&self, what: &str, headline: impl Into<String>) -> Record {
        let mut record = Record::new(Kind::Text, headline);
        record.put("what", what);
        record.put("source", self.format.source);
        record.put("text", self.text.clone());
        record.lines = self.lines().chain(self.also.iter().copied()).collect();
        record.lines.sort_unstable();
        self.place.put(&mut record);
        record
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.fields.get(name).and_then(Value::as_u64)
    }
}

/// Longest line that is looked at together with those behind it: a broken line is no longer.
const BROKEN: usize = 400;
/// Most lines that one was broken into.
const PIECES: usize = 3;

/// Finds the known lines, in order. A line that mail or a terminal broke is put together again.
pub fn scan(lines: &[&str]) -> Vec<Spot> {
    let alone: Vec<Option<Hit>> = lines.iter().map(|line| format::find(line)).collect();
    let known: Vec<bool> = alone.iter().map(Option::is_some).collect();
    let mut spots = Vec::new();
    let mut next = 0;
    for (i, (hit, line)) in alone.into_iter().zip(lines).enumerate() {
        if i < next {
            continue;
        }
        let (text, hit, begin, span) = match hit {
            Some(hit) => headed(lines, &known, next, i, &hit).unwrap_or_else(|| ((*line).to_string(), hit, i, 1)),
            None => match broken(lines, &known, i) {
                Some(found) => found,
                None => continue,
            },
        };
        next = begin + span;
        spots.push(Spot::new(hit, &text, begin, span));
    }
    spots
}

/// A form found in lines that were one: their text, the form, the first line and how many.
type Joined = (String, Hit, usize, usize);

/// The form that line `i` fits together with the lines behind it.
fn broken(lines: &[&str], known: &[bool], i: usize) -> Option<Joined> {
    let mut joined = String::from(unquoted(lines.get(i)?));
    let first = joined.len();
    for span in 2..=PIECES {
        let piece = unquoted(lines.get(i + span - 1)?);
        if *known.get(i + span - 1)? || piece.is_empty() || first == 0 || joined.len() + piece.len() > BROKEN {
            return None;
        }
        joined.push(' ');
        joined.push_str(piece);
        // It must begin in the first piece: else a later line has it by itself.
        if let Some(hit) = format::find(&joined).filter(|hit| hit.start < first) {
            return Some((joined, hit, i, span));
        }
    }
    None
}

/// The form of line `i` together with those before it, if the line was broken in front of the message: behind a colon.
fn headed(lines: &[&str], known: &[bool], free: usize, i: usize, alone: &Hit) -> Option<Joined> {
    let line = lines.get(i)?;
    let mut joined = String::from(unquoted(line));
    if alone.start > line.trim_end().len() - joined.len() {
        return None;
    }
    let mut begin = i;
    while begin > free && i - begin + 1 < PIECES {
        let head = unquoted(lines.get(begin - 1)?);
        if *known.get(begin - 1)?
            || !head.ends_with(':')
            || !(head.contains("mlx5") || head.contains("(pid "))
            || joined.len() + head.len() > BROKEN
        {
            break;
        }
        joined = format!("{head} {joined}");
        begin -= 1;
    }
    let hit = format::find(&joined).filter(|_| begin < i)?;
    Some((joined, hit, begin, i - begin + 1))
}

/// A line without the marks of a quoted mail.
fn unquoted(line: &str) -> &str {
    line.trim_start_matches(['>', ' ', '\t']).trim_end()
}

fn shorten(line: &str) -> String {
    const LONGEST: usize = 240;
    let line = line.trim();
    let mut text: String = line.chars().take(LONGEST).collect();
    if text.len() < line.len() {
        text.push('…');
    }
    text
}

/// Makes records of the known lines; those that belong to a dump are put into the dump's record. Gives the number of lines
/// that it used.
pub fn records(mut spots: Vec<Spot>, dumps: &mut [Record]) -> (Vec<Record>, usize) {
    completion::join(&mut spots);
    completion::into_dumps(&mut spots, dumps);
    let mut records = health::records(&mut spots);
    records.extend(command::records(&mut spots));
    records.extend(completion::records(&mut spots));
    records.extend(others(&mut spots));
    records.sort_by_key(|record| record.lines.first().copied());
    completion::after_commands(&mut records);
    let used = spots.iter().filter(|spot| spot.used).map(|spot| spot.span).sum();
    (records, used)
}

/// Messages with one meaning each; the same again from the same device is counted.
fn others(spots: &mut [Spot]) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let mut seen = HashMap::new();
    for spot in spots.iter_mut().filter(|spot| !spot.used) {
        let mut record = match spot.format.what {
            What::CqError => command::cq_error(spot),
            What::Notice(notice) | What::Ours(notice) => command::notice(spot, notice),
            _ => continue,
        };
        spot.used = true;
        let identity = format!("{} {:?}", record.headline, record.json.get("device"));
        let first = *seen.entry(identity).or_insert(records.len());
        match records.get_mut(first) {
            Some(first) => again(first, &mut record),
            None => records.push(record),
        }
    }
    records
}

/// Counts a record into the first of its sort.
fn again(first: &mut Record, record: &mut Record) {
    first.lines.append(&mut record.lines);
    let count = first.number("count").unwrap_or(1);
    first.put("count", count + 1);
}
