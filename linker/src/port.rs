//! The port to a bare machine: memory from a static arena, the cycle counter as a clock, a reset of the PCI function.

use core::cell::UnsafeCell;
use core::ptr::NonNull;

use mlx5_hw::platform::{DmaMem, Platform, PlatformError};
use spin::Mutex;

use crate::clock::Clock;
use crate::pci::{Function, ResetError};

const PAGE: usize = 4096;
const PAGES: usize = 2048;

#[repr(C, align(4096))]
struct Memory(UnsafeCell<[u8; PAGES * PAGE]>);

// SAFETY: each page is in one allocation at a time; whoever holds that reaches it through atomics only.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; PAGES * PAGE]));
/// Which pages are taken.
static TAKEN: Mutex<[bool; PAGES]> = Mutex::new([false; PAGES]);

/// A bare x86-64 machine without an IOMMU: the device addresses memory as the CPU does, and its accesses are coherent.
#[derive(Clone, Copy)]
pub struct Machine {
    pub clock: Clock,
    pub function: Function,
}

/// Pages taken and not given back.
pub fn pages_taken() -> usize {
    TAKEN.lock().iter().filter(|taken| **taken).count()
}

// SAFETY: a range of pages is handed out once until it is freed: zeroed, in one piece, aligned as asked up to a page. The
// arena lives for ever, and its virtual addresses are physical ones, which is what the device uses. A reset succeeds
// only once the function has stopped and answers again.
unsafe impl Platform for Machine {
    fn alloc(&self, size: usize, align: usize) -> Result<DmaMem, PlatformError> {
        if align > PAGE {
            return Err(PlatformError::NoMemory);
        }
        let pages = size.div_ceil(PAGE).max(1);
        let mut taken = TAKEN.lock();
        let free = |run: &[bool]| run.iter().all(|taken| !taken);
        let first = taken.windows(pages).position(free).ok_or(PlatformError::NoMemory)?;
        taken[first..first + pages].fill(true);
        let at = MEMORY.0.get().cast::<u8>().wrapping_add(first * PAGE);
        let ptr = NonNull::new(at).ok_or(PlatformError::NoMemory)?;
        // SAFETY: the pages lie in the arena and belong to this call alone.
        unsafe {
            ptr.write_bytes(0, pages * PAGE);
            Ok(DmaMem::new(ptr, at.expose_provenance() as u64, size))
        }
    }

    unsafe fn free(&self, mem: DmaMem) {
        let first = (mem.ptr().as_ptr() as usize - MEMORY.0.get() as usize) / PAGE;
        TAKEN.lock()[first..first + mem.size().div_ceil(PAGE).max(1)].fill(false);
    }

    fn now(&self) -> u64 {
        self.clock.now()
    }

    fn relax(&self) {
        core::hint::spin_loop();
    }

    fn reset(&self) -> Result<(), PlatformError> {
        self.function.reset(&self.clock).map_err(|error| match error {
            ResetError::Unsupported => PlatformError::Unsupported,
            ResetError::Gone => PlatformError::TimedOut,
        })
    }
}
