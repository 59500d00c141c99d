//! Any bytes as the ring of an event queue.

use std::hint::black_box;

use mlx5_hw::be::Be32;
use mlx5_hw::eqe::Eqe;
use mlx5_hw::event_batch::EventBatch;
use mlx5_hw::ring::EqRing;
use mlx5_vfio::decode::{Kind, Record, decode_bytes};

use crate::memory::Memory;
use crate::views::layout;

/// Largest ring: 32 slots fill half of an input.
const MAX_LOG: u8 = 5;

/// The first byte says how large the ring is, the second in which lap it is read and where, the rest lies in it. Its events are
/// taken in batches, read, and decoded as the tool does; the first one's tables are printed, which takes most of the time.
pub fn run(data: &[u8]) {
    let [size, index, rest @ ..] = data else { return };
    let mut ring = EqRing::with_ci((size % (MAX_LOG + 1)).into(), (*index).into()).expect("a small ring");
    let memory = Memory::new(ring.bytes());
    EqRing::init_memory(&memory.ring()[..ring.bytes() / 4]);
    memory.write(0, rest);
    let before = memory.all();
    let (entries, start) = (ring.entries(), ring.ci());
    let mut batch = EventBatch::default();
    for event in peek(&mut ring, &memory).iter().take(1) {
        let _ =
            black_box((format!("{:?}", layout::<Eqe>(event)), decoded(event).map(|record| Record::to_text(&record))));
    }
    loop {
        let ahead = peek(&mut ring, &memory);
        batch.fill(&mut ring.consume(memory.ring()).expect("memory of the ring"));
        assert_eq!(batch.events(), ahead.get(..batch.events().len()).unwrap_or(&[]), "a forgotten batch comes again");
        batch.events().iter().for_each(read);
        // A ring that is full of events in every lap has no end but this.
        if !batch.is_full() || ring.ci().wrapping_sub(start) >= 2 * entries {
            break;
        }
    }
    memory.assert_same(&before, |_, _| false);
}

/// The events that wait, which stay.
fn peek(ring: &mut EqRing, memory: &Memory) -> Vec<[Be32; 16]> {
    let (ci, entries) = (ring.ci(), ring.entries());
    let mut batch = ring.consume(memory.ring()).expect("memory of the ring");
    let events: Vec<_> = std::iter::from_fn(|| batch.next()).take(entries as usize + 1).collect();
    assert!(events.len() <= entries as usize, "no more events than slots");
    batch.abandon();
    assert_eq!(ring.ci(), ci, "a forgotten batch takes nothing");
    events
}

fn read(event: &[Be32; 16]) {
    let eqe = layout::<Eqe>(event);
    let _ = black_box((eqe.event(), decoded(event).map(|record| record.title())));
}

/// As the tool decodes it.
fn decoded(event: &[Be32; 16]) -> Option<Record> {
    let bytes: Vec<u8> = event.iter().flat_map(|word| word.get().to_be_bytes()).collect();
    decode_bytes(&bytes, Some(Kind::Eqe)).ok()?.pop()
}
