//! Faults on demand, each as the driver sees it.

use mlx5_hw::platform::{Platform, PlatformError};
use mlx5_model::{Effect, Fault, Match, ModelConfig, ViolationKind};

use crate::driver::{Driver, get, load, put};
use crate::queues::{EqWish, Queue};

const COMMAND: u64 = 1 << 0xa;
const PAGE_REQUEST: u64 = 1 << 0xb;

fn at_next(d: &Driver, opcode: u16, effect: Effect) {
    d.model.inject(Fault::Command { at: Match::Opcode(opcode), effect });
}

/// A function with an event queue for commands, armed.
fn with_events(mask: u64) -> (Driver, Queue) {
    let mut d = Driver::up(ModelConfig::default());
    let eq = d.eq(EqWish { mask, ..EqWish::default() }).unwrap();
    d.arm_eq(eq, 0);
    (d, eq)
}

fn query_pages(d: &Driver, slot: usize) -> [u8; 64] {
    d.build(slot, 0x107, 1, &[0; 8], 16)
}

#[test]
fn a_bad_status_is_delivered_and_the_command_is_not_executed() {
    let d = Driver::up(ModelConfig::default());
    at_next(&d, 0x800, Effect::Status { status: 0xf, syndrome: 0xabcd });
    assert_eq!(d.small(0x800, 0), Err((0xf, 0xabcd)));
    assert_eq!(d.small(0x801, 1).unwrap_err().0, 5, "no PD was made");
    assert_eq!(d.small(0x800, 0), Ok(1), "once");
}

#[test]
fn a_fault_hits_the_nth_command_or_each_of_an_opcode() {
    let d = Driver::up(ModelConfig::default());
    let count = d.model.commands().len() as u64;
    d.model.inject(Fault::Command { at: Match::Nth(count + 2), effect: Effect::Delivery(6) });
    let effect = Effect::Status { status: 1, syndrome: 1 };
    d.model.inject(Fault::Command { at: Match::Every(0x800), effect });
    assert_eq!(d.small(0x816, 0), Ok(1));
    d.post(0, &query_pages(&d, 0));
    assert_eq!(d.finish_slot(0), 6);
    assert_eq!((d.small(0x800, 0), d.small(0x800, 0)), (Err((1, 1)), Err((1, 1))));
    d.model.clear_faults();
    assert_eq!(d.small(0x800, 0), Ok(1));
}

#[test]
fn a_command_that_never_completes_keeps_its_slot_until_a_reset() {
    let mut d = Driver::up(ModelConfig::default());
    at_next(&d, 0x107, Effect::Never);
    d.post(0, &query_pages(&d, 0));
    d.model.step(100_000_000_000);
    assert!(!d.done(0));
    assert_eq!(d.model.commands().last().unwrap().done, None);
    d.post(1, &query_pages(&d, 1));
    assert_eq!(d.finish_slot(1), 0, "other slots go on");
    assert_eq!(d.broken(), []);
    d.model.reset().unwrap();
    d.finish();
    assert_eq!(d.broken(), [], "after a reset everything may be freed");
    assert_eq!(d.model.dma_outstanding().0, 0);
}

#[test]
fn a_late_command_completes_at_its_time() {
    let d = Driver::up(ModelConfig::default());
    at_next(&d, 0x107, Effect::Late(1_000_000));
    d.post(0, &query_pages(&d, 0));
    d.model.step(999_999);
    assert!(!d.done(0));
    d.model.step(1);
    assert!(d.done(0));
}

#[test]
fn commands_complete_out_of_order() {
    let (d, eq) = with_events(COMMAND);
    at_next(&d, 0x107, Effect::AfterNext);
    d.post(1, &query_pages(&d, 1));
    assert!(!d.done(1));
    d.post(0, &query_pages(&d, 0));
    assert!(d.done(0) && d.done(1));
    let slots = |at| get(&d.eqe(eq, 4, at).unwrap(), 0x20 * 8, 32);
    assert_eq!((slots(0), slots(1)), (1, 2));
}

