//! The system calls whose answers matter here: the crate under this port drops some of their error numbers.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, Setter, Updater, ioctl, opcode};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use vfio_bindings::bindings::vfio;
use vfio_ioctls::{VfioContainer, VfioDevice};

/// Number of an ioctl of VFIO: `_IO(VFIO_TYPE, VFIO_BASE + n)`.
const fn number(n: u8) -> Opcode {
    opcode::none(vfio::VFIO_TYPE, vfio::VFIO_BASE as u8 + n)
}

const SET_IRQS: Opcode = number(10);
const RESET: Opcode = number(11);
const IOMMU_GET_INFO: Opcode = number(12);

/// Most interrupt vectors that are used: as many as [`Platform::wait_any`](mlx5_hw::platform::Platform::wait_any) knows.
pub(super) const MOST_VECTORS: usize = 64;

/// The descriptor of a function, which the crate lends as a bare number.
pub(super) fn device_fd(device: &VfioDevice) -> BorrowedFd<'_> {
    // SAFETY: the device owns the descriptor and is borrowed as long as this is.
    unsafe { BorrowedFd::borrow_raw(device.as_raw_fd()) }
}

/// The descriptor of a container, in the same way.
pub(super) fn container_fd(container: &VfioContainer) -> BorrowedFd<'_> {
    // SAFETY: the container owns the descriptor and is borrowed as long as this is.
    unsafe { BorrowedFd::borrow_raw(container.as_raw_fd()) }
}

/// Resets the function (`VFIO_DEVICE_RESET`).
///
/// # Errors
/// EINVAL where the kernel knows no way to; EAGAIN while another one has the function locked; ENOTTY, EIO for a reset that failed.
pub(super) fn reset(device: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the number is that of the kernel's header; it takes no argument.
    unsafe { ioctl(device, NoArg::<RESET>::new()) }
}

/// Has each vector of MSI-X signal one of these descriptors, in one call; with none, all interrupts are off.
///
/// # Errors
/// What the kernel answers; EINVAL for more than the function has.
pub(super) fn set_msix(device: BorrowedFd<'_>, events: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    // SAFETY: a `vfio_irq_set` with its descriptors behind it, no longer than it says; the kernel reads it.
    unsafe { ioctl(device, Setter::<SET_IRQS, _>::new(irq_set(events.iter().map(AsRawFd::as_raw_fd)))) }
}

/// 32-bit words of a `vfio_irq_set` without its data.
const IRQ_SET: usize = size_of::<vfio::vfio_irq_set>() / 4;

/// A `vfio_irq_set` for the vectors from 0 on. Descriptor 0 is one like any other (C-095).
fn irq_set(events: impl ExactSizeIterator<Item = RawFd>) -> [u32; IRQ_SET + MOST_VECTORS] {
    let mut set = [0; IRQ_SET + MOST_VECTORS];
    let count = events.len().min(MOST_VECTORS);
    let data = if count == 0 { vfio::VFIO_IRQ_SET_DATA_NONE } else { vfio::VFIO_IRQ_SET_DATA_EVENTFD };
    let flags = data | vfio::VFIO_IRQ_SET_ACTION_TRIGGER;
    let size = 4 * (IRQ_SET + count);
    set[..IRQ_SET].copy_from_slice(&[size as u32, flags, vfio::VFIO_PCI_MSIX_IRQ_INDEX, 0, count as u32]);
    set.iter_mut().skip(IRQ_SET).zip(events).for_each(|(slot, event)| *slot = event as u32);
    set
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

#[cfg(test)]
mod tests {
    use super::*;

    /// C-095 and C-102: descriptor 0 is one, and none at all, count 0, frees all vectors. Numbers of `linux/vfio.h`.
    #[test]
    fn all_vectors_are_set_in_one_call_and_freed_by_one_without_data() {
        let set = irq_set([7, 0, 9].into_iter());
        assert_eq!(set[..8], [32, 1 << 2 | 1 << 5, 2, 0, 3, 7, 0, 9]);
        assert_eq!(irq_set(std::iter::empty())[..5], [20, 1 << 0 | 1 << 5, 2, 0, 0]);
        assert_eq!(irq_set(0..64)[..5], [20 + 256, 0x24, 2, 0, 64]);
    }

    #[test]
    fn numbers_of_ioctls_are_the_kernels() {
        assert_eq!((SET_IRQS, RESET, IOMMU_GET_INFO), (0x3b6e, 0x3b6f, 0x3b70));
    }
}
