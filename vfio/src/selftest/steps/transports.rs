//! Operations and transports.

use mlx5::{
    AccessFlags, AsyncEvent, AtomicCap, Pd, RecvWr, Remote, SrqAttr, SrqAttrMask, SrqInitAttr, WcFlags, WcOpcode,
    WrOpcode, ibv,
};

use super::device::need;
use super::entries::trips;
use super::{Step, step};
use crate::cq::Attributes;
use crate::selftest::bench::{Bench, Pair, REMOTE, Setup, pattern};
use crate::selftest::need::{Missing, Need, Page, Wants};
use crate::selftest::outcome::{Doing, Done, Trouble, ensure, wrong};
use crate::traffic::{Plan, Transport};

/// Round trips of a kind of traffic.
const TRIPS: u64 = 32;
/// Bytes of a message of many packets.
const LONG: u32 = 256 << 10;
/// Lengths of what is written and read.
const LENGTHS: [usize; 5] = [1, 63, 64, 1025, 20_000];

/// Messages as they are but for what a step changes.
fn messages() -> Plan {
    Plan { iters: TRIPS, size: 200, varied: true, seed: 3, numbered: true, ..Plan::default() }
}

fn attributes(cqe_size: u16) -> Attributes {
    Attributes { cqe: 31, cqe_size: Some(cqe_size), ..Attributes::default() }
}

/// Messages over a reliable connection.
pub(super) fn plain(bench: &Bench<'_>) -> Done {
    trips(bench, &attributes(64), &messages())
}

