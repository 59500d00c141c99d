//! Queue pairs: creation, the state machine, destruction.

use super::qp_fields::{self, Taken};
use super::ring::{check_buffer, check_record};
use super::{Reject, hca_vport};
use crate::bytes::{be24, be32, bits, put_bits, put64};
use crate::data;
use crate::device::Device;
use crate::objects::{Qp, QpState, ScatterToCqe, Service, TS_REAL_TIME};

type Done = Result<(), Reject>;

/// Bytes before the queue pair's context in the commands that carry one, and behind its end.
const CONTEXT: core::ops::Range<usize> = 0x18..0x100;

/// `rq_type`: an own receive queue; a shared one; none.
const RQ_OWN: u8 = 0;
const RQ_SHARED: u8 = 1;
const RQ_NONE: u8 = 3;
/// `pm_state` migrated: there is no alternate path.
const MIGRATED: u64 = 3;

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
    let service = qp.service().ok_or(Reject::QpService)?;
    if !matches!(qp.rq_type, RQ_OWN | RQ_SHARED | RQ_NONE) {
        return Err(Reject::QpReceiveType);
    }
    if qp.shared().is_some_and(|rmpn| !dev.objects.rmps.contains_key(&rmpn)) {
        return Err(Reject::QpRmp);
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
    check_scatter_service(qp, service)?;
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

/// Only reliable connections have answers, and the header in front of a datagram has no place in a completion: Linux asks
/// for neither.
fn check_scatter_service(qp: &Qp, service: Service) -> Done {
    let answers = qp.scatter_req == ScatterToCqe::Off || service == Service::Rc;
    let messages = qp.scatter_res == ScatterToCqe::Off || service != Service::Ud;
    if answers && messages { Ok(()) } else { Err(Reject::QpScatterService) }
}

fn check_path_state(qp: &Qp) -> Done {
    let pm_state = bits(&qp.context, 2 * 8 + 3, 2);
    if pm_state == MIGRATED { Ok(()) } else { Err(Reject::QpMigration) }
}

/// The queue pair that a transition concerns, which must be in state `from`, and its transport.
fn find_in(dev: &Device, input: &[u8], from: QpState) -> Result<(u32, Qp, Service), Reject> {
    let (qpn, qp) = find(dev, input)?;
    let service = qp.service().ok_or(Reject::QpService)?;
    if qp.state == from { Ok((qpn, qp, service)) } else { Err(Reject::QpState) }
}

fn find(dev: &Device, input: &[u8]) -> Result<(u32, Qp), Reject> {
    let qpn = be24(input, 0x9);
    dev.objects.qps.get(&qpn).map(|qp| (qpn, qp.clone())).ok_or(Reject::QpUnknown)
}

/// Merges what a transition takes from the command's context into the queue pair's.
fn merge(qp: &mut Qp, input: &[u8], Taken { always, named }: Taken) -> Done {
    let mask = be32(input, 0x10);
    let known = named.iter().fold(0, |all, (bit, _)| all | bit);
    if mask & !known != 0 {
        return Err(Reject::QpOptional);
    }
    let named = named.iter().filter(|(bit, _)| mask & bit != 0).flat_map(|(_, fields)| *fields);
    let context = &input[CONTEXT];
    qp.context = qp.encode();
    for (at, width) in always.iter().chain(named) {
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
    let (qpn, mut qp, service) = find_in(dev, input, QpState::Reset)?;
    merge(&mut qp, input, qp_fields::init(service))?;
    check_path_state(&qp)?;
    if u64::from(qp.path.port) > dev.hca.caps.current("num_ports") {
        return Err(Reject::QpPort);
    }
    if usize::from(qp.path.pkey_index) >= hca_vport::PKEYS << dev.hca.caps.current("pkey_table_size") {
        return Err(Reject::QpPkey);
    }
    step(dev, qpn, qp, QpState::Init);
    Ok(())
}

pub(super) fn init2rtr(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    let (qpn, mut qp, service) = find_in(dev, input, QpState::Init)?;
    merge(&mut qp, input, qp_fields::rtr(service))?;
    if !(1..=5).contains(&qp.mtu) {
        return Err(Reject::QpMtu);
    }
    if u64::from(qp.log_msg_max) > dev.hca.caps.current("log_max_msg") {
        return Err(Reject::QpMessageSize);
    }
    if u64::from(qp.log_rra_max) > dev.hca.caps.current("log_max_ra_res_qp") {
        return Err(Reject::QpResponderDepth);
    }
    let forced = qp.path.force_loopback && service != Service::Ud;
    if forced && !dev.hca.may_force_loopback(service == Service::Rc) {
        return Err(Reject::QpForceLoopback);
    }
    let address = dev.hca.roce_addresses.get(usize::from(qp.path.source_index));
    let addressed = service == Service::Ud || forced || address.is_some_and(|a| a.iter().any(|byte| *byte != 0));
    if dev.hca.caps.current("roce") == 1 && !addressed {
        return Err(Reject::QpSourceAddress);
    }
    step(dev, qpn, qp, QpState::Rtr);
    Ok(())
}

pub(super) fn rtr2rts(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    let (qpn, mut qp, service) = find_in(dev, input, QpState::Rtr)?;
    merge(&mut qp, input, qp_fields::rts(service))?;
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