#[test]
fn an_event_reports_commands_taken_after_its_queue_was_made_and_only_those() {
    let (d, eq) = with_events(COMMAND);
    assert!(d.eqe(eq, 4, 0).is_none(), "not the CREATE_EQ itself");
    d.pages_wanted(1);
    let entry = d.eqe(eq, 4, 0).unwrap();
    assert_eq!((entry[1], get(&entry, 0x20 * 8, 32)), (0xa, 1));
    assert!(d.eqe(eq, 4, 1).is_none());
}

#[test]
fn an_event_is_lost_or_late_while_its_command_completes() {
    let (d, eq) = with_events(COMMAND);
    at_next(&d, 0x107, Effect::EventLost);
    d.pages_wanted(1);
    at_next(&d, 0x107, Effect::EventLate(5000));
    d.pages_wanted(1);
    assert!(d.eqe(eq, 4, 0).is_none());
    d.model.step(5000);
    assert!(d.eqe(eq, 4, 0).is_some() && d.eqe(eq, 4, 1).is_none());
}

#[test]
fn firmware_asks_for_pages_in_the_middle_of_a_command() {
    let (mut d, eq) = with_events(PAGE_REQUEST);
    at_next(&d, 0x800, Effect::PageRequest(4));
    d.post(1, &d.build(1, 0x800, 0, &[0; 8], 16));
    assert!(!d.done(1));
    let entry = d.eqe(eq, 4, 0).unwrap();
    assert_eq!((entry[1], get(&entry, 0x24 * 8, 32)), (0xb, 4));
    assert_eq!(d.pages_wanted(3), 4);
    d.give(4).unwrap();
    assert_eq!((d.finish_slot(1), d.output(1, 16)[0]), (0, 0));
    assert_eq!(d.broken(), []);
}

#[test]
fn a_command_fails_when_the_pages_that_it_needs_are_refused() {
    let (d, _) = with_events(PAGE_REQUEST);
    at_next(&d, 0x800, Effect::PageRequest(4));
    d.post(1, &d.build(1, 0x800, 0, &[0; 8], 16));
    d.run(0x108, 0, &[0; 8], 16).unwrap();
    assert_eq!((d.finish_slot(1), d.output(1, 16)[0]), (0, 0xf));
    assert_eq!(d.pages_wanted(3), 0);
}

#[test]
fn firmware_offers_pages_back() {
    let (d, eq) = with_events(PAGE_REQUEST);
    d.model.inject(Fault::PageRequest(-3));
    assert_eq!(get(&d.eqe(eq, 4, 0).unwrap(), 0x24 * 8, 32) as u32 as i32, -3);
    assert_eq!(d.take(3).unwrap().len(), 3);
    assert_eq!(d.take(3).unwrap().len(), 0);
    assert_eq!(d.broken(), []);
}

#[test]
fn stray_events_name_what_is_not_there() {
    let (d, eq) = with_events(COMMAND);
    d.model.inject(Fault::StrayCommandEvent(1 << 17));
    d.model.inject(Fault::StrayCompletionEvent { eqn: eq.number, cqn: 0xdead });
    assert_eq!(get(&d.eqe(eq, 4, 0).unwrap(), 0x20 * 8, 32), 1 << 17);
    let entry = d.eqe(eq, 4, 1).unwrap();
    assert_eq!((entry[1], get(&entry, 0x38 * 8, 32)), (0, 0xdead));
}

#[test]
fn the_health_buffer_shows_a_syndrome_and_the_counter_stands_still() {
    let d = Driver::up(ModelConfig::default());
    d.model.inject(Fault::Health { syndrome: 0x8, severity: 2, request_reset: true });
    assert_eq!(d.read(0x23c) >> 16 & 0xff, 8);
    assert_eq!((d.read(0x238) >> 31, d.read(0x238) >> 24 & 7), (1, 2));
    d.model.inject(Fault::CounterStuck);
    let counter = d.read(0x1010) & 0xff_ffff;
    d.model.step(10_000_000_000);
    assert_eq!(d.read(0x1010) & 0xff_ffff, counter);
}

