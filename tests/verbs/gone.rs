//! A function that leaves, or is reset by somebody else, while a call waits for it: every call ends soon, says so by type, and
//! memory comes back only with a reset that the platform confirms.

use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

use mlx5::hw::cmd::Opcode;
use mlx5::hw::init_segment::{InitSegment, NicInterface};
use mlx5::hw::platform::{Bar, Platform};
use mlx5::{
    AccessFlags, AsyncEvent, CompChannel, Device, DeviceConfig, Error, Failure, Health, Mr, PostError, QpAttr,
    QpAttrMask, QpState, RecvWr, SendFlags, SendWr,
};
use mlx5_model::{Effect, Fault, Match, Model, ModelConfig};

use crate::events::pair_on_channel;
use crate::support::{Pair, Port, open, open_config, pair};

const MS: u64 = 1_000_000;
/// Within this time of the platform's clock each wait ends: a look every 100 ms while events are waited for, and every
/// millisecond in a command.
const BOUND: u64 = 102 * MS;

/// How a function is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    Removed,
    /// A function level reset; it stays off the bus.
    ResetOff,
    /// The same, and the function is turned on again, as Linux does when asked through sysfs.
    ResetOn,
    /// Somebody shuts its interface down.
    Disabled,
    /// The firmware gives up.
    Fatal,
}

const LOSSES: [(Loss, Failure); 5] = [
    (Loss::Removed, Failure::Gone),
    (Loss::ResetOff, Failure::Gone),
    (Loss::ResetOn, Failure::Reset),
    (Loss::Disabled, Failure::NicDisabled),
    (Loss::Fatal, Failure::Health(mlx5::hw::health::HealthSyndrome(0x10))),
];

impl Loss {
    fn happens(self, model: &Model) {
        match self {
            Self::Removed => model.inject(Fault::Removed),
            Self::ResetOff => model.config_write(0x68, 2, 0x8000),
            Self::ResetOn => {
                model.config_write(0x68, 2, 0x8000);
                model.config_write(0x04, 2, 0x6);
            }
            Self::Disabled => InitSegment::new(model).set_nic_interface(NicInterface::DISABLED),
            Self::Fatal => model.inject(Fault::Health { syndrome: 0x10, severity: 2, request_reset: true }),
        }
    }
}

/// What a call can use.
struct World {
    channel: CompChannel,
    pair: Pair,
    mr: Option<Mr>,
}

fn world() -> World {
    let (channel, pair) = pair_on_channel(DeviceConfig::default());
    let memory: &'static mut [u64; 1024] = Box::leak(Box::new([0; 1024]));
    // SAFETY: the memory lives for ever, and nothing else refers to it.
    let mr = unsafe { pair.pd.reg_mr(NonNull::from(memory).cast(), 8192, AccessFlags::LOCAL_WRITE) }.unwrap();
    World { channel, pair, mr: Some(mr) }
}

type Call = fn(&mut World) -> Result<(), Error>;

/// Calls that wait for an event, for ever.
const WAITS: [(&str, Call); 3] = [
    ("Cq::wait", |w| w.pair.cq[1].wait(u64::MAX)),
    ("get_event", |w| w.channel.get_event(u64::MAX).map(|_| ())),
    ("get_async_event", |w| match w.pair.dev.get_async_event(u64::MAX) {
        Ok(AsyncEvent::DeviceFatal(_)) => w.pair.dev.get_async_event(u64::MAX).map(|_| ()),
        other => other.map(|_| ()),
    }),
];

/// Calls that wait for the answer to a command, and its opcode.
const COMMANDS: [(&str, u16, Call); 9] = [
    ("alloc_pd", 0x800, |w| w.pair.dev.alloc_pd().map(drop)),
    ("create_cq", 0x400, |w| w.pair.dev.create_cq(7, 0, 0).map(drop)),
    ("query", 0x402, |w| w.pair.cq[0].query().map(|_| ())),
    ("resize", 0x403, |w| w.pair.cq[0].resize(127)),
    ("create_qp", 0x500, |w| {
        let Pair { pd, cq, .. } = &w.pair;
        pd.create_qp(&mut mlx5::QpInitAttr::new(&cq[0], &cq[1], crate::support::SIZES)).map(drop)
    }),
    ("modify_qp", 0x507, |w| w.pair.qp[0].modify(&to_error(), QpAttrMask::STATE)),
    ("alloc_buf", 0x200, |w| w.pair.pd.alloc_buf(4096, AccessFlags::empty()).map(drop)),
    ("dereg_mr", 0x202, |w| match w.mr.take().expect("once").dereg() {
        Ok(()) => Ok(()),
        Err(back) => Err(back.error),
    }),
    ("general_cmd", 0x101, |w| {
        // SAFETY: a query names no memory and takes nothing away.
        unsafe { w.pair.dev.general_cmd(&mlx5::hw::cmd::QueryAdapter) }.map(|_| ())
    }),
];

