//! A failure at each command of bring-up and teardown: the error names the command and says what to do, nothing panics
//! or hangs, and memory and pages come back. The commands are those of a clean run, so none is skipped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod control;
#[path = "control/poor.rs"]
mod poor;

use control::{model, open};
use mlx5::{DeviceConfig, Error};
use mlx5_hw::platform::Platform;
use mlx5_model::{CommandRecord, Effect, Fault, Match, Model, ModelConfig};

const MS: u64 = 1_000_000;
/// Time for a command, and for all of the unwinding.
const COMMAND: u64 = 20 * MS;
const UNWIND: u64 = 100 * MS;

fn config(device_id: u16) -> DeviceConfig {
    let mut config = DeviceConfig::new(device_id);
    config.timeouts.command = COMMAND;
    config.timeouts.pages = COMMAND;
    config.timeouts.drop = UNWIND;
    config
}

fn function(device_id: u16) -> Model {
    Model::new(ModelConfig { device_id, ..ModelConfig::default() })
}

/// The commands of a clean run; those up to the number returned bring the function up.
fn clean_run(device_id: u16) -> (Vec<CommandRecord>, usize) {
    let model = function(device_id);
    let device = open(&model, config(device_id)).unwrap();
    let up = model.commands().len();
    device.close().unwrap();
    (model.commands(), up)
}

/// How a run ended in which command `n`, counted from 1, failed.
struct Run {
    model: Model,
    outcome: Result<(), Error>,
    /// Opening succeeded.
    opened: bool,
    took: u64,
}

fn run_with(device_id: u16, n: usize, effect: Effect) -> Run {
    let model = function(device_id);
    model.inject(Fault::Command { at: Match::Nth(n as u64), effect });
    let started = model.now();
    let (outcome, opened) = match open(&model, config(device_id)) {
        Ok(device) => (device.close().map_err(|returned| returned.error), true),
        Err(e) => (Err(e), false),
    };
    let took = model.now() - started;
    Run { model, outcome, opened, took }
}

/// Commands whose refusal does not matter.
fn tolerated(record: &CommandRecord, effect: Effect) -> bool {
    record.name == "SET_DRIVER_VERSION" && matches!(effect, Effect::Status { .. })
}

fn each_command_fails_with(effect: Effect, device_id: u16, right: impl Fn(&Error) -> bool) {
    let (commands, up) = clean_run(device_id);
    assert!(commands.len() > 30, "a clean run has commands");
    for (i, record) in commands.iter().enumerate() {
        let Run { model, outcome, opened, took } = run_with(device_id, i + 1, effect);
        let what = format!("{effect:?} at command {}, {}", i + 1, record.name);
        assert_eq!(model.commands().get(i).map(|c| c.name), Some(record.name), "{what}: the run went another way");
        if tolerated(record, effect) {
            assert_eq!(outcome, Ok(()), "{what}");
        } else {
            let error = outcome.expect_err(&what);
            assert_eq!(opened, i >= up, "{what}");
            assert!(right(&error), "{what}: {error:?}");
            assert_eq!(error.opcode().map(|o| o.0), Some(record.opcode), "{what}: {error:?}");
            let words = error.to_string();
            assert!(words.contains(record.name), "{what}: the command is not named: {words}");
            assert!(words.contains("reset") || words.contains("check"), "{what}: nothing is advised: {words}");
        }
        assert_eq!(model.dma_outstanding(), (0, 0), "{what}: memory not given back");
        assert_eq!(model.firmware_pages(), 0, "{what}: pages not given back");
        assert!(took <= COMMAND + UNWIND + 5 * MS, "{what}: took {took} ns");
        let violations = model.violations();
        assert!(violations.is_empty(), "{what}: {violations:#?}");
    }
}

const REFUSED: Effect = Effect::Status { status: 3, syndrome: 0x00bad5ed };

#[test]
fn each_command_is_refused() {
    for id in [0x1018, 0x1017] {
        each_command_fails_with(
            REFUSED,
            id,
            |e| matches!(e, Error::Command { status, syndrome: 0x00bad5ed, .. } if status.0 == 3),
        );
    }
}

#[test]
fn each_command_never_completes() {
    each_command_fails_with(Effect::Never, 0x1018, |e| matches!(e, Error::Timeout { .. }) && e.errno() == 110);
}

