//! One cell: a device's whole life in which one command meets one fault.

use std::collections::BTreeSet;

use mlx5::device::DeviceInfo;
use mlx5::{AsyncEvent, CommandCounters, Device, Error, Failure, Leaked, PageCounters};
use mlx5_hw::platform::Platform;
use mlx5_model::ViolationKind::{CommandOrder, ObjectsAtTeardown, PagesAtDisable};

use crate::clean::{Phase, Row};
use crate::faults::{Fault, TOO_LATE};
use crate::life::{STEPS, World};
use crate::port::{COMMAND, Function, MS, Port, UNWIND};
use crate::rules::{self, Outcome};

/// What was seen in a cell.
#[derive(Default)]
struct Seen {
    /// The first error that a caller was told.
    told: Option<Error>,
    /// The call that told it.
    call: &'static str,
    /// How the same call ended when it was made again.
    again: Option<Result<(), Error>>,
    /// How another verb ended after the fault.
    next: Option<Result<(), Error>>,
    closed: Option<Result<(), Error>>,
    /// Time that the test let pass itself.
    stepped: u64,
    /// What the device had counted before it was closed, and what it had said of itself.
    counters: Option<(CommandCounters, PageCounters, DeviceInfo)>,
    leaked: Vec<Leaked>,
    /// Why the device had failed before it was closed, and the events that said so.
    fatal: (Option<Failure>, Vec<AsyncEvent>),
}

/// Runs a cell and gives what is wrong with it.
pub fn run(function: Function, fault: Fault, rows: &[Row], n: usize) -> Vec<String> {
    let row = &rows[n - 1];
    let port = Port::new(function);
    fault.inject(&port, n, row);
    let started = port.now();
    let seen = live(&port, function, fault, row.phase);
    let took = port.now() - started - seen.stepped;
    let mut wrong = Vec::new();
    check_outcome(&port, fault, row, n, &seen, &mut wrong);
    check_afterwards(fault, row, &seen, &mut wrong);
    check_memory(&port, function, fault, rows, n, &seen, &mut wrong);
    check_rules(&port, function, &mut wrong);
    let (failure, events) = &seen.fatal;
    if *events != Vec::from_iter(failure.map(AsyncEvent::DeviceFatal)) {
        wrong.push(format!("failed: {failure:?}, events that say so: {events:?}"));
    }
    if let Some(counters) = &seen.counters {
        check_counters(fault, row, counters, &mut wrong);
    }
    // A fault that only costs time costs little, unless it is time itself.
    let limit = match rules::outcome(fault, row) {
        Outcome::Survived if fault != Fault::Late => COMMAND / 2,
        _ if function.reset => COMMAND + UNWIND + 10 * MS,
        _ => 3 * COMMAND + UNWIND + 10 * MS,
    };
    if took > limit {
        wrong.push(format!("took {took} ns"));
    }
    wrong
}

/// A whole life: open, all verbs, close.
fn live(port: &Port, function: Function, fault: Fault, phase: Phase) -> Seen {
    let mut seen = Seen { call: "open", ..Seen::default() };
    match port.open(function) {
        Ok(dev) => {
            use_all(port, &dev, fault, &mut seen);
            if seen.next.is_none() && phase != Phase::Teardown {
                seen.next = Some(another_verb(&dev));
            }
            seen.counters = Some((dev.command_counters(), dev.page_counters(), *dev.info()));
            let events = std::iter::from_fn(|| dev.try_get_async_event());
            let events = events.filter(|event| matches!(event, AsyncEvent::DeviceFatal(_))).collect();
            seen.fatal = (dev.failure(), events);
            close(dev, &mut seen);
        }
        Err(error) => seen.told = Some(error),
    }
    seen
}

fn another_verb(dev: &Device) -> Result<(), Error> {
    dev.alloc_pd().and_then(|pd| pd.dealloc().map_err(|back| back.error))
}