#[test]
fn a_removed_function_answers_ones_and_touches_nothing() {
    let (mut d, eq) = with_events(COMMAND);
    at_next(&d, 0x107, Effect::Late(1000));
    d.post(0, &query_pages(&d, 0));
    d.model.inject(Fault::Removed);
    d.model.step(10_000);
    assert!(!d.done(0) && d.eqe(eq, 4, 0).is_none());
    assert_eq!((d.read(0x1fc), d.model.config_read(0, 4)), (u32::MAX, u32::MAX));
    assert_eq!(d.model.reset(), Err(PlatformError::Os(19)));
    d.finish();
    assert_eq!(d.broken(), []);
}

#[test]
fn a_function_that_never_boots_keeps_saying_that_it_does() {
    let d = Driver::new(ModelConfig::default());
    d.model.inject(Fault::NeverBoots);
    d.model.step(1_000_000_000_000);
    assert_eq!(d.read(0x1fc) >> 31, 1);
    d.model.reset().unwrap();
    assert_eq!(d.read(0x1fc) >> 31, 1);
    d.model.clear_faults();
    assert_eq!(d.read(0x1fc) >> 31, 0);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let taken = |seed| {
        let mut d = Driver::new(ModelConfig { seed, ..ModelConfig::default() });
        d.boot();
        let base = d.last_given().iova();
        let order: Vec<u64> = d.take(400).unwrap().iter().map(|page| page - base).collect();
        (order, load(d.last_given(), 0, 4096), d.model.commands())
    };
    assert_eq!(taken(1), taken(1));
    assert_ne!(taken(1).0, taken(2).0);
    assert_ne!(taken(1).1, taken(2).1);
}

#[test]
fn no_bytes_in_the_command_queue_make_the_device_panic() {
    let d = Driver::up(ModelConfig::default());
    let mut state = 0x1234_5678_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    const OPCODES: [u16; 24] = [
        0x100, 0x102, 0x105, 0x107, 0x108, 0x109, 0x10d, 0x200, 0x201, 0x301, 0x303, 0x400, 0x402, 0x500, 0x502, 0x503,
        0x504, 0x50a, 0x50b, 0x750, 0x754, 0x755, 0x761, 0x805,
    ];
    for round in 0..4000 {
        let opcode = OPCODES[random() as usize % OPCODES.len()];
        let len = [8, 0x18, 0x20, 0x108, 0x110, 0x118, 0x1f8, 0x1008][random() as usize % 8];
        let mut body = vec![0; len];
        for _ in 0..random() % 12 {
            let at = random() as usize % len;
            body[at] = random() as u8;
        }
        let out_len = [12, 16, 32, 0x110, 0x1010][random() as usize % 5];
        let mut entry = d.build(0, opcode, random() as u16 % 4, &body, out_len);
        if round % 5 == 0 {
            let at = random() as usize % 63;
            put(&mut entry, at * 8, 8, random());
        }
        d.post(0, &entry);
        d.model.step(1000);
    }
    assert!(d.broken().contains(&ViolationKind::CommandLength));
    assert!(d.model.commands().len() > 3000);
}

#[test]
fn an_event_names_other_slots_or_comes_for_what_nobody_has() {
    let (d, eq) = with_events(COMMAND);
    at_next(&d, 0x107, Effect::EventForSlots(1 << 9 | 1 << 3));
    d.pages_wanted(1);
    assert_eq!(get(&d.eqe(eq, 4, 0).unwrap(), 0x20 * 8, 32), 1 << 9 | 1 << 3);
    assert!(d.eqe(eq, 4, 1).is_none());
    at_next(&d, 0x107, Effect::StrayEvents { slots: u32::MAX, cqn: 0xdead });
    d.post(5, &query_pages(&d, 5));
    assert_eq!(get(&d.eqe(eq, 4, 1).unwrap(), 0x20 * 8, 32), u64::from(!(1_u32 << 5)));
    let entry = d.eqe(eq, 4, 2).unwrap();
    assert_eq!((entry[1], get(&entry, 0x38 * 8, 32)), (0, 0xdead));
    assert_eq!(get(&d.eqe(eq, 4, 3).unwrap(), 0x20 * 8, 32), 1 << 5, "its own comes too");
}

