use super::*;

const SECOND: u64 = 1_000_000_000;
/// 156.25 MHz.
const TICKS: u64 = 156_250_000;
const EPOCH: u64 = 1_700_000_000 * SECOND;

/// A counter that begins at `start` and runs `ppm` millionths too fast, and the time of day.
#[derive(Clone, Copy)]
struct World {
    start: u64,
    ppm: i64,
}

impl World {
    /// What the counter shows `ns` nanoseconds after the epoch.
    fn ticks(&self, ns: u64) -> u64 {
        let own = u128::from(ns) * (1_000_000 + i128::from(self.ppm)) as u128 / 1_000_000;
        self.start.wrapping_add((own * u128::from(TICKS) / u128::from(SECOND)) as u64)
    }

    fn moment(&self, ns: u64) -> Moment {
        Moment { ticks: self.ticks(ns), ns: EPOCH + ns }
    }
}

fn error(lines: &Lines, world: &World, ns: u64) -> u64 {
    lines.at(world.ticks(ns)).abs_diff(EPOCH + ns)
}

/// What was told up to `from` goes on to rise up to `to`.
fn assert_rises(lines: &Lines, world: &World, told: &mut u64, from: u64, to: u64) {
    for i in 0..=20 {
        let now = lines.at(world.ticks(from + (to - from) / 20 * i));
        assert!(now >= *told, "{now} after {told}");
        *told = now;
    }
}

#[test]
fn the_error_is_that_of_the_stated_frequency_for_a_second_and_then_next_to_nothing() {
    for ppm in [-200, -50, 0, 3, 50, 200] {
        for start in [0, (1 << 63) - 5 * TICKS, u64::MAX - 7 * TICKS] {
            let world = World { start, ppm };
            let (mut follower, mut lines, mut told) = (Follower::new(TICKS), Lines::default(), 0);
            for s in 0..20 {
                lines = follower.follow(lines, world.moment(s * SECOND));
                // The stated frequency is used for the first second, and made up for in the second one.
                let most = if s < 2 { ppm.unsigned_abs() * 1000 + 10 } else { 50 };
                for tenth in 0..=10 {
                    let got = error(&lines, &world, s * SECOND + tenth * SECOND / 10);
                    assert!(got <= most, "{ppm} ppm, second {s}.{tenth}: {got} ns");
                }
                assert_rises(&lines, &world, &mut told, s * SECOND, (s + 1) * SECOND);
            }
        }
    }
}

#[test]
fn a_measurement_that_is_off_by_a_microsecond_costs_no_more_than_five() {
    let world = World { start: 1 << 40, ppm: 37 };
    let (mut follower, mut lines, mut told, mut random) = (Follower::new(TICKS), Lines::default(), 0, 1_u64);
    for s in 0..2000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut moment = world.moment(s * SECOND);
        moment.ns = moment.ns + (random >> 33) % 2001 - 1000;
        lines = follower.follow(lines, moment);
        for tenth in 0..=10 {
            let got = error(&lines, &world, s * SECOND + tenth * SECOND / 10);
            assert!(s < 3 || got <= 5_000, "second {s}.{tenth}: {got} ns");
        }
        assert_rises(&lines, &world, &mut told, s * SECOND, (s + 1) * SECOND);
        // What has waited all the time.
        let old = (3..s).step_by(97).map(|s| error(&lines, &world, s * SECOND)).max().unwrap_or(0);
        assert!(old <= 10_000, "in second {s}: {old} ns");
    }
}

/// Nobody asked for a year: what was stamped meanwhile lies on the line between the two ends.
#[test]
fn a_gap_of_a_year_is_led_over_to_what_is_measured_behind_it() {
    const YEAR: u64 = 365 * 86_400 * SECOND;
    for ppm in [-100, 0, 100] {
        let world = World { start: u64::MAX - 1000 * TICKS, ppm };
        let (mut follower, mut told) = (Follower::new(TICKS), 0);
        let mut lines = follower.follow(Lines::default(), world.moment(0));
        assert_rises(&lines, &world, &mut told, 0, SECOND);
        lines = follower.follow(lines, world.moment(YEAR));
        for i in 0..=100 {
            let got = error(&lines, &world, YEAR / 100 * i);
            assert!(got <= 110_000, "{ppm} ppm, {i} hundredths of the gap: {got} ns");
        }
        assert_rises(&lines, &world, &mut told, SECOND, YEAR);
        assert_rises(&lines, &world, &mut told, YEAR, YEAR + SECOND);
        assert!(error(&lines, &world, YEAR + SECOND) <= 10, "the rate was measured over a year");
    }
}

#[test]
fn a_time_of_day_that_is_set_is_followed_at_once_and_a_little_of_it_slowly() {
    let world = World { start: 0, ppm: 20 };
    for (set, at_once) in
        [(3600 * SECOND as i64, true), (-3600 * SECOND as i64, true), (500_000, false), (-500_000, false)]
    {
        let (mut follower, mut lines, mut told) = (Follower::new(TICKS), Lines::default(), 0);
        for s in 0..5 {
            lines = follower.follow(lines, world.moment(s * SECOND));
        }
        assert_rises(&lines, &world, &mut told, 4 * SECOND, 5 * SECOND);
        for s in 5..15 {
            let mut moment = world.moment(s * SECOND);
            moment.ns = moment.ns.saturating_add_signed(set);
            lines = follower.follow(lines, moment);
            let late = lines.at(moment.ticks).abs_diff(moment.ns);
            assert!(late <= if at_once || s > 8 { 20 } else { 510_000 }, "{set}, second {s}: {late}");
            if set > -(STEP as i64) {
                assert_rises(&lines, &world, &mut told, s * SECOND, (s + 1) * SECOND);
            }
        }
    }
}

