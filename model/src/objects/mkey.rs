//! Memory keys.

use std::sync::Arc;

use super::overlap;
use crate::bytes::{be24, be64, bit_at, bits, put_bits, u8_at};

/// How a memory key translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessMode {
    /// Addresses are device addresses.
    Physical,
    /// A list of pages (MTT).
    Pages,
    /// What the model does not do: KLM, KSM, and others; the number of the mode.
    Other(u8),
}

/// A memory key (MKC).
#[derive(Clone, Debug)]
pub(crate) struct Mkey {
    /// The context as the driver gave it, 64 bytes.
    pub(crate) context: Vec<u8>,
    /// `free`: not usable until a UMR gives it a meaning.
    pub(crate) free: bool,
    pub(crate) mode: AccessMode,
    pub(crate) local_write: bool,
    pub(crate) local_read: bool,
    pub(crate) remote_write: bool,
    pub(crate) remote_read: bool,
    pub(crate) atomic: bool,
    /// `en_rinval`: a peer may invalidate it.
    pub(crate) remote_invalidate: bool,
    /// QP that alone may use it; 0xffffff for any.
    pub(crate) qpn: u32,
    /// Low byte of the key (lkey/rkey = index << 8 | variant).
    pub(crate) variant: u8,
    /// `length64`: covers all addresses, `len` is not looked at.
    pub(crate) whole_space: bool,
    pub(crate) pd: u32,
    /// First virtual address.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// Log2 of the page size in bytes.
    pub(crate) page_shift: u32,
    /// Device address of each page; only for [`AccessMode::Pages`]. The low bits (access flags) are cut off.
    pub(crate) pages: Arc<[u64]>,
}

impl Mkey {
    /// Reads a context and the `octwords` of translations behind it, as CREATE_MKEY carries them.
    pub(crate) fn decode(context: &[u8], translations: &[u8]) -> Self {
        let mode = match (bits(context, 3, 3) << 2 | bits(context, 2 * 8 + 6, 2)) as u8 {
            0 => AccessMode::Physical,
            1 => AccessMode::Pages,
            other => AccessMode::Other(other),
        };
        Self {
            context: context.to_vec(),
            free: bit_at(context, 1),
            mode,
            local_write: bit_at(context, 2 * 8 + 4),
            local_read: bit_at(context, 2 * 8 + 5),
            remote_write: bit_at(context, 2 * 8 + 2),
            remote_read: bit_at(context, 2 * 8 + 3),
            atomic: bit_at(context, 2 * 8 + 1),
            remote_invalidate: bit_at(context, 0xc * 8 + 7),
            qpn: be24(context, 0x4),
            variant: u8_at(context, 0x7),
            whole_space: bit_at(context, 0xc * 8),
            pd: be24(context, 0xd),
            start: be64(context, 0x10),
            len: be64(context, 0x18),
            page_shift: bits(context, 0x3b * 8 + 2, 6) as u32,
            pages: translations.chunks_exact(8).map(|pa| be64(pa, 0) & !7).collect(),
        }
    }

    /// Makes the key free: it gives access to nothing from now on.
    pub(crate) fn invalidate(&mut self) {
        self.free = true;
        put_bits(&mut self.context, 1, 1, 1);
    }

    /// Whether the device may access any of `len` bytes at device address `start` through its page list.
    pub(crate) fn overlaps(&self, start: u64, len: u64) -> bool {
        let size = 1_u64.checked_shl(self.page_shift).unwrap_or(u64::MAX);
        self.used_pages().any(|page| overlap(page, size, start, len))
    }

    /// Pages that the range of the key needs; the list may be padded behind them.
    fn used_pages(&self) -> impl Iterator<Item = u64> {
        let size = 1_u64.checked_shl(self.page_shift).unwrap_or(u64::MAX);
        let count = (self.start % size).saturating_add(self.len).div_ceil(size);
        self.pages.iter().copied().take(usize::try_from(count).unwrap_or(usize::MAX))
    }
}
