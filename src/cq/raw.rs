//! A CQ that no device made.

use alloc::sync::Arc;
use alloc::vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32};

use mlx5_hw::dbrec;
use mlx5_hw::platform::DmaMem;
use mlx5_hw::ring::MAX_LOG_SIZE;
use mlx5_hw::simd::Cpu;

use super::memory::{RecordMemory, RingMemory};
use super::plan::{Compression, TimeStamps, mini_format};
use super::{AnyRing, Cq, Likeness, Shared, rows};
use crate::device::DeviceInner;
use crate::dv::{CqeCompLayout, CqeCompResFormat};
use crate::error::Error;
use crate::events::CqNotice;
use crate::flags::WcFlags;
use crate::sync::Mutex;

/// Number of each CQ from raw parts: no device gives it.
pub(crate) const CQN: u32 = 0;

const fn invalid<T>(what: &'static str) -> Result<T, Error> {
    Err(Error::Invalid { what })
}

/// What a CQ from raw parts is made of: [`Cq::from_raw_parts`].
#[derive(Clone, Copy, Debug)]
pub struct RawCqAttr {
    /// The entries, aligned to 64 bytes. Whoever makes them sees to it that those of no lap look new before they are:
    /// [`Ring::init_memory`](crate::hw::ring::Ring::init_memory).
    pub ring: NonNull<u8>,
    /// `log2` of the number of entries, at most 24.
    pub log_cq_size: u32,
    /// Size of an entry in bytes: 64 or 128.
    pub cqe_size: u16,
    /// How completions are compressed, if they are. A session may fill the ring.
    pub compression: Option<(CqeCompLayout, CqeCompResFormat)>,
    /// The doorbell record, aligned to 8 bytes: the consumer index in the first word, its low 24 bits in network byte order. It starts
    /// at 0 with the ring, and is written as with any CQ.
    pub record: NonNull<[u32; 2]>,
    /// Fields that completions carry.
    pub wc_flags: WcFlags,
    /// The consumer index is not written when a batch ends.
    pub ignore_overrun: bool,
    /// Instructions that polling may use.
    pub cpu: Cpu,
}

impl RawCqAttr {
    /// The empty ring, and the time stamps that its completions carry.
    fn check(&self) -> Result<(AnyRing, TimeStamps), Error> {
        if !WcFlags::all().contains(self.wc_flags) {
            return Err(Error::Unsupported { what: "unknown bit in wc_flags" });
        }
        if self.log_cq_size > MAX_LOG_SIZE {
            return invalid("log_cq_size is more than a ring can have");
        }
        if !matches!(self.cqe_size, 64 | 128) {
            return invalid("cqe_size is 64 or 128");
        }
        if !self.ring.addr().get().is_multiple_of(64) {
            return invalid("the ring is not aligned to 64 bytes");
        }
        if !self.record.addr().get().is_multiple_of(dbrec::BYTES) {
            return invalid("the doorbell record is not aligned to 8 bytes");
        }
        let compression = match self.compression {
            None => None,
            Some((layout, format)) => match mini_format(format) {
                Some(format) => Some(Compression { format, layout, max_num: 1 << self.log_cq_size }),
                None => return invalid("the format of compressed completions is not exactly one"),
            },
        };
        let ring = AnyRing::new(self.log_cq_size, self.cqe_size, compression)?;
        Ok((ring, self.time_stamps()?))
    }

    fn time_stamps(&self) -> Result<TimeStamps, Error> {
        let has = |flag| self.wc_flags.contains(flag);
        match (has(WcFlags::COMPLETION_TIMESTAMP), has(WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK)) {
            (true, true) => Err(Error::Unsupported { what: "wall-clock time made of ticks, without a device's clock" }),
            (true, false) => Ok(TimeStamps::FreeRunning),
            (false, true) => Ok(TimeStamps::RealTime),
            (false, false) => Ok(TimeStamps::None),
        }
    }
}

impl Cq {
    /// A CQ in memory of the caller's, without a device: see [`raw`](crate::raw).
    ///
    /// # Errors
    /// `Invalid` (EINVAL) for a size, an alignment or a compression that is none; `Unsupported` (EOPNOTSUPP) for an unknown bit in
    /// `wc_flags`, and for both kinds of time stamps at once.
    ///
    /// # Safety
    /// Until the CQ is dropped, ring and record are valid for reads and writes, and nobody has a reference to them other than
    /// to atomics. While it is polled, only a device writes to them, or a thread that does it as one: atomically.
    /// `cpu` names what the processor has.
    pub unsafe fn from_raw_parts(attr: &RawCqAttr) -> Result<Self, Error> {
        let (ring, time_stamps) = attr.check()?;
        let dev = DeviceInner::detached(attr.cpu);
        let region = |ptr: NonNull<u8>, bytes| {
            // SAFETY: the caller's promise, and the alignment was checked. The I/O address is named to no device.
            dev.port().borrow(unsafe { DmaMem::new(ptr, 0, bytes) })
        };
        let bytes = ring.bytes();
        let mem = Arc::new(RingMemory::within(region(attr.ring, bytes), bytes));
        let record = RecordMemory::within(region(attr.record.cast(), dbrec::BYTES));
        dev.track();
        let (rows, reader) = rows::table();
        let shared = Shared {
            dev,
            cqn: CQN,
            notice: Arc::new(CqNotice::new(CQN, 0, None)),
            eqn: None,
            record,
            rings: Mutex::new(vec![mem.clone()]),
            domain: None,
            time_stamps,
            rows,
            ignore_overrun: attr.ignore_overrun,
            attached: AtomicU32::new(0),
            // There is nothing to end.
            destroyed: AtomicBool::new(true),
        };
        let cqe_sz = ring.cqe_sz();
        Ok(Self {
            mem,
            next: None,
            shared: Arc::new(shared),
            reader,
            ring,
            pending: None,
            marked: 0,
            likeness: Likeness::new(attr.cpu),
            wc_flags: attr.wc_flags,
            cqe_sz,
            by_clock: false,
        })
    }
}
