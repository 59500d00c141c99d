//! What a user can choose when opening a device.

use alloc::sync::Arc;
use core::fmt;

use mlx5_hw::cmd::Opcode;
use mlx5_hw::simd::Cpu;

use crate::dma::Leaked;
use crate::error::Error;

const MS: u64 = 1_000_000;

/// How long the driver waits, in nanoseconds. The defaults are Linux's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// For the firmware to start, before it is told where the command queue is: 120 s.
    pub firmware_start: u64,
    /// For the firmware to take up the command queue: 2 s.
    pub firmware_init: u64,
    /// For each command: 60 s.
    pub command: u64,
    /// For the firmware to return its pages: 5 s.
    pub pages: u64,
    /// Between two looks at the health counter: 2 s.
    pub health_poll: u64,
    /// For all of the teardown together when a device is dropped instead of closed, or when opening it failed, and for
    /// each command when an object is dropped instead of destroyed: 1 s.
    pub drop: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            firmware_start: 120_000 * MS,
            firmware_init: 2_000 * MS,
            command: 60_000 * MS,
            pages: 5_000 * MS,
            health_poll: 2_000 * MS,
            drop: 1_000 * MS,
        }
    }
}

/// One command, as a [trace hook](DeviceConfig::trace) sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CommandTrace {
    /// Which command; its name is [`Opcode::name`].
    pub opcode: Opcode,
    /// How it ended.
    pub result: Result<(), Error>,
    /// When it was begun, in nanoseconds of the platform's clock.
    pub started: u64,
    /// How long it took, in nanoseconds, waiting for a slot included.
    pub duration: u64,
}

/// Called after each command, on the thread that ran it. It must not call back into the device.
pub type TraceHook = Arc<dyn Fn(&CommandTrace) + Send + Sync>;

/// Called for memory that is kept for good, when the last that belongs to the device goes.
pub type LeakHook = Arc<dyn Fn(&Leaked) + Send + Sync>;

/// How to open a device.
#[derive(Clone)]
#[non_exhaustive]
pub struct DeviceConfig {
    /// PCI device id of the function; it tells physical from virtual functions. Default 0x1018, a ConnectX-5 virtual function.
    pub device_id: u16,
    /// How long to wait for what.
    pub timeouts: Timeouts,
    /// Number of completion event queues, and so of completion vectors; fewer where the device has not so many, which
    /// [`num_comp_vectors`](crate::DeviceAttr::num_comp_vectors) tells. Default 1.
    pub completion_vectors: u32,
    /// Number of interrupt vectors that the platform serves. With one, which is the default, all event queues share
    /// vector 0; with more, completion event queues use those from 1 on, in turns. Of more than 64 the first 64 are used.
    pub interrupts: u32,
    /// Most 4 KiB pages the firmware may have at a time. Default 2^18, 1 GiB.
    pub max_pages: u32,
    /// Instructions that polling may use. Default: what the target was compiled for. A program that can ask the processor says
    /// more.
    pub cpu: Cpu,
    /// Called after each command.
    pub trace: Option<TraceHook>,
    /// Called for each piece of memory that the device may still write to when nothing of it is left, not even a device to
    /// ask for [`leaked`](super::Device::leaked), and no reset has ended that: after a failed
    /// [`open`](super::Device::open), or a drop, on a platform that cannot reset.
    pub on_leak: Option<LeakHook>,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self {
            device_id: 0x1018,
            timeouts: Timeouts::default(),
            completion_vectors: 1,
            interrupts: 1,
            max_pages: 1 << 18,
            cpu: Cpu::compiled(),
            trace: None,
            on_leak: None,
        }
    }
}

impl DeviceConfig {
    /// The defaults for a function with this PCI device id.
    pub fn new(device_id: u16) -> Self {
        Self { device_id, ..Self::default() }
    }

    /// The interrupt vector of the event queue of a completion vector.
    pub(crate) const fn interrupt_of(&self, comp_vector: u32) -> u32 {
        // `Platform::wait_any` knows 64.
        match self.interrupts {
            0 | 1 => 0,
            2..64 => 1 + comp_vector % (self.interrupts - 1),
            _ => 1 + comp_vector % 63,
        }
    }

    /// Whether the function is a virtual one, by its device id.
    pub const fn is_virtual(&self) -> bool {
        matches!(self.device_id, 0x1012 | 0x1014 | 0x1016 | 0x1018 | 0x101a | 0x101c | 0x101e | 0xa2d3)
    }
}

impl fmt::Debug for DeviceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceConfig")
            .field("device_id", &self.device_id)
            .field("timeouts", &self.timeouts)
            .field("completion_vectors", &self.completion_vectors)
            .field("interrupts", &self.interrupts)
            .field("max_pages", &self.max_pages)
            .field("cpu", &self.cpu)
            .field("trace", &self.trace.is_some())
            .field("on_leak", &self.on_leak.is_some())
            .finish()
    }
}
