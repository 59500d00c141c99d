//! Sleeping until an event comes: deadlines, interrupts, and what else is done meanwhile.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use crate::events::{ETIMEDOUT, MS, SECOND, channel_pair, context, cq_on, end, pair_on_channel};
use crate::poll_sessions::{burst, kinds};
use crate::support::{QP_CAP_64, close, open, open_config, pair_on};
use mlx5::hw::eqe::CqErrorSyndrome;
use mlx5::hw::platform::Platform;
use mlx5::{
    CompChannel, Cq, CqInitAttrEx, CqInitAttrMask, CreateCqFlags, Device, DeviceConfig, Error, Failure, SendFlags, Wc,
};
use mlx5_model::{DataFault, Effect, EventPace, Fault, Match, ModelConfig};

/// A config with so many completion vectors and interrupts.
fn vectors(completion_vectors: u32, interrupts: u32) -> DeviceConfig {
    let mut config = DeviceConfig::default();
    (config.completion_vectors, config.interrupts) = (completion_vectors, interrupts);
    config
}

#[test]
fn a_wait_without_events_ends_at_its_deadline() {
    let (port, dev) = open();
    let channel = dev.create_comp_channel();
    let cq = cq_on(&dev, &channel, 7, 0, 0);
    for wait in [0, 1, MS, 7 * SECOND] {
        let (begun, deadline) = (dev.now(), dev.now() + wait);
        let error = channel.get_event(deadline).unwrap_err();
        assert_eq!((error, error.errno()), (Error::NoEvent, ETIMEDOUT));
        let late = dev.now().saturating_sub(deadline);
        assert!(dev.now() - begun >= wait && late < MS, "{wait} ns: {late} ns late");
    }
    assert_eq!(channel.get_event(0), Err(Error::NoEvent), "a time that is over");
    drop((cq, channel));
    close(&port, dev);
}

/// It sleeps in long stretches, asks the device for nothing and tells it nothing.
#[test]
fn an_idle_wait_rings_no_doorbell_and_looks_ten_times_a_second() {
    let (port, dev) = open_config(ModelConfig::default(), vectors(4, 5));
    let channel = dev.create_comp_channel();
    let mut cqs: Vec<_> = (0..4).map(|vector| cq_on(&dev, &channel, 7, 0, vector)).collect();
    cqs[2].req_notify(false).unwrap();
    let counts = || [&port.doorbells, &port.writes32, &port.waits, &port.pauses].map(|n| n.load(Relaxed));
    let before = counts();
    assert_eq!(channel.get_event(dev.now() + 10 * SECOND), Err(Error::NoEvent));
    let made: Vec<u64> = counts().iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!((made[0], made[1], made[3]), (0, 0, 0), "doorbells of CQs and of event queues, naps");
    assert!((100..110).contains(&made[2]), "{} waits in ten seconds", made[2]);
    drop((cqs, channel));
    close(&port, dev);
}

#[test]
fn a_wait_that_finds_an_event_does_not_sleep() {
    let (channel, mut pair) = channel_pair();
    pair.cq[1].req_notify(false).unwrap();
    pair.post(1, SendFlags::empty());
    let waits = pair.port.waits.load(Relaxed);
    assert_eq!(channel.get_event(0).map(|event| event.context), Ok(101), "also when it is too late to wait");
    assert_eq!(pair.port.waits.load(Relaxed), waits);
    pair.cq[1].ack_events(1).unwrap();
    pair.poll(0, 1);
    pair.poll(1, 1);
    end(channel, pair);
}

/// An event that comes later ends the sleep when it comes, which is not when a sleeper looks anyway.
#[test]
fn a_wait_ends_when_the_event_comes() {
    for device in [vectors(1, 1), vectors(1, 2), vectors(1, 80)] {
        let (channel, mut pair) = pair_on_channel(device);
        let late = 30 * SECOND + 50 * MS;
        pair.port.model.inject_data(DataFault::LateCqe { ns: late }, 0);
        pair.arm(false);
        pair.post(1, SendFlags::empty());
        let first = channel.get_event(u64::MAX).unwrap();
        let begun = pair.dev.now();
        let second = channel.get_event(u64::MAX).unwrap();
        let took = pair.dev.now() - begun;
        assert_ne!(first.cqn, second.cqn);
        assert!((late - MS..=late + MS).contains(&took), "{took} ns");
        pair.ack();
        pair.poll(0, 1);
        pair.poll(1, 1);
        end(channel, pair);
    }
}

