//! Entries of completion queues by hand, for tests of what reads them.

use super::cq;
use super::slot::{self, Entry};
use crate::model::Model;

/// An entry of a completion queue as bytes, in the order they have in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqeBytes {
    /// The 64 bytes that describe the completion. What says whose the entry is, is put in by the model: bit 0 of the last byte, and
    /// byte 62 in a queue with enhanced compression.
    pub descriptor: [u8; 64],
    /// The first half of a 128-byte entry. Without it, padding is zeros and an entry that is not padded keeps its old bytes;
    /// in a queue of 64-byte entries it is left out.
    pub first_half: Option<[u8; 64]>,
}

impl From<[u8; 64]> for CqeBytes {
    fn from(descriptor: [u8; 64]) -> Self {
        Self { descriptor, first_half: None }
    }
}

/// Opcodes of error completions: they count as solicited, as does an entry whose bit 1 of the last byte is set.
const REQ_ERR: u8 = 13;
const RESP_ERR: u8 = 14;

fn solicited(descriptor: &[u8; 64]) -> bool {
    let op_own = descriptor[63];
    op_own & 2 != 0 || matches!(op_own >> 4, REQ_ERR | RESP_ERR)
}

impl Model {
    /// Writes an entry into completion queue `cqn` at its producer index, as the device writes its own: with the event that
    /// the queue was armed for, and with an overrun when there is no room. Nothing else about the entry is looked at, so it
    /// may be one that no device writes. False when the queue does not exist, is broken, or overruns now.
    pub fn inject_cqe(&self, cqn: u32, cqe: impl Into<CqeBytes>) -> bool {
        let CqeBytes { descriptor, first_half } = cqe.into();
        let entry = Entry { descriptor, first_half };
        let mut dev = self.lock();
        dev.stir();
        let written = cq::append(&mut dev, cqn, entry, slot::own, solicited(&descriptor));
        self.interrupts_may_have_fired(&dev);
        written
    }
}
