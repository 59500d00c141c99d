//! Ownership of ring slots, against a naive device.

#![allow(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod device;
mod hostile;
mod inline;
mod laps;
mod minis;
mod reports;
mod resize;
mod sessions;
mod threads;
mod writer;

use std::sync::atomic::{AtomicU32, Ordering};

use device::{Device, body, memory, peek, poke};
use mlx5_hw::cqe::{CqeOpcode, CqeRef};
use mlx5_hw::dbrec::CqDbRec;
use mlx5_hw::event_batch::EventBatch;
use mlx5_hw::ring::{Cqe64, Cqe128, CqeFormat, EqRing, Format, Ring, RingError};
use proptest::prelude::*;

fn fresh<F: CqeFormat>(log: u32) -> (Ring<F>, Vec<AtomicU32>) {
    let ring = Ring::<F>::new(log).unwrap();
    let mem = memory(ring.bytes());
    Ring::<F>::init_memory(&mem);
    (ring, mem)
}

fn entry_bytes(cqe: CqeRef<'_>) -> Vec<u8> {
    cqe.words().iter().flat_map(|w| w.load(Ordering::Relaxed).to_ne_bytes()).collect()
}

/// Reads every field, so that one that could panic would.
fn read_all(cqe: CqeRef<'_>) {
    let _ = std::hint::black_box(format!(
        "{cqe:?} {} {} {} {} {} {} {:?} {} {}",
        cqe.timestamp(),
        cqe.slid(),
        cqe.dlid_path_bits(),
        cqe.vlan_info(),
        cqe.rss_hash_result().unwrap_or(0),
        cqe.ip_csum_ok(),
        cqe.syndrome(),
        cqe.syndrome().wc_status(),
        cqe.hw_synd_type()
    ));
}

/// Runs batches of production and consumption; each entry must come once, whole and in order, and nothing else.
fn run_batches<F: CqeFormat>(log: u32, batches: &[(u32, u32)], opcodes: &[u8]) {
    let (mut ring, mem) = fresh::<F>(log);
    let record = memory(8);
    let record = CqDbRec::first_of(&record).unwrap();
    let mut device = Device::new(1 << log, F::SIZE);
    let (mut seen, mut given_back) = (0u64, 0u64);
    for &(produce, consume) in batches {
        let room = device.entries - (device.produced - given_back);
        for _ in 0..room.min(produce.into()) {
            let opcode = opcodes[device.produced as usize % opcodes.len()];
            device.produce(&mem, opcode);
        }
        let mut consumer = ring.consume(&mem).unwrap();
        for _ in 0..consume {
            let Some(cqe) = consumer.next() else {
                assert_eq!(seen, device.produced, "an entry was not seen");
                break;
            };
            assert!(seen < device.produced, "entry {seen} was never written");
            assert_eq!(entry_bytes(cqe)[..63], body(seen));
            assert_eq!(cqe.opcode().0, opcodes[seen as usize % opcodes.len()]);
            seen += 1;
        }
        assert_eq!((consumer.ci(), consumer.taken()), (seen as u32, (seen - given_back) as u32));
        drop(consumer);
        record.set_consumer(ring.ci());
        given_back = seen;
    }
    assert_eq!(u64::from(ring.ci()), seen);
}

/// Mostly small rings, which many laps go around in a short time; up to 4096 entries.
fn logs() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0u32..=7, 1 => 8u32..=12]
}

fn batches(log: u32) -> impl Strategy<Value = Vec<(u32, u32)>> {
    let most = (1u32 << log) + 1;
    // About fifteen laps of a ring of any size, and up to sixty of the smallest.
    prop::collection::vec((0..=most, 0..=most), 1..60)
}