#[test]
fn each_command_cannot_be_delivered() {
    each_command_fails_with(Effect::Delivery(6), 0x1018, |e| matches!(e, Error::Delivery { code, .. } if code.0 == 6));
}

#[test]
fn each_command_completes_after_its_deadline() {
    each_command_fails_with(Effect::Late(COMMAND + 5 * MS), 0x1018, |e| matches!(e, Error::Timeout { .. }));
}

#[test]
fn each_event_of_a_command_is_lost() {
    let (commands, _) = clean_run(0x1018);
    for (i, record) in commands.iter().enumerate() {
        let Run { model, outcome, took, .. } = run_with(0x1018, i + 1, Effect::EventLost);
        assert_eq!(outcome, Ok(()), "command {}", i + 1);
        assert!(took < COMMAND, "a lost event costs {took} ns");
        control::assert_clean(&model, record.name);
    }
}

#[test]
fn pages_are_asked_for_and_offered_back_in_the_middle_of_each_command() {
    let (commands, _) = clean_run(0x1018);
    for pages in [7, -3] {
        for (i, record) in commands.iter().enumerate() {
            let Run { model, outcome, .. } = run_with(0x1018, i + 1, Effect::PageRequest(pages));
            assert_eq!(outcome, Ok(()), "{pages} pages at command {}, {}", i + 1, record.name);
            control::assert_clean(&model, record.name);
        }
    }
}

#[test]
fn the_device_is_removed_before_each_command() {
    let (commands, _) = clean_run(0x1018);
    for i in 0..commands.len() {
        let model = model();
        let mut config = config(0x1018);
        let (gone, at) = (model.clone(), i + 1);
        config.trace = Some(std::sync::Arc::new(move |_| {
            if gone.commands().len() >= at {
                gone.inject(Fault::Removed);
            }
        }));
        let started = model.now();
        let outcome = match open(&model, config) {
            Ok(device) => device.close().map_err(|r| r.error),
            Err(e) => Err(e),
        };
        // After the last command nothing is left to fail.
        let last = i + 1 == commands.len();
        match outcome {
            Ok(()) => assert!(last, "removed after command {}", i + 1),
            Err(e) => assert!(!last && matches!(e, Error::Failed { why: mlx5::Failure::Gone, .. }), "{e:?}"),
        }
        assert!(model.now() - started < COMMAND + UNWIND, "removed after command {}", i + 1);
    }
}

/// The same without a reset to fall back on: what the device may still write to is kept and named, and only that.
fn each_command_fails_without_reset(effect: Effect) {
    let (commands, _) = clean_run(0x1018);
    for (i, record) in commands.iter().enumerate() {
        let what = format!("{effect:?} at command {}, {}", i + 1, record.name);
        let model = model();
        model.inject(Fault::Command { at: Match::Nth(i as u64 + 1), effect });
        let platform = poor::Poor { no_reset: true, ..poor::Poor::new(&model) };
        let started = model.now();
        let kept = match mlx5::Device::open(platform, model.clone(), config(0x1018)) {
            Ok(device) => match device.close() {
                Ok(()) => Some(0),
                Err(returned) => Some(returned.object.leaked().len()),
            },
            Err(_) => None,
        };
        assert!(model.now() - started <= COMMAND + 6 * COMMAND + UNWIND, "{what}");
        let outstanding = model.dma_outstanding().0;
        if let Some(kept) = kept {
            assert_eq!(kept, outstanding, "{what}: what is kept is named");
        }
        let unsafe_ones: Vec<_> = model
            .violations()
            .into_iter()
            .filter(|v| {
                use mlx5_model::ViolationKind::{CommandOrder, ObjectsAtTeardown, PagesAtDisable};
                !matches!(v.kind, CommandOrder | ObjectsAtTeardown | PagesAtDisable)
            })
            .collect();
        assert!(unsafe_ones.is_empty(), "{what}: {unsafe_ones:#?}");
    }
}

#[test]
fn each_command_is_refused_on_a_platform_without_reset() {
    each_command_fails_without_reset(REFUSED);
}

#[test]
fn each_command_never_completes_on_a_platform_without_reset() {
    each_command_fails_without_reset(Effect::Never);
}
