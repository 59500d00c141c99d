//! Queue pairs: creation, the state machine, destruction.

use super::Reject;
use super::ring::{check_buffer, check_record};
use crate::bytes::{be24, be32, bits, put_bits, put64};
use crate::data;
use crate::device::Device;
use crate::objects::{Qp, QpState, ScatterToCqe, TS_REAL_TIME};

type Done = Result<(), Reject>;

/// Ranges of bits of a context: first bit, bits.
type Fields = &'static [(usize, usize)];

/// Bytes before the queue pair's context in the commands that carry one, and behind its end.
const CONTEXT: core::ops::Range<usize> = 0x18..0x100;

/// Service type RC.
const RC: u8 = 0;
/// `rq_type`: an own receive queue; none.
const RQ_OWN: u8 = 0;
const RQ_NONE: u8 = 3;
/// `pm_state` migrated: there is no alternate path.
const MIGRATED: u64 = 3;

/// Bits of `opt_param_mask` that a transition may name, with what they cover.
const OPT_ACCESS: [(u32, Fields); 3] = [
    (1 << 1, &[(0x92 * 8, 1)]),                        // RRE
    (1 << 2, &[(0x92 * 8 + 2, 1), (0x91 * 8 + 4, 4)]), // RAE, with atomic_mode
    (1 << 3, &[(0x92 * 8 + 1, 1)]),                    // RWE
];
const OPT_PKEY: (u32, Fields) = (1 << 4, &[(0x1a * 8, 16)]);
const OPT_RNR_TIMEOUT: (u32, Fields) = (1 << 6, &[(0x94 * 8 + 3, 5)]);
const OPT_PM_STATE: (u32, Fields) = (1 << 10, &[(2 * 8 + 3, 2)]);
const OPT_LAG: (u32, Fields) = (1 << 15, &[(4, 4)]);
const OPT_COUNTER_SET: (u32, Fields) = (1 << 25, &[(0xc * 8, 8)]);

/// What RST2INIT takes: pm_state, pkey_index, vhca_port_num, rre, rwe, rae and atomic_mode.
const INIT_FIELDS: Fields = &[(2 * 8 + 3, 2), (0x1a * 8, 16), (0x3d * 8, 8), (0x91 * 8 + 4, 4), (0x92 * 8, 3)];
/// What INIT2RTR takes: mtu and log_msg_max, remote_qpn, the primary path, log_rra_max, min_rnr_nak, next_rcv_psn. The
/// partition key and the port were told before.
const RTR_FIELDS: Fields = &[
    (0x8 * 8, 8),
    (0x15 * 8, 24),
    (0x18 * 8, 16),
    (0x1c * 8, 33 * 8),
    (0x3e * 8, 6 * 8),
    (0x91 * 8, 3),
    (0x94 * 8 + 3, 5),
    (0x95 * 8, 24),
];
/// What RTR2RTS takes: log_ack_req_freq, log_sra_max, retry_count, rnr_retry, next_send_psn, ack_timeout.
const RTS_FIELDS: Fields =
    &[(0x20 * 8, 5), (0x70 * 8, 4), (0x71 * 8, 3), (0x71 * 8 + 5, 3), (0x72 * 8, 3), (0x79 * 8, 24)];

pub(super) fn create(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    let qp = Qp::decode(&input[CONTEXT], &input[0x110..]);
    check(dev, &qp)?;
    check_buffer(dev, &qp.buffer, input.len() - 0x110, qp.rq_bytes() + qp.sq_bytes())?;
    check_record(dev, qp.dbr_addr)?;
    let qpn = dev.objects.free_qp(1 << dev.hca.caps.current("log_max_qp")).ok_or(Reject::NoQp)?;
    dev.objects.qps.insert(qpn, qp);
    put_bits(output, 0x9 * 8, 24, qpn.into());
    Ok(())
}

