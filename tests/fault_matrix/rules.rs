//! What each cell must end in. Written down by hand from what the faults mean; nothing here is taken from a run.

use std::collections::BTreeSet;

use mlx5::{Error, Failure};

use crate::clean::{Phase, Row};
use crate::faults::{DELIVERY, FATAL, Fault, STATUS, SYNDROME};
use crate::port::Function;

/// How the command with the fault ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// As if there had been no fault.
    Survived,
    /// The device's status and syndrome are told.
    Refused,
    /// The delivery status is told.
    Undelivered,
    /// Its deadline passes.
    NoAnswer,
    /// The firmware gives it up for want of pages, and says so.
    NoResources,
    /// The platform has no pages for a firmware that cannot start without.
    NoPages,
    /// The device has left the bus.
    Gone,
    /// The firmware has failed.
    Sick,
}

use Outcome::{Gone, NoAnswer, NoPages, NoResources, Refused, Sick, Survived, Undelivered};

/// Fault × phase: bring-up, life, page commands of the life, teardown.
const RULES: [(Fault, [Outcome; 4]); 16] = [
    (Fault::Status, [Refused; 4]),
    (Fault::Delivery, [Undelivered; 4]),
    (Fault::Never, [NoAnswer; 4]),
    (Fault::Late, [Survived; 4]),
    (Fault::TooLate, [NoAnswer; 4]),
    (Fault::EventLost, [Survived; 4]),
    (Fault::OutOfOrder, [Survived; 4]),
    (Fault::PagesWanted, [Survived; 4]),
    (Fault::PagesOffered, [Survived; 4]),
    // Before the event queue for page requests is there, and after it has gone, nobody hears the firmware ask. A page command
    // does not wait for pages itself.
    (Fault::PagesRefused, [Survived, NoResources, Survived, Survived]),
    (Fault::StrayEvents, [Survived; 4]),
    (Fault::WrongSlot, [Survived; 4]),
    (Fault::Overlong, [Survived; 4]),
    (Fault::Removed, [Gone; 4]),
    (Fault::Fatal, [Sick; 4]),
    (Fault::Nonfatal, [Survived; 4]),
];

/// Where the rule of the phase does not hold: fault, phase, command, which of its kind (0 for each).
const EXCEPTIONS: [(Fault, Phase, &str, usize, Outcome); 14] = [
    // The version is for people who look on: the firmware need not take it.
    (Fault::Status, Phase::BringUp, "SET_DRIVER_VERSION", 0, Survived),
    // What the firmware asks for at the start it must have.
    (Fault::PagesRefused, Phase::BringUp, "QUERY_PAGES", 0, NoPages),
    // The event queue for page requests is the third; it is there while these run.
    (Fault::PagesRefused, Phase::BringUp, "CREATE_EQ", 4, NoResources),
    (Fault::PagesRefused, Phase::BringUp, "QUERY_VPORT_STATE", 0, NoResources),
    (Fault::PagesRefused, Phase::BringUp, "QUERY_NIC_VPORT_CONTEXT", 0, NoResources),
    (Fault::PagesRefused, Phase::BringUp, "MODIFY_NIC_VPORT_CONTEXT", 0, NoResources),
    (Fault::PagesRefused, Phase::BringUp, "SET_ROCE_ADDRESS", 0, NoResources),
    (Fault::PagesRefused, Phase::BringUp, "QUERY_HCA_VPORT_CONTEXT", 0, NoResources),
    (Fault::PagesRefused, Phase::BringUp, "QUERY_HCA_VPORT_GID", 0, NoResources),
    (Fault::PagesRefused, Phase::BringUp, "QUERY_HCA_VPORT_PKEY", 0, NoResources),
    // It goes second, after that of the completions.
    (Fault::PagesRefused, Phase::Teardown, "SET_ROCE_ADDRESS", 0, NoResources),
    (Fault::PagesRefused, Phase::Teardown, "MODIFY_NIC_VPORT_CONTEXT", 0, NoResources),
    (Fault::PagesRefused, Phase::Teardown, "DESTROY_EQ", 1, NoResources),
    (Fault::PagesRefused, Phase::Teardown, "DESTROY_EQ", 2, NoResources),
];

/// How the command of a cell ends.
pub fn outcome(fault: Fault, row: &Row) -> Outcome {
    let exception = EXCEPTIONS.iter().find(|(f, phase, name, nth, _)| {
        (*f, *phase, *name) == (fault, row.phase, row.name) && (*nth == 0 || *nth == row.nth)
    });
    let rule = RULES.iter().find(|(f, _)| *f == fault).expect("a rule for each fault");
    exception.map_or(rule.1[row.phase as usize], |e| e.4)
}

