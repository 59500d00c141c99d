//! What the driver has created: one table an object, with the contexts decoded.

mod cq;
mod eq;
mod mkey;
mod qp;
mod rmp;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use cq::{Cq, CqArm, EntryForm, MiniFormat, Moderation, OVERFLOW, WRITE_FAIL};
pub(crate) use eq::Eq;
pub(crate) use mkey::{AccessMode, Mkey};
pub(crate) use qp::{Qp, QpState, ScatterToCqe, Service, TS_REAL_TIME};
pub(crate) use rmp::{READY, Rmp};

/// First number that firmware gives to a UAR, a completion queue and so on: what it keeps for itself lies below.
const FIRST_UAR: u32 = 8;
const FIRST_EQ: u32 = 1;
const FIRST_CQ: u32 = 0x100;
const FIRST_QP: u32 = 0x40;
const FIRST_RMP: u32 = 0x20;
const FIRST_MKEY: u32 = 0x10;
const FIRST_PD: u32 = 1;

/// Memory that a queue lies in, as a list of pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Buffer {
    /// Device address of each page.
    pub(crate) pages: Arc<[u64]>,
    /// Log2 of the page size in bytes.
    pub(crate) page_shift: u32,
    /// Bytes from the start of the first page to the start of the queue.
    pub(crate) offset: u64,
}

impl Buffer {
    /// Device address of byte `at` of the queue, and how many bytes lie together from there on.
    pub(crate) fn at(&self, at: u64) -> Option<(u64, u64)> {
        let at = at + self.offset;
        let size = 1_u64 << self.page_shift;
        let page = self.pages.get(usize::try_from(at / size).ok()?)?;
        Some((page.wrapping_add(at % size), size - at % size))
    }

    /// Whether any byte of `len` from device address `start` on belongs to it.
    pub(crate) fn overlaps(&self, start: u64, len: u64) -> bool {
        self.pages.iter().any(|page| overlap(*page, 1 << self.page_shift, start, len))
    }
}

/// Bytes that a context's `page_offset` stands for: 64ths of a page of 2^(12 + `log_page_size`) bytes.
fn page_offset(field: u64, log_page_size: u64) -> u64 {
    field << (6 + log_page_size)
}

/// Whether two ranges share a byte.
pub(crate) fn overlap(a: u64, a_len: u64, b: u64, b_len: u64) -> bool {
    a < b.saturating_add(b_len) && b < a.saturating_add(a_len)
}

/// All objects of the function.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) uars: BTreeSet<u32>,
    pub(crate) pds: BTreeSet<u32>,
    pub(crate) transport_domains: BTreeSet<u32>,
    pub(crate) eqs: BTreeMap<u32, Eq>,
    pub(crate) cqs: BTreeMap<u32, Cq>,
    /// By mkey index, without the variant byte.
    pub(crate) mkeys: BTreeMap<u32, Mkey>,
    pub(crate) qps: BTreeMap<u32, Qp>,
    pub(crate) rmps: BTreeMap<u32, Rmp>,
}

/// The lowest number from `first` on, below `first + count`, that is not taken: numbers are reused at once, so that a
/// driver which keeps a stale one is found out.
fn lowest_free(first: u32, count: u32, taken: impl Fn(&u32) -> bool) -> Option<u32> {
    (first..first.saturating_add(count)).find(|number| !taken(number))
}

impl Objects {
    pub(crate) fn free_uar(&self, pages: u32) -> Option<u32> {
        lowest_free(FIRST_UAR, pages.saturating_sub(FIRST_UAR), |n| self.uars.contains(n))
    }

    pub(crate) fn free_pd(&self, count: u32) -> Option<u32> {
        lowest_free(FIRST_PD, count, |n| self.pds.contains(n))
    }

    pub(crate) fn free_transport_domain(&self, count: u32) -> Option<u32> {
        lowest_free(FIRST_PD, count, |n| self.transport_domains.contains(n))
    }

    pub(crate) fn free_eq(&self, count: u32) -> Option<u32> {
        lowest_free(FIRST_EQ, count.min(255), |n| self.eqs.contains_key(n))
    }

    pub(crate) fn free_cq(&self, count: u32) -> Option<u32> {
        lowest_free(FIRST_CQ, count, |n| self.cqs.contains_key(n))
    }

    pub(crate) fn free_mkey(&self, count: u32) -> Option<u32> {
        lowest_free(FIRST_MKEY, count, |n| self.mkeys.contains_key(n))
    }

    pub(crate) fn free_qp(&self, count: u32) -> Option<u32> {
        lowest_free(FIRST_QP, count, |n| self.qps.contains_key(n))
    }

    pub(crate) fn free_rmp(&self, count: u32) -> Option<u32> {
        lowest_free(FIRST_RMP, count, |n| self.rmps.contains_key(n))
    }

    /// How many of each kind are alive.
    fn counts(&self) -> [(&'static str, usize); 8] {
        [
            ("UAR", self.uars.len()),
            ("PD", self.pds.len()),
            ("transport domain", self.transport_domains.len()),
            ("EQ", self.eqs.len()),
            ("CQ", self.cqs.len()),
            ("mkey", self.mkeys.len()),
            ("QP", self.qps.len()),
            ("RMP", self.rmps.len()),
        ]
    }

    /// How many are alive.
    pub(crate) fn count(&self) -> usize {
        self.counts().iter().map(|(_, n)| n).sum()
    }

    /// What is alive, in words; `None` when nothing is.
    pub(crate) fn alive(&self) -> Option<String> {
        let counts = self.counts();
        let words: Vec<String> = counts.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{n} {name}")).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// The object that the device may access at any of `len` bytes from `start` on, in words.
    pub(crate) fn owner_of(&self, start: u64, len: u64) -> Option<String> {
        let eq = self.eqs.iter().find(|(_, eq)| eq.buffer.overlaps(start, len));
        if let Some((n, _)) = eq {
            return Some(format!("EQ {n:#x}"));
        }
        let in_record = |record: u64| overlap(record, 8, start, len);
        let cq = self.cqs.iter().find(|(_, cq)| cq.buffer.overlaps(start, len) || in_record(cq.dbr_addr));
        if let Some((n, _)) = cq {
            return Some(format!("CQ {n:#x}"));
        }
        let qp = self.qps.iter().find(|(_, qp)| qp.buffer.overlaps(start, len) || in_record(qp.dbr_addr));
        if let Some((n, _)) = qp {
            return Some(format!("QP {n:#x}"));
        }
        let rmp = self.rmps.iter().find(|(_, rmp)| rmp.buffer.overlaps(start, len) || in_record(rmp.dbr_addr));
        if let Some((n, _)) = rmp {
            return Some(format!("RMP {n:#x}"));
        }
        let mkey = self.mkeys.iter().find(|(_, mkey)| mkey.overlaps(start, len));
        mkey.map(|(n, _)| format!("mkey {n:#x}"))
    }
}
