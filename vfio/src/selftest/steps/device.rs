//! What the device says of itself.

use std::time::Duration;

use mlx5::{Error, ValuesMask, WcStatus, ibv};

use super::{Step, step};
use crate::selftest::bench::{Bench, RETRIES, Setup};
use crate::selftest::need::{Missing, Need};
use crate::selftest::outcome::{Doing, Done, Trouble, ensure};
use crate::traffic;

/// How long the clock is watched.
const CLOCK: Duration = Duration::from_millis(5);

pub(super) fn steps() -> Vec<Step> {
    let steps = [
        step("capabilities", "what the device offers suffices for a connection", &[], capabilities),
        step("port", "the port answers", &[], port),
        step("clock", "the free-running counter counts", &[], clock),
    ];
    steps.map(|step| Step { connects: false, ..step }).into()
}

/// Sends the port's first message to itself. Whether a port without link delivers it is the device's affair.
pub(super) fn loopback(bench: &Bench<'_>) -> Done {
    let info = bench.device.info();
    let caps = bench.device.caps();
    if info.ethernet && !caps.general.fl_rc_qp_when_roce_disabled() {
        need(bench, Need::bit("roce"))?;
    }
    let setup = Setup { change: |attr| (attr.retry_cnt, attr.timeout) = (3, 12), ..Setup::default() };
    bench.with_plain_cqs(&setup, |pair| {
        pair.send_empty(0..1)?;
        let wcs = bench.poll(&mut pair.cq[0], 1, RETRIES)?;
        let silent = wcs.iter().any(|wc| wc.status == WcStatus::RETRY_EXC_ERR);
        if silent && !info.port_up {
            let why = "the port is down, and the device does not deliver to itself then (RETRY_EXC_ERR)";
            return Err(Trouble::NotOffered(Missing::Other(why.into())));
        }
        for wc in wcs {
            let (status, vendor) = (wc.status, wc.vendor_err);
            ensure(status == WcStatus::SUCCESS, || {
                format!("a send of nothing failed: {status}, vendor error {vendor:#x}")
            })?;
        }
        bench.succeed(&mut pair.cq[1], 0..1)?;
        let forced = traffic::attributes(bench.device, 0).ah_attr.force_loopback;
        let way = if forced { ", forced to loop back" } else { "" };
        Ok(format!("with the port {}{way}", if info.port_up { "up" } else { "down" }))
    })
}

/// Ends a step that the device has not what it takes for.
pub(super) fn need(bench: &Bench<'_>, need: Need) -> Result<(), Trouble> {
    need.missing(bench.device.caps()).map_or(Ok(()), |missing| Err(Trouble::NotOffered(missing)))
}

fn capabilities(bench: &Bench<'_>) -> Done {
    let attr = ibv::query_device(bench.device);
    for (what, has, least) in [
        ("queue pairs", attr.max_qp, 2),
        ("outstanding requests of a queue", attr.max_qp_wr, 16),
        ("pieces of a request", attr.max_sge, 1),
        ("completion queues", attr.max_cq, 2),
        ("entries of a completion queue", attr.max_cqe, 15),
        ("memory regions", attr.max_mr, 2),
        ("protection domains", attr.max_pd, 1),
        ("completion vectors", attr.num_comp_vectors, 1),
    ] {
        ensure(has >= least, || format!("the device has {has} {what}, and a connection takes {least}"))?;
    }
    let sizes = [attr.max_qp, attr.max_qp_wr, attr.max_cq, attr.max_cqe, attr.max_srq, attr.max_mr];
    let [qp, qp_wr, cq, cqe, srq, mr] = sizes;
    Ok(format!("{qp} QPs of {qp_wr} requests, {cq} CQs of {cqe} entries, {srq} SRQs, {mr} MRs"))
}

fn port(bench: &Bench<'_>) -> Done {
    if !bench.device.info().ethernet {
        need(bench, Need::bit("ib_virt"))?;
    }
    let port = ibv::query_port(bench.device, 1).doing("asking for the port's state")?;
    let link = if port.ethernet { "Ethernet" } else { "InfiniBand" };
    let mtu = if port.ethernet { format!(", MTU {}", port.ethernet_mtu) } else { String::new() };
    Ok(format!("{link}, {:?}{mtu}, {} GIDs, messages of up to {} bytes", port.state, port.gid_tbl_len, port.max_msg_sz))
}

/// What the counter shows, if there is one.
pub(super) fn ticks(bench: &Bench<'_>) -> Result<u64, Trouble> {
    match ibv::query_rt_values_ex(bench.device, ValuesMask::RAW_CLOCK) {
        Err(Error::Unsupported { .. }) => Err(Trouble::NotOffered(Missing::Other(
            "cmd_hca_cap.device_frequency_khz and cmd_hca_cap.device_frequency_mhz are 0".into(),
        ))),
        other => Ok(other.doing("reading the counter")?.raw_clock),
    }
}

fn clock(bench: &Bench<'_>) -> Done {
    let (from, start) = (ticks(bench)?, bench.device.now());
    if bench.rig.own_time() {
        std::thread::sleep(CLOCK);
    } else {
        bench.rig.step(CLOCK);
    }
    let (to, end) = (ticks(bench)?, bench.device.now());
    ensure(to > from, || format!("the counter showed {from:#x}, and {} us later {to:#x}", (end - start) / 1000))?;
    let measured = u128::from(to - from) * 1_000_000 / u128::from(end.saturating_sub(start).max(1));
    let stated = ibv::query_device(bench.device).hca_core_clock;
    Ok(format!("{stated} kHz stated, {measured} kHz measured"))
}
