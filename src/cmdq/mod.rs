//! The command queue: slots, mailboxes, tokens, and who waits for what.
//!
//! A command claims the lowest free slot (page commands have the last one to themselves, so that the firmware can be
//! served while every other slot waits for it), writes its entry, hands it over by the owner bit and rings the
//! doorbell. The owner bit alone says that the answer is there; a completion event only says when to look. So neither
//! a lost event nor one for a slot that nobody uses does harm.
//!
//! A command whose deadline has passed keeps its slot and its mailboxes until the device gives the entry back. The lock
//! protects the table of slots and is never held while a command waits.

mod mailbox;
mod slot;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use mlx5_hw::be::Be32;
use mlx5_hw::cmd::Opcode;
use mlx5_hw::cmd_entry::{CmdQueueEntry, MAX_ENTRIES};
use spin::Mutex;

use crate::dma::{DmaRegion, Leaked, Port};
use crate::error::Error;
use mailbox::{Chain, Pool};
pub(crate) use slot::Claim;

/// Dword of an entry that holds its owner bit.
const OWNER: usize = CmdQueueEntry::OWNERSHIP.dword();
/// How long an answer may lie there without its event before the event counts as lost, in nanoseconds.
const EVENT_GRACE: u64 = 1_000_000;

/// What the command queue has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandCounters {
    /// Commands handed to the device.
    pub posted: u64,
    /// Commands without an answer at their deadline.
    pub timed_out: u64,
    /// Answers that came after the deadline; their slots and mailboxes are in use again.
    pub late: u64,
    /// Answers found by looking, because their event did not come.
    pub lost_events: u64,
    /// Completion events for slots that do not exist or were not in use.
    pub stray_events: u64,
}

/// A command's input and output blocks.
struct Message {
    input: Chain,
    output: Chain,
}

enum Slot {
    Free,
    /// A command is being written or read by its owner.
    Claimed,
    /// The device has it; `token` is in its entry.
    Running {
        token: u8,
        /// Answers and passed deadlines that were counted when it was posted.
        before: Progress,
        by_event: bool,
        event: bool,
        answered_at: Option<u64>,
    },
    /// The device has it, and nobody waits any more.
    Abandoned {
        message: Message,
        token: u8,
    },
}

impl Slot {
    fn token(&self) -> Option<u8> {
        match self {
            Self::Running { token, .. } | Self::Abandoned { token, .. } => Some(*token),
            Self::Free | Self::Claimed => None,
        }
    }
}

/// How commands have fared so far: it tells one that was forgotten from a firmware that has stopped.
#[derive(Clone, Copy, Default)]
struct Progress {
    answered: u64,
    overdue: u64,
}

struct Table {
    slots: [Slot; MAX_ENTRIES],
    seed: u8,
    progress: Progress,
    counters: CommandCounters,
}

/// The command queue of a device.
pub(crate) struct CommandQueue {
    port: Arc<Port>,
    memory: DmaRegion,
    slots: usize,
    entry_stride: usize,
    pool: Pool,
    /// Commands complete by events.
    events: AtomicBool,
    /// Mailbox blocks are signed.
    signatures: AtomicBool,
    /// The function is enabled, or may be.
    enabled: AtomicBool,
    table: Mutex<Table>,
}

impl CommandQueue {
    /// A queue in a page of its own. `log_size` and `log_stride` are what the device says of itself: log2 of the number
    /// of slots (at least two, since pages need one to themselves) and of the bytes from one to the next.
    ///
    /// # Errors
    /// `Protocol` for sizes that do not fit a page or the doorbell; `NoMemory`.
    pub(crate) fn new(port: &Arc<Port>, log_size: u32, log_stride: u32) -> Result<Self, Error> {
        if !(1..=5).contains(&log_size) || !(6..=12).contains(&log_stride) || log_size + log_stride > 12 {
            return Err(Error::Protocol { what: "size of the command queue" });
        }
        let mut memory = port.alloc(4096, 4096)?;
        memory.lend("command queue");
        Ok(Self::within(port, memory, log_size, log_stride))
    }

    /// A queue in this memory, through which nothing may be sent if that has no room for it.
    pub(crate) fn within(port: &Arc<Port>, memory: DmaRegion, log_size: u32, log_stride: u32) -> Self {
        Self {
            port: port.clone(),
            memory,
            slots: 1 << log_size,
            entry_stride: 1 << (log_stride - 2),
            pool: Pool::new(port.clone()),
            events: AtomicBool::new(false),
            signatures: AtomicBool::new(true),
            enabled: AtomicBool::new(false),
            table: Mutex::new(Table {
                slots: [const { Slot::Free }; MAX_ENTRIES],
                seed: 0x5a,
                progress: Progress::default(),
                counters: CommandCounters::default(),
            }),
        }
    }

    /// Address of the queue for the device.
    pub(crate) fn iova(&self) -> u64 {
        self.memory.iova()
    }

