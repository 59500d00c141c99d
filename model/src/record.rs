//! The trace of commands.

use std::fmt;

use crate::trace::{Detail, Line};

/// One command that the device took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRecord {
    /// Command slot.
    pub slot: u8,
    /// Opcode.
    pub opcode: u16,
    /// Name of the opcode, as the PRM spells it; `"UNKNOWN"` for one that the model does not have.
    pub name: &'static str,
    /// Operation modifier.
    pub op_mod: u16,
    /// User context that it was issued for; 0 for none.
    pub uid: u16,
    /// Input length in bytes.
    pub in_len: u32,
    /// Output length in bytes.
    pub out_len: u32,
    /// Delivery status; 0 when the command was delivered.
    pub delivery: u8,
    /// Command status; 0 when it succeeded. Without meaning when it was not delivered.
    pub status: u8,
    /// Syndrome of a refused command.
    pub syndrome: u32,
    /// Inputs that matter, and answers once it has succeeded.
    pub details: Vec<Detail>,
    /// Model time in nanoseconds when the device took it.
    pub taken: u64,
    /// Model time in nanoseconds when it completed; `None` while it has not.
    pub done: Option<u64>,
}

impl fmt::Display for CommandRecord {
    /// The line of a [trace](crate::trace), without the time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Line { time: None, ..Line::from(self) }.fmt(f)
    }
}
