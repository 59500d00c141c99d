//! Asynchronous events over the model: who is told of what, and what a CQ, a queue pair and the device say afterwards.
//! How each entry is read stands in `src/events/tests.rs`.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mlx5::hw::cmd::Opcode;
use mlx5::hw::eqe::CqErrorSyndrome;
use mlx5::hw::health::HealthSyndrome;
use mlx5::hw::platform::Platform;
use mlx5::{
    AsyncEvent, Cq, CqAttrMask, Device, DeviceConfig, Element, Error, Failure, ModifyCqAttr, PollError, Qp, QpCap,
    QpInitAttr, QpState, RecvWr, SendFlags, SendWr, Wc, ibv,
};
use mlx5_model::{Effect, Fault, Match, Model, ModelConfig};

use crate::cq_create::Attr;
use crate::cq_semantics::POLL;
use crate::poll_sessions::kinds;
use crate::support::{Pair, Port, SIZES, close, connect, create_qp, open, pair, pair_with};

const OVERRUN: CqErrorSyndrome = CqErrorSyndrome::CQ_OVERRUN;
const VIOLATION: CqErrorSyndrome = CqErrorSyndrome::CQ_ACCESS_VIOLATION_ERROR;

fn taken(dev: &Device) -> Vec<AsyncEvent> {
    std::iter::from_fn(|| dev.try_get_async_event()).collect()
}

/// A queue pair like those of the pair, with a context.
fn qp_of(p: &Pair, qp_context: u64) -> Qp {
    p.pd.create_qp(&mut QpInitAttr { qp_context, ..QpInitAttr::new(&p.cq[0], &p.cq[0], SIZES) }).unwrap()
}

/// Posts `n` sends of nothing from side 0, each with a receive; their ids are their numbers.
fn post(p: &mut Pair, n: u64) {
    for wr_id in 0..n {
        p.qp[1].post_recv(&[RecvWr { wr_id, sg_list: &[] }]).unwrap();
        let send_flags = SendFlags::SIGNALED;
        p.qp[0].post_send(&[SendWr { wr_id, send_flags, ..Default::default() }]).unwrap();
    }
    p.port.model.step(1_000_000);
}

/// That each way of polling finds nothing but the error, however often it is asked.
fn says_error(cq: &mut Cq, syndrome: CqErrorSyndrome) {
    let error = PollError::CqInError { syndrome };
    assert_eq!(error.errno(), 5, "EIO");
    for _ in 0..3 {
        assert_eq!(cq.poll_cq(&mut [Wc::default(); 4]), Err(error));
        assert_eq!(ibv::poll_cq(cq, &mut [Wc::default()]), Err(error));
        assert_eq!(cq.start_poll(&POLL).map(|_| ()), Err(error));
    }
    assert_eq!(cq.poll_cq(&mut []), Ok(0), "who asks for nothing gets nothing");
    let error = Error::CqInError { syndrome };
    assert_eq!(error.errno(), 5, "EIO");
    let moderate = ModifyCqAttr { attr_mask: CqAttrMask::MODERATE, ..Default::default() };
    for _ in 0..2 {
        assert_eq!(ibv::req_notify_cq(cq, false), Err(error));
        assert_eq!(ibv::resize_cq(cq, 1), Err(error));
        assert_eq!(ibv::resize_cq(cq, cq.cqe()), Err(error));
        assert_eq!(ibv::modify_cq(cq, &moderate), Err(error));
    }
    assert!(cq.query().is_ok_and(|cqc| cqc.status() != 0), "its context says it too");
}

