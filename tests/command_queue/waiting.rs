//! Waiting for an answer: deadlines, late, lost and stray events, other orders, threads, the trace.

use std::sync::{Arc, Mutex};

use mlx5::device::CommandTrace;
use mlx5_hw::cmd::{AllocPd, DeallocPd, QueryIssi};
use mlx5_hw::platform::Platform;
use mlx5_model::{Effect, Fault, Match, Model, ModelConfig};

use super::*;
use crate::control::{assert_clean, model};

#[test]
fn a_command_without_an_answer_ends_at_its_deadline() {
    let model = model();
    let device = device(&model);
    inject(&model, QUERY_ADAPTER, Effect::Never);
    let started = model.now();
    let error = adapter(&device).unwrap_err();
    let took = model.now() - started;
    assert_eq!((error.errno(), error.opcode().map(|o| o.0)), (110, Some(QUERY_ADAPTER)));
    assert!((10 * MS..12 * MS).contains(&took), "took {took} ns");
    // Its slot stays in use; the queue goes on.
    adapter(&device).unwrap();
    assert_eq!(last_slot(&model), 1);
    assert_eq!(device.command_counters().timed_out, 1);
    device.close().unwrap();
    assert_clean(&model, "closed, by a reset");
}

#[test]
fn a_late_completion_returns_the_slot_and_the_mailboxes() {
    let model = model();
    let device = device(&model);
    let before = model.dma_outstanding();
    for _ in 0..100 {
        inject(&model, QUERY_ADAPTER, Effect::Late(15 * MS));
        assert_eq!(adapter(&device).unwrap_err().errno(), 110);
        assert_eq!(last_slot(&model), 0);
        model.step(10 * MS);
    }
    adapter(&device).unwrap();
    assert_eq!(last_slot(&model), 0, "the slot is free again");
    let counters = device.command_counters();
    assert_eq!((counters.timed_out, counters.late, counters.stray_events), (100, 100, 0));
    let after = model.dma_outstanding();
    assert!(after.0 <= before.0 + 2, "mailboxes are used again: {before:?} {after:?}");
    device.close().unwrap();
    assert_clean(&model, "closed");
}

/// Those who drop objects do not wait for long: that they get no answer, and no slot, does not say that the firmware has
/// stopped.
#[test]
fn impatient_drops_do_not_make_a_slow_firmware_a_failed_one() {
    let model = model();
    let mut config = config();
    config.timeouts.drop = 2 * MS;
    let device = open(&model, config).unwrap();
    let pds: Vec<_> = (0..33).map(|_| device.alloc_pd().unwrap()).collect();
    model.inject(Fault::Command { at: Match::Every(DEALLOC_PD), effect: Effect::Late(100 * MS) });
    drop(pds);
    assert_eq!(device.command_counters().timed_out, 31, "one for each slot but that of the pages");
    assert_eq!(device.failure(), None);
    model.step(100 * MS);
    adapter(&device).unwrap();
    device.close().unwrap();
    assert_clean(&model, "closed");
}

#[test]
fn a_lost_event_costs_milliseconds_not_the_deadline() {
    let model = model();
    let mut config = config();
    config.timeouts.command = 60_000 * MS;
    let device = open(&model, config).unwrap();
    inject(&model, QUERY_ADAPTER, Effect::EventLost);
    let started = model.now();
    adapter(&device).unwrap();
    assert!(model.now() - started < 5 * MS, "took {} ns", model.now() - started);
    assert_eq!(device.command_counters().lost_events, 1);
    device.close().unwrap();
    assert_clean(&model, "closed");
}

