//! A run without faults: the commands that there are.

use crate::life::{STEPS, World};
use crate::port::{Function, Port};

/// Part of a device's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    BringUp,
    Life,
    /// Page commands of the life: no caller waits for them, counters tell.
    Pages,
    Teardown,
}

/// A command of the clean run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub phase: Phase,
    /// The call that sends it.
    pub call: &'static str,
    pub opcode: u16,
    pub name: &'static str,
    /// Which of the phase's commands with this opcode it is, from 1.
    pub nth: usize,
    /// Input or output does not fit the entry.
    pub mailboxes: bool,
}

/// The commands of a device that is opened, used and closed, in order.
pub fn run(function: Function) -> Vec<Row> {
    let port = Port::new(function);
    let dev = port.open(function).expect("it comes up");
    let mut calls = vec![("open", port.model.commands().len())];
    let mut world = World::new(&dev, &port);
    for (call, step) in STEPS {
        step(&mut world).unwrap_or_else(|e| panic!("{call}: {e}"));
        calls.push((call, port.model.commands().len()));
    }
    drop(world);
    dev.close().map_err(|e| e.error).expect("it is closed");
    calls.push(("close", port.model.commands().len()));
    assert_eq!((port.model.violations(), port.model.dma_outstanding()), (vec![], (0, 0)));
    let mut rows: Vec<Row> = Vec::new();
    for (i, record) in port.model.commands().iter().enumerate() {
        let call = calls.iter().find(|(_, end)| i < *end).expect("each command belongs to a call").0;
        let phase = match call {
            "open" => Phase::BringUp,
            "close" => Phase::Teardown,
            _ if call.starts_with("service") => Phase::Pages,
            _ => Phase::Life,
        };
        let same = |row: &&Row| (row.phase, row.opcode) == (phase, record.opcode);
        let nth = 1 + rows.iter().filter(same).count();
        let mailboxes = record.in_len > 16 || record.out_len > 16;
        rows.push(Row { phase, call, opcode: record.opcode, name: record.name, nth, mailboxes });
    }
    rows
}
