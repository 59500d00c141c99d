//! Creating a completion queue.

use alloc::sync::Arc;
use alloc::vec;
use core::sync::atomic::{AtomicBool, AtomicU32};

use mlx5_hw::cmd::CreateCq;
use mlx5_hw::cqc::Cqc;
use mlx5_hw::ring::{CqeFormat, Ring};

use super::memory::{RecordMemory, RingMemory};
use super::plan::{Compression, Plan};
use super::{AnyRing, Cq, Likeness, Shared, each_ring, rows};
use crate::device::{Device, DeviceInner};
use crate::dv::{self, CqeCompLayout};
use crate::error::Error;
use crate::events::{CompChannel, CqNotice};
use crate::flags::{CqInitAttrMask, CreateCqFlags, WcFlags};
use crate::parent_domain::ParentDomain;
use crate::sync::Mutex;

/// How to create a CQ (`struct ibv_cq_init_attr_ex`; `ibv_create_cq_ex(3)`).
#[derive(Clone, Copy, Debug, Default)]
pub struct CqInitAttrEx<'a> {
    /// Smallest number of entries wanted: 1 to the device's `max_cqe`.
    pub cqe: u32,
    /// The caller's own; [`Cq::context`] gives it back.
    pub cq_context: u64,
    /// Where completion events are taken, of the same device; may be left out.
    pub channel: Option<&'a CompChannel>,
    /// Completion vector for events, below the device's number of them.
    pub comp_vector: u32,
    /// Fields that completions shall carry.
    pub wc_flags: WcFlags,
    /// Which of the fields below are valid.
    pub comp_mask: CqInitAttrMask,
    /// Behaviour; valid with [`CqInitAttrMask::FLAGS`], else not looked at.
    pub flags: CreateCqFlags,
    /// Where the CQ's memory comes from; valid with [`CqInitAttrMask::PD`], else not looked at.
    pub parent_domain: Option<&'a ParentDomain>,
}

impl<'a> CqInitAttrEx<'a> {
    /// The parent domain, where the mask says that there is one.
    pub(super) fn domain(&self) -> Option<&'a ParentDomain> {
        self.parent_domain.filter(|_| self.comp_mask.contains(CqInitAttrMask::PD))
    }
}

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
    /// As [`dv_create_cq`](Self::dv_create_cq).
    pub fn create_cq_ex(&self, attr: &CqInitAttrEx<'_>) -> Result<Cq, Error> {
        self.dv_create_cq(attr, &dv::CqInitAttr::default())
    }

    /// Creates a CQ with entries of a chosen kind (`mlx5dv_create_cq(3)`).
    ///
    /// # Errors
    /// Checked in this order, before anything is allocated. What libmlx5 checks:
    /// `Invalid` (EINVAL) for a `cqe` of 0, an unknown bit in `comp_mask`, an unknown bit in valid `flags`;
    /// `Unsupported` (EOPNOTSUPP) for an unknown bit in `wc_flags`;
    /// `Invalid` for an unknown bit in the other `comp_mask`, and for a parent domain that is not there or is another device's;
    /// `Unsupported` for wall-clock time stamps that neither the device's real time nor the platform's time of day can give: raw
    /// ones together with them, and devices without real time, need the latter;
    /// `Invalid` for more than 2^24 slots, an entry size other than 64 and 128, compression that the device does not have for
    /// the entry size, formats that are not exactly one, a layout without compression, an unknown bit in the other `flags`,
    /// padding on a device without it or of 64-byte entries.
    /// What is the kernel's there:
    /// `Invalid` for a `comp_vector` out of range, for a channel of another device and for more entries than the device's `max_cqe`;
    /// `Unsupported` for `IGNORE_OVERRUN` without capability `cq_oi`, and for a format with a stride index or a layout without
    /// its capability.
    /// Then `NoMemory` (ENOMEM), what the parent domain's allocator answers, `Invalid` for memory of its that is
    /// not what was asked for, `Invalid` for a channel when the completion vector has as many CQs with channels as its event queue
    /// has room for (1024; fewer on a platform with little contiguous memory), and what the device answers.
    pub fn dv_create_cq(&self, attr: &CqInitAttrEx<'_>, dv: &dv::CqInitAttr) -> Result<Cq, Error> {
        let dev = self.inner();
        let plan = Plan::of(dev, attr, dv)?;
        plan.build(dev, attr, AnyRing::new(plan.log_size, plan.cqe_size, plan.compression)?)
    }
}

