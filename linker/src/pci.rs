//! PCI: finding the function, its BAR 0, turning it on and resetting it.
//!
//! Configuration space is reached by the two ports of a PC. That gives the first 256 bytes, which is where everything
//! needed here lies. What a function says is taken with care: lists are followed a bounded number of steps.

use crate::clock::Clock;
use crate::io::{inl, outl};

const MELLANOX: u32 = 0x15b3;
const COMMAND: u8 = 0x04;
const MEMORY_SPACE: u32 = 1 << 1;
const BUS_MASTER: u32 = 1 << 2;
/// The lower half of a register pair; the upper half are status bits that writing a one clears.
const LOWER: u32 = 0xffff;
const HEADER_TYPE: u8 = 0x0c;
const BAR0: u8 = 0x10;
const BARS: usize = 6;
const BUS_NUMBERS: u8 = 0x18;
const CAPABILITIES: u8 = 0x34;
const PCI_EXPRESS: u32 = 0x10;
const MS: u64 = 1_000_000;

/// A function by its place on the bus.
#[derive(Clone, Copy)]
pub struct Function {
    bus: u8,
    /// Device, 5 bits, and function, 3 bits.
    devfn: u8,
}

impl core::fmt::Display for Function {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:02x}:{:02x}.{}", self.bus, self.devfn >> 3, self.devfn & 7)
    }
}

/// Where the registers of a function lie, as physical addresses.
#[derive(Clone, Copy)]
pub struct Registers {
    pub address: u64,
    pub size: u64,
}

/// Why a reset did not work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ResetError {
    /// The function cannot be reset alone.
    Unsupported,
    /// It did not come back.
    Gone,
}

impl Function {
    /// The first function of the vendor.
    pub fn find() -> Option<Self> {
        Self::find_on(0)
    }

    /// Looks at a bus and at those behind its bridges, which have higher numbers.
    fn find_on(bus: u8) -> Option<Self> {
        for devfn in 0..=u8::MAX {
            let function = Self { bus, devfn };
            let first = Self { bus, devfn: devfn & !7 };
            let several = first.read(HEADER_TYPE) & 1 << 23 != 0;
            if (devfn & 7 != 0 && !several) || function.absent() {
                continue;
            }
            match function.read(HEADER_TYPE) >> 16 & 0x7f {
                0 if function.read(0) & LOWER == MELLANOX => return Some(function),
                1 => {
                    let behind = (function.read(BUS_NUMBERS) >> 8) as u8;
                    if behind > bus
                        && let Some(found) = Self::find_on(behind)
                    {
                        return Some(found);
                    }
                }
                _ => {}
            }
        }
        None
    }

    fn select(self, offset: u8) {
        const ADDRESS: u16 = 0xcf8;
        let (bus, devfn) = (u32::from(self.bus), u32::from(self.devfn));
        outl(ADDRESS, 1 << 31 | bus << 16 | devfn << 8 | u32::from(offset & !3));
    }

    /// Reads 32 bits of configuration space.
    fn read(self, offset: u8) -> u32 {
        self.select(offset);
        inl(0xcfc)
    }

    /// Writes 32 bits of configuration space.
    fn write(self, offset: u8, value: u32) {
        self.select(offset);
        outl(0xcfc, value);
    }

    /// Nothing answers here, or nothing that is ready (1 stands for "ask again").
    fn absent(self) -> bool {
        matches!(self.read(0) & LOWER, 0xffff | 1)
    }

    /// The device id, which tells physical from virtual functions.
    pub fn device_id(self) -> u16 {
        (self.read(0) >> 16) as u16
    }

    /// The PCI Express capability's offset.
    fn express(self) -> Option<u8> {
        let mut at = self.read(CAPABILITIES) as u8 & !3;
        for _ in 0..48 {
            // The last register wanted lies 8 bytes into the capability.
            if !(0x40..=0xf4).contains(&at) {
                return None;
            }
            let head = self.read(at);
            if head & 0xff == PCI_EXPRESS {
                return Some(at);
            }
            at = (head >> 8) as u8 & !3;
        }
        None
    }