/// Case B-030: a CQ for 7 entries with 12 requests on it. What lies in the ring is delivered, then the CQ is in error for good. The
/// event names the CQ, its syndrome is a CQ's and no queue pair's or completion's, and the other CQ works on.
#[test]
fn a_cq_that_overruns_delivers_what_it_has_and_then_says_so_on_every_call() {
    let cap = QpCap { max_send_wr: 12, max_recv_wr: 12, ..SIZES };
    for by_poller in [false, true] {
        let small = Cell::new(true);
        let one_small = |dev: &Device, cqe| match small.replace(false) {
            true => dev.create_cq(7, 77, 0).unwrap(),
            false => dev.create_cq(cqe, 78, 0).unwrap(),
        };
        let mut p = pair_with(ModelConfig::default(), 63, cap, one_small);
        let number = p.qp[0].qp_num();
        post(&mut p, 12);
        let events = taken(&p.dev);
        let cq = Element { number: p.cq[0].cqn(), context: 77 };
        assert_eq!(events[0], AsyncEvent::CqErr { cq, syndrome: OVERRUN });
        assert_eq!(events[1..], [AsyncEvent::QpFatal(Element { number, context: 0 })]);
        let mut ids = Vec::new();
        if by_poller {
            let mut poller = p.cq[0].start_poll(&POLL).unwrap();
            ids.push(poller.completion().wr_id());
            let end = loop {
                match poller.next() {
                    Ok(completion) => ids.push(completion.wr_id()),
                    Err(error) => break error,
                }
            };
            assert_eq!(end, PollError::CqInError { syndrome: OVERRUN });
            assert_eq!(poller.next().map(|_| ()), Err(end));
        } else {
            let mut wcs = [Wc::default(); 16];
            let n = p.cq[0].poll_cq(&mut wcs).unwrap();
            ids.extend(wcs[..n].iter().map(|wc| wc.wr_id));
        }
        assert_eq!(ids, (0..8).collect::<Vec<_>>());
        says_error(&mut p.cq[0], OVERRUN);
        assert!(p.poll(1, 8).iter().all(|wc| wc.wr_id < 12));
        assert!(p.cq[1].poll_cq(&mut [Wc::default(); 16]).is_ok());
        p.end();
    }
}

type Make = Box<dyn Fn(&Device) -> Cq>;

/// The same for a CQ of each kind, broken by hand: before the event is taken polling finds nothing, afterwards the error.
#[test]
fn a_cq_of_each_kind_says_that_it_is_in_error() {
    let plain = |bytes| {
        move |dev: &Device| {
            let mut attr = Attr::default();
            attr.size(bytes);
            attr.create(dev).unwrap()
        }
    };
    let compressed = kinds().into_iter().map(|kind| Box::new(move |dev: &Device| kind.create(dev, 15)) as Make);
    for make in [64, 128].map(|bytes| Box::new(plain(bytes)) as Make).into_iter().chain(compressed) {
        let (port, dev) = open();
        let mut cq = make(&dev);
        port.model.inject(Fault::CqError { cqn: cq.cqn(), syndrome: 2 });
        assert_eq!(cq.poll_cq(&mut [Wc::default()]), Ok(0));
        assert_eq!(cq.start_poll(&POLL).map(|_| ()), Err(PollError::Empty));
        dev.service();
        says_error(&mut cq, VIOLATION);
        let element = Element { number: cq.cqn(), context: cq.context() };
        assert_eq!(taken(&dev), [AsyncEvent::CqErr { cq: element, syndrome: VIOLATION }]);
        says_error(&mut cq, VIOLATION);
        cq.destroy().map_err(|e| e.error).unwrap();
        close(&port, dev);
    }
}

/// Case B-029: the consumer index is in the record before the queue pair can use the room, so a ring that holds just what its
/// queues can have outstanding never overruns.
#[test]
fn a_ring_that_holds_what_its_queues_can_post_never_overruns() {
    let cap = QpCap { max_send_wr: 8, max_recv_wr: 8, ..SIZES };
    for batch in [1, 3, 7, 8] {
        let mut p = pair_with(ModelConfig::default(), 8 - 1, cap, |dev, cqe| dev.create_cq(cqe, 0, 0).unwrap());
        let mut wcs = [Wc::default(); 8];
        post(&mut p, 8);
        for _ in 0..500 {
            for side in [1, 0] {
                let n = p.cq[side].poll_cq(&mut wcs[..batch]).unwrap();
                assert_eq!(n, batch);
            }
            post(&mut p, batch as u64);
        }
        assert_eq!(taken(&p.dev), []);
        p.end();
    }
}

