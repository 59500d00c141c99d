//! A platform with something missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlx5_hw::platform::{DmaMem, Platform, PlatformError};
use mlx5_model::Model;

/// A platform with something missing, on top of the model's.
#[derive(Clone)]
pub struct Poor {
    pub model: Model,
    /// `reset` answers `Unsupported`.
    pub no_reset: bool,
    /// `alloc` fails while set.
    pub starved: Arc<AtomicBool>,
    /// How it fails.
    pub refusal: PlatformError,
}

impl Poor {
    pub fn new(model: &Model) -> Self {
        Self { model: model.clone(), no_reset: false, starved: Arc::default(), refusal: PlatformError::NoMemory }
    }
}

// SAFETY: hands on what the model gives and takes.
unsafe impl Platform for Poor {
    fn alloc(&self, size: usize, align: usize) -> Result<DmaMem, PlatformError> {
        if self.starved.load(Ordering::Relaxed) {
            return Err(self.refusal);
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

    fn wait_any(&self, vectors: u64, deadline: u64) {
        self.model.wait_any(vectors, deadline);
    }

    fn pause(&self, until: u64) {
        self.model.pause(until);
    }
}