#[test]
fn stray_events_are_counted_and_do_nothing() {
    let model = model();
    let device = device(&model);
    model.inject(Fault::StrayCommandEvent(u32::MAX));
    model.inject(Fault::StrayCompletionEvent { eqn: 2, cqn: 0x00ff_ffff });
    device.service();
    assert_eq!(device.command_counters().stray_events, 32);
    assert_eq!(device.event_counters().completions, 1);
    assert_eq!(device.try_get_async_event(), None);
    for _ in 0..40 {
        model.inject(Fault::StrayCommandEvent(1));
        adapter(&device).unwrap();
    }
    device.close().unwrap();
    assert_clean(&model, "closed");
}

#[test]
fn thousands_of_events_go_around_the_rings() {
    let model = model();
    let device = device(&model);
    for _ in 0..3000 {
        adapter(&device).unwrap();
    }
    assert!(device.event_counters().commands >= 3000);
    let counters = device.command_counters();
    assert_eq!((counters.lost_events, counters.stray_events, counters.timed_out), (0, 0, 0));
    device.close().unwrap();
    assert_clean(&model, "closed");
}

#[test]
fn commands_may_complete_in_another_order() {
    let model = model();
    let mut config = config();
    config.timeouts.command = 3_600_000 * MS;
    let device = open(&model, config).unwrap();
    inject(&model, QUERY_ADAPTER, Effect::AfterNext);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| adapter(&device));
        while model.commands().last().map(|c| c.opcode) != Some(QUERY_ADAPTER) || first.is_finished() {
            std::thread::yield_now();
        }
        assert_eq!(run(&device, &QueryIssi).unwrap().current, 1);
        first.join().unwrap().unwrap();
    });
    let commands = model.commands();
    let [.., first, second] = &commands[..] else { panic!("no commands") };
    assert_eq!((first.slot, second.slot), (0, 1));
    assert!(second.done <= first.done);
    device.close().unwrap();
    assert_clean(&model, "closed");
}

#[test]
fn threads_share_the_queue() {
    for threaded in [false, true] {
        let model = Model::new(ModelConfig { command_ns: 2000, ..ModelConfig::default() });
        let thread = threaded.then(|| model.spawn().unwrap());
        let mut config = config();
        config.timeouts.command = 60_000 * MS;
        let device = open(&model, config).unwrap();
        let pds = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let pd = run(&device, &AllocPd).unwrap();
                        pds.lock().unwrap().push(pd);
                    }
                });
            }
        });
        let mut pds = pds.into_inner().unwrap();
        pds.sort_unstable();
        pds.dedup();
        assert_eq!(pds.len(), 400, "each answer went to its own command");
        for pd in pds {
            run(&device, &DeallocPd { pd }).unwrap();
        }
        let counters = device.command_counters();
        // One thread may take an answer for one without an event while another has the event in its hands.
        assert!(counters.timed_out == 0 && counters.stray_events <= counters.lost_events, "{counters:?}");
        device.close().unwrap();
        drop(thread);
        assert_clean(&model, "closed");
    }
}

#[test]
fn the_trace_has_each_command_with_its_status_and_time() {
    let model = Model::new(ModelConfig { command_ns: 5000, ..ModelConfig::default() });
    let traces = Arc::new(Mutex::new(Vec::new()));
    let sink = traces.clone();
    let mut config = config();
    config.trace = Some(Arc::new(move |t: &CommandTrace| sink.lock().unwrap().push(*t)));
    let device = open(&model, config).unwrap();
    inject(&model, ALLOC_PD, Effect::Status { status: 8, syndrome: 0x1234 });
    assert_eq!(run(&device, &AllocPd).unwrap_err().errno(), 12);
    device.close().unwrap();
    let traces = traces.lock().unwrap();
    let commands = model.commands();
    assert_eq!(traces.len(), commands.len());
    for (trace, command) in traces.iter().zip(&commands) {
        assert_eq!(trace.opcode.name(), Some(command.name));
        assert_eq!(trace.result.is_ok(), command.status == 0, "{}", command.name);
        assert!((5000..50_000).contains(&trace.duration), "{} took {}", command.name, trace.duration);
    }
}
