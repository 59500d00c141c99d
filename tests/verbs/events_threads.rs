//! Threads that wait for events, with the model on a thread of its own: whoever hears an interrupt, everybody's events
//! come.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::events::{MS, SECOND, context, cq_on};
use crate::support::{Port, SIZES, close, connect, create_qp, open_config};
use mlx5::{CompChannel, Cq, Device, DeviceConfig, Error, Pd, Qp, RecvWr, SendFlags, SendWr, Wc};
use mlx5_model::{EventPace, Fault, ModelConfig};

const PATIENCE: Duration = Duration::from_secs(60);

fn device(completion_vectors: u32, interrupts: u32) -> (Port, Device) {
    let mut config = DeviceConfig::default();
    (config.completion_vectors, config.interrupts) = (completion_vectors, interrupts);
    open_config(ModelConfig::default(), config)
}

/// A queue pair connected to itself.
fn own(dev: &Device, pd: &Pd, cq: &Cq) -> Qp {
    let mut qp = create_qp(pd, cq, cq, SIZES);
    let me = qp.qp_num();
    connect(dev, &mut qp, me);
    qp
}

fn post(qp: &mut Qp, wr_id: u64) {
    qp.post_recv(&[RecvWr { wr_id, sg_list: &[] }]).unwrap();
    qp.post_send(&[SendWr { wr_id, send_flags: SendFlags::SIGNALED, ..Default::default() }]).unwrap();
}

/// Each thread has a CQ, and a channel of its own or one of all; all interrupts are one, or each vector has its own.
#[test]
fn threads_that_wait_on_the_same_vector_all_wake() {
    for (interrupts, shared) in [(1, false), (1, true), (3, false), (3, true)] {
        let (port, dev) = device(4, interrupts);
        let model = port.model.spawn().unwrap();
        let (pd, common) = (dev.alloc_pd().unwrap(), dev.create_comp_channel());
        let longest = AtomicU64::new(0);
        std::thread::scope(|s| {
            for t in 0..4 {
                let (dev, pd, common, longest) = (&dev, &pd, &common, &longest);
                s.spawn(move || {
                    let own_channel = dev.create_comp_channel();
                    let channel = if shared { common } else { &own_channel };
                    let mut cq = cq_on(dev, channel, 15, t.into(), t);
                    let mut qp = own(dev, pd, &cq);
                    for round in 0..60 {
                        post(&mut qp, round);
                        let mut have = 0;
                        while have < 2 {
                            let begun = dev.now();
                            cq.wait(dev.now() + 30 * SECOND).unwrap();
                            longest.fetch_max(dev.now() - begun, Ordering::Relaxed);
                            have += cq.poll_cq(&mut [Wc::default(); 2]).unwrap();
                        }
                    }
                    qp.destroy().map_err(|e| e.error).unwrap();
                    cq.destroy().map_err(|e| e.error).unwrap();
                    own_channel.destroy().map_err(|e| e.error).unwrap();
                });
            }
        });
        let longest = longest.into_inner() / MS;
        assert!(longest < 5_000, "a wait of {longest} ms, {interrupts} interrupts, shared channel: {shared}");
        drop(model);
        pd.dealloc().map_err(|e| e.error).unwrap();
        common.destroy().map_err(|e| e.error).unwrap();
        close(&port, dev);
    }
}

/// Threads whose CQs are on different vectors do not share an interrupt, so each sleeps until its own comes.
#[test]
fn with_an_interrupt_each_nobody_takes_naps() {
    let (port, dev) = device(3, 4);
    let model = port.model.spawn().unwrap();
    let pd = dev.alloc_pd().unwrap();
    let channels = [(); 3].map(|()| dev.create_comp_channel());
    let mut cqs: Vec<Cq> = (0..3).map(|i| cq_on(&dev, &channels[i as usize], 15, 0, i)).collect();
    let mut qps: Vec<Qp> = cqs.iter().map(|cq| own(&dev, &pd, cq)).collect();
    let pauses = port.pauses.load(Ordering::Relaxed);
    std::thread::scope(|s| {
        for (cq, qp) in cqs.iter_mut().zip(&mut qps) {
            let dev = &dev;
            s.spawn(move || {
                for round in 0..50 {
                    post(qp, round);
                    let mut have = 0;
                    while have < 2 {
                        cq.wait(dev.now() + 30 * SECOND).unwrap();
                        have += cq.poll_cq(&mut [Wc::default(); 2]).unwrap();
                    }
                }
                assert_eq!(cq.wait(dev.now() + 50 * MS), Err(Error::NoEvent));
            });
        }
    });
    assert_eq!(port.pauses.load(Ordering::Relaxed), pauses);
    drop(model);
    drop((qps, cqs, channels, pd));
    close(&port, dev);
}

