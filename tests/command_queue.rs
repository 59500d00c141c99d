//! The command queue against the model: deadlines, lost and stray events, order, page requests, threads.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod control;
#[path = "control/poor.rs"]
mod poor;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use control::{assert_clean, model, open};
use mlx5::device::CommandTrace;
use mlx5::{Device, DeviceConfig, Error, Failure};
use mlx5_hw::cmd::{AdapterInfo, AllocPd, Command, DeallocPd, QueryAdapter, QueryIssi};
use mlx5_hw::platform::{Platform, PlatformError};
use mlx5_model::{Effect, Fault, Match, Model, ModelConfig};
use poor::Poor;

const MS: u64 = 1_000_000;
const QUERY_ADAPTER: u16 = 0x101;
const ALLOC_PD: u16 = 0x800;
const DEALLOC_PD: u16 = 0x801;

fn config() -> DeviceConfig {
    let mut config = DeviceConfig::new(0x1018);
    config.timeouts.command = 10 * MS;
    config
}

fn device(model: &Model) -> Device {
    open(model, config()).unwrap()
}

/// Runs a command that names no memory.
fn run<C: Command>(device: &Device, command: &C) -> Result<C::Out, Error> {
    // SAFETY: the commands here only read, or allocate and free protection domains of their own.
    unsafe { device.general_cmd(command) }
}

fn adapter(device: &Device) -> Result<AdapterInfo, Error> {
    run(device, &QueryAdapter)
}

fn inject(model: &Model, opcode: u16, effect: Effect) {
    model.inject(Fault::Command { at: Match::Opcode(opcode), effect });
}

fn last_slot(model: &Model) -> u8 {
    model.commands().last().unwrap().slot
}

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

