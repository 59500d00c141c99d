//! PCI configuration space.

use crate::config::ModelConfig;

/// Vendor id of Mellanox (NVIDIA).
const VENDOR: u16 = 0x15b3;
/// Where the capabilities lie, as on cards.
const PCIE: usize = 0x60;
const MSIX: usize = 0x9c;
/// Device control register of the PCIe capability, and its function-level reset bit.
const DEVCTL: usize = PCIE + 8;
const FLR: u16 = 1 << 15;
/// Link of 16 lanes at 8 GT/s: width and speed, where both link registers have them.
const LINK: u32 = 16 << 4 | 3;
/// The same speed and the two below it as a set. Without it, only speeds up to 5 GT/s are believed.
const SPEEDS: u32 = 0b111 << 1;
/// Command register: memory space, bus master, INTx disable.
const COMMAND: usize = 0x04;
const MEMORY: u16 = 1 << 1;
const BUS_MASTER: u16 = 1 << 2;
const INTX_DISABLE: u16 = 1 << 10;
/// MSI-X message control: enable, mask all.
const MSIX_ENABLE: u16 = 1 << 15;
const MSIX_MASK: u16 = 1 << 14;
/// Where the MSI-X table and its pending bits lie in BAR 0. The first UAR page lies behind both.
pub(crate) const MSIX_TABLE: u32 = 0x2000;
pub(crate) const MSIX_PENDING: u32 = 0x7000;
/// The most vectors: their table ends before the pending bits.
pub(crate) const MOST_VECTORS: u32 = 1024;

/// What a write to configuration space asks of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigAction {
    Nothing,
    /// Function-level reset.
    Reset,
    /// The bus-master bit is now this.
    BusMaster(bool),
}

/// Bytes of configuration space.
pub(crate) const CONFIG_BYTES: usize = 4096;
/// Bytes that are kept. Behind them lie the extended capabilities: there are none, which reads as zeros.
const KEPT: usize = 256;

/// Configuration space, and which bits of it can be written.
pub(crate) struct ConfigSpace {
    bytes: [u8; KEPT],
    writable: [u8; KEPT],
    flr: bool,
}

fn put16(bytes: &mut [u8; KEPT], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

fn put32(bytes: &mut [u8; KEPT], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

impl ConfigSpace {
    pub(crate) fn new(config: &ModelConfig) -> Self {
        let mut bytes = [0; KEPT];
        let b = &mut bytes;
        put16(b, 0x00, VENDOR);
        put16(b, 0x02, config.device_id);
        put16(b, 0x06, 1 << 4); // status: has capabilities
        b[0x0a..0x0c].copy_from_slice(&[if config.caps.ethernet { 0x00 } else { 0x07 }, 0x02]); // class: Ethernet or InfiniBand controller
        put32(b, 0x10, 0xc); // BAR 0: memory, 64 bits, prefetchable
        put16(b, 0x2c, VENDOR);
        put16(b, 0x2e, 0x0001);
        b[0x34] = PCIE as u8;
        b[PCIE..PCIE + 2].copy_from_slice(&[0x10, MSIX as u8]);
        put16(b, PCIE + 2, 2); // version 2, endpoint
        put32(b, PCIE + 4, u32::from(config.flr) << 28 | 1 << 15); // device capabilities: function-level reset, role-based errors
        put32(b, PCIE + 0xc, LINK | 0b11 << 10); // link capabilities, with power states
        put16(b, PCIE + 0x12, LINK as u16); // link status
        put32(b, PCIE + 0x2c, SPEEDS); // link capabilities 2
        put16(b, PCIE + 0x30, 3); // link control 2: target speed
        b[MSIX..MSIX + 2].copy_from_slice(&[0x11, 0]);
        put16(b, MSIX + 2, config.vectors.clamp(1, MOST_VECTORS) as u16 - 1);
        put32(b, MSIX + 4, MSIX_TABLE);
        put32(b, MSIX + 8, MSIX_PENDING);
        let mut writable = [0; KEPT];
        let w = &mut writable;
        put16(w, COMMAND, MEMORY | BUS_MASTER | INTX_DISABLE);
        let size_mask = !(config.bar_size as u64).wrapping_sub(1);
        put32(w, 0x10, size_mask as u32 & !0xf);
        put32(w, 0x14, (size_mask >> 32) as u32);
        w[0x0c] = 0xff; // cache line size
        w[0x3c] = 0xff; // interrupt line
        put16(w, DEVCTL, 0x7fff);
        put16(w, MSIX + 2, MSIX_ENABLE | MSIX_MASK);
        Self { bytes, writable, flr: config.flr }
    }

    /// Reads `width` bytes (1, 2 or 4) at `offset`, little-endian; ones where there is nothing.
    pub(crate) fn read(&self, offset: usize, width: usize) -> u32 {
        if width > 4 || offset.checked_add(width).is_none_or(|end| end > CONFIG_BYTES) {
            return u32::MAX;
        }
        let byte = |at: usize| self.bytes.get(at).copied().unwrap_or(0);
        (offset..offset + width).rev().fold(0, |value, at| value << 8 | u32::from(byte(at)))
    }

    /// Writes `width` bytes (1, 2 or 4) at `offset`, little-endian.
    pub(crate) fn write(&mut self, offset: usize, width: usize, value: u32) -> ConfigAction {
        let was = self.bus_master();
        let mut reset = false;
        for i in 0..width.min(4) {
            let byte = (value >> (8 * i)) as u8;
            let Some(at) = offset.checked_add(i) else { break };
            reset |= self.flr && at == DEVCTL + 1 && byte & (FLR >> 8) as u8 != 0;
            if let (Some(old), Some(mask)) = (self.bytes.get_mut(at), self.writable.get(at)) {
                *old = *old & !mask | byte & mask;
            }
        }
        match self.bus_master() {
            _ if reset => ConfigAction::Reset,
            now if now != was => ConfigAction::BusMaster(now),
            _ => ConfigAction::Nothing,
        }
    }

    pub(crate) fn bus_master(&self) -> bool {
        self.bytes[COMMAND] & BUS_MASTER as u8 != 0
    }

    pub(crate) fn memory_space(&self) -> bool {
        self.bytes[COMMAND] & MEMORY as u8 != 0
    }

    /// What a port does before it hands the function over: memory space, bus mastering and MSI-X on.
    pub(crate) fn turn_on(&mut self) {
        self.bytes[COMMAND] |= (MEMORY | BUS_MASTER) as u8;
        self.bytes[MSIX + 3] |= (MSIX_ENABLE >> 8) as u8;
    }
}
