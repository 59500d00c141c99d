//! The smallest port: memory from a static arena, the cycle counter as a clock.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use mlx5_hw::platform::{DmaMem, Platform, PlatformError};

const SIZE: usize = 4 << 20;

#[repr(C, align(4096))]
struct Memory(UnsafeCell<[u8; SIZE]>);

// SAFETY: each range is handed out once; whoever holds it reaches it through atomics only.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; SIZE]));
static USED: AtomicUsize = AtomicUsize::new(0);

/// Memory that the device addresses as the CPU does. What is freed is not used again: a port that opens more than
/// one device in its life wants a free list.
pub struct Arena;

// SAFETY: each range is handed out once, zeroed, in one piece, aligned as asked up to a page; the arena lives for ever.
unsafe impl Platform for Arena {
    fn alloc(&self, size: usize, align: usize) -> Result<DmaMem, PlatformError> {
        let range = |used: usize| {
            let start = used.next_multiple_of(align);
            let end = start.checked_add(size)?;
            (align <= 4096 && end <= SIZE).then_some((start, end))
        };
        let taken = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| Some(range(used)?.1));
        let (start, _) = taken.ok().and_then(range).ok_or(PlatformError::NoMemory)?;
        let at = MEMORY.0.get().cast::<u8>().wrapping_add(start);
        let ptr = NonNull::new(at).ok_or(PlatformError::NoMemory)?;
        // SAFETY: the range lies in the arena and belongs to this call alone.
        Ok(unsafe { DmaMem::new(ptr, at as u64, size) })
    }

    unsafe fn free(&self, _: DmaMem) {}

    /// The time stamp counter taken as nanoseconds: right at 1 GHz, early on a faster processor. A real port calibrates it.
    fn now(&self) -> u64 {
        // SAFETY: every x86-64 processor has the instruction.
        unsafe { core::arch::x86_64::_rdtsc() }
    }

    fn relax(&self) {
        core::hint::spin_loop();
    }
}
