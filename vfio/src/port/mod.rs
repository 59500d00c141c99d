//! The port of the driver to Linux VFIO: a function, opened through its group and a container of its own.
//!
//! [`VfioFunction::open`] goes in this order: what the machine shows of the function; container, group and function;
//! configuration space; reset; memory space and bus mastering on, before any register is touched; BAR 0; the addresses that the
//! IOMMU has; interrupts; memory. The last handle that goes takes it back in the opposite order: bus mastering off, reset,
//! interrupts off, every range unmapped exactly as it was mapped, then files closed.

mod arena;
mod bar;
mod config_space;
mod container;
mod device;
mod domain;
mod function;
mod iova;
mod irq;
mod limits;
mod memory;
mod platform;
mod sys;
#[cfg(test)]
mod tests;
mod user_memory;

use std::sync::Arc;

use mlx5::{Device, DeviceConfig};

use self::function::Function;
use crate::host::{Bdf, Host, Obstacle};

/// How to open a function.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VfioOptions {
    /// Interrupt vectors, 1 to 64; what lies beyond counts as the nearest. Default: as many as the function has, at most 8.
    pub vectors: Option<u32>,
    /// Take memory for the device in pages of 2 MiB where the system has some; else, and without this, in pages of 4 KiB.
    pub huge_pages: bool,
}

impl Default for VfioOptions {
    fn default() -> Self {
        Self { vectors: None, huge_pages: true }
    }
}

/// What a function's port has done and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortCounters {
    /// Interrupts taken.
    pub interrupts: u64,
    /// Waits for interrupts that had to sleep.
    pub sleeps: u64,
    /// Ranges of memory that the function reaches now.
    pub maps: u64,
    /// Bytes of them.
    pub mapped_bytes: u64,
    /// Bytes of them in pages of 2 MiB of the port's own.
    pub huge_bytes: u64,
    /// Pieces of memory that the driver has and has not given back.
    pub outstanding: u64,
    /// Bytes of them.
    pub outstanding_bytes: u64,
    /// Resets of the function that succeeded, that of opening it included.
    pub resets: u64,
}

/// A function that VFIO has given to this process: reset, memory space and bus mastering on. It is [`Platform`] and [`Bar`] in one.
/// Clones are handles to the same function; the last one that goes quiesces it, resets it and gives everything back.
///
/// Closing a function that does not answer takes the kernel up to a minute. A thread of its own waits for that, so dropping the
/// last handle does not; the end of the process does, and opening the function again finds it busy until then.
///
/// A child process made by `fork` must not use it, nor drop it.
///
/// [`Platform`]: mlx5::hw::platform::Platform
/// [`Bar`]: mlx5::hw::platform::Bar
#[derive(Clone)]
pub struct VfioFunction {
    inner: Arc<Function>,
}

impl VfioFunction {
    /// Opens a function that is bound to vfio-pci. A group is opened as a whole: while one of its functions is open, the others
    /// are busy.
    ///
    /// # Errors
    /// What stands in the way; what was taken until then is given back.
    pub fn open(host: &Host, bdf: Bdf, options: &VfioOptions) -> Result<Self, Obstacle> {
        Ok(Self { inner: Arc::new(Function::open(host, bdf, options)?) })
    }

    /// Its address.
    pub fn bdf(&self) -> Bdf {
        self.inner.bdf
    }

    /// Its PCI vendor id, as its configuration space says.
    pub fn vendor_id(&self) -> u16 {
        self.inner.ids.0
    }

    /// Its PCI device id, as its configuration space says.
    pub fn device_id(&self) -> u16 {
        self.inner.ids.1
    }

    /// Interrupt vectors in use.
    pub fn vectors(&self) -> u32 {
        self.inner.interrupts.events().len() as u32
    }

    /// How to open a device on it: its device id, and a completion vector for each interrupt vector but the first, as far as the
    /// device has event queues for them.
    pub fn device_config(&self) -> DeviceConfig {
        let mut config = DeviceConfig::new(self.device_id());
        config.interrupts = self.vectors();
        config.completion_vectors = (self.vectors() - 1).max(1);
        config
    }

    /// Opens a device on it, one at a time: a function that had one before is reset first, which ends what that one still does.
    /// Of the interrupts that `config` names it gets as many as there are [`vectors`](Self::vectors).
    ///
    /// # Errors
    /// `Platform` if that reset fails; those of [`Device::open`].
    pub fn open_device(&self, mut config: DeviceConfig) -> Result<Device, mlx5::Error> {
        config.interrupts = config.interrupts.min(self.vectors());
        self.inner.before_open()?;
        Device::open(self.clone(), self.clone(), config)
    }

    /// What the port has done and holds.
    pub fn counters(&self) -> PortCounters {
        self.inner.counters()
    }
}

impl std::fmt::Debug for VfioFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VfioFunction")
            .field("bdf", &self.bdf())
            .field("vectors", &self.vectors())
            .finish_non_exhaustive()
    }
}
