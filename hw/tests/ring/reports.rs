//! What public reports say about rings and sessions (class C of `tests/data/public-cases.jsonl`).

use std::sync::atomic::{AtomicU32, Ordering};

use mlx5_hw::dbrec::CqDbRec;
use mlx5_hw::mini_cqe::MiniFormat;
use mlx5_hw::ring::{Basic, Cqe64, Cqe128, CqeFormat, Enhanced, Ring};

use super::device::{memory, peek, poke};
use super::sessions::bytes;
use super::writer::{Noise, Writer};

fn fresh<F: CqeFormat>(log: u32, ci: u32) -> (Ring<F>, Vec<AtomicU32>) {
    let ring = Ring::<F>::with_ci(log, ci).unwrap();
    let mem = memory(ring.bytes());
    Ring::<F>::init_memory(&mem);
    (ring, mem)
}

/// C-015: software's owner bit follows from the counter alone, at each end of each lap, however the ring came there.
#[test]
fn the_owner_bit_is_computed_from_the_counter() {
    for (ci, owner) in
        [(0, 0), (1023, 0), (1024, 1), (2047, 1), (2048, 0), (u32::MAX, 1), (0x00ff_ffff, 1), (0x0100_0000, 0)]
    {
        for written in [0, 1] {
            let (mut ring, mem) = fresh::<Cqe64>(10, ci);
            let at = (ci as usize & 1023) * 64 + 63;
            poke(&mem, at, 0x20 | written);
            assert_eq!(ring.consume(&mem).unwrap().next().is_some(), written == owner, "index {ci}");
        }
    }
}

/// C-017: a slot as it was initialised is no entry, and so no error, in a ring of one slot and any other, in every
/// format.
#[test]
fn a_slot_that_was_not_written_is_not_ready() {
    fn none<F: CqeFormat>() {
        for log in 0..=4 {
            for ci in 0..4u32 << log {
                let (mut ring, mem) = fresh::<F>(log, ci);
                assert!((0..1 << log).all(|slot| peek(&mem, (slot + 1) * F::SIZE - 1) == 0xf0));
                let mut entries = ring.consume(&mem).unwrap();
                assert!(entries.next().is_none());
                assert_eq!(entries.taken(), 0);
            }
        }
    }
    none::<Cqe64>();
    none::<Cqe128>();
    none::<Basic<Cqe64>>();
    none::<Basic<Cqe128>>();
    none::<Enhanced<Cqe64>>();
    none::<Enhanced<Cqe128>>();
}

/// C-022: the record counts 24 bits, not 16.
#[test]
fn the_record_counts_24_bits() {
    for (ci, record) in [
        (65535, [0x00, 0x00, 0xff, 0xff]),
        (65536, [0x00, 0x01, 0x00, 0x00]),
        (16_777_215, [0x00, 0xff, 0xff, 0xff]),
        (16_777_216, [0x00, 0x00, 0x00, 0x00]),
    ] {
        // The index comes there by taking an entry.
        let (mut ring, mem) = fresh::<Basic<Cqe64>>(4, ci - 1);
        let mut writer = Writer::new(&mem, 64, false, MiniFormat::Hash, u64::from(ci) - 1);
        writer.full(Noise(0).entry(2));
        assert!(ring.consume(&mem).unwrap().next().is_some());
        let words = [AtomicU32::new(u32::MAX), AtomicU32::new(0)];
        CqDbRec::first_of(&words).unwrap().set_consumer(ring.ci());
        assert_eq!(words[0].load(Ordering::Relaxed).to_ne_bytes(), record);
    }
}

/// C-027: a queue that starts again has a new ring: index, owner sense, open session and slots begin anew.
#[test]
fn a_ring_that_starts_again_knows_nothing_of_before() {
    let (mut ring, mem) = fresh::<Basic<Cqe64>>(4, 0);
    let mut writer = Writer::new(&mem, 64, false, MiniFormat::Hash, 0);
    writer.session(Noise(0).entry(2), &Noise(1).minis(12));
    assert!(ring.consume(&mem).unwrap().next().is_some());
    // The ring is the counter and the session: there is nothing that could be kept by mistake.
    let mut ring = Ring::<Basic<Cqe64>>::new(ring.log_size()).unwrap();
    Ring::<Basic<Cqe64>>::init_memory(&mem);
    assert_eq!(ring.ci(), 0);
    assert!(ring.consume(&mem).unwrap().next().is_none());
    Writer::new(&mem, 64, false, MiniFormat::Hash, 0).full(Noise(2).entry(2));
    let mut entries = ring.consume(&mem).unwrap();
    assert!(!entries.next().unwrap().is_compressed());
    assert!(entries.next().is_none());
}