/// What nobody has taken of a CQ or queue pair goes with it, and its error too: the next of its number has none of it.
#[test]
fn a_new_object_has_nothing_of_the_old_one_of_its_number() {
    let mut p = pair();
    let qpn = p.qp[0].qp_num();
    let cq = p.dev.create_cq(7, 1, 0).unwrap();
    let (cqn, model) = (cq.cqn(), p.port.model.clone());
    let late = || {
        model.inject(Fault::CqError { cqn, syndrome: 1 });
        model.inject(Fault::QueueEvent { kind: 0x05, number: qpn });
    };
    late();
    p.dev.service();
    cq.destroy().map_err(|e| e.error).unwrap();
    let other = qp_of(&p, 3);
    std::mem::replace(&mut p.qp[0], other).destroy().map_err(|e| e.error).unwrap();
    assert_eq!(taken(&p.dev), []);
    // Events on their way while nobody has the numbers.
    late();
    let mut cq = p.dev.create_cq(7, 2, 0).unwrap();
    let qp = qp_of(&p, 4);
    assert_eq!((cq.cqn(), qp.qp_num()), (cqn, qpn));
    assert_eq!((taken(&p.dev), cq.poll_cq(&mut [Wc::default()])), (vec![], Ok(0)));
    late();
    let number = |event: &AsyncEvent| match event {
        AsyncEvent::CqErr { cq, .. } => (cq.number, cq.context),
        AsyncEvent::QpFatal(qp) => (qp.number, qp.context),
        other => panic!("{other:?}"),
    };
    assert_eq!(taken(&p.dev).iter().map(number).collect::<Vec<_>>(), [(cqn, 2), (qpn, 4)]);
    qp.destroy().map_err(|e| e.error).unwrap();
    cq.destroy().map_err(|e| e.error).unwrap();
    p.end();
}

/// A model whose driver calls `hook` after each command, with the device's answer taken and nothing else done yet.
fn open_hooked(hook: impl Fn(&Model, Opcode) + Send + Sync + 'static) -> (Port, Device) {
    let port = Port::new(ModelConfig::default());
    let model = port.model.clone();
    let mut config = DeviceConfig::new(ModelConfig::default().device_id);
    config.trace = Some(Arc::new(move |trace| hook(&model, trace.opcode)));
    let dev = Device::open(port.clone(), port.clone(), config).unwrap();
    (port, dev)
}

/// Events that lie in the event queues when DESTROY or CREATE has just been answered, and nobody has taken them yet: the one is
/// about the object that is gone, the other about the one before.
#[test]
fn events_that_wait_when_an_object_is_made_or_ended_are_not_the_next_ones() {
    for ends in [true, false] {
        let numbers = Arc::new(Mutex::new(None::<(u32, u32)>));
        let known = numbers.clone();
        let (port, dev) = open_hooked(move |model, opcode| {
            let Some((cqn, qpn)) = *known.lock().unwrap() else { return };
            match (opcode, ends) {
                (Opcode::DESTROY_CQ, true) | (Opcode::CREATE_CQ, false) => {
                    model.inject(Fault::CqError { cqn, syndrome: 1 });
                }
                (Opcode::DESTROY_QP, true) | (Opcode::CREATE_QP, false) => {
                    model.inject(Fault::QueueEvent { kind: 0x02, number: qpn });
                }
                _ => {}
            }
        });
        let pd = dev.alloc_pd().unwrap();
        let shared = dev.create_cq(15, 0, 0).unwrap();
        let mut last = (dev.create_cq(7, 1, 0).unwrap(), create_qp(&pd, &shared, &shared, SIZES));
        *numbers.lock().unwrap() = Some((last.0.cqn(), last.1.qp_num()));
        for _ in 0..3 {
            let (cq, qp) = last;
            let before = (cq.cqn(), qp.qp_num());
            cq.destroy().map_err(|e| e.error).unwrap();
            qp.destroy().map_err(|e| e.error).unwrap();
            assert_eq!(taken(&dev), [], "{ends}");
            if ends {
                assert_eq!(dev.event_counters().unknown, 0, "an object is there until its last event has been taken");
            }
            last = (dev.create_cq(7, 2, 0).unwrap(), create_qp(&pd, &shared, &shared, SIZES));
            assert_eq!((last.0.cqn(), last.1.qp_num()), before);
            assert_eq!(taken(&dev), [], "{ends}");
            // The model has broken its own side when it sent the late event; what the driver believes counts.
            assert_eq!(last.0.poll_cq(&mut [Wc::default()]), Ok(0), "{ends}");
        }
        drop(last);
        drop(shared);
        drop(pd);
        assert_eq!(port.model.violations(), []);
        dev.close().map_err(|e| e.error).unwrap();
    }
}

