//! The model as a port: [`Platform`] and [`Bar`].

use std::ptr::NonNull;

use mlx5_hw::platform::{Bar, DmaMem, Platform, PlatformError};

use crate::model::Model;

// SAFETY: memory comes zeroed from the host's allocator with the alignment asked for, stays valid until `free`, and the
// device reaches it only while it is mapped, through atomics, under the lock that `free` takes too.
unsafe impl Platform for Model {
    fn alloc(&self, size: usize, align: usize) -> Result<DmaMem, PlatformError> {
        let mut dev = self.lock();
        let mem = dev.dma.alloc(size, align).ok_or(PlatformError::NoMemory)?;
        dev.gained();
        Ok(mem)
    }

    unsafe fn free(&self, mem: DmaMem) {
        let mut dev = self.lock();
        dev.check_not_owned(mem.iova(), mem.size());
        dev.dma.free(mem.iova());
    }

    fn now(&self) -> u64 {
        self.tick()
    }

    fn relax(&self) {
        self.relax_once();
    }

    fn reset(&self) -> Result<(), PlatformError> {
        // ENODEV: a function that is gone cannot confirm a reset.
        if self.reset_function() { Ok(()) } else { Err(PlatformError::Os(19)) }
    }

    fn wait(&self, vector: u32, deadline: u64) {
        self.wait_for(&[vector], deadline);
    }

    fn wait_any(&self, vectors: u64, deadline: u64) {
        let vectors: Vec<u32> = (0..64).filter(|n| vectors >> n & 1 == 1).collect();
        self.wait_for(&vectors, deadline);
    }

    fn pause(&self, until: u64) {
        self.wait_for(&[], until);
    }

    fn wall_clock(&self) -> Option<u64> {
        self.time_of_day()
    }

    unsafe fn map(&self, ptr: NonNull<u8>, len: usize) -> Result<u64, PlatformError> {
        let mut dev = self.lock();
        // SAFETY: the caller promises what `map` asks for.
        let iova = unsafe { dev.dma.map(ptr, len) };
        dev.gained();
        Ok(iova)
    }

    unsafe fn unmap(&self, iova: u64, len: usize) -> Result<(), PlatformError> {
        let mut dev = self.lock();
        dev.check_not_owned(iova, len);
        // EINVAL: nothing like that is mapped.
        if dev.dma.unmap(iova, len) { Ok(()) } else { Err(PlatformError::Os(22)) }
    }
}

// SAFETY: each method is one access, done in program order under the lock.
unsafe impl Bar for Model {
    fn size(&self) -> usize {
        self.lock().config.bar_size
    }

    fn read32(&self, offset: usize) -> u32 {
        self.register_read(offset)
    }

    fn write32(&self, offset: usize, value: u32) {
        self.register_write(offset, &value.to_le_bytes());
    }

    fn write64(&self, offset: usize, value: u64) {
        self.register_write(offset, &value.to_le_bytes());
    }

    fn has_wc(&self) -> bool {
        self.combines_stores()
    }

    fn write_combined(&self, offset: usize, block: &[u64; 8]) {
        let bytes = block.map(u64::to_le_bytes);
        if self.combines_stores() {
            return self.register_write(offset, bytes.as_flattened());
        }
        for (at, word) in bytes.iter().enumerate() {
            self.register_write(offset + 8 * at, word);
        }
    }
}
