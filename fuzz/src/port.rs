//! A device whose answers are right but for a few bytes: the software model, with a hand between it and the driver.

use std::collections::{BTreeMap, VecDeque};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

use mlx5_hw::platform::{Bar, DmaMem, Platform, PlatformError};
use mlx5_model::Model;

/// Registers of the command queue: the address's halves, and the doorbell.
const ADDRESS_HIGH: usize = 0x10;
const ADDRESS_LOW: usize = 0x14;
const DOORBELL: usize = 0x18;
/// Size of an entry, and where its output and the pointer to the output's mailboxes lie.
const ENTRY: usize = 64;
const OUTPUT: usize = 32;
const OUTPUT_MAILBOX: usize = 48;
/// Data bytes of a mailbox block, and where the pointer to the next one lies.
const DATA: usize = 512;
const NEXT: usize = 560;
const BLOCK: usize = 576;

/// Which bytes of which answer are changed.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The command, counted from the first.
    pub command: u8,
    /// Which bytes.
    pub place: Place,
    /// Where in them.
    pub at: u16,
    /// The new byte.
    pub value: u8,
}

/// Bytes that a device writes.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// The output's first 16 bytes, in the entry.
    Inline,
    /// The rest of the entry: pointers, lengths, token, signature, delivery status and ownership bit.
    Entry,
    /// The output behind its first 16 bytes, in the mailbox blocks.
    Mailbox,
    /// What the blocks hold beside it.
    Block,
}

#[derive(Default)]
struct State {
    /// Memory of the driver: by I/O address, where it is and its size.
    memory: BTreeMap<u64, (usize, usize)>,
    queue: u64,
    commands: u32,
    changes: VecDeque<Change>,
}

/// The driver's port.
#[derive(Clone)]
pub struct Port {
    model: Model,
    state: Arc<Mutex<State>>,
}

impl Port {
    /// A port to a model, with changes to its answers.
    pub fn new(model: Model, changes: impl IntoIterator<Item = Change>) -> Self {
        let state = State { changes: changes.into_iter().collect(), ..State::default() };
        Self { model, state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Changes the answers to the commands in these slots.
    fn answered(&self, slots: u32) {
        let mut state = self.state();
        for slot in (0..32).filter(|slot| slots >> slot & 1 != 0) {
            let command = state.commands;
            state.commands += 1;
            let entry = state.queue + slot * ENTRY as u64;
            let due: Vec<Change> = state.changes.iter().filter(|c| u32::from(c.command) == command).copied().collect();
            for change in due {
                state.change(entry, change);
            }
        }
    }
}

impl State {
    /// Where `len` bytes at an I/O address are, if the driver gave them to the device.
    fn find(&self, iova: u64, len: usize) -> Option<usize> {
        let (start, (at, size)) = self.memory.range(..=iova).next_back()?;
        let offset = usize::try_from(iova - start).ok()?;
        (offset.checked_add(len)? <= *size).then_some(at + offset)
    }

    fn read64(&self, iova: u64) -> Option<u64> {
        let at = self.find(iova, 8)? as *const [u8; 8];
        // SAFETY: `find` says that the driver's memory has 8 bytes here, and nothing else runs now.
        Some(u64::from_be_bytes(unsafe { at.read_unaligned() }))
    }

    fn write(&self, iova: u64, value: u8) {
        if let Some(at) = self.find(iova, 1) {
            // SAFETY: `find` says that it is a byte of the driver's memory, and nothing else runs now.
            unsafe { (at as *mut u8).write_volatile(value) };
        }
    }

    fn change(&self, entry: u64, change: Change) {
        let at = usize::from(change.at);
        let block = |number: usize| {
            let first = self.read64(entry + OUTPUT_MAILBOX as u64);
            (0..number.min(64)).fold(first, |block, _| self.read64(block? + NEXT as u64))
        };
        let target = match change.place {
            Place::Inline => Some(entry + (OUTPUT + at % 16) as u64),
            Place::Entry => Some(entry + (OUTPUT_MAILBOX + at % (ENTRY - OUTPUT_MAILBOX)) as u64),
            Place::Mailbox => block(at / DATA).map(|block| block + (at % DATA) as u64),
            Place::Block => block(0).map(|block| block + (DATA + at % (BLOCK - DATA)) as u64),
        };
        if let Some(target) = target {
            self.write(target, change.value);
        }
    }
}

// SAFETY: memory, time and resets are the model's.
unsafe impl Platform for Port {
    fn alloc(&self, size: usize, align: usize) -> Result<DmaMem, PlatformError> {
        let memory = self.model.alloc(size, align)?;
        self.state().memory.insert(memory.iova(), (memory.ptr().as_ptr() as usize, memory.size()));
        Ok(memory)
    }

    unsafe fn free(&self, memory: DmaMem) {
        self.state().memory.remove(&memory.iova());
        // SAFETY: the caller promises what `free` asks for.
        unsafe { self.model.free(memory) };
    }

    fn now(&self) -> u64 {
        self.model.now()
    }

    fn relax(&self) {
        self.model.relax();
    }

    fn reset(&self) -> Result<(), PlatformError> {
        self.model.reset()
    }

    fn wait(&self, vector: u32, deadline: u64) {
        self.model.wait(vector, deadline);
    }

    fn wait_any(&self, vectors: u64, deadline: u64) {
        self.model.wait_any(vectors, deadline);
    }

    fn pause(&self, until: u64) {
        self.model.pause(until);
    }

    unsafe fn map(&self, ptr: NonNull<u8>, len: usize) -> Result<u64, PlatformError> {
        // SAFETY: the caller promises what `map` asks for.
        unsafe { self.model.map(ptr, len) }
    }

    unsafe fn unmap(&self, iova: u64, len: usize) -> Result<(), PlatformError> {
        // SAFETY: the caller promises what `unmap` asks for.
        unsafe { self.model.unmap(iova, len) }
    }
}

// SAFETY: each access is one of the model's.
unsafe impl Bar for Port {
    fn size(&self) -> usize {
        self.model.size()
    }

    fn read32(&self, offset: usize) -> u32 {
        self.model.read32(offset)
    }

    fn write32(&self, offset: usize, value: u32) {
        let number = u64::from(u32::from_be_bytes(value.to_le_bytes()));
        match offset {
            ADDRESS_HIGH => self.state().queue = number << 32,
            ADDRESS_LOW => self.state().queue |= number & !0xfff,
            _ => {}
        }
        self.model.write32(offset, value);
        if offset == DOORBELL {
            self.answered(number as u32);
        }
    }

    fn write64(&self, offset: usize, value: u64) {
        self.model.write64(offset, value);
    }
}
