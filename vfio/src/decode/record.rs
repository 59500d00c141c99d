//! One decoded structure: as an object for programs, and as text for people.

use std::fmt::Write as _;

use anstyle::Style;
use comfy_table::{ContentArrangement, Table, presets};
use mlx5_hw::be::Be32;
use mlx5_hw::prm::{Field, Layout};
use serde_json::{Map, Value};

use super::Kind;
use super::messages::{SIGNED, elements};

const BOLD: Style = Style::new().bold();
/// Width of the text where no terminal gives one.
const WIDTH: u16 = 110;
/// Most line numbers that a title shows.
const LINES: usize = 8;
/// A terminal that says it is narrower does not know its width.
const NARROWEST: u16 = 40;

/// A field as it is shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRow {
    /// Name as in the PRM's headers.
    pub name: String,
    /// The number, with its name if it has one.
    pub value: String,
    /// What the field is for.
    pub meaning: String,
}

/// One decoded structure.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// What it is.
    pub kind: Kind,
    /// One sentence: what happened.
    pub headline: String,
    /// The fields for programs, by the names that the cases use.
    pub json: Map<String, Value>,
    /// The fields for people.
    pub rows: Vec<FieldRow>,
    /// What usually causes it, most likely first.
    pub causes: Vec<String>,
    /// What to do next.
    pub next: Vec<String>,
    /// What else is worth knowing: oddities of the input, hints.
    pub notes: Vec<String>,
    /// Lines of the input that it was read from, counted from 1; empty for an input of one line and for bytes.
    pub lines: Vec<usize>,
}

impl Record {
    /// A record without fields.
    pub fn new(kind: Kind, headline: impl Into<String>) -> Self {
        let mut json = Map::new();
        json.insert("kind".into(), kind.name().into());
        let headline = headline.into();
        Self { kind, headline, json, rows: vec![], causes: vec![], next: vec![], notes: vec![], lines: vec![] }
    }

    /// Adds a field to the object.
    pub fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.json.insert(name.into(), value.into());
    }

    /// A field of the object as a number, if it is there.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.json.get(name).and_then(Value::as_u64)
    }

    /// Adds a row for people.
    pub fn row(&mut self, name: impl Into<String>, value: impl Into<String>, meaning: impl Into<String>) {
        self.rows.push(FieldRow { name: name.into(), value: value.into(), meaning: meaning.into() });
    }

    /// Adds a row whose meaning is what the layout says about the field.
    pub fn row_of<L: Layout>(&mut self, field: &str, value: impl Into<String>) {
        let doc = L::FIELDS.iter().find(|f| f.name == field).map_or(String::new(), |f| meaning(f.doc));
        self.row(field, value, doc);
    }

    /// Adds rows for all fields of a layout that are not zero.
    pub fn rows_of<L: Layout>(&mut self, layout: &L) {
        self.rows_of_some("", &L::FIELDS.iter().collect::<Vec<_>>(), layout.words());
    }

    /// Adds rows for those of some fields that are not zero, their names behind `prefix`.
    pub fn rows_of_some(&mut self, prefix: &str, fields: &[&Field], words: &[Be32]) {
        for field in fields {
            if !field.nested.is_empty() {
                let inner = words.get((field.bit_offset / 32) as usize..).unwrap_or(&[]);
                let nested: Vec<&Field> = field.nested.iter().collect();
                self.rows_of_some(&format!("{prefix}{}.", field.name), &nested, inner);
                continue;
            }
            let count = elements(field, words);
            let values: Vec<u64> = (0..count).map(|i| (field.get)(words, i)).collect();
            if values.iter().any(|&v| v != 0) {
                let shown = match values.as_slice() {
                    [pages] if field.name == SIGNED => (*pages as u32 as i32).to_string(),
                    _ => shown(&values),
                };
                self.row(format!("{prefix}{}", field.name), shown, meaning(field.doc));
            }
        }
    }

    /// What it is and where, for a line above it.
    pub fn title(&self) -> String {
        let what = self.json.get("what").and_then(Value::as_str).unwrap_or(self.kind.name());
        let by = self.json.get("source").and_then(Value::as_str).map_or(String::new(), |by| format!(" ({by})"));
        let numbers = self.lines.iter().take(LINES).map(usize::to_string).collect::<Vec<_>>().join(", ");
        match self.lines.len() {
            0 => format!("{what}{by}"),
            1 => format!("{what}{by}, line {numbers}"),
            n if n > LINES => format!("{what}{by}, lines {numbers} and {} more", n - LINES),
            _ => format!("{what}{by}, lines {numbers}"),
        }
    }

    /// The record for people. Bold is written as ANSI codes: print it through `anstream`, which drops them where they
    /// do not belong.
    pub fn to_text(&self) -> String {
        let quoted =
            self.json.get("text").and_then(Value::as_str).map_or(String::new(), |text| format!("  {text}\n\n"));
        let mut out = format!("{quoted}{BOLD}{}{BOLD:#}\n", self.headline);
        if !self.rows.is_empty() {
            let rows = self.rows.iter().map(|r| [r.name.clone(), r.value.clone(), r.meaning.clone()]);
            let _ = write!(out, "\n{}\n", table(["field", "value", "meaning"], rows));
        }
        for (title, lines) in [("Usual causes", &self.causes), ("What to do next", &self.next), ("Notes", &self.notes)]
        {
            if !lines.is_empty() {
                let _ = writeln!(out, "\n{BOLD}{title}{BOLD:#}");
                lines.iter().for_each(|l| wrap(&mut out, l));
            }
        }
        out
    }
}

