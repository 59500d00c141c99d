//! Completion queues.

use std::sync::Arc;

use super::{Buffer, page_offset};
use crate::bytes::{be24, be64, bit_at, bits, put_bits, u8_at};

/// A completion queue (CQC).
#[derive(Clone, Debug)]
pub(crate) struct Cq {
    /// The context as the driver gave it, 64 bytes.
    pub(crate) context: Arc<[u8]>,
    /// Log2 of entries.
    pub(crate) log_size: u32,
    /// Bytes of an entry: 64 or 128.
    pub(crate) entry_size: u32,
    /// `cqe_sz` 2: the first half of each entry is padding.
    pub(crate) padded: bool,
    /// `cqe_comp_en`, and how.
    pub(crate) compression: Option<Compression>,
    /// `cq_timestamp_format` 2: its entries are stamped with the time of day.
    pub(crate) real_time: bool,
    /// `cc`: collapsed, every completion goes to the first entry.
    pub(crate) collapsed: bool,
    /// `oi`: overruns are ignored.
    pub(crate) overrun_ignore: bool,
    pub(crate) moderation: Moderation,
    /// UAR page whose arm doorbell works for this queue.
    pub(crate) uar: u32,
    /// Event queue of its completion events.
    pub(crate) eqn: u32,
    pub(crate) buffer: Buffer,
    /// Device address of the doorbell record: consumer index, then arm word.
    pub(crate) dbr_addr: u64,
    /// Entries written since creation.
    pub(crate) producer: u32,
    /// Armed, and for what.
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

/// When a queue that is armed raises its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moderation {
    /// `cq_period`, in microseconds.
    pub(crate) period_us: u64,
    /// `cq_max_count`: entries since the last event.
    pub(crate) max_count: u64,
    /// `cq_period_mode`: 0 the period starts with each event, 1 with each entry.
    pub(crate) mode: u64,
    /// `scqe_break_moderation_en`: a solicited entry raises the event at once.
    pub(crate) solicited_breaks: bool,
}

impl Moderation {
    fn decode(context: &[u8]) -> Self {
        Self {
            period_us: bits(context, 0x10 * 8 + 4, 12),
            max_count: bits(context, 0x12 * 8, 16),
            mode: bits(context, 8 + 7, 2),
            solicited_breaks: bit_at(context, 8 + 5),
        }
    }

    /// Events are held back. A period of 0 or a count of 0 stands for no moderation.
    pub(crate) fn holds(&self) -> bool {
        self.period_us != 0 && self.max_count != 0
    }

    /// The period starts with each entry, not with each event.
    pub(crate) fn counts_from_entries(&self) -> bool {
        self.mode == 1
    }
}

/// How the sessions of a compressed queue look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compression {
    /// `cqe_comp_layout` 1: blocks of up to seven minis behind a whole entry. Otherwise a title and arrays of eight.
    pub(crate) enhanced: bool,
    pub(crate) minis: MiniFormat,
}

/// What the first dword of a receive completion's mini holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MiniFormat {
    Hash,
    Csum,
    FtagStridx,
    CsumStridx,
    L34hStridx,
}

impl MiniFormat {
    /// By `mini_cqe_res_format` and `mini_cqe_res_format_ext`.
    pub(crate) fn of(format: u64, ext: u64) -> Option<Self> {
        match (ext, format) {
            (0, 0) => Some(Self::Hash),
            (0, 1) => Some(Self::Csum),
            (0, 2) => Some(Self::FtagStridx),
            (0, 3) => Some(Self::CsumStridx),
            (1, 0) => Some(Self::L34hStridx),
            _ => None,
        }
    }
}

/// What a context says about the form of its entries, as numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryForm {
    /// `cqe_sz`: 0 64 bytes, 1 128 bytes, 2 128 bytes padded.
    pub(crate) size: u64,
    /// `cqe_comp_en`.
    pub(crate) compressed: bool,
    /// `mini_cqe_res_format`, `mini_cqe_res_format_ext`.
    pub(crate) minis: (u64, u64),
    /// `cqe_comp_layout`: 0 basic, 1 enhanced.
    pub(crate) layout: u64,
    /// `cq_timestamp_format`: 0 free running, 1 the default, 2 real time.
    pub(crate) timestamp: u64,
}

impl EntryForm {
    pub(crate) fn decode(context: &[u8]) -> Self {
        Self {
            size: bits(context, 0x8, 3),
            compressed: bit_at(context, 0x11),
            minis: (bits(context, 0x12, 2), bits(context, 0x5c, 2)),
            layout: bits(context, 0x1e, 2),
            timestamp: bits(context, 0x5e, 2),
        }
    }

    /// How it is compressed; `None` when it is not, or in a way that does not exist.
    fn compression(&self) -> Option<Compression> {
        let minis = MiniFormat::of(self.minis.0, self.minis.1).filter(|_| self.compressed)?;
        Some(Compression { enhanced: self.layout == 1, minis })
    }
}

impl Cq {
    /// Reads a context whose [`EntryForm`] is in order, and the page list behind it, as CREATE_CQ carries them.
    pub(crate) fn decode(context: &[u8], pages: &[u8]) -> Self {
        let form = EntryForm::decode(context);
        Self {
            context: context.into(),
            log_size: bits(context, 0xc * 8 + 3, 5) as u32,
            entry_size: if form.size == 0 { 64 } else { 128 },
            padded: form.size == 2,
            compression: form.compression(),
            real_time: form.timestamp == 2,
            collapsed: bit_at(context, 8 + 3),
            overrun_ignore: bit_at(context, 8 + 6),
            moderation: Moderation::decode(context),
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
        }
    }

    /// The queue with another context and another ring; what goes on in it goes on.
    pub(crate) fn changed(&self, context: &[u8], pages: &[u8]) -> Self {
        Self { producer: self.producer, armed: self.armed, status: self.status, ..Self::decode(context, pages) }
    }

    /// Entries are owned by byte 62, a count of laps, instead of by the owner bit.
    pub(crate) fn counts_laps(&self) -> bool {
        self.compression.is_some_and(|compression| compression.enhanced)
    }

    /// Entries.
    pub(crate) fn entries(&self) -> u32 {
        1 << self.log_size
    }

    /// The context as QUERY_CQ returns it; `consumer` as the doorbell record says.
    pub(crate) fn encode(&self, consumer: u32) -> Vec<u8> {
        let mut context = self.context.to_vec();
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
