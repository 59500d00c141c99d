//! The command queue's entries and mailboxes, and their signatures.
//!
//! An entry carries the first 16 bytes of input and output inline; the rest lies in chains of mailbox blocks.

use crate::be::Be32;
use crate::prm::Layout;

crate::prm! {
    /// Command queue entry (PRM `cmd_queue_entry`), 64 bytes.
    pub struct CmdQueueEntry("cmd_queue_entry", 64) {
        /// Kind of entry: [`ENTRY_TYPE`].
        r#type as "type": 0x00, 8;
        /// Length of the input in bytes, inline bytes included.
        input_length: 0x20, 32;
        /// I/O address of the first input mailbox, high half; 0 without one.
        input_mailbox_pointer_63_32: 0x40, 32;
        /// The same, bits 31:9.
        input_mailbox_pointer_31_9: 0x60, 23;
        /// First 16 bytes of the input.
        command_input_inline_data: 0x80, [8; 16];
        /// First 16 bytes of the output.
        command_output_inline_data: 0x100, [8; 16];
        /// I/O address of the first output mailbox, high half; 0 without one.
        output_mailbox_pointer_63_32: 0x180, 32;
        /// The same, bits 31:9.
        output_mailbox_pointer_31_9: 0x1a0, 23;
        /// Length of the output in bytes, inline bytes included.
        output_length: 0x1c0, 32;
        /// Number that ties entry and mailboxes together.
        token: 0x1e0, 8;
        /// Chosen so that all bytes of the entry XOR to 0xff.
        signature: 0x1e8, 8;
        /// Delivery status: [`DeliveryStatus`]. Written by the device.
        status: 0x1f8, 7;
        /// True while the entry is the device's.
        ownership: 0x1ff, 1;
    }
}

crate::prm! {
    /// Mailbox block (PRM `cmd_if_box`), 576 bytes, aligned to 1 KiB.
    pub struct CmdIfBox("cmd_if_box", 576) {
        /// 512 bytes of input or output.
        mailbox_data: 0x00, [8; 512];
        /// I/O address of the next block, high half; 0 in the last one.
        next_pointer_63_32: 0x1180, 32;
        /// The same, bits 31:10.
        next_pointer_31_10: 0x11a0, 22;
        /// Number of the block in its chain, from 0.
        block_number: 0x11c0, 32;
        /// Token of the entry.
        token: 0x11e8, 8;
        /// Chosen so that the control bytes XOR to 0xff; see [`CmdIfBox::sign`].
        ctrl_signature: 0x11f0, 8;
        /// Chosen so that all bytes of the block XOR to 0xff.
        signature: 0x11f8, 8;
    }
}

/// Bytes of input or output that an entry carries inline.
pub const INLINE_BYTES: usize = 16;

/// Bytes of input or output in a mailbox block.
pub const DATA_BYTES: usize = 512;

/// Alignment of a mailbox block in bytes.
pub const MAILBOX_ALIGN: usize = 1024;

/// Kind of a command queue entry (constant `MLX5_PCI_CMD_XPORT`).
pub const ENTRY_TYPE: u32 = 7;

/// Most entries of a command queue (constant `MLX5_MAX_COMMANDS`): its doorbell has 32 bits.
pub const MAX_ENTRIES: usize = 32;

/// Number of mailbox blocks for `len` bytes of input or output; none when they fit inline.
pub const fn mailboxes(len: usize) -> usize {
    len.saturating_sub(INLINE_BYTES).div_ceil(DATA_BYTES)
}

/// XOR of all bytes of a run of dwords.
pub fn xor(words: &[Be32]) -> u8 {
    let all = words.iter().fold(0, |sum, w| sum ^ w.to_raw());
    all.to_ne_bytes().iter().fold(0, |sum, b| sum ^ b)
}

