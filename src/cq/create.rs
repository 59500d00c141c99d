//! Creating a completion queue: checks in the order of libmlx5 and the kernel, with their error numbers.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32};

use mlx5_hw::cmd::CreateCq;
use mlx5_hw::cqc::Cqc;
use mlx5_hw::dbrec;
use mlx5_hw::ring::{Cqe64, Cqe128, CqeFormat, MAX_LOG_SIZE, Ring};

use super::{AnyRing, Cq, Shared, rows};
use crate::device::{Device, DeviceInner};
use crate::dma::DmaRegion;
use crate::error::Error;
use crate::flags::{CqInitAttrMask, CreateCqFlags, WcFlags};
use crate::limits::Limits;
use crate::pages_of;

/// Size of one CQ entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CqeSize {
    /// 64 bytes.
    #[default]
    B64,
    /// 128 bytes: 64 for inlined data, then the descriptor.
    B128,
}

impl CqeSize {
    /// The size in bytes as `mlx5dv_cq_init_attr::cqe_size` gives it.
    ///
    /// # Errors
    /// `Invalid` (EINVAL) for any number but 64 and 128.
    pub const fn from_bytes(bytes: u16) -> Result<Self, Error> {
        match bytes {
            64 => Ok(Self::B64),
            128 => Ok(Self::B128),
            _ => Err(Error::Invalid { what: "cqe_size is 64 or 128" }),
        }
    }
}

/// How to create a CQ (`struct ibv_cq_init_attr_ex`; `ibv_create_cq_ex(3)`).
///
/// Completion channels and parent domains do not exist yet, so there are no fields for them; the mask bit for a parent
/// domain is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CqInitAttrEx {
    /// Smallest number of entries wanted: 1 to the device's `max_cqe`.
    pub cqe: u32,
    /// The caller's own; [`Cq::context`] gives it back.
    pub cq_context: u64,
    /// Completion vector for events, below the device's number of them.
    pub comp_vector: u32,
    /// Fields that completions shall carry.
    pub wc_flags: WcFlags,
    /// Which of the fields below are valid.
    pub comp_mask: CqInitAttrMask,
    /// Behaviour; valid with [`CqInitAttrMask::FLAGS`], else not looked at.
    pub flags: CreateCqFlags,
    /// Size of an entry (`mlx5dv_create_cq(3)`).
    pub cqe_size: CqeSize,
}

/// Fields that verbs define but that nothing can fill yet.
const NOT_YET: WcFlags =
    WcFlags::CVLAN.union(WcFlags::FLOW_TAG).union(WcFlags::TM_INFO).union(WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK);

impl Device {
    /// Creates a CQ whose completions carry the standard fields (`ibv_create_cq(3)`).
    ///
    /// # Errors
    /// As [`create_cq_ex`](Self::create_cq_ex).
    pub fn create_cq(&self, cqe: u32, cq_context: u64, comp_vector: u32) -> Result<Cq, Error> {
        self.create_cq_ex(&CqInitAttrEx {
            cqe,
            cq_context,
            comp_vector,
            wc_flags: WcFlags::STANDARD,
            ..Default::default()
        })
    }

    /// Creates a CQ (`ibv_create_cq_ex(3)`). The ring has the next power of two above `cqe` slots;
    /// [`Cq::cqe`] is one less than that.
    ///
    /// # Errors
    /// Checked in this order, before anything is allocated:
    /// `Invalid` (EINVAL) for a `cqe` of 0, an unknown bit in `comp_mask`, an unknown bit in valid `flags`;
    /// `Unsupported` (EOPNOTSUPP) for an unknown bit in `wc_flags`;
    /// `Invalid` for a parent domain; `Unsupported` for fields that cannot be delivered yet (VLAN, flow tag, tag matching,
    /// wall-clock time);
    /// `Invalid` for more entries than the device or 2^24 slots allow, and for a `comp_vector` out of range;
    /// `Unsupported` for `IGNORE_OVERRUN` without capability `cq_oi`.
    /// Then `NoMemory` (ENOMEM), and what the device answers.
    pub fn create_cq_ex(&self, attr: &CqInitAttrEx) -> Result<Cq, Error> {
        let dev = self.inner();
        let plan = Plan::of(dev, attr)?;
        match attr.cqe_size {
            CqeSize::B64 => plan.build::<Cqe64>(dev, attr, AnyRing::B64),
            CqeSize::B128 => plan.build::<Cqe128>(dev, attr, AnyRing::B128),
        }
    }
}

/// `log2` of the number of ring slots for `cqe` entries.
fn log_ring(cqe: u32, log_max: u32) -> Result<u32, Error> {
    let slots = (u64::from(cqe) + 1).next_power_of_two();
    let log = slots.ilog2();
    if log > MAX_LOG_SIZE || log > log_max {
        return Err(Error::Invalid { what: "cqe is more than the device's max_cqe" });
    }
    Ok(log)
}