/// The event queue of completion vector n raises interrupt 1 + n, and a channel listens to those of its CQs.
#[test]
fn a_channel_listens_to_the_vectors_of_its_cqs() {
    // Vectors, interrupts; completion vectors of the CQs on the channel; interrupts that it listens to.
    type Row<'a> = (u32, u32, &'a [u32], u64);
    let table: [Row<'_>; 8] = [
        (4, 5, &[0], 1 << 1),
        (4, 5, &[3], 1 << 4),
        (4, 5, &[0, 2, 2], 1 << 1 | 1 << 3),
        (4, 3, &[2], 1 << 1),
        (4, 3, &[2, 3], 1 << 1 | 1 << 2),
        (4, 1, &[0, 1, 2, 3], 1 << 0),
        (4, 0, &[0, 1], 1 << 0),
        (27, 1000, &[26], 1 << 27),
    ];
    for (completion, interrupts, on, listens) in table {
        let (port, dev) = open_config(ModelConfig::default(), vectors(completion, interrupts));
        let (channel, elsewhere) = (dev.create_comp_channel(), dev.create_comp_channel());
        let cqs: Vec<_> = on.iter().map(|vector| cq_on(&dev, &channel, 7, 0, *vector)).collect();
        let other = cq_on(&dev, &elsewhere, 7, 0, 1);
        port.vectors.store(0, Relaxed);
        channel.get_event(dev.now() + SECOND).unwrap_err();
        assert_eq!(port.vectors.load(Relaxed), listens, "vectors {on:?} of {completion}, {interrupts} interrupts");
        drop(cqs);
        let (waits, pauses) = (port.waits.load(Relaxed), port.pauses.load(Relaxed));
        channel.get_event(dev.now() + SECOND).unwrap_err();
        assert_eq!((port.waits.load(Relaxed), port.pauses.load(Relaxed)), (waits, pauses + 10), "no CQ, no interrupt");
        drop((other, channel, elsewhere));
        close(&port, dev);
    }
}

/// Events of CQs on several completion vectors come to one channel, whatever interrupts there are.
#[test]
fn events_of_all_vectors_come_to_one_channel() {
    for interrupts in [1, 2, 3, 5, 9] {
        let (port, dev) = open_config(ModelConfig::default(), vectors(4, interrupts));
        let channel = dev.create_comp_channel();
        let cqs: Vec<_> = (0..4).map(|vector| cq_on(&dev, &channel, 7, vector.into(), vector)).collect();
        let mut eqns: Vec<u32> = cqs.iter().map(|cq| context(&dev, cq).c_eqn()).collect();
        for (cq, eqn) in cqs.iter().zip(&eqns) {
            port.model.inject(Fault::StrayCompletionEvent { eqn: *eqn, cqn: cq.cqn() });
        }
        let mut seen: Vec<u64> = (0..4).map(|_| channel.get_event(0).unwrap().context).collect();
        seen.sort();
        assert_eq!(seen, [0, 1, 2, 3]);
        eqns.sort();
        eqns.dedup();
        assert_eq!(eqns.len(), 4, "an event queue each");
        cqs.iter().for_each(|cq| cq.ack_events(1).unwrap());
        drop((cqs, channel));
        close(&port, dev);
    }
}

#[test]
fn a_lost_interrupt_costs_a_tenth_of_a_second_and_no_event() {
    let (channel, mut pair) = channel_pair();
    let eqn = context(&pair.dev, &pair.cq[0]).c_eqn();
    assert!(pair.port.model.set_event_pace(eqn, EventPace { lose_one_in: 1, ..Default::default() }));
    for round in 0..3 {
        pair.port.model.inject_data(DataFault::LateCqe { ns: 5 * SECOND }, 1);
        pair.arm(false);
        pair.post(round, SendFlags::empty());
        let begun = pair.dev.now();
        for _ in 0..2 {
            channel.get_event(u64::MAX).unwrap();
        }
        let took = pair.dev.now() - begun;
        assert!((5 * SECOND..=5 * SECOND + 101 * MS).contains(&took), "{took} ns");
        pair.ack();
        pair.poll(0, 1);
        pair.poll(1, 1);
    }
    end(channel, pair);
}