impl CmdQueueEntry {
    /// I/O address of the first input mailbox; 0 without one.
    pub const fn input_mailbox(&self) -> u64 {
        (self.input_mailbox_pointer_63_32() as u64) << 32 | (self.input_mailbox_pointer_31_9() as u64) << 9
    }

    /// Sets the address of the first input mailbox. Its low 9 bits are dropped.
    pub const fn set_input_mailbox(&mut self, iova: u64) {
        self.set_input_mailbox_pointer_63_32((iova >> 32) as u32);
        self.set_input_mailbox_pointer_31_9(iova as u32 >> 9);
    }

    /// I/O address of the first output mailbox; 0 without one.
    pub const fn output_mailbox(&self) -> u64 {
        (self.output_mailbox_pointer_63_32() as u64) << 32 | (self.output_mailbox_pointer_31_9() as u64) << 9
    }

    /// Sets the address of the first output mailbox. Its low 9 bits are dropped.
    pub const fn set_output_mailbox(&mut self, iova: u64) {
        self.set_output_mailbox_pointer_63_32((iova >> 32) as u32);
        self.set_output_mailbox_pointer_31_9(iova as u32 >> 9);
    }

    /// Sets the signature; to be done last, with the owner bit as the device will see it.
    pub fn sign(&mut self) {
        self.set_signature(0);
        let sum = xor(self.words());
        self.set_signature((!sum).into());
    }

    /// Whether the signature fits. What the device answered fits with the owner bit set again, and only while command
    /// checksums are on.
    pub fn signature_fits(&self) -> bool {
        xor(self.words()) == 0xff
    }

    /// How the delivery of the command went.
    pub const fn delivery_status(&self) -> DeliveryStatus {
        DeliveryStatus(self.status() as u8)
    }
}

impl CmdIfBox {
    /// Dword at which the control bytes start, behind the data.
    const CONTROL_AT: usize = DATA_BYTES / 4;

    /// I/O address of the next block; 0 in the last one.
    pub const fn next(&self) -> u64 {
        (self.next_pointer_63_32() as u64) << 32 | (self.next_pointer_31_10() as u64) << 10
    }

    /// Sets the address of the next block. Its low 10 bits are dropped.
    pub const fn set_next(&mut self, iova: u64) {
        self.set_next_pointer_63_32((iova >> 32) as u32);
        self.set_next_pointer_31_10(iova as u32 >> 10);
    }

    /// Sets both signatures: the control bytes are those behind the data, up to and with `ctrl_signature`.
    pub fn sign(&mut self) {
        self.set_ctrl_signature(0);
        self.set_signature(0);
        let control = xor(self.words().get(Self::CONTROL_AT..).unwrap_or_default());
        self.set_ctrl_signature((!control).into());
        let sum = xor(self.words());
        self.set_signature((!sum).into());
    }
}

crate::prm_values! {
    /// How the delivery of a command went (constants `MLX5_CMD_DELIVERY_STAT_*`): whether the firmware could read it.
    pub struct DeliveryStatus(u8) {
        /// Delivered; the command's own status counts.
        OK = 0x0;
        /// The signature of the entry or of a mailbox is wrong.
        SIGNAT_ERR = 0x1;
        /// A mailbox's token is not that of the entry.
        TOK_ERR = 0x2;
        /// A mailbox's block number is out of sequence.
        BAD_BLK_NUM_ERR = 0x3;
        /// An output mailbox is not aligned.
        OUT_PTR_ALIGN_ERR = 0x4;
        /// An input mailbox is not aligned.
        IN_PTR_ALIGN_ERR = 0x5;
        /// The firmware failed.
        FW_ERR = 0x6;
        /// The input's length is wrong.
        IN_LENGTH_ERR = 0x7;
        /// The output's length is wrong.
        OUT_LENGTH_ERR = 0x8;
        /// A reserved field is not zero.
        RES_FLD_NOT_CLR_ERR = 0x9;
        /// The entry itself is wrong.
        CMD_DESCR_ERR = 0x10;
    }
}
