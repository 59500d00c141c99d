//! Memory that the device reaches, and who owns it when.
//!
//! A [`DmaRegion`] gives back exactly what it took. While it is [lent](DmaRegion::lend) the device may write to it, and
//! dropping it then frees nothing: the memory goes to the ledger of [`Port`], counted and named, until a reset that the
//! platform confirms. So an early return or a forgotten step can cost memory, never correctness. That holds for memory of a
//! caller's [`QueueAllocator`] too: the ledger keeps the allocator alive, and frees through it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use mlx5_hw::be::Be32;
use mlx5_hw::init_segment::InitSegment;
use mlx5_hw::platform::{Bar, DmaMem, Platform};
use spin::Mutex;

use crate::device::LeakHook;
use crate::dv::ResourceType;
use crate::error::Error;
use crate::parent_domain::QueueAllocator;

/// Memory that the device may still write to, kept until it is known to be quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaked {
    /// What the memory was.
    pub what: &'static str,
    /// Its address for the device.
    pub iova: u64,
    /// Its size in bytes.
    pub size: usize,
}

/// The two traits of a port, and the ledger of memory that could not be given back.
pub(crate) struct Port {
    platform: Arc<dyn Platform>,
    bar: Box<dyn Bar>,
    ledger: Mutex<Vec<Kept>>,
    /// Memory of the user's own that the device may still write to.
    foreign: Mutex<Vec<Leaked>>,
    /// A reset was confirmed: the device uses no memory any more.
    quiet: AtomicBool,
    /// Told of what is kept for good.
    on_leak: Option<LeakHook>,
}

/// Where memory comes from and goes back to.
enum Source {
    Platform,
    Allocator(Arc<dyn QueueAllocator>, ResourceType),
    /// A caller who keeps it: it is not given back.
    Caller,
}

/// An entry of the ledger.
struct Kept {
    what: &'static str,
    mem: DmaMem,
    source: Source,
}

impl Port {
    pub(crate) fn new(platform: Arc<dyn Platform>, bar: Box<dyn Bar>, on_leak: Option<LeakHook>) -> Self {
        Self {
            platform,
            bar,
            ledger: Mutex::new(Vec::new()),
            foreign: Mutex::new(Vec::new()),
            quiet: AtomicBool::new(false),
            on_leak,
        }
    }

    pub(crate) fn platform(&self) -> &dyn Platform {
        &*self.platform
    }

    pub(crate) fn bar(&self) -> &dyn Bar {
        &*self.bar
    }

    /// The registers at the start of the BAR.
    pub(crate) fn init_segment(&self) -> InitSegment<'_> {
        InitSegment::new(&*self.bar)
    }

    pub(crate) fn alloc(self: &Arc<Self>, size: usize, align: usize) -> Result<DmaRegion, Error> {
        let mem = self.platform.alloc(size, align)?;
        Ok(DmaRegion { mem, port: self.clone(), lent: None, source: Source::Platform })
    }

    /// Memory from the caller's allocator; `None` where it leaves that to the platform. It is not zeroed.
    ///
    /// # Errors
    /// What the allocator answers, and `Invalid` for memory that is not what was asked for; it then has it back.
    pub(crate) fn alloc_from(
        self: &Arc<Self>,
        allocator: &Arc<dyn QueueAllocator>,
        size: usize,
        align: usize,
        resource: ResourceType,
    ) -> Result<Option<DmaRegion>, Error> {
        let Some(mem) = allocator.alloc(size, align, resource)? else { return Ok(None) };
        let wrong = misfit(&mem, size, align);
        let source = Source::Allocator(allocator.clone(), resource);
        let region = DmaRegion { mem, port: self.clone(), lent: None, source };
        wrong.map_or(Ok(Some(region)), |what| Err(Error::Invalid { what }))
    }

    /// Memory that stays its caller's.
    pub(crate) fn borrow(self: &Arc<Self>, mem: DmaMem) -> DmaRegion {
        DmaRegion { mem, port: self.clone(), lent: None, source: Source::Caller }
    }

    /// Gives memory back to where it came from.
    ///
    /// # Safety
    /// `mem` came from `source`, nothing refers to it, and the device no longer uses it.
    unsafe fn free(&self, mem: DmaMem, source: Source) {
        match source {
            // SAFETY: the caller's promise.
            Source::Platform => unsafe { self.platform.free(mem) },
            // SAFETY: the caller's promise.
            Source::Allocator(allocator, resource) => unsafe { allocator.free(mem, resource) },
            Source::Caller => {}
        }
    }

    /// What the device may still write to.
    pub(crate) fn leaked(&self) -> Vec<Leaked> {
        let owned = self.ledger.lock();
        let owned = owned.iter().map(|kept| Leaked { what: kept.what, iova: kept.mem.iova(), size: kept.mem.size() });
        owned.chain(self.foreign.lock().iter().copied()).collect()
    }

    /// Takes over a mapping of the user's own memory that the device may still write to. It ends with a reset.
    pub(crate) fn keep(&self, what: &'static str, iova: u64, size: usize) {
        if let Some(piece) = self.until_reset(&self.foreign, Leaked { what, iova, size }) {
            self.let_go(piece);
        }
    }

    /// Puts a piece on a list that the next reset empties; if that has been, the piece comes back. Which of the two is decided
    /// under the list's lock, as a reset may be under way on another thread.
    fn until_reset<T>(&self, list: &Mutex<Vec<T>>, piece: T) -> Option<T> {
        let mut list = list.lock();
        if self.quiet.load(Ordering::Acquire) {
            return Some(piece);
        }
        list.push(piece);
        None
    }

    /// Ends the mapping of memory of the user's own after a reset.
    fn let_go(&self, piece: Leaked) {
        // SAFETY: mapped by this platform with this size; whoever had mapped it has handed it over, and the device was reset.
        // A mapping that the system does not end reaches memory that no device uses.
        let _ = unsafe { self.platform.unmap(piece.iova, piece.size) };
    }

    /// Resets the function. If the platform confirms it, the ledger is freed, and so is what is dropped from now on.
    pub(crate) fn reset(&self) -> Result<(), Error> {
        self.platform.reset()?;
        self.quiet.store(true, Ordering::Release);
        let foreign = core::mem::take(&mut *self.foreign.lock());
        foreign.into_iter().for_each(|piece| self.let_go(piece));
        let kept = core::mem::take(&mut *self.ledger.lock());
        for Kept { mem, source, .. } in kept {
            // SAFETY: it came from there; its owner is gone and the device has been reset.
            unsafe { self.free(mem, source) };
        }
        Ok(())
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let kept = self.leaked();
        if !kept.is_empty() && self.reset().is_err() {
            if let Some(hook) = &self.on_leak {
                kept.iter().for_each(|piece| hook(piece));
            }
            // The memory must outlive the device's use of it, which may never end, and so must the platform and the
            // allocators that it is from.
            core::mem::forget(self.platform.clone());
            core::mem::forget(core::mem::take(self.ledger.get_mut()));
        }
    }
}

