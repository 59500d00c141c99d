//! Event queues.

use std::collections::BTreeMap;

use super::{Buffer, page_offset};
use crate::bytes::{be24, be64, bits, put_bits};
use crate::pace::EventPace;

/// An event queue (EQC).
#[derive(Clone, Debug)]
pub(crate) struct Eq {
    /// Log2 of entries of 64 bytes.
    pub(crate) log_size: u32,
    /// UAR page whose doorbells work for this queue.
    pub(crate) uar: u32,
    /// MSI-X vector.
    pub(crate) vector: u32,
    pub(crate) buffer: Buffer,
    /// Bit n: reports events of type n.
    pub(crate) event_mask: u64,
    /// Entries written since creation.
    pub(crate) producer: u32,
    /// Last consumer index told, 24 bits.
    pub(crate) consumer: u32,
    /// The next event raises the interrupt.
    pub(crate) armed: bool,
    /// It was overrun, or an entry could not be written: nothing is reported any more.
    pub(crate) broken: bool,
    /// When its completion events and interrupts come.
    pub(crate) pace: EventPace,
    /// Completion queues whose events are on their way, and when each arrives.
    pub(crate) held: BTreeMap<u32, u64>,
    /// When an interrupt that is on its way arrives.
    pub(crate) interrupt_at: Option<u64>,
}

/// `eqc.status` of a queue that could not be written (Linux: `MLX5_EQC_STATUS_EQ_WRITE_FAILURE`).
const WRITE_FAILURE: u64 = 0xa;

impl Eq {
    /// Reads a context and the page list behind it, as CREATE_EQ carries them.
    pub(crate) fn decode(context: &[u8], event_mask: u64, pages: &[u8]) -> Self {
        Self {
            log_size: bits(context, 0xc * 8 + 3, 5) as u32,
            uar: be24(context, 0xd),
            vector: bits(context, 0x16 * 8 + 4, 12) as u32,
            buffer: Buffer {
                pages: pages.chunks_exact(8).map(|pa| be64(pa, 0)).collect(),
                page_shift: 12 + bits(context, 0x18 * 8 + 3, 5) as u32,
                offset: page_offset(bits(context, 0xa * 8 + 4, 6), bits(context, 0x18 * 8 + 3, 5)),
            },
            event_mask,
            producer: 0,
            consumer: 0,
            armed: false,
            broken: false,
            pace: EventPace::default(),
            held: BTreeMap::new(),
            interrupt_at: None,
        }
    }

    /// Entries.
    pub(crate) fn entries(&self) -> u32 {
        1 << self.log_size
    }

    /// Entries written and not yet consumed, as far as told.
    pub(crate) fn pending(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer) & 0xff_ffff
    }

    /// Writes the context as QUERY_EQ returns it.
    pub(crate) fn encode(&self, context: &mut [u8]) {
        put_bits(context, 0, 4, if self.broken { WRITE_FAILURE } else { 0 });
        put_bits(context, 0x2 * 8 + 4, 4, if self.armed { 0x9 } else { 0xa });
        put_bits(context, 0xa * 8 + 4, 6, self.buffer.offset >> (self.buffer.page_shift - 6));
        put_bits(context, 0xc * 8 + 3, 5, self.log_size.into());
        put_bits(context, 0xd * 8, 24, self.uar.into());
        put_bits(context, 0x16 * 8 + 4, 12, self.vector.into());
        put_bits(context, 0x18 * 8 + 3, 5, u64::from(self.buffer.page_shift) - 12);
        put_bits(context, 0x29 * 8, 24, self.consumer.into());
        put_bits(context, 0x2d * 8, 24, u64::from(self.producer) & 0xff_ffff);
    }
}
