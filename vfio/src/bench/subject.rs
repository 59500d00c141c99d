//! What is timed: one drain of a full ring, or as many calls. What fills the ring in between is not.

use std::hint::black_box;
use std::sync::LazyLock;

use super::floor::{floor, read_byte_63};
use super::memory::RingMemory;
use super::rings::{Image, Kind};

/// Bytes that push a ring out of the first two levels of caches.
const SWEEP: usize = 6 << 20;
/// Calls in one run of something that does not drain.
pub const CALLS: u32 = 256;

/// Where the ring is when a drain begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In the nearest caches, as whoever wrote it left it.
    Hot,
    /// In the last level of caches.
    L3,
    /// In memory.
    Cold,
}

impl State {
    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::L3 => "L3",
            Self::Cold => "cold",
        }
    }
}

/// Something to time.
pub trait Subject {
    /// Completions or calls in one run.
    fn items(&self) -> u32;

    /// What [`run`](Self::run) must return.
    fn right(&self) -> u64;

    /// Makes the next run possible. This is not timed.
    fn prepare(&mut self);

    /// What is timed; a sum that shows that it did what it should.
    fn run(&mut self) -> u64;
}

/// A ring, and who writes it.
pub struct Producer {
    image: Image,
    memory: RingMemory,
    lap: u32,
    state: State,
}

impl Producer {
    /// Will write such images, lap by lap.
    pub fn new(image: Image, state: State) -> Self {
        let memory = RingMemory::new(image.log() + (image.cqe_size() / 64).ilog2());
        // The lap before the first: a ring in which nothing is new.
        Self { image, memory, lap: u32::MAX, state }
    }

    /// What it writes.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The ring.
    pub fn memory(&self) -> &RingMemory {
        &self.memory
    }

    /// Consumer index at which the present lap begins.
    pub fn ci(&self) -> u32 {
        self.lap << self.image.log()
    }

    /// Writes the next lap, and leaves the ring where it should be.
    pub fn produce(&mut self) {
        self.lap = self.lap.wrapping_add(1);
        self.write();
    }

    /// Writes the present lap.
    pub fn write(&mut self) {
        self.memory.copy(self.image.lap(self.lap));
        match self.state {
            State::Hot => {}
            State::L3 => sweep(),
            State::Cold => self.memory.flush(),
        }
    }
}

/// Goes through so much memory that what was in the nearest caches is there no longer.
fn sweep() {
    static OTHERS: LazyLock<Vec<u8>> = LazyLock::new(|| vec![1; SWEEP]);
    black_box(OTHERS.iter().step_by(64).map(|byte| u64::from(*byte)).sum::<u64>());
}

/// The [`floor`] on a ring.
pub struct Floor(Producer);

impl Floor {
    /// On received sends in entries of 64 bytes.
    pub fn new(log: u32, state: State) -> Self {
        Self(Producer::new(Image::new(Kind::Send, log, 64), state))
    }
}

impl Subject for Floor {
    fn items(&self) -> u32 {
        1 << self.0.image.log()
    }

    fn right(&self) -> u64 {
        self.0.image.told().iter().map(|told| u64::from(told.byte_cnt)).sum()
    }

    fn prepare(&mut self) {
        self.0.produce();
    }

    fn run(&mut self) -> u64 {
        floor(self.0.memory.slots(), self.0.ci()).0
    }
}

/// [`read_byte_63`] on a ring in which nothing is new.
pub struct Byte63(Producer);

impl Byte63 {
    /// On a ring of `2^log` entries.
    pub fn new(log: u32) -> Self {
        Self(Producer::new(Image::new(Kind::Send, log, 64), State::Hot))
    }
}

impl Subject for Byte63 {
    fn items(&self) -> u32 {
        CALLS
    }

    fn right(&self) -> u64 {
        0
    }

    fn prepare(&mut self) {
        self.0.write();
    }

    fn run(&mut self) -> u64 {
        read_byte_63(self.0.memory.slots().at(0), CALLS)
    }
}
