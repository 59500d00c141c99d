//! What completion queues do besides delivering: time stamps, other sizes, moderated events.

use mlx5::dv::ContextFlags;
use mlx5::{
    CqAttrMask, ModerateCq, ModifyCqAttr, PollAttr, PollError, ValuesMask, WcFlags, WcStatus, WrOpcode, dv, ibv,
};

use super::entries::ticks as stamps_with_ticks;
use super::events::{channel, event, on_channel};
use super::{Step, device, step};
use crate::cq::Attributes;
use crate::selftest::bench::{Bench, Pair};
use crate::selftest::need::Need;
use crate::selftest::outcome::{Doing, Done, Trouble, ensure, wrong};

/// Messages whose time stamps are compared.
const STAMPED: u64 = 8;
/// How far a time of day may lie from the present: it is told by a line through earlier measurements.
const SECOND: u64 = 1_000_000_000;
/// Moderation that is asked for: completions, microseconds.
const MODERATION: ModerateCq = ModerateCq { cq_count: 4, cq_period: 4000 };

pub(super) fn steps() -> Vec<Step> {
    let shows = "raw time stamps lie between two readings of the counter, in order";
    vec![
        step("timestamps", shows, &[stamps_with_ticks()], timestamps),
        step("timestamps-wallclock", "time stamps as times of day, in order", &[], wallclock),
        step("cq-resize", "a queue grows and shrinks while entries wait in it", &[Need::bit("cq_resize")], resize),
        step("cq-moderation", "events of a moderated queue come", &[Need::bit("cq_moderation")], moderation),
    ]
}

