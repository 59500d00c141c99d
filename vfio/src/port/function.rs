//! A function from opening to giving it back.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mlx5_hw::platform::PlatformError;
use rustix::io::Errno;
use rustix::param::page_size;

use super::arena::Arena;
use super::bar::{VfioBar, mappable};
use super::container::Container;
use super::device::OpenDevice;
use super::domain::Domain;
use super::iova::{IommuInfo, IovaSpace};
use super::irq::Interrupts;
use super::limits::refusal;
use super::sys::{self, MOST_VECTORS, container_fd};
use super::user_memory::UserMemory;
use super::{PortCounters, VfioOptions};
use crate::host::{Bdf, Host, Obstacle, check, name};

/// Interrupt vectors that are used if nobody says how many.
const USUAL_VECTORS: u32 = 8;

/// A function that is open.
pub(super) struct Function {
    /// Closed first, before memory that it may reach.
    device: OpenDevice,
    pub(super) bdf: Bdf,
    pub(super) ids: (u16, u16),
    pub(super) host: Host,
    pub(super) interrupts: Interrupts,
    pub(super) bar: VfioBar,
    memory: Mutex<Memory>,
    resets: AtomicU64,
    /// A device has been opened since the last reset.
    used: AtomicBool,
}

/// What the function reaches.
pub(super) struct Memory {
    pub(super) domain: Domain,
    pub(super) arena: Arena,
    pub(super) user: UserMemory,
    /// Everything has been taken from the function, for good.
    pub(super) cut_off: bool,
}

impl Memory {
    /// Takes everything from the function.
    ///
    /// # Errors
    /// What the kernel answered: the function may reach something still.
    pub(super) fn cut_off(&mut self) -> Result<(), Errno> {
        self.cut_off = true;
        let user = self.user.withdraw(&mut self.domain);
        self.arena.withdraw(&mut self.domain).and(user)
    }
}

impl Function {
    /// Opens a function that is bound to vfio-pci, see [`VfioFunction::open`](super::VfioFunction::open).
    pub(super) fn open(host: &Host, bdf: Bdf, options: &VfioOptions) -> Result<Self, Obstacle> {
        let ready = check::ready(host, bdf)?;
        let container = Container::new(&ready)?;
        let device = container.open(host, &ready)?;
        let ids = start(bdf, &device)?;
        let bar = map_bar(bdf, &device)?;
        let interrupts = set_interrupts(bdf, &device, options)?;
        let memory = first_memory(host, &container, options)?;
        Ok(Self {
            device,
            bdf,
            ids,
            host: host.clone(),
            interrupts,
            bar,
            memory: Mutex::new(memory),
            resets: AtomicU64::new(1),
            used: AtomicBool::new(false),
        })
    }

    /// The function's descriptor.
    #[inline]
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.device.fd()
    }

    /// What the function reaches. A thread that panicked has left it whole: nothing in there panics halfway.
    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A device is about to be opened: the function is as after a reset.
    pub(super) fn before_open(&self) -> Result<(), PlatformError> {
        if self.used.swap(true, Ordering::AcqRel) { self.reset() } else { Ok(()) }
    }

    /// Resets the function. One that does not answer cannot be reset, and the kernel would wait a minute for it: what it reaches
    /// is taken from it by the IOMMU instead, for good, which stops it just as well.
    pub(super) fn reset(&self) -> Result<(), PlatformError> {
        let os = |errno: Errno| PlatformError::Os(errno.raw_os_error());
        let config = self.device.config_space();
        let dead = config.dead();
        if !dead {
            self.device.reset().map_err(os)?;
            self.resets.fetch_add(1, Ordering::Relaxed);
        }
        if dead || config.set_master(true).is_err() { self.memory().cut_off().map_err(os) } else { Ok(()) }
    }

    pub(super) fn counters(&self) -> PortCounters {
        let memory = self.memory();
        let (maps, mapped_bytes) = memory.domain.mapped();
        PortCounters {
            interrupts: self.interrupts.fired(),
            sleeps: self.interrupts.sleeps(),
            maps,
            mapped_bytes,
            huge_bytes: memory.arena.huge_bytes(),
            outstanding: memory.arena.outstanding,
            outstanding_bytes: memory.arena.outstanding_bytes,
            resets: self.resets.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        let config = self.device.config_space();
        if !config.dead() {
            // What fails here is made up for: the IOMMU takes all memory from the function, and the kernel resets it when it is closed.
            let _ = config.set_master(false);
            let _ = self.device.reset();
            let _ = sys::set_msix(self.fd(), &[]);
        }
        let memory = self.memory.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = memory.cut_off();
        // The kernel lets go of a function only when nothing of it is mapped.
        self.bar.unmap();
    }
}

/// A call of the kernel about an open function failed.
fn refused(what: &'static str) -> impl Fn(Errno) -> Obstacle {
    move |errno| Obstacle::System { what: what.into(), errno: errno.raw_os_error() }
}

