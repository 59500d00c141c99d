//! The clocks that a driver can read: the counter and the time of day of the device, and the platform's.

use std::time::{Duration, Instant};

use mlx5_hw::platform::{Bar, Platform};
use mlx5_model::{CapConfig, Effect, Fault, Match, Model, ModelConfig};

use crate::driver::Driver;

const SECOND: u64 = 1_000_000_000;
const YEAR: u64 = 365 * 86_400 * SECOND;
/// 2023-11-14 22:13:20, when model time begins.
const EPOCH: u64 = 1_700_000_000;

fn pair(model: &Model, at: usize) -> u64 {
    u64::from(model.read32(at).swap_bytes()) << 32 | u64::from(model.read32(at + 4).swap_bytes())
}

fn timer(model: &Model) -> u64 {
    pair(model, 0x1000)
}

/// Of the device, in nanoseconds since 1970.
fn time_of_day(model: &Model) -> u64 {
    let both = pair(model, 0x1040);
    (both >> 32) * SECOND + (both & 0xffff_ffff)
}

#[test]
fn the_counter_begins_where_it_is_told_and_wraps_at_32_and_at_64_bits() {
    for start in [0, 0xffff_ff00, 0x7_ffff_ffff, u64::MAX - 0xff, u64::MAX] {
        let model = Model::new(ModelConfig { timer_start: start, ..ModelConfig::default() });
        assert_eq!(timer(&model), start);
        model.step(1_000_000);
        assert_eq!(timer(&model), start.wrapping_add(156_250), "from {start:#x}");
    }
}

#[test]
fn the_counter_runs_at_the_frequency_of_the_capabilities() {
    for khz in [1_000, 156_250, 1_000_000] {
        let caps = CapConfig { device_frequency_khz: khz, ..CapConfig::default() };
        let model = Model::new(ModelConfig { caps, ..ModelConfig::default() });
        model.step(SECOND);
        assert_eq!(timer(&model), u64::from(khz) * 1_000);
    }
}

#[test]
fn a_clock_that_drifts_gains_or_loses_millionths_and_never_goes_back() {
    for (ppm, gained) in [(100, 100_000), (-100, -100_000), (1, 1_000), (-2_000_000_000, 1_000 - SECOND as i64)] {
        let model = Model::new(ModelConfig { clock_drift_ppm: ppm, ..ModelConfig::default() });
        model.step(SECOND);
        let own = SECOND.wrapping_add_signed(gained);
        assert_eq!(timer(&model), own * 156_250 / 1_000_000, "{ppm} ppm");
        assert_eq!(time_of_day(&model) - EPOCH * SECOND, own, "{ppm} ppm");
        assert_eq!(model.wall_clock(), Some((EPOCH + 1) * SECOND), "the platform's clock is another");
    }
}

#[test]
fn a_year_passes_in_one_step_and_in_one_jump() {
    for start in [0, u64::MAX - 5] {
        let model = Model::new(ModelConfig { timer_start: start, now_ns: 0, ..ModelConfig::default() });
        model.step(YEAR);
        model.jump(YEAR);
        assert_eq!(model.now(), 2 * YEAR);
        assert_eq!(timer(&model), start.wrapping_add(2 * 365 * 86_400 * 156_250_000));
        assert_eq!(time_of_day(&model), EPOCH * SECOND + 2 * YEAR);
        assert_eq!(model.wall_clock(), Some(EPOCH * SECOND + 2 * YEAR));
    }
}

#[test]
fn what_is_due_in_a_jump_happens_at_its_end() {
    let d = Driver::up(ModelConfig::default());
    d.model.inject(Fault::Command { at: Match::Opcode(0x107), effect: Effect::Late(SECOND) });
    d.post(0, &d.build(0, 0x107, 1, &[0; 8], 16));
    d.model.jump(SECOND - 10_000);
    assert!(!d.done(0));
    d.model.jump(YEAR);
    assert!(d.done(0));
    assert_eq!(d.broken(), []);
}

#[test]
fn a_jump_moves_a_model_on_its_own_thread_too() {
    let model = Model::default();
    let _thread = model.spawn().unwrap();
    let start = Instant::now();
    let before = model.now();
    model.jump(YEAR);
    let passed = model.now() - before;
    assert!(passed >= YEAR && passed - YEAR <= start.elapsed().as_nanos() as u64 + 1_000_000);
    std::thread::sleep(Duration::from_millis(5));
    assert!(model.now() - before >= passed + 5_000_000, "time goes on from there");
}

#[test]
fn the_platforms_time_of_day_is_set_jumps_both_ways_and_can_be_unknown() {
    let model = Model::default();
    let (timer_before, day) = (timer(&model), time_of_day(&model));
    for ns in [5, EPOCH * SECOND + YEAR, u64::MAX - SECOND, EPOCH * SECOND - YEAR] {
        model.set_wall_clock(Some(ns));
        assert_eq!(model.wall_clock(), Some(ns));
        model.step(7);
        assert_eq!(model.wall_clock(), Some(ns + 7), "it goes on");
    }
    model.set_wall_clock(None);
    assert_eq!(model.wall_clock(), None);
    model.set_wall_clock(Some(42));
    assert_eq!(model.wall_clock(), Some(42));
    assert_eq!((timer(&model) - timer_before, time_of_day(&model) - day), (4, 28), "the device does not notice");
}

#[test]
fn a_register_read_takes_its_time() {
    let config = ModelConfig { timer_start: 0xffff_ffff, read_ns: 64, now_ns: 0, ..ModelConfig::default() };
    let model = Model::new(config);
    assert_eq!(model.read32(0x1000).swap_bytes(), 1, "10 ticks later");
    assert_eq!(model.read32(0x1004).swap_bytes(), 19);
    assert_eq!(model.now(), 128);
    // High, then low: the halves may not fit together.
    let torn = Model::new(ModelConfig { timer_start: 0xffff_fff0, read_ns: 64, ..ModelConfig::default() });
    assert_eq!(timer(&torn), 0x4);
}
