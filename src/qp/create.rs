//! Creating a queue pair.

use alloc::sync::Arc;

use mlx5_hw::be::Be32;
use mlx5_hw::cmd::CreateQp;
use mlx5_hw::dbrec;
use mlx5_hw::qpc::{CsReq, CsRes, PmState, Qpc, RqType, ServiceType, TsFormat};
use mlx5_hw::wqe::{self, BASIC_BLOCK, SEGMENT};

use super::scatter::Lists;
use super::work::{Outstanding, QpWork, UserIndex};
use super::{Geometry, Qp, QpAttr, QpCap, QpInitAttr, QpState, QpType};
use crate::cq::{Cq, CqLimits, TimeStamps};
use crate::device::DeviceInner;
use crate::dma::DmaRegion;
use crate::dv::QpCreateFlags;
use crate::error::Error;
use crate::events::Kind;
use crate::flags::SendFlags;
use crate::gate::Gate;
use crate::limits::{AtomicCap, Limits};
use crate::pages_of;
use crate::pd::Pd;
use crate::srq::Srq;

const fn invalid<T>(what: &'static str) -> Result<T, Error> {
    Err(Error::Invalid { what })
}

impl Pd {
    /// Creates a queue pair in state [`Reset`](QpState::Reset) (`ibv_create_qp(3)`). `attr.cap` becomes what was given: at
    /// least what was asked for.
    ///
    /// # Errors
    /// `Unsupported` (EOPNOTSUPP) for raw packets and for `create_flags` that are not built;
    /// `Invalid` (EINVAL) for sizes beyond the device's, for CQs and an SRQ of another device, for two CQs of which one reports real time
    /// and the other device clock ticks, and for `create_flags` that are unknown, are for raw packets, or exclude each other;
    /// `Unsupported` for device clock ticks on a device that stamps with real time only; `NoMemory` (ENOMEM); what the device
    /// answers.
    pub fn create_qp(&self, attr: &mut QpInitAttr<'_>) -> Result<Qp, Error> {
        let dev = self.shared().dev();
        let service = service(attr.qp_type)?;
        let (send_cq, recv_cq, srq) = (attr.send_cq.shared(), attr.recv_cq.shared(), attr.srq.map(Srq::shared));
        if !send_cq.is_of(dev) || !recv_cq.is_of(dev) {
            return invalid("a CQ of another device");
        }
        if srq.is_some_and(|srq| !srq.is_of(dev)) {
            return invalid("a shared receive queue of another device");
        }
        check_flags(attr.create_flags)?;
        let limits = Limits::of(dev);
        let ts_format = ts_format([send_cq.time_stamps(), recv_cq.time_stamps()], CqLimits::of(dev).free_running)?;
        let own_recv = if srq.is_some() { QpCap { max_recv_wr: 0, max_recv_sge: 0, ..attr.cap } } else { attr.cap };
        let geometry = Geometry::of(&own_recv, attr.qp_type, &limits)?;
        let work = self.work(attr, &geometry)?;
        let bytes = geometry.queue_bytes();
        let mut mem = dev.alloc_dma(bytes, dbrec::BYTES)?;
        let qpn = self.lend_and_create(attr, &geometry, (service, ts_format), &work, &mut mem)?;
        let mut qp = Qp {
            member: self.join(),
            qpn,
            ticket: dev.register(Kind::Qp, qpn, attr.qp_context),
            qp_type: attr.qp_type,
            state: QpState::Reset,
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            srq: srq.cloned(),
            work,
            mem,
            geometry,
            blue_flame: if geometry.sq_blocks == 0 { None } else { dev.blue_flames().take() },
            always: if attr.sq_sig_all { SendFlags::SIGNALED } else { SendFlags::empty() },
            answer_in_cqe: if self.scatters_answers(attr) { attr.send_cq.cqe_size() / 2 } else { 0 },
            atomics: limits.atomic_cap != AtomicCap::None,
            context: attr.qp_context,
            sq_posted: 0,
            sq_announced: 0,
            rq_posted: 0,
            attr: QpAttr { cap: geometry.cap, ..QpAttr::default() },
            ending: false,
            destroyed: false,
        };
        qp.send_cq.attach();
        qp.recv_cq.attach();
        if let Some(srq) = &qp.srq {
            srq.attach();
        }
        dev.track();
        qp.publish()?;
        attr.cap = geometry.cap;
        Ok(qp)
    }

