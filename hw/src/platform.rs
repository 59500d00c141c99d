//! The two traits of a port: what the driver needs from the place it runs in.
//!
//! [`Platform`] gives memory that the device can reach, a clock and a way to wait; [`Bar`] gives access to the
//! device's registers. `docs/porting.md` shows a complete small port.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

/// Why the platform could not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlatformError {
    /// No memory, or no room in the I/O address space.
    NoMemory,
    /// This platform cannot do that at all.
    Unsupported,
    /// The operating system refused; its error number.
    Os(i32),
    /// The hardware did not finish in time.
    TimedOut,
    /// The operating system does not let the process lock that much memory, and what a device reaches is locked.
    LockedMemory {
        /// How much it may lock, in bytes.
        limit: u64,
        /// How much it has locked and wants, in bytes, together.
        wanted: u64,
    },
}

/// Memory that both the driver and the device reach: zeroed, coherent, contiguous in I/O addresses.
///
/// It is a plain description: dropping it frees nothing. Whoever owns it gives it back with [`Platform::free`].
#[derive(Debug)]
pub struct DmaMem {
    ptr: NonNull<u8>,
    iova: u64,
    size: usize,
}

// SAFETY: the memory is only reached through atomics and is not tied to the thread that allocated it.
unsafe impl Send for DmaMem {}
// SAFETY: as above.
unsafe impl Sync for DmaMem {}

impl DmaMem {
    /// Describes memory that a platform hands out.
    ///
    /// # Safety
    /// `ptr` is aligned to at least 8 bytes and valid for reads and writes of `size` bytes until [`Platform::free`]; no
    /// reference other than to atomics is ever made to it; the device reaches the same bytes at `iova`.
    pub const unsafe fn new(ptr: NonNull<u8>, iova: u64, size: usize) -> Self {
        Self { ptr, iova, size }
    }

    /// Address for the CPU.
    pub const fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Address for the device.
    pub const fn iova(&self) -> u64 {
        self.iova
    }

    /// Size in bytes.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The memory as 32-bit words in memory order. The device may change them at any time.
    pub const fn words(&self) -> &[AtomicU32] {
        // SAFETY: `new` promises alignment and validity; atomics are the one kind of reference allowed.
        unsafe { core::slice::from_raw_parts(self.ptr.as_ptr().cast::<AtomicU32>(), self.size / 4) }
    }
}

/// What the driver needs from its surroundings: memory, a clock, a way to wait.
///
/// Methods take `&self`: several devices, I/O domains and test instances live side by side. Before it hands a function
/// over, the port has reset it and has turned on memory space and bus mastering.
///
/// # Safety
/// An implementation hands out memory as described at [`alloc`](Self::alloc): the driver lets the device write to it. Its
/// [`reset`](Self::reset) succeeds only when the device has stopped: the driver then frees what it may have written to.
pub unsafe trait Platform: Send + Sync {
    /// Allocates zeroed memory, at least `size` bytes, aligned to `align` (a power of two, at least 64) for both CPU and
    /// device, contiguous in I/O addresses, coherent with the device, and never at I/O address 0.
    ///
    /// # Errors
    /// [`PlatformError::NoMemory`] when there is none, or none aligned like that; [`PlatformError::LockedMemory`] when the process
    /// has come to its limit of locked memory. After any error the driver asks again for 4096 bytes if more were asked for.
    fn alloc(&self, size: usize, align: usize) -> Result<DmaMem, PlatformError>;

    /// Gives memory back.
    ///
    /// # Safety
    /// `mem` came from this platform's [`alloc`](Self::alloc), nothing refers to it, and the device no longer reads or
    /// writes it.
    unsafe fn free(&self, mem: DmaMem);

    /// Nanoseconds since an arbitrary start; never goes back.
    fn now(&self) -> u64;

    /// Called in every wait loop: yields, spins or lets a model run.
    fn relax(&self);

    /// The largest size in bytes that [`alloc`](Self::alloc) gives contiguously. Event queues keep within it; a larger
    /// queue or buffer is asked for all the same, and there is no memory for it if `alloc` says so.
    fn max_contiguous(&self) -> usize {
        1 << 21
    }