fn to_error() -> QpAttr {
    QpAttr { qp_state: QpState::Err, ..Default::default() }
}

/// Loses the function when the clock is read for the `step`-th time from now.
fn lose_at(port: &Port, step: u32, loss: Loss) {
    let model = port.model.clone();
    *port.at_now.lock().unwrap() = Some((step, Box::new(move || loss.happens(&model))));
}

/// The call ended in time, by this failure, and so do all calls from now on, at once.
fn check(w: &mut World, what: &str, begun: u64, result: Result<(), Error>, why: Failure) {
    let took = w.pair.dev.now() - begun;
    assert!(took <= BOUND, "{what}, {why:?}: {took} ns");
    assert!(matches!(result, Err(Error::Failed { why: told, .. }) if told == why), "{what}, {why:?}: {result:?}");
    assert_eq!(w.pair.dev.failure(), Some(why), "{what}");
    let begun = w.pair.dev.now();
    for (next, call) in WAITS {
        assert!(matches!(call(w), Err(Error::Failed { .. })), "{next} after {what}, {why:?}");
    }
    for (next, _, call) in COMMANDS {
        // There is nothing left to deregister; and a resize whose answer was lost has been done.
        if next == "dereg_mr" && w.mr.is_none() || (next, what) == ("resize", "resize") {
            continue;
        }
        let result = call(w);
        assert!(matches!(result, Err(Error::Failed { sent: false, .. })), "{next} after {what}, {why:?}: {result:?}");
    }
    assert!(w.pair.dev.now() - begun < 10 * MS, "{what}, {why:?}");
}

/// Everything goes, at once, and its memory with it unless no reset confirms that the device is done with it.
fn end(w: World, what: &str, loss: Loss) {
    let World { channel, pair, mr } = w;
    let Pair { port, dev, pd, cq, qp, buf } = pair;
    let begun = dev.now();
    drop((mr, qp, cq, buf, pd, channel));
    let resets = port.resets.load(Relaxed);
    let back = dev.close();
    assert!(port.now() - begun < 10 * MS, "{what}, {loss:?}: {} ns", port.now() - begun);
    assert_eq!(port.resets.load(Relaxed), resets + 1, "{what}, {loss:?}: a reset is tried once");
    if loss == Loss::Removed {
        let back = back.unwrap_err();
        let kept: BTreeSet<_> = back.object.leaked().iter().map(|piece| piece.what).collect();
        for name in
            ["page of the firmware", "event queue", "the caller's registered memory", "completion queue", "queue pair"]
        {
            assert!(kept.contains(name), "{what}: {kept:?}");
        }
        // Somebody puts it back: the next reset is one.
        port.model.clear_faults();
        drop(back.object);
    }
    assert_eq!((port.model.dma_outstanding(), port.mapped.lock().unwrap().len()), ((0, 0), 0), "{what}, {loss:?}");
}

#[test]
fn a_function_that_is_lost_ends_every_wait_for_an_event() {
    for (loss, why) in LOSSES {
        for (what, call) in WAITS {
            for step in 1..=5 {
                let mut w = world();
                lose_at(&w.pair.port, step, loss);
                let begun = w.pair.dev.now();
                let result = call(&mut w);
                assert!(w.pair.port.at_now.lock().unwrap().is_none(), "{what}: step {step} was reached");
                check(&mut w, what, begun, result, why);
                end(w, what, loss);
            }
        }
    }
}

/// The command has been taken, and no answer comes any more.
#[test]
fn a_function_that_is_lost_ends_every_wait_for_a_command() {
    for (loss, why) in LOSSES {
        for (what, opcode, call) in COMMANDS {
            let mut w = world();
            // It is answered long after the function is lost.
            w.pair.port.model.inject(Fault::Command { at: Match::Opcode(opcode), effect: Effect::Late(50 * MS) });
            let (begun, posted) = (w.pair.dev.now(), w.pair.dev.command_counters().posted);
            lose_at(&w.pair.port, 12, loss);
            let result = call(&mut w);
            assert_eq!(w.pair.dev.command_counters().posted, posted + 1, "{what}: it was sent");
            assert!(w.pair.dev.now() - begun < 10 * MS, "{what}");
            assert!(matches!(result, Err(Error::Failed { sent: true, .. })), "{what}, {loss:?}: {result:?}");
            check(&mut w, what, begun, result, why);
            end(w, what, loss);
        }
    }
}

