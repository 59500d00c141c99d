//! A device: brought up, queried, torn down.

mod config;
mod control;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use mlx5_hw::cmd::Command;

pub use config::{CommandTrace, DeviceConfig, Timeouts, TraceHook};
use control::Control;

use crate::dma::{DmaRegion, Leaked};
use crate::error::Error;

/// An open device.
pub struct Device {
    inner: Arc<DeviceInner>,
}

impl Device {
    /// What the objects made from this device share.
    pub(crate) fn inner(&self) -> &Arc<DeviceInner> {
        &self.inner
    }

    /// Memory that the device may still write to although its object is gone: kept until a reset, with its name.
    pub fn leaked(&self) -> Vec<Leaked> {
        self.inner.control.port.leaked()
    }
}

/// What all objects of a device share.
pub(crate) struct DeviceInner {
    control: Control,
    uar: u32,
    completion_eqns: Vec<u32>,
    resd_lkey: Option<u32>,
    objects: AtomicUsize,
}

impl DeviceInner {
    /// Runs a command, see [`Control::exec`].
    pub(crate) fn exec<C: Command>(&self, command: &C) -> Result<C::Out, Error> {
        self.control.exec(command)
    }

    /// Memory for the device. [Lend](DmaRegion::lend) it before the command that names it.
    pub(crate) fn alloc_dma(&self, size: usize, align: usize) -> Result<DmaRegion, Error> {
        self.control.port.alloc(size, align)
    }

    /// Keeps memory that the device may still write to.
    pub(crate) fn leak(&self, what: &'static str, mut region: DmaRegion) {
        region.lend(what);
    }

    /// Index of the UAR page that queues name in their contexts.
    pub(crate) fn uar_page(&self) -> u32 {
        self.uar
    }

    /// Writes a 64-bit doorbell, given in CPU order, at `offset` of the UAR page.
    pub(crate) fn ring_uar64(&self, offset: usize, value: u64) {
        self.control.port.bar().write64(self.uar as usize * 4096 + offset, value.swap_bytes());
    }

    /// Number of the completion event queue of a vector.
    pub(crate) fn comp_eqn(&self, vector: u32) -> Option<u32> {
        self.completion_eqns.get(vector as usize).copied()
    }

    /// Number of completion vectors.
    pub(crate) fn num_comp_vectors(&self) -> u32 {
        self.completion_eqns.len() as u32
    }

    /// The reserved key for all of memory, where the device offers one.
    pub(crate) fn resd_lkey(&self) -> Option<u32> {
        self.resd_lkey
    }

    /// Counts an object that needs the device; it then cannot be closed.
    pub(crate) fn track(&self) {
        self.objects.fetch_add(1, Ordering::Relaxed);
    }

    /// An object is gone.
    pub(crate) fn untrack(&self) {
        self.objects.fetch_sub(1, Ordering::Relaxed);
    }
}