proptest! {
    #[test]
    fn entries_of_64_bytes_come_once_and_in_order(
        (log, batches) in logs().prop_flat_map(|log| (Just(log), batches(log))),
        opcodes in prop::collection::vec(0u8..15, 1..8),
    ) {
        run_batches::<Cqe64>(log, &batches, &opcodes);
    }

    #[test]
    fn entries_of_128_bytes_come_once_and_in_order(
        (log, batches) in logs().prop_flat_map(|log| (Just(log), batches(log))),
        opcodes in prop::collection::vec(0u8..15, 1..8),
    ) {
        run_batches::<Cqe128>(log, &batches, &opcodes);
    }

    /// Whatever the ring's bytes are, a batch is the run of slots from the next one on that are software's by the naive rule.
    #[test]
    fn any_bytes_give_the_owned_run_and_no_more(
        log in 0u32..=5,
        ci in prop_oneof![any::<u32>(), (0u32..64).prop_map(|n| u32::MAX - n), (0u32..64).prop_map(|n| 0x0100_0000 - n)],
        bytes in prop::collection::vec(any::<u8>(), 64 * 32),
        owned in prop::collection::vec(any::<bool>(), 32),
    ) {
        let mem = memory(64 << log);
        let entries = 1u64 << log;
        let lap = |n: u64| ((n / entries) % 2) as u8;
        for slot in 0..entries as usize {
            for i in 0..64 {
                poke(&mem, 64 * slot + i, bytes[64 * slot + i]);
            }
            // Random bytes alone rarely give long runs: make some slots look owned at the time they are reached.
            let reached = (u64::from(ci)..).find(|n| (n % entries) as usize == slot).unwrap();
            if owned[slot] {
                poke(&mem, 64 * slot + 63, bytes[64 * slot + 63] & 0x7e | lap(reached));
            }
        }
        let mut expected = 0;
        while expected < entries {
            let n = u64::from(ci) + expected;
            let last = peek(&mem, 64 * (n % entries) as usize + 63);
            if last >> 4 == 15 || last & 1 != lap(n) {
                break;
            }
            expected += 1;
        }
        let mut ring = Ring::<Cqe64>::with_ci(log, ci).unwrap();
        let mut consumer = ring.consume(&mem).unwrap();
        let mut taken = 0;
        while let Some(cqe) = consumer.next() {
            read_all(cqe);
            taken += 1;
            prop_assert!(taken <= entries);
        }
        drop(consumer);
        prop_assert_eq!(taken, expected);
        prop_assert_eq!(ring.ci(), ci.wrapping_add(taken as u32));
    }

    #[test]
    fn events_come_once_and_in_order(log in 0u32..=6, batches in prop::collection::vec((0u32..80, 0u32..80), 1..60)) {
        let mut ring = EqRing::new(log).unwrap();
        let mem = memory(ring.bytes());
        EqRing::init_memory(&mem);
        let mut device = Device::new(1 << log, 64);
        let (mut seen, mut given_back) = (0, 0);
        for (produce, consume) in batches {
            let room = device.entries - (device.produced - given_back);
            for _ in 0..room.min(produce.into()) {
                device.produce(&mem, 0);
            }
            let mut consumer = ring.consume(&mem).unwrap();
            for _ in 0..consume {
                let Some(event) = consumer.next() else {
                    prop_assert_eq!(seen, device.produced);
                    break;
                };
                let bytes: Vec<u8> = event.iter().flat_map(|w| w.to_raw().to_ne_bytes()).collect();
                prop_assert_eq!(&bytes[..63], &body(seen)[..]);
                seen += 1;
            }
            drop(consumer);
            given_back = seen;
        }
        prop_assert_eq!(u64::from(ring.ci()), seen);
    }
}

#[test]
fn every_size_from_1_to_4096_keeps_ownership_over_many_laps() {
    for log in 0..=12 {
        let entries = 1u32 << log;
        // Batches that are no divisor of the ring, so that each lap starts elsewhere in a batch.
        let batch = (entries / 3).max(1) + entries % 2;
        let batches = vec![(batch, batch); (5 * entries).div_ceil(batch) as usize];
        run_batches::<Cqe64>(log, &batches, &[0, 2, 13]);
        run_batches::<Cqe128>(log, &batches, &[0, 2, 13]);
        // The ring filled to the brim and emptied, seven times.
        run_batches::<Cqe64>(log, &[(entries, entries + 1); 7], &[2]);
        run_batches::<Cqe128>(log, &[(entries, entries + 1); 7], &[2]);
    }
}