    /// Lets the function answer at its BARs and reach memory.
    pub fn turn_on(self) {
        self.write(COMMAND, self.read(COMMAND) & LOWER | MEMORY_SPACE | BUS_MASTER);
    }

    /// Where BAR 0 lies, and its size, found out as PCI has it: by writing ones. `None` if firmware gave it no address, or
    /// address and size do not go together.
    pub fn registers(self) -> Option<Registers> {
        const IO: u32 = 1;
        const WIDE: u32 = 0b100;
        const KIND: u32 = 0b110;
        let command = self.read(COMMAND) & LOWER;
        let (low, high) = (self.read(BAR0), self.read(BAR0 + 4));
        if low & IO != 0 {
            return None;
        }
        // While it is being measured the BAR must not be decoded: its address is a wrong one.
        self.write(COMMAND, command & !MEMORY_SPACE);
        self.write(BAR0, u32::MAX);
        self.write(BAR0 + 4, u32::MAX);
        let (low_mask, high_mask) = (self.read(BAR0), self.read(BAR0 + 4));
        self.write(BAR0, low);
        self.write(BAR0 + 4, high);
        self.write(COMMAND, command);
        let join = |low: u32, high: u32| match low & KIND {
            WIDE => u64::from(high) << 32 | u64::from(low & !0xf),
            _ => u64::from(low & !0xf),
        };
        let mask = match low & KIND {
            WIDE => join(low_mask, high_mask),
            _ => u64::from(low_mask & !0xf) | !0 << 32,
        };
        let registers = Registers { address: join(low, high), size: (!mask).wrapping_add(1) };
        let sound = registers.size.is_power_of_two() && registers.address.is_multiple_of(registers.size);
        (sound && registers.address != 0).then_some(registers)
    }

    /// Resets the function (function-level reset) and gives it back what it then has forgotten: its BARs and its command
    /// register. On success it has stopped reading and writing memory, and what it was given before is forgotten.
    pub fn reset(self, clock: &Clock) -> Result<(), ResetError> {
        const CAN_RESET: u32 = 1 << 28;
        const RESET: u32 = 1 << 15;
        const TRANSACTIONS_PENDING: u32 = 1 << 21;
        if self.absent() {
            return Err(ResetError::Gone);
        }
        let express = self.express().filter(|at| self.read(at + 4) & CAN_RESET != 0).ok_or(ResetError::Unsupported)?;
        let control = express + 8;
        let command = self.read(COMMAND) & LOWER;
        let bars: [u32; BARS] = core::array::from_fn(|i| self.read(BAR0 + 4 * i as u8));
        // No new requests; those on their way get their answers. A function that never finishes is reset all the same.
        self.write(COMMAND, command & !BUS_MASTER);
        wait(clock, 100 * MS, || self.read(control) & TRANSACTIONS_PENDING == 0);
        self.write(control, self.read(control) & LOWER | RESET);
        // It has 100 ms in which it need not answer, then up to a second in which it may ask for patience.
        clock.sleep(100 * MS);
        if !wait(clock, 1_000 * MS, || !self.absent()) {
            return Err(ResetError::Gone);
        }
        for (i, bar) in bars.into_iter().enumerate() {
            self.write(BAR0 + 4 * i as u8, bar);
        }
        self.write(COMMAND, command);
        Ok(())
    }
}

/// Waits until `done`; tells whether it came to that within `ns`.
fn wait(clock: &Clock, ns: u64, done: impl Fn() -> bool) -> bool {
    let deadline = clock.now().saturating_add(ns);
    while !done() {
        if clock.now() >= deadline {
            return false;
        }
        core::hint::spin_loop();
    }
    true
}