/// A thread that waits for events does not keep commands of others from their answers, nor they it from its events.
#[test]
fn commands_and_waiting_share_a_vector() {
    let (port, dev) = device(1, 1);
    let model = port.model.spawn().unwrap();
    let channel = dev.create_comp_channel();
    let cq = cq_on(&dev, &channel, 7, 0, 0);
    let eqn = context(&dev, &cq).c_eqn();
    let (done, limit) = (AtomicBool::new(false), Instant::now() + PATIENCE);
    let waiter = |channel: &CompChannel| {
        let mut events = 0;
        loop {
            match channel.get_event(dev.now() + 20 * MS) {
                Ok(_) => events += 1,
                Err(Error::NoEvent) if done.load(Ordering::Acquire) => return events,
                other => assert!(other == Err(Error::NoEvent) && Instant::now() < limit, "{other:?}"),
            }
        }
    };
    let events: u64 = std::thread::scope(|s| {
        let waiters = [(); 2].map(|()| s.spawn(|| waiter(&channel)));
        let commanders = [(); 2].map(|()| {
            s.spawn(|| {
                for _ in 0..40 {
                    dev.alloc_pd().unwrap().dealloc().map_err(|e| e.error).unwrap();
                }
            })
        });
        for _ in 0..100 {
            port.model.inject(Fault::StrayCompletionEvent { eqn, cqn: cq.cqn() });
            std::thread::sleep(Duration::from_micros(300));
        }
        commanders.into_iter().for_each(|thread| thread.join().unwrap());
        done.store(true, Ordering::Release);
        waiters.map(|thread| thread.join().unwrap()).iter().sum()
    });
    assert_eq!(events, 100, "each event to one of them");
    assert_eq!(dev.command_counters().lost_events, 0);
    cq.ack_events(100).unwrap();
    drop(model);
    cq.destroy().map_err(|e| e.error).unwrap();
    channel.destroy().map_err(|e| e.error).unwrap();
    close(&port, dev);
}

/// A wait that began before a CQ joined hears of it.
#[test]
fn a_cq_that_joins_a_channel_is_heard_by_who_waits_already() {
    let (port, dev) = device(2, 3);
    let model = port.model.spawn().unwrap();
    let channel = dev.create_comp_channel();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| channel.get_event(dev.now() + 30 * SECOND));
        std::thread::sleep(Duration::from_millis(20));
        let cq = cq_on(&dev, &channel, 7, 77, 1);
        let eqn = context(&dev, &cq).c_eqn();
        port.model.inject(Fault::StrayCompletionEvent { eqn, cqn: cq.cqn() });
        assert_eq!(waiter.join().unwrap().map(|event| event.context), Ok(77));
        cq.ack_events(1).unwrap();
    });
    drop(model);
    channel.destroy().map_err(|e| e.error).unwrap();
    close(&port, dev);
}

