//! The system calls whose answers matter here: the crate under this port drops some of their error numbers.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, Setter, Updater, ioctl, opcode};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use vfio_bindings::bindings::vfio;

/// Number of an ioctl of VFIO: `_IO(VFIO_TYPE, VFIO_BASE + n)`.
const fn number(n: u8) -> Opcode {
    opcode::none(vfio::VFIO_TYPE, vfio::VFIO_BASE as u8 + n)
}

const SET_IRQS: Opcode = number(10);
const RESET: Opcode = number(11);
const IOMMU_GET_INFO: Opcode = number(12);

/// Most interrupt vectors that are used: as many as [`Platform::wait_any`](mlx5_hw::platform::Platform::wait_any) knows.
pub(super) const MOST_VECTORS: usize = 64;

/// The descriptor of an object of the crate, which lends it as a bare number.
pub(super) fn fd_of(owner: &impl AsRawFd) -> BorrowedFd<'_> {
    // SAFETY: the object owns the descriptor and is borrowed as long as this is.
    unsafe { BorrowedFd::borrow_raw(owner.as_raw_fd()) }
}

/// Resets the function (`VFIO_DEVICE_RESET`).
///
/// # Errors
/// EINVAL where the kernel knows no way to; EAGAIN while another one has the function locked; ENOTTY, EIO for a reset that failed.
pub(super) fn reset(device: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the number is that of the kernel's header; it takes no argument.
    unsafe { ioctl(device, NoArg::<RESET>::new()) }
}

/// Has each vector of MSI-X signal one of these descriptors; with none, interrupts are off.
///
/// # Errors
/// What the kernel answers; EINVAL for more than the function has.
pub(super) fn set_msix(device: BorrowedFd<'_>, events: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    const HEAD: usize = size_of::<vfio::vfio_irq_set>() / 4;
    let mut set = [0u32; HEAD + MOST_VECTORS];
    let count = events.len().min(MOST_VECTORS);
    let data = if count == 0 { vfio::VFIO_IRQ_SET_DATA_NONE } else { vfio::VFIO_IRQ_SET_DATA_EVENTFD };
    let flags = data | vfio::VFIO_IRQ_SET_ACTION_TRIGGER;
    let size = (HEAD + count) * size_of::<u32>();
    set[..HEAD].copy_from_slice(&[size as u32, flags, vfio::VFIO_PCI_MSIX_IRQ_INDEX, 0, count as u32]);
    for (slot, event) in set[HEAD..].iter_mut().zip(events) {
        *slot = event.as_raw_fd() as u32;
    }
    // SAFETY: a `vfio_irq_set` with `count` descriptors behind it, as long as it says; the kernel reads it.
    unsafe { ioctl(device, Setter::<SET_IRQS, _>::new(set)) }
}

/// Room for what the IOMMU is: 4 KiB, for some 250 ranges of addresses.
const IOMMU_INFO: usize = 4096;

/// What the container's IOMMU is (`VFIO_IOMMU_GET_INFO`): the bytes of a `vfio_iommu_type1_info` and of its capabilities.
///
/// # Errors
/// What the kernel answers.
pub(super) fn iommu_info(container: BorrowedFd<'_>) -> Result<[u8; IOMMU_INFO], Errno> {
    let mut info = [0; IOMMU_INFO];
    info[..4].copy_from_slice(&(IOMMU_INFO as u32).to_ne_bytes());
    // SAFETY: `argsz`, the first 32 bits, says how long the array is, and the kernel writes no more.
    unsafe { ioctl(container, Updater::<IOMMU_GET_INFO, _>::new(&mut info)) }?;
    Ok(info)
}

/// A part of a device's region in this process; unmapped when dropped.
pub(super) struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to no thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; this type gives no access to it.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes at `offset` of the descriptor.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(super) fn new(device: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where the kernel likes.
        let ptr = unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, device, offset) }?;
        Ok(Self { ptr: NonNull::new(ptr.cast()).ok_or(Errno::NOMEM)?, len })
    }

    /// Where it is, page-aligned.
    pub(super) fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; who made an accessor of it keeps it no longer than this.
        let _ = unsafe { munmap(self.ptr.as_ptr().cast(), self.len) };
    }
}
