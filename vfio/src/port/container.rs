//! Container, group and device: opened in the kernel's order, by the crate that knows it.

use std::io;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use vfio_ioctls::{VfioContainer, VfioDevice, VfioError};
use vmm_sys_util::errno::Error as SysError;

use super::device::OpenDevice;
use super::domain::Iommu;
use crate::host::check::{self, Ready};
use crate::host::{Host, Obstacle};

/// How often a function is asked for again that someone has for a moment, and after what pauses: who resets it through sysfs, or
/// the kernel, which takes it from a process that was killed, with a reset of at least a tenth of a second.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 50 });

/// Runs what may be refused because someone has the function for a moment, for two seconds at most.
pub(super) fn patiently<T, E>(locked: impl Fn(&E) -> bool, mut call: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    for _ in 1..TRIES {
        match call() {
            Err(error) if locked(&error) => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
    call()
}

/// Whether that may be over in a moment: see [`TRIES`].
fn passes(error: &VfioError) -> bool {
    match error {
        VfioError::GroupGetDeviceFD(e) => e.errno() == Errno::AGAIN.raw_os_error(),
        VfioError::OpenGroup(e, _) => e.raw_os_error() == Some(Errno::BUSY.raw_os_error()),
        _ => false,
    }
}

/// A container of the function's own.
pub(super) struct Container(Arc<VfioContainer>);

impl Container {
    /// Opens one.
    pub(super) fn new(ready: &Ready) -> Result<Self, Obstacle> {
        let container = VfioContainer::new(None).map_err(|error| match error {
            VfioError::OpenContainer(error) => not_opened(ready.container.clone(), &error),
            VfioError::VfioExtension => Obstacle::NoVfio { path: PathBuf::from("/sys/module/vfio_iommu_type1") },
            other => system("opening a container of VFIO", &other),
        })?;
        Ok(Self(Arc::new(container)))
    }

    /// Opens the group of the function, puts it into the container, which sets the kind of IOMMU once (C-084, C-094), and opens
    /// the function.
    pub(super) fn open(&self, host: &Host, ready: &Ready) -> Result<OpenDevice, Obstacle> {
        let errno_is = |error: &SysError, errno: Errno| error.errno() == errno.raw_os_error();
        let open = || VfioDevice::new(&ready.function.sysfs, self.0.clone(), false);
        let bdf = ready.function.bdf;
        let opened = patiently(passes, open).map(|device| OpenDevice::new(bdf, device));
        opened.map_err(|error| match error {
            VfioError::OpenGroup(e, _) if e.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => busy(host, ready),
            VfioError::OpenGroup(e, _) => not_opened(ready.node.clone(), &e),
            VfioError::GroupViable => not_viable(host, ready),
            VfioError::ContainerSetIOMMU(e) if errno_is(&e, Errno::PERM) => Obstacle::NoInterruptRemapping { bdf },
            VfioError::GroupGetDeviceFD(e) if errno_is(&e, Errno::BUSY) => busy(host, ready),
            other => system("opening the function by VFIO", &other),
        })
    }

    /// The container's descriptor, and the kernel's map of it.
    pub(super) fn inner(&self) -> &Arc<VfioContainer> {
        &self.0
    }
}

/// Another process was faster.
fn busy(host: &Host, ready: &Ready) -> Obstacle {
    let (bdf, group) = (ready.function.bdf, ready.group);
    let holders = ready.function.group.as_ref().map(|group| check::busy(host, bdf, group));
    holders.unwrap_or(Obstacle::Busy { bdf, group, holders: Vec::new() })
}

/// The kernel says so; who is to blame stands in sysfs, unless it has changed since.
fn not_viable(host: &Host, ready: &Ready) -> Obstacle {
    let culprits = check::ready(host, ready.function.bdf).err();
    culprits.unwrap_or(Obstacle::GroupNotViable { group: ready.group, culprits: Vec::new() })
}

/// A file could not be opened.
fn not_opened(path: PathBuf, error: &io::Error) -> Obstacle {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Obstacle::Permission { path },
        io::ErrorKind::NotFound => Obstacle::NoNode { path },
        _ if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => Obstacle::NoVfio { path },
        _ => Obstacle::System {
            what: format!("opening {}", path.display()),
            errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
        },
    }
}

/// Anything else. The crate keeps some error numbers; of the others the thread's last one is it, as nothing but closing files has
/// been called since.
fn system(what: &str, error: &VfioError) -> Obstacle {
    let errno = match error {
        VfioError::ContainerSetIOMMU(e)
        | VfioError::GroupGetDeviceFD(e)
        | VfioError::VfioDeviceGetInfo(e)
        | VfioError::VfioDeviceGetRegionInfo(e) => e.errno(),
        _ => io::Error::last_os_error().raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
    };
    Obstacle::System { what: format!("{what} ({error})"), errno }
}

impl Iommu for Arc<VfioContainer> {
    unsafe fn map(&self, iova: u64, ptr: NonNull<u8>, len: usize) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        unsafe { self.vfio_dma_map(iova, len, ptr.as_ptr()) }.map_err(|error| errno_of(&error))
    }

    fn unmap(&self, iova: u64, len: usize) -> Result<(), Errno> {
        self.vfio_dma_unmap(iova, len).map_err(|error| errno_of(&error))
    }
}

