//! The enhanced layout over so many laps that its lap byte comes around: holes are left as they were.

use std::sync::atomic::AtomicU32;

use mlx5_hw::ring::{Cqe64, Enhanced, Ring};
use proptest::prelude::*;

use super::device::memory;
use super::sessions::read;
use super::writer::{Noise, Writer};
use mlx5_hw::mini_cqe::MiniFormat;

const LAPS: u64 = 600;

struct Laps<'m> {
    ring: Ring<Enhanced<Cqe64>>,
    mem: &'m [AtomicU32],
    writer: Writer<'m>,
    noise: Noise,
}

impl<'m> Laps<'m> {
    /// A ring of `2^log` slots in `mem`, from lap `first` on.
    fn new(mem: &'m [AtomicU32], log: u32, first: u64, noise: u64) -> Self {
        let ring = Ring::with_ci(log, (first << log) as u32).unwrap();
        Ring::<Enhanced<Cqe64>>::init_memory(mem);
        let writer = Writer::new(mem, 64, true, MiniFormat::Hash, first << log);
        Self { ring, mem, writer, noise: Noise(noise) }
    }

    /// Reads what is there; behind it the ring must look empty, whatever lies there from earlier laps.
    fn drain(&mut self) {
        let mut entries = self.ring.consume(self.mem).unwrap();
        let taken = read(&mut entries, &self.writer, u32::MAX);
        drop(entries);
        self.writer.waiting.drain(..taken);
        assert_eq!(self.ring.ci(), self.writer.produced as u32);
        self.writer.given_back = self.writer.produced;
    }

    /// A lap of blocks of the same length, which leaves the same holes each time.
    fn steady(&mut self, entries: u64) {
        let length = entries.min(4);
        for _ in 0..entries / length {
            let minis = self.noise.minis(length as u32);
            self.writer.block(&minis);
            self.drain();
        }
    }

    /// A lap of full entries: each slot is written.
    fn full(&mut self, entries: u64) {
        for _ in 0..entries {
            let entry = self.noise.entry(2);
            self.writer.full(entry);
            self.drain();
        }
    }

    /// The last slot of a lap and all but the last one of the next, in one batch: full entries, or blocks that leave the same
    /// holes each time.
    fn across(&mut self, entries: u64, full: bool) {
        let title = self.noise.entry(2);
        self.writer.full(title);
        let mut left = entries - 1;
        while left != 0 {
            let n = if full { 1 } else { left.min(4) };
            if full {
                let entry = self.noise.entry(2);
                self.writer.full(entry);
            } else {
                let minis = self.noise.minis(n as u32);
                self.writer.block(&minis);
            }
            left -= n;
        }
        self.drain();
    }

    /// A lap of anything.
    fn mixed(&mut self, entries: u64) {
        let end = self.writer.produced + entries;
        while self.writer.produced < end {
            let n = 1 + self.noise.below(7.min(end - self.writer.produced)) as u32;
            match self.noise.below(4) {
                0 => {
                    let entry = self.noise.entry(13);
                    self.writer.full(entry);
                }
                1 => {
                    let entry = self.noise.entry(2);
                    self.writer.full(entry);
                }
                _ => {
                    let minis = self.noise.minis(n);
                    self.writer.block(&minis);
                }
            }
            if self.noise.below(2) == 0 {
                self.drain();
            }
        }
        self.drain();
    }
}

/// 600 laps from lap `first` on. Laps `full` have full entries, one in `mixed` laps anything, the others the same
/// holes.
fn run(log: u32, first: u64, noise: u64, full: &[u64], mixed: u64) {
    let entries = 1 << log;
    let mem = memory(64 << log);
    let mut laps = Laps::new(&mem, log, first, noise);
    laps.full(entries);
    for lap in 1..LAPS {
        if full.contains(&lap) {
            laps.full(entries);
        } else if laps.noise.below(mixed) == 0 {
            laps.mixed(entries);
        } else {
            laps.steady(entries);
        }
    }
}

/// Each slot is written on one lap and left out on the 255 behind it: then the lap byte is the one that it still has.
#[test]
fn a_hole_written_256_laps_ago_is_no_entry() {
    for log in 1..=6 {
        for lap in [1, 2, 63, 126, 127, 128, 129, 254, 255, 256, 257, 300, 343] {
            run(log, 0, lap, &[lap, lap + 256], u64::MAX);
        }
    }
}

/// The same in batches that begin on the lap before the one of most of their slots.
#[test]
fn holes_are_stamped_in_batches_that_reach_into_another_lap() {
    for log in 2..=4 {
        for lap in [1, 2, 126, 127, 128, 129, 200, 256, 300] {
            let (entries, mem) = (1 << log, memory(64 << log));
            let mut laps = Laps::new(&mem, log, 0, lap);
            laps.full(entries - 1);
            for n in 0..LAPS {
                if n == lap + 256 {
                    // Slot by slot: each is looked at before it is written.
                    laps.full(entries);
                } else {
                    laps.across(entries, n == lap);
                }
            }
        }
    }
}

/// Slots that were never written still have what they were stamped with before the ring was given to the device.
#[test]
fn a_slot_that_was_never_written_is_no_entry_on_any_lap() {
    for log in 1..=6 {
        let ring = Ring::<Enhanced<Cqe64>>::new(log).unwrap();
        let mem = memory(ring.bytes());
        Ring::<Enhanced<Cqe64>>::init_memory(&mem);
        for lap in 0..LAPS as u32 {
            let mut ring = Ring::<Enhanced<Cqe64>>::with_ci(log, lap << log).unwrap();
            assert!(ring.consume(&mem).unwrap().next().is_none(), "lap {lap}");
        }
    }
}

proptest! {
    // Each case is 600 laps: more than 250 would take longer than all the others together.
    #![proptest_config(ProptestConfig { cases: (ProptestConfig::default().cases / 16).clamp(1, 250), ..ProptestConfig::default() })]

    #[test]
    fn enhanced_rings_are_read_right_over_600_laps(
        log in 1u32..=6,
        first in prop_oneof![Just(0u64), 0u64..1024, (0u64..600).prop_map(|n| (1 << 26) - n)],
        noise in any::<u64>(),
        lap in 1u64..LAPS - 256,
        mixed in prop_oneof![Just(2u64), Just(30), Just(1000)],
    ) {
        run(log, first, noise, &[lap, lap + 256], mixed);
    }
}
