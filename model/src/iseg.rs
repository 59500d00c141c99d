//! The init segment: the registers at the start of BAR 0.

use crate::cmdif::{self, LOG_SLOTS, LOG_STRIDE};
use crate::device::Device;
use crate::hca::HcaState;
use crate::violation::ViolationKind;

/// Command interface revision.
const CMDIF_REV: u32 = 5;
/// Nanoseconds between two counts of the health counter.
const HEALTH_TICK: u64 = 10_000_000;
/// The low bits of the queue address register: nic_interface, log size, log stride.
const NIC_INTERFACE: u32 = 0x700;

/// Registers that hold what was written, and what firmware reports.
#[derive(Default)]
pub(crate) struct InitSegment {
    /// When the function finishes booting, in nanoseconds.
    booted_at: u64,
    address_high: u32,
    nic_interface: u32,
    /// Syndrome, severity and the request for a reset of the health buffer.
    pub(crate) health: (u8, u8, bool),
}

/// Syndromes of the health buffer, as Linux's driver names them.
pub(crate) mod syndrome {
    /// "ICM fetch PCI error": firmware cannot read a page of its own.
    pub(crate) const FETCH_PCI_ERROR: u8 = 0xa;
    /// "EQ error".
    pub(crate) const EQ_ERROR: u8 = 0xd;
}

impl InitSegment {
    /// As after a reset, when booting takes until `booted_at`.
    pub(crate) fn new(booted_at: u64) -> Self {
        Self { booted_at, ..Self::default() }
    }

    /// The health buffer shows what the device has run into, unless it shows something already.
    pub(crate) fn fall_ill(&mut self, syndrome: u8) {
        if self.health.0 == 0 {
            self.health = (syndrome, 0, false);
        }
    }

    /// Whether firmware has given up and asks for a reset.
    pub(crate) fn asks_for_reset(&self) -> bool {
        self.health.0 != 0 && self.health.2
    }
}

impl Device {
    /// Whether firmware is still booting.
    pub(crate) fn initializing(&self) -> bool {
        self.faults.never_boots || self.clock.now() < self.iseg.booted_at
    }

    /// Reads the big-endian dword at `offset`.
    pub(crate) fn init_segment_read(&mut self, offset: usize) -> u32 {
        let (major, minor, subminor) = self.config.firmware;
        let now = self.clock.now();
        let ticks = self.free_running(now);
        match offset {
            0x0000 => u32::from(minor) << 16 | u32::from(major),
            0x0004 => CMDIF_REV << 16 | u32::from(subminor),
            0x0010 => self.iseg.address_high,
            0x0014 => self.queue_register(),
            0x01fc => u32::from(self.initializing()) << 31,
            0x0200..0x0240 => self.health_read(offset - 0x200),
            0x1000 => (ticks >> 32) as u32,
            0x1004 => ticks as u32,
            0x1040 => (self.real_time(now) >> 32) as u32,
            0x1044 => self.real_time(now) as u32,
            0x1010 => u32::from(self.iseg.health.0) << 24 | self.health_counter(),
            _ => 0,
        }
    }

    fn queue_register(&self) -> u32 {
        let low = self.cmdif.queue.unwrap_or(0) as u32 & 0xffff_f000;
        low | self.iseg.nic_interface | LOG_SLOTS << 4 | LOG_STRIDE
    }

    fn health_counter(&self) -> u32 {
        let now = self.faults.counter_stuck_at.unwrap_or(self.clock.now());
        (now / HEALTH_TICK) as u32 & 0xff_ffff
    }

    /// The health buffer: firmware version, hardware id, severity, syndrome.
    fn health_read(&self, offset: usize) -> u32 {
        let (syndrome, severity, request_reset) = self.iseg.health;
        let (major, minor, subminor) = self.config.firmware;
        match offset {
            0x20 => 0x0080_0000 * u32::from(syndrome != 0),
            0x24 => 0x0080_1234 * u32::from(syndrome != 0),
            0x2c => (self.clock.now() / 1_000_000_000) as u32,
            0x30 => u32::from(major) << 24 | (u32::from(minor) & 0xff) << 16 | u32::from(subminor),
            0x34 => 0x020d,
            0x38 => u32::from(request_reset) << 31 | u32::from(syndrome != 0) << 27 | u32::from(severity & 7) << 24,
            0x3c => u32::from(syndrome) << 16,
            _ => 0,
        }
    }

    /// Writes the big-endian dword at `offset`.
    pub(crate) fn init_segment_write(&mut self, offset: usize, value: u32) {
        match offset {
            0x0010 => self.iseg.address_high = value,
            0x0014 => self.write_queue_address(value),
            0x0018 => cmdif::doorbell(self, value),
            // clear_int: there is no pin interrupt to clear.
            0x100c => (),
            _ => self.violate(ViolationKind::BarReadOnly, format!("{value:#x} to {offset:#x}")),
        }
    }

    fn write_queue_address(&mut self, value: u32) {
        let address = u64::from(self.iseg.address_high) << 32 | u64::from(value & 0xffff_f000);
        self.iseg.nic_interface = value & NIC_INTERFACE;
        let same = self.cmdif.queue == Some(address);
        if !same && self.hca.state != HcaState::Disabled {
            let detail = format!("{address:#x} while the function is enabled");
            self.violate(ViolationKind::QueueAddressChanged, detail);
        }
        self.cmdif.queue = Some(address);
    }
}
