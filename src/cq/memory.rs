//! Where a CQ's ring and doorbell record lie: in memory of the platform's, or where a parent domain's allocator says.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use mlx5_hw::dbrec;

use crate::device::DeviceInner;
use crate::dma::DmaRegion;
use crate::dv::ResourceType;
use crate::error::Error;
use crate::pages_of::{self, PageList};
use crate::parent_domain::QueueAllocator;

/// What allocators are asked for: whole pages of the smallest size that a context can say.
const PAGE: usize = 1 << pages_of::LOG_4K;

/// A caller's allocator, if there is one.
pub(super) type Allocator<'a> = Option<&'a Arc<dyn QueueAllocator>>;

/// Memory from the caller's allocator, or else from the platform.
fn alloc(
    dev: &Arc<DeviceInner>,
    allocator: Allocator<'_>,
    (bytes, size, align): (usize, usize, usize),
    resource: ResourceType,
) -> Result<DmaRegion, Error> {
    let own = match allocator {
        Some(allocator) => dev.port().alloc_from(allocator, size, align, resource)?,
        None => None,
    };
    own.map_or_else(|| dev.alloc_dma(bytes, 0), Ok)
}

/// Memory of a CQ's ring. A resize brings another one.
pub(super) struct RingMemory {
    region: DmaRegion,
    bytes: usize,
}

impl RingMemory {
    /// For a ring of `bytes` bytes, which is yet to be initialised.
    pub(super) fn alloc(dev: &Arc<DeviceInner>, bytes: usize, allocator: Allocator<'_>) -> Result<Self, Error> {
        let size = (bytes, bytes.next_multiple_of(PAGE), PAGE);
        Ok(Self { region: alloc(dev, allocator, size, ResourceType::CQ)?, bytes })
    }

    /// A ring of `bytes` bytes in memory that somebody else has made and initialised.
    pub(super) const fn within(region: DmaRegion, bytes: usize) -> Self {
        Self { region, bytes }
    }

    /// The memory; more may lie behind the ring.
    #[inline]
    pub(super) fn words(&self) -> &[AtomicU32] {
        self.region.words()
    }

    /// The pages in which the device finds the ring.
    pub(super) fn pages(&self) -> PageList {
        pages_of::list(self.region.iova(), self.bytes)
    }

    /// From now on the device may write to it.
    pub(super) fn lend(&mut self) {
        self.region.lend("completion queue");
    }

    /// The device is done with it.
    pub(super) fn reclaim(&mut self) {
        self.region.reclaim();
    }
}

/// Memory of a CQ's doorbell record, which is the CQ's for life.
pub(super) struct RecordMemory(DmaRegion);

impl RecordMemory {
    /// A record of zeros.
    pub(super) fn alloc(dev: &Arc<DeviceInner>, allocator: Allocator<'_>) -> Result<Self, Error> {
        let size = (dbrec::BYTES, dbrec::BYTES, dbrec::BYTES);
        let region = alloc(dev, allocator, size, ResourceType::DBR)?;
        region.words().iter().take(dbrec::BYTES / 4).for_each(|word| word.store(0, Ordering::Relaxed));
        Ok(Self(region))
    }

    /// A record in memory that somebody else has made.
    pub(super) const fn within(region: DmaRegion) -> Self {
        Self(region)
    }

    /// The record; more may lie behind it.
    #[inline]
    pub(super) fn words(&self) -> &[AtomicU32] {
        self.0.words()
    }

    /// Where the device finds it.
    pub(super) fn iova(&self) -> u64 {
        self.0.iova()
    }

    /// From now on the device may read it.
    pub(super) fn lend(&mut self) {
        self.0.lend("doorbell record of a completion queue");
    }

    /// The device is done with it.
    pub(super) fn reclaim(&mut self) {
        self.0.reclaim();
    }
}