fn use_all(port: &Port, dev: &Device, fault: Fault, seen: &mut Seen) {
    let mut world = World::new(dev, port);
    for (call, step) in STEPS {
        let done = step(&mut world);
        if fault == Fault::TooLate {
            // Whatever came too late is there now.
            port.model.step(TOO_LATE);
            seen.stepped += TOO_LATE;
        }
        let Err(error) = done else { continue };
        if seen.told.is_some() {
            // One fault, one error; what it leaves behind may cost more.
            break;
        }
        (seen.told, seen.call) = (Some(error), call);
        seen.next = Some(another_verb(dev));
        seen.again = Some(step(&mut world));
        if seen.again.is_some_and(|again| again.is_err()) {
            break;
        }
    }
}

fn close(dev: Device, seen: &mut Seen) {
    let closed = match dev.close() {
        Ok(()) => Ok(()),
        Err(back) => {
            seen.leaked = back.object.leaked();
            Err(back.error)
        }
    };
    if let (None, Err(error)) = (seen.told, closed) {
        (seen.told, seen.call) = (Some(error), "close");
    }
    seen.closed = Some(closed);
}

/// The error is that of the rules, names the command and says what to do.
fn check_outcome(port: &Port, fault: Fault, row: &Row, n: usize, seen: &Seen, wrong: &mut Vec<String>) {
    let expected = rules::outcome(fault, row);
    let taken = port.model.commands();
    if taken.get(n - 1).map(|c| c.name) != Some(row.name) {
        wrong.push(format!("the run went another way: command {n} is {:?}", taken.get(n - 1)));
    }
    // Nobody waits for page commands while objects live: the trace has them, and the counters.
    let traced = port.failed.lock().unwrap().first().copied();
    let error = if row.phase == Phase::Pages { traced } else { seen.told };
    let Some(error) = error else {
        if expected != Outcome::Survived {
            wrong.push("no error".into());
        }
        return;
    };
    if rules::classify(&error) != Some(expected) {
        wrong.push(format!("{} told {error:?}", seen.call));
        return;
    }
    if row.phase != Phase::Pages && seen.call != row.call {
        wrong.push(format!("told by {}", seen.call));
    }
    let (name, opcode) = match expected {
        // The page command that would have followed.
        Outcome::NoPages => ("MANAGE_PAGES", 0x108),
        _ => (row.name, row.opcode),
    };
    let words = error.to_string();
    if error.opcode().map(|o| o.0) != Some(opcode) || !words.contains(name) {
        wrong.push(format!("the command is not named: {words}"));
    }
    if !expected.advice().iter().any(|advice| words.contains(advice)) {
        wrong.push(format!("no advice: {words}"));
    }
    if error.errno() != expected.errno() {
        wrong.push(format!("errno {}", error.errno()));
    }
}

/// The device goes on, or says that it does not.
fn check_afterwards(fault: Fault, row: &Row, seen: &Seen, wrong: &mut Vec<String>) {
    let expected = rules::outcome(fault, row);
    let in_use = matches!(row.phase, Phase::Life | Phase::Pages);
    let unsent = |result: &Result<(), Error>| matches!(result, Err(Error::Failed { sent: false, .. }));
    if in_use {
        let next = seen.next.unwrap_or(Err(Error::Busy));
        let right = if expected.usable() { next.is_ok() } else { unsent(&next) };
        if !right {
            wrong.push(format!("the next verb: {next:?}"));
        }
    }
    if row.phase == Phase::Life && expected != Outcome::Survived {
        let again = seen.again.unwrap_or(Err(Error::Busy));
        let right = match expected {
            // Carried out, too late: the same again may be too much.
            _ if fault == Fault::TooLate => again.is_ok() || matches!(again, Err(Error::Command { .. })),
            _ if expected.usable() => again.is_ok(),
            _ => unsent(&again),
        };
        if !right {
            wrong.push(format!("the same again: {again:?}"));
        }
    }
}

