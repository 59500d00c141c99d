//! The handle that users hold.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::ModelConfig;
use crate::device::Device;
use crate::violation::Violation;

/// A software ConnectX function. Clones are handles to the same function.
///
/// It is a [`Platform`](mlx5_hw::platform::Platform) (memory, clock, interrupts) and a
/// [`Bar`](mlx5_hw::platform::Bar) (registers) in one.
#[derive(Clone)]
pub struct Model {
    device: Arc<Mutex<Device>>,
}

impl Model {
    /// A function as a port hands it over: reset, memory space and bus mastering on.
    pub fn new(config: ModelConfig) -> Self {
        Self { device: Arc::new(Mutex::new(Device::new(config))) }
    }

    /// The device, locked.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `ns` nanoseconds pass.
    pub fn step(&self, ns: u64) {
        let mut dev = self.lock();
        let until = dev.clock.now().saturating_add(ns);
        dev.advance(until);
    }

    /// The rules that the driver has broken so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().violations.clone()
    }

    /// Memory that the driver has allocated and not freed: ranges and bytes.
    pub fn dma_outstanding(&self) -> (usize, usize) {
        self.lock().dma.outstanding()
    }
}

impl Default for Model {
    fn default() -> Self {
        Self::new(ModelConfig::default())
    }
}
