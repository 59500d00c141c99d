//! Where a CQ's ring and doorbell record lie: in one region of the platform's, or where a parent domain's allocator says.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use mlx5_hw::dbrec;

use crate::device::DeviceInner;
use crate::dma::DmaRegion;
use crate::dv::ResourceType;
use crate::error::Error;
use crate::pages_of::{self, PageList};
use crate::parent_domain::ParentDomain;

/// What allocators are asked for: whole pages of the smallest size that a context can say.
const PAGE: usize = 1 << pages_of::LOG_4K;

/// Memory of a CQ.
pub(super) struct CqMemory {
    ring: DmaRegion,
    /// The doorbell record; without a region of its own it lies behind the ring.
    record: Option<DmaRegion>,
    ring_bytes: usize,
}

impl CqMemory {
    /// For a ring of `ring_bytes` bytes. The record is zeroed; the ring is yet to be initialised.
    pub(super) fn alloc(
        dev: &Arc<DeviceInner>,
        ring_bytes: usize,
        domain: Option<&ParentDomain>,
    ) -> Result<Self, Error> {
        let own = |size, align, resource| match domain.and_then(ParentDomain::allocator) {
            Some(allocator) => dev.port().alloc_from(allocator, size, align, resource),
            None => Ok(None),
        };
        let ring = own(ring_bytes.next_multiple_of(PAGE), PAGE, ResourceType::CQ)?;
        let record = own(dbrec::BYTES, dbrec::BYTES, ResourceType::DBR)?;
        let (ring, record) = match (ring, record) {
            (None, None) => (dev.alloc_dma(ring_bytes, dbrec::BYTES)?, None),
            (None, record) => (dev.alloc_dma(ring_bytes, 0)?, record),
            (Some(ring), None) => (ring, Some(dev.alloc_dma(dbrec::BYTES, 0)?)),
            (Some(ring), record) => (ring, record),
        };
        let mem = Self { ring, record, ring_bytes };
        mem.record().iter().take(dbrec::BYTES / 4).for_each(|word| word.store(0, Ordering::Relaxed));
        Ok(mem)
    }

    /// The ring's memory; more may lie behind it.
    pub(super) fn words(&self) -> &[AtomicU32] {
        self.ring.words()
    }

    /// The doorbell record; more may lie behind it.
    pub(super) fn record(&self) -> &[AtomicU32] {
        match &self.record {
            Some(record) => record.words(),
            None => self.ring.words().get(self.ring_bytes / 4..).unwrap_or_default(),
        }
    }

    /// Where the device finds the record.
    pub(super) fn record_iova(&self) -> u64 {
        match &self.record {
            Some(record) => record.iova(),
            None => self.ring.iova().wrapping_add(self.ring_bytes as u64),
        }
    }

    /// The pages in which the device finds the ring.
    pub(super) fn pages(&self) -> PageList {
        pages_of::list(self.ring.iova(), self.ring_bytes)
    }

    /// From now on the device may write to it.
    pub(super) fn lend(&mut self) {
        self.ring.lend("completion queue");
        if let Some(record) = &mut self.record {
            record.lend("doorbell record of a completion queue");
        }
    }

    /// The device is done with it.
    pub(super) fn reclaim(&mut self) {
        self.ring.reclaim();
        if let Some(record) = &mut self.record {
            record.reclaim();
        }
    }
}