/// Nothing is lost: all memory comes back, or is kept, counted and named.
fn check_memory(
    port: &Port,
    function: Function,
    fault: Fault,
    rows: &[Row],
    n: usize,
    seen: &Seen,
    wrong: &mut Vec<String>,
) {
    let told = port.leaked.lock().unwrap().clone();
    let size = |pieces: &[Leaked]| (pieces.len(), pieces.iter().map(|p| p.size).sum::<usize>());
    if size(&told) != port.model.dma_outstanding() {
        wrong.push(format!("outstanding {:?}, told {told:?}", port.model.dma_outstanding()));
    }
    if seen.closed.is_some() && size(&seen.leaked) != size(&told) {
        wrong.push(format!("Device::leaked() says {:?}, the hook {:?}", size(&seen.leaked), size(&told)));
    }
    let names: BTreeSet<_> = told.iter().map(|piece| piece.what).collect();
    let expected = rules::kept(function, fault, rows, n);
    if names != expected {
        wrong.push(format!("kept {names:?}, not {expected:?}"));
    }
    if expected.is_empty() && port.model.firmware_pages() != 0 {
        wrong.push(format!("{} pages are still the firmware's", port.model.firmware_pages()));
    }
    let closed = seen.closed.unwrap_or(Ok(()));
    let right = match rules::outcome(fault, &rows[n - 1]) {
        Outcome::Survived => closed.is_ok(),
        Outcome::Gone => closed.is_err() || seen.closed.is_none(),
        _ if rows[n - 1].phase == Phase::Teardown => closed.is_err(),
        // What was told before need not be told again, but that something is kept must be.
        _ => seen.closed.is_none() || closed.is_err() != expected.is_empty(),
    };
    if !right {
        wrong.push(format!("closed: {closed:?}"));
    }
    if matches!(closed, Err(Error::Failed { why, sent: false, .. }) if why != Failure::Gone && function.reset) {
        wrong.push("closing sends commands to a device that has failed instead of resetting it".into());
    }
}

/// No rule of the hardware is broken.
fn check_rules(port: &Port, function: Function, wrong: &mut Vec<String>) {
    for violation in port.model.violations() {
        // Without a reset there is nothing better than to go on with what may have been done or not.
        let unavoidable = matches!(violation.kind, CommandOrder | ObjectsAtTeardown | PagesAtDisable);
        if function.reset || !unavoidable {
            wrong.push(violation.to_string());
        }
    }
}

/// The fault has happened, and what the device says of itself is what it is.
fn check_counters(
    fault: Fault,
    row: &Row,
    (commands, pages, info): &(CommandCounters, PageCounters, DeviceInfo),
    wrong: &mut Vec<String>,
) {
    // The life itself has firmware ask for pages twice, and once in vain.
    let (requests, refused) = (2, 1);
    let waits = row.phase == Phase::Life;
    let in_use = waits || row.phase == Phase::Pages;
    let happened = match fault {
        Fault::EventLost if in_use => commands.lost_events == 1,
        Fault::WrongSlot if in_use => commands.lost_events == 1 && commands.stray_events == 1,
        Fault::StrayEvents if in_use => commands.stray_events == 31,
        Fault::Never if in_use => (commands.timed_out, commands.late) == (1, 0),
        Fault::TooLate if in_use => (commands.timed_out, commands.late) == (1, 1),
        Fault::OutOfOrder | Fault::PagesWanted | Fault::PagesOffered if waits => {
            (pages.requests, pages.refused) == (requests + 1, refused)
        }
        Fault::PagesRefused if waits => (pages.requests, pages.refused) == (requests, refused + 1),
        _ => true,
    };
    if !happened {
        wrong.push(format!("counted {commands:?}, {pages:?}"));
    }
    let right = match info.ethernet {
        true => {
            let gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x15, 0xb3, 0xff, 0xfe, 0x00, 0x00, 0x01];
            (info.mac, info.gid, info.mtu != 0) == ([0x02, 0x15, 0xb3, 0, 0, 1], Some(gid), true)
        }
        false => {
            let gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x15, 0xb3, 0xff, 0xfe, 0x00, 0x00, 0x02];
            (info.lid, info.gid, info.pkey) == (0x15, Some(gid), 0xffff)
        }
    };
    let always = (info.firmware, info.issi, info.port_up, info.vendor_id) == ((16, 35, 4030), 1, true, 0x2c9);
    if !right || !always {
        wrong.push(format!("the device says of itself {info:?}"));
    }
}
