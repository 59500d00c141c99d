//! The initialization segment: the registers at the start of BAR 0.

use crate::be::Be32;
use crate::health::HealthBuffer;
use crate::platform::Bar;
use crate::prm::{Bits, Layout};

crate::prm! {
    /// Initialization segment (PRM `initial_seg`). Its registers are read one by one: see [`InitSegment`].
    pub struct InitialSeg("initial_seg", 16396) {
        /// Firmware version, minor.
        fw_rev_minor: 0x00, 16;
        /// Firmware version, major.
        fw_rev_major: 0x10, 16;
        /// Revision of the command interface; the driver knows 5.
        cmd_interface_rev: 0x20, 16;
        /// Firmware version, patch.
        fw_rev_subminor: 0x30, 16;
        /// I/O address of the command queue, high half.
        cmdq_phy_addr_63_32: 0x80, 32;
        /// The same, bits 31:12.
        cmdq_phy_addr_31_12: 0xa0, 20;
        /// State of the NIC interface: [`NicInterface`]. Headers declare two bits; three are in use.
        nic_interface: 0xb5, 3;
        /// log2 of the command queue's entries.
        log_cmdq_size: 0xb8, 4;
        /// log2 of the distance of entries in bytes.
        log_cmdq_stride: 0xbc, 4;
        /// Doorbell of the command queue: bit n hands over slot n.
        command_doorbell_vector: 0xc0, 32;
        /// The firmware is not ready yet.
        initializing: 0xfe0, 1;
        /// States of the NIC interface that may be set.
        nic_interface_supported: 0xfe5, 3;
        /// The function is one of the embedded CPU.
        embedded_cpu: 0xfe8, 1;
        /// What the firmware writes about its own failures.
        health_buffer: 0x1000, HealthBuffer;
        /// Offset of the boot mode's area.
        no_dram_nic_offset: 0x1200, 32;
        /// Longest time of a command in milliseconds; 0 if not stated.
        cmd_exec_to: 0x7fc0, 32;
        /// Longest time of initialization in milliseconds; 0 if not stated.
        cmd_q_init_to: 0x7fe0, 32;
        /// Free running counter, high half.
        internal_timer_h: 0x8000, 32;
        /// Free running counter, low half.
        internal_timer_l: 0x8020, 32;
        /// Write to clear the legacy interrupt.
        clear_int: 0x807f, 1;
        /// What failed: the health buffer's `synd`.
        health_syndrome: 0x8080, 8;
        /// Counts up while the firmware lives.
        health_counter: 0x8088, 24;
        /// Real-time clock: seconds in the high half, nanoseconds in the low half.
        real_time: 0x8200, 64;
        /// IEEE 1588 clock.
        ieee1588_clk: 0x10000, 64;
        /// Kind of the IEEE 1588 clock.
        ieee1588_clk_type: 0x10040, 32;
        /// Write to clear the legacy interrupt, older place.
        clr_intx: 0x10060, 32;
    }
}

/// Revision of the command interface that the driver knows.
pub const CMD_INTERFACE_REV: u32 = 5;

/// The registers of a device, by name. Every access is one aligned 32-bit access; values are in CPU order. What the
/// device answers is not checked; a device that is gone reads as all ones.
#[derive(Clone, Copy)]
pub struct InitSegment<'a>(&'a dyn Bar);

impl<'a> InitSegment<'a> {
    /// The registers behind BAR 0.
    pub const fn new(bar: &'a dyn Bar) -> Self {
        Self(bar)
    }

    fn read(self, dword: usize) -> Be32 {
        Be32::new(self.0.read32(4 * dword).swap_bytes())
    }

    fn write(self, dword: usize, value: u32) {
        self.0.write32(4 * dword, value.swap_bytes());
    }

    fn field(self, bits: Bits) -> u32 {
        bits.of(self.read(bits.dword()))
    }

    /// Firmware version: major, minor, patch.
    pub fn fw_rev(self) -> (u16, u16, u16) {
        let first = self.read(InitialSeg::FW_REV_MAJOR.dword());
        (
            InitialSeg::FW_REV_MAJOR.of(first) as u16,
            InitialSeg::FW_REV_MINOR.of(first) as u16,
            self.field(InitialSeg::FW_REV_SUBMINOR) as u16,
        )
    }

    /// Revision of the command interface, to be [`CMD_INTERFACE_REV`].
    pub fn cmd_interface_rev(self) -> u32 {
        self.field(InitialSeg::CMD_INTERFACE_REV)
    }

    /// log2 of the command queue's entries and of their distance in bytes.
    pub fn cmdq_sizes(self) -> (u32, u32) {
        let dword = self.read(InitialSeg::LOG_CMDQ_SIZE.dword());
        (InitialSeg::LOG_CMDQ_SIZE.of(dword), InitialSeg::LOG_CMDQ_STRIDE.of(dword))
    }

