//! Events: of completions, on each vector, and of a completion queue in error.

use std::thread;
use std::time::Duration;

use mlx5::hw::eqe::CqErrorSyndrome;
use mlx5::{AsyncEvent, CompChannel, Cq, CqInitAttrEx, Error, PollError, Wc, WcFlags, WrOpcode, ibv};

use super::{Step, step};
use crate::cq::Attributes;
use crate::selftest::bench::{Bench, Pair, post};
use crate::selftest::outcome::{Doing, Done, Trouble, ensure, wrong};

/// Until a message is sent to one who sleeps for its completion: long enough to fall asleep.
const DELAY: Duration = Duration::from_millis(20);
/// Sends that overrun a queue of the smallest size.
const OVERRUN: u64 = 12;

pub(super) fn steps() -> Vec<Step> {
    let shows = "on each completion vector an event wakes who sleeps for it";
    vec![
        step("events", shows, &[], events),
        step("event-cq-error", "a queue that overruns is in error, and an event says so", &[], overrun),
    ]
}

pub(super) fn channel(bench: &Bench<'_>) -> CompChannel {
    ibv::create_comp_channel(bench.device)
}

/// Two completion queues on a channel.
pub(super) fn on_channel(bench: &Bench<'_>, channel: &CompChannel, comp_vector: u32) -> Result<[Cq; 2], Trouble> {
    let (wc_flags, channel) = (WcFlags::STANDARD, Some(channel));
    let attr = CqInitAttrEx { cqe: 31, comp_vector, wc_flags, channel, ..CqInitAttrEx::default() };
    let create = || ibv::create_cq_ex(bench.device, &attr).doing("creating a completion queue");
    Ok([create()?, create()?])
}

/// Takes the event of a queue.
pub(super) fn event(bench: &Bench<'_>, channel: &CompChannel, cq: &Cq) -> Result<(), Trouble> {
    let deadline = bench.device.now().saturating_add(bench.rig.patience().as_nanos() as u64);
    let event = ibv::get_cq_event(channel, deadline);
    if event == Err(Error::NoEvent) {
        bench.rig.hurry();
    }
    let event = event.doing("waiting for a completion event")?;
    ensure(event.cqn == cq.cqn(), || format!("the event is of CQ {:#x}, not of {:#x}", event.cqn, cq.cqn()))?;
    ibv::ack_cq_events(cq, 1).doing("acknowledging an event")
}

fn events(bench: &Bench<'_>) -> Done {
    let vectors = ibv::query_device(bench.device).num_comp_vectors;
    let before = bench.rig.waits();
    for vector in 0..vectors {
        let named = |trouble| Trouble::Wrong(format!("vector {vector}: {trouble}"));
        on_vector(bench, vector).map_err(|trouble| match trouble {
            Trouble::Wrong(_) | Trouble::Driver(_, Error::NoEvent) => named(trouble),
            other => other,
        })?;
    }
    let interrupts = bench.rig.waits().since(before).interrupts;
    Ok(format!("{vectors} vectors, {interrupts} interrupts"))
}

/// Sleeps for one message on a vector.
fn on_vector(bench: &Bench<'_>, vector: u32) -> Result<(), Trouble> {
    let channel = channel(bench);
    let cqs = on_channel(bench, &channel, vector)?;
    bench.with_cqs(cqs, |pair| {
        pair.receive(0, &[])?;
        ibv::req_notify_cq(&mut pair.cq[1], false).doing("asking for an event")?;
        let before = bench.rig.waits();
        let Pair { cq: [_, at_b], qp: [a, _], .. } = &mut *pair;
        let mut send = || post(a, 0, WrOpcode::Send, &[]);
        let woken = bench.rig.own_time().then(|| late(&mut send, || event(bench, &channel, at_b))).flatten();
        woken.unwrap_or_else(|| send().and_then(|()| event(bench, &channel, at_b)))?;
        let waits = bench.rig.waits().since(before);
        // Who was late did not sleep, and took no interrupt.
        ensure(waits.interrupts > 0 || waits.sleeps == 0, || {
            "the event came without an interrupt: it was found by looking for it".into()
        })?;
        bench.succeed(&mut pair.cq[0], 0..1)?;
        bench.succeed(&mut pair.cq[1], 0..1)?;
        Ok(String::new())
    })?;
    ibv::destroy_comp_channel(channel).doing("destroying a completion channel")
}

/// Sleeps while another thread sends a little later. `None`: the system has no thread to give, and nothing was sent.
fn late(
    send: impl FnOnce() -> Result<(), Trouble> + Send,
    sleep: impl FnOnce() -> Result<(), Trouble>,
) -> Option<Result<(), Trouble>> {
    thread::scope(|scope| {
        let sender = thread::Builder::new().spawn_scoped(scope, || {
            thread::sleep(DELAY);
            send()
        });
        let sender = sender.ok()?;
        let woken = sleep();
        Some(sender.join().unwrap_or_else(|_| wrong("sending ended early")).and(woken))
    })
}

fn overrun(bench: &Bench<'_>) -> Done {
    let small = Attributes { cqe: 1, ..Attributes::default() };
    let large = Attributes { cqe: 31, ..Attributes::default() };
    let create =
        |attributes: &Attributes| attributes.create(bench.device, None, None).doing("creating a completion queue");
    let cqs = [create(&small)?, create(&large)?];
    bench.with_cqs(cqs, |pair| {
        pair.send_empty(0..OVERRUN)?;
        let cqn = pair.cq[0].cqn();
        let what = || format!("the event that CQ {cqn:#x} is in error");
        let syndrome = bench.until(bench.rig.patience(), what, || {
            Ok(match bench.device.try_get_async_event() {
                Some(AsyncEvent::CqErr { cq, syndrome }) if cq.number == cqn => Some(syndrome),
                _ => None,
            })
        })?;
        ensure(syndrome == CqErrorSyndrome::CQ_OVERRUN, || format!("the event's syndrome is {syndrome}"))?;
        let what = || "the error that polling tells".into();
        bench.until(bench.rig.patience(), what, || match ibv::poll_cq(&mut pair.cq[0], &mut [Wc::default(); 4]) {
            Err(PollError::CqInError { .. }) => Ok(Some(())),
            Err(e) => Err(e.into()),
            Ok(_) => Ok(None),
        })?;
        Ok("CQ_ERROR, CQ overrun".into())
    })
}