/// A table without lines, fit to the terminal.
pub fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none_or(|width| width < NARROWEST) {
        table.set_width(WIDTH);
    }
    table.set_header(head);
    rows.for_each(|r| {
        table.add_row(r);
    });
    table.trim_fmt()
}

/// A number as people compare it with logs: in hex, and in decimal where the two differ.
pub fn number(value: u64) -> String {
    if value < 10 { value.to_string() } else { format!("{value:#x} ({value})") }
}

/// The elements of a field, the first few of a long list.
fn shown(values: &[u64]) -> String {
    const FEW: usize = 8;
    let last = values.iter().rposition(|&v| v != 0).map_or(0, |i| i + 1);
    match values {
        [one] => number(*one),
        many => {
            let some = many.iter().take(last.min(FEW)).map(|v| format!("{v:#x}")).collect::<Vec<_>>().join(" ");
            if last > FEW { format!("{some} and {} more", last - FEW) } else { some }
        }
    }
}

/// A number with its name.
pub fn named(value: u64, name: Option<&str>) -> String {
    format!("{} {}", number(value), name.unwrap_or("(no name known)"))
}

/// The first paragraph of a field's documentation, in one line, without marks and links to items.
pub fn meaning(doc: &str) -> String {
    let paragraph = doc.split("\n\n").next().unwrap_or("").split_whitespace().collect::<Vec<_>>().join(" ");
    let mut out = String::new();
    let mut rest = paragraph.as_str();
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((_, after)) = link.split_once("`]") else { break };
        let lead = [": ", "; see ", ", see "].iter().find_map(|lead| before.strip_suffix(lead));
        out.push_str(lead.unwrap_or(before));
        if lead.is_none() {
            out.push_str(link.split("`]").next().unwrap_or(""));
        }
        let target = after.strip_prefix('(').and_then(|t| t.split_once(')'));
        rest = target.map_or(after, |(_, after)| after);
    }
    out.push_str(rest);
    out.replace('`', "")
}

/// Hex digits of bytes in memory order.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

/// The dwords of bytes; a last incomplete dword is left out.
pub fn words(bytes: &[u8]) -> Vec<Be32> {
    bytes.chunks_exact(4).map(|c| Be32::new(c.iter().fold(0, |n, &b| (n << 8) | u32::from(b)))).collect()
}

/// The layout at byte `at`, a multiple of four; what the bytes lack is zero.
pub fn layout<L: Layout>(bytes: &[u8], at: usize) -> L {
    L::from_words(&words(bytes.get(at..).unwrap_or(&[])))
}

/// A list item, wrapped.
fn wrap(out: &mut String, text: &str) {
    let mut column = 0;
    out.push_str("  -");
    for word in text.split_whitespace() {
        if column + word.len() > usize::from(WIDTH) - 6 && column > 0 {
            out.push_str("\n   ");
            column = 0;
        }
        out.push(' ');
        out.push_str(word);
        column += word.len() + 1;
    }
    out.push('\n');
}