/// Types of `mlx5_ib_qp_event`; the context is the one of creation.
#[test]
fn events_of_a_queue_pair_come_with_its_number_and_context() {
    let mut p = pair();
    let context = 0xfedc_ba98_7654_3210;
    let made = qp_of(&p, context);
    std::mem::replace(&mut p.qp[0], made).destroy().map_err(|e| e.error).unwrap();
    let peer = p.qp[1].qp_num();
    connect(&p.dev, &mut p.qp[0], peer);
    let number = p.qp[0].qp_num();
    assert_eq!(p.qp[0].context(), context);
    let qp = Element { number, context };
    for (kind, event) in [
        (0x02, AsyncEvent::CommEst(qp)),
        (0x03, AsyncEvent::SqDrained(qp)),
        (0x10, AsyncEvent::QpReqErr(qp)),
        (0x11, AsyncEvent::QpAccessErr(qp)),
        (0x05, AsyncEvent::QpFatal(qp)),
    ] {
        p.port.model.inject(Fault::QueueEvent { kind, number });
        assert_eq!(ibv::get_async_event(&p.dev, p.port.now() + 1_000_000), Ok(event));
    }
    assert_eq!(p.qp[0].query().unwrap().qp_state, QpState::Err);
    assert_eq!(p.cq[0].poll_cq(&mut [Wc::default()]), Ok(0), "a CQ has nothing to do with it");
    p.end();
}

#[test]
fn a_port_that_goes_down_and_up_is_told_and_asked() {
    let (port, dev) = open();
    for up in [false, true, false, true] {
        port.model.inject(Fault::Link { up });
        let port_num = 1;
        let event = if up { AsyncEvent::PortActive { port_num } } else { AsyncEvent::PortErr { port_num } };
        assert_eq!(dev.get_async_event(0), Ok(event), "there already: no wait");
        assert_eq!(dev.get_async_event(0), Err(Error::NoEvent));
        assert_eq!(ibv::query_port(&dev, 1).map(|attr| attr.active), Ok(up));
    }
    close(&port, dev);
}

#[test]
fn waiting_for_an_event_ends_at_the_deadline_with_etimedout() {
    let (port, dev) = open();
    for wait in [0, 1, 1_000_000, 50_000_000, 1_000_000_000] {
        let until = port.now() + wait;
        let error = dev.get_async_event(until).unwrap_err();
        assert_eq!((error, error.errno()), (Error::NoEvent, 110));
        let late = port.now() - until;
        assert!(late < 10_000_000, "{late} ns late after {wait}");
    }
    assert_eq!(dev.try_get_async_event(), None);
    close(&port, dev);
}

/// The model on its own thread and the wall clock.
#[test]
fn a_waiter_wakes_when_an_event_comes() {
    let (port, dev) = open();
    let running = port.model.spawn().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            port.model.inject(Fault::Link { up: false });
        });
        let event = dev.get_async_event(port.now() + 30_000_000_000);
        assert_eq!(event, Ok(AsyncEvent::PortErr { port_num: 1 }));
    });
    drop(running);
    close(&port, dev);
}

