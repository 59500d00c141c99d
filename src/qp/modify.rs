//! Moving a queue pair from state to state.

use alloc::sync::Arc;

use mlx5_hw::cmd::{Init2Rtr, Qp2Err, Qp2Rst, Rst2Init, Rtr2Rts};
use mlx5_hw::qpc::{Ads, AtomicMode, OptParam, PmState, Qpc};

use super::{Mtu, Qp, QpAttr, QpState, QpType};
use crate::ah::udp_source_port;
use crate::cq::{Cq, Shared as CqShared};
use crate::error::Error;
use crate::flags::{AccessFlags, QpAttrMask};
use crate::limits::Limits;

/// `log2` of the packets between two requests for an acknowledge, as Linux sets it.
const LOG_ACK_REQ_FREQ: u32 = 8;

/// `log2` of the largest datagram, as Linux sets it.
const LOG_DATAGRAM: u32 = 12;

/// The CQs of a queue pair that is reset, for which nobody else may poll them meanwhile.
pub enum ExclusiveCqs<'a> {
    /// One CQ reports sends and receives.
    Same(&'a mut Cq),
    /// Two CQs.
    Two {
        /// The one that reports sends.
        send: &'a mut Cq,
        /// The one that reports receives.
        recv: &'a mut Cq,
    },
}

const fn invalid<T>(what: &'static str) -> Result<T, Error> {
    Err(Error::Invalid { what })
}

/// Required and optional attributes of a transition, besides `STATE` (`ibv_modify_qp(3)`; what is optional is what Linux takes).
fn attributes(qp_type: QpType, from: QpState, to: QpState) -> Result<(QpAttrMask, QpAttrMask), Error> {
    use QpAttrMask as M;
    use QpState::{Err as Error_, Init, Reset, Rtr, Rts, Sqd, Sqe};
    let (rc, ud) = (qp_type == QpType::Rc, qp_type == QpType::Ud);
    let of_rc = |mask| if rc { mask } else { M::empty() };
    match (from, to) {
        (_, Reset) => invalid("the reset needs the CQs exclusively: Qp::reset"),
        (Reset, Init) if ud => Ok((M::PKEY_INDEX | M::PORT | M::QKEY, M::empty())),
        (Reset, Init) => Ok((M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS, M::empty())),
        (Init, Rtr) if ud => Ok((M::empty(), M::PKEY_INDEX | M::QKEY)),
        (Init, Rtr) => Ok((
            M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | of_rc(M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER),
            M::ACCESS_FLAGS | M::PKEY_INDEX | M::ALT_PATH,
        )),
        (Rtr, Rts) if ud => Ok((M::SQ_PSN, M::CUR_STATE | M::QKEY)),
        (Rtr, Rts) => Ok((
            M::SQ_PSN | of_rc(M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC),
            M::CUR_STATE | M::ACCESS_FLAGS | M::ALT_PATH | M::PATH_MIG_STATE | of_rc(M::MIN_RNR_TIMER),
        )),
        (Init | Rtr | Rts | Sqd | Sqe | Error_, Error_) => Ok((M::empty(), M::empty())),
        (Init, Init) | (Rts, Rts | Sqd) | (Sqd, Rts | Sqd) | (Sqe, Rts) => {
            Err(Error::Unsupported { what: "this transition of a queue pair" })
        }
        _ => invalid("the queue pair's state does not lead to that state"),
    }
}

