//! A function that is open, and how it is closed.

use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use rustix::io::Errno;
use vfio_bindings::bindings::vfio;
use vfio_ioctls::{VfioDevice, VfioRegionInfoCap};

use super::config_space::ConfigSpace;
use super::container::patiently;
use super::sys::{self, MOST_VECTORS, device_fd};
use crate::host::Bdf;

/// A function that the kernel has given to this process, until this is dropped.
pub(super) struct OpenDevice {
    bdf: Bdf,
    /// Until it is closed.
    device: ManuallyDrop<VfioDevice>,
}

/// What BAR 0 is to the kernel.
pub(super) struct Bar0 {
    pub(super) size: u64,
    /// Where it is in the descriptor.
    pub(super) offset: u64,
    /// It can be read, written and mapped.
    pub(super) usable: bool,
    /// The table of MSI-X in it can be mapped as well.
    pub(super) with_table: bool,
}

impl OpenDevice {
    pub(super) fn new(bdf: Bdf, device: VfioDevice) -> Self {
        Self { bdf, device: ManuallyDrop::new(device) }
    }

    /// Its descriptor.
    #[inline]
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        device_fd(&self.device)
    }

    /// Its configuration space.
    pub(super) fn config_space(&self) -> ConfigSpace<'_> {
        ConfigSpace::new(self.fd(), self.device.get_region_offset(vfio::VFIO_PCI_CONFIG_REGION_INDEX))
    }

    /// Resets it, patiently if someone else is at it.
    ///
    /// # Errors
    /// Those of [`sys::reset`].
    pub(super) fn reset(&self) -> Result<(), Errno> {
        patiently(|errno| *errno == Errno::AGAIN, || sys::reset(self.fd()))
    }

    /// How many vectors of MSI-X it has, as far as they can be used.
    pub(super) fn vectors(&self) -> u32 {
        let msix = self.device.get_irq_info(vfio::VFIO_PCI_MSIX_IRQ_INDEX);
        msix.map_or(0, |irq| irq.count).min(MOST_VECTORS as u32)
    }

    pub(super) fn bar_0(&self) -> Bar0 {
        let index = vfio::VFIO_PCI_BAR0_REGION_INDEX;
        let needed =
            vfio::VFIO_REGION_INFO_FLAG_READ | vfio::VFIO_REGION_INFO_FLAG_WRITE | vfio::VFIO_REGION_INFO_FLAG_MMAP;
        Bar0 {
            size: self.device.get_region_size(index),
            offset: self.device.get_region_offset(index),
            usable: self.device.get_region_flags(index) & needed == needed,
            with_table: self.device.get_region_caps(index).contains(&VfioRegionInfoCap::MsixMappable),
        }
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        let dead = self.config_space().dead();
        // SAFETY: this is the end of `self`, and nothing below uses the field.
        let device = unsafe { ManuallyDrop::take(&mut self.device) };
        if dead {
            // The kernel waits up to a minute for such a function when it is closed. Nobody else needs to.
            let name = format!("close {}", self.bdf);
            let _ = thread::Builder::new().name(name).spawn(move || close(device));
        } else {
            close(device);
        }
    }
}

/// Closes a function, then its group. The crate looks in sysfs for the latter and panics when the function has been unplugged,
/// for which the kernel waits until the former is closed. The group is then closed with the container.
fn close<T>(device: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(device)));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Unplugged {
        _container: Arc<()>,
    }

    impl Drop for Unplugged {
        fn drop(&mut self) {
            panic!("no iommu_group in sysfs");
        }
    }

    #[test]
    fn a_function_that_was_unplugged_is_closed_with_all_that_it_has() {
        let container = Arc::new(());
        close(Unplugged { _container: container.clone() });
        assert_eq!(Arc::strong_count(&container), 1);
    }
}