/// What the checks came to.
struct Plan {
    log_size: u32,
    eqn: u32,
    ignore_overrun: bool,
}

impl Plan {
    fn of(dev: &DeviceInner, attr: &CqInitAttrEx) -> Result<Self, Error> {
        let invalid = |what| Err(Error::Invalid { what });
        let unsupported = |what| Err(Error::Unsupported { what });
        if attr.cqe == 0 {
            return invalid("cqe is 0");
        }
        if !CqInitAttrMask::all().contains(attr.comp_mask) {
            return invalid("unknown bit in comp_mask");
        }
        let flags = if attr.comp_mask.contains(CqInitAttrMask::FLAGS) { attr.flags } else { CreateCqFlags::empty() };
        if !CreateCqFlags::all().contains(flags) {
            return invalid("unknown bit in flags");
        }
        if !WcFlags::all().contains(attr.wc_flags) {
            return unsupported("unknown bit in wc_flags");
        }
        if attr.comp_mask.contains(CqInitAttrMask::PD) {
            return invalid("no parent domain is given");
        }
        if attr.wc_flags.intersects(NOT_YET) {
            return unsupported("VLAN, flow tag, tag matching or wall-clock time in completions");
        }
        let limits = Limits::of(dev);
        let log_size = log_ring(attr.cqe, limits.log_max_cq_sz)?;
        let Some(eqn) = dev.comp_eqn(attr.comp_vector) else {
            return invalid("comp_vector is not below the number of completion vectors");
        };
        let ignore_overrun = flags.contains(CreateCqFlags::IGNORE_OVERRUN);
        if ignore_overrun && !limits.cq_oi {
            return unsupported("ignoring overrun (capability cq_oi)");
        }
        Ok(Self { log_size, eqn, ignore_overrun })
    }

    fn build<F: CqeFormat>(
        &self,
        dev: &Arc<DeviceInner>,
        attr: &CqInitAttrEx,
        wrap: impl FnOnce(Ring<F>) -> AnyRing,
    ) -> Result<Cq, Error> {
        let ring = Ring::<F>::new(self.log_size).map_err(|_| Error::Invalid { what: "the ring is too large" })?;
        let bytes = ring.bytes();
        let mut mem = dev.alloc_dma(bytes, dbrec::BYTES)?;
        if let Some(slots) = mem.words().get(..bytes / 4) {
            Ring::<F>::init_memory(slots);
        }
        mem.lend("completion queue");
        let cqn = match self.create::<F>(dev, &mem, bytes) {
            Ok(cqn) => cqn,
            Err(error) => {
                if error.refused() {
                    mem.reclaim();
                }
                return Err(error);
            }
        };
        dev.track();
        let (rows, reader) = rows::table();
        let shared = Shared {
            dev: dev.clone(),
            cqn,
            mem,
            dbrec: bytes / 4,
            rows,
            ignore_overrun: self.ignore_overrun,
            attached: AtomicU32::new(0),
            destroyed: AtomicBool::new(false),
        };
        Ok(Cq {
            shared: Arc::new(shared),
            reader,
            ring: wrap(ring),
            pending: None,
            wc_flags: attr.wc_flags,
            context: attr.cq_context,
        })
    }

    fn create<F: CqeFormat>(&self, dev: &DeviceInner, mem: &DmaRegion, bytes: usize) -> Result<u32, Error> {
        let pages = pages_of::list(mem.iova(), bytes);
        let cqc = Cqc::new()
            .with_cqe_sz(F::CQE_SZ)
            .with_oi(self.ignore_overrun)
            .with_log_cq_size(self.log_size)
            .with_uar_page(dev.uar_page())
            .with_c_eqn(self.eqn)
            .with_log_page_size(pages.log_size - pages_of::LOG_4K)
            .with_dbr_addr(mem.iova().wrapping_add(bytes as u64));
        dev.exec(&CreateCq { cqc, pas: &pages.addresses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case C-002: requests, ring slots.
    #[test]
    fn ring_is_the_next_power_of_two_above_the_request() {
        let table = [(1, 2), (2, 4), (3, 4), (63, 64), (64, 128), (127, 128), (128, 256), (4095, 4096), (4096, 8192)];
        for (cqe, ring) in table.into_iter().chain([(8_388_607, 8_388_608), (16_777_215, 16_777_216)]) {
            assert_eq!(log_ring(cqe, 24).map(|log| 1u32 << log), Ok(ring), "cqe {cqe}");
        }
        for cqe in [16_777_216, 1 << 30, i32::MAX as u32, u32::MAX] {
            assert_eq!(log_ring(cqe, 31).map_err(Error::errno), Err(22), "cqe {cqe}");
        }
        assert_eq!(log_ring(4096, 12).map_err(Error::errno), Err(22), "beyond the device's limit");
        assert_eq!(log_ring(4095, 12), Ok(12));
    }
}
