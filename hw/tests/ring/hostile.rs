//! Sessions that no device writes, and bytes that nobody wrote: each entry comes once, within the ring.

use std::sync::atomic::AtomicU32;

use mlx5_hw::cqe::CqeDataFormat;
use mlx5_hw::mini_cqe::MiniFormat;
use mlx5_hw::ring::{Basic, Cqe64, CqeFormat, Enhanced, Ring};
use proptest::prelude::*;

use super::device::{memory, peek, poke};
use super::sessions::{bytes, seen, with_count};
use super::writer::{COMPRESSED, Entry, Expected, Noise, TITLES, Writer};

/// Ring, memory, what writes into it.
fn fresh<F: CqeFormat>(log: u32) -> (Ring<F>, Vec<AtomicU32>) {
    let ring = Ring::<F>::new(log).unwrap();
    let mem = memory(ring.bytes());
    Ring::<F>::init_memory(&mem);
    (ring, mem)
}

/// C-047: the number of a session's completions is the title's own, big-endian, and bounded by what the device can
/// have written. A title beyond the bounds is an entry that stands for itself and takes one slot.
#[test]
fn a_title_counts_from_two_to_what_is_left_and_no_further() {
    for log in 1..=6u32 {
        for before in 0..(1u32 << log).min(9) {
            let room = (1 << log) - before;
            for (count, good) in [
                (0, false),
                (1, false),
                (2, room >= 2),
                (room, room >= 2),
                (room + 1, false),
                (u32::MAX, false),
                (room.swap_bytes(), false),
            ] {
                let (mut ring, mem) = fresh::<Basic<Cqe64>>(log);
                let mut writer = Writer::new(&mem, 64, false, MiniFormat::Hash, 0);
                (0..before).for_each(|_| writer.full(Noise(1).entry(2)));
                writer.itself(with_count(Noise(2).entry(2), count), 1);
                let mut entries = ring.consume(&mem).unwrap();
                (0..before).for_each(|_| assert!(!entries.next().unwrap().is_compressed()));
                let cqe = entries.next().unwrap();
                assert_eq!(cqe.is_compressed(), good, "{count} in a ring of {} with {room} left", 1 << log);
                assert_eq!(cqe.format() == CqeDataFormat::COMPRESSED, !good);
                assert_eq!(entries.taken(), before + 1);
                let rest = std::iter::from_fn(|| entries.next()).filter(|cqe| cqe.is_compressed()).count() as u32;
                assert_eq!(rest, if good { count - 1 } else { 0 });
            }
        }
    }
}

#[test]
fn a_title_may_have_as_many_completions_as_the_device_says_and_no_more() {
    for max_num in [2, 8, 9, 31] {
        for count in [max_num, max_num + 1] {
            let (ring, mem) = fresh::<Basic<Cqe64>>(6);
            let mut ring = ring.with_sessions(MiniFormat::Hash, max_num);
            Writer::new(&mem, 64, false, MiniFormat::Hash, 0).itself(with_count(Noise(2).entry(2), count), 1);
            assert_eq!(ring.consume(&mem).unwrap().next().unwrap().is_compressed(), count == max_num);
        }
    }
}

#[test]
fn only_completions_without_error_are_titles() {
    for opcode in 0..15 {
        let (mut ring, mem) = fresh::<Basic<Cqe64>>(6);
        Writer::new(&mem, 64, false, MiniFormat::Hash, 0).itself(with_count(Noise(2).entry(opcode), 2), 1);
        let mut entries = ring.consume(&mem).unwrap();
        assert_eq!(entries.next().unwrap().is_compressed(), opcode <= 4, "opcode {opcode}");
    }
}