/// The outcome that an error stands for, if it is one of those that may come.
pub fn classify(error: &Error) -> Option<Outcome> {
    Some(match error {
        Error::Command { status, syndrome: SYNDROME, .. } if status.0 == STATUS => Refused,
        Error::Command { status, .. } if status.0 == 0xf => NoResources,
        Error::Delivery { code, .. } if code.0 == DELIVERY => Undelivered,
        Error::Timeout { waiting_for: mlx5::error::WaitingFor::Completion, .. } => NoAnswer,
        Error::NoPages { .. } => NoPages,
        Error::Failed { why: Failure::Gone, sent: true, .. } => Gone,
        Error::Failed { why: Failure::Health(syndrome), sent: true, .. } if syndrome.0 == FATAL => Sick,
        _ => return None,
    })
}

impl Outcome {
    /// Linux's number for it.
    pub fn errno(self) -> i32 {
        match self {
            Survived => 0,
            Refused => 22,           // EINVAL, for BAD_PARAM
            Undelivered | Sick => 5, // EIO
            NoAnswer => 110,         // ETIMEDOUT
            NoResources => 11,       // EAGAIN
            NoPages => 12,           // ENOMEM
            Gone => 19,              // ENODEV
        }
    }

    /// What the error must advise, one of these words.
    pub fn advice(self) -> &'static [&'static str] {
        match self {
            Survived => &[],
            Refused => &["check its arguments"],
            NoResources => &["more memory"],
            Undelivered => &["reset it"],
            NoAnswer | Sick => &["reset the device and open it again"],
            NoPages => &["free some"],
            Gone => &["check the slot"],
        }
    }

    /// The device answers further commands.
    pub fn usable(self) -> bool {
        !matches!(self, Gone | Sick)
    }

    /// Mark in the table.
    pub fn mark(self) -> &'static str {
        match self {
            Survived => "ok",
            Refused => "EINVAL status",
            Undelivered => "EIO delivery",
            NoAnswer => "ETIMEDOUT",
            NoResources => "EAGAIN",
            NoPages => "ENOMEM",
            Gone => "ENODEV gone",
            Sick => "EIO health",
        }
    }
}

pub const COMMANDS: &str = "command queue";
pub const MAILBOXES: &str = "mailboxes of a command without an answer";
const PAGES: &str = "page of the firmware";
const EVENTS: &str = "event queue";
const BUFFER: &str = "registered buffer";
const CALLERS: &str = "the caller's registered memory";
const CQ: &str = "completion queue";
const RECORD: &str = "doorbell record of a completion queue";
const SRQ: &str = "shared receive queue";
const QP: &str = "queue pair";

/// A command of the run: phase, name, and which of its kind in the phase.
type Place = (Phase, &'static str, usize);

/// What the device has from which command to which, both included, in order of the commands.
const LENT: [(&str, Place, Place); 9] = [
    (COMMANDS, (Phase::BringUp, "ENABLE_HCA", 1), (Phase::Teardown, "DISABLE_HCA", 1)),
    (PAGES, (Phase::BringUp, "MANAGE_PAGES", 1), (Phase::Teardown, "MANAGE_PAGES", 1)),
    (EVENTS, (Phase::BringUp, "CREATE_EQ", 1), (Phase::Teardown, "DESTROY_EQ", 4)),
    (BUFFER, (Phase::Life, "CREATE_MKEY", 1), (Phase::Life, "DESTROY_MKEY", 2)),
    (CALLERS, (Phase::Life, "CREATE_MKEY", 2), (Phase::Life, "DESTROY_MKEY", 1)),
    (CQ, (Phase::Life, "CREATE_CQ", 1), (Phase::Life, "DESTROY_CQ", 1)),
    (RECORD, (Phase::Life, "CREATE_CQ", 1), (Phase::Life, "DESTROY_CQ", 1)),
    (SRQ, (Phase::Life, "CREATE_RMP", 1), (Phase::Life, "DESTROY_RMP", 1)),
    (QP, (Phase::Life, "CREATE_QP", 1), (Phase::Life, "DESTROY_QP", 1)),
];

/// Memory that stays with the device when the cell is over, by name: what nobody can know that it has let go of.
pub fn kept(function: Function, fault: Fault, rows: &[Row], n: usize) -> BTreeSet<&'static str> {
    let row = &rows[n - 1];
    let outcome = outcome(fault, row);
    let names: &[&str] = match outcome {
        // A reset takes everything from the device; one that is gone cannot be reset.
        _ if function.reset && outcome != Gone => return BTreeSet::new(),
        Survived | NoPages => &[],
        Gone | Sick => return with_mailboxes(lent(rows, n), row),
        Refused | NoResources => refused(row),
        Undelivered => undelivered(row),
        NoAnswer if fault == Fault::Never => never(row),
        NoAnswer => too_late(row),
    };
    let all: BTreeSet<_> = names.iter().copied().collect();
    // An answer that does not come at all leaves its slot and its mailboxes with the device. One that is too late comes
    // while objects live, not before the end of a failed open or of a teardown.
    let open = fault == Fault::Never || matches!(row.phase, Phase::BringUp | Phase::Teardown);
    if outcome == NoAnswer && open {
        let mut all = with_mailboxes(all, row);
        all.insert(COMMANDS);
        return all;
    }
    all
}

