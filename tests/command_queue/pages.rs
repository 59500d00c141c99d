//! Pages that the firmware asks for and gives back, whatever the queue is at.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mlx5::Failure;
use mlx5::device::CommandTrace;
use mlx5_hw::cmd::QueryIssi;
use mlx5_hw::platform::{Platform, PlatformError};

use super::*;
use crate::control::{assert_clean, model};
use crate::poor::Poor;

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
    let (model, poor) = (crate::control::model(), poor);
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
