//! The model as a port: [`Platform`] and [`Bar`].

use std::ptr::NonNull;

use mlx5_hw::platform::{Bar, DmaMem, Platform, PlatformError};

use crate::bar;
use crate::model::Model;
use crate::violation::ViolationKind;

// SAFETY: memory comes zeroed from the host's allocator with the alignment asked for, stays valid until `free`, and the
// device reaches it only while it is mapped, through atomics, under the lock that `free` takes too.
unsafe impl Platform for Model {
    fn alloc(&self, size: usize, align: usize) -> Result<DmaMem, PlatformError> {
        self.lock().dma.alloc(size, align).ok_or(PlatformError::NoMemory)
    }

    unsafe fn free(&self, mem: DmaMem) {
        let mut dev = self.lock();
        if let Some(owner) = dev.owner_of(mem.iova(), mem.size() as u64) {
            let detail = format!("{} bytes at {:#x}, in use by {owner}", mem.size(), mem.iova());
            dev.violate(ViolationKind::FreedWhileOwned, detail);
        }
        dev.dma.free(mem.iova());
    }

    fn now(&self) -> u64 {
        let mut dev = self.lock();
        let until = dev.clock.now() + dev.config.now_ns;
        dev.advance(until);
        until
    }

    fn relax(&self) {
        let mut dev = self.lock();
        let until = dev.clock.now() + dev.config.relax_ns;
        dev.advance(until);
    }

    unsafe fn map(&self, ptr: NonNull<u8>, len: usize) -> Result<u64, PlatformError> {
        // SAFETY: the caller promises what `map` asks for.
        Ok(unsafe { self.lock().dma.map(ptr, len) })
    }

    unsafe fn unmap(&self, iova: u64, len: usize) -> Result<(), PlatformError> {
        let mut dev = self.lock();
        if dev.dma.unmap(iova, len) { Ok(()) } else { Err(PlatformError::Os(22)) }
    }
}

// SAFETY: each method is one access, done in program order under the lock.
unsafe impl Bar for Model {
    fn size(&self) -> usize {
        self.lock().config.bar_size
    }

    fn read32(&self, offset: usize) -> u32 {
        bar::read32(&mut self.lock(), offset)
    }

    fn write32(&self, offset: usize, value: u32) {
        let mut dev = self.lock();
        bar::write(&mut dev, offset, &value.to_le_bytes());
        dev.run();
    }

    fn write64(&self, offset: usize, value: u64) {
        let mut dev = self.lock();
        bar::write(&mut dev, offset, &value.to_le_bytes());
        dev.run();
    }
}