/// A block has at most seven minis; one that claims more, more than is left, or that has no title, takes its slots as
/// it is.
#[test]
fn a_block_without_a_title_or_with_too_many_minis_takes_its_slots() {
    for (titled, nibble, taken) in [(true, 6, 7), (true, 7, 8), (true, 14, 15), (false, 0, 1), (false, 6, 7)] {
        let (mut ring, mem) = fresh::<Enhanced<Cqe64>>(4);
        let mut writer = Writer::new(&mem, 64, true, MiniFormat::Hash, 0);
        // An error is no title.
        writer.full(Noise(1).entry(if titled { 2 } else { 13 }));
        let mut block = Noise(2).entry(nibble);
        block[63] |= COMPRESSED;
        writer.itself(block, taken);
        let mut entries = ring.consume(&mem).unwrap();
        assert!(!entries.next().unwrap().is_compressed());
        let good = titled && nibble == 6;
        let cqe = entries.next().unwrap();
        assert_eq!((cqe.is_compressed(), cqe.format() == CqeDataFormat::COMPRESSED), (good, !good));
        assert_eq!(entries.ci(), if good { 2 } else { 1 + taken });
    }
    // Five are left of the ring, six are claimed: the batch ends at the ring's end.
    let (mut ring, mem) = fresh::<Enhanced<Cqe64>>(3);
    let mut writer = Writer::new(&mem, 64, true, MiniFormat::Hash, 0);
    (0..3).for_each(|_| writer.full(Noise(1).entry(2)));
    let mut block = Noise(2).entry(5);
    block[63] |= COMPRESSED;
    writer.itself(block, 5);
    let mut entries = ring.consume(&mem).unwrap();
    (0..3).for_each(|_| assert!(entries.next().is_some()));
    assert_eq!(entries.next().unwrap().format(), CqeDataFormat::COMPRESSED);
    assert_eq!((entries.ci(), entries.next().is_none()), (8, true));
}

/// A ring, byte by byte: what a batch from index `ci` on must give.
struct Naive<'m> {
    mem: &'m [AtomicU32],
    entries: u64,
    ci: u64,
    format: MiniFormat,
}

impl Naive<'_> {
    fn descriptor(&self, taken: u64) -> Entry {
        let at = ((self.ci + taken) % self.entries) as usize * 64;
        std::array::from_fn(|i| peek(self.mem, at + i))
    }

    fn mini(array: Entry, i: u64) -> [u8; 8] {
        let at = 8 * (i % 8) as usize;
        array[at..at + 8].try_into().unwrap()
    }

    fn lap(&self, taken: u64) -> u64 {
        (self.ci + taken) / self.entries
    }

    fn basic(&self) -> Vec<Expected> {
        let mut out = Vec::new();
        let mut taken = 0;
        while taken < self.entries {
            let entry = self.descriptor(taken);
            let (opcode, owner) = (entry[63] >> 4, u64::from(entry[63] & 1));
            if opcode == 15 || owner != self.lap(taken) % 2 {
                break;
            }
            let count = u64::from(u32::from_be_bytes(entry[44..48].try_into().unwrap()));
            let title = TITLES.contains(&opcode) && (2..=self.entries - taken).contains(&count);
            if entry[63] & COMPRESSED != COMPRESSED || !title {
                out.push(Expected::full(entry, 1));
                taken += 1;
            } else {
                for i in 0..count {
                    let array = self.descriptor(taken + if i < 8 { 1 } else { i - i % 8 });
                    let owner = (self.lap(taken + i) % 2) as u8;
                    out.push(Expected::of_mini(entry, Self::mini(array, i), self.format, i as u16, owner));
                }
                taken += count;
            }
        }
        out
    }

    fn enhanced(&self) -> Vec<Expected> {
        let mut out = Vec::new();
        let mut title: Option<(Entry, u16)> = None;
        let mut taken = 0;
        while taken < self.entries {
            let entry = self.descriptor(taken);
            if entry[63] >> 4 == 15 || entry[62] != self.lap(taken) as u8 {
                break;
            }
            let left = self.entries - taken;
            let count = u64::from(entry[63] >> 4) + 1;
            match &mut title {
                _ if entry[63] & COMPRESSED != COMPRESSED => {
                    if TITLES.contains(&(entry[63] >> 4)) {
                        title = Some((entry, 0));
                    }
                    out.push(Expected::full(entry, 1));
                    taken += 1;
                }
                Some((title, since)) if count <= 7 && count <= left => {
                    for i in 0..count {
                        *since = since.wrapping_add(1);
                        let owner = (self.lap(taken + i) % 2) as u8;
                        let mut mini = Expected::of_mini(*title, Self::mini(entry, i), self.format, *since, owner);
                        mini.bytes[62] = 0;
                        out.push(mini);
                    }
                    taken += count;
                }
                _ => {
                    out.push(Expected::full(entry, count.min(left) as u32));
                    taken += count.min(left);
                }
            }
        }
        out
    }
}

