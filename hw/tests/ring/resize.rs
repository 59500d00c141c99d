//! Rings that go on in other memory with entries waiting, against a device that keeps its own account of slots and laps.

use std::sync::atomic::AtomicU32;

use mlx5_hw::mini_cqe::MiniFormat;
use mlx5_hw::ring::{Basic, Cqe64, Cqe128, CqeFormat, Enhanced, Ring, RingError};
use proptest::prelude::*;

use super::device::memory;
use super::sessions::{read, starts, with_count};
use super::writer::{Noise, Writer};

/// How completions lie in the ring.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    Basic,
    Enhanced,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A full entry, perhaps of an error.
    Full,
    /// A session of about so many completions.
    Session(u32),
    /// An entry that claims to start a session and can't.
    Malformed,
    /// What a resize that was asked for twice leaves in the ring.
    Stale,
    /// A batch of at most so many, which is perhaps forgotten and read again.
    Read(u32, bool),
    /// The ring gets this many slots, log2.
    Resize(u32),
}

fn steps() -> impl Strategy<Value = Vec<(Step, u64)>> {
    let step = prop_oneof![
        3 => Just(Step::Full),
        5 => (2u32..40).prop_map(Step::Session),
        1 => Just(Step::Malformed),
        1 => Just(Step::Stale),
        4 => (0u32..12, any::<bool>()).prop_map(|(n, forget)| Step::Read(n, forget)),
        1 => any::<bool>().prop_map(|forget| Step::Read(u32::MAX, forget)),
        3 => (1u32..=7).prop_map(Step::Resize),
    ];
    prop::collection::vec((step, any::<u64>()), 1..60)
}

/// A ring and the device that writes to it.
struct World<'m, F: CqeFormat> {
    kind: Kind,
    ring: Ring<F>,
    mem: &'m [AtomicU32],
    writer: Writer<'m>,
}

fn fresh<F: CqeFormat>(log: u32) -> Vec<AtomicU32> {
    let mem = memory(F::SIZE << log);
    Ring::<F>::init_memory(&mem);
    mem
}

impl<'m, F: CqeFormat> World<'m, F> {
    fn new(kind: Kind, ring: Ring<F>, mem: &'m [AtomicU32], format: MiniFormat, start: u64) -> Self {
        let writer = Writer::new(mem, F::SIZE, kind == Kind::Enhanced, format, start);
        Self { kind, ring, mem, writer }
    }

    fn full(&mut self, noise: &mut Noise) {
        let opcode = [0, 1, 2, 3, 4, 12, 13, 14][noise.below(8) as usize];
        self.writer.full(noise.entry(opcode));
    }

    fn session(&mut self, n: u32, noise: &mut Noise) {
        let room = self.writer.room() as u32;
        match self.kind {
            Kind::Enhanced if n.min(room) > 0 => self.writer.block(&noise.minis(n.min(room).min(7))),
            Kind::Basic if n.min(room) > 1 => {
                let opcode = noise.below(5) as u8;
                self.writer.session(noise.entry(opcode), &noise.minis(n.min(room)));
            }
            _ if room > 0 => self.full(noise),
            _ => (),
        }
    }

    /// In the basic layout one that a larger ring would have room for, too.
    fn malformed(&mut self, noise: &mut Noise) {
        let room = self.writer.room();
        let (count, slots) = match self.kind {
            Kind::Enhanced => (0, 8 + noise.below(8)),
            _ => (self.ring.entries() + 1 + noise.below(20) as u32, 1),
        };
        if slots <= room {
            let opcode = if self.kind == Kind::Enhanced { slots as u8 - 1 } else { noise.below(5) as u8 };
            self.writer.itself(with_count(noise.entry(opcode), count), slots as u32);
        }
    }

    fn read(&mut self, most: u32, forget: bool) {
        if forget {
            let mut entries = self.ring.consume(self.mem).unwrap();
            read(&mut entries, &self.writer, most);
            entries.abandon();
        }
        let mut entries = self.ring.consume(self.mem).unwrap();
        let taken = read(&mut entries, &self.writer, most);
        drop(entries);
        self.writer.waiting.drain(..taken);
        self.writer.given_back = self.writer.produced - self.writer.slots_waiting();
        assert_eq!(self.ring.ci(), self.writer.given_back as u32);
    }

    /// Exchanges the ring, if a device would.
    fn resize(&mut self, log: u32, mem: &'m [AtomicU32], noise: &mut Noise) {
        let since = self.ring.behind(self.mem).unwrap();
        assert_eq!(since, self.writer.produced as u32);
        assert_eq!(self.ring.move_to(self.mem, mem, log, since), Ok(false), "the device has not said so");
        if self.writer.room() == 0 || self.writer.slots_waiting() + 1 > 1 << log {
            return;
        }
        self.writer.resized(mem, noise.entry(5));
        assert_eq!(self.ring.move_to(self.mem, mem, log, since), Ok(true));
        assert_eq!((self.ring.ci(), self.ring.log_size()), (self.writer.given_back as u32, log));
        self.mem = mem;
    }
}

fn run<F: CqeFormat>(kind: Kind, ring: Ring<F>, format: MiniFormat, start: u64, steps: &[(Step, u64)]) {
    let first = fresh::<F>(ring.log_size());
    let rings: Vec<_> = steps
        .iter()
        .map(|(step, _)| if let Step::Resize(log) = step { fresh::<F>(*log) } else { Vec::new() })
        .collect();
    let mut world = World::new(kind, ring, &first, format, start);
    for ((step, seed), mem) in steps.iter().zip(&rings) {
        let mut noise = Noise(*seed);
        match *step {
            Step::Full if world.writer.room() > 0 => world.full(&mut noise),
            Step::Stale if world.writer.room() > 0 => world.writer.full(noise.entry(5)),
            Step::Full | Step::Stale => (),
            Step::Session(n) => world.session(n, &mut noise),
            Step::Malformed if kind != Kind::Plain => world.malformed(&mut noise),
            Step::Malformed => (),
            Step::Read(most, forget) => world.read(most, forget),
            Step::Resize(log) => world.resize(log, mem, &mut noise),
        }
    }
    world.read(u32::MAX, true);
    assert!(world.writer.waiting.is_empty());
}