impl AnyRing {
    /// A fresh ring of `2^log_size` entries of 64 bytes, or else of 128.
    ///
    /// # Errors
    /// `Invalid` for more slots than any ring has.
    pub(super) fn new(log_size: u32, cqe_size: u16, compression: Option<Compression>) -> Result<Self, Error> {
        fn of<F: CqeFormat>(log_size: u32) -> Result<Ring<F>, Error> {
            Ring::new(log_size).map_err(|_| Error::Invalid { what: "the ring is too large" })
        }
        let small = cqe_size == 64;
        let Some(Compression { format, layout, max_num }) = compression else {
            return Ok(if small { Self::B64(of(log_size)?) } else { Self::B128(of(log_size)?) });
        };
        Ok(match (layout, small) {
            (CqeCompLayout::Basic, true) => Self::Basic64(of(log_size)?.with_sessions(format, max_num)),
            (CqeCompLayout::Basic, false) => Self::Basic128(of(log_size)?.with_sessions(format, max_num)),
            (CqeCompLayout::Enhanced, true) => Self::Enhanced64(of(log_size)?.with_sessions(format, max_num)),
            (CqeCompLayout::Enhanced, false) => Self::Enhanced128(of(log_size)?.with_sessions(format, max_num)),
        })
    }

    /// Bytes of memory that the ring takes.
    pub(super) fn bytes(&self) -> usize {
        each_ring!(self, ring => ring.bytes())
    }

    /// Stamps all slots vacant.
    fn init_memory(&self, mem: &RingMemory) {
        fn init<F: CqeFormat>(ring: &Ring<F>, words: &[AtomicU32]) {
            Ring::<F>::init_memory(words.get(..ring.bytes() / 4).unwrap_or_default());
        }
        each_ring!(self, ring => init(ring, mem.words()));
    }

    /// Size of entries as contexts say it.
    pub(super) fn cqe_sz(&self) -> u32 {
        const fn of<F: CqeFormat>(_: &Ring<F>) -> u32 {
            F::CQE_SZ
        }
        each_ring!(self, ring => of(ring))
    }
}

impl Plan {
    fn build(&self, dev: &Arc<DeviceInner>, attr: &CqInitAttrEx<'_>, ring: AnyRing) -> Result<Cq, Error> {
        let allocator = attr.domain().and_then(ParentDomain::allocator);
        let mut mem = RingMemory::alloc(dev, ring.bytes(), allocator)?;
        let mut record = RecordMemory::alloc(dev, allocator)?;
        ring.init_memory(&mem);
        let eqn = attr.channel.map(|_| dev.admit_events(self.eqn)).transpose()?;
        let (cqn, cqc) = self.lend_and_create(dev, ring.cqe_sz(), (&mut mem, &mut record), eqn)?;
        dev.track();
        let mem = Arc::new(mem);
        let place = attr.channel.map(|channel| channel.join(attr.comp_vector, cqn, attr.cq_context));
        let notice = Arc::new(CqNotice::new(cqn, attr.cq_context, place));
        dev.register_cq(&notice);
        let (rows, reader) = rows::table();
        let shared = Shared {
            dev: dev.clone(),
            cqn,
            notice,
            eqn,
            record,
            rings: Mutex::new(vec![mem.clone()]),
            domain: attr.domain().map(ParentDomain::join),
            time_stamps: self.time_stamps,
            rows,
            ignore_overrun: self.ignore_overrun,
            attached: AtomicU32::new(0),
            destroyed: AtomicBool::new(false),
        };
        Ok(Cq {
            mem,
            next: None,
            shared: Arc::new(shared),
            reader,
            ring,
            pending: None,
            marked: 0,
            likeness: Likeness::new(dev.cpu()),
            wc_flags: attr.wc_flags,
            cqe_sz: cqc.cqe_sz(),
            by_clock: self.by_clock,
        })
    }

    /// Has the device make the queue; its number and what it was made with.
    fn lend_and_create(
        &self,
        dev: &DeviceInner,
        cqe_sz: u32,
        (mem, record): (&mut RingMemory, &mut RecordMemory),
        eqn: Option<u32>,
    ) -> Result<(u32, Cqc), Error> {
        mem.lend();
        record.lend();
        let pages = mem.pages();
        let cqc = self.context(dev, cqe_sz, record.iova(), pages.log_size);
        let created = dev.exec(&CreateCq { cqc, pas: &pages.addresses });
        if created.as_ref().is_err_and(|error| error.refused()) {
            mem.reclaim();
            record.reclaim();
            eqn.into_iter().for_each(|eqn| dev.leave_events(eqn));
        }
        Ok((created?, cqc))
    }
}