    /// What the tables of its CQs will hold of the queue pair, with an index of its own.
    fn work(&self, attr: &QpInitAttr<'_>, geometry: &Geometry) -> Result<Arc<QpWork>, Error> {
        let (send_cq, recv_cq) = (attr.send_cq.shared(), attr.recv_cq.shared());
        let scatter = self.scatters(attr);
        let send_lists = self.scatters_answers(attr).then(|| geometry.send_lists());
        let receive_lists = (scatter && attr.srq.is_none()).then(|| geometry.receive_lists());
        // Indices of queue pairs that are gone come back first.
        send_cq.rows().reclaim();
        recv_cq.rows().reclaim();
        let work = Arc::new(QpWork {
            index: UserIndex::take(self.shared().dev().numbers().indices())?,
            pd: self.pdn(),
            copies: Gate::default(),
            queues: [
                Outstanding::new(send_cq.cqn(), geometry.sq_blocks, send_lists),
                Outstanding::new(recv_cq.cqn(), geometry.rq_entries, receive_lists),
            ],
            srq: attr.srq.map(|srq| srq.shared().work().clone()),
        });
        if scatter {
            work.copies.open();
        }
        Ok(work)
    }

    /// Whether what is read and what atomics answer may lie in completions of the queue pair.
    fn scatters_answers(&self, attr: &QpInitAttr<'_>) -> bool {
        self.scatters(attr) && attr.qp_type == QpType::Rc
    }

    /// Whether data may lie in completions of the queue pair. A device that has it not is no error, nor is a transport, as in
    /// Linux.
    fn scatters(&self, attr: &QpInitAttr<'_>) -> bool {
        let able = self.shared().dev().caps().general.sctr_data_cqe() && attr.qp_type != QpType::Ud;
        able && attr.create_flags.contains(QpCreateFlags::ALLOW_SCATTER_TO_CQE)
    }

    fn lend_and_create(
        &self,
        attr: &QpInitAttr<'_>,
        geometry: &Geometry,
        kind: (ServiceType, TsFormat),
        work: &Arc<QpWork>,
        mem: &mut DmaRegion,
    ) -> Result<u32, Error> {
        mem.lend("queue pair");
        let created = self.create_on_device(attr, geometry, kind, work.index.get(), mem);
        match created {
            Err(error) if error.refused() => mem.reclaim(),
            // The device may have made a queue pair with this index: nobody else may get it.
            Err(_) => core::mem::forget(work.clone()),
            Ok(_) => {}
        }
        created
    }

    fn create_on_device(
        &self,
        attr: &QpInitAttr<'_>,
        geometry: &Geometry,
        (service, ts_format): (ServiceType, TsFormat),
        user_index: u32,
        mem: &DmaRegion,
    ) -> Result<u32, Error> {
        let dev: &DeviceInner = self.shared().dev();
        let bytes = geometry.queue_bytes();
        let pages = pages_of::list(mem.iova(), bytes);
        let mut qpc = Qpc::new()
            .with_st(service.0.into())
            .with_pm_state(PmState::MIGRATED.0.into())
            .with_pd(self.pdn())
            .with_uar_page(dev.uar_page())
            .with_user_index(user_index)
            .with_ts_format(ts_format.0.into())
            .with_log_page_size(pages.log_size - pages_of::LOG_4K)
            .with_cqn_snd(attr.send_cq.cqn())
            .with_cqn_rcv(attr.recv_cq.cqn())
            .with_dbr_addr(mem.iova().wrapping_add(bytes as u64));
        if self.scatters(attr) {
            let wide = |cq: &Cq| cq.cqe_size() == 128;
            let res = if wide(attr.recv_cq) { CsRes::UP_TO_64B } else { CsRes::UP_TO_32B };
            if attr.srq.is_none() {
                qpc.set_cs_res(res.0.into());
            }
            if service == ServiceType::RC {
                let req = if wide(attr.send_cq) { CsReq::UP_TO_64B } else { CsReq::UP_TO_32B };
                qpc.set_cs_req(req.0.into());
            }
        }
        match geometry.sq_blocks {
            0 => qpc.set_no_sq(true),
            blocks => qpc.set_log_sq_size(blocks.ilog2()),
        }
        match (attr.srq, geometry.rq_entries) {
            (Some(srq), _) => {
                qpc.set_rq_type(RqType::SRQ_RQ.0.into());
                qpc.set_srqn_rmpn_xrqn(srq.srq_num());
            }
            (None, 0) => qpc.set_rq_type(RqType::ZERO_LEN_RQ.0.into()),
            (None, entries) => {
                qpc.set_log_rq_size(entries.ilog2());
                qpc.set_log_rq_stride(geometry.rq_stride.ilog2() - SEGMENT.ilog2());
            }
        }
        dev.exec(&CreateQp { qpc, pas: &pages.addresses })
    }
}

