//! The port of a cell: the model, which may have no reset, and no memory while one command runs.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mlx5::device::CommandTrace;
use mlx5::{Device, DeviceConfig, Error, Leaked};
use mlx5_hw::platform::{DmaMem, Platform, PlatformError};
use mlx5_model::{Model, ModelConfig};

pub const MS: u64 = 1_000_000;
/// Time for a command, and for the firmware to return its pages.
pub const COMMAND: u64 = 20 * MS;
/// Time for all of the unwinding after a failed open, and for each command of an object that is dropped.
pub const UNWIND: u64 = 100 * MS;

/// Which function, on which platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    pub device_id: u16,
    /// The platform can reset it.
    pub reset: bool,
    /// Its port is InfiniBand.
    pub infiniband: bool,
}

pub const VF: Function = Function { device_id: 0x1018, reset: true, infiniband: false };
pub const PF: Function = Function { device_id: 0x1017, reset: true, infiniband: false };
pub const IB: Function = Function { infiniband: true, ..VF };

impl Function {
    pub const fn without_reset(self) -> Self {
        Self { reset: false, ..self }
    }
}

/// When the platform has no memory.
#[derive(Default)]
pub struct Hunger {
    /// Now.
    pub now: AtomicBool,
    /// From when the device has taken so many commands; 0 for never.
    pub from: AtomicUsize,
    /// Until a command with this opcode has ended.
    pub until: AtomicUsize,
}

/// A model behind its port, and what the driver's two hooks were told.
#[derive(Clone)]
pub struct Port {
    pub model: Model,
    pub hunger: Arc<Hunger>,
    /// Errors of commands, in order.
    pub failed: Arc<Mutex<Vec<Error>>>,
    pub leaked: Arc<Mutex<Vec<Leaked>>>,
    /// Memory handed out so far: I/O address, size, alignment asked for.
    pub allocated: Arc<Mutex<Vec<(u64, usize, usize)>>>,
    /// Waiting lets no time pass before the device has taken so many commands.
    pub hold: Arc<AtomicUsize>,
    reset: bool,
}

impl Port {
    pub fn new(function: Function) -> Self {
        let config = if function.infiniband { ModelConfig::infiniband() } else { ModelConfig::default() };
        let config = ModelConfig { device_id: function.device_id, boot_pages: 2, init_pages: 6, ..config };
        Self {
            model: Model::new(config),
            hunger: Arc::default(),
            failed: Arc::default(),
            leaked: Arc::default(),
            allocated: Arc::default(),
            hold: Arc::default(),
            reset: function.reset,
        }
    }

    /// Yields, if waiting is to let no time pass.
    fn held(&self) -> bool {
        let hold = self.hold.load(Ordering::Relaxed);
        let held = hold != 0 && self.model.commands().len() < hold;
        if held {
            std::thread::yield_now();
        }
        held
    }

    pub fn open(&self, function: Function) -> Result<Device, Error> {
        let mut config = DeviceConfig::new(function.device_id);
        config.timeouts.command = COMMAND;
        config.timeouts.pages = COMMAND;
        config.timeouts.drop = UNWIND;
        let (hunger, failed, leaked) = (self.hunger.clone(), self.failed.clone(), self.leaked.clone());
        let model = self.model.clone();
        config.trace = Some(Arc::new(move |t: &CommandTrace| {
            let over = usize::from(t.opcode.0) == hunger.until.load(Ordering::Relaxed);
            if over && model.commands().len() >= hunger.from.load(Ordering::Relaxed) {
                hunger.from.store(0, Ordering::Relaxed);
            }
            failed.lock().unwrap().extend(t.result.err());
        }));
        config.on_leak = Some(Arc::new(move |piece: &Leaked| leaked.lock().unwrap().push(*piece)));
        Device::open(self.clone(), self.model.clone(), config)
    }

    fn hungry(&self) -> bool {
        let from = self.hunger.from.load(Ordering::Relaxed);
        self.hunger.now.load(Ordering::Relaxed) || from != 0 && self.model.commands().len() >= from
    }
}

// SAFETY: hands on what the model gives and takes.
unsafe impl Platform for Port {
    fn alloc(&self, size: usize, align: usize) -> Result<DmaMem, PlatformError> {
        if self.hungry() {
            return Err(PlatformError::NoMemory);
        }
        let mem = self.model.alloc(size, align)?;
        self.allocated.lock().unwrap().push((mem.iova(), size, align));
        Ok(mem)
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

    // Small event queues, so that a cell takes little time.
    fn max_contiguous(&self) -> usize {
        1 << 14
    }

    unsafe fn map(&self, ptr: NonNull<u8>, len: usize) -> Result<u64, PlatformError> {
        // SAFETY: the caller promises the same.
        unsafe { self.model.map(ptr, len) }
    }

    unsafe fn unmap(&self, iova: u64, len: usize) -> Result<(), PlatformError> {
        // SAFETY: the caller promises the same.
        unsafe { self.model.unmap(iova, len) }
    }

    fn reset(&self) -> Result<(), PlatformError> {
        if self.reset { self.model.reset() } else { Err(PlatformError::Unsupported) }
    }

    fn wait(&self, vector: u32, deadline: u64) {
        if !self.held() {
            self.model.wait(vector, deadline);
        }
    }

    fn pause(&self, until: u64) {
        if !self.held() {
            self.model.pause(until);
        }
    }
}
