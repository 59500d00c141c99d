//! Memory goes while data from completions is copied to it: the gate before it (`src/gate.rs`).

use loom::cell::UnsafeCell;
use loom::thread;

use crate::gate::Gate;
use crate::proof::{Model, each_ordering_is_needed};
use crate::sync::Arc;

/// Memory behind a gate: loom notices a use that is not ordered with the others.
#[derive(Default)]
struct Memory {
    gate: Gate,
    /// One for each visitor: what they copy is apart.
    bytes: [UnsafeCell<char>; 2],
}

// SAFETY: loom's cell panics when two threads use it without an order between them.
unsafe impl Sync for Memory {}

impl Memory {
    fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    fn set(&self, at: usize, to: char) {
        // SAFETY: a char is there for as long as the cell.
        self.bytes[at].with_mut(|byte| unsafe { *byte = to });
    }

    fn get(&self, at: usize) -> char {
        // SAFETY: as above.
        self.bytes[at].with(|byte| unsafe { *byte })
    }

    fn set_all(&self, to: char) {
        (0..self.bytes.len()).for_each(|at| self.set(at, to));
    }

    /// What a poller does, to its own byte. The memory is there for it.
    fn copy(&self, at: usize) {
        if let Some(_visit) = self.gate.pass() {
            assert_ne!(self.get(at), '-', "memory that is gone, or not there yet");
            self.set(at, 'c');
        }
    }

    /// What deregistration does.
    fn free(&self) {
        self.gate.close(thread::yield_now);
        self.set_all('-');
    }

    fn register(&self) {
        self.set_all('r');
        self.gate.open();
    }
}

fn pollers(memory: &Arc<Memory>, number: usize) -> Vec<thread::JoinHandle<()>> {
    let poller = |at| {
        let memory = memory.clone();
        thread::spawn(move || memory.copy(at))
    };
    (0..number).map(poller).collect()
}

fn join(pollers: Vec<thread::JoinHandle<()>>) {
    pollers.into_iter().for_each(|poller| poller.join().unwrap());
}

/// Memory is deregistered while `number` pollers copy to it.
fn memory_that_is_copied_to_lives(number: usize) {
    let memory = Memory::new();
    memory.register();
    let pollers = pollers(&memory, number);
    memory.free();
    assert_eq!((memory.get(0), memory.get(1)), ('-', '-'), "written to after it was gone");
    join(pollers);
}

/// Memory is registered while a poller tries to copy to it.
fn memory_that_is_copied_to_is_there() {
    let memory = Memory::new();
    memory.set_all('-');
    let pollers = pollers(&memory, 1);
    memory.register();
    join(pollers);
}

/// The same key's row is used again while a poller, which may have looked at it before, copies.
fn the_next_memory_is_not_taken_for_the_one_before() {
    let memory = Memory::new();
    memory.register();
    let pollers = pollers(&memory, 1);
    memory.free();
    memory.register();
    join(pollers);
}

const MODELS: [Model; 4] = [
    ("memory_that_is_copied_to_lives, one poller", || memory_that_is_copied_to_lives(1)),
    ("memory_that_is_copied_to_lives, two pollers", || memory_that_is_copied_to_lives(2)),
    ("memory_that_is_copied_to_is_there", memory_that_is_copied_to_is_there),
    ("the_next_memory_is_not_taken_for_the_one_before", the_next_memory_is_not_taken_for_the_one_before),
];

#[test]
fn deregistering_against_copying_needs_each_ordering() {
    each_ordering_is_needed(&MODELS, &["src/gate.rs"], 4);
}
