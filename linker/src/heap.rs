//! The heap: a mebibyte of the image.

use core::cell::UnsafeCell;

use linked_list_allocator::LockedHeap;

const SIZE: usize = 1 << 20;

#[repr(C, align(4096))]
struct Memory(UnsafeCell<[u8; SIZE]>);

// SAFETY: handed to the allocator once, which locks.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; SIZE]));

#[global_allocator]
static HEAP: LockedHeap = LockedHeap::empty();

/// Gives the memory to the allocator; to be called once, before the first allocation.
pub fn init() {
    // SAFETY: the static is nobody else's, and this is called once.
    unsafe { HEAP.lock().init(MEMORY.0.get().cast(), SIZE) }
}

/// Bytes in use.
pub fn used() -> usize {
    HEAP.lock().used()
}