/// Who asks again just when the line has ended is told no earlier time than what was stamped at its end, whether the counter is fast
/// or the time of day was set back a little.
#[test]
fn time_goes_on_where_a_line_has_just_ended() {
    for (ppm, set) in [(200, 0), (-200, 0), (0, -40_000_000), (0, 40_000_000), (100, -90_000_000)] {
        for behind in [1000, 50_000, 150_000, 300_000, 30_000_000, 80_000_000, 120_000_000] {
            let world = World { start: 1 << 40, ppm };
            let (mut follower, mut at) = (Follower::new(TICKS), 0);
            let mut lines = follower.follow(Lines::default(), world.moment(at));
            for round in 0..5 {
                let (before, mut told) = (at, lines.at(world.ticks(at + SECOND)));
                at += SECOND + SECOND / 16 + behind;
                let mut moment = world.moment(at);
                moment.ns = moment.ns.saturating_add_signed(if round < 3 { 0 } else { set });
                lines = follower.follow(lines, moment);
                assert_rises(&lines, &world, &mut told, before + SECOND, at - 1000);
                assert_rises(&lines, &world, &mut told, at - 1000, at + 1000);
            }
        }
    }
}

/// What was stamped before all lines lies on a line of the rate as it was measured, in which a time of day that was set has no part.
#[test]
fn what_is_older_than_the_lines_does_not_tell_that_the_time_of_day_was_set_meanwhile() {
    let world = World { start: 0, ppm: 20 };
    let (mut follower, mut lines) = (Follower::new(TICKS), Lines::default());
    for s in 0..1000 {
        let mut moment = world.moment(s * SECOND);
        moment.ns += if s < 500 { 0 } else { 2 * STEP as u64 };
        lines = follower.follow(lines, moment);
    }
    let old = lines.at(world.ticks(900 * SECOND));
    let late = old.abs_diff(EPOCH + 900 * SECOND + 2 * STEP as u64);
    assert!(late <= 10_000, "{late} ns");
}

/// 156.25 MHz stated as 156.
#[test]
fn a_counter_whose_frequency_was_rounded_is_followed_all_the_same() {
    for stated in [156_000_000, 157_000_000, 156_700_000] {
        let world = World { start: 0, ppm: 100 };
        let (mut follower, mut lines, mut told) = (Follower::new(stated).rounded_to(1_000_000), Lines::default(), 0);
        for s in 0..20 {
            lines = follower.follow(lines, world.moment(s * SECOND));
            for tenth in 0..=10 {
                let got = error(&lines, &world, s * SECOND + tenth * SECOND / 10);
                assert!(got <= if s < 10 { 10_000_000 } else { 50 }, "{stated}, second {s}.{tenth}: {got} ns");
            }
            assert_rises(&lines, &world, &mut told, s * SECOND, (s + 1) * SECOND);
        }
    }
}

/// The device is not trusted.
#[test]
fn no_measurement_makes_the_lines_panic() {
    let (mut follower, mut lines, mut random) = (Follower::new(TICKS), Lines::default(), 7_u64);
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let edges = [0, 1, MASK / 2, MASK / 2 + 1, MASK, MASK + 1, u64::MAX];
        if random >> 62 == 0 { edges[(random >> 33) as usize % 7] } else { random >> (random >> 58) }
    };
    for round in 0..100_000 {
        lines = follower.follow(lines, Moment { ticks: next(), ns: next() });
        let (_, _, shift) = lines.tangent();
        assert!(shift < 64);
        lines.at(next());
        assert!(lines.known());
        if round % 100 == 0 {
            (follower, lines) = (Follower::new(next().max(1)).rounded_to(next()), Lines::default());
        }
    }
}

#[test]
fn the_tangent_is_the_newest_piece_within_the_bits_that_it_has() {
    for second in [1000, 15_625_000, TICKS, SECOND, 1 << 40] {
        let moment = Moment { ticks: 77, ns: EPOCH };
        let lines = Follower::new(second).follow(Lines::default(), moment);
        let (from, mult, shift) = lines.tangent();
        assert_eq!(from, moment);
        let rate = f64::from(mult) / (shift as f64).exp2();
        let right = SECOND as f64 / second as f64;
        assert!((rate / right - 1.0).abs() < 1e-8, "{second}: {rate} {right}");
    }
}

#[test]
fn words_are_lines() {
    let mut follower = Follower::new(TICKS);
    let lines = follower.follow(Lines::default(), Moment { ticks: 1, ns: 2 });
    let lines = follower.follow(lines, Moment { ticks: TICKS, ns: SECOND });
    assert_eq!(Lines::from_words(&lines.to_words()), lines);
    assert!(lines.known() && !Lines::default().known());
}