/// Drains a ring of any bytes.
fn drained<F: CqeFormat>(ring: &mut Ring<F>, mem: &[AtomicU32], enhanced: bool) -> Vec<Expected> {
    let mut entries = ring.consume(mem).unwrap();
    let mut out = Vec::new();
    loop {
        let before = entries.ci();
        let Some(cqe) = entries.next() else { return out };
        out.push(seen(cqe, entries.ci().wrapping_sub(before), enhanced));
        assert!(out.len() <= ring_slots(mem), "more than the ring has");
    }
}

fn ring_slots(mem: &[AtomicU32]) -> usize {
    mem.len() / 16
}

/// Random memory in which many slots look owned when they are reached, many like titles.
fn litter(mem: &[AtomicU32], ci: u64, seed: u64, enhanced: bool) {
    let mut noise = Noise(seed);
    let entries = ring_slots(mem) as u64;
    for taken in 0..entries {
        let at = ((ci + taken) % entries) as usize * 64;
        let lap = (ci + taken) / entries;
        for (i, byte) in noise.minis(8).concat().into_iter().enumerate() {
            poke(mem, at + i, byte);
        }
        if noise.below(3) == 0 {
            (44..47).for_each(|i| poke(mem, at + i, 0));
            poke(mem, at + 47, noise.below(entries + 2) as u8);
        }
        let op_own = (noise.below(6) << 4 | noise.below(4) << 2) as u8;
        if noise.below(8) != 0 {
            poke(mem, at + 63, op_own | (lap % 2) as u8);
            if enhanced {
                poke(mem, at + 62, lap as u8);
            }
        }
    }
}

proptest! {
    /// Whatever the bytes: a batch is what the rules say, byte by byte, and none is read twice by the next one.
    #[test]
    fn any_bytes_in_a_ring_with_sessions_are_read_by_the_rules(
        log in 0u32..=6,
        ci in super::sessions::starts(),
        seed in any::<u64>(),
        format in prop::sample::select(MiniFormat::ALL.to_vec()),
    ) {
        let mem = memory(64 << log);
        let naive = Naive { mem: &mem, entries: 1 << log, ci, format };
        litter(&mem, ci, seed, false);
        let expected = naive.basic();
        let mut ring = Ring::<Basic<Cqe64>>::with_ci(log, ci as u32).unwrap().with_sessions(format, u32::MAX);
        prop_assert_eq!(drained(&mut ring, &mem, false), expected);
        litter(&mem, ci, seed, true);
        let expected = naive.enhanced();
        let mut ring = Ring::<Enhanced<Cqe64>>::with_ci(log, ci as u32).unwrap().with_sessions(format, u32::MAX);
        prop_assert_eq!(drained(&mut ring, &mem, true), expected);
        // Rewriting what waits keeps within the ring too.
        litter(&mem, ci, seed, false);
        let mut ring = Ring::<Basic<Cqe64>>::with_ci(log, ci as u32).unwrap();
        ring.expand(&mem).unwrap();
        prop_assert_eq!(ring.ci(), ci as u32);
        let mut entries = ring.consume(&mem).unwrap();
        while let Some(cqe) = entries.next() {
            prop_assert!(!cqe.is_compressed());
            let _ = bytes(cqe);
        }
    }
}