/// The device's name for a transport.
fn service(qp_type: QpType) -> Result<ServiceType, Error> {
    match qp_type {
        QpType::Rc => Ok(ServiceType::RC),
        QpType::Uc => Ok(ServiceType::UC),
        QpType::Ud => Ok(ServiceType::UD),
        QpType::RawPacket => Err(Error::Unsupported { what: "queue pairs for raw packets" }),
    }
}

/// The clock of a queue pair's time stamps: the one that its CQs report, if they agree; else the counter where there is one.
fn ts_format(cqs: [TimeStamps; 2], free_running: bool) -> Result<TsFormat, Error> {
    let real_time = cqs.contains(&TimeStamps::RealTime);
    let ticks = cqs.contains(&TimeStamps::FreeRunning);
    match (real_time, ticks) {
        (true, true) => invalid("one CQ reports real time, the other device clock ticks"),
        (true, false) => Ok(TsFormat::REAL_TIME),
        (false, true) if !free_running => {
            Err(Error::Unsupported { what: "device clock ticks on a device that stamps with real time only" })
        }
        (false, _) => Ok(if free_running { TsFormat::FREE_RUNNING } else { TsFormat::DEFAULT }),
    }
}

/// Refuses what `mlx5dv_create_qp(3)` refuses for a reliable connection, and what is not built.
fn check_flags(flags: QpCreateFlags) -> Result<(), Error> {
    use QpCreateFlags as F;
    if !F::all().contains(flags) {
        return invalid("unknown bit in create_flags");
    }
    if flags.contains(F::DISABLE_SCATTER_TO_CQE | F::ALLOW_SCATTER_TO_CQE) {
        return invalid("create_flags both allow and disable data in completions");
    }
    if flags.intersects(F::TUNNEL_OFFLOADS | F::TIR_ALLOW_SELF_LOOPBACK_UC | F::TIR_ALLOW_SELF_LOOPBACK_MC) {
        return invalid("create_flags are for raw packets");
    }
    match flags.intersects(F::PACKET_BASED_CREDIT_MODE | F::SIG_PIPELINING | F::OOO_DP) {
        true => Err(Error::Unsupported { what: "a flag in create_flags" }),
        false => Ok(()),
    }
}

impl Qp {
    /// Makes the queue pair known to its CQs.
    fn publish(&mut self) -> Result<(), Error> {
        let index = self.work.index.get();
        let (send, recv) = (&self.send_cq, &self.recv_cq);
        let published = send.rows().publish(index, &self.work)
            && (Arc::ptr_eq(send, recv) || recv.rows().publish(index, &self.work));
        // An index is given out only once no CQ knows it any more, so this can't fail; if it did, the row is not ours.
        if published { Ok(()) } else { Err(Error::Busy) }
    }
}

impl Geometry {
    /// Rounds sizes up and checks them, as libmlx5 does.
    fn of(cap: &QpCap, qp_type: QpType, limits: &Limits) -> Result<Self, Error> {
        let none = Self { rq_stride: 0, rq_entries: 0, sq_blocks: 0, cap: QpCap::default() };
        let with_rq = if cap.max_recv_wr == 0 { none } else { none.receive_queue(cap, limits)? };
        let both = if cap.max_send_wr == 0 { with_rq } else { with_rq.send_queue(cap, overhead(qp_type), limits)? };
        if both.queue_bytes() == 0 {
            return invalid("max_send_wr and max_recv_wr are both 0");
        }
        Ok(both)
    }

