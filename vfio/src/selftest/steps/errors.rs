//! Requests that have to fail, each in its way, and what stands behind them.

use mlx5::{QpState, WcStatus, WrOpcode, ibv};

use super::{Step, step};
use crate::selftest::bench::{Bench, Pair, RETRIES, Setup};
use crate::selftest::outcome::{Doing, Done, Trouble, ensure};

/// Bytes of the message that fails.
const LENGTH: usize = 64;
/// What a key is made wrong with.
const WRONG: u32 = 0x0055_5500;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    LocalKey,
    RemoteKey,
    ShortReceive,
    NoReceive,
    NoPeer,
}

/// Cause, name, what it shows, and the status that the request has to have.
const CAUSES: [(Cause, &str, &str, WcStatus); 5] = [
    (Cause::LocalKey, "error-local-key", "a local key that does not exist", WcStatus::LOC_PROT_ERR),
    (Cause::RemoteKey, "error-remote-key", "a remote key that does not exist", WcStatus::REM_ACCESS_ERR),
    (Cause::ShortReceive, "error-short-receive", "a receive that is too short", WcStatus::REM_INV_REQ_ERR),
    (Cause::NoReceive, "error-no-receive", "a peer without a receive (RNR)", WcStatus::RNR_RETRY_EXC_ERR),
    (Cause::NoPeer, "error-no-peer", "a peer that does not answer (retries)", WcStatus::RETRY_EXC_ERR),
];

pub(super) fn steps() -> Vec<Step> {
    let one = |(cause, name, shows, status): (Cause, &str, &str, WcStatus)| {
        step(name, format!("{shows}: {status}, what is behind it is flushed"), &[], move |bench: &Bench<'_>| {
            fails(bench, cause, status)
        })
    };
    CAUSES.into_iter().map(one).collect()
}

fn fails(bench: &Bench<'_>, cause: Cause, right: WcStatus) -> Done {
    let setup = Setup {
        answers: cause != Cause::NoPeer,
        change: |attr| (attr.retry_cnt, attr.timeout, attr.rnr_retry) = (1, 10, 1),
        ..Setup::default()
    };
    bench.with_plain_cqs(&setup, |pair| {
        post(pair, cause)?;
        let wcs = bench.poll(&mut pair.cq[0], 2, RETRIES)?;
        let says: Vec<_> = wcs.iter().map(|wc| (wc.wr_id, wc.status)).collect();
        let all = [(1, right), (2, WcStatus::WR_FLUSH_ERR)];
        ensure(says == all, || format!("the completions are {says:?}, and {all:?} are right"))?;
        if cause == Cause::ShortReceive {
            receive_fails(bench, pair)?;
        }
        let state = ibv::query_qp(&pair.qp[0]).doing("asking for the queue pair's state")?.qp_state;
        ensure(state == QpState::Err, || format!("the queue pair is in state {state:?}, not in error"))?;
        let vendor = wcs.first().map_or(0, |wc| wc.vendor_err);
        Ok(format!("{right}, vendor error {vendor:#x}"))
    })
}

/// The request that fails, and one behind it.
fn post(pair: &mut Pair, cause: Cause) -> Result<(), Trouble> {
    let (mut from, mut remote) = (pair.sge(0, 0, LENGTH), pair.remote(0));
    let mut opcode = WrOpcode::Send;
    match cause {
        Cause::LocalKey => from.lkey ^= WRONG,
        Cause::RemoteKey => {
            remote.rkey ^= WRONG;
            opcode = WrOpcode::RdmaWrite { remote };
        }
        Cause::ShortReceive => pair.receive(1, &[pair.sge(1, 0, LENGTH - 1)])?,
        Cause::NoReceive | Cause::NoPeer => {}
    }
    pair.post(1, opcode, &[from])?;
    pair.post(2, WrOpcode::Send, &[])
}

/// The receive that was too short says so.
fn receive_fails(bench: &Bench<'_>, pair: &mut Pair) -> Result<(), Trouble> {
    for wc in bench.poll(&mut pair.cq[1], 1, bench.rig.patience())? {
        let (says, right) = (wc.status, WcStatus::LOC_LEN_ERR);
        ensure(says == right, || format!("the receive ended with {says}, and {right} is right"))?;
    }
    Ok(())
}