/// The polled variant: a port without interrupts.
#[test]
fn without_interrupts_waiting_looks_again_and_again() {
    let (channel, mut pair) = channel_pair();
    pair.port.no_interrupts.store(true, Relaxed);
    pair.port.model.inject_data(DataFault::LateCqe { ns: 50 * MS }, 1);
    pair.arm(false);
    pair.post(1, SendFlags::empty());
    channel.get_event(u64::MAX).unwrap();
    channel.get_event(u64::MAX).unwrap();
    assert_eq!(channel.get_event(pair.dev.now() + SECOND), Err(Error::NoEvent));
    pair.ack();
    pair.poll(0, 1);
    pair.poll(1, 1);
    end(channel, pair);
}

/// Commands take the events of all queues while they wait, and lose none.
#[test]
fn events_that_a_command_took_are_there_afterwards() {
    let (channel, mut pair) = channel_pair();
    pair.port.model.inject_data(DataFault::LateCqe { ns: 3 * MS }, 1);
    pair.arm(false);
    pair.post(1, SendFlags::empty());
    let completions = pair.dev.event_counters().completions;
    pair.port.model.inject(Fault::Command { at: Match::Opcode(0x800), effect: Effect::Late(20 * MS) });
    pair.dev.alloc_pd().unwrap().dealloc().map_err(|e| e.error).unwrap();
    assert_eq!(pair.dev.event_counters().completions, completions + 2, "taken by the command");
    let mut seen = [channel.get_event(0), channel.get_event(0)].map(|event| event.unwrap().context);
    seen.sort();
    assert_eq!(seen, [100, 101]);
    pair.ack();
    pair.poll(0, 1);
    pair.poll(1, 1);
    end(channel, pair);
}

#[test]
fn page_requests_are_served_while_an_event_is_waited_for() {
    for interrupts in [1, 2] {
        let (port, dev) = open_config(ModelConfig::default(), vectors(1, interrupts));
        let channel = dev.create_comp_channel();
        let cq = cq_on(&dev, &channel, 7, 0, 0);
        let pages = port.model.firmware_pages();
        port.model.inject(Fault::PageRequest(5));
        channel.get_event(dev.now() + SECOND).unwrap_err();
        assert_eq!((port.model.firmware_pages(), dev.page_counters().requests), (pages + 5, 1));
        drop((cq, channel));
        close(&port, dev);
    }
}

#[test]
fn waiting_ends_when_the_device_fails_after_the_events_that_came_before() {
    let (channel, mut pair) = channel_pair();
    pair.cq[1].req_notify(false).unwrap();
    pair.post(1, SendFlags::empty());
    pair.port.model.inject(Fault::Removed);
    assert_eq!(channel.get_event(u64::MAX).map(|event| event.context), Ok(101));
    let begun = pair.dev.now();
    let error = channel.get_event(u64::MAX).unwrap_err();
    assert_eq!(error, Error::Failed { why: Failure::Gone, command: None, sent: false });
    assert!(pair.dev.now() - begun < SECOND);
    assert_eq!(pair.cq[0].wait(u64::MAX), Ok(()), "a completion is there");
    pair.poll(0, 1);
    assert_eq!(pair.cq[0].wait(u64::MAX), Err(error));
    assert_eq!(channel.try_get_event(), None);
}

#[test]
fn asking_without_waiting_does_not_wait() {
    let (channel, pair) = channel_pair();
    let counts =
        || [&pair.port.doorbells, &pair.port.writes32, &pair.port.waits, &pair.port.pauses].map(|n| n.load(Relaxed));
    let before = (counts(), pair.dev.now());
    for _ in 0..100 {
        assert_eq!(channel.try_get_event(), None);
    }
    assert_eq!(counts(), before.0);
    assert!(pair.dev.now() - before.1 < MS);
    end(channel, pair);
}

