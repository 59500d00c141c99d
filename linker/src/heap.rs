//! A heap that only grows: enough for a program that opens one device.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

const SIZE: usize = 1 << 20;

#[repr(C, align(4096))]
struct Heap {
    memory: UnsafeCell<[u8; SIZE]>,
    used: AtomicUsize,
}

// SAFETY: `alloc` hands out each byte once.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap { memory: UnsafeCell::new([0; SIZE]), used: AtomicUsize::new(0) };

// SAFETY: ranges never overlap, lie in the static and are aligned as asked, up to a page.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let range = |used: usize| {
            let start = used.next_multiple_of(layout.align());
            let end = start.checked_add(layout.size())?;
            (layout.align() <= 4096 && end <= SIZE).then_some((start, end))
        };
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| Some(range(used)?.1));
        match taken.ok().and_then(range) {
            Some((start, _)) => self.memory.get().cast::<u8>().wrapping_add(start),
            None => null_mut(),
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}