/// Sends some messages and gives what `stamp` reads of each completion, by end.
fn stamped(
    bench: &Bench<'_>,
    pair: &mut Pair,
    stamp: impl Fn(&mlx5::Completion<'_>) -> Option<u64>,
) -> Result<[Vec<u64>; 2], Trouble> {
    pair.send_empty(0..STAMPED)?;
    let mut stamps = [Vec::new(), Vec::new()];
    for (cq, stamps) in pair.cq.iter_mut().zip(&mut stamps) {
        let what = || "a completion with a time stamp".into();
        bench.until(bench.rig.patience(), what, || {
            let mut poller = match ibv::start_poll(cq, &PollAttr::default()) {
                Err(PollError::Empty | PollError::ClockBusy) => return Ok(None),
                other => other?,
            };
            loop {
                let entry = poller.completion();
                let says = (entry.wr_id(), entry.status());
                let right = (stamps.len() as u64, WcStatus::SUCCESS);
                ensure(says == right, || format!("a completion is {says:?}, and {right:?} is right"))?;
                let Some(time) = stamp(&entry) else { return wrong("a completion has no time stamp") };
                stamps.push(time);
                match ibv::next_poll(&mut poller) {
                    Ok(_) => {}
                    Err(PollError::Empty) => break,
                    Err(e) => return Err(e.into()),
                }
            }
            Ok((stamps.len() as u64 >= STAMPED).then_some(()))
        })?;
    }
    Ok(stamps)
}

fn with_fields(bench: &Bench<'_>, more: WcFlags, job: impl FnOnce(&mut Pair) -> Done) -> Done {
    let fields = WcFlags::STANDARD | more;
    let cqs = bench.cqs(&Attributes { cqe: 31, wc_flags: Some(fields.bits()), ..Attributes::default() })?;
    bench.with_cqs(cqs, job)
}

fn timestamps(bench: &Bench<'_>) -> Done {
    device::ticks(bench)?;
    let mask = ibv::query_device(bench.device).completion_timestamp_mask;
    with_fields(bench, WcFlags::COMPLETION_TIMESTAMP, |pair| {
        let raw = || ibv::query_rt_values_ex(bench.device, ValuesMask::RAW_CLOCK).doing("reading the counter");
        let before = raw()?.raw_clock;
        let stamps = stamped(bench, pair, |entry| entry.completion_ts())?;
        let after = raw()?.raw_clock;
        // The counter goes around.
        let since = |time: u64| time.wrapping_sub(before) & mask;
        for stamps in &stamps {
            let times: Vec<u64> = stamps.iter().map(|time| since(*time)).collect();
            ensure(times.is_sorted(), || format!("a later completion has an earlier time stamp: {stamps:x?}"))?;
            let last = times.last().copied().unwrap_or(u64::MAX);
            ensure(last <= since(after), || {
                format!(
                    "time stamps {stamps:x?} do not lie between {before:#x} and {after:#x}, which the counter showed"
                )
            })?;
        }
        Ok(format!("{} stamps within {} ticks", 2 * STAMPED, since(after)))
    })
}

fn wallclock(bench: &Bench<'_>) -> Done {
    let real_time = ibv::query_device(bench.device).flags.contains(ContextFlags::REAL_TIME_TS);
    if !real_time {
        device::ticks(bench)?;
    }
    with_fields(bench, WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK, |pair| {
        let stamps = stamped(bench, pair, |entry| entry.completion_wallclock_ns())?;
        for stamps in &stamps {
            ensure(stamps.is_sorted(), || format!("a later completion has an earlier time: {stamps:?}"))?;
        }
        if real_time {
            // What the device's clock was set to nobody knows.
            return Ok(format!("{} stamps by the device's real-time clock", 2 * STAMPED));
        }
        let info = bench.device.dv_clock_info().doing("asking for the clock")?;
        let now = dv::ts_to_ns(&info, device::ticks(bench)?);
        let far = stamps.iter().flatten().find(|time| time.abs_diff(now) > SECOND);
        match far {
            Some(time) => wrong(format!("a time stamp says {time} ns, and now it is {now} ns")),
            None => Ok(format!("{} stamps made of ticks", 2 * STAMPED)),
        }
    })
}

/// Grows and shrinks end 0's queue; before each time some entries wait.
fn resize(bench: &Bench<'_>) -> Done {
    for cqe_size in [64, 128] {
        let cqs = bench.cqs(&Attributes { cqe: 15, cqe_size: Some(cqe_size), ..Attributes::default() })?;
        bench.with_cqs(cqs, |pair| {
            let mut next = 0;
            for cqe in [63, 7, 31] {
                pair.send_empty(next..next + 3)?;
                // All of them wait in the old ring.
                bench.succeed(&mut pair.cq[1], next..next + 3)?;
                ibv::resize_cq(&mut pair.cq[0], cqe).doing("resizing a completion queue")?;
                let has = pair.cq[0].cqe();
                ensure(has == cqe, || format!("a queue that was resized to {cqe} entries has {has}"))?;
                pair.send_empty(next + 3..next + 6)?;
                bench.succeed(&mut pair.cq[1], next + 3..next + 6)?;
                bench.succeed(&mut pair.cq[0], next..next + 6)?;
                next += 6;
            }
            Ok(String::new())
        })?;
    }
    Ok("15 to 63, to 7, to 31 entries, of 64 and of 128 bytes".into())
}

fn moderation(bench: &Bench<'_>) -> Done {
    let channel = channel(bench);
    let cqs = on_channel(bench, &channel, 0)?;
    let done = bench.with_cqs(cqs, |pair| {
        let mut next = 0;
        for (moderate, messages) in [(MODERATION, 4), (MODERATION, 1), (ModerateCq::default(), 1)] {
            let attr = ModifyCqAttr { attr_mask: CqAttrMask::MODERATE, moderate };
            ibv::modify_cq(&pair.cq[1], &attr).doing("moderating a completion queue")?;
            let context = pair.cq[1].query().doing("asking for the queue's context")?;
            let has = (context.cq_max_count(), context.cq_period());
            let asked = (u32::from(moderate.cq_count), u32::from(moderate.cq_period));
            ensure(has == asked, || format!("asked for count and period {asked:?}, the device has {has:?}"))?;
            ibv::req_notify_cq(&mut pair.cq[1], false).doing("asking for an event")?;
            for wr_id in next..next + messages {
                pair.receive(wr_id, &[])?;
                pair.post(wr_id, WrOpcode::Send, &[])?;
            }
            event(bench, &channel, &pair.cq[1])?;
            bench.succeed(&mut pair.cq[0], next..next + messages)?;
            bench.succeed(&mut pair.cq[1], next..next + messages)?;
            next += messages;
        }
        let ModerateCq { cq_count, cq_period } = MODERATION;
        Ok(format!("count {cq_count} and period {cq_period} us, and off again"))
    })?;
    ibv::destroy_comp_channel(channel).doing("destroying a completion channel")?;
    Ok(done)
}