/// The convenience: whatever comes when, it returns when there is something to poll, and leaves no event unacknowledged.
#[test]
fn waiting_for_a_cq_returns_when_there_is_something_to_poll() {
    let (channel, mut pair) = channel_pair();
    let deadline = pair.dev.now() + SECOND;
    assert_eq!(pair.cq[1].wait(deadline), Err(Error::NoEvent));
    // Already there: nothing is asked for.
    pair.post(1, SendFlags::empty());
    let doorbells = pair.port.doorbells.load(Relaxed);
    assert_eq!(pair.cq[0].wait(0), Ok(()));
    assert_eq!(pair.port.doorbells.load(Relaxed), doorbells);
    pair.poll(0, 1);
    pair.poll(1, 1);
    // Of the wait before an event is still on its way: it is taken, and more is waited for.
    for round in 0..5 {
        pair.port.model.inject_data(DataFault::LateCqe { ns: SECOND }, 0);
        pair.post(round, SendFlags::empty());
        let begun = pair.dev.now();
        assert_eq!(pair.cq[1].wait(u64::MAX), Ok(()));
        assert!((SECOND..SECOND + MS).contains(&(pair.dev.now() - begun)));
        pair.poll(0, 1);
        pair.poll(1, 1);
    }
    end(channel, pair);
}

#[test]
fn waiting_for_a_cq_leaves_the_events_of_others() {
    let (channel, mut pair) = channel_pair();
    pair.cq[0].req_notify(false).unwrap();
    pair.port.model.inject_data(DataFault::LateCqe { ns: SECOND }, 0);
    pair.post(1, SendFlags::empty());
    assert_eq!(pair.cq[1].wait(u64::MAX), Ok(()));
    assert_eq!(channel.get_event(0).map(|event| event.context), Ok(100));
    assert_eq!(channel.get_event(0), Err(Error::NoEvent));
    pair.cq[0].ack_events(1).unwrap();
    pair.poll(0, 1);
    pair.poll(1, 1);
    // One that is first in the line: taken by a wait that finds nothing to poll.
    let eqn = context(&pair.dev, &pair.cq[0]).c_eqn();
    for side in [1, 0] {
        pair.port.model.inject(Fault::StrayCompletionEvent { eqn, cqn: pair.cq[side].cqn() });
    }
    assert_eq!(pair.cq[1].wait(pair.dev.now() + MS), Err(Error::NoEvent));
    assert_eq!(channel.get_event(0).map(|event| event.context), Ok(100));
    pair.cq[0].ack_events(1).unwrap();
    pair.post(1, SendFlags::empty());
    pair.poll(0, 1);
    pair.poll(1, 1);
    end(channel, pair);
}

/// What an error cost is nothing: the next wait goes on.
#[test]
fn a_wait_for_a_cq_that_timed_out_is_gone_on_with() {
    let (channel, mut pair) = channel_pair();
    pair.port.model.inject_data(DataFault::LateCqe { ns: SECOND }, 0);
    pair.post(1, SendFlags::empty());
    let begun = pair.dev.now();
    while pair.cq[1].wait(pair.dev.now() + 100 * MS) == Err(Error::NoEvent) {}
    assert!((SECOND..SECOND + MS).contains(&(pair.dev.now() - begun)));
    pair.poll(0, 1);
    pair.poll(1, 1);
    end(channel, pair);
}

/// An error entry of no queue: it raises an event whatever the CQ was armed for.
const ENTRY: [u8; 64] = {
    let mut bytes = [0; 64];
    bytes[63] = 0xd0;
    bytes
};