impl Qp {
    /// Changes attributes and moves to another state (`ibv_modify_qp(3)`): Reset to Init to Rtr to Rts, and to Err from
    /// everywhere but Reset. To go to Reset there is [`reset`](Self::reset).
    ///
    /// # Errors
    /// `Invalid` (EINVAL) for a transition that is not there, a required attribute missing from `mask`, one in it that does not
    /// belong there, a value out of range, a `cur_qp_state` that is not the state;
    /// `Unsupported` (EOPNOTSUPP) for alternate paths, for remote atomics on a device without (told once there is room for
    /// some: `max_dest_rd_atomic`), for a path with `force_loopback` where the device or the transport does not have that, and
    /// for transitions that verbs define but that are not built;
    /// what the device answers, with the queue pair in the state it was. After a command without an answer the device may have
    /// moved on all the same: [`query`](Self::query) tells, and destroying the queue pair is always right.
    pub fn modify(&mut self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), Error> {
        if !QpAttrMask::all().contains(mask) {
            return invalid("unknown bit in attr_mask");
        }
        self.check_alive()?;
        let to = if mask.contains(QpAttrMask::STATE) { attr.qp_state } else { self.state };
        let (required, optional) = attributes(self.qp_type, self.state, to)?;
        let given = mask - QpAttrMask::STATE;
        if !given.contains(required) {
            return invalid("a required attribute is missing from attr_mask");
        }
        if !(required | optional).contains(given) {
            return invalid("attr_mask has an attribute that this transition does not take");
        }
        if mask.intersects(QpAttrMask::ALT_PATH | QpAttrMask::PATH_MIG_STATE) {
            return Err(Error::Unsupported { what: "alternate paths" });
        }
        if mask.contains(QpAttrMask::CUR_STATE) && attr.cur_qp_state != self.state {
            return invalid("cur_qp_state is not the queue pair's state");
        }
        let merged = merge(&self.attr, attr, mask);
        let limits = Limits::of(self.dev());
        check(&merged, given, &limits)?;
        if given.contains(QpAttrMask::AV) && merged.ah_attr.force_loopback {
            self.may_force_loopback(&limits)?;
        }
        self.transition(&merged, given, to)?;
        self.attr = merged;
        self.state = to;
        Ok(())
    }

    /// Whether the port and the transport can force packets back.
    fn may_force_loopback(&self, limits: &Limits) -> Result<(), Error> {
        let missing = match self.qp_type {
            QpType::Rc => limits.no_loopback,
            _ if limits.ethernet => Some("forced loopback of unreliable connections on Ethernet"),
            _ => None,
        };
        missing.map_or(Ok(()), |what| Err(Error::Unsupported { what }))
    }

    fn check_alive(&self) -> Result<(), Error> {
        if self.ending { invalid("the queue pair is being destroyed") } else { Ok(()) }
    }

    fn transition(&self, attr: &QpAttr, given: QpAttrMask, to: QpState) -> Result<(), Error> {
        let (dev, qpn) = (self.dev(), self.qpn);
        let (qpc, opt_param_mask) = match self.qp_type {
            QpType::Ud => datagrams(attr, given, to),
            _ => self.connection(attr, given, to)?,
        };
        match to {
            // All that this transition takes is told, and nothing is optional.
            QpState::Init => dev.exec(&Rst2Init { qpn, opt_param_mask: 0, qpc }),
            QpState::Rtr => dev.exec(&Init2Rtr { qpn, opt_param_mask, qpc }),
            QpState::Rts => dev.exec(&Rtr2Rts { qpn, opt_param_mask, qpc }),
            _ => dev.exec(&Qp2Err { qpn }),
        }
    }

    /// Context of a connection's transition, and which of its optional parameters count.
    fn connection(&self, attr: &QpAttr, given: QpAttrMask, to: QpState) -> Result<(Qpc, u32), Error> {
        let (limits, reliable) = (Limits::of(self.dev()), self.qp_type == QpType::Rc);
        let mut optional = optional(given);
        if given.intersects(QpAttrMask::ACCESS_FLAGS | QpAttrMask::MAX_DEST_RD_ATOMIC) {
            optional |= if reliable { OptParam::RRE.0 | OptParam::RWE.0 | OptParam::RAE.0 } else { OptParam::RWE.0 };
        }
        let mut qpc = base(access_in_force(attr), limits.atomic_mode)?;
        match to {
            QpState::Init => qpc.set_primary_address_path(port(attr)),
            QpState::Rtr => {
                qpc = qpc
                    .with_mtu(attr.path_mtu as u32)
                    .with_log_msg_max(limits.log_max_msg)
                    .with_remote_qpn(attr.dest_qp_num)
                    .with_next_rcv_psn(attr.rq_psn)
                    .with_min_rnr_nak(attr.min_rnr_timer.into())
                    .with_log_rra_max(log_ceil(attr.max_dest_rd_atomic))
                    .with_primary_address_path(path(attr, self.qpn, limits.ethernet));
            }
            QpState::Rts => {
                if given.contains(QpAttrMask::MIN_RNR_TIMER) {
                    optional |= OptParam::RNR_TIMEOUT.0;
                    qpc.set_min_rnr_nak(attr.min_rnr_timer.into());
                }
                let ads = path(attr, self.qpn, limits.ethernet).with_ack_timeout(attr.timeout.into());
                qpc = qpc
                    .with_next_send_psn(attr.sq_psn)
                    .with_retry_count(attr.retry_cnt.into())
                    .with_rnr_retry(attr.rnr_retry.into())
                    .with_log_sra_max(log_floor(attr.max_rd_atomic))
                    .with_primary_address_path(ads);
            }
            _ => {}
        }
        Ok((qpc, optional))
    }