/// Nobody looked before: each call finds it out by itself, before it sends anything to a function that may be somebody else's.
#[test]
fn a_function_that_was_lost_while_nobody_looked_gets_no_command() {
    for (loss, why) in LOSSES {
        for (what, opcode, call) in COMMANDS {
            let mut w = world();
            w.pair.port.model.step(2 * MS);
            loss.happens(&w.pair.port.model);
            let (begun, posted) = (w.pair.dev.now(), w.pair.dev.command_counters().posted);
            let result = call(&mut w);
            assert!(
                matches!(result, Err(Error::Failed { sent: false, .. })),
                "{what} ({opcode:#x}), {loss:?}: {result:?}"
            );
            assert_eq!(w.pair.dev.command_counters().posted, posted, "{what}");
            check(&mut w, what, begun, result, why);
            assert_eq!(w.pair.port.model.violations(), [], "{what}, {loss:?}");
            end(w, what, loss);
        }
    }
}

/// No interrupt comes from a function that is gone, and none may be relied on; nor on a port without any.
#[test]
fn a_function_that_is_lost_ends_waiting_without_interrupts_too() {
    for (loss, why) in LOSSES {
        for (what, call) in WAITS {
            let mut w = world();
            w.pair.port.no_interrupts.store(true, Relaxed);
            lose_at(&w.pair.port, 4, loss);
            let begun = w.pair.dev.now();
            let result = call(&mut w);
            check(&mut w, what, begun, result, why);
            end(w, what, loss);
        }
    }
}

/// The end of an open device, with everything in it, when nobody has looked since.
#[test]
fn a_device_that_is_lost_is_closed_or_dropped_at_once() {
    for (loss, why) in LOSSES {
        for close in [true, false] {
            let (port, dev) = open();
            port.model.step(2 * MS);
            loss.happens(&port.model);
            let begun = port.now();
            if close {
                let error = dev.close().map_err(|back| back.error).unwrap_err();
                assert!(matches!(error, Error::Failed { why: told, sent: false, .. } if told == why), "{error:?}");
            } else {
                drop(dev);
            }
            assert!(port.now() - begun < 10 * MS, "{loss:?}: {} ns", port.now() - begun);
            assert_eq!(port.model.dma_outstanding().0 == 0, loss != Loss::Removed, "{loss:?}");
            assert_eq!(port.model.violations(), [], "{loss:?}");
        }
    }
}

/// The old ring's last entry is waited for as well, after the command's answer.
#[test]
fn a_function_that_is_lost_ends_the_wait_for_a_rings_last_entry() {
    for (loss, why) in LOSSES {
        let mut w = world();
        // Not executed, and answered with success.
        let effect = Effect::Status { status: 0, syndrome: 0 };
        w.pair.port.model.inject(Fault::Command { at: Match::Opcode(0x403), effect });
        let begun = w.pair.dev.now();
        lose_at(&w.pair.port, 24, loss);
        let result = w.pair.cq[0].resize(127);
        assert!(w.pair.port.at_now.lock().unwrap().is_none());
        assert!(w.pair.dev.now() - begun < 50 * MS, "{loss:?}: sooner than without a look");
        assert_eq!(result, Err(Error::Failed { why, command: Some(Opcode::MODIFY_CQ), sent: true }), "{loss:?}");
        check(&mut w, "resize", begun, result, why);
        end(w, "resize", loss);
    }
}

/// Without a reset memory is kept, and a reset that is refused is tried again only when the device goes.
#[test]
fn memory_of_a_lost_function_stays_on_a_platform_that_cannot_reset() {
    for (loss, _) in LOSSES {
        let (port, dev) = open();
        port.no_reset.store(true, Relaxed);
        port.model.step(2 * MS);
        loss.happens(&port.model);
        let begun = port.now();
        let back = dev.close().unwrap_err();
        assert!(port.now() - begun < 10 * MS, "{loss:?}");
        assert_eq!(port.resets.load(Relaxed), 1, "{loss:?}");
        let kept = back.object.leaked().len();
        drop(back.object);
        assert_eq!(port.resets.load(Relaxed), 2, "{loss:?}");
        assert_eq!(port.model.dma_outstanding().0, kept, "{loss:?}");
    }
}