/// While a thread is about to sleep, another one takes the event out of the event queue, at each step of the way. The interrupt
/// is left to the first.
#[test]
fn an_event_that_another_thread_takes_just_before_the_sleep_still_ends_it() {
    for step in 1..=6 {
        let (port, dev) = open();
        let dev = Arc::new(dev);
        let channel = dev.create_comp_channel();
        let mut cq = cq_on(&dev, &channel, 7, 0, 0);
        cq.req_notify(false).unwrap();
        port.model.inject(Fault::Command { at: Match::Opcode(0x800), effect: Effect::Late(20 * MS) });
        let (model, cqn, other) = (port.model.clone(), cq.cqn(), dev.clone());
        let pd = Arc::new(Mutex::new(None));
        let made = pd.clone();
        let hook = move || {
            assert!(model.inject_cqe(cqn, ENTRY));
            // Its command waits, and takes all events meanwhile, that of its own end included.
            let command = move || *made.lock().unwrap() = Some(other.alloc_pd().unwrap());
            std::thread::spawn(command).join().unwrap();
        };
        *port.at_now.lock().unwrap() = Some((step, Box::new(hook)));
        let begun = dev.now();
        assert_eq!(channel.get_event(u64::MAX).map(|event| event.cqn), Ok(cqn));
        assert!(port.at_now.lock().unwrap().is_none(), "step {step} was reached");
        let took = dev.now() - begun;
        assert!(took < 50 * MS, "step {step}: {took} ns");
        cq.ack_events(1).unwrap();
        drop((cq, channel, pd));
        close(&port, Arc::try_unwrap(dev).unwrap());
    }
}

/// A completion that comes between looking and asking raises no event on a device that tells of later ones only.
#[test]
fn waiting_for_a_cq_looks_once_more_after_asking() {
    let (port, dev) = open();
    port.model.set_arm_sees_waiting(false);
    let channel = dev.create_comp_channel();
    let mut cq = cq_on(&dev, &channel, 7, 0, 0);
    let (model, cqn) = (port.model.clone(), cq.cqn());
    *port.at_doorbell.lock().unwrap() = Some(Box::new(move || assert!(model.inject_cqe(cqn, ENTRY))));
    let waits = port.waits.load(Relaxed);
    assert_eq!(cq.wait(dev.now() + SECOND), Ok(()));
    assert_eq!(port.waits.load(Relaxed), waits, "it did not sleep");
    assert_eq!(channel.try_get_event(), None, "no event came");
    assert!(cq.poll_cq(&mut [Default::default(); 1]).is_err());
    drop((cq, channel));
    close(&port, dev);
}

/// No completion will come, so nobody waits for one: neither who begins to nor who has begun.
#[test]
fn a_cq_in_error_is_not_waited_for() {
    let (port, dev) = open();
    let channel = dev.create_comp_channel();
    let mut cq = cq_on(&dev, &channel, 7, 0, 0);
    assert!(port.model.inject_cqe(cq.cqn(), ENTRY));
    let (model, cqn) = (port.model.clone(), cq.cqn());
    *port.at_now.lock().unwrap() = Some((3, Box::new(move || model.inject(Fault::CqError { cqn, syndrome: 2 }))));
    assert_eq!(cq.wait(u64::MAX), Ok(()), "there is an entry");
    assert!(cq.poll_cq(&mut [Default::default(); 1]).is_err());
    let error = Err(Error::CqInError { syndrome: CqErrorSyndrome::CQ_ACCESS_VIOLATION_ERROR });
    let begun = dev.now();
    assert_eq!(cq.wait(u64::MAX), error);
    assert!(dev.now() - begun < MS, "an interrupt told of it");
    let doorbells = port.doorbells.load(Relaxed);
    assert_eq!((cq.wait(u64::MAX), cq.req_notify(true)), (error, error));
    assert_eq!(port.doorbells.load(Relaxed), doorbells);
    drop((cq, channel));
    close(&port, dev);
}