    /// Moves to [`Reset`](QpState::Reset) (`ibv_modify_qp(3)`): ends everything that is outstanding, without completions, and
    /// drops the queue pair's entries from its CQs. That is why nobody may poll them meanwhile.
    ///
    /// # Errors
    /// `Invalid` (EINVAL) when `cqs` are not the queue pair's; what the device answers.
    pub fn reset(&mut self, cqs: ExclusiveCqs<'_>) -> Result<(), Error> {
        let is = |cq: &Cq, shared: &Arc<CqShared>| Arc::ptr_eq(cq.shared(), shared);
        let fits = match &cqs {
            ExclusiveCqs::Same(cq) => is(cq, &self.send_cq) && is(cq, &self.recv_cq),
            ExclusiveCqs::Two { send, recv } => is(send, &self.send_cq) && is(recv, &self.recv_cq),
        };
        if !fits {
            return invalid("not the CQs of this queue pair");
        }
        self.check_alive()?;
        self.dev().exec(&Qp2Rst { qpn: self.qpn })?;
        let index = self.work.index.get();
        match cqs {
            ExclusiveCqs::Same(cq) => cq.drop_entries(index, &self.work),
            ExclusiveCqs::Two { send, recv } => {
                send.drop_entries(index, &self.work);
                recv.drop_entries(index, &self.work);
            }
        }
        self.work.queues.iter().for_each(super::work::Outstanding::reset);
        (self.sq_posted, self.sq_announced, self.rq_posted) = (0, 0, 0);
        if let Some(record) = self.dbrec() {
            record.set_receive(0);
            record.set_send(0);
        }
        self.attr = QpAttr { cap: self.geometry.cap, ..QpAttr::default() };
        self.state = QpState::Reset;
        Ok(())
    }
}

/// The attributes in force, with the given ones replaced.
fn merge(old: &QpAttr, new: &QpAttr, mask: QpAttrMask) -> QpAttr {
    use QpAttrMask as M;
    let mut out = *old;
    macro_rules! take {
        ($($bit:ident => $field:ident),* $(,)?) => { $(if mask.contains(M::$bit) { out.$field = new.$field; })* };
    }
    take!(
        STATE => qp_state, ACCESS_FLAGS => qp_access_flags, PKEY_INDEX => pkey_index, PORT => port_num, AV => ah_attr,
        PATH_MTU => path_mtu, TIMEOUT => timeout, RETRY_CNT => retry_cnt, RNR_RETRY => rnr_retry, RQ_PSN => rq_psn,
        MAX_QP_RD_ATOMIC => max_rd_atomic, MIN_RNR_TIMER => min_rnr_timer, SQ_PSN => sq_psn,
        MAX_DEST_RD_ATOMIC => max_dest_rd_atomic, DEST_QPN => dest_qp_num, QKEY => qkey,
    );
    out
}

/// What the peer may do: no reads and atomics while there is no room for any, as in Linux.
fn access_in_force(attr: &QpAttr) -> AccessFlags {
    match attr.max_dest_rd_atomic {
        0 => attr.qp_access_flags & AccessFlags::REMOTE_WRITE,
        _ => attr.qp_access_flags,
    }
}

/// The optional parameters that all transports have.
fn optional(given: QpAttrMask) -> u32 {
    let when = |mask, param: OptParam| if given.contains(mask) { param.0 } else { 0 };
    when(QpAttrMask::PKEY_INDEX, OptParam::PKEY_INDEX) | when(QpAttrMask::QKEY, OptParam::Q_KEY)
}