/// What is wrong with memory that an allocator was asked for.
fn misfit(mem: &DmaMem, size: usize, align: usize) -> Option<&'static str> {
    let misaligned = |address: u64| !address.is_multiple_of(align as u64);
    if mem.size() < size {
        Some("the allocator's memory is shorter than asked for")
    } else if mem.iova() == 0 {
        Some("the allocator's memory is at I/O address 0")
    } else if misaligned(mem.iova()) || misaligned(mem.ptr().as_ptr() as u64) {
        Some("the allocator's memory is not aligned as asked for")
    } else if mem.iova().checked_add(mem.size() as u64).is_none() {
        Some("the allocator's memory goes beyond the last I/O address")
    } else {
        None
    }
}

/// Copies bytes into words from byte `at` on; what would not lie in them is left out. Bytes next to them may change meanwhile and
/// are left as they are.
pub(crate) fn copy_in(words: &[AtomicU32], mut at: usize, data: &[u8]) {
    let mut rest = data;
    while let (false, Some(word)) = (rest.is_empty(), words.get(at / 4)) {
        let from = at % 4;
        let (now, later) = rest.split_at(rest.len().min(4 - from));
        if let Ok(whole) = <[u8; 4]>::try_from(now) {
            word.store(u32::from_ne_bytes(whole), Ordering::Relaxed);
        } else {
            let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
                let mut bytes = old.to_ne_bytes();
                for (to, byte) in bytes.iter_mut().skip(from).zip(now) {
                    *to = *byte;
                }
                Some(u32::from_ne_bytes(bytes))
            });
        }
        (rest, at) = (later, at + now.len());
    }
}

/// Memory shared with the device: zeroed at first if it is the platform's, contiguous in I/O addresses.
pub(crate) struct DmaRegion {
    mem: DmaMem,
    port: Arc<Port>,
    lent: Option<&'static str>,
    source: Source,
}

impl DmaRegion {
    /// Address for the device.
    pub(crate) fn iova(&self) -> u64 {
        self.mem.iova()
    }

    /// The memory as 32-bit words in memory order.
    pub(crate) fn words(&self) -> &[AtomicU32] {
        self.mem.words()
    }

    /// The dword at `index`; what lies beyond the region reads as zero.
    pub(crate) fn load(&self, index: usize) -> Be32 {
        self.words().get(index).map_or(Be32::ZERO, |w| Be32::from_raw(w.load(Ordering::Relaxed)))
    }

    /// Stores a dword at `index`; what lies beyond the region is dropped.
    pub(crate) fn store(&self, index: usize, value: Be32) {
        if let Some(w) = self.words().get(index) {
            w.store(value.to_raw(), Ordering::Relaxed);
        }
    }

