//! Entries of completion queues by hand, for tests of what reads them.

use super::session::{self, BLOCK};
use super::slot::{self, Entry};
use super::{cq, gather};
use crate::device::Device;
use crate::dma::DmaFault;
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
        self.write_by_hand(|dev| cq::append(dev, cqn, entry, solicited(&descriptor)))
    }

    /// Writes completions into the compressed queue `cqn` as minis, as the device writes its own: `minis.len()` of them, of any
    /// bytes.
    ///
    /// In the basic layout `title` is the first completion, which has the first mini too; its byte count and format are put in
    /// by the model, the rest is as for [`inject_cqe`](Self::inject_cqe). There are two minis at least. In the enhanced layout a
    /// title is a completion of its own before the minis, as by `inject_cqe`; without one the minis follow the last title.
    ///
    /// False, and nothing is written, when this cannot be: no such queue, not a compressed one, no title or one mini in the basic
    /// layout, more completions than the queue has entries. False as well when the queue is broken or overruns now.
    pub fn inject_session(&self, cqn: u32, title: Option<[u8; 64]>, minis: &[[u8; 8]]) -> bool {
        self.write_by_hand(|dev| session(dev, cqn, title, minis))
    }

    /// Where the device finds the ring of completion queue `cqn` now: the I/O address of slot 0. For tests that change entries
    /// which the device has written.
    pub fn cq_ring(&self, cqn: u32) -> Option<u64> {
        self.lock().objects.cqs.get(&cqn)?.buffer.at(0).map(|(iova, _)| iova)
    }

    fn write_by_hand(&self, write: impl FnOnce(&mut Device) -> bool) -> bool {
        let mut dev = self.lock();
        dev.stir();
        gather::settle(&mut dev);
        let written = write(&mut dev);
        self.interrupts_may_have_fired(&dev);
        written
    }
}

fn session(dev: &mut Device, cqn: u32, title: Option<[u8; 64]>, minis: &[[u8; 8]]) -> bool {
    let Some(cq) = dev.objects.cqs.get(&cqn) else { return false };
    let Some(compression) = cq.compression else { return false };
    let count = minis.len() + usize::from(compression.enhanced && title.is_some());
    let possible = compression.enhanced || title.is_some() && minis.len() > 1;
    if !possible || count > cq.entries() as usize {
        return false;
    }
    let Some(cq) = cq::admit(dev, cqn, count as u32) else { return false };
    let bits = title.as_ref().is_some_and(solicited);
    match title {
        Some(title) if !compression.enhanced => {
            let written = session::put_basic(dev, &cq, title.into(), minis, slot::own);
            cq::conclude(dev, cqn, written, count as u32, bits)
        }
        _ => {
            let whole = title.is_none_or(|title| cq::append(dev, cqn, title.into(), bits));
            whole && minis.chunks(BLOCK).all(|block| put_block(dev, cqn, block, bits))
        }
    }
}

fn put_block(dev: &mut Device, cqn: u32, minis: &[[u8; 8]], solicited: bool) -> bool {
    let written = match dev.objects.cqs.get(&cqn).cloned() {
        Some(cq) => session::put_block(dev, &cq, minis),
        None => Err(DmaFault::Blocked),
    };
    cq::conclude(dev, cqn, written, minis.len() as u32, solicited)
}