#[test]
fn a_command_is_overtaken_by_the_one_that_gives_the_pages_it_asks_for() {
    let (mut d, eq) = with_events(PAGE_REQUEST);
    at_next(&d, 0x800, Effect::Overtaken(2));
    d.post(1, &d.build(1, 0x800, 0, &[0; 8], 16));
    assert!(!d.done(1));
    assert_eq!(get(&d.eqe(eq, 4, 0).unwrap(), 0x24 * 8, 32), 2);
    d.give(2).unwrap();
    assert_eq!((d.finish_slot(1), d.output(1, 16)[0]), (0, 0));
    // A page command does not wait for another one.
    at_next(&d, 0x108, Effect::Overtaken(1));
    d.give(1).unwrap();
    at_next(&d, 0x108, Effect::PageRequest(1));
    d.give(1).unwrap();
    assert_eq!(d.broken(), []);
}

#[test]
fn too_much_output_goes_over_lengths_and_the_rest_of_the_blocks() {
    let d = Driver::up(ModelConfig::default());
    at_next(&d, 0x101, Effect::Overlong);
    let asked = d.build(0, 0x101, 0, &[0; 8], 272);
    d.post(0, &asked);
    assert_eq!(d.finish_slot(0), 0);
    let entry = d.entry(0);
    assert_eq!(
        (get(&entry, 4 * 8, 32), get(&entry, 0x38 * 8, 32), get(&entry, 0x30 * 8, 32)),
        (0xffff_ffff, 0xffff_ffff, 0xffff_ffff)
    );
    assert_eq!(entry[0x20], 0, "the status is as it should be");
}

#[test]
fn a_dword_of_the_output_is_replaced() {
    let d = Driver::up(ModelConfig::default());
    at_next(&d, 0x800, Effect::Output { at: 8, dword: 0x00ab_cdef });
    assert_eq!(d.small(0x800, 0), Ok(0x00ab_cdef));
    at_next(&d, 0x800, Effect::Output { at: 4096, dword: 1 });
    assert_eq!(d.small(0x800, 0), Ok(2), "beyond the output");
}

#[test]
fn the_function_goes_when_it_has_taken_a_command() {
    let mut d = Driver::up(ModelConfig::default());
    at_next(&d, 0x800, Effect::Removed);
    d.post(1, &d.build(1, 0x800, 0, &[0; 8], 16));
    d.model.step(1_000_000_000);
    assert!(!d.done(1));
    assert_eq!(d.read(0x1fc), u32::MAX);
    d.finish();
    assert_eq!(d.broken(), []);
}

#[test]
fn firmware_that_asks_for_a_reset_completes_nothing_more() {
    let mut d = Driver::up(ModelConfig::default());
    at_next(&d, 0x800, Effect::Health { syndrome: 7, severity: 4, request_reset: false });
    assert_eq!(d.small(0x800, 0), Ok(1));
    assert_eq!(d.read(0x23c) >> 16 & 0xff, 7);
    at_next(&d, 0x800, Effect::Health { syndrome: 1, severity: 2, request_reset: true });
    for slot in [1, 2] {
        d.post(slot, &d.build(slot, 0x800, 0, &[0; 8], 16));
        d.model.step(1_000_000_000);
        assert!(!d.done(slot));
    }
    d.model.reset().unwrap();
    assert_eq!(d.read(0x23c) >> 16 & 0xff, 0);
    d.finish();
}