#[test]
fn a_fresh_ring_is_empty_in_both_laps() {
    for log in 0..=6 {
        for ci in [0, 1 << log] {
            let mut ring = Ring::<Cqe128>::with_ci(log, ci).unwrap();
            let mem = memory(ring.bytes());
            Ring::<Cqe128>::init_memory(&mem);
            assert!(ring.consume(&mem).unwrap().next().is_none());
        }
    }
    let mut events = EqRing::new(3).unwrap();
    let mem = memory(events.bytes());
    EqRing::init_memory(&mem);
    assert!(events.consume(&mem).unwrap().next().is_none());
}

#[test]
fn a_batch_of_events_holds_what_is_there_up_to_its_size() {
    let mut ring = EqRing::new(6).unwrap();
    let mem = memory(ring.bytes());
    EqRing::init_memory(&mem);
    let mut device = Device::new(64, 64);
    for _ in 0..EventBatch::MAX + 5 {
        device.produce(&mem, 0);
    }
    let mut batch = EventBatch::default();
    let mut seen = 0;
    for (events, full) in [(EventBatch::MAX, true), (5, false), (0, false)] {
        batch.fill(&mut ring.consume(&mem).unwrap());
        assert_eq!((batch.events().len(), batch.is_full()), (events, full));
        for event in batch.events() {
            let bytes: Vec<u8> = event.iter().flat_map(|w| w.to_raw().to_ne_bytes()).collect();
            assert_eq!(&bytes[..63], &body(seen)[..]);
            seen += 1;
        }
        assert_eq!(u64::from(ring.ci()), seen);
    }
}

#[test]
fn initialising_stamps_the_last_byte_of_each_descriptor_only() {
    let mem = memory(3 * 128);
    mem[31].store(u32::MAX, Ordering::Relaxed);
    Ring::<Cqe128>::init_memory(&mem);
    for at in 0..3 * 128 {
        assert_eq!(peek(&mem, at), if at % 128 == 127 { 0xf0 } else { 0 }, "byte {at}");
    }
    EqRing::init_memory(&mem[..16]);
    assert_eq!(peek(&mem, 63), 1);
}

#[test]
fn an_entry_with_the_other_owner_bit_is_never_returned() {
    for log in 0..=4 {
        let (mut ring, mem) = fresh::<Cqe64>(log);
        let mut device = Device::new(1 << log, 64);
        for _ in 0..5u64 << log {
            let at = device.next_descriptor() + 63;
            for opcode in 0..16 {
                poke(&mem, at, opcode << 4 | device.next_owner() ^ 1);
                assert!(ring.consume(&mem).unwrap().next().is_none(), "opcode {opcode}, foreign owner");
            }
            poke(&mem, at, 0xf0 | device.next_owner());
            assert!(ring.consume(&mem).unwrap().next().is_none(), "opcode 15 is no entry");
            device.produce(&mem, CqeOpcode::REQ.0);
            let mut consumer = ring.consume(&mem).unwrap();
            assert!(consumer.next().is_some());
            assert!(consumer.next().is_none(), "the slot behind the new entry holds the last lap's");
        }
    }
}

#[test]
fn index_wraps_at_24_bits_in_the_record_and_at_32_in_the_ring() {
    for log in 0..=12 {
        for before in [0x0100_0000 - 5, u32::MAX - 4] {
            let mut ring = Ring::<Cqe64>::with_ci(log, before).unwrap();
            let mem = memory(ring.bytes());
            Ring::<Cqe64>::init_memory(&mem);
            let words = memory(8);
            let record = CqDbRec::first_of(&words).unwrap();
            let mut device = Device::new(1 << log, 64);
            device.produced = before.into();
            for n in 1..=10u32 {
                device.produce(&mem, CqeOpcode::RESP_SEND.0);
                let mut consumer = ring.consume(&mem).unwrap();
                let cqe = consumer.next().unwrap();
                assert_eq!(entry_bytes(cqe)[..63], body(device.produced - 1));
                assert!(consumer.next().is_none());
                drop(consumer);
                record.set_consumer(ring.ci());
                assert_eq!(ring.ci(), before.wrapping_add(n));
                let index = [0, 1, 2, 3].map(|i| peek(&words, i));
                let produced = (device.produced % (1 << 24)) as u32;
                assert_eq!(u32::from_be_bytes(index), produced);
            }
        }
    }
}