#[test]
fn a_queue_full_of_silent_commands_still_serves_pages() {
    let model = model();
    let device = device(&model);
    model.inject(Fault::Command { at: Match::Every(QUERY_ADAPTER), effect: Effect::Never });
    for slot in 0..31 {
        adapter(&device).unwrap_err();
        assert_eq!(last_slot(&model), slot);
    }
    let posted = device.command_counters().posted;
    model.inject(Fault::PageRequest(5));
    let error = run(&device, &QueryIssi).unwrap_err();
    assert!(matches!(error, Error::Timeout { waiting_for: mlx5::error::WaitingFor::Slot, .. }), "{error:?}");
    assert_eq!(device.command_counters().posted, posted + 1, "only the page command");
    assert_eq!(device.page_counters().requests, 1);
    // No slot will become free: the next command is not even sent.
    assert_eq!(device.failure(), Some(Failure::Silent));
    let error = run(&device, &QueryIssi).unwrap_err();
    assert!(matches!(error, Error::Failed { why: Failure::Silent, sent: false, .. }), "{error:?}");
    assert_eq!(error.errno(), 110);
    device.close().unwrap();
    assert_clean(&model, "closed, by a reset");
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
fn page_requests_are_served_while_a_command_waits_and_on_demand() {
    let model = model();
    let device = device(&model);
    inject(&model, QUERY_ADAPTER, Effect::PageRequest(1000));
    adapter(&device).unwrap();
    assert_eq!((device.page_counters().given, model.firmware_pages()), (1080, 1080));
    model.inject(Fault::PageRequest(-900));
    device.service();
    assert_eq!((device.page_counters().given, model.firmware_pages()), (180, 180));
    let counters = device.page_counters();
    assert_eq!((counters.requests, counters.refused, counters.failed, counters.unknown), (2, 0, 0, 0));
    device.close().unwrap();
    assert_clean(&model, "closed");
}

#[test]
fn a_page_request_beyond_reason_is_refused() {
    let model = model();
    let mut config = config();
    config.max_pages = 100;
    let device = open(&model, config).unwrap();
    // The bring-up gave 80. The last page allowed, one too many, and far too many.
    for (pages, given, refused) in [(20, 100, 0), (1, 100, 1), (1 << 19, 100, 2), (i32::MAX, 100, 3)] {
        model.inject(Fault::PageRequest(pages));
        device.service();
        let counters = device.page_counters();
        assert_eq!((counters.given, counters.refused), (given, refused), "{pages} pages asked for");
    }
    let last = model.commands().last().unwrap().clone();
    assert_eq!((last.name, last.op_mod, last.slot), ("MANAGE_PAGES", 0, 31), "told that it gets none");
    adapter(&device).unwrap();
    device.close().unwrap();
    assert_clean(&model, "closed");
}

#[test]
fn more_pages_offered_back_than_given_do_no_harm() {
    let model = model();
    let device = device(&model);
    model.inject(Fault::PageRequest(i32::MIN));
    device.service();
    assert!(model.commands().len() < 40, "bounded by what was given");
    assert_eq!((device.page_counters().given, model.firmware_pages()), (0, 0));
    assert_eq!(model.violations(), []);
    // A firmware without a page has nothing to work with.
    assert!(matches!(adapter(&device), Err(Error::Command { .. })));
    device.close().unwrap_err();
    assert_eq!(model.dma_outstanding(), (0, 0), "given back after a reset");
}

#[test]
fn a_firmware_is_told_when_there_is_no_memory() {
    let locked = PlatformError::LockedMemory { limit: 1 << 16, wanted: 1 << 20 };
    for refusal in [PlatformError::NoMemory, locked, PlatformError::Os(12)] {
        let model = model();
        let poor = Poor { refusal, ..Poor::new(&model) };
        let device = Device::open(poor.clone(), model.clone(), config()).unwrap();
        adapter(&device).unwrap();
        poor.starved.store(true, Ordering::Relaxed);
        inject(&model, QUERY_ADAPTER, Effect::PageRequest(10));
        // The model gives up the command that needed them.
        assert!(matches!(adapter(&device), Err(Error::Command { .. })), "{refusal:?}");
        assert_eq!(device.page_counters().refused, 1, "{refusal:?}");
        poor.starved.store(false, Ordering::Relaxed);
        adapter(&device).unwrap();
        device.close().unwrap();
        assert_clean(&model, "closed");
    }
}

#[test]
fn no_memory_for_a_bring_up_is_told_and_undone() {
    let model = model();
    let poor = Poor::new(&model);
    poor.starved.store(true, Ordering::Relaxed);
    let error = Device::open(poor.clone(), model.clone(), config()).unwrap_err();
    assert_eq!((error, error.errno()), (Error::NoMemory, 12));
    assert!(model.commands().is_empty());
    let (model, poor) = (control::model(), poor);
    let starving = Poor { model: model.clone(), ..poor.clone() };
    let (flag, seen) = (starving.starved.clone(), model.clone());
    flag.store(false, Ordering::Relaxed);
    let mut config = config();
    config.trace = Some(Arc::new(move |t: &CommandTrace| {
        flag.store(t.opcode.name() == Some("QUERY_PAGES") && seen.firmware_pages() > 0, Ordering::Relaxed);
    }));
    let error = Device::open(starving, model.clone(), config).unwrap_err();
    assert!(matches!(error, Error::NoPages { count: 64 }), "{error:?}");
    assert_clean(&model, "undone");
}

#[test]
fn fatal_health_ends_waiting_early() {
    let model = model();
    let mut config = config();
    config.timeouts.command = 60_000 * MS;
    let device = open(&model, config).unwrap();
    inject(&model, QUERY_ADAPTER, Effect::Never);
    model.inject(Fault::Health { syndrome: 1, severity: 2, request_reset: true });
    let started = model.now();
    let error = adapter(&device).unwrap_err();
    assert!(
        matches!(error, Error::Failed { why: Failure::Health(syndrome), sent: true, .. } if syndrome.0 == 1),
        "{error:?}"
    );
    assert_eq!((error.errno(), error.opcode().map(|o| o.0)), (5, Some(QUERY_ADAPTER)));
    assert!(model.now() - started < 5 * MS);
    device.close().unwrap();
    assert_clean(&model, "closed, by a reset");
}

#[test]
fn a_command_that_found_no_slot_before_the_device_failed_was_not_sent() {
    let model = model();
    let mut config = config();
    config.timeouts.drop = MS;
    let device = open(&model, config).unwrap();
    let pds: Vec<_> = (0..31).map(|_| device.alloc_pd().unwrap()).collect();
    model.inject(Fault::Command { at: Match::Every(DEALLOC_PD), effect: Effect::Never });
    drop(pds);
    model.inject(Fault::Health { syndrome: 1, severity: 2, request_reset: true });
    let error = adapter(&device).unwrap_err();
    assert!(
        matches!(error, Error::Failed { why: Failure::Health(_), sent: false, .. }) && error.refused(),
        "{error:?}"
    );
    device.close().unwrap();
    assert_clean(&model, "closed, by a reset");
}

#[test]
fn a_removed_device_ends_waiting_early_and_leaks_by_name() {
    let model = model();
    let device = device(&model);
    model.inject(Fault::Removed);
    assert!(matches!(adapter(&device), Err(Error::Failed { why: Failure::Gone, sent: true, .. })));
    let returned = device.close().unwrap_err();
    assert!(matches!(returned.error, Error::Failed { why: Failure::Gone, sent: false, .. }), "{:?}", returned.error);
    assert_eq!(returned.error.errno(), 19);
    let mut names: Vec<_> = returned.object.leaked().iter().map(|l| l.what).collect();
    names.sort_unstable();
    names.dedup();
    assert!(names.contains(&"page of the firmware") && names.contains(&"event queue"), "{names:?}");
    assert!(adapter(&returned.object).is_err(), "closed all the same");
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

const MANAGE_PAGES: u16 = 0x108;

/// Firmware that asks for pages and then takes no page command holds up nobody: not the command that waits, and not the
/// ones after it.
#[test]
fn page_requests_end_with_the_command_that_waits() {
    let model = model();
    let mut config = config();
    config.timeouts.drop = 2 * MS;
    let device = open(&model, config).unwrap();
    let pd = device.alloc_pd().unwrap();
    model.inject(Fault::Command { at: Match::Every(MANAGE_PAGES), effect: Effect::Never });
    // Dropping an object has less time than the page command would have.
    inject(&model, DEALLOC_PD, Effect::PageRequest(5));
    let started = model.now();
    drop(pd);
    assert!(model.now() - started < 4 * MS, "took {} ns", model.now() - started);
    // The page slot is not free any more: what is asked for waits, the command does not.
    let started = model.now();
    model.inject(Fault::PageRequest(3));
    adapter(&device).unwrap();
    assert!(model.now() - started < MS, "took {} ns", model.now() - started);
    device.close().unwrap();
    assert_clean(&model, "closed, by a reset");
}

/// A request for more pages than one command names goes on when that command is answered, be it after its deadline.
#[test]
fn a_page_request_goes_on_behind_a_page_command_that_is_late() {
    let model = model();
    let mut config = config();
    config.timeouts.drop = 2 * MS;
    let device = open(&model, config).unwrap();
    let pd = device.alloc_pd().unwrap();
    let before = device.page_counters().given;
    inject(&model, MANAGE_PAGES, Effect::Late(3 * MS));
    inject(&model, DEALLOC_PD, Effect::PageRequest(1000));
    drop(pd);
    assert!(device.page_counters().given < before + 1000, "the command that waited had no time for all of them");
    model.step(3 * MS);
    device.service();
    assert_eq!((device.page_counters().given, model.firmware_pages()), (before + 1000, before as usize + 1000));
    device.close().unwrap();
    assert_clean(&model, "closed");
}

#[test]
fn nothing_is_sent_to_a_device_that_has_failed_and_nothing_is_lost_by_trying() {
    let model = model();
    let device = device(&model);
    let pd = device.alloc_pd().unwrap();
    inject(&model, QUERY_ADAPTER, Effect::Health { syndrome: 1, severity: 2, request_reset: true });
    assert_eq!(device.failure(), None);
    assert!(matches!(adapter(&device), Err(Error::Failed { sent: true, .. })));
    let (sent, memory) = (model.commands().len(), model.dma_outstanding());
    for _ in 0..10 {
        let error = device.create_cq(100, 0, 0).unwrap_err();
        assert!(
            matches!(error, Error::Failed { why: Failure::Health(_), sent: false, .. }) && error.refused(),
            "{error:?}"
        );
        assert_eq!(error.opcode().map(|o| o.0), Some(0x400));
        assert_eq!(pd.alloc_buf(4096, mlx5::AccessFlags::empty()).unwrap_err().errno(), 5);
    }
    assert_eq!((model.commands().len(), model.dma_outstanding()), (sent, memory));
    assert!(matches!(device.failure(), Some(Failure::Health(syndrome)) if syndrome.0 == 1));
    drop(pd);
    device.close().unwrap();
    assert_clean(&model, "closed, by a reset");
}

#[test]
fn a_look_at_the_health_is_enough_to_stop_sending() {
    let model = model();
    let device = device(&model);
    model.inject(Fault::Health { syndrome: 8, severity: 2, request_reset: true });
    device.health();
    let sent = model.commands().len();
    assert!(matches!(adapter(&device), Err(Error::Failed { sent: false, .. })));
    assert_eq!(model.commands().len(), sent);
}

/// Memory that nobody can be asked about any more is told to the hook: after a failed open, and after a drop.
#[test]
fn memory_kept_for_good_is_told_to_the_hook() {
    for opened in [false, true] {
        let model = model();
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = told.clone();
        let mut config = config();
        config.on_leak = Some(Arc::new(move |piece: &mlx5::Leaked| sink.lock().unwrap().push(*piece)));
        let poor = Poor { no_reset: true, ..Poor::new(&model) };
        if !opened {
            inject(&model, 0x102, Effect::Never);
            Device::open(poor, model.clone(), config).unwrap_err();
        } else {
            let device = Device::open(poor, model.clone(), config).unwrap();
            inject(&model, 0x302, Effect::Never);
            drop(device);
        }
        let told = told.lock().unwrap();
        let bytes: usize = told.iter().map(|piece| piece.size).sum();
        assert_eq!((told.len(), bytes), model.dma_outstanding(), "{told:?}");
        assert!(!told.is_empty());
    }
}

/// The number of pages in an answer is the device's: it is not believed beyond what was asked for.
#[test]
fn more_pages_in_an_answer_than_there_is_room_for_are_not_looked_for() {
    let model = model();
    let device = device(&model);
    for dword in [4, u32::MAX] {
        inject(&model, MANAGE_PAGES, Effect::Output { at: 8, dword });
        let before = device.page_counters();
        model.inject(Fault::PageRequest(-3));
        device.service();
        let after = device.page_counters();
        assert_eq!((after.failed, after.given, after.unknown), (before.failed + 1, before.given - 3, 0));
    }
    inject(&model, MANAGE_PAGES, Effect::Output { at: 8, dword: u32::MAX });
    let error = device.close().unwrap_err().error;
    assert!(matches!(error, Error::Protocol { what } if what.contains("MANAGE_PAGES")), "{error:?}");
    assert_clean(&model, "closed, by a reset");
}
