//! Any bytes as the ring of a completion queue, in each format, read in batches.

use std::collections::BTreeSet;

use mlx5_hw::be::Be32;
use mlx5_hw::mini_cqe::MiniFormat;
use mlx5_hw::ring::{Basic, Cqe64, Cqe128, CqeFormat, Enhanced, Ring};

use crate::cqe::Seen;
use crate::memory::Memory;

/// Most steps of a run.
const MOST: usize = 16;
/// Largest ring: 64 slots of 64 bytes are a little more than an input.
const MAX_LOG: u8 = 6;

/// What an input says before the ring's bytes begin.
struct Wish<'a> {
    log_size: u32,
    /// Consumed so far.
    ci: u32,
    minis: MiniFormat,
    max_num: u32,
    /// What is done with the ring, a byte each.
    steps: &'a [u8],
    image: &'a [u8],
}

/// Eight bytes and a list of steps say which ring it is and what is done with it; the rest lies in it.
pub fn run(data: &[u8]) {
    let [format, log_size, minis, max_num, c0, c1, c2, c3, steps, rest @ ..] = data else { return };
    let Some((steps, image)) = rest.split_at_checked(usize::from(*steps)) else { return };
    let wish = Wish {
        log_size: (log_size % (MAX_LOG + 1)).into(),
        ci: u32::from_be_bytes([*c0, *c1, *c2, *c3]),
        minis: MiniFormat::ALL[usize::from(*minis) % MiniFormat::ALL.len()],
        max_num: (*max_num).into(),
        steps,
        image,
    };
    match format % 6 {
        0 => drive(ring::<Cqe64>(&wish), &wish),
        1 => drive(ring::<Cqe128>(&wish), &wish),
        2 => drive(ring::<Basic<Cqe64>>(&wish).with_sessions(wish.minis, wish.max_num), &wish),
        3 => drive(ring::<Basic<Cqe128>>(&wish).with_sessions(wish.minis, wish.max_num), &wish),
        4 => drive(ring::<Enhanced<Cqe64>>(&wish).with_sessions(wish.minis, wish.max_num), &wish),
        _ => drive(ring::<Enhanced<Cqe128>>(&wish).with_sessions(wish.minis, wish.max_num), &wish),
    }
}

fn ring<F: CqeFormat>(wish: &Wish<'_>) -> Ring<F> {
    Ring::with_ci(wish.log_size, wish.ci).expect("a small ring")
}

/// Does what the steps say: the upper two bits what, the lower six how much of it.
fn drive<F: CqeFormat>(ring: Ring<F>, wish: &Wish<'_>) {
    let memory = Memory::new(ring.bytes());
    Ring::<F>::init_memory(&memory.ring()[..ring.bytes() / 4]);
    memory.write(0, wish.image);
    let mut bench = Bench { ring, memory };
    for step in wish.steps.iter().take(MOST) {
        let amount = u32::from(step & 0x3f);
        match step >> 6 {
            0 => bench.consume(amount + 1),
            1 => bench.forget(amount + 1),
            2 => bench.expand(),
            _ => bench.device_writes(amount, wish.image),
        }
    }
    // Whatever else was done: it ends, and a further look finds the same.
    bench.forget(u32::MAX);
}

/// A ring with its memory.
struct Bench<F: CqeFormat> {
    ring: Ring<F>,
    memory: Memory,
}

impl<F: CqeFormat> Bench<F> {
    /// Takes a batch, and publishes that.
    fn consume(&mut self, most: u32) {
        let (start, before) = (self.ring.ci(), self.memory.all());
        let ahead = self.look(most);
        let mut batch = self.ring.consume(self.memory.ring()).expect("memory of the ring");
        for seen in ahead {
            assert_eq!(batch.next().map(Seen::read), Some(seen), "a forgotten batch comes again");
        }
        let taken = batch.taken();
        drop(batch);
        assert_eq!(self.ring.ci(), start.wrapping_add(taken));
        let slots: BTreeSet<usize> = (0..taken).map(|i| self.slot(start.wrapping_add(i))).collect();
        let (words, stamp) = (F::SIZE / 4, Be32::new(F::VACANT).to_raw());
        let stamped = |word: usize, now| slots.contains(&(word / words)) && word % words == words - 1 && now == stamp;
        self.memory.assert_same(&before, stamped);
    }

    /// Takes a batch and forgets it: nothing changes, and it comes again.
    fn forget(&mut self, most: u32) {
        let before = self.memory.all();
        let first = self.look(most);
        assert_eq!(self.look(most), first);
        self.memory.assert_same(&before, |_, _| false);
    }

    /// The next entries, which stay.
    fn look(&mut self, most: u32) -> Vec<Seen> {
        let (ci, entries) = (self.ring.ci(), self.ring.entries());
        let mut batch = self.ring.consume(self.memory.ring()).expect("memory of the ring");
        let mut seen = Vec::new();
        while (seen.len() as u32) < most
            && let Some(cqe) = batch.next()
        {
            seen.push(Seen::read(cqe));
            assert!(seen.len() as u32 <= batch.taken() && batch.taken() <= entries, "an entry takes a slot at least");
        }
        batch.abandon();
        assert_eq!(self.ring.ci(), ci, "a forgotten batch takes nothing");
        seen
    }

    /// Rewrites what waits as full entries: the same come, and only descriptors change.
    fn expand(&mut self) {
        let before = self.memory.all();
        let compressed = self.look(u32::MAX);
        self.ring.expand(self.memory.ring()).expect("memory of the ring");
        let full = self.look(u32::MAX);
        assert_eq!(full.len(), compressed.len());
        for (full, compressed) in full.iter().zip(&compressed) {
            assert_eq!(full.without_signature(), compressed.without_signature());
        }
        let words = F::SIZE / 4;
        self.memory.assert_same(&before, |word, _| word % words >= F::DESC / 4);
    }

    /// The device writes the image once more, `by` slots further.
    fn device_writes(&mut self, by: u32, image: &[u8]) {
        let at = F::SIZE * self.slot(by);
        self.memory.write(at, image);
        self.memory.write(0, image.get(self.ring.bytes() - at..).unwrap_or(&[]));
    }

    fn slot(&self, index: u32) -> usize {
        (index & self.ring.mask()) as usize
    }
}
