//! Shared receive queues: receive memory pools (RMP) with a linked list of work requests.

use std::collections::VecDeque;

use super::{Buffer, page_offset};
use crate::bytes::{be16, be24, be64, bit_at, bits, put_bits};

/// `rmpc.state`: ready, and after the list has led astray.
pub(crate) const READY: u64 = 1;
const ERROR: u64 = 3;

/// A shared receive queue (RMPC).
#[derive(Clone, Debug)]
pub(crate) struct Rmp {
    /// The context as the driver gave it, 0xf0 bytes.
    context: Vec<u8>,
    pub(crate) pd: u32,
    /// Log2 of entries.
    pub(crate) log_size: u32,
    /// Log2 of the bytes of an entry: a next segment, then the list.
    pub(crate) log_stride: u32,
    pub(crate) buffer: Buffer,
    /// Device address of the doorbell record: the receive counter.
    pub(crate) dbr_addr: u64,
    pub(crate) wq_signature: bool,
    /// Armed: an event is raised when fewer work requests than this are left. 0: not armed.
    pub(crate) limit: u16,
    /// The list has led astray: nothing is taken any more.
    pub(crate) broken: bool,
    /// Receive counter as last read.
    pub(crate) producer: u16,
    /// Work requests that are posted and not taken, oldest first, by their index.
    pub(crate) waiting: VecDeque<u16>,
    /// Index of the next work request to be posted: where the last one's link leads.
    pub(crate) next: u16,
}

impl Rmp {
    /// Reads a context and the page list behind it, as CREATE_RMP carries them. The work queue's part starts at byte 0x30.
    pub(crate) fn decode(context: &[u8], pages: &[u8]) -> Self {
        let c = context;
        let log_page_size = bits(c, 0x52 * 8 + 3, 5);
        Self {
            context: c.to_vec(),
            pd: be24(c, 0x39),
            log_size: bits(c, 0x53 * 8 + 3, 5) as u32,
            log_stride: bits(c, 0x51 * 8 + 4, 4) as u32,
            buffer: Buffer {
                pages: pages.chunks_exact(8).map(|pa| be64(pa, 0)).collect(),
                page_shift: 12 + log_page_size as u32,
                offset: page_offset(bits(c, 0x35 * 8 + 3, 5), log_page_size),
            },
            dbr_addr: be64(c, 0x40),
            wq_signature: bit_at(c, 0x30 * 8 + 4),
            limit: be16(c, 0x36),
            broken: false,
            producer: 0,
            waiting: VecDeque::new(),
            next: 0,
        }
    }

    /// `rmpc.state` of a context.
    pub(crate) fn state(context: &[u8]) -> u64 {
        bits(context, 8, 4)
    }

    /// `wq_type`: 0 is a linked list.
    pub(crate) fn wq_type(&self) -> u64 {
        bits(&self.context, 0x30 * 8, 4)
    }

    /// Entries.
    pub(crate) fn entries(&self) -> u32 {
        1 << self.log_size
    }

    /// Bytes of the queue.
    pub(crate) fn bytes(&self) -> u64 {
        1 << (self.log_size + self.log_stride)
    }

    /// Offset of an entry in the buffer.
    pub(crate) fn at(&self, index: u16) -> u64 {
        u64::from(index) << self.log_stride
    }

    /// The context as QUERY_RMP returns it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut context = self.context.clone();
        put_bits(&mut context, 8, 4, if self.broken { ERROR } else { READY });
        put_bits(&mut context, 0x36 * 8, 16, self.limit.into());
        let taken = self.producer.wrapping_sub(self.waiting.len() as u16);
        put_bits(&mut context, 0x48 * 8, 32, taken.into());
        put_bits(&mut context, 0x4c * 8, 32, self.producer.into());
        context
    }
}