/// CQs come and go with events on their way, while others take what there is: no event of one that is gone, none of the
/// one before under the same number.
#[test]
fn cqs_are_destroyed_while_their_events_are_taken() {
    let (port, dev) = device(1, 1);
    let model = port.model.spawn().unwrap();
    let channel = dev.create_comp_channel();
    let (done, limit) = (AtomicBool::new(false), Instant::now() + PATIENCE);
    let acked = std::thread::scope(|s| {
        let taker = s.spawn(|| {
            let mut taken = Vec::new();
            while !done.load(Ordering::Acquire) {
                assert!(Instant::now() < limit);
                if let Ok(event) = channel.get_event(dev.now() + MS) {
                    taken.push(event.context);
                }
            }
            taken
        });
        let mut acked = vec![0; 60];
        for round in 0..60 {
            let mut cq = cq_on(&dev, &channel, 7, round, 0);
            let eqn = context(&dev, &cq).c_eqn();
            for _ in 0..3 {
                port.model.inject(Fault::StrayCompletionEvent { eqn, cqn: cq.cqn() });
            }
            while let Err(refused) = cq.destroy() {
                let Error::UnackedEvents { count } = refused.error else { panic!("{}", refused.error) };
                cq = refused.object;
                cq.ack_events(count as u32).unwrap();
                acked[round as usize] += count;
            }
        }
        done.store(true, Ordering::Release);
        let taken = taker.join().unwrap();
        for (round, acked) in acked.iter().enumerate() {
            let of_round = taken.iter().filter(|context| **context == round as u64).count() as u64;
            assert_eq!(of_round, *acked, "what was taken of CQ {round} was acknowledged");
            assert!(of_round <= 3);
        }
        acked.iter().sum::<u64>()
    });
    println!("{acked} of 180 events were taken");
    drop(model);
    channel.destroy().map_err(|e| e.error).unwrap();
    close(&port, dev);
}

/// Events and interrupts come late, together and partly not at all; each waiter wakes all the same.
#[test]
fn late_and_lost_interrupts_keep_nobody_asleep() {
    let (port, dev) = device(2, 3);
    let pace = EventPace { event_ns: (0, MS), interrupt_ns: (0, MS), lose_one_in: 4 };
    for eq in port.model.event_queues() {
        assert!(port.model.set_event_pace(eq.eqn, pace));
    }
    port.model.set_arm_sees_waiting(false);
    let model = port.model.spawn().unwrap();
    let (pd, channel) = (dev.alloc_pd().unwrap(), dev.create_comp_channel());
    std::thread::scope(|s| {
        for t in 0..3 {
            let (dev, pd, channel) = (&dev, &pd, &channel);
            s.spawn(move || {
                let mut cq = cq_on(dev, channel, 15, t.into(), t % 2);
                let mut qp = own(dev, pd, &cq);
                for round in 0..20 {
                    post(&mut qp, round);
                    let mut have = 0;
                    while have < 2 {
                        cq.wait(dev.now() + 30 * SECOND).unwrap();
                        have += cq.poll_cq(&mut [Wc::default(); 2]).unwrap();
                    }
                }
                qp.destroy().map_err(|e| e.error).unwrap();
                cq.destroy().map_err(|e| e.error).unwrap();
            });
        }
    });
    drop(model);
    pd.dealloc().map_err(|e| e.error).unwrap();
    channel.destroy().map_err(|e| e.error).unwrap();
    close(&port, dev);
}

/// The event that a thread sleeps for in `Cq::wait` is taken by another one that asks the channel.
#[test]
fn a_wait_for_a_cq_ends_when_another_thread_takes_its_event() {
    for step in 3..=7 {
        let (port, dev) = device(1, 1);
        let channel = Arc::new(dev.create_comp_channel());
        let mut cq = cq_on(&dev, &channel, 7, 0, 0);
        let (model, cqn, other) = (port.model.clone(), cq.cqn(), channel.clone());
        let hook = move || {
            let mut entry = [0; 64];
            entry[63] = 0x70;
            assert!(model.inject_cqe(cqn, entry));
            assert_eq!(other.try_get_event().map(|event| event.cqn), Some(cqn));
        };
        *port.at_now.lock().unwrap() = Some((step, Box::new(hook)));
        assert_eq!(cq.wait(dev.now() + SECOND), Ok(()), "step {step}");
        cq.ack_events(1).unwrap();
        assert!(cq.ack_events(1).is_err(), "the other one's only");
        drop((cq, channel));
        close(&port, dev);
    }
}