fn check(dev: &Device, qp: &Qp) -> Done {
    let caps = &dev.hca.caps;
    if qp.st != RC {
        return Err(Reject::QpService);
    }
    if qp.rq_type != RQ_OWN && qp.rq_type != RQ_NONE {
        return Err(Reject::QpReceiveType);
    }
    if !dev.objects.pds.contains(&qp.pd) {
        return Err(Reject::QpPd);
    }
    if !dev.objects.cqs.contains_key(&qp.cqn_send) {
        return Err(Reject::QpSendCq);
    }
    if !dev.objects.cqs.contains_key(&qp.cqn_recv) {
        return Err(Reject::QpRecvCq);
    }
    if !dev.objects.uars.contains(&qp.uar) {
        return Err(Reject::QpUar);
    }
    let most = caps.current("log_max_qp_sz") as u32;
    if (qp.has_rq() && qp.log_rq_size > most) || (!qp.no_sq && qp.log_sq_size > most) {
        return Err(Reject::QpSize);
    }
    if qp.has_rq() && u64::from(qp.rq_stride) > caps.current("max_wqe_sz_rq") {
        return Err(Reject::QpStride);
    }
    if caps.current("cqe_version") == 1 && qp.user_index == 0xff_ffff {
        return Err(Reject::QpUserIndex);
    }
    check_clock(dev, qp)?;
    check_scatter_to_cqe(dev, qp.scatter_req, qp.cqn_send)?;
    check_scatter_to_cqe(dev, qp.scatter_res, qp.cqn_recv)?;
    check_path_state(qp)
}

/// The clock of the time stamps. A queue in real time takes completions in real time only; others take both, since Linux sets
/// the format of queue pairs and leaves that of completion queues alone.
fn check_clock(dev: &Device, qp: &Qp) -> Done {
    if qp.ts_format() > TS_REAL_TIME {
        return Err(Reject::QpTimestamp);
    }
    if qp.real_time() {
        return if dev.hca.caps.real_time_qps() { Ok(()) } else { Err(Reject::QpRealTime) };
    }
    let wants_real_time = |cqn| dev.objects.cqs.get(&cqn).is_some_and(|cq| cq.real_time);
    if wants_real_time(qp.cqn_send) || wants_real_time(qp.cqn_recv) { Err(Reject::QpClock) } else { Ok(()) }
}

/// 64 bytes of data need entries of 128: Linux chooses the size of the data by that of the entries.
fn check_scatter_to_cqe(dev: &Device, wish: ScatterToCqe, cqn: u32) -> Done {
    if wish == ScatterToCqe::Unknown {
        return Err(Reject::QpScatter);
    }
    if wish != ScatterToCqe::Off && dev.hca.caps.current("sctr_data_cqe") == 0 {
        return Err(Reject::QpScatterCapability);
    }
    let small = dev.objects.cqs.get(&cqn).is_some_and(|cq| cq.entry_size < 128);
    if wish == ScatterToCqe::Data64 && small { Err(Reject::QpScatterEntry) } else { Ok(()) }
}

fn check_path_state(qp: &Qp) -> Done {
    let pm_state = bits(&qp.context, 2 * 8 + 3, 2);
    if pm_state == MIGRATED { Ok(()) } else { Err(Reject::QpMigration) }
}

fn find(dev: &Device, input: &[u8]) -> Result<(u32, Qp), Reject> {
    let qpn = be24(input, 0x9);
    dev.objects.qps.get(&qpn).map(|qp| (qpn, qp.clone())).ok_or(Reject::QpUnknown)
}

/// Merges what a transition takes from the command's context into the queue pair's.
fn merge(qp: &mut Qp, input: &[u8], fields: Fields, optional: &[(u32, Fields)]) -> Done {
    let mask = be32(input, 0x10);
    let known = optional.iter().fold(0, |all, (bit, _)| all | bit);
    if mask & !known != 0 {
        return Err(Reject::QpOptional);
    }
    let named = optional.iter().filter(|(bit, _)| mask & bit != 0).flat_map(|(_, fields)| *fields);
    let context = &input[CONTEXT];
    qp.context = qp.encode();
    for (at, width) in fields.iter().chain(named) {
        for bit in *at..at + width {
            put_bits(&mut qp.context, bit, 1, bits(context, bit, 1));
        }
    }
    qp.refresh();
    Ok(())
}

