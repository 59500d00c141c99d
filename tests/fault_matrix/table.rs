//! The matrix as a table.

use std::collections::BTreeMap;
use std::io::Write;

use crate::clean::Row;
use crate::faults::{FAULTS, Fault};
use crate::rules::{self, Outcome};

/// Cells of a function, filled one by one.
pub struct Table {
    title: String,
    lines: Vec<String>,
    marks: BTreeMap<Outcome, usize>,
    wrong: usize,
    cells: usize,
}

const WIDTH: usize = 14;

impl Table {
    pub fn new(title: &str, rows: &[Row]) -> Self {
        let headings: String = FAULTS.iter().map(|f| format!(" {:WIDTH$}", f.heading())).collect();
        let head = format!("{:48}{headings}", format!("{title}: {} commands", rows.len()));
        Self { title: title.into(), lines: vec![head], marks: BTreeMap::new(), wrong: 0, cells: 0 }
    }

    /// Adds a cell, which ended in what the rules say, or not.
    pub fn add(&mut self, fault: Fault, row: &Row, right: bool) {
        if fault == FAULTS[0] {
            self.lines.push(format!("{:22} {:25}", row.call, row.name));
        }
        let outcome = rules::outcome(fault, row);
        let mark = if right { outcome.mark() } else { "WRONG" };
        if let Some(line) = self.lines.last_mut() {
            line.push_str(&format!(" {mark:WIDTH$}"));
        }
        *self.marks.entry(outcome).or_default() += usize::from(right);
        self.wrong += usize::from(!right);
        self.cells += 1;
    }

    pub fn cells(&self) -> usize {
        self.cells
    }

    /// Prints the table, and the sum in one line that is seen in any run.
    pub fn print(&self) {
        println!("{}", self.lines.join("\n"));
        let sums: Vec<String> = self.marks.iter().map(|(outcome, n)| format!("{n} {}", outcome.mark())).collect();
        let line =
            format!("fault matrix, {}: {} cells: {}, {} wrong", self.title, self.cells, sums.join(", "), self.wrong);
        // Past the test harness, which keeps what tests print to itself. Whether anybody reads it does not matter.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}
