//! The fault matrix: each command of a device's life, from ENABLE_HCA to DISABLE_HCA, meets each fault. A cell ends in the
//! typed error that the rules (`rules.rs`) say, which names the command and says what to do, or survives; it never
//! panics, hangs or loses memory. The commands are those of a clean run (`clean.rs`), so none is skipped.
//!
//! `cargo test --test fault_matrix -- --nocapture` prints the tables.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod cases;
mod cell;
mod clean;
mod faults;
mod life;
mod port;
mod rules;
mod table;

use std::collections::BTreeSet;
use std::path::Path;

use faults::FAULTS;
use port::{Function, IB, PF, VF};

fn each_cell_ends_as_the_rules_say(title: &str, function: Function, commands: usize) {
    let rows = clean::run(function);
    let mut table = table::Table::new(title, &rows);
    let mut wrong = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        for fault in FAULTS {
            let problems = cell::run(function, *fault, &rows, i + 1);
            table.add(*fault, row, problems.is_empty());
            for problem in problems {
                wrong.push(format!("{fault:?} at {} {} ({} of {}): {problem}", row.call, row.name, row.nth, i + 1));
            }
        }
    }
    table.print();
    assert!(wrong.is_empty(), "{} problems:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!((rows.len(), table.cells()), (commands, commands * 16), "cells were added or lost");
}

#[test]
fn virtual_function() {
    each_cell_ends_as_the_rules_say("virtual function", VF, 73);
}

#[test]
fn physical_function() {
    each_cell_ends_as_the_rules_say("physical function", PF, 74);
}

#[test]
fn virtual_function_on_a_platform_without_reset() {
    each_cell_ends_as_the_rules_say("virtual function, no reset", VF.without_reset(), 73);
}

#[test]
fn physical_function_on_a_platform_without_reset() {
    each_cell_ends_as_the_rules_say("physical function, no reset", PF.without_reset(), 74);
}

#[test]
fn function_with_an_infiniband_port() {
    each_cell_ends_as_the_rules_say("InfiniBand", IB, 66);
}

#[test]
fn function_with_an_infiniband_port_on_a_platform_without_reset() {
    each_cell_ends_as_the_rules_say("InfiniBand, no reset", IB.without_reset(), 66);
}

/// Opcodes that the sources of the driver's commands name: those that it can send.
fn opcodes_of_the_driver() -> BTreeSet<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("hw/src/cmd");
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let source = std::fs::read_to_string(&path).unwrap();
        for part in source.split("Opcode::").skip(1) {
            let name: String = part.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            if name.chars().all(|c| !c.is_ascii_lowercase()) && !name.is_empty() {
                found.insert(name);
            }
        }
    }
    found
}

#[test]
fn each_command_that_the_driver_can_send_is_in_the_matrix() {
    let by_name = |rows: &[clean::Row]| rows.iter().map(|row| row.opcode).collect::<BTreeSet<_>>();
    let matrix: BTreeSet<u16> = [VF, PF, IB].iter().flat_map(|f| by_name(&clean::run(*f))).collect();
    let source = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("hw/src/cmd/opcode.rs")).unwrap();
    let number = |name: &str| {
        let line = source.lines().map(str::trim).find(|l| l.split([' ']).next() == Some(name)).expect("declared");
        u16::from_str_radix(line.rsplit("0x").next().unwrap().trim_end_matches(';'), 16).unwrap()
    };
    let driver: BTreeSet<u16> = opcodes_of_the_driver().iter().map(|name| number(name)).collect();
    assert!(driver.len() > 30, "only {} found: is the pattern still right?", driver.len());
    assert_eq!(driver, matrix);
}
