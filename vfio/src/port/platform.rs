//! The two traits of a port.

use std::ptr::NonNull;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mlx5_hw::platform::{Bar, DmaMem, Platform, PlatformError};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::VfioFunction;
use super::function::Memory;
use super::limits::refusal;
use super::memory::HUGE;

/// What a function that has been cut off from memory answers to who wants more.
const GONE: PlatformError = PlatformError::Os(Errno::NODEV.raw_os_error());

impl VfioFunction {
    /// Does something with the function's memory. Why the kernel refused it is found out once the lock is free.
    fn with_memory<T>(&self, f: impl FnOnce(&mut Memory) -> Result<T, (usize, Errno)>) -> Result<T, PlatformError> {
        let result = {
            let mut memory = self.inner.memory();
            if memory.cut_off {
                return Err(GONE);
            }
            f(&mut memory)
        };
        result.map_err(|(len, errno)| refusal(&self.inner.host, errno, len))
    }

    /// Waits for interrupts, or, where none of these is a vector of the function, lets the time pass.
    fn wait_for(&self, vectors: u64, deadline: u64) {
        if !self.inner.interrupts.wait(vectors, deadline.saturating_sub(self.now())) {
            self.pause(deadline);
        }
    }
}

// SAFETY: memory comes zeroed from pages that the container maps for the function alone, at the address that is told, and stays
// until `free`, or for good in this process. A reset is the kernel's, whose answer is looked at, or the IOMMU has taken all
// memory from the function.
unsafe impl Platform for VfioFunction {
    fn alloc(&self, size: usize, align: usize) -> Result<DmaMem, PlatformError> {
        if align > HUGE {
            return Err(PlatformError::NoMemory);
        }
        self.with_memory(|memory| memory.arena.alloc(&mut memory.domain, size, align))
    }

    unsafe fn free(&self, mem: DmaMem) {
        let memory = &mut *self.inner.memory();
        memory.arena.free(&mut memory.domain, &mem);
    }

    fn now(&self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    fn relax(&self) {
        thread::yield_now();
    }

    unsafe fn map(&self, ptr: NonNull<u8>, len: usize) -> Result<u64, PlatformError> {
        // SAFETY: the caller promises what is asked for.
        self.with_memory(|memory| unsafe { memory.user.map(&mut memory.domain, ptr, len) })
    }

    unsafe fn unmap(&self, iova: u64, len: usize) -> Result<(), PlatformError> {
        let memory = &mut *self.inner.memory();
        if memory.cut_off && !memory.user.holds(iova) {
            return Ok(());
        }
        let result = memory.user.unmap(&mut memory.domain, iova, len);
        result.map_err(|errno| PlatformError::Os(errno.raw_os_error()))
    }

    fn reset(&self) -> Result<(), PlatformError> {
        self.inner.reset()
    }

    fn wait(&self, vector: u32, deadline: u64) {
        self.wait_for(1u64.checked_shl(vector).unwrap_or(0), deadline);
    }

    fn wait_any(&self, vectors: u64, deadline: u64) {
        self.wait_for(vectors, deadline);
    }

    fn pause(&self, until: u64) {
        thread::sleep(Duration::from_nanos(until.saturating_sub(self.now())));
    }

    fn wall_clock(&self) -> Option<u64> {
        SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_nanos().try_into().ok()
    }
}

// SAFETY: each method is one access, in program order: to the mapped register where there is one, else by one call.
unsafe impl Bar for VfioFunction {
    fn size(&self) -> usize {
        self.inner.bar.size()
    }

    #[inline]
    fn read32(&self, offset: usize) -> u32 {
        self.inner.bar.read32(self.inner.fd(), offset)
    }

    #[inline]
    fn write32(&self, offset: usize, value: u32) {
        self.inner.bar.write32(self.inner.fd(), offset, value);
    }

    #[inline]
    fn write64(&self, offset: usize, value: u64) {
        self.inner.bar.write64(self.inner.fd(), offset, value);
    }
}
