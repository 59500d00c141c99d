//! Public reports (`tests/data/public-cases.jsonl`) of commands and health, driven through the driver on the model.

use std::sync::atomic::Ordering;

use mlx5::{Device, DeviceConfig, Error, Failure, Health};
use mlx5_hw::cmd::{Command, Opcode, QueryAdapter, Sink, Source};
use mlx5_hw::platform::{Bar, Platform};
use mlx5_model::{Effect, Fault, Match, Model};
use serde_json::Value;

use crate::port::{MS, Port, VF};

fn all() -> Vec<Value> {
    let text = include_str!("../data/public-cases.jsonl");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn case(id: &str) -> Value {
    all().into_iter().find(|case| case["id"] == id).unwrap_or_else(|| panic!("case {id}"))
}

fn number(value: &Value) -> u32 {
    value.as_u64().unwrap().try_into().unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn open(model: &Model) -> Result<Device, Error> {
    Device::open(model.clone(), model.clone(), DeviceConfig::new(VF.device_id))
}

/// A command of which only the opcode matters.
struct Bare<const OPCODE: u16>;

impl<const OPCODE: u16> Command for Bare<OPCODE> {
    const OPCODE: Opcode = Opcode(OPCODE);
    type Out = ();

    fn in_len(&self) -> usize {
        16
    }

    fn out_len(&self) -> usize {
        16
    }

    fn encode(&self, inbox: &mut dyn Sink) {
        inbox.put(0, &[mlx5_hw::be::Be32::new(u32::from(OPCODE) << 16)]);
    }

    fn decode(&self, _: &dyn Source) {}
}

fn run<C: Command>(dev: &Device, command: &C) -> Result<C::Out, Error> {
    // SAFETY: these commands are answered by faults, or only read.
    unsafe { dev.general_cmd(command) }
}

/// Runs a command by its number.
fn run_opcode(dev: &Device, opcode: u32) -> Result<(), Error> {
    macro_rules! any {
        ($($opcode:literal)*) => {
            match opcode {
                $($opcode => run(dev, &Bare::<$opcode>),)*
                other => panic!("the reports have a new opcode, {other:#x}: list it"),
            }
        };
    }
    any!(0x200 0x301 0x401 0x501 0x801 0x805 0x934 0x93e 0x941)
}

/// Kind command-status: what the device answers is told with the number that Linux gives for it, and in words.
#[test]
fn a_refused_command_is_told_as_the_reports_have_it() {
    let mut seen = 0;
    for case in all().iter().filter(|case| case["kind"] == "command-status") {
        let (log, expected) = (&case["input"]["log"], &case["expected"]);
        let model = Model::default();
        let dev = open(&model).unwrap();
        let (opcode, syndrome) = (number(&log["opcode"]), number(&log["syndrome"]));
        let effect = Effect::Status { status: number(&log["status"]) as u8, syndrome };
        model.inject(Fault::Command { at: Match::Opcode(opcode as u16), effect });
        let error = run_opcode(&dev, opcode).unwrap_err();
        let Error::Command { status, syndrome, .. } = error else { panic!("{}: {error:?}", case["id"]) };
        assert_eq!(status.name(), expected["status_name"].as_str(), "{}", case["id"]);
        assert_eq!(syndrome, number(&expected["fw_syndrome"]), "{}", case["id"]);
        assert_eq!(error.errno() as u32, number(&expected["errno"]), "{}", case["id"]);
        let words = error.to_string();
        assert!(words.contains(text(&expected["opcode_name"])), "{}: {words}", case["id"]);
        assert!(words.contains(&format!("{syndrome:#x}")), "{}: {words}", case["id"]);
        dev.close().unwrap();
        seen += 1;
    }
    assert_eq!(seen, 9);
}

/// Case B-017: memory space is on, bus mastering is not. The device never sees the first command.
#[test]
fn a_first_command_without_an_answer_is_blamed_on_the_way_to_the_device() {
    let case = case("B-017");
    let model = Model::default();
    model.config_write(0x04, 2, 0x0002);
    let started = model.now();
    let error = open(&model).unwrap_err();
    let waited = (model.now() - started) / (1000 * MS);
    assert!((60..=u64::from(number(&case["input"]["elapsed_s"]))).contains(&waited), "{waited} s");
    assert_eq!(error.errno() as u32, number(&case["expected"]["errno"]));
    assert_eq!(u32::from(error.opcode().unwrap().0), number(&case["input"]["opcode"]));
    let words = error.to_string();
    for part in [text(&case["expected"]["opcode_name"]), "bus master", "mapped"] {
        assert!(words.contains(part), "no '{part}': {words}");
    }
    assert_eq!((model.violations(), model.dma_outstanding()), (vec![], (0, 0)), "freed after a reset");
}

/// Case B-018: after a TEARDOWN_HCA without an answer nothing is freed before a reset. The model sees to that: memory
/// that is freed while the device has it breaks a rule.
#[test]
fn nothing_is_freed_after_a_failed_teardown_before_the_reset() {
    let case = case("B-018");
    let opcode = number(&case["input"]["opcode"]) as u16;
    for function in [VF, VF.without_reset()] {
        let port = Port::new(function);
        let dev = port.open(function).unwrap();
        let pages = port.model.firmware_pages();
        port.model.inject(Fault::Command { at: Match::Opcode(opcode), effect: Effect::Never });
        let back = dev.close().unwrap_err();
        assert_eq!(back.error.errno() as u32, number(&case["expected"]["errno"]));
        assert!(back.error.to_string().contains(text(&case["expected"]["opcode_name"])), "{}", back.error);
        drop(back);
        let (kept, of_firmware) = (port.model.dma_outstanding().0, port.model.firmware_pages());
        let expected = if function.reset { (0, 0) } else { (pages + 1, pages) };
        assert_eq!((kept, of_firmware), expected, "the pages, and the command queue");
        assert_eq!(port.model.violations(), []);
    }
}

/// Case B-021: no event of a command comes. It costs a moment a command, not a minute.
#[test]
fn creating_event_queues_does_not_wait_for_events_that_never_come() {
    let case = case("B-021");
    let opcode = number(&case["input"]["opcode"]) as u16;
    let model = Model::default();
    for opcode in [opcode, 0x302, 0x750, 0x754, 0x755, 0x761] {
        model.inject(Fault::Command { at: Match::Every(opcode), effect: Effect::EventLost });
    }
    let started = model.now();
    let dev = open(&model).unwrap();
    // Three event queues after that of the commands, four commands for the port.
    assert_eq!(dev.command_counters().lost_events, 7);
    dev.close().unwrap();
    let took = (model.now() - started) as f64 / 1e9;
    let one = case["expected"]["interval_s"].as_f64().unwrap();
    assert!(took < one / 1000.0, "{took} s for all, {one} s for one in the report");
    assert_eq!(model.violations(), []);
}

/// Case B-023: commands of several threads come to their deadlines together. The device counts as failed, for the reason that
/// the health buffer gives, if any.
#[test]
fn commands_that_time_out_together_mark_the_device_as_failed() {
    let case = case("B-023");
    let at_once = case["input"]["slots"].as_array().unwrap().len();
    for sick in [false, true] {
        let port = Port::new(VF);
        let dev = port.open(VF).unwrap();
        port.model.inject(Fault::Command { at: Match::Every(0x710), effect: Effect::Never });
        if sick {
            port.model.inject(Fault::Health { syndrome: 0x10, severity: 3, request_reset: false });
        }
        // Time stands still until all of them have been sent.
        port.hold.store(port.model.commands().len() + at_once, Ordering::Relaxed);
        let errors: Vec<Error> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..at_once).map(|_| scope.spawn(|| run_dct(&dev).unwrap_err())).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(errors.iter().any(|e| matches!(e, Error::Timeout { .. })), "{errors:?}");
        for error in &errors {
            assert!(error.to_string().contains(text(&case["expected"]["opcode_name"])), "{error}");
        }
        let why = dev.failure().unwrap();
        match why {
            Failure::Health(syndrome) if sick => assert_eq!(syndrome.0, 0x10),
            other => assert_eq!((other, sick), (Failure::Silent, false)),
        }
        let after = run(&dev, &QueryAdapter).unwrap_err();
        assert!(matches!(after, Error::Failed { sent: false, .. }), "{after:?}");
        if !sick {
            assert_eq!(after.errno() as u32, number(&case["expected"]["errno"]));
        }
        dev.close().unwrap();
        assert_eq!((port.model.violations(), port.model.dma_outstanding()), (vec![], (0, 0)));
    }
}

fn run_dct(dev: &Device) -> Result<(), Error> {
    run(dev, &Bare::<0x710>)
}

/// Kind health-counter has no public report. The counter has 24 bits and wraps; one that stands still is told after three
/// polls without ending anything, since it may come back.
#[test]
fn a_health_counter_that_wraps_is_well_and_one_that_stands_still_is_told() {
    let model = Model::default();
    let dev = open(&model).unwrap();
    // Ten milliseconds a count: up to the wrap, then over it.
    model.step((0xff_ffff - 100) * 10 * MS);
    for _ in 0..5 {
        assert_eq!(dev.health(), Health::Ok);
        model.step(3000 * MS);
    }
    assert!(model.read32(0x1010).swap_bytes() & 0xff_ffff < 0x1_0000, "it has wrapped");
    model.inject(Fault::CounterStuck);
    let seen: Vec<Health> = (0..6)
        .map(|_| {
            model.step(3000 * MS);
            dev.health()
        })
        .collect();
    assert_eq!(seen.last(), Some(&Health::CounterStopped), "{seen:?}");
    assert!(seen.iter().filter(|h| **h == Health::Ok).count() >= 2, "not before three polls: {seen:?}");
    assert_eq!(dev.failure(), None);
    run(&dev, &QueryAdapter).unwrap();
    dev.close().unwrap();
}

/// Case C-080: the low bits of the queue's address are other fields, so its page is aligned.
#[test]
fn the_command_queue_lies_on_a_page_of_its_own() {
    let case = case("C-080");
    let alignment = number(&case["expected"]["alignment"]);
    let port = Port::new(VF);
    let dev = port.open(VF).unwrap();
    let (high, low) = (port.model.read32(0x10).swap_bytes(), port.model.read32(0x14).swap_bytes());
    let address = u64::from(high) << 32 | u64::from(low & !(alignment - 1));
    let asked = port.allocated.lock().unwrap().iter().find(|(iova, ..)| *iova == address).copied();
    let (_, size, align) = asked.expect("an allocation starts where the register points to");
    assert_eq!((size as u32, align as u32), (alignment, alignment));
    dev.close().unwrap();
}
