//! Who owns a slot when: the ring, its consumer and the doorbell records (`mlx5_hw::ring`, `dbrec`, `arch`) against a device that
//! keeps to the protocol.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use mlx5_hw::arch;
use mlx5_hw::dbrec::{CqDbRec, QpDbRec};
use mlx5_hw::ring::{Cqe64, Ring};
use mlx5_hw::sync::Ordering::{self, Acquire, Relaxed, Release};
use mlx5_hw::sync::{AtomicU32, granted};

use crate::proof::{Model, each_ordering_is_needed};

/// Dword of a descriptor that stands for its body.
const BODY: usize = 11;
/// Opcode of a send's completion, in place.
const REQ: u32 = 0;

/// Memory that both sides reach.
struct Memory {
    words: Vec<AtomicU32>,
    record: [AtomicU32; 2],
    /// Stands for the body of each slot: loom notices when the two sides use one without an order between them.
    bodies: Vec<UnsafeCell<u32>>,
}

// SAFETY: loom's cells panic when two threads use one without an order between them.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self {
            words: (0..16 * slots).map(|_| AtomicU32::new(0)).collect(),
            record: [AtomicU32::new(0), AtomicU32::new(0)],
            bodies: (0..slots).map(|_| UnsafeCell::new(0)).collect(),
        })
    }

    fn write_body(&self, slot: usize, value: u32) {
        // SAFETY: a number is there for as long as the cell.
        self.bodies[slot].with_mut(|body| unsafe { *body = value });
        self.words[16 * slot + BODY].store(value.to_be(), Relaxed);
    }

    fn check_body(&self, slot: usize, value: u32) {
        // SAFETY: a number is there for as long as the cell.
        self.bodies[slot].with(|body| assert_eq!(unsafe { *body }, value));
    }
}

#[track_caller]
fn load(word: &AtomicU32, ordering: Ordering) -> u32 {
    u32::from_be(word.load(granted(ordering)))
}

/// Writes `count` entries, as far as the consumer index lets it: the body first, then the dword with `op_own`.
fn device(memory: &Memory, log: u32, count: u32) {
    let slots = 1 << log;
    for n in 0..count {
        if n.wrapping_sub(load(&memory.record[0], Acquire)) >= slots {
            return;
        }
        let slot = (n % slots) as usize;
        memory.write_body(slot, n + 1);
        let tail = n << 16 | REQ << 4 | (n / slots) & 1;
        memory.words[16 * slot + 15].store(tail.to_be(), granted(Release));
    }
}

/// Entries come in order and whole, and their slots are written again only when they have been read.
fn entries_are_whole(log: u32, count: u32, batches: u32) {
    let memory = Memory::new(1 << log);
    let mut ring = Ring::<Cqe64>::new(log).unwrap();
    Ring::<Cqe64>::init_memory(&memory.words);
    let shared = memory.clone();
    let device = thread::spawn(move || device(&shared, log, count));
    let mut seen = 0;
    for _ in 0..batches {
        let mut batch = ring.consume(&memory.words).unwrap();
        while let Some(cqe) = batch.next() {
            memory.check_body((seen & ((1 << log) - 1)) as usize, seen + 1);
            assert_eq!((cqe.dword::<BODY>().get(), u32::from(cqe.wqe_counter())), (seen + 1, seen));
            seen += 1;
        }
        drop(batch);
        CqDbRec::new(&memory.record).set_consumer(ring.ci());
    }
    device.join().unwrap();
}

/// A work request, its record and the doorbell: the device that sees the later one sees the earlier ones.
fn a_request_is_whole_when_it_is_announced() {
    let memory = Memory::new(1);
    let (shared, doorbell) = (memory.clone(), Arc::new(AtomicU32::new(0)));
    let rung = doorbell.clone();
    let device = thread::spawn(move || {
        let rung = load(&rung, Acquire);
        let record = load(&shared.record[1], Acquire);
        assert!(record >= rung, "the doorbell came before the record");
        if record == 1 {
            shared.check_body(0, 7);
        }
    });
    memory.write_body(0, 7);
    QpDbRec::new(&memory.record).set_send(1);
    arch::dma_wmb();
    doorbell.store(1u32.to_be(), Relaxed);
    device.join().unwrap();
}

const MODELS: [Model; 3] = [
    ("a_request_is_whole_when_it_is_announced", a_request_is_whole_when_it_is_announced),
    ("entries_are_whole, one slot", || entries_are_whole(0, 2, 2)),
    ("entries_are_whole, two slots", || entries_are_whole(1, 3, 2)),
];

/// Ours are the read barrier, the write barrier and the one before a consumer index; the device's are its store of `op_own` and
/// its loads of consumer index, doorbell and send counter.
#[test]
fn ownership_needs_each_ordering() {
    each_ordering_is_needed(&MODELS, &["hw/src/arch.rs", "loom/src/ring.rs"], 7);
}