proptest! {
    #[test]
    fn whatever_waits_comes_once_and_in_order_after_any_resizes(
        log in 1u32..=6,
        start in starts(),
        format in prop::sample::select(MiniFormat::ALL.to_vec()),
        steps in steps(),
    ) {
        let at = start as u32;
        run::<Cqe64>(Kind::Plain, Ring::with_ci(log, at).unwrap(), format, start, &steps);
        run::<Cqe128>(Kind::Plain, Ring::with_ci(log, at).unwrap(), format, start, &steps);
        let max_num = 64;
        let ring = Ring::with_ci(log, at).unwrap();
        run::<Basic<Cqe64>>(Kind::Basic, ring.with_sessions(format, max_num), format, start, &steps);
        let ring = Ring::with_ci(log, at).unwrap();
        run::<Basic<Cqe128>>(Kind::Basic, ring.with_sessions(format, max_num), format, start, &steps);
        let ring = Ring::with_ci(log, at).unwrap();
        run::<Enhanced<Cqe64>>(Kind::Enhanced, ring.with_sessions(format, max_num), format, start, &steps);
        let ring = Ring::with_ci(log, at).unwrap();
        run::<Enhanced<Cqe128>>(Kind::Enhanced, ring.with_sessions(format, max_num), format, start, &steps);
    }
}

/// Every place in every session: so many completions of it are taken, then the ring is exchanged.
fn every_position<F: CqeFormat>(kind: Kind, sessions: impl Fn(Ring<F>) -> Ring<F>) {
    for start in [0, (1 << 24) - 9, (1 << 32) - 9] {
        for length in 1..=17 {
            for taken in 0..=length + 1 {
                for log in [5, 6, 9] {
                    let (old, new) = (fresh::<F>(6), fresh::<F>(log));
                    let ring = sessions(Ring::with_ci(6, start as u32).unwrap());
                    let mut world = World::new(kind, ring, &old, MiniFormat::Hash, start);
                    let mut noise = Noise(u64::from(length * 100 + taken));
                    world.writer.full(noise.entry(2));
                    world.session(length, &mut noise);
                    world.session(2, &mut noise);
                    world.read(taken, false);
                    world.resize(log, &new, &mut noise);
                    assert_eq!(world.ring.log_size(), log);
                    // Behind it, as if nothing had been: of the title that was, where the layout allows it.
                    world.session(3, &mut noise);
                    world.full(&mut noise);
                    world.read(u32::MAX, true);
                    assert!(world.writer.waiting.is_empty());
                }
            }
        }
    }
}

#[test]
fn a_session_is_taken_along_from_every_position_in_it() {
    every_position::<Cqe64>(Kind::Plain, |ring| ring);
    every_position::<Cqe128>(Kind::Plain, |ring| ring);
    every_position::<Basic<Cqe64>>(Kind::Basic, |ring| ring.with_sessions(MiniFormat::Hash, 64));
    every_position::<Basic<Cqe128>>(Kind::Basic, |ring| ring.with_sessions(MiniFormat::Hash, 64));
    every_position::<Enhanced<Cqe64>>(Kind::Enhanced, |ring| ring.with_sessions(MiniFormat::Hash, 64));
    every_position::<Enhanced<Cqe128>>(Kind::Enhanced, |ring| ring.with_sessions(MiniFormat::Hash, 64));
}

#[test]
fn a_ring_with_more_entries_than_the_new_one_has_slots_stays_until_they_are_taken() {
    let (old, new) = (fresh::<Cqe64>(4), fresh::<Cqe64>(2));
    let mut world = World::new(Kind::Plain, Ring::<Cqe64>::new(4).unwrap(), &old, MiniFormat::Hash, 0);
    let mut noise = Noise(1);
    (0..6).for_each(|_| world.full(&mut noise));
    // A device that should have refused.
    world.writer.resized(&new, noise.entry(5));
    assert_eq!(world.ring.move_to(&old, &new, 2, 0), Ok(false));
    let mut entries = world.ring.consume(&old).unwrap();
    assert!(entries.next().is_some() && entries.next().is_some());
    drop(entries);
    world.writer.waiting.drain(..2);
    assert_eq!(world.ring.move_to(&old, &new, 2, 0), Ok(true));
    world.mem = &new;
    world.read(u32::MAX, true);
    assert!(world.writer.waiting.is_empty());
}

#[test]
fn wrong_memory_is_refused_and_nothing_is_changed() {
    let (old, new) = (fresh::<Cqe128>(3), fresh::<Cqe128>(4));
    let mut ring = Ring::<Cqe128>::new(3).unwrap();
    assert_eq!(ring.move_to(&old, &new, 25, 0), Err(RingError::TooLarge));
    assert_eq!(ring.move_to(&old, &new, u32::MAX, 0), Err(RingError::TooLarge));
    assert_eq!(ring.move_to(&old, &new, 5, 0), Err(RingError::ShortMemory));
    assert_eq!(ring.move_to(&old[1..], &new, 4, 0), Err(RingError::ShortMemory));
    assert_eq!((ring.ci(), ring.log_size()), (0, 3));
}
