//! Counts the instructions of one drain, by stepping through it one by one: another process of this program drains, and this one
//! looks on. The count is exact and the same each time, so that it can be guarded where time cannot.
//!
//! The process that drains raises a signal three times: before nothing, before the drain, behind it. Each time it stops, as
//! whoever traces it hears of a signal first. What is counted between the first two is taken off what is counted then.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use mlx5::Cpu;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use super::drain::Reader;
use super::rings::Kind;
use super::rows::{Row, Work, rows};
use super::subject::State;
use crate::cli::Failure;
use crate::options::Compress;

/// Marks the ends of what is counted.
const MARK: Signal = Signal::SIGUSR1;
/// More than any drain that is measured takes.
const MOST: u64 = 1 << 22;
/// Slots of the rings, as a power of two: as many as the longest batch, as a step takes some microseconds.
const LOG: u32 = 6;
/// Drains before the one that is counted, after which nothing happens for the first time any more.
const WARM: u32 = 3;

/// The rows that are counted.
pub(super) fn counted() -> Vec<Row> {
    let counted = |row: &Row| match row.work {
        Work::Floor => true,
        Work::Drain(_, _, reader) => reader != Reader::Poll(1),
        Work::Byte63 | Work::Empty | Work::Call(_) => false,
    };
    let mut rows = rows(false);
    rows.retain(|row| row.log == 8 && row.state == State::Hot && counted(row));
    rows.iter_mut().for_each(|row| row.log = LOG);
    rows
}

/// Paths that are guarded, in entries of 64 bytes, with the most instructions that each completion may take: by plain operations, with byte
/// shuffles, and with AVX2. They are what was counted and up to a tenth more, as compilers differ.
const LIMITS: [(Kind, Reader, [f64; 3]); 7] = [
    (Kind::Send, Reader::Poll(16), [236.0, 65.0, 54.0]),
    (Kind::Send, Reader::Iterator(64), [121.0, 121.0, 121.0]),
    (Kind::Requester, Reader::Poll(16), [235.0, 52.0, 51.0]),
    (Kind::Srq, Reader::Poll(16), [233.0, 96.0, 85.0]),
    (Kind::Basic(Compress::Hash, 8), Reader::Poll(64), [139.0, 134.0, 132.0]),
    (Kind::Basic(Compress::Hash, 63), Reader::Poll(64), [118.0, 114.0, 112.0]),
    (Kind::Enhanced, Reader::Poll(64), [125.0, 122.0, 121.0]),
];

/// Most instructions for each completion of this row with this level. `None`: it is not guarded.
pub(super) fn most(row: &Row, cpu: Cpu) -> Option<f64> {
    let guarded = LIMITS.iter().find(|(kind, reader, _)| row.work == Work::Drain(*kind, 64, *reader));
    guarded.map(|(_, _, [plain, shuffles, avx2])| match cpu.name() {
        "portable" => *plain,
        "avx2" => *avx2,
        _ => *shuffles,
    })
}

/// Drains in this process, for another that looks on.
///
/// # Errors
/// When the row cannot be made, or drained wrong.
pub(super) fn step(row: &Row, cpu: Cpu) -> Result<(), Failure> {
    let mut subject = row.subject(cpu).map_err(|e| Failure::Job(e.to_string()))?;
    let mut sum = subject.right();
    for _ in 0..WARM {
        subject.prepare();
        sum = subject.run();
    }
    subject.prepare();
    std::io::stdout().write_all(b"ready\n")?;
    std::io::stdin().read_exact(&mut [0])?;
    let mark = || raise(MARK).map_err(|e| Failure::Job(format!("no signal: {e}")));
    mark()?;
    mark()?;
    let counted = subject.run();
    mark()?;
    let right = subject.right();
    if sum == right && counted == right { Ok(()) } else { Err(Failure::Job("the sum is wrong".into())) }
}