#[test]
fn the_largest_ring_keeps_its_lap_bit_above_the_24_bits() {
    let ring = Ring::<Cqe64>::new(24).unwrap();
    assert_eq!((ring.entries(), ring.mask(), ring.bytes()), (1 << 24, 0xff_ffff, 1 << 30));
    // Zeroed lazily by the system: only the pages around the wrap are touched. Opcode 0 with owner 0 everywhere, so on an odd
    // lap nothing is owned until it is written.
    let mut words = vec![0u32; ring.bytes() / 4];
    // SAFETY: AtomicU32 has the layout of u32, and the exclusive borrow is given up for the shared one.
    let mem = unsafe { &*(words.as_mut_slice() as *mut [u32] as *const [AtomicU32]) };
    let mut ring = Ring::<Cqe64>::with_ci(24, (1 << 25) - 2).unwrap();
    let mut device = Device::new(1 << 24, 64);
    device.produced = (1 << 25) - 2;
    assert!(ring.consume(mem).unwrap().next().is_none());
    for _ in 0..2 {
        device.produce(mem, 2);
        assert_eq!(entry_bytes(ring.consume(mem).unwrap().next().unwrap())[..63], body(device.produced - 1));
    }
    assert_eq!(ring.ci(), 1 << 25);
    // Slot 0 again, even lap: owner 0 is software's now.
    let mut consumer = ring.consume(mem).unwrap();
    assert!(consumer.next().is_some());
}

#[test]
fn a_device_that_never_stops_ends_with_the_batch() {
    for log in 0..=3 {
        let (mut ring, mem) = fresh::<Cqe64>(log);
        let mut device = Device::new(1 << log, 64);
        let mut consumer = ring.consume(&mem).unwrap();
        for n in 0..=1 << log {
            device.produce(&mem, 2);
            assert_eq!(consumer.next().is_some(), n < 1 << log, "entry {n} of a ring of {}", 1 << log);
        }
        drop(consumer);
        let mut again = ring.consume(&mem).unwrap();
        assert!(again.next().is_some(), "a new batch goes on");
    }
}

#[test]
fn a_batch_that_is_forgotten_or_only_looked_at_comes_again() {
    let (mut ring, mem) = fresh::<Cqe64>(2);
    let mut device = Device::new(4, 64);
    device.produce(&mem, 2);
    device.produce(&mem, 2);
    let mut forgotten = ring.consume(&mem).unwrap();
    assert!(forgotten.next().is_some());
    std::mem::forget(forgotten);
    assert_eq!(ring.ci(), 0);
    let mut ahead = Ring::<Cqe64>::with_ci(2, ring.ci()).unwrap();
    let mut entries = ahead.consume(&mem).unwrap();
    while entries.next().is_some() {}
    assert_eq!((entries.ci(), entries.taken()), (2, 2));
    drop(entries);
    assert_eq!((ahead.ci(), ring.ci()), (2, 0));
    let mut consumer = ring.consume(&mem).unwrap();
    assert_eq!(entry_bytes(consumer.next().unwrap())[..63], body(0));
    drop(consumer);
    assert_eq!(ring.ci(), 1);
}

#[test]
fn sizes_are_checked_once() {
    assert_eq!(Ring::<Cqe64>::new(25).unwrap_err(), RingError::TooLarge);
    assert_eq!(Ring::<Cqe64>::new(u32::MAX).unwrap_err(), RingError::TooLarge);
    let mut ring = Ring::<Cqe128>::new(1).unwrap();
    let mem = memory(256);
    assert_eq!(ring.consume(&mem[1..]).unwrap_err(), RingError::ShortMemory);
    assert_eq!(ring.consume(&[]).unwrap_err(), RingError::ShortMemory);
    assert!(ring.consume(&mem).is_ok());
    assert_eq!((Cqe64::CQE_SZ, Cqe128::CQE_SZ, Cqe64::DESC, Cqe128::DESC), (0, 1, 0, 64));
}