    /// Room for the pieces of receives: as many as a WQE has.
    fn receive_lists(&self) -> Lists {
        Lists::new(self.rq_entries, (self.rq_stride / SEGMENT).max(1).ilog2())
    }

    /// Room for the pieces of sends: as many as a basic block has segments, two of which are never pieces.
    fn send_lists(&self) -> Lists {
        Lists::new(self.sq_blocks, (BASIC_BLOCK / SEGMENT).ilog2())
    }

    fn receive_queue(mut self, cap: &QpCap, limits: &Limits) -> Result<Self, Error> {
        let stride = (u64::from(cap.max_recv_sge.max(1)) * SEGMENT as u64).next_power_of_two();
        if stride > u64::from(limits.max_wqe_sz_rq) {
            return invalid("max_recv_sge is more than the device's");
        }
        // The send queue behind it starts at a basic block.
        let entries = u64::from(cap.max_recv_wr).next_power_of_two().max(BASIC_BLOCK as u64 / stride);
        if entries > 1 << limits.log_max_qp_sz {
            return invalid("max_recv_wr is more than the device's");
        }
        (self.rq_stride, self.rq_entries) = (stride as usize, entries as u32);
        (self.cap.max_recv_wr, self.cap.max_recv_sge) = (entries as u32, stride as u32 / SEGMENT as u32);
        Ok(self)
    }

    fn send_queue(mut self, cap: &QpCap, overhead: u64, limits: &Limits) -> Result<Self, Error> {
        let most = u64::from(limits.max_wqe_sz_sq);
        let inline = match cap.max_inline_data {
            0 => 0,
            n => (u64::from(n) + wqe::InlineSeg::BYTES as u64).next_multiple_of(SEGMENT as u64),
        };
        let data = inline.max(u64::from(cap.max_send_sge) * SEGMENT as u64);
        let wqe = ATOMIC.max(overhead + data);
        if wqe > most || cap.max_inline_data > wqe::INLINE_MAX {
            return invalid("max_send_sge or max_inline_data is more than the device's");
        }
        let blocks_each = wqe.div_ceil(BASIC_BLOCK as u64);
        let blocks = (u64::from(cap.max_send_wr) * blocks_each).next_power_of_two();
        if blocks > 1 << limits.log_max_qp_sz {
            return invalid("max_send_wr is more than the device's");
        }
        let room = ((blocks_each * BASIC_BLOCK as u64).min(most) - overhead) as u32;
        self.sq_blocks = blocks as u32;
        self.cap.max_send_wr = (blocks / blocks_each) as u32;
        self.cap.max_send_sge = room / SEGMENT as u32;
        self.cap.max_inline_data = room.saturating_sub(wqe::InlineSeg::BYTES as u32).min(wqe::INLINE_MAX);
        Ok(self)
    }
}

/// Bytes of a send WQE before its data: control segment and remote address segment, or datagram segment.
fn overhead(qp_type: QpType) -> u64 {
    match qp_type {
        QpType::Ud => (SEGMENT + size_of::<[Be32; wqe::AV_WORDS]>()) as u64,
        _ => 2 * SEGMENT as u64,
    }
}

/// Bytes of an atomic's WQE: control, remote address, operands and the one piece of memory that it may name. A basic block:
/// whatever else was asked for, it fits. (libmlx5 adds the operands to every request's size.)
const ATOMIC: u64 = 4 * SEGMENT as u64;
const _: () = assert!(ATOMIC == BASIC_BLOCK as u64);

#[cfg(test)]
mod tests {
    use super::*;