/// Context of a datagram queue pair's transition, and which of its optional parameters count. A datagram is one packet, of
/// whatever size the port lets through: Linux names the largest.
fn datagrams(attr: &QpAttr, given: QpAttrMask, to: QpState) -> (Qpc, u32) {
    let qpc = Qpc::new().with_pm_state(PmState::MIGRATED.0.into()).with_q_key(attr.qkey);
    let qpc = match to {
        QpState::Init => qpc.with_primary_address_path(port(attr)),
        QpState::Rtr => qpc
            .with_mtu(Mtu::B4096 as u32)
            .with_log_msg_max(LOG_DATAGRAM)
            .with_primary_address_path(Ads::new().with_pkey_index(attr.pkey_index.into())),
        _ => qpc.with_next_send_psn(attr.sq_psn),
    };
    (qpc, optional(given))
}

/// Where a queue pair's packets leave, and with which partition key.
fn port(attr: &QpAttr) -> Ads {
    Ads::new().with_pkey_index(attr.pkey_index.into()).with_vhca_port_num(attr.port_num.into())
}

/// What each transition's context says of a connection: how to run, and what the peer may do.
fn base(access: AccessFlags, atomic_mode: Option<AtomicMode>) -> Result<Qpc, Error> {
    let qpc = Qpc::new()
        .with_pm_state(PmState::MIGRATED.0.into())
        .with_log_ack_req_freq(LOG_ACK_REQ_FREQ)
        .with_rre(access.contains(AccessFlags::REMOTE_READ))
        .with_rwe(access.contains(AccessFlags::REMOTE_WRITE));
    match atomic_mode {
        _ if !access.contains(AccessFlags::REMOTE_ATOMIC) => Ok(qpc),
        Some(mode) => Ok(qpc.with_rae(true).with_atomic_mode(mode.0.into())),
        None => Err(Error::Unsupported { what: "atomics" }),
    }
}

/// Refuses values out of range.
fn check(attr: &QpAttr, given: QpAttrMask, limits: &Limits) -> Result<(), Error> {
    use QpAttrMask as M;
    let port = |n: u8| n != 0 && u32::from(n) <= limits.ports;
    let wrong = [
        (M::ACCESS_FLAGS, !AccessFlags::all().contains(attr.qp_access_flags), "unknown bit in qp_access_flags"),
        (M::PORT, !port(attr.port_num), "port_num is not a port of the device"),
        (M::RQ_PSN, attr.rq_psn >> 24 != 0, "rq_psn has more than 24 bits"),
        (M::SQ_PSN, attr.sq_psn >> 24 != 0, "sq_psn has more than 24 bits"),
        (M::DEST_QPN, attr.dest_qp_num >> 24 != 0, "dest_qp_num has more than 24 bits"),
        (M::TIMEOUT, attr.timeout > 31, "timeout is more than 31"),
        (M::RETRY_CNT, attr.retry_cnt > 7, "retry_cnt is more than 7"),
        (M::RNR_RETRY, attr.rnr_retry > 7, "rnr_retry is more than 7"),
        (M::MIN_RNR_TIMER, attr.min_rnr_timer > 31, "min_rnr_timer is more than 31"),
        (
            M::MAX_QP_RD_ATOMIC,
            u32::from(attr.max_rd_atomic) > 1 << limits.log_max_ra_req,
            "max_rd_atomic is more than the device's",
        ),
        (
            M::MAX_DEST_RD_ATOMIC,
            u32::from(attr.max_dest_rd_atomic) > 1 << limits.log_max_ra_res,
            "max_dest_rd_atomic is more than the device's",
        ),
    ];
    for (bit, is_wrong, what) in wrong {
        if given.contains(bit) && is_wrong {
            return invalid(what);
        }
    }
    if given.contains(M::AV) { attr.ah_attr.check(attr.port_num, limits) } else { Ok(()) }
}

