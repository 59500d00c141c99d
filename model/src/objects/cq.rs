//! Completion queues.

use super::{Buffer, page_offset};
use crate::bytes::{be24, be64, bit_at, bits, put_bits, u8_at};

/// A completion queue (CQC).
#[derive(Clone, Debug)]
pub(crate) struct Cq {
    /// The context as the driver gave it, 64 bytes.
    pub(crate) context: Vec<u8>,
    /// Log2 of entries.
    pub(crate) log_size: u32,
    /// Bytes of an entry: 64 or 128.
    pub(crate) entry_size: u32,
    /// `cc`: collapsed, every completion goes to the first entry.
    pub(crate) collapsed: bool,
    /// `oi`: overruns are ignored.
    pub(crate) overrun_ignore: bool,
    /// UAR page whose arm doorbell works for this queue.
    pub(crate) uar: u32,
    /// Event queue of its completion events.
    pub(crate) eqn: u32,
    pub(crate) buffer: Buffer,
    /// Device address of the doorbell record: consumer index, then arm word.
    pub(crate) dbr_addr: u64,
    /// Entries written since creation.
    pub(crate) producer: u32,
    /// Armed, and for what. The arm sequence number is not looked at.
    pub(crate) armed: Option<CqArm>,
    /// 0, or [`OVERFLOW`] or [`WRITE_FAIL`]: then nothing is written any more.
    pub(crate) status: u8,
}

/// `cqc.status` after an overrun.
pub(crate) const OVERFLOW: u8 = 0x9;
/// `cqc.status` after an entry could not be written.
pub(crate) const WRITE_FAIL: u8 = 0xa;

/// How a completion queue was armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CqArm {
    /// Only solicited or error completions raise the event.
    pub(crate) solicited_only: bool,
}

impl Cq {
    /// Reads a context and the page list behind it, as CREATE_CQ carries them. `None` for an unknown entry size.
    pub(crate) fn decode(context: &[u8], pages: &[u8]) -> Option<Self> {
        let entry_size = match bits(context, 8, 3) {
            0 => 64,
            1 => 128,
            _ => return None,
        };
        Some(Self {
            context: context.to_vec(),
            log_size: bits(context, 0xc * 8 + 3, 5) as u32,
            entry_size,
            collapsed: bit_at(context, 8 + 3),
            overrun_ignore: bit_at(context, 8 + 6),
            uar: be24(context, 0xd),
            eqn: u8_at(context, 0x17).into(),
            buffer: Buffer {
                pages: pages.chunks_exact(8).map(|pa| be64(pa, 0)).collect(),
                page_shift: 12 + bits(context, 0x18 * 8 + 3, 5) as u32,
                offset: page_offset(bits(context, 0xa * 8 + 4, 6), bits(context, 0x18 * 8 + 3, 5)),
            },
            dbr_addr: be64(context, 0x38),
            producer: 0,
            armed: None,
            status: 0,
        })
    }

    /// Entries.
    pub(crate) fn entries(&self) -> u32 {
        1 << self.log_size
    }

    /// The context as QUERY_CQ returns it; `consumer` as the doorbell record says.
    pub(crate) fn encode(&self, consumer: u32) -> Vec<u8> {
        let mut context = self.context.clone();
        put_bits(&mut context, 0, 4, self.status.into());
        let state = match self.armed {
            Some(CqArm { solicited_only: true }) => 0x6,
            Some(CqArm { solicited_only: false }) => 0x9,
            None => 0xa,
        };
        put_bits(&mut context, 0x2 * 8 + 4, 4, state);
        put_bits(&mut context, 0x29 * 8, 24, u64::from(consumer) & 0xff_ffff);
        put_bits(&mut context, 0x2d * 8, 24, u64::from(self.producer) & 0xff_ffff);
        context
    }
}