    /// Tells the device where the command queue lies and asks for a full driver interface. `iova` is aligned to 4 KiB;
    /// its low 12 bits are dropped.
    pub fn set_cmdq_address(self, iova: u64) {
        self.write(InitialSeg::CMDQ_PHY_ADDR_63_32.dword(), (iova >> 32) as u32);
        self.write(InitialSeg::CMDQ_PHY_ADDR_31_12.dword(), iova as u32 & CMDQ_ADDRESS_LOW);
    }

    /// Hands over command queue slots: bit n stands for slot n.
    pub fn ring_command_doorbell(self, vector: u32) {
        self.write(InitialSeg::COMMAND_DOORBELL_VECTOR.dword(), vector);
    }

    /// Whether the firmware is not ready yet.
    pub fn initializing(self) -> bool {
        self.field(InitialSeg::INITIALIZING) != 0
    }

    /// Whether the function is one of the embedded CPU.
    pub fn embedded_cpu(self) -> bool {
        self.field(InitialSeg::EMBEDDED_CPU) != 0
    }

    /// State of the NIC interface.
    pub fn nic_interface(self) -> NicInterface {
        NicInterface(self.field(InitialSeg::NIC_INTERFACE) as u8)
    }

    /// The low half of the command queue's address, as the device has it, and the state of the NIC interface: one read.
    /// A function that was reset has no command queue.
    pub fn cmdq_state(self) -> (u32, NicInterface) {
        let word = self.read(InitialSeg::NIC_INTERFACE.dword());
        (word.get() & CMDQ_ADDRESS_LOW, NicInterface(InitialSeg::NIC_INTERFACE.of(word) as u8))
    }

    /// Whether the device answers: the firmware version in the health buffer is all ones when it is gone.
    pub fn answers(self) -> bool {
        self.read(HEALTH_AT / 4 + HealthBuffer::FW_VERSION.dword()).get() != u32::MAX
    }

    /// Sets the state of the NIC interface; the command queue's address stays.
    pub fn set_nic_interface(self, state: NicInterface) {
        let at = InitialSeg::NIC_INTERFACE.dword();
        let address = Be32::new(self.read(at).get() & CMDQ_ADDRESS_LOW);
        self.write(at, InitialSeg::NIC_INTERFACE.put(address, state.0.into()).get());
    }

    /// Reads the health buffer, dword by dword: it may change in between.
    pub fn health_buffer(self) -> HealthBuffer {
        let mut buffer = HealthBuffer::new();
        for (i, word) in buffer.words_mut().iter_mut().enumerate() {
            *word = self.read(HEALTH_AT / 4 + i);
        }
        buffer
    }

    /// The health buffer's syndrome and whether the firmware asks to be reset: two reads, cheap enough for a timer.
    pub fn health_syndrome(self) -> (u8, bool) {
        let read = |bits: Bits| bits.of(self.read(HEALTH_AT / 4 + bits.dword()));
        (read(HealthBuffer::SYND) as u8, read(HealthBuffer::RFR) != 0)
    }

    /// Counter that moves while the firmware lives; 24 bits.
    pub fn health_counter(self) -> u32 {
        self.field(InitialSeg::HEALTH_COUNTER)
    }

    /// The free running counter, of 64 bits. Its halves fit together: high, low and high again are read, and low once
    /// more when the high half moved.
    pub fn internal_timer(self) -> u64 {
        let high = self.field(InitialSeg::INTERNAL_TIMER_H);
        let low = self.field(InitialSeg::INTERNAL_TIMER_L);
        let again = self.field(InitialSeg::INTERNAL_TIMER_H);
        let low = if high == again { low } else { self.field(InitialSeg::INTERNAL_TIMER_L) };
        u64::from(again) << 32 | u64::from(low)
    }

    /// Longest time of a command and of initialization, in milliseconds; 0 where the firmware does not say.
    pub fn timeouts(self) -> (u32, u32) {
        (self.field(InitialSeg::CMD_EXEC_TO), self.field(InitialSeg::CMD_Q_INIT_TO))
    }
}

/// Byte offset of the health buffer.
const HEALTH_AT: usize = 0x200;

/// Bits of the low half of the command queue's address.
const CMDQ_ADDRESS_LOW: u32 = 0xffff_f000;

crate::prm_values! {
    /// State of the NIC interface (constants `MLX5_INITIAL_SEG_NIC_INTERFACE_*`).
    pub struct NicInterface(u8) {
        /// A driver with its command queue.
        FULL_DRIVER = 0x0;
        /// Off: the device neither reads nor writes memory.
        DISABLED = 0x1;
        /// Boot mode without memory.
        NO_DRAM_NIC = 0x2;
        /// Reset by software.
        SW_RESET = 0x7;
    }
}