fn with_mailboxes(mut names: BTreeSet<&'static str>, row: &Row) -> BTreeSet<&'static str> {
    if row.mailboxes {
        names.insert(MAILBOXES);
    }
    names
}

/// What the device has while command `n` runs.
fn lent(rows: &[Row], n: usize) -> BTreeSet<&'static str> {
    let at = |(phase, name, nth): Place| {
        let is = |row: &Row| (row.phase, row.name, row.nth) == (phase, name, nth);
        1 + rows.iter().position(is).expect("a command of the run")
    };
    LENT.iter().filter(|(_, from, to)| (at(*from)..=at(*to)).contains(&n)).map(|(name, ..)| *name).collect()
}

/// The command was not carried out, and everybody knows. What it would have made is not there; what it would have ended
/// goes on, unless it can be tried again.
fn refused(row: &Row) -> &'static [&'static str] {
    match (row.phase, row.name) {
        (Phase::Teardown, "DESTROY_EQ") => &[EVENTS],
        (Phase::Teardown, "TEARDOWN_HCA") => &[PAGES, COMMANDS],
        (Phase::Teardown, "MANAGE_PAGES") => &[PAGES],
        (Phase::Teardown, "DISABLE_HCA") => &[COMMANDS],
        _ => &[],
    }
}

/// The command was not carried out, but the driver cannot know that. What it would have made counts as made.
fn undelivered(row: &Row) -> &'static [&'static str] {
    match (row.phase, row.name, row.nth) {
        // What was not enabled cannot be disabled, what was not started not stopped.
        (Phase::BringUp, "ENABLE_HCA", _) => &[COMMANDS],
        (Phase::BringUp, "INIT_HCA", _) => &[PAGES, COMMANDS],
        // These pages the firmware does not have, so it cannot return them. The second page command takes pages back, the
        // third gives none: they can be repeated at the end.
        (Phase::BringUp, "MANAGE_PAGES", _) | (Phase::Pages, "MANAGE_PAGES", 1) => &[PAGES],
        (Phase::BringUp, "CREATE_EQ", _) => &[EVENTS],
        (Phase::Life, "CREATE_MKEY", 1) => &[BUFFER],
        (Phase::Life, "CREATE_MKEY", _) => &[CALLERS],
        (Phase::Life, "CREATE_CQ", _) => &[CQ, RECORD],
        (Phase::Life, "CREATE_RMP", _) => &[SRQ],
        (Phase::Life, "CREATE_QP", _) => &[QP],
        _ => refused(row),
    }
}

/// As [`undelivered`]; besides, the slot of page commands is taken for good, so no page comes back.
fn never(row: &Row) -> &'static [&'static str] {
    if row.name == "MANAGE_PAGES" { &[PAGES] } else { undelivered(row) }
}

/// The command was carried out, but the driver does not know it in time.
fn too_late(row: &Row) -> &'static [&'static str] {
    match (row.phase, row.name, row.nth) {
        (Phase::BringUp, "ENABLE_HCA" | "INIT_HCA", _) => &[],
        // The slot of page commands is taken till after the end.
        (Phase::BringUp, "MANAGE_PAGES", _) => &[PAGES],
        // The firmware has given pages up; which ones was in the answer that came too late.
        (Phase::Pages, "MANAGE_PAGES", 2) => &[PAGES],
        (Phase::Pages, "MANAGE_PAGES", _) => &[],
        // A queue that is there and has no name holds on to those it reports to.
        (Phase::Life, "CREATE_CQ", _) => &[CQ, RECORD, EVENTS],
        (Phase::Life, "CREATE_QP", _) => &[QP, CQ, RECORD, EVENTS],
        // What is gone cannot be destroyed again.
        (Phase::Life, "DESTROY_MKEY", 1) => &[CALLERS],
        (Phase::Life, "DESTROY_MKEY", _) => &[BUFFER],
        (Phase::Life, "DESTROY_CQ", _) => &[CQ, RECORD],
        (Phase::Life, "DESTROY_RMP", _) => &[SRQ],
        (Phase::Life, "DESTROY_QP", _) => &[QP],
        _ => undelivered(row),
    }
}