/// Looks whether it is the function that it should be and answers, resets it, and lets it answer at its BARs and reach memory.
/// Gives its ids.
fn start(bdf: Bdf, device: &OpenDevice) -> Result<(u16, u16), Obstacle> {
    let config = device.config_space();
    let (vendor, id) = config.ids().map_err(refused("reading configuration space"))?;
    if config.dead() {
        return Err(Obstacle::Dead { bdf });
    }
    if name(vendor, id).is_none() {
        return Err(Obstacle::WrongId { bdf, vendor, device: id });
    }
    device.reset().map_err(|errno| not_reset(bdf, errno))?;
    if config.dead() {
        return Err(Obstacle::Dead { bdf });
    }
    config.set_master(true).map_err(refused("turning memory space and bus mastering on"))?;
    Ok((vendor, id))
}

/// Why a function was not reset. The kernel tried when it was opened, and answers EINVAL where that did not work.
fn not_reset(bdf: Bdf, errno: Errno) -> Obstacle {
    match errno {
        Errno::INVAL => Obstacle::NoReset { bdf },
        _ => Obstacle::ResetFailed { bdf, errno: errno.raw_os_error() },
    }
}

/// Maps BAR 0.
fn map_bar(bdf: Bdf, device: &OpenDevice) -> Result<VfioBar, Obstacle> {
    let bar = device.bar_0();
    let refusal = |why| Obstacle::BarNotMappable { bdf, why };
    if bar.size == 0 {
        return Err(refusal("it has no BAR 0"));
    }
    if !bar.usable {
        return Err(refusal("the kernel does not let BAR 0 be mapped"));
    }
    let table = device.config_space().msix_table().map_err(refused("reading configuration space"))?;
    let withheld = table.filter(|table| table.bar == 0 && !bar.with_table).map(|t| t.offset..t.offset + t.bytes);
    let parts = mappable(bar.size, page_size() as u64, withheld);
    VfioBar::map(device.fd(), bar.size as usize, bar.offset, parts).map_err(|_| refusal("mapping BAR 0 failed"))
}

/// Sets the event descriptors of all vectors, once and in one call (C-102, C-103).
fn set_interrupts(bdf: Bdf, device: &OpenDevice, options: &VfioOptions) -> Result<Interrupts, Obstacle> {
    let vectors = how_many(bdf, device.vectors(), options.vectors)?;
    let interrupts = Interrupts::new(vectors).map_err(refused("making event descriptors"))?;
    let events: Vec<_> = interrupts.events().iter().map(AsFd::as_fd).collect();
    sys::set_msix(device.fd(), &events).map_err(refused("setting up the interrupt vectors"))?;
    Ok(interrupts)
}

/// How many vectors to use of a function that has so many.
fn how_many(bdf: Bdf, has: u32, asked: Option<u32>) -> Result<u32, Obstacle> {
    let wanted = asked.unwrap_or(has.min(USUAL_VECTORS)).clamp(1, MOST_VECTORS as u32);
    if wanted > has { Err(Obstacle::TooFewVectors { bdf, has, wanted }) } else { Ok(wanted) }
}

/// The IOMMU's addresses, and a first piece of memory in them, so that what stands in its way is known now.
fn first_memory(host: &Host, container: &Container, options: &VfioOptions) -> Result<Memory, Obstacle> {
    let info = sys::iommu_info(container_fd(container.inner())).map_err(refused("asking what the IOMMU has"))?;
    let info = IommuInfo::parse(&info);
    let granule = info.granule(page_size() as u64) as usize;
    let domain = Domain::new(Box::new(container.inner().clone()), IovaSpace::new(&info.ranges), granule);
    let mut memory =
        Memory { domain, arena: Arena::new(options.huge_pages), user: UserMemory::default(), cut_off: false };
    let first = memory.arena.prepare(&mut memory.domain);
    first.map_err(|(len, errno)| match refusal(host, errno, len) {
        PlatformError::LockedMemory { limit, wanted } => Obstacle::LockedMemory { limit, wanted },
        _ => refused("mapping memory for the device")(errno),
    })?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BDF: Bdf = Bdf { domain: 0, bus: 3, device: 0, function: 0 };

    /// ENOTTY, EIO, EINVAL: include/uapi/asm-generic/errno-base.h; the last one: `vfio_pci_ioctl_reset` in vfio_pci_core.c.
    #[test]
    fn a_function_without_a_way_to_reset_it_is_told_from_one_whose_reset_failed() {
        assert_eq!(not_reset(BDF, Errno::INVAL), Obstacle::NoReset { bdf: BDF });
        for errno in [25, 5] {
            let failed = Obstacle::ResetFailed { bdf: BDF, errno };
            assert_eq!(not_reset(BDF, Errno::from_raw_os_error(errno)), failed);
        }
    }

    #[test]
    fn vectors_are_those_asked_for_or_up_to_eight_and_never_more_than_there_are() {
        for (has, asked, right) in
            [(32, None, 8), (3, None, 3), (32, Some(32), 32), (4, Some(0), 1), (64, Some(u32::MAX), 64)]
        {
            assert_eq!(how_many(BDF, has, asked), Ok(right), "{has} {asked:?}");
        }
        let few = |has, wanted| Err(Obstacle::TooFewVectors { bdf: BDF, has, wanted });
        assert_eq!((how_many(BDF, 32, Some(33)), how_many(BDF, 0, None)), (few(32, 33), few(0, 1)));
    }
}