pub(super) fn steps() -> Vec<Step> {
    let plain = messages();
    let traffic = |name: &str, shows: &str, needs: &[Need], cqe_size: u16, plan: Plan| {
        // Data lies where other fields would.
        let fields = plan.scatter_to_cqe.then_some((WcFlags::BYTE_LEN | WcFlags::IMM | WcFlags::QP_NUM).bits());
        let attributes = Attributes { wc_flags: fields, ..attributes(cqe_size) };
        step(name, shows, needs, move |bench| trips(bench, &attributes, &plan))
    };
    let inline = |size| Plan { size, varied: false, ..plain };
    let in_cqe = |size| Plan { scatter_to_cqe: true, ..inline(size) };
    let scatter = [Need::bit("sctr_data_cqe")];
    let srqs = [Need::bit("log_max_srq"), Need::bit("log_max_srq_sz")];
    let long = Plan { iters: 4, varied: false, size: LONG, ..plain };
    vec![
        traffic("rc", "reliable connections", &[], 64, plain),
        traffic("rc-long", "messages of many packets", &[], 64, long),
        traffic("rc-inline-send", "payloads within the work request", &[], 64, inline(40)),
        traffic("rc-inline-cqe-64", "payloads within completions of 64 bytes", &scatter, 64, in_cqe(32)),
        traffic("rc-inline-cqe-128", "payloads within completions of 128 bytes", &scatter, 128, in_cqe(64)),
        step("rc-rdma", "RDMA writes, with and without immediate data, and reads", &[], rdma),
        step("rc-atomics", "compare and swap, fetch and add", &atomic_needs(), atomics),
        step("uc", "unreliable connections", &[], |bench: &Bench<'_>| unreliable(bench, Transport::Uc)),
        step("ud", "datagrams", &[], |bench: &Bench<'_>| unreliable(bench, Transport::Ud)),
        traffic("srq", "both ends receive from one shared queue", &srqs, 64, Plan { shared: true, ..plain }),
        step("srq-limit", "an event tells that a shared receive queue runs empty", &srqs, srq_limit),
    ]
}

/// Messages of a transport that tells nobody what it loses: only reliable connections are sure to come back without RoCE and
/// without a link.
fn unreliable(bench: &Bench<'_>, transport: Transport) -> Done {
    let info = bench.device.info();
    if info.ethernet {
        need(bench, Need::bit("roce"))?;
    }
    match trips(bench, &attributes(64), &Plan { transport, ..messages() }) {
        Err(Trouble::Wrong(why)) if !info.port_up => {
            bench.alive()?;
            Err(Trouble::NotOffered(Missing::Other(format!("the port is down: {why}"))))
        }
        done => done,
    }
}

/// Fails unless the one completion of end 0 is of this operation.
fn completes(bench: &Bench<'_>, pair: &mut Pair, wr_id: u64, right: WcOpcode) -> Result<(), Trouble> {
    let wcs = bench.succeed(&mut pair.cq[0], wr_id..wr_id + 1)?;
    let wrong_one = wcs.iter().find(|wc| wc.opcode != right);
    wrong_one.map_or(Ok(()), |wc| wrong(format!("the completion of {right} says {}", wc.opcode)))
}

fn rdma(bench: &Bench<'_>) -> Done {
    bench.with_plain_cqs(&Setup::default(), |pair| {
        for (i, length) in LENGTHS.into_iter().enumerate() {
            let (wr_id, data) = (3 * i as u64, pattern(i as u64, length));
            pair.buf[0].write(i, &data).doing("writing to a buffer")?;
            pair.post(wr_id, WrOpcode::RdmaWrite { remote: pair.remote(7 * i) }, &[pair.sge(0, i, length)])?;
            completes(bench, pair, wr_id, WcOpcode::RDMA_WRITE)?;
            pair.holds(1, 7 * i, &data)?;
            pair.receive(wr_id + 1, &[])?;
            let (remote, imm) = (pair.remote(30_000), wr_id as u32 | 0x0102_0300);
            let with_imm = WrOpcode::RdmaWriteWithImm { remote, imm_data: imm.to_be() };
            pair.post(wr_id + 1, with_imm, &[pair.sge(0, i, length)])?;
            completes(bench, pair, wr_id + 1, WcOpcode::RDMA_WRITE)?;
            for wc in bench.succeed(&mut pair.cq[1], wr_id + 1..wr_id + 2)? {
                let says = (wc.opcode, wc.byte_len as usize, wc.imm());
                let right = (WcOpcode::RECV_RDMA_WITH_IMM, length, Some(imm));
                ensure(says == right, || format!("the peer's completion says {says:?}, not {right:?}"))?;
            }
            pair.holds(1, 30_000, &data)?;
            pair.post(wr_id + 2, WrOpcode::RdmaRead { remote: pair.remote(30_000) }, &[pair.sge(0, 40_000, length)])?;
            completes(bench, pair, wr_id + 2, WcOpcode::RDMA_READ)?;
            pair.holds(0, 40_000, &data)?;
        }
        Ok(format!("{LENGTHS:?} bytes"))
    })
}

/// As Linux decides whether there are atomics: both operations, on 8 bytes, with answers in the host's byte order.
fn atomic_needs() -> [Need; 4] {
    [
        Need::bit("atomic"),
        Need::of(Page::Atomic, "atomic_operations", Wants::Bits(0x3)),
        Need::of(Page::Atomic, "atomic_size_qp", Wants::Bits(0x8)),
        Need::of(Page::Atomic, "atomic_req_8B_endianness_mode", Wants::Least(1)),
    ]
}

fn atomics(bench: &Bench<'_>) -> Done {
    ensure(ibv::query_device(bench.device).atomic_cap != AtomicCap::None, || "the library offers no atomics".into())?;
    let start = 0x0102_0304_0506_0708_u64;
    let cas = |compare, swap| move |remote| WrOpcode::AtomicCmpAndSwp { remote, compare, swap };
    let add = |add| move |remote| WrOpcode::AtomicFetchAndAdd { remote, add };
    type Operation = Box<dyn Fn(Remote) -> WrOpcode>;
    // Operation, what it finds, what it leaves.
    let operations: [(Operation, WcOpcode, u64, u64); 4] = [
        (Box::new(cas(start + 1, 5)), WcOpcode::COMP_SWAP, start, start),
        (Box::new(cas(start, u64::MAX - 1)), WcOpcode::COMP_SWAP, start, u64::MAX - 1),
        (Box::new(add(3)), WcOpcode::FETCH_ADD, u64::MAX - 1, 1),
        (Box::new(add(1 << 63)), WcOpcode::FETCH_ADD, 1, (1 << 63) + 1),
    ];
    let setup = Setup { access: REMOTE | AccessFlags::REMOTE_ATOMIC, ..Setup::default() };
    bench.with_plain_cqs(&setup, |pair| {
        pair.buf[1].write(64, &start.to_ne_bytes()).doing("writing to a buffer")?;
        for (wr_id, (operation, opcode, finds, leaves)) in (0..).zip(operations) {
            pair.post(wr_id, operation(pair.remote(64)), &[pair.sge(0, 8, 8)])?;
            completes(bench, pair, wr_id, opcode)?;
            pair.holds(0, 8, &finds.to_ne_bytes())?;
            pair.holds(1, 64, &leaves.to_ne_bytes())?;
        }
        Ok("on 8 bytes, numbers of the host".into())
    })
}

fn srq_limit(bench: &Bench<'_>) -> Done {
    if bench.device.info().issi == 0 {
        let why =
            "the firmware knows interface version (ISSI) 0 only, which makes shared receive queues in another way";
        return Err(Trouble::NotOffered(Missing::Other(why.into())));
    }
    bench.in_pd(|pd| limit_of(bench, pd))
}

fn limit_of(bench: &Bench<'_>, pd: &Pd) -> Done {
    let attr = SrqAttr { max_wr: 15, max_sge: 1, srq_limit: 0 };
    let mut srq = ibv::create_srq(pd, &mut SrqInitAttr { srq_context: 0, attr }).doing("creating an SRQ")?;
    let requests: Vec<_> = (0..4).map(|wr_id| RecvWr { wr_id, sg_list: &[] }).collect();
    ibv::post_srq_recv(&mut srq, &requests)?;
    let limit = SrqAttr { srq_limit: 3, ..SrqAttr::default() };
    ibv::modify_srq(&srq, &limit, SrqAttrMask::LIMIT).doing("setting an SRQ's limit")?;
    let cqs = bench.cqs(&attributes(64))?;
    let number = ibv::get_srq_num(&srq);
    let setup = Setup { srq: Some(&srq), ..Setup::default() };
    let done = bench.with_pair(pd, cqs, &setup, |pair| {
        for wr_id in 0..2 {
            pair.post(wr_id, WrOpcode::Send, &[])?;
        }
        bench.succeed(&mut pair.cq[0], 0..2)?;
        bench.succeed(&mut pair.cq[1], 0..2)?;
        let what = || format!("the event of SRQ {number:#x} that its limit is reached");
        bench.until(bench.rig.patience(), what, || {
            let event = bench.device.try_get_async_event();
            let ours = |event: &AsyncEvent| matches!(event, AsyncEvent::SrqLimitReached(srq) if srq.number == number);
            Ok(event.filter(ours).map(|_| ()))
        })?;
        Ok("2 of 4 requests taken, limit 3".into())
    })?;
    ibv::destroy_srq(srq).doing("destroying an SRQ")?;
    Ok(done)
}