/// Whatever its entries are, a CQ is asked at the index up to which it was read, in the middle of a session too.
#[test]
fn every_kind_of_cq_wakes_its_poller_wherever_it_stopped() {
    type Make<'a> = Box<dyn Fn(&Device, u32, &CompChannel) -> Cq + 'a>;
    let ignoring = |dev: &Device, cqe, channel: &CompChannel| {
        let (comp_mask, flags) = (CqInitAttrMask::FLAGS, CreateCqFlags::IGNORE_OVERRUN);
        let attr = CqInitAttrEx { cqe, channel: Some(channel), comp_mask, flags, ..Default::default() };
        dev.create_cq_ex(&attr).unwrap()
    };
    let mut makes: Vec<Make<'_>> =
        vec![Box::new(|dev, cqe, channel| cq_on(dev, channel, cqe, 0, 0)), Box::new(ignoring)];
    makes.extend(kinds().into_iter().map(|kind| {
        Box::new(move |dev: &Device, cqe, on: &CompChannel| kind.create_on(dev, cqe, Some(on))) as Make<'_>
    }));
    for make in makes {
        let (port, dev) = open();
        let channel = dev.create_comp_channel();
        let mut pair = pair_on((port, dev), 63, QP_CAP_64, |dev, cqe| make(dev, cqe, &channel));
        let mut wcs = [Wc::default(); 64];
        for (round, batch) in (0..).zip([1, 2, 3, 5, 8, 13, 16, 63, 64]) {
            burst(&mut pair, 64 * round, 64);
            for side in [0, 1] {
                let mut left = 64;
                while left > 0 {
                    pair.cq[side].req_notify(false).unwrap();
                    assert_eq!(channel.get_event(0).map(|event| event.cqn), Ok(pair.cq[side].cqn()), "{left} left");
                    pair.cq[side].ack_events(1).unwrap();
                    left -= pair.cq[side].poll_cq(&mut wcs[..left.min(batch)]).unwrap();
                }
                pair.cq[side].req_notify(false).unwrap();
                assert_eq!(channel.try_get_event(), None, "all is polled");
            }
            // Both were asked, and tell of the next burst.
            burst(&mut pair, 64 * round, 64);
            for _ in 0..2 {
                channel.get_event(0).unwrap();
            }
            pair.ack();
            assert_eq!(channel.try_get_event(), None);
            for side in [0, 1] {
                assert_eq!(pair.cq[side].wait(0), Ok(()));
                pair.poll(side, 64);
            }
        }
        end(channel, pair);
    }
}

/// As many events as are taken at once, or twice as many, leave the event queue armed: what comes then interrupts.
#[test]
fn any_number_of_events_leaves_the_interrupt_on() {
    for events in [15, 16, 17, 32, 33] {
        let (channel, mut pair) = channel_pair();
        let eqn = context(&pair.dev, &pair.cq[0]).c_eqn();
        (0..events).for_each(|_| pair.port.model.inject(Fault::StrayCompletionEvent { eqn, cqn: pair.cq[0].cqn() }));
        while channel.try_get_event().is_some() {}
        pair.cq[0].ack_events(events).unwrap();
        // Between two looks.
        let late = 5 * SECOND + 50 * MS;
        pair.port.model.inject_data(DataFault::LateCqe { ns: late }, 1);
        pair.cq[0].req_notify(false).unwrap();
        pair.post(1, SendFlags::empty());
        let begun = pair.dev.now();
        channel.get_event(u64::MAX).unwrap();
        let took = pair.dev.now() - begun;
        assert!((late - MS..=late + MS).contains(&took), "{events} events: {took} ns");
        pair.cq[0].ack_events(1).unwrap();
        pair.poll(0, 1);
        pair.poll(1, 1);
        end(channel, pair);
    }
}

/// An event comes when the event queues have just been emptied, and its interrupt goes to another thread, which has not
/// taken the event when this one begins to listen.
#[test]
fn an_event_whose_interrupt_another_thread_has_is_found_before_the_sleep() {
    let (port, dev) = open();
    let (channel, elsewhere) = (dev.create_comp_channel(), dev.create_comp_channel());
    let (cq, other) = (cq_on(&dev, &channel, 7, 1, 0), cq_on(&dev, &elsewhere, 7, 2, 0));
    let (eqn, cqn) = (context(&dev, &cq).c_eqn(), cq.cqn());
    let model = port.model.clone();
    // The event queue is told how far it was read when there was something in it.
    port.model.inject(Fault::StrayCompletionEvent { eqn, cqn: other.cqn() });
    *port.after_write32.lock().unwrap() = Some(Box::new(move || {
        model.inject(Fault::StrayCompletionEvent { eqn, cqn });
        model.wait_any(u64::MAX, 0);
    }));
    let begun = dev.now();
    assert_eq!(channel.get_event(begun + SECOND).map(|event| event.context), Ok(1));
    let took = dev.now() - begun;
    assert!(took < MS, "{took} ns");
    cq.ack_events(1).unwrap();
    drop((cq, other, channel, elsewhere));
    close(&port, dev);
}