/// A fatal condition is found by whoever looks: without waiting, waiting, or in a command. The event comes once; then the device
/// says at once that it has failed.
#[test]
fn a_device_that_fails_says_so_once_and_then_on_every_wait() {
    let health = Fault::Health { syndrome: 0x10, severity: 2, request_reset: true };
    let broken = Failure::Health(HealthSyndrome(0x10));
    for (fault, why, errno) in [(health, broken, 5), (Fault::Removed, Failure::Gone, 19)] {
        for way in 0..3 {
            let (port, dev) = open();
            port.model.inject(fault);
            port.model.step(2_000_000);
            let event = match way {
                0 => dev.try_get_async_event().unwrap(),
                1 => dev.get_async_event(port.now() + 10_000_000_000).unwrap(),
                _ => {
                    assert!(dev.alloc_pd().is_err());
                    dev.get_async_event(u64::MAX).unwrap()
                }
            };
            assert_eq!((event, dev.failure()), (AsyncEvent::DeviceFatal(why), Some(why)), "{way}");
            assert_eq!(dev.try_get_async_event(), None);
            for _ in 0..3 {
                let error = dev.get_async_event(u64::MAX).unwrap_err();
                assert_eq!(error, Error::Failed { why, command: None, sent: false });
                assert_eq!(error.errno(), errno);
            }
            assert_eq!(dev.event_counters().kept, 1);
            drop(dev);
        }
    }
}

/// A waiter that waits already when the device leaves.
#[test]
fn a_waiter_is_told_when_the_device_leaves() {
    let (port, dev) = open();
    let running = port.model.spawn().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            port.model.inject(Fault::Removed);
        });
        assert_eq!(dev.get_async_event(u64::MAX), Ok(AsyncEvent::DeviceFatal(Failure::Gone)));
    });
    drop(running);
    drop(dev);
}

#[test]
fn a_firmware_that_answers_nothing_is_a_fatal_event() {
    let port = Port::new(ModelConfig::default());
    let mut config = DeviceConfig::new(ModelConfig::default().device_id);
    config.timeouts.command = 10_000_000;
    let dev = Device::open(port.clone(), port.clone(), config).unwrap();
    let alloc_pd = Match::Every(Opcode::ALLOC_PD.0);
    port.model.inject(Fault::Command { at: alloc_pd, effect: Effect::Never });
    for _ in 0..64 {
        assert_eq!((dev.failure(), dev.try_get_async_event()), (None, None));
        if !matches!(dev.alloc_pd(), Err(Error::Timeout { .. })) || dev.failure().is_some() {
            break;
        }
    }
    assert_eq!(taken(&dev), [AsyncEvent::DeviceFatal(Failure::Silent)]);
    assert_eq!(dev.get_async_event(u64::MAX).map_err(Error::errno), Err(110));
    drop(dev);
}

/// Events of every type with every sort of number, on each event queue: the device goes on, and no CQ or queue pair is in error.
#[test]
fn a_device_that_tells_nonsense_is_not_believed() {
    let mut p = pair();
    let queues: Vec<u32> = p.port.model.event_queues().iter().map(|eq| eq.eqn).collect();
    for eqn in queues {
        for kind in 0..=0xff {
            // Not the page requests: they are asked for by types that the driver serves.
            if kind == 0x0b {
                continue;
            }
            for byte in [0x00, 0xff] {
                p.port.model.inject(Fault::Event { eqn: Some(eqn), kind, sub: byte, data: [byte; 28] });
            }
            p.dev.service();
        }
    }
    assert!(p.dev.event_counters().unknown > 500);
    assert_eq!(p.dev.failure(), None);
    let (sent, received) = p.send(9, 100, SendFlags::empty());
    assert_eq!((sent.wr_id, received.wr_id, received.byte_len), (9, 9, 100));
    p.end();
}