    /// Lets the device reach memory of the caller's own and returns its I/O address, which lies as far from the start of a 4 KiB
    /// page as `ptr` does. Behind an IOMMU the whole pages that the memory lies in are mapped, and the device can reach what else
    /// is in them; they stay in memory, locked, until [`unmap`](Self::unmap).
    ///
    /// # Errors
    /// [`PlatformError::Unsupported`] where the platform cannot; [`PlatformError::LockedMemory`] when the process may not lock
    /// that much; [`PlatformError::NoMemory`] without room in the I/O addresses; [`PlatformError::Os`] with what the system says
    /// else, as of memory that is not there.
    ///
    /// # Safety
    /// The memory stays valid until [`unmap`](Self::unmap), and no reference to it lives while the device may write it.
    unsafe fn map(&self, ptr: NonNull<u8>, len: usize) -> Result<u64, PlatformError> {
        let _ = (ptr, len);
        Err(PlatformError::Unsupported)
    }

    /// Ends a [`map`](Self::map).
    ///
    /// # Errors
    /// What the system answered; the range is then still reachable by the device.
    ///
    /// # Safety
    /// `iova` and `len` are those of a `map`, and the device no longer uses the range.
    unsafe fn unmap(&self, iova: u64, len: usize) -> Result<(), PlatformError> {
        let _ = (iova, len);
        Err(PlatformError::Unsupported)
    }

    /// Resets the function. On success the device has stopped reading and writing memory, and what it was given is freed. For a
    /// function that does not answer an IOMMU that keeps it from all of that, for good, does as well.
    ///
    /// The driver asks when it closes or drops a device that has failed, at most twice: the second time when the last of it
    /// goes. That takes as long as this does: a function whose registers read as all ones need not be waited for.
    ///
    /// # Errors
    /// [`PlatformError::Unsupported`] where the platform cannot, another one where it did not work: the device then keeps
    /// what it was given.
    fn reset(&self) -> Result<(), PlatformError> {
        Err(PlatformError::Unsupported)
    }

    /// Waits until interrupt `vector` has fired or `deadline` (nanoseconds of [`now`](Self::now)) has passed, or returns
    /// early for no reason. Without interrupts it relaxes once.
    fn wait(&self, vector: u32, deadline: u64) {
        let _ = (vector, deadline);
        self.relax();
    }

    /// Waits until one of several interrupts has fired (bit n of `vectors`: vector n, 0 to 63) or `deadline` (nanoseconds of
    /// [`now`](Self::now)) has passed, or returns early for no reason. It takes those of the interrupts that have fired.
    /// The default waits for one vector if there is only one, and relaxes once else.
    fn wait_any(&self, vectors: u64, deadline: u64) {
        if vectors.is_power_of_two() { self.wait(vectors.trailing_zeros(), deadline) } else { self.relax() }
    }

    /// Lets time pass until `until` (nanoseconds of [`now`](Self::now)) without taking any interrupt, or returns early for no
    /// reason: for a thread that waits while another one listens to the interrupt. The default relaxes once.
    fn pause(&self, until: u64) {
        let _ = until;
        self.relax();
    }

    /// The time of day in nanoseconds since 1970-01-01 00:00:00 UTC, if the platform knows it; it may be set meanwhile, and then
    /// jumps. The default knows none.
    fn wall_clock(&self) -> Option<u64> {
        None
    }
}

/// Access to BAR 0 of the function. Values are in CPU order as they lie on the bus (little-endian on the wire); the
/// device's own byte order is the driver's affair.
///
/// # Safety
/// Every method but [`write_combined`](Self::write_combined) performs exactly one access of its width at `offset` of BAR 0, in
/// program order with the others. Offsets beyond the BAR read as all ones and ignore writes.
pub unsafe trait Bar: Send + Sync {
    /// Size of the BAR in bytes.
    fn size(&self) -> usize;
    /// Reads 32 bits at `offset`, a multiple of 4.
    fn read32(&self, offset: usize) -> u32;
    /// Writes 32 bits at `offset`, a multiple of 4.
    fn write32(&self, offset: usize, value: u32);
    /// Writes 64 bits at `offset`, a multiple of 8: one access where the bus can, else the low address first.
    fn write64(&self, offset: usize, value: u64);

    /// Whether the UAR pages are mapped write-combined. The driver then writes work requests to the device by
    /// [`write_combined`](Self::write_combined), where it would write a doorbell and let the device fetch them.
    fn has_wc(&self) -> bool {
        false
    }

    /// Stores 64 bytes, in this order and nothing else, at `offset`, a multiple of 64: part of a BlueFlame buffer. It is between
    /// two calls of `arch::wc_flush`, and until the second it may stay in the processor, to reach the device
    /// in one piece. The default makes eight writes of it, of which the device takes the first for a doorbell.
    fn write_combined(&self, offset: usize, block: &[u64; 8]) {
        for (i, value) in block.iter().enumerate() {
            self.write64(offset + 8 * i, *value);
        }
    }
}
