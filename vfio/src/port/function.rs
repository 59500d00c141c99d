//! A function from opening to giving it back.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use mlx5_hw::platform::PlatformError;
use rustix::io::Errno;
use rustix::param::page_size;
use vfio_bindings::bindings::vfio;
use vfio_ioctls::{VfioDevice, VfioRegionInfoCap};

use super::arena::Arena;
use super::bar::{VfioBar, mappable};
use super::config_space::ConfigSpace;
use super::container::{Container, patiently};
use super::domain::Domain;
use super::iova::{IommuInfo, IovaSpace};
use super::irq::Interrupts;
use super::limits::refusal;
use super::sys::{self, MOST_VECTORS, fd_of};
use super::user_memory::UserMemory;
use super::{PortCounters, VfioOptions};
use crate::host::{Bdf, Host, Obstacle, check};

/// Interrupt vectors that are used if nobody says how many.
const USUAL_VECTORS: u32 = 8;

/// A function that is open.
pub(super) struct Function {
    pub(super) bdf: Bdf,
    pub(super) ids: (u16, u16),
    pub(super) host: Host,
    pub(super) interrupts: Interrupts,
    pub(super) bar: VfioBar,
    memory: Mutex<Memory>,
    resets: AtomicU64,
    /// A device has been opened since the last reset.
    used: AtomicBool,
    /// Until it is given back.
    device: ManuallyDrop<VfioDevice>,
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
        let ready = patiently(|o| matches!(o, Obstacle::Busy { .. }), || check::ready(host, bdf))?;
        let container = Container::new(&ready)?;
        let device = container.open(host, &ready)?;
        let ids = start(bdf, &device)?;
        let bar = map_bar(bdf, &device)?;
        let interrupts = set_interrupts(bdf, &device, options)?;
        let memory = first_memory(host, &container, options)?;
        Ok(Self {
            bdf,
            ids,
            host: host.clone(),
            interrupts,
            bar,
            memory: Mutex::new(memory),
            resets: AtomicU64::new(1),
            used: AtomicBool::new(false),
            device: ManuallyDrop::new(device),
        })
    }

    /// The function's descriptor.
    #[inline]
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        fd_of(&*self.device)
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
        let config = config_space(&self.device);
        let dead = config.dead();
        if !dead {
            reset(self.fd()).map_err(os)?;
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
        // SAFETY: this is the end of `self`, and nothing below uses the field.
        let device = unsafe { ManuallyDrop::take(&mut self.device) };
        let config = config_space(&device);
        let dead = config.dead();
        if !dead {
            // What fails here is made up for: the IOMMU takes all memory from the function, and the kernel resets it when it is closed.
            let _ = config.set_master(false);
            let _ = reset(fd_of(&device));
            let _ = sys::set_msix(fd_of(&device), &[]);
        }
        let memory = self.memory.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = memory.cut_off();
        // The kernel lets go of a function only when nothing of it is mapped.
        self.bar.unmap();
        if dead {
            // The kernel waits up to a minute for such a function when it is closed. Nobody else needs to.
            let name = format!("close {}", self.bdf);
            let _ = thread::Builder::new().name(name).spawn(move || drop(device));
        }
    }
}

/// The function's configuration space.
fn config_space(device: &VfioDevice) -> ConfigSpace<'_> {
    ConfigSpace::new(fd_of(device), device.get_region_offset(vfio::VFIO_PCI_CONFIG_REGION_INDEX))
}

/// Resets a function, patiently if someone else is at it.
fn reset(device: BorrowedFd<'_>) -> Result<(), Errno> {
    patiently(|errno| *errno == Errno::AGAIN, || sys::reset(device))
}

/// A call of the kernel about an open function failed.
fn refused(what: &'static str) -> impl Fn(Errno) -> Obstacle {
    move |errno| Obstacle::System { what: what.into(), errno: errno.raw_os_error() }
}

/// Looks whether it is the function that it should be and answers, resets it, and lets it answer at its BARs and reach memory.
/// Gives its ids.
fn start(bdf: Bdf, device: &VfioDevice) -> Result<(u16, u16), Obstacle> {
    let config = config_space(device);
    let ids = config.ids().map_err(refused("reading configuration space"))?;
    if config.dead() {
        return Err(Obstacle::Dead { bdf });
    }
    reset(fd_of(device)).map_err(|errno| match errno {
        Errno::INVAL => Obstacle::NoReset { bdf },
        _ => Obstacle::ResetFailed { bdf, errno: errno.raw_os_error() },
    })?;
    if config.dead() {
        return Err(Obstacle::Dead { bdf });
    }
    config.set_master(true).map_err(refused("turning memory space and bus mastering on"))?;
    Ok(ids)
}

/// Maps BAR 0.
fn map_bar(bdf: Bdf, device: &VfioDevice) -> Result<VfioBar, Obstacle> {
    let index = vfio::VFIO_PCI_BAR0_REGION_INDEX;
    let size = device.get_region_size(index);
    let needed =
        vfio::VFIO_REGION_INFO_FLAG_READ | vfio::VFIO_REGION_INFO_FLAG_WRITE | vfio::VFIO_REGION_INFO_FLAG_MMAP;
    if size == 0 {
        return Err(Obstacle::BarNotMappable { bdf, why: "it has no BAR 0" });
    }
    if device.get_region_flags(index) & needed != needed {
        return Err(Obstacle::BarNotMappable { bdf, why: "the kernel does not let BAR 0 be mapped" });
    }
    let table = config_space(device).msix_table().map_err(refused("reading configuration space"))?;
    let free = device.get_region_caps(index).contains(&VfioRegionInfoCap::MsixMappable);
    let withheld = table.filter(|table| table.bar == 0 && !free).map(|t| t.offset..t.offset + t.bytes);
    let parts = mappable(size, page_size() as u64, withheld);
    let offset = device.get_region_offset(index);
    VfioBar::map(fd_of(device), size as usize, offset, parts)
        .map_err(|_| Obstacle::BarNotMappable { bdf, why: "mapping BAR 0 failed" })
}

/// Sets the event descriptors of all vectors, once and in one call (C-102, C-103).
fn set_interrupts(bdf: Bdf, device: &VfioDevice, options: &VfioOptions) -> Result<Interrupts, Obstacle> {
    let has = device.get_irq_info(vfio::VFIO_PCI_MSIX_IRQ_INDEX).map_or(0, |irq| irq.count).min(MOST_VECTORS as u32);
    let wanted = options.vectors.unwrap_or(has.min(USUAL_VECTORS)).max(1);
    if wanted > has {
        return Err(Obstacle::TooFewVectors { bdf, has, wanted });
    }
    let interrupts = Interrupts::new(wanted).map_err(refused("making event descriptors"))?;
    let events: Vec<_> = interrupts.events().iter().map(AsFd::as_fd).collect();
    sys::set_msix(fd_of(device), &events).map_err(refused("setting up the interrupt vectors"))?;
    Ok(interrupts)
}

/// The IOMMU's addresses, and a first piece of memory in them, so that what stands in its way is known now.
fn first_memory(host: &Host, container: &Container, options: &VfioOptions) -> Result<Memory, Obstacle> {
    let info = sys::iommu_info(fd_of(&**container.inner())).map_err(refused("asking what the IOMMU has"))?;
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