/// C-048: completions take no more room than the device gave them: a session that fills the ring is read, and
/// rewritten in place, in that ring.
#[test]
fn a_session_as_long_as_the_ring_needs_no_more_room() {
    for log in 1..=9 {
        for (taken, ci) in [(0, 0), (1, 3), ((1 << log) - 1, 1)] {
            let (ring, mem) = fresh::<Basic<Cqe64>>(log, ci);
            let mut ring = ring.with_sessions(MiniFormat::Csum, 1 << log);
            let mut writer = Writer::new(&mem, 64, false, MiniFormat::Csum, ci.into());
            writer.session(Noise(3).entry(2), &Noise(4).minis(1 << log));
            let all: Vec<_> = writer.waiting.iter().map(|e| e.bytes).collect();
            let mut entries = ring.consume(&mem).unwrap();
            (0..taken).for_each(|i| assert_eq!(bytes(entries.next().unwrap()), all[i as usize]));
            drop(entries);
            ring.expand(&mem).unwrap();
            // Plain slots from here on, for any reader.
            let mut plain = Ring::<Cqe64>::with_ci(log, ring.ci()).unwrap();
            let mut entries = plain.consume(&mem).unwrap();
            let rest: Vec<_> = std::iter::from_fn(|| entries.next()).map(bytes).collect();
            assert_eq!(rest, all[taken as usize..], "{taken} of {} taken", 1 << log);
        }
    }
}

/// C-053: a group advances the index by its number of completions, once: with the title in the basic layout, without
/// it in the enhanced one.
#[test]
fn a_group_advances_the_index_by_its_completions_once() {
    for n in 2..=7 {
        let (mut ring, mem) = fresh::<Basic<Cqe64>>(5, 0);
        Writer::new(&mem, 64, false, MiniFormat::Hash, 0).session(Noise(0).entry(2), &Noise(0).minis(n + 1));
        let mut entries = ring.consume(&mem).unwrap();
        let count = std::iter::from_fn(|| entries.next()).count();
        assert_eq!((count as u32, entries.ci()), (n + 1, n + 1));
        drop(entries);
        assert_eq!(ring.ci(), n + 1);
        let (mut ring, mem) = fresh::<Enhanced<Cqe64>>(5, 0);
        let mut writer = Writer::new(&mem, 64, true, MiniFormat::Hash, 0);
        writer.full(Noise(0).entry(2));
        writer.block(&Noise(0).minis(n));
        let mut entries = ring.consume(&mem).unwrap();
        let count = std::iter::from_fn(|| entries.next()).count();
        assert_eq!((count as u32, entries.ci()), (n + 1, n + 1));
    }
}

/// C-055: who has no room takes nothing: what is left of a group waits, however many batches of none come between.
#[test]
fn what_is_left_of_a_group_waits_for_room() {
    let (mut ring, mem) = fresh::<Basic<Cqe64>>(5, 0);
    let mut writer = Writer::new(&mem, 64, false, MiniFormat::Hash, 0);
    writer.session(Noise(0).entry(2), &Noise(1).minis(8));
    let all: Vec<_> = writer.waiting.iter().map(|e| e.bytes).collect();
    let mut seen = Vec::new();
    for room in [3, 0, 0, 5, 0, 7] {
        let before = ring.ci();
        let mut entries = ring.consume(&mem).unwrap();
        seen.extend((0..room).map_while(|_| entries.next()).map(bytes));
        drop(entries);
        assert_eq!(ring.ci() - before, room.min(8 - before));
    }
    assert_eq!(seen, all);
}

/// C-059: each place of a group is stamped once it was used, also those that the device left out, and those before
/// the ring's end and behind it. Here the whole kind: every start in a ring of 32, every length, read in batches of
/// every size.
#[test]
fn every_place_of_a_group_is_stamped_after_use() {
    for (title, n, batch) in
        (0..32).flat_map(|title| (2..=32).map(move |n| (title, n))).flat_map(|(t, n)| [1, 5, 32].map(|b| (t, n, b)))
    {
        let (mut ring, mem) = fresh::<Basic<Cqe64>>(5, title);
        // A device two laps ago: each slot looks like an entry of this lap.
        for slot in 0..32u32 {
            let lap = if slot < title { 1 } else { 0 };
            poke(&mem, 64 * slot as usize + 63, 0x20 | lap ^ 1);
        }
        Writer::new(&mem, 64, false, MiniFormat::Hash, title.into()).session(Noise(7).entry(2), &Noise(8).minis(n));
        let mut taken = 0;
        while taken < n {
            let mut entries = ring.consume(&mem).unwrap();
            taken += (0..batch.min(n - taken)).map_while(|_| entries.next()).count() as u32;
        }
        for place in title..title + n {
            assert_eq!(peek(&mem, 64 * (place as usize % 32) + 63), 0xf0, "place {place} of {n} from {title}");
        }
    }
}

/// The case's own numbers: ring of 32, title at 28, twelve completions.
#[test]
fn the_places_of_the_report_are_stamped() {
    let (mut ring, mem) = fresh::<Basic<Cqe64>>(5, 28);
    Writer::new(&mem, 64, false, MiniFormat::Hash, 28).session(Noise(7).entry(2), &Noise(8).minis(12));
    let mut entries = ring.consume(&mem).unwrap();
    while entries.next().is_some() {}
    drop(entries);
    assert_eq!(ring.ci(), 40);
    for place in [28, 29, 30, 31, 0, 1, 2, 3, 4, 5, 6, 7] {
        assert_eq!(peek(&mem, 64 * place + 63), 0xf0);
    }
    let two_laps_later = 28 + 64;
    for ci in two_laps_later..two_laps_later + 12 {
        let mut ring = Ring::<Basic<Cqe64>>::with_ci(5, ci).unwrap();
        assert!(ring.consume(&mem).unwrap().next().is_none());
    }
}