    /// Commands posted from now on complete by events (or, without, by their owner bit alone).
    pub(crate) fn set_events(&self, on: bool) {
        self.events.store(on, Ordering::Relaxed);
    }

    /// Between ENABLE_HCA and DISABLE_HCA the queue's memory is the device's.
    pub(crate) fn set_enabled(&self, on: bool) {
        self.enabled.store(on, Ordering::Relaxed);
    }

    /// Whether commands complete by events.
    pub(crate) fn events(&self) -> bool {
        self.events.load(Ordering::Relaxed)
    }

    /// Whether the blocks of commands from now on are signed. Entries always are.
    pub(crate) fn set_signatures(&self, on: bool) {
        self.signatures.store(on, Ordering::Relaxed);
    }

    pub(crate) fn counters(&self) -> CommandCounters {
        self.table.lock().counters
    }

    /// Claims a slot if one is free: the last one for `pages`, else the lowest of the others.
    pub(crate) fn claim(&self, opcode: Opcode, pages: bool) -> Option<Claim<'_>> {
        self.reap();
        let last = self.slots - 1;
        let range = if pages || last == 0 { last..self.slots } else { 0..last };
        let mut table = self.table.lock();
        let index = range.clone().find(|i| matches!(table.slots.get(*i), Some(Slot::Free)))?;
        *table.slots.get_mut(index)? = Slot::Claimed;
        drop(table);
        Some(Claim::new(self, index, opcode))
    }

    /// A completion event: `vector` has a bit for each slot.
    pub(crate) fn on_event(&self, vector: u32) {
        let mut table = self.table.lock();
        let mut stray = 0;
        for (i, slot) in table.slots.iter_mut().enumerate() {
            if vector & 1 << i == 0 {
                continue;
            }
            match slot {
                Slot::Running { event, by_event: true, .. } => *event = true,
                Slot::Abandoned { .. } => {}
                _ => stray += 1,
            }
        }
        table.counters.stray_events += stray;
        drop(table);
        self.reap();
    }

    /// Frees the slots of abandoned commands that the device has answered by now.
    pub(crate) fn reap(&self) {
        for index in 0..self.slots {
            let mut table = self.table.lock();
            let Some(slot) = table.slots.get_mut(index) else { return };
            if !matches!(slot, Slot::Abandoned { .. }) || self.device_owns(index) {
                continue;
            }
            let freed = core::mem::replace(slot, Slot::Free);
            table.counters.late += 1;
            table.progress.answered += 1;
            drop(table);
            if let Slot::Abandoned { message, .. } = freed {
                self.recycle(message);
            }
        }
    }

    /// Memory of commands that nobody waits for any more, and, once the device is `closed`, the queue's own if the device
    /// may still write it.
    pub(crate) fn kept(&self, closed: bool) -> Vec<Leaked> {
        let own = self.memory.kept().filter(|_| closed && self.in_use());
        let table = self.table.lock();
        let abandoned = table.slots.iter().filter_map(|slot| match slot {
            Slot::Abandoned { message, .. } => Some(message.input.kept().chain(message.output.kept())),
            _ => None,
        });
        abandoned.flatten().chain(own).collect()
    }

    fn in_use(&self) -> bool {
        self.in_flight() > 0 || self.enabled.load(Ordering::Relaxed)
    }

    /// Whether the slot of page commands can be had at once.
    pub(crate) fn page_slot_free(&self) -> bool {
        self.reap();
        matches!(self.table.lock().slots.get(self.slots - 1), Some(Slot::Free))
    }

    /// Whether each slot for ordinary commands holds one that nobody waits for any more.
    pub(crate) fn all_abandoned(&self) -> bool {
        let table = self.table.lock();
        table.slots.iter().take(self.slots - 1).all(|slot| matches!(slot, Slot::Abandoned { .. }))
    }

    /// Commands that the device has not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.table.lock().slots.iter().filter(|s| matches!(s, Slot::Running { .. } | Slot::Abandoned { .. })).count()
    }

    fn recycle(&self, mut message: Message) {
        message.input.reclaim();
        message.output.reclaim();
        self.pool.give_back(message.input);
        self.pool.give_back(message.output);
    }

    /// A token that no command in flight has: mailboxes that got mixed up are noticed.
    fn token(table: &mut Table) -> u8 {
        loop {
            table.seed = table.seed.wrapping_mul(5).wrapping_add(0x4d);
            let token = table.seed;
            if !table.slots.iter().any(|s| s.token() == Some(token)) {
                return token;
            }
        }
    }

    fn load(&self, index: usize, word: usize) -> Be32 {
        self.memory.load(index * self.entry_stride + word)
    }

    fn store(&self, index: usize, word: usize, value: Be32) {
        self.memory.store(index * self.entry_stride + word, value);
    }

    fn device_owns(&self, index: usize) -> bool {
        CmdQueueEntry::OWNERSHIP.of(self.load(index, OWNER)) != 0
    }
}

impl Drop for CommandQueue {
    fn drop(&mut self) {
        self.reap();
        if !self.in_use() {
            self.memory.reclaim();
        }
    }
}