    /// `get_qp_ts_format` of Linux's mlx5_ib, except that a CQ without time stamps agrees with every other.
    #[test]
    fn a_queue_pair_stamps_with_the_clock_that_its_cqs_report() {
        use TimeStamps::{FreeRunning, None as No, RealTime};
        for (send, recv, free_running, right) in [
            (No, No, true, Ok(TsFormat::FREE_RUNNING)),
            (No, No, false, Ok(TsFormat::DEFAULT)),
            (FreeRunning, No, true, Ok(TsFormat::FREE_RUNNING)),
            (No, FreeRunning, false, Err(95)),
            (RealTime, No, true, Ok(TsFormat::REAL_TIME)),
            (RealTime, RealTime, false, Ok(TsFormat::REAL_TIME)),
            (FreeRunning, RealTime, true, Err(22)),
            (RealTime, FreeRunning, false, Err(22)),
        ] {
            let got = ts_format([send, recv], free_running).map_err(Error::errno);
            assert_eq!(got, right, "{send:?} {recv:?} {free_running}");
        }
    }

    const LIMITS: Limits = Limits {
        log_max_qp_sz: 15,
        log_max_srq_sz: 15,
        max_wqe_sz_sq: 1008,
        max_wqe_sz_rq: 512,
        log_max_msg: 30,
        log_max_ra_req: 4,
        log_max_ra_res: 4,
        atomic_cap: AtomicCap::None,
        atomic_mode: None,
        ethernet: true,
        gids: 16,
        no_loopback: None,
        ports: 1,
    };

    fn cap(max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32, max_inline_data: u32) -> QpCap {
        QpCap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
    }

    #[test]
    fn sizes_are_rounded_up_and_never_less_than_asked() {
        for asked in [
            cap(1, 1, 1, 1, 0),
            cap(100, 100, 3, 3, 60),
            cap(5, 0, 0, 0, 0),
            cap(0, 9, 0, 5, 0),
            cap(8, 8, 61, 32, 900),
        ] {
            let g = Geometry::of(&asked, QpType::Rc, &LIMITS).unwrap();
            assert!(g.cap.max_send_wr >= asked.max_send_wr && g.cap.max_recv_wr >= asked.max_recv_wr, "{asked:?}");
            if asked.max_send_wr != 0 {
                assert!(g.cap.max_send_sge >= asked.max_send_sge && g.cap.max_inline_data >= asked.max_inline_data);
                // The largest request that was promised fits as often as was promised.
                let ds = 2 + (g.cap.max_send_sge as usize).max(wqe::inline_segments(g.cap.max_inline_data as usize));
                assert!(ds <= wqe::MAX_DS as usize && wqe::basic_blocks(ds) as u32 * g.cap.max_send_wr <= g.sq_blocks);
            }
            if asked.max_recv_wr != 0 {
                assert!(g.cap.max_recv_sge >= asked.max_recv_sge && g.rq_entries.is_power_of_two());
                assert_eq!(g.rq_bytes() % BASIC_BLOCK, 0, "the send queue starts at a basic block");
            }
        }
    }

    /// Limits are numbers of the device's: a basic block is needed, and what does not fit is not promised.
    #[test]
    fn small_limits_promise_no_more_than_fits() {
        for bytes in (0..=1008).step_by(SEGMENT) {
            let limits = Limits { max_wqe_sz_sq: bytes, max_wqe_sz_rq: bytes, ..LIMITS };
            let Ok(g) = Geometry::of(&cap(4, 0, 0, 0, 0), QpType::Rc, &limits) else {
                assert!(bytes < 64, "{bytes}");
                continue;
            };
            let inline = g.cap.max_inline_data;
            let header = u32::from(inline != 0) * 4;
            assert!(32 + (inline + header).max(16 * g.cap.max_send_sge) <= bytes, "{bytes}: {:?}", g.cap);
        }
    }

    #[test]
    fn sizes_beyond_the_device_are_invalid() {
        for asked in [
            cap(0, 0, 1, 1, 0),
            cap(1 << 16, 1, 1, 1, 0),
            cap(1, 1 << 16, 1, 1, 0),
            cap(u32::MAX, u32::MAX, u32::MAX, u32::MAX, u32::MAX),
            cap(1, 1, 62, 1, 0),
            cap(1, 1, 1, 33, 0),
            cap(1, 1, 1, 1, 1024),
            cap(1, 1, 1, 1, u32::MAX),
        ] {
            assert_eq!(Geometry::of(&asked, QpType::Rc, &LIMITS).map_err(Error::errno).err(), Some(22), "{asked:?}");
        }
    }
}