    /// From now on the device may write to it; `what` names it in [`Leaked`].
    pub(crate) fn lend(&mut self, what: &'static str) {
        self.lent = Some(what);
    }

    /// What would be kept if this were dropped now.
    pub(crate) fn kept(&self) -> Option<Leaked> {
        let what = self.lent.filter(|_| !self.port.quiet.load(Ordering::Acquire))?;
        Some(Leaked { what, iova: self.mem.iova(), size: self.mem.size() })
    }

    /// The device is done with it: the command that ends its use has succeeded, or the one that lent it was refused.
    pub(crate) fn reclaim(&mut self) {
        self.lent = None;
    }
}

impl Drop for DmaRegion {
    fn drop(&mut self) {
        // SAFETY: the same memory; this value is its only owner and does not use it again.
        let mem = unsafe { DmaMem::new(self.mem.ptr(), self.mem.iova(), self.mem.size()) };
        let source = core::mem::replace(&mut self.source, Source::Platform);
        let kept = Kept { what: self.lent.unwrap_or_default(), mem, source };
        let free = if self.lent.is_some() { self.port.until_reset(&self.port.ledger, kept) } else { Some(kept) };
        if let Some(Kept { mem, source, .. }) = free {
            // SAFETY: it came from there; no reference outlives `self`, and the device is done with it.
            unsafe { self.port.free(mem, source) };
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicUsize;

    use mlx5_hw::platform::PlatformError;

    use super::*;
    use crate::fake::Fake;

    /// A platform that can reset, and counts the mappings it ends.
    #[derive(Default)]
    struct Resets {
        fake: Fake,
        unmapped: AtomicUsize,
    }

    // SAFETY: memory comes from the fake and goes back to it.
    unsafe impl Platform for Resets {
        fn alloc(&self, size: usize, align: usize) -> Result<DmaMem, PlatformError> {
            self.fake.alloc(size, align)
        }

        unsafe fn free(&self, mem: DmaMem) {
            // SAFETY: the caller promises the same.
            unsafe { self.fake.free(mem) }
        }

        fn now(&self) -> u64 {
            0
        }

        fn relax(&self) {}

        unsafe fn unmap(&self, _: u64, _: usize) -> Result<(), PlatformError> {
            self.unmapped.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn reset(&self) -> Result<(), PlatformError> {
            Ok(())
        }
    }

    #[test]
    fn a_reset_ends_what_was_kept_and_what_is_kept_after_it_at_once() {
        let platform = Arc::new(Resets::default());
        let port = Arc::new(Port::new(platform.clone(), Box::new(Fake::default()), None));
        let lent = || {
            let mut mem = port.alloc(4096, 4096).unwrap();
            mem.lend("ring");
            mem
        };
        let counts = || (platform.fake.live(), platform.unmapped.load(Ordering::Relaxed), port.leaked().len());
        let outlives = lent();
        drop(lent());
        port.keep("mapping", 0x1000, 4096);
        assert_eq!(counts(), (2, 0, 2));
        port.reset().unwrap();
        assert_eq!(counts(), (1, 1, 0));
        assert_eq!(outlives.kept(), None);
        drop(outlives);
        port.keep("mapping", 0x2000, 4096);
        assert_eq!(counts(), (0, 2, 0));
    }

    /// The last object goes on one thread while the device is closed on another: the reset has emptied no list yet, and neither
    /// has the object looked whether there was one.
    #[test]
    fn what_is_kept_while_a_reset_is_under_way_does_not_outlast_it() {
        extern crate std;
        let platform = Arc::new(Resets::default());
        let port = Arc::new(Port::new(platform.clone(), Box::new(Fake::default()), None));
        let mut mem = port.alloc(4096, 4096).unwrap();
        mem.lend("ring");
        std::thread::scope(|s| {
            let (ledger, foreign) = (port.ledger.lock(), port.foreign.lock());
            s.spawn(|| port.keep("mapping", 0x1000, 4096));
            s.spawn(|| drop(mem));
            // Long enough for both to wait for their list.
            std::thread::sleep(std::time::Duration::from_millis(50));
            port.quiet.store(true, Ordering::Release);
            drop((ledger, foreign));
        });
        let unmapped = platform.unmapped.load(Ordering::Relaxed);
        assert_eq!((platform.fake.live(), unmapped, port.leaked().len()), (0, 1, 0));
    }

    /// A platform that goes might unmap or reuse all of its memory.
    #[test]
    fn a_platform_outlives_memory_that_the_device_keeps_for_good() {
        for kept in [true, false] {
            let platform = Arc::new(Fake::default());
            let stays = Arc::downgrade(&platform);
            let port = Arc::new(Port::new(platform, Box::new(Fake::default()), None));
            let mut mem = port.alloc(4096, 4096).unwrap();
            if kept {
                mem.lend("ring");
            }
            drop((mem, port));
            assert_eq!(stays.upgrade().is_some(), kept);
        }
    }
}