/// The path as the device takes it (PRM `ads`).
fn path(attr: &QpAttr, qpn: u32, ethernet: bool) -> Ads {
    let ah = &attr.ah_attr;
    if ah.force_loopback {
        let ads = port(attr).with_fl(true);
        return if ethernet { ads.with_eth_prio(ah.sl.into()) } else { ads.with_sl(ah.sl.into()) };
    }
    let mut ads = Ads::new()
        .with_pkey_index(attr.pkey_index.into())
        .with_stat_rate(ah.static_rate.into())
        .with_vhca_port_num(attr.port_num.into());
    if let Some(grh) = &ah.grh {
        ads = ads
            .with_src_addr_index(grh.sgid_index.into())
            .with_hop_limit(grh.hop_limit.into())
            .with_tclass(grh.traffic_class.into())
            .with_flow_label(grh.flow_label);
        for (i, byte) in grh.dgid.into_iter().enumerate() {
            ads.set_rgid_rip(i, byte.into());
        }
    }
    if ethernet {
        let [a, b, c, d, e, f] = ah.mac().unwrap_or_default();
        let (label, class) = ah.grh.map_or((0, 0), |grh| (grh.flow_label, grh.traffic_class));
        ads.with_rmac_47_32(u16::from_be_bytes([a, b]).into())
            .with_rmac_31_0(u32::from_be_bytes([c, d, e, f]))
            .with_udp_sport(udp_source_port(flow(label, qpn, attr.dest_qp_num)))
            .with_eth_prio(ah.sl.into())
            .with_dscp(u32::from(class >> 2))
    } else {
        ads.with_grh(ah.grh.is_some())
            .with_rlid(ah.dlid.into())
            .with_mlid(ah.src_path_bits.into())
            .with_sl(ah.sl.into())
    }
}

/// What stands for the flow of a connection: its flow label or, without one, the two queue pair numbers, of which both ends
/// make the same.
fn flow(flow_label: u32, local: u32, remote: u32) -> u32 {
    if flow_label != 0 {
        return flow_label;
    }
    let product = u64::from(local) * u64::from(remote);
    (product ^ product >> 20 ^ product >> 40) as u32 & 0xf_ffff
}

/// `log2`, rounded up, so that the peer can have as many requests outstanding as it was promised; 0 for 0.
fn log_ceil(n: u8) -> u32 {
    u32::from(n).next_power_of_two().ilog2()
}

/// `log2`, rounded down, so that no more requests are outstanding than the peer has promised to take; 0 for 0.
fn log_floor(n: u8) -> u32 {
    n.checked_ilog2().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Modes as the headers number them: `MLX5_ATOMIC_MODE_IB_COMP`, `_8B`, `_16B`.
    #[test]
    fn the_peers_atomics_are_of_the_devices_mode() {
        for mode in [1, 3, 4] {
            let context = |access| base(access, Some(AtomicMode(mode))).map(|qpc| (qpc.rae(), qpc.atomic_mode()));
            assert_eq!(context(AccessFlags::REMOTE_ATOMIC), Ok((true, u32::from(mode))));
            assert_eq!(context(AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE), Ok((false, 0)));
        }
    }

    /// As Linux's vfio driver for migration sets up its own connection (`mlx5vf_activate_qp`): the port and the bit, no address.
    #[test]
    fn a_path_that_is_forced_back_has_no_address() {
        let grh = Some(crate::ah::GlobalRoute { dgid: [7; 16], flow_label: 5, hop_limit: 9, ..Default::default() });
        let (dlid, dmac, force_loopback) = (0x77, [2; 6], true);
        let ah_attr =
            crate::ah::AhAttr { grh, dlid, dmac, static_rate: 3, sl: 6, force_loopback, ..Default::default() };
        let attr = QpAttr { ah_attr, port_num: 1, pkey_index: 4, dest_qp_num: 9, ..QpAttr::default() };
        for ethernet in [true, false] {
            let ads = Ads::new().with_fl(true).with_pkey_index(4).with_vhca_port_num(1);
            let ads = if ethernet { ads.with_eth_prio(6) } else { ads.with_sl(6) };
            assert_eq!(path(&attr, 8, ethernet), ads);
        }
    }

    #[test]
    fn source_ports_are_dynamic_ports() {
        for (label, local, remote) in [(0, 0, 0), (0, 0xff_ffff, 0xff_ffff), (0xf_ffff, 1, 2), (0, 0x4d, 0x4e)] {
            let port = udp_source_port(flow(label, local, remote));
            assert!((0xc000..=0xffff).contains(&port), "{port:#x}");
        }
        assert_eq!(flow(0, 0x4d, 0x4e), flow(0, 0x4e, 0x4d), "both ends agree");
    }
}