/// A function that starts anew says so before it has a command queue.
#[test]
fn a_function_that_is_starting_anew_was_reset() {
    let (port, dev) = open_config(ModelConfig { boot_ns: 500 * MS, ..ModelConfig::default() }, DeviceConfig::default());
    // Somebody else's driver would have to have put its command queue in the same place.
    let address = [0x10, 0x14].map(|at| port.model.read32(at).swap_bytes());
    Loss::ResetOn.happens(&port.model);
    let queue = u64::from(address[0]) << 32 | u64::from(address[1] & 0xffff_f000);
    InitSegment::new(&port.model).set_cmdq_address(queue);
    assert_eq!(dev.health(), Health::Reset);
    assert_eq!((dev.failure(), dev.close().is_err()), (Some(Failure::Reset), true));
    assert_eq!(port.model.dma_outstanding(), (0, 0));
    // It can be opened again.
    let dev = Device::open(port.clone(), port.clone(), DeviceConfig::default()).unwrap();
    assert_eq!(dev.health(), Health::Ok);
    crate::support::close(&port, dev);
}

/// Events that it left are taken, and it is not told: its doorbells may be somebody else's.
#[test]
fn events_of_a_function_that_was_reset_are_taken_without_a_doorbell() {
    let (port, dev) = open();
    port.model.inject(Fault::Link { up: false });
    Loss::ResetOn.happens(&port.model);
    assert_eq!(dev.health(), Health::Reset);
    let writes = port.writes32.load(Relaxed);
    dev.service();
    let events = [dev.try_get_async_event(), dev.try_get_async_event()];
    assert_eq!(events, [Some(AsyncEvent::DeviceFatal(Failure::Reset)), Some(AsyncEvent::PortErr { port_num: 1 })]);
    assert_eq!((port.writes32.load(Relaxed), port.model.violations()), (writes, vec![]));
    drop(dev);
}

/// Whether a request is refused, because of this failure.
fn refuses_requests(p: &mut Pair, why: Failure) -> bool {
    let error = p.qp[0].post_send(&[SendWr::default()]).unwrap_err();
    error == PostError { index: 0, error: Error::Failed { why, command: None, sent: false } }
}

/// Linux's mlx5_ib refuses requests to a device in error (`mlx5_ib_post_send`); and somebody else may have the function by now.
#[test]
fn a_lost_function_takes_no_request_and_hears_no_doorbell() {
    for (loss, why) in LOSSES {
        let mut w = world();
        let receive = [RecvWr { wr_id: 2, sg_list: &[w.pair.sge(1, 0, 64)] }];
        w.pair.qp[1].post_recv(&receive).unwrap();
        let (inline_data, send_flags) = (b"before", SendFlags::SIGNALED | SendFlags::INLINE);
        w.pair.qp[0].post_send(&[SendWr { inline_data, send_flags, ..Default::default() }]).unwrap();
        loss.happens(&w.pair.port.model);
        w.pair.dev.health();
        let rung = |w: &World| (w.pair.port.doorbells.load(Relaxed), w.pair.port.writes32.load(Relaxed));
        let before = rung(&w);
        assert!(refuses_requests(&mut w.pair, why));
        assert_eq!(w.pair.qp[0].post_send(&[]), Ok(()));
        w.pair.qp[1].post_recv(&receive).unwrap();
        let Pair { cq, dev, .. } = &mut w.pair;
        for cq in cq {
            cq.req_notify(false).unwrap();
            let mut wcs = [Default::default(); 2];
            assert_eq!(cq.poll_cq(&mut wcs), Ok(1), "{loss:?}: what has come is there");
        }
        dev.service();
        assert_eq!((rung(&w), w.pair.port.model.violations()), (before, vec![]), "{loss:?}");
        end(w, "a request", loss);
    }
}

/// Firmware whose heartbeat has stopped may still come back, and queues work without it: that alone is no failure. A command
/// without an answer is, and then nothing waits any more.
#[test]
fn a_firmware_without_heartbeat_that_does_not_answer_has_failed() {
    for stuck in [true, false] {
        let mut p = pair();
        if stuck {
            p.port.model.inject(Fault::CounterStuck);
        }
        p.port.model.inject(Fault::Command { at: Match::Opcode(0x800), effect: Effect::Never });
        assert!(matches!(p.dev.alloc_pd(), Err(Error::Timeout { .. })));
        let failed = stuck.then_some(Failure::Silent);
        assert_eq!(p.dev.failure(), failed);
        // The queues work on, unless the device counts as failed.
        if stuck {
            assert!(refuses_requests(&mut p, Failure::Silent));
        } else {
            p.send(1, 64, SendFlags::empty());
        }
        let begun = p.dev.now();
        assert_eq!(p.dev.alloc_pd().map(drop).is_err(), stuck);
        let Pair { port, dev, pd, cq, qp, buf } = p;
        drop((qp, cq, buf, pd, dev));
        assert!(port.now() - begun < 10 * MS);
        assert_eq!(port.model.dma_outstanding(), (0, 0));
    }
}
