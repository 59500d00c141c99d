//! `mlx5-model trace`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};
use mlx5_model::trace::{Difference, Ignore, Kind, Line, compare, read};

use super::Failure;

const HEAD: Style = Style::new().bold();
const ONLY_A: Style = AnsiColor::Red.on_default();
const ONLY_B: Style = AnsiColor::Green.on_default();
const OTHER: Style = AnsiColor::Yellow.on_default();

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, group(clap::ArgGroup::new("task").required(true).args(["diff", "show"])))]
#[group(skip)]
pub(super) struct Args {
    /// Compare two traces by meaning; exit code 1 when they differ
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    diff: Vec<PathBuf>,
    /// Show a trace as a table
    #[arg(long, value_name = "FILE")]
    show: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, requires = "diff")]
    json: bool,
    /// Leave out a kind of difference, a command, or a detail
    #[arg(long, value_name = "WORD", value_delimiter = ',', requires = "diff")]
    ignore: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  mlx5-model trace --show ours.log
  mlx5-model trace --diff linux.log ours.log
  mlx5-model trace --diff linux.log ours.log --ignore lengths,QUERY_ADAPTER,intr

A trace has one line a command, as `serve --trace` writes it; other lines are passed over.
Slots, times, addresses and numbers of objects are not compared, but that commands work on the
same objects is.

Kinds of differences: only-a, only-b, order, lengths, inputs, answers, status, objects.

Exit codes: 0 the traces say the same, 1 they differ, 2 a file could not be read or has no
command in it.";

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(path) = &args.show {
        return Ok(show(&mut anstream::stdout(), &load(path)?)?);
    }
    let [a, b] = args.diff.as_slice() else {
        return Err(Failure::Usage("--diff needs two traces".into()));
    };
    let mut ignore = Ignore::default();
    args.ignore.iter().for_each(|word| ignore.add(word));
    diff(Trace::load(a)?, Trace::load(b)?, &ignore, args.json)
}

/// A trace, and the number of each command's line in its file.
struct Trace {
    path: String,
    numbers: Vec<usize>,
    lines: Vec<Line>,
}

impl Trace {
    fn load(path: &Path) -> Result<Self, Failure> {
        let (numbers, lines) = load(path)?.into_iter().unzip();
        Ok(Self { path: path.display().to_string(), numbers, lines })
    }

    /// The line of a command, for people.
    fn at(&self, place: Option<usize>) -> String {
        let number = place.and_then(|at| self.numbers.get(at));
        number.map_or("-".into(), ToString::to_string)
    }
}

fn load(path: &Path) -> Result<Vec<(usize, Line)>, Failure> {
    let bytes = fs::read(path).map_err(|e| Failure::Usage(format!("{}: {e}", path.display())))?;
    let found = read(&String::from_utf8_lossy(&bytes));
    if found.is_empty() {
        let words = "no command in it; a trace has lines like `CMD slot=0 ENABLE_HCA(0x104) opmod=0 …`";
        return Err(Failure::Usage(format!("{}: {words}", path.display())));
    }
    Ok(found)
}

fn diff(a: Trace, b: Trace, ignore: &Ignore, json: bool) -> Result<(), Failure> {
    let strangers = ignore.strangers(&a.lines, &b.lines);
    if !strangers.is_empty() {
        let words = "neither a kind of difference nor a command or detail of these traces";
        return Err(Failure::Usage(format!("--ignore {}: {words}", strangers.join(","))));
    }
    let differences = compare(&a.lines, &b.lines, ignore).map_err(|e| Failure::Usage(e.to_string()))?;
    let mut out = anstream::stdout();
    if json {
        writeln!(out, "{}", to_json(&a, &b, &differences))?;
    } else {
        table(&mut out, &a, &b, &differences)?;
    }
    match differences.len() {
        0 => Ok(()),
        1 => Err(Failure::Job("the traces differ in one place".into())),
        n => Err(Failure::Job(format!("the traces differ in {n} places"))),
    }
}

fn table(out: &mut impl Write, a: &Trace, b: &Trace, differences: &[Difference]) -> io::Result<()> {
    writeln!(out, "A  {}: {} commands", a.path, a.lines.len())?;
    writeln!(out, "B  {}: {} commands", b.path, b.lines.len())?;
    if differences.is_empty() {
        return writeln!(out, "They say the same.");
    }
    let width = differences.iter().map(|d| d.command.len()).max().unwrap_or(0).max(7);
    writeln!(out, "\n{HEAD}{:>6} {:>6}  {:<8} {:<width$}  A | B{HEAD:#}", "A line", "B line", "kind", "command")?;
    for difference in differences {
        let style = match difference.kind {
            Kind::OnlyA => ONLY_A,
            Kind::OnlyB => ONLY_B,
            _ => OTHER,
        };
        let (kind, Difference { command, what, .. }) = (difference.kind.name(), difference);
        let (at_a, at_b) = (a.at(difference.a), b.at(difference.b));
        let row = format!("{at_a:>6} {at_b:>6}  {style}{kind:<8}{style:#} {command:<width$}  {what}");
        writeln!(out, "{}", row.trim_end())?;
    }
    Ok(())
}

fn show(out: &mut impl Write, lines: &[(usize, Line)]) -> io::Result<()> {
    let named = |(_, line): &(usize, Line)| line.name.len() + format!("({:#x})", line.opcode).len();
    let width = lines.iter().map(named).max().unwrap_or(0).max(7);
    writeln!(
        out,
        "{HEAD}{:>14} {:>4} {:<width$} {:>6} {:>6} {:>6} {:>6}  details{HEAD:#}",
        "seconds", "slot", "command", "op_mod", "in", "out", "status"
    )?;
    for (_, line) in lines {
        let time = line.time.map_or(String::new(), |us| format!("{}.{:06}", us / 1_000_000, us % 1_000_000));
        let name = format!("{}({:#x})", line.name, line.opcode);
        let Line { slot, op_mod, in_len, out_len, .. } = line;
        let status = line.status.map_or("?".into(), |status| status.to_string());
        let details: Vec<String> = line.details.iter().map(ToString::to_string).collect();
        let row = format!(
            "{time:>14} {slot:>4} {name:<width$} {op_mod:>6} {in_len:>6} {out_len:>6} {status:>6}  {}",
            details.join(" ")
        );
        writeln!(out, "{}", row.trim_end())?;
    }
    Ok(())
}

fn to_json(a: &Trace, b: &Trace, differences: &[Difference]) -> serde_json::Value {
    let of = |trace: &Trace| serde_json::json!({ "file": trace.path, "commands": trace.lines.len() });
    let line = |trace: &Trace, at: Option<usize>| at.and_then(|at| trace.numbers.get(at).copied());
    let rows = differences.iter().map(|d| {
        serde_json::json!({
            "kind": d.kind.name(),
            "a_line": line(a, d.a),
            "b_line": line(b, d.b),
            "command": d.command,
            "what": d.what,
        })
    });
    serde_json::json!({ "a": of(a), "b": of(b), "differences": rows.collect::<Vec<_>>() })
}