fn step(dev: &mut Device, qpn: u32, mut qp: Qp, to: QpState) {
    qp.state = to;
    dev.objects.qps.insert(qpn, qp);
    data::qp_moved(dev, qpn);
}

pub(super) fn rst2init(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    let (qpn, mut qp) = find(dev, input)?;
    if qp.state != QpState::Reset {
        return Err(Reject::QpState);
    }
    merge(
        &mut qp,
        input,
        INIT_FIELDS,
        &[OPT_ACCESS[0], OPT_ACCESS[1], OPT_ACCESS[2], OPT_PKEY, OPT_LAG, OPT_COUNTER_SET],
    )?;
    check_path_state(&qp)?;
    if u64::from(qp.path.port) > dev.hca.caps.current("num_ports") {
        return Err(Reject::QpPort);
    }
    step(dev, qpn, qp, QpState::Init);
    Ok(())
}

pub(super) fn init2rtr(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    let (qpn, mut qp) = find(dev, input)?;
    if qp.state != QpState::Init {
        return Err(Reject::QpState);
    }
    merge(
        &mut qp,
        input,
        RTR_FIELDS,
        &[OPT_ACCESS[0], OPT_ACCESS[1], OPT_ACCESS[2], OPT_PKEY, OPT_LAG, OPT_RNR_TIMEOUT],
    )?;
    if !(1..=5).contains(&qp.mtu) {
        return Err(Reject::QpMtu);
    }
    if u64::from(qp.log_msg_max) > dev.hca.caps.current("log_max_msg") {
        return Err(Reject::QpMessageSize);
    }
    if u64::from(qp.log_rra_max) > dev.hca.caps.current("log_max_ra_res_qp") {
        return Err(Reject::QpResponderDepth);
    }
    let address = dev.hca.roce_addresses.get(usize::from(qp.path.source_index));
    if dev.hca.caps.current("roce") == 1 && !address.is_some_and(|a| a.iter().any(|byte| *byte != 0)) {
        return Err(Reject::QpSourceAddress);
    }
    step(dev, qpn, qp, QpState::Rtr);
    Ok(())
}

pub(super) fn rtr2rts(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    let (qpn, mut qp) = find(dev, input)?;
    if qp.state != QpState::Rtr {
        return Err(Reject::QpState);
    }
    let optional = [OPT_ACCESS[0], OPT_ACCESS[1], OPT_ACCESS[2], OPT_RNR_TIMEOUT, OPT_PM_STATE, OPT_LAG];
    merge(&mut qp, input, RTS_FIELDS, &optional)?;
    if u64::from(qp.log_sra_max) > dev.hca.caps.current("log_max_ra_req_qp") {
        return Err(Reject::QpRequesterDepth);
    }
    step(dev, qpn, qp, QpState::Rts);
    Ok(())
}

pub(super) fn to_error(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    let (qpn, qp) = find(dev, input)?;
    if qp.state == QpState::Reset {
        return Err(Reject::QpState);
    }
    step(dev, qpn, qp, QpState::Error);
    Ok(())
}

pub(super) fn to_reset(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    let (qpn, qp) = find(dev, input)?;
    step(dev, qpn, qp, QpState::Reset);
    Ok(())
}

pub(super) fn destroy(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    let (qpn, _) = find(dev, input)?;
    data::qp_destroyed(dev, qpn);
    dev.objects.qps.remove(&qpn);
    Ok(())
}

pub(super) fn query(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    let (_, qp) = find(dev, input)?;
    output[CONTEXT].copy_from_slice(&qp.encode());
    // The page list, as far as there is room.
    for (index, page) in qp.buffer.pages.iter().enumerate() {
        put64(output, 0x110 + 8 * index, *page);
    }
    Ok(())
}
