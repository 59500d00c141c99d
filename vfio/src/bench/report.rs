//! The table, for people and for programs.

use std::io::Write;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use mlx5::Cpu;
use serde_json::{Value, json};

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
use super::instructions::Counted;
use super::measure::Times;
use super::rows::{Marks, Row};
use crate::cli::Failure;

const HEADS: [&str; 9] = ["path", "entries", "ring", "ns", "× floor", "quartiles", "peers × floor", "aim / must", ""];

/// A row with what was measured.
pub(super) struct Line {
    pub(super) row: Row,
    pub(super) nanoseconds: f64,
    /// Median and quartiles of the rounds.
    pub(super) ratio: [f64; 3],
}

/// What was measured.
pub(super) struct Report {
    pub(super) lines: Vec<Line>,
    cpu: Cpu,
}

impl Report {
    pub(super) fn new(rows: &[Row], times: &Times, cpu: Cpu) -> Self {
        let line = |(n, row): (usize, &Row)| {
            let ratio = row.floor(rows).map_or([f64::NAN; 3], |floor| times.ratio(n, floor));
            Line { row: *row, nanoseconds: times.nanoseconds(n), ratio }
        };
        Self { lines: rows.iter().enumerate().map(line).collect(), cpu }
    }

    /// For people.
    pub(super) fn text(&self, out: &mut dyn Write) -> Result<(), Failure> {
        writeln!(out, "Polling with: {}. Built for: {}.", self.cpu.name(), Cpu::compiled().name())?;
        writeln!(
            out,
            "Nanoseconds for each completion or call; medians. Peers as measured elsewhere, beside their floor.\n"
        )?;
        table(
            HEADS.map(String::from).into(),
            self.lines.iter().map(|line| line.cells().into()),
            &[1, 3, 4, 5, 7],
            out,
        )?;
        let marked = self.lines.iter().filter(|line| line.row.marks.is_some());
        let (met, all) = (marked.clone().filter(|line| line.is_met()).count(), marked.count());
        writeln!(out, "\n{met} of {all} marks met.")?;
        Ok(())
    }

    /// For programs.
    pub(super) fn object(&self) -> Value {
        json!({
            "polling_with": self.cpu.name(),
            "built_for": Cpu::compiled().name(),
            "rows": self.lines.iter().map(Line::object).collect::<Vec<_>>(),
        })
    }
}

impl Line {
    /// Whether what it has to meet is met.
    fn is_met(&self) -> bool {
        self.row.marks.is_none_or(|marks| self.ratio[0] <= if marks.both { marks.aim } else { marks.must })
    }

    fn verdict(&self) -> &'static str {
        match self.row.marks {
            None => "",
            Some(Marks { aim, .. }) if self.ratio[0] <= aim => "aim met",
            Some(Marks { must, both, .. }) if self.ratio[0] <= must => {
                if both {
                    "aim MISSED"
                } else {
                    "must met"
                }
            }
            Some(_) => "MISSED",
        }
    }

    fn peers(&self) -> Vec<(&'static str, f64, f64)> {
        let peers = self.row.peers;
        peers.of.iter().map(|peer| (peer.name, peer.nanoseconds, peer.nanoseconds / peers.floor)).collect()
    }

    fn cells(&self) -> [String; 9] {
        let peers: Vec<_> = self.peers().iter().map(|(name, _, ratio)| format!("{name} {ratio:.1}")).collect();
        let ([ratio, lower, upper], entries) = (self.ratio, self.row.entries());
        [
            path(&self.row),
            entries.map_or(String::new(), |entries| entries.to_string()),
            if entries.is_some() { self.row.state.name() } else { "" }.into(),
            format!("{:.2}", self.nanoseconds),
            if ratio.is_nan() { String::new() } else { format!("{ratio:.2}") },
            if ratio.is_nan() || self.row.is_floor() { String::new() } else { format!("{lower:.2}–{upper:.2}") },
            peers.join(", "),
            self.row.marks.map_or(String::new(), |marks| format!("{} / {}", marks.aim, marks.must)),
            self.verdict().into(),
        ]
    }

    fn object(&self) -> Value {
        let peers: Vec<_> = self
            .peers()
            .into_iter()
            .map(|(name, nanoseconds, ratio)| json!({ "name": name, "nanoseconds": nanoseconds, "ratio": ratio }))
            .collect();
        json!({
            "path": self.row.name(),
            "entries": self.row.entries(),
            "cqe_size": self.row.entries().map(|_| self.row.cqe_size()),
            "ring": self.row.entries().map(|_| self.row.state.name()),
            "nanoseconds": self.nanoseconds,
            "ratio": self.ratio[0],
            "ratio_lower_quartile": self.ratio[1],
            "ratio_upper_quartile": self.ratio[2],
            "peers": peers,
            "aim": self.row.marks.map(|marks| marks.aim),
            "must": self.row.marks.map(|marks| marks.must),
            "must_meet_aim": self.row.marks.map(|marks| marks.both),
            "met": self.row.marks.map(|_| self.is_met()),
        })
    }
}

/// Prints a table; these columns are numbers.
fn table(
    heads: Vec<String>,
    rows: impl Iterator<Item = Vec<String>>,
    numbers: &[usize],
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(heads).add_rows(rows);
    for &column in numbers {
        table.column_mut(column).into_iter().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Counts of instructions, for people.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(super) fn counts_text(counted: &[Counted], levels: &[Cpu], out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(
        out,
        "Instructions for each completion, the program that reads it included (libmlx5: poll_cq 16 153, iterator 193).\n"
    )?;
    let heads = std::iter::once("path".to_string()).chain(levels.iter().map(|level| level.name().into())).collect();
    let cells = |counted: &Counted| {
        let counts = counted.by_level.iter().map(|(_, got, most)| match most {
            Some(most) => format!("{got:.1} (at most {most})"),
            None => format!("{got:.1}"),
        });
        std::iter::once(path(&counted.row)).chain(counts).collect()
    };
    let numbers: Vec<_> = (1..=levels.len()).collect();
    table(heads, counted.iter().map(cells), &numbers, out)
}

/// Counts of instructions, for programs.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(super) fn counts_object(counted: &[Counted]) -> Value {
    let one = |counted: &Counted| {
        let count = |(cpu, got, most): &(Cpu, f64, Option<f64>)| json!({ "cpu": cpu.name(), "instructions": got, "most": most });
        let counts: Vec<_> = counted.by_level.iter().map(count).collect();
        json!({ "path": counted.row.name(), "cqe_size": counted.row.cqe_size(), "counts": counts })
    };
    json!({ "built_for": Cpu::compiled().name(), "rows": counted.iter().map(one).collect::<Vec<_>>() })
}

/// A row's name, with the size of its entries if that is the larger one.
pub(super) fn path(row: &Row) -> String {
    format!("{}{}", row.name(), if row.cqe_size() == 64 { "" } else { ", 128 B" })
}
