//! Firmware commands: one type a command, one file an object.
//!
//! A command knows its opcode, the lengths of its input and output, how to write the one and read the other. It knows
//! nothing of slots, mailboxes or waiting: that is the command queue's affair, in the crate `mlx5`.

use crate::be::Be32;
use crate::prm::Layout;

/// Declares the input of a command: like [`prm!`](crate::prm!), with the fields that every input has.
macro_rules! inbox {
    ($(#[$meta:meta])* pub struct $name:ident($prm:literal, $bytes:literal) { $($fields:tt)* }) => {
        $crate::prm! {
            $(#[$meta])*
            pub struct $name($prm, $bytes) {
                /// Which command: [`Opcode`](crate::cmd::Opcode).
                opcode: 0x00, 16;
                /// Modifier of the opcode; 0 where the command has none.
                op_mod: 0x30, 16;
                $($fields)*
            }
        }
    };
}
pub(crate) use inbox;

/// Declares the output of a command: like [`prm!`](crate::prm!), with the fields that every output has.
macro_rules! outbox {
    ($(#[$meta:meta])* pub struct $name:ident($prm:literal, $bytes:literal) { $($fields:tt)* }) => {
        $crate::prm! {
            $(#[$meta])*
            pub struct $name($prm, $bytes) {
                /// How it ended: [`Status`](crate::cmd::Status).
                status: 0x00, 8;
                /// The firmware's own number for the reason of a failure.
                syndrome: 0x20, 32;
                $($fields)*
            }
        }
    };
}
pub(crate) use outbox;

mod caps;
mod cq;
mod eq;
mod hca;
mod hca_vport;
mod mkey;
mod opcode;
mod pages;
mod pd;
mod qp;
mod register;
mod rmp;
mod roce;
mod status;
mod uar;
mod vport;

pub use caps::*;
pub use cq::*;
pub use eq::*;
pub use hca::*;
pub use hca_vport::*;
pub use mkey::*;
pub use opcode::*;
pub use pages::*;
pub use pd::*;
pub use qp::*;
pub use register::*;
pub use rmp::*;
pub use roce::*;
pub use status::*;
pub use uar::*;
pub use vport::*;

pub use crate::cmd_entry::DeliveryStatus;

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

    /// Status and syndrome, the head of every output.
    pub fn status(&self) -> (Status, u32) {
        let head = self.layout::<MboxOut>(0);
        (Status(head.status() as u8), head.syndrome())
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

/// A command whose input is one structure, with perhaps a list of 64-bit numbers behind it, and whose output is one
/// structure. It is a [`Command`].
pub trait Plain {
    /// Its opcode.
    const CODE: Opcode;
    /// The structure of its input.
    type In: Layout;
    /// The structure of its output.
    type Reply: Layout;
    /// What a successful output says.
    type Value;
    /// The list is padded with zeros to a multiple of this many bytes.
    const LIST_ALIGN: usize = 8;

    /// Fills in the input; the opcode is set already.
    fn fill(&self, input: &mut Self::In);

    /// The list behind the input.
    fn list(&self) -> &[u64] {
        &[]
    }

    /// Reads a successful output.
    fn read(&self, out: &Self::Reply) -> Self::Value;
}

impl<C: Plain> Command for C {
    const OPCODE: Opcode = C::CODE;
    type Out = C::Value;

    fn in_len(&self) -> usize {
        C::In::BYTES + (8 * self.list().len()).next_multiple_of(C::LIST_ALIGN)
    }

    fn out_len(&self) -> usize {
        C::Reply::BYTES
    }

    fn encode(&self, inbox: &mut dyn Sink) {
        let mut input = C::In::ZERO;
        set_opcode(&mut input, C::CODE);
        self.fill(&mut input);
        inbox.layout(0, &input);
        inbox.list64(C::In::BYTES, self.list().iter().copied());
    }

    fn decode(&self, outbox: &dyn Source) -> C::Value {
        self.read(&outbox.layout(0))
    }
}

inbox! {
    /// Head of every input (PRM `mbox_in`).
    pub struct MboxIn("mbox_in", 16) {
        /// User context; 0 for the kernel's. Not all commands have it.
        uid: 0x10, 16;
    }
}

outbox! {
    /// Head of every output (PRM `mbox_out`).
    pub struct MboxOut("mbox_out", 16) {}
}

/// Writes the opcode, which has the same place in every input.
fn set_opcode<L: Layout>(input: &mut L, opcode: Opcode) {
    if let Some(word) = input.words_mut().first_mut() {
        *word = MboxIn::OPCODE.put(*word, opcode.0.into());
    }
}
