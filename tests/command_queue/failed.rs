//! A device that has failed: waiting ends early, nothing more is sent, and memory is not lost.

use std::sync::{Arc, Mutex};

use mlx5::Failure;
use mlx5_hw::platform::Platform;

use super::*;
use crate::control::{assert_clean, model};
use crate::poor::Poor;

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
