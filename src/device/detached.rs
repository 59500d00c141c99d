//! What stands in the place of a device for objects that no device made.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::AtomicUsize;

use mlx5_hw::caps::CmdHcaCap;
use mlx5_hw::platform::{Bar, DmaMem, Platform, PlatformError};
use mlx5_hw::simd::Cpu;

use super::blue_flame::Registers;
use super::bringup::Brought;
use super::{Caps, Control, DeviceConfig, DeviceInfo, DeviceInner};
use crate::clock::Clock;
use crate::cmdq::CommandQueue;
use crate::dma::Port;
use crate::error::Failure;
use crate::gid::Gids;
use crate::keys::Keys;
use crate::numbers::Numbers;

/// A port to nothing: no memory, no registers, no time.
struct Nothing;

// SAFETY: it hands out no memory.
unsafe impl Platform for Nothing {
    fn alloc(&self, _: usize, _: usize) -> Result<DmaMem, PlatformError> {
        Err(PlatformError::Unsupported)
    }

    unsafe fn free(&self, _: DmaMem) {}

    fn now(&self) -> u64 {
        0
    }

    fn relax(&self) {}
}

// SAFETY: each offset is beyond the BAR.
unsafe impl Bar for Nothing {
    fn size(&self) -> usize {
        0
    }

    fn read32(&self, _: usize) -> u32 {
        u32::MAX
    }

    fn write32(&self, _: usize, _: u32) {}

    fn write64(&self, _: usize, _: u64) {}
}

/// Aligned as memory of a device must be.
static NO_MEMORY: [u64; 0] = [];

impl DeviceInner {
    /// No device, without any capability. It counts as failed from the start: no command is sent and no doorbell rung.
    pub(crate) fn detached(cpu: Cpu) -> Arc<Self> {
        let port = Arc::new(Port::new(Arc::new(Nothing), Box::new(Nothing), None));
        // SAFETY: of no bytes, at an address that is aligned.
        let empty = unsafe { DmaMem::new(NonNull::from(&NO_MEMORY).cast(), 0, 0) };
        let queue = CommandQueue::within(&port, port.borrow(empty), 1, 6);
        let control = Control::new(port.clone(), DeviceConfig { cpu, ..DeviceConfig::default() }, queue);
        control.fail(Failure::NoDevice);
        let general = CmdHcaCap::new();
        let clock = Clock::new(port, &general);
        let caps = Caps { general, atomic: None, roce: None };
        let made = Brought { caps, info: DeviceInfo::default(), uar: 0, completion_eqns: Vec::new(), resd_lkey: None };
        Arc::new(Self {
            control,
            made,
            objects: AtomicUsize::new(0),
            numbers: Numbers::default(),
            keys: Keys::default(),
            clock,
            gids: Gids::new(None),
            blue_flames: Registers::default(),
        })
    }
    /// Whether this is no device.
    pub(crate) fn is_detached(&self) -> bool {
        self.control.failure() == Some(Failure::NoDevice)
    }
}
