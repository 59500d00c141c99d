//! What the tests of the control path share.

// Each test binary uses its part of this.
#![allow(dead_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlx5::{Device, DeviceConfig, Error};
use mlx5_hw::platform::{DmaMem, Platform, PlatformError};
use mlx5_model::{CommandRecord, Model, ModelConfig};

/// A model, and a device on it that was opened with what `config` says.
pub fn open(model: &Model, config: DeviceConfig) -> Result<Device, Error> {
    Device::open(model.clone(), model.clone(), config)
}

/// The default virtual function.
pub fn model() -> Model {
    Model::new(ModelConfig::default())
}

/// Commands as the reference list writes them.
pub fn row(record: &CommandRecord) -> String {
    let CommandRecord { slot, name, opcode, op_mod, in_len, out_len, .. } = record;
    format!("{slot} {name} {opcode:#x} {op_mod} {in_len} {out_len}")
}

/// Asserts that the device has nothing of the host's and broke no rule.
pub fn assert_clean(model: &Model, when: &str) {
    let violations = model.violations();
    assert!(violations.is_empty(), "{when}: {violations:#?}");
    assert_eq!(model.dma_outstanding(), (0, 0), "{when}: memory not given back");
    assert_eq!(model.firmware_pages(), 0, "{when}: pages not given back");
}

/// A platform with something missing, on top of the model's.
#[derive(Clone)]
pub struct Poor {
    pub model: Model,
    /// `reset` answers `Unsupported`.
    pub no_reset: bool,
    /// `alloc` fails while set.
    pub starved: Arc<AtomicBool>,
}

impl Poor {
    pub fn new(model: &Model) -> Self {
        Self { model: model.clone(), no_reset: false, starved: Arc::default() }
    }
}

// SAFETY: hands on what the model gives and takes.
unsafe impl Platform for Poor {
    fn alloc(&self, size: usize, align: usize) -> Result<DmaMem, PlatformError> {
        if self.starved.load(Ordering::Relaxed) {
            return Err(PlatformError::NoMemory);
        }
        self.model.alloc(size, align)
    }

    unsafe fn free(&self, mem: DmaMem) {
        // SAFETY: the caller promises the same.
        unsafe { self.model.free(mem) }
    }

    fn now(&self) -> u64 {
        self.model.now()
    }

    fn relax(&self) {
        self.model.relax();
    }

    fn reset(&self) -> Result<(), PlatformError> {
        if self.no_reset { Err(PlatformError::Unsupported) } else { self.model.reset() }
    }

    fn wait(&self, vector: u32, deadline: u64) {
        self.model.wait(vector, deadline);
    }
}