/// What the kernel answered to a map or an unmap. One that unmapped another size than asked for counts as failed (C-096).
fn errno_of(error: &VfioError) -> Errno {
    match error {
        VfioError::IommuDmaMap(e) | VfioError::IommuDmaUnmap(e) => Errno::from_raw_os_error(e.errno()),
        _ => Errno::INVAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C-096: the kernel answers success and unmaps nothing when a range begins in the middle of a map.
    #[test]
    fn an_unmap_of_another_size_than_asked_for_is_an_error() {
        assert_eq!(errno_of(&VfioError::InvalidDmaUnmapSize), Errno::INVAL);
        assert_eq!(errno_of(&VfioError::IommuDmaUnmap(SysError::new(5))), Errno::IO);
    }

    #[test]
    fn a_function_that_is_locked_is_asked_for_again_and_other_errors_are_final() {
        let mut answers = vec![Ok(7), Err(Errno::AGAIN), Err(Errno::AGAIN)];
        let mut call = || answers.pop().unwrap_or(Err(Errno::IO));
        assert_eq!(patiently(|e| *e == Errno::AGAIN, &mut call), Ok(7));
        assert_eq!(patiently(|e| *e == Errno::AGAIN, call), Err(Errno::IO));
        let mut calls = 0;
        let locked = || {
            calls += 1;
            Err::<(), _>(Errno::AGAIN)
        };
        assert_eq!(patiently(|e| *e == Errno::AGAIN, locked), Err(Errno::AGAIN));
        assert_eq!(calls, TRIES);
    }

    #[test]
    fn a_group_that_the_kernel_still_takes_from_somebody_is_waited_for() {
        let group = |errno| VfioError::OpenGroup(io::Error::from_raw_os_error(errno), "12".into());
        // EBUSY, EAGAIN, EACCES, EPERM: include/uapi/asm-generic/errno-base.h.
        assert!(passes(&group(16)) && passes(&VfioError::GroupGetDeviceFD(SysError::new(11))));
        assert!(!passes(&group(13)) && !passes(&VfioError::GroupGetDeviceFD(SysError::new(16))));
        assert!(!passes(&VfioError::ContainerSetIOMMU(SysError::new(1))) && !passes(&VfioError::GroupViable));
    }

    #[test]
    fn a_file_that_is_missing_or_forbidden_is_named() {
        let path = PathBuf::from("/dev/vfio/7");
        let from = |errno| not_opened(path.clone(), &io::Error::from_raw_os_error(errno));
        assert_eq!(from(2), Obstacle::NoNode { path: path.clone() });
        assert_eq!(from(19), Obstacle::NoVfio { path: path.clone() }, "a node without a driver");
        assert_eq!(from(13), Obstacle::Permission { path: path.clone() });
        assert_eq!(from(1), Obstacle::Permission { path: path.clone() });
        assert_eq!(from(24), Obstacle::System { what: "opening /dev/vfio/7".into(), errno: 24 });
        assert!(from(24).cure().contains("ulimit -n"), "EMFILE is nothing to look into the kernel's log for");
    }
}
