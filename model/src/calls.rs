//! What a driver asks of registers and of its port, counted: how a test sees that a driver which has nothing to do does nothing.

/// Calls so far, by kind. Register writes count when they reach the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Register reads.
    pub reads: u64,
    /// Writes to the init segment: addresses and the doorbell of commands.
    pub init_segment: u64,
    /// Doorbells of send queues.
    pub sends: u64,
    /// Work requests that were stored to a BlueFlame buffer, each with the first of its stores; one that arrives in pieces counts as
    /// the doorbell that it then is.
    pub flames: u64,
    /// Arm doorbells of completion queues.
    pub cq_arms: u64,
    /// Doorbells of event queues that arm.
    pub eq_arms: u64,
    /// Doorbells of event queues that do not.
    pub eq_updates: u64,
    /// Other register writes.
    pub other_writes: u64,
    /// [`wait`](mlx5_hw::platform::Platform::wait) and [`wait_any`](mlx5_hw::platform::Platform::wait_any) for at least one
    /// interrupt.
    pub waits: u64,
    /// [`pause`](mlx5_hw::platform::Platform::pause).
    pub pauses: u64,
    /// [`relax`](mlx5_hw::platform::Platform::relax).
    pub relaxes: u64,
    /// [`now`](mlx5_hw::platform::Platform::now).
    pub nows: u64,
}

impl Calls {
    /// Doorbells of all kinds, commands included.
    pub fn doorbells(&self) -> u64 {
        self.init_segment + self.sends + self.flames + self.cq_arms + self.eq_arms + self.eq_updates + self.other_writes
    }

    /// The calls that came after `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            init_segment: self.init_segment - before.init_segment,
            sends: self.sends - before.sends,
            flames: self.flames - before.flames,
            cq_arms: self.cq_arms - before.cq_arms,
            eq_arms: self.eq_arms - before.eq_arms,
            eq_updates: self.eq_updates - before.eq_updates,
            other_writes: self.other_writes - before.other_writes,
            waits: self.waits - before.waits,
            pauses: self.pauses - before.pauses,
            relaxes: self.relaxes - before.relaxes,
            nows: self.nows - before.nows,
        }
    }

    /// A wait for `vectors`; for none it is a pause.
    pub(crate) fn wait(&mut self, vectors: &[u32]) {
        if vectors.is_empty() { self.pauses += 1 } else { self.waits += 1 }
    }

    /// A write of up to 8 bytes at `at` of a UAR page, or to the init segment; `buffer` is the size of a BlueFlame buffer. Of an 8-byte
    /// doorbell in two halves the first counts.
    pub(crate) fn write(&mut self, at: Option<usize>, buffer: usize) {
        match at {
            None => self.init_segment += 1,
            Some(0x20) => self.cq_arms += 1,
            Some(0x40) => self.eq_arms += 1,
            Some(0x48) => self.eq_updates += 1,
            Some(at @ 0x800..) if at.is_multiple_of(buffer) => self.sends += 1,
            Some(0x24) => (),
            Some(at @ 0x800..) if at % buffer == 4 => (),
            Some(_) => self.other_writes += 1,
        }
    }
}
