//! Creating a shared receive queue.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32};

use mlx5_hw::cmd::CreateRmp;
use mlx5_hw::dbrec;
use mlx5_hw::rmpc::{RmpState, Rmpc, Wq, WqType};
use mlx5_hw::wqe::SEGMENT;

use super::post::Poster;
use super::{Shared, Srq, SrqAttr, SrqInitAttr, SrqWork};
use crate::dma::DmaRegion;
use crate::error::Error;
use crate::events::Kind;
use crate::limits::Limits;
use crate::pages_of;
use crate::pd::Pd;

const fn invalid<T>(what: &'static str) -> Result<T, Error> {
    Err(Error::Invalid { what })
}

/// How large the queue is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// Bytes of an entry, a power of two.
    pub(super) stride: usize,
    /// Entries, a power of two. One of them is always free: the end of the list.
    pub(super) entries: u32,
}

impl Geometry {
    /// Rounds sizes up and checks them, as libmlx5 and Linux do.
    fn of(attr: &SrqAttr, limits: &Limits) -> Result<Self, Error> {
        if attr.max_wr == 0 {
            return invalid("max_wr is 0");
        }
        if attr.max_wr >= 1 << limits.log_max_srq_sz {
            return invalid("max_wr is more than the device's");
        }
        // A next segment, and a piece at least.
        let stride = ((u64::from(attr.max_sge.max(1)) + 1) * SEGMENT as u64).next_power_of_two();
        if stride > u64::from(limits.max_wqe_sz_rq) {
            return invalid("max_sge is more than the device's");
        }
        Ok(Self { stride: stride as usize, entries: (attr.max_wr + 1).next_power_of_two() })
    }

    /// What is promised to the caller.
    fn attr(&self) -> SrqAttr {
        SrqAttr { max_wr: self.entries - 1, max_sge: (self.stride / SEGMENT) as u32 - 1, srq_limit: 0 }
    }

    pub(super) fn bytes(&self) -> usize {
        self.stride * self.entries as usize
    }
}

impl Pd {
    /// Creates a shared receive queue (`ibv_create_srq(3)`). `attr.attr` becomes what was given: at least what was asked for.
    ///
    /// # Errors
    /// `Unsupported` (EOPNOTSUPP) on a device without, and on one whose interface version (ISSI) is 0, which makes them in another
    /// way; `Invalid` (EINVAL) for a `max_wr` of 0 and for sizes beyond the device's; `NoMemory` (ENOMEM); what the device answers.
    pub fn create_srq(&self, attr: &mut SrqInitAttr) -> Result<Srq, Error> {
        let dev = self.shared().dev();
        if dev.issi() == 0 {
            return Err(Error::Unsupported { what: "shared receive queues under interface version (ISSI) 0" });
        }
        let limits = Limits::of(dev);
        if limits.log_max_srq_sz == 0 {
            return Err(Error::Unsupported { what: "shared receive queues" });
        }
        let geometry = Geometry::of(&attr.attr, &limits)?;
        let work = Arc::new(SrqWork::new(geometry.entries));
        let mut mem = dev.alloc_dma(geometry.bytes(), dbrec::BYTES)?;
        let poster = Poster::new(geometry, mem.words());
        mem.lend("shared receive queue");
        let srqn = match self.create_rmp(&geometry, &mem) {
            Ok(srqn) => srqn,
            Err(error) => {
                if error.refused() {
                    mem.reclaim();
                }
                return Err(error);
            }
        };
        dev.track();
        let shared = Shared {
            member: self.join(),
            srqn,
            ticket: dev.register(Kind::Srq, srqn, attr.srq_context),
            mem,
            work,
            attached: AtomicU32::new(0),
            destroyed: AtomicBool::new(false),
        };
        attr.attr = geometry.attr();
        Ok(Srq { shared: Arc::new(shared), poster, attr: attr.attr, context: attr.srq_context })
    }

    fn create_rmp(&self, geometry: &Geometry, mem: &DmaRegion) -> Result<u32, Error> {
        let bytes = geometry.bytes();
        let pages = pages_of::list(mem.iova(), bytes);
        let wq = Wq::new()
            .with_wq_type(WqType::LINKED_LIST.0.into())
            .with_pd(self.pdn())
            .with_dbr_addr(mem.iova().wrapping_add(bytes as u64))
            .with_log_wq_stride(geometry.stride.ilog2())
            .with_log_wq_sz(geometry.entries.ilog2())
            .with_log_wq_pg_sz(pages.log_size - pages_of::LOG_4K);
        let rmpc = Rmpc::new().with_state(RmpState::RDY.0.into()).with_wq(wq);
        self.shared().dev().exec(&CreateRmp { rmpc, pas: &pages.addresses })
    }
}