/// Instructions for each completion of a row, the program that reads it included.
///
/// # Errors
/// When the other process cannot be started or traced, or failed.
pub(super) fn count(number: usize, row: &Row, cpu: Cpu) -> Result<f64, Failure> {
    let items = row.subject(cpu).map_err(|e| Failure::Job(e.to_string()))?.items();
    let failed = |what: &str, e: &dyn std::fmt::Display| Failure::Job(format!("{}: {what}: {e}", row.name()));
    share_a_processor();
    let program = std::env::current_exe().map_err(|e| failed("this program", &e))?;
    let number = number.to_string();
    let mut child = Command::new(program)
        .args(["bench", "step", number.as_str(), "--cpu", cpu.name()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| failed("another process", &e))?;
    let counts = trace(&mut child);
    if counts.is_err() {
        let _ = child.kill();
    }
    let ended = child.wait().map_err(|e| failed("another process", &e))?;
    let [nothing, drain] = counts.map_err(|e| failed("stepping", &e))?;
    if !ended.success() {
        return Err(failed("another process", &"it drained wrong"));
    }
    Ok(drain.saturating_sub(nothing) as f64 / f64::from(items))
}

/// From now on this process and those that it starts have one processor: a step is then a switch from one to the other, which takes
/// less than waking another processor.
fn share_a_processor() {
    let mut one = CpuSet::new();
    one.set(sched_getcpu());
    // Without it stepping is slower, no more.
    let _ = sched_setaffinity(None, &one);
}

/// Instructions before the drain and in it.
fn trace(child: &mut Child) -> std::io::Result<[u64; 2]> {
    let pid = Pid::from_raw(child.id() as i32);
    let ended = || std::io::Error::other("it ended before it was counted");
    let mut ready = [0; 6];
    child.stdout.as_mut().ok_or_else(ended)?.read_exact(&mut ready)?;
    ptrace::attach(pid)?;
    until(pid, Signal::SIGSTOP)?;
    child.stdin.as_mut().ok_or_else(ended)?.write_all(b"\n")?;
    ptrace::cont(pid, None)?;
    until(pid, MARK)?;
    let nothing = steps(pid)?;
    let drain = steps(pid)?;
    ptrace::detach(pid, None)?;
    Ok([nothing, drain])
}

/// Waits until it stops for this signal.
fn until(pid: Pid, signal: Signal) -> std::io::Result<()> {
    match waitpid(pid, None)? {
        WaitStatus::Stopped(_, stopped) if stopped == signal => Ok(()),
        other => Err(std::io::Error::other(format!("it did not stop for {signal}: {other:?}"))),
    }
}

/// Steps until the next mark.
fn steps(pid: Pid) -> std::io::Result<u64> {
    for step in 0..MOST {
        ptrace::step(pid, None)?;
        match waitpid(pid, None)? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            WaitStatus::Stopped(_, signal) if signal == MARK => return Ok(step),
            other => return Err(std::io::Error::other(format!("it did not stop after a step: {other:?}"))),
        }
    }
    Err(std::io::Error::other("it does not come to an end"))
}

/// A row, with its counts by level.
pub(super) struct Counted {
    /// Which.
    pub(super) row: Row,
    /// Instructions for each completion and the most that there may be, for each level.
    pub(super) by_level: Vec<(Cpu, f64, Option<f64>)>,
}

impl Counted {
    /// Counts a row with each level.
    ///
    /// # Errors
    /// What [`count`] tells.
    pub(super) fn new(number: usize, row: Row, levels: &[Cpu]) -> Result<Self, Failure> {
        let one = |&cpu| Ok((cpu, count(number, &row, cpu)?, most(&row, cpu)));
        Ok(Self { row, by_level: levels.iter().map(one).collect::<Result<_, Failure>>()? })
    }

    /// Levels with which it takes more than it may, in words.
    pub(super) fn too_many(&self) -> Vec<String> {
        let too_many = self.by_level.iter().filter_map(|(cpu, got, most)| {
            let most = most.filter(|most| got > most)?;
            Some(format!("{} with {}: {got:.1} instructions, may be {most}", self.row.name(), cpu.name()))
        });
        too_many.collect()
    }
}
