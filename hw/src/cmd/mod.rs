//! Firmware commands: one type a command, one file an object.
//!
//! A command knows its opcode, the lengths of its input and output, how to write the one and read the other. It knows
//! nothing of slots, mailboxes or waiting: that is the command queue's affair, in the crate `mlx5`.

use crate::be::Be32;
use crate::prm::Layout;

/// Where a command's input is written: the entry's inline bytes and the mailboxes behind them, zeroed beforehand.
pub trait Sink {
    /// Writes dwords at byte offset `at`, a multiple of four, of the input. What lies beyond the input is dropped.
    fn put(&mut self, at: usize, words: &[Be32]);
}

/// Where a command's output is read from.
pub trait Source {
    /// Reads dwords from byte offset `at`, a multiple of four, of the output. What lies beyond the output reads as zero.
    fn get(&self, at: usize, words: &mut [Be32]);
}

impl dyn Sink + '_ {
    /// Writes a declared structure at byte offset `at`.
    pub fn layout<L: Layout>(&mut self, at: usize, value: &L) {
        self.put(at, value.words());
    }

    /// Writes 64-bit numbers, such as page addresses, from byte offset `at` on.
    pub fn list64(&mut self, at: usize, values: impl IntoIterator<Item = u64>) {
        for (i, v) in values.into_iter().enumerate() {
            self.put(at + 8 * i, &[Be32::new((v >> 32) as u32), Be32::new(v as u32)]);
        }
    }
}

impl dyn Source + '_ {
    /// Reads a declared structure from byte offset `at`.
    pub fn layout<L: Layout>(&self, at: usize) -> L {
        let mut value = L::ZERO;
        self.get(at, value.words_mut());
        value
    }

    /// Reads the 64-bit number at byte offset `at`.
    pub fn u64(&self, at: usize) -> u64 {
        let mut w = [Be32::ZERO; 2];
        self.get(at, &mut w);
        (u64::from(w[0].get()) << 32) | u64::from(w[1].get())
    }
}

/// A firmware command.
pub trait Command {
    /// Its opcode.
    const OPCODE: Opcode;
    /// What a successful output says.
    type Out;

    /// Length of the input in bytes, a multiple of four, at least 8.
    fn in_len(&self) -> usize;
    /// Length of the output in bytes, a multiple of four, at least 8.
    fn out_len(&self) -> usize;
    /// Writes the input, opcode included.
    fn encode(&self, inbox: &mut dyn Sink);
    /// Reads the output of a command that ended with status OK. Every number in it comes from the device: the caller checks it.
    fn decode(&self, outbox: &dyn Source) -> Self::Out;
}

crate::prm_values! {
    /// Opcode of a command (PRM `opcode`; constants `MLX5_CMD_OP_*`).
    pub struct Opcode(u16) {
        /// Reads a page of capabilities.
        QUERY_HCA_CAP = 0x100;
    }
}
