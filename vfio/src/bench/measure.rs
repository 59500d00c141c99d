//! Times all rows by turns, so that whatever slows the machine down for a while slows all of them down.

use super::memory::{Clock, now};
use super::subject::{CALLS, Subject};

/// Runs that are not timed before those that are, in each round: caches and predictors get used to the row.
const WARM: u32 = 5;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Times that each row has its turn.
    pub rounds: u32,
    /// Completions or calls that are timed at a turn.
    pub items: u32,
}

impl Plan {
    /// Medians that repeat within a few per cent. Many short rounds: a row and its floor are then measured so soon one after the other that
    /// what changes the processor's speed changes both.
    pub const FULL: Self = Self { rounds: 51, items: 30 * 256 };
    /// A first look.
    pub const QUICK: Self = Self { rounds: 15, items: 20 * 256 };

    /// Timed runs at a turn.
    fn laps(&self, items: u32) -> u32 {
        (self.items / items.max(CALLS)).max(10)
    }
}

/// A row that did something else than it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Which.
    pub row: usize,
    /// The sum that its run should have given.
    pub right: u64,
    /// The sum that it gave.
    pub got: u64,
}

/// What was measured: nanoseconds for each item, by row and round.
#[derive(Clone, Debug)]
pub struct Times(Vec<Vec<f64>>);

impl Times {
    /// A row's nanoseconds for each item: the median of the rounds.
    pub fn nanoseconds(&self, row: usize) -> f64 {
        median(self.0.get(row).cloned().unwrap_or_default())
    }

    /// How many times as long a row takes as another: the median of the rounds, each of which compares two times of that round, with the
    /// lower and the upper quartile.
    pub fn ratio(&self, row: usize, floor: usize) -> [f64; 3] {
        let (Some(row), Some(floor)) = (self.0.get(row), self.0.get(floor)) else { return [f64::NAN; 3] };
        let ratios: Vec<_> = row.iter().zip(floor).map(|(row, floor)| row / floor).collect();
        [(1, 2), (1, 4), (3, 4)].map(|part| quantile(ratios.clone(), part))
    }
}

/// Times each of them; `tell` hears how many turns are done.
///
/// # Errors
/// The first row whose run gave another sum than it should.
pub fn measure(rows: &mut [Box<dyn Subject>], plan: Plan, mut tell: impl FnMut(u64)) -> Result<Times, Wrong> {
    let clock = Clock::start();
    let none = median((0..1000).map(|_| span(|| ())).collect());
    let mut ticks = vec![Vec::new(); rows.len()];
    let mut done = 0;
    for _ in 0..plan.rounds {
        for (row, (subject, ticks)) in rows.iter_mut().zip(&mut ticks).enumerate() {
            let of_a_run = turn(&mut **subject, plan).map_err(|wrong| Wrong { row, ..wrong })?;
            ticks.push((of_a_run - none).max(0.0) / f64::from(subject.items()));
            done += 1;
            tell(done);
        }
    }
    let nanoseconds = clock.nanoseconds();
    Ok(Times(ticks.into_iter().map(|row| row.into_iter().map(|ticks| ticks * nanoseconds).collect()).collect()))
}

/// A turn of one row: the median of its runs, in ticks.
fn turn(subject: &mut dyn Subject, plan: Plan) -> Result<f64, Wrong> {
    let (right, laps) = (subject.right(), plan.laps(subject.items()));
    let mut ticks = Vec::with_capacity(laps as usize);
    for lap in 0..WARM + laps {
        subject.prepare();
        let mut got = 0;
        let taken = span(|| got = subject.run());
        if got != right {
            return Err(Wrong { row: 0, right, got });
        }
        if lap >= WARM {
            ticks.push(taken);
        }
    }
    Ok(median(ticks))
}

/// Ticks that something takes.
#[inline(always)]
fn span(job: impl FnOnce()) -> f64 {
    let start = now();
    job();
    now().wrapping_sub(start) as f64
}

fn median(values: Vec<f64>) -> f64 {
    quantile(values, (1, 2))
}

/// The value below which this part of the others lies.
fn quantile(mut values: Vec<f64>, (part, of): (usize, usize)) -> f64 {
    let at = values.len() * part / of;
    values.sort_by(f64::total_cmp);
    values.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counts {
        prepared: u32,
        right: u64,
    }

    impl Subject for Counts {
        fn items(&self) -> u32 {
            256
        }

        fn right(&self) -> u64 {
            self.right
        }

        fn prepare(&mut self) {
            self.prepared += 1;
        }

        fn run(&mut self) -> u64 {
            u64::from(self.prepared.min(3))
        }
    }

    #[test]
    fn a_run_with_another_sum_ends_the_measuring_and_is_named() {
        let rows = |right| -> Vec<Box<dyn Subject>> {
            let rights = [1, right];
            rights.map(|right| Box::new(Counts { prepared: 3 * (right as u32 - 1), right }) as Box<dyn Subject>).into()
        };
        let mut rows = rows(3);
        rows.swap(0, 1);
        assert_eq!(measure(&mut rows, Plan::QUICK, |_| ()).unwrap_err(), Wrong { row: 1, right: 1, got: 2 });
    }

    #[test]
    fn ratios_compare_times_of_the_same_round() {
        let times = Times(vec![vec![1.0, 2.0, 4.0], vec![3.0, 4.0, 10.0]]);
        assert_eq!(times.ratio(1, 0), [2.5, 2.0, 3.0]);
        assert_eq!(times.nanoseconds(1), 4.0);
    }
}
