//! A port for unit tests: it counts memory and notes doorbells.

extern crate std;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc};

use mlx5_hw::platform::{Bar, DmaMem, Platform, PlatformError};

use crate::dma::Port;

/// I/O addresses are this much above the CPU's.
pub(crate) const IOVA: u64 = 0x7f << 56;

#[derive(Default)]
struct Bench {
    /// Pieces of memory allocated and not freed.
    live: AtomicUsize,
    doorbell: AtomicU32,
}

/// Memory from the heap and a BAR whose one register is the command doorbell.
#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Bench>);

impl Fake {
    /// A fresh one, and the driver's side of it.
    pub(crate) fn port() -> (Self, Arc<Port>) {
        let fake = Self::default();
        let port = Arc::new(Port::new(Arc::new(fake.clone()), Box::new(fake.clone()), None));
        (fake, port)
    }

    /// Pieces of memory that are not freed.
    pub(crate) fn live(&self) -> usize {
        self.0.live.load(Ordering::Relaxed)
    }

    /// Slots whose doorbell was rung since the last [`clear_doorbell`](Self::clear_doorbell).
    pub(crate) fn doorbell(&self) -> u32 {
        self.0.doorbell.load(Ordering::Relaxed)
    }

    pub(crate) fn clear_doorbell(&self) {
        self.0.doorbell.store(0, Ordering::Relaxed);
    }
}

// SAFETY: zeroed memory of the asked-for size and alignment, valid until freed.
unsafe impl Platform for Fake {
    fn alloc(&self, size: usize, align: usize) -> Result<DmaMem, PlatformError> {
        let layout = Layout::from_size_align(size, align).unwrap();
        // SAFETY: the size is not zero.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        self.0.live.fetch_add(1, Ordering::Relaxed);
        // SAFETY: just allocated, page-aligned.
        Ok(unsafe { DmaMem::new(ptr, ptr.as_ptr() as u64 + IOVA, size) })
    }

    unsafe fn free(&self, mem: DmaMem) {
        self.0.live.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: from `alloc`; all memory here is asked for with page alignment.
        unsafe { dealloc(mem.ptr().as_ptr(), Layout::from_size_align(mem.size(), 4096).unwrap()) };
    }

    fn now(&self) -> u64 {
        0
    }

    fn relax(&self) {}
}

// SAFETY: registers without effect but the doorbell, which is noted.
unsafe impl Bar for Fake {
    fn size(&self) -> usize {
        0x10000
    }

    fn read32(&self, _: usize) -> u32 {
        0
    }

    fn write32(&self, offset: usize, value: u32) {
        assert_eq!(offset, 0x18, "the doorbell vector");
        self.0.doorbell.fetch_or(value.swap_bytes(), Ordering::Relaxed);
    }

    fn write64(&self, _: usize, _: u64) {}
}
