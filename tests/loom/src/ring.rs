//! Who owns a slot when: the ring, its consumer and the doorbell records (`mlx5_hw::ring`, `dbrec`, `arch`) against a device that
//! keeps to the protocol.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use mlx5_hw::arch;
use mlx5_hw::dbrec::{CqDbRec, QpDbRec};
use mlx5_hw::mini_cqe::MiniFormat;
use mlx5_hw::ring::{Basic, Cqe64, Ring};
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

/// Writes entries number `from` to `to`, as far as the consumer index lets it: the body first, then the dword with `op_own`. How
/// many there are then.
fn device(memory: &Memory, log: u32, from: u32, to: u32) -> u32 {
    let slots = 1 << log;
    for n in from..to {
        if n.wrapping_sub(load(&memory.record[0], Acquire)) >= slots {
            return n;
        }
        let slot = (n % slots) as usize;
        memory.write_body(slot, n + 1);
        let tail = n << 16 | REQ << 4 | (n / slots) & 1;
        memory.words[16 * slot + 15].store(tail.to_be(), granted(Release));
    }
    to
}

/// Entries come in order and whole, and their slots are written again only when they have been read.
fn entries_are_whole(log: u32, count: u32, batches: u32) {
    let memory = Memory::new(1 << log);
    let mut ring = Ring::<Cqe64>::new(log).unwrap();
    Ring::<Cqe64>::init_memory(&memory.words);
    let shared = memory.clone();
    let device = thread::spawn(move || device(&shared, log, 0, count));
    let mut seen = 0;
    for _ in 0..batches {
        let mut batch = ring.consume_to(&memory.words, Some(CqDbRec::new(&memory.record))).unwrap();
        while let Some(cqe) = batch.next() {
            memory.check_body((seen & ((1 << log) - 1)) as usize, seen + 1);
            assert_eq!((cqe.dword::<BODY>().get(), u32::from(cqe.wqe_counter())), (seen + 1, seen));
            seen += 1;
        }
    }
    device.join().unwrap();
}

/// Lengths of the session's completions are this and one more.
const LENGTH: u32 = 100;

/// Writes a session of two completions into a ring of two slots: the array, then the title. Then entries, on the next lap.
fn device_with_session(memory: &Memory) -> u32 {
    memory.write_body(1, 0);
    for mini in 0..2 {
        memory.words[16 + 2 * mini + 1].store((LENGTH + mini as u32).to_be(), Relaxed);
    }
    memory.write_body(0, 2);
    const COMPRESSED: u32 = 3 << 2;
    memory.words[15].store((REQ << 4 | COMPRESSED).to_be(), granted(Release));
    device(memory, 1, 2, 4)
}

/// A session is read whole, in batches of `most`, and what is stamped at the end of a batch is not what the device writes next:
/// publishing what was consumed is the last thing that a batch does.
fn a_session_is_whole(most: u32) {
    let memory = Memory::new(2);
    let mut ring = Ring::<Basic<Cqe64>>::new(1).unwrap().with_sessions(MiniFormat::Hash, 2);
    Ring::<Basic<Cqe64>>::init_memory(&memory.words);
    let shared = memory.clone();
    let device = thread::spawn(move || device_with_session(&shared));
    let mut seen = 0;
    let mut poll = || {
        let before = seen;
        let mut batch = ring.consume_to(&memory.words, Some(CqDbRec::new(&memory.record))).unwrap();
        while let Some(cqe) = if seen - before < most { batch.next() } else { None } {
            let length = if seen < 2 { LENGTH + seen } else { seen + 1 };
            // The array is the session's, for as long as one of its completions is.
            memory.check_body(if seen < 2 { 1 } else { (seen & 1) as usize }, if seen < 2 { 0 } else { length });
            assert_eq!(cqe.byte_cnt(), length);
            seen += 1;
        }
        seen
    };
    (0..3).for_each(|_| _ = poll());
    let written = device.join().unwrap();
    let mut all = poll();
    (0..4).for_each(|_| all = poll());
    assert_eq!(all, written, "entries that were stamped away");
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

const MODELS: [Model; 5] = [
    ("a_request_is_whole_when_it_is_announced", a_request_is_whole_when_it_is_announced),
    ("entries_are_whole, one slot", || entries_are_whole(0, 2, 2)),
    ("entries_are_whole, two slots", || entries_are_whole(1, 3, 2)),
    ("a_session_is_whole, one completion a batch", || a_session_is_whole(1)),
    ("a_session_is_whole, all in a batch", || a_session_is_whole(4)),
];

/// Ours are the read barrier, the write barrier and the one before a consumer index; the device's are its store of `op_own` and
/// its store of a title's, and its loads of consumer index, doorbell and send counter.
#[test]
fn ownership_needs_each_ordering() {
    each_ordering_is_needed(&MODELS, &["hw/src/arch.rs", "loom/src/ring.rs"], 8);
}
