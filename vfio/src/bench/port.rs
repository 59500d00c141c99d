//! A port to the model that can be deaf: while it is, no register is written, so that what is timed is the driver alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlx5::hw::platform::Bar;
use mlx5_model::Model;

/// BAR 0 of a model, as long as it is not deaf.
#[derive(Clone)]
pub struct Registers {
    model: Model,
    deaf: Arc<AtomicBool>,
}

impl Registers {
    /// It listens.
    pub fn new(model: Model) -> Self {
        Self { model, deaf: Arc::default() }
    }

    /// While it is deaf, writes go nowhere.
    pub fn set_deaf(&self, deaf: bool) {
        self.deaf.store(deaf, Ordering::Relaxed);
    }

    fn unless_deaf(&self, write: impl FnOnce(&Model)) {
        if !self.deaf.load(Ordering::Relaxed) {
            write(&self.model);
        }
    }
}

// SAFETY: each method is the model's, or while it is deaf nothing at all, as a bus would do on which the function is gone: the
// driver's memory is reached by nobody then.
unsafe impl Bar for Registers {
    fn size(&self) -> usize {
        self.model.size()
    }

    fn read32(&self, offset: usize) -> u32 {
        self.model.read32(offset)
    }

    fn write32(&self, offset: usize, value: u32) {
        self.unless_deaf(|model| model.write32(offset, value));
    }

    fn write64(&self, offset: usize, value: u64) {
        self.unless_deaf(|model| model.write64(offset, value));
    }
}