/// A CQ and queue pairs in error, with events that nobody took: destroying them waits for nothing and gives all back.
#[test]
fn objects_in_error_are_destroyed_without_a_wait() {
    let mut p = pair();
    post(&mut p, 3);
    for (kind, number) in [(0x05, p.qp[0].qp_num()), (0x11, p.qp[1].qp_num())] {
        p.port.model.inject(Fault::QueueEvent { kind, number });
    }
    for cq in &p.cq {
        p.port.model.inject(Fault::CqError { cqn: cq.cqn(), syndrome: 2 });
    }
    let before = p.port.now();
    p.dev.service();
    let port = p.port.clone();
    p.end();
    assert!(port.now() - before < 1_000_000_000);
}

/// Threads make and end CQs whose numbers are given again at once, and break each. A CQ is in error when its own event has come, not
/// before, and each event has the context that belongs to its number.
#[test]
fn threads_get_only_the_events_of_their_own_objects() {
    const THREADS: u64 = 3;
    let (port, dev) = open();
    let running = port.model.spawn().unwrap();
    let made = Mutex::new(HashSet::new());
    let thread = |thread: u64| {
        for round in 0..100 {
            let context = thread << 32 | round;
            let mut cq = dev.create_cq(7, context, 0).unwrap();
            made.lock().unwrap().insert((cq.cqn(), context));
            assert_eq!(cq.poll_cq(&mut [Wc::default()]), Ok(0), "{context:#x}: it has no error yet");
            port.model.inject(Fault::CqError { cqn: cq.cqn(), syndrome: 1 });
            dev.service();
            let error = PollError::CqInError { syndrome: OVERRUN };
            assert_eq!(cq.poll_cq(&mut [Wc::default()]), Err(error), "{context:#x}");
            cq.destroy().map_err(|e| e.error).unwrap();
        }
    };
    let check = || match dev.try_get_async_event() {
        Some(AsyncEvent::CqErr { cq, syndrome: OVERRUN }) => {
            assert!(made.lock().unwrap().contains(&(cq.number, cq.context)), "{cq:x?}");
            true
        }
        None => false,
        Some(other) => panic!("{other:?}"),
    };
    std::thread::scope(|s| {
        let all: Vec<_> = (0..THREADS).map(|n| s.spawn(move || thread(n))).collect();
        while !all.iter().all(|thread| thread.is_finished()) {
            check();
        }
    });
    assert!(!check(), "the CQs are gone, and so are their events");
    assert_eq!(dev.event_counters().kept, 100 * THREADS);
    assert_eq!(dev.event_counters().unknown, 0);
    drop(running);
    close(&port, dev);
}

/// Objects that were dropped while the device refused to end them: what it still tells of them names a context of nobody's.
#[test]
fn an_object_that_was_dropped_is_not_told_of_even_if_the_device_keeps_it() {
    // DESTROY_CQ, DESTROY_QP, DESTROY_RMP.
    for opcode in [0x401, 0x501, 0x90e] {
        let (port, dev) = open();
        let (pd, cq) = (dev.alloc_pd().unwrap(), dev.create_cq(7, 1, 0).unwrap());
        let (srq, _) = crate::srq::srq_of(&pd, 4, 1).unwrap();
        let qp = create_qp(&pd, &cq, &cq, SIZES);
        let (cqn, qpn, srqn) = (cq.cqn(), qp.qp_num(), srq.srq_num());
        let effect = Effect::Status { status: 0x6, syndrome: 1 };
        port.model.inject(Fault::Command { at: Match::Every(opcode), effect });
        drop((qp, srq, cq));
        let event = match opcode {
            0x401 => Fault::CqError { cqn, syndrome: 1 },
            0x501 => Fault::QueueEvent { kind: 0x05, number: qpn },
            _ => Fault::QueueEvent { kind: 0x12, number: srqn },
        };
        port.model.inject(event);
        assert_eq!((taken(&dev), dev.event_counters().unknown), (vec![], 1), "{opcode:#x}");
    }
}
