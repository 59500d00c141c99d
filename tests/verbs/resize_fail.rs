//! Resizing and moderating completion queues: what is refused, and what a resize leaves that failed or had no answer.

use mlx5::hw::cqc::Cqc;
use mlx5::{CqAttrMask, Error, ExclusiveCqs, ModerateCq, ModifyCqAttr, PollError, SendFlags, Wc, ibv};
use mlx5_model::{CapConfig, Effect, Fault, Match, ModelConfig};

use crate::cq_create::{EINVAL, EOPNOTSUPP, errno, with_caps};
use crate::cq_semantics::{POLL, complete, ids};
use crate::events::{MS, SECOND, channel_pair, end};
use crate::support::{Pair, SIZES, close, open, pair, pair_with};

const ENOMEM: i32 = 12;
const EBUSY: i32 = 16;
const ENOSYS: i32 = 38;
const ETIMEDOUT: i32 = 110;
const MODIFY_CQ: u16 = 0x403;

fn inject(p: &Pair, effect: Effect) {
    p.port.model.inject(Fault::Command { at: Match::Opcode(MODIFY_CQ), effect });
}

#[test]
fn sizes_are_rounded_up_and_the_present_one_is_no_command() {
    let (port, dev) = open();
    let most = dev.query_device().max_cqe;
    let mut cq = dev.create_cq(63, 0, 0).unwrap();
    for (asked, given) in [(1, 1), (2, 3), (3, 3), (64, 127), (63, 63), (4096, 8191), (most, most)] {
        cq.resize(asked).unwrap();
        assert_eq!(cq.cqe(), given, "cqe {asked}");
        let commands = port.model.commands().len();
        for same in [given, given / 2 + 1] {
            cq.resize(same).unwrap();
        }
        assert_eq!(port.model.commands().len(), commands);
    }
    drop(cq);
    close(&port, dev);
}

#[test]
fn wrong_sizes_are_einval_and_a_device_that_does_not_resize_is_enosys() {
    let (port, dev) = open();
    let most = dev.query_device().max_cqe;
    let mut cq = dev.create_cq(63, 0, 0).unwrap();
    let commands = port.model.commands().len();
    for wrong in [0, most + 1, 1 << 24, i32::MAX as u32 / 64, i32::MAX as u32, u32::MAX] {
        assert_eq!(errno(cq.resize(wrong)), Some(EINVAL), "cqe {wrong}");
    }
    assert_eq!((cq.cqe(), port.model.commands().len()), (63, commands));
    drop(cq);
    close(&port, dev);

    let (port, dev) = with_caps(CapConfig { cq_resize: false, ..CapConfig::default() });
    let mut cq = dev.create_cq(63, 0, 0).unwrap();
    for (cqe, right) in
        [(100, Some(ENOSYS)), (0, Some(ENOSYS)), (1 << 16, Some(ENOSYS)), (63, None), (u32::MAX, Some(EINVAL))]
    {
        assert_eq!(errno(cq.resize(cqe)), right, "cqe {cqe}");
    }
    drop(cq);
    close(&port, dev);
}

/// The old ring works on, and the new one is given back.
#[test]
fn a_resize_that_is_refused_changes_nothing() {
    let mut p = pair();
    let before = p.port.model.dma_outstanding();
    complete(&mut p, 0, 5);
    let too_small = p.cq[0].resize(3).unwrap_err();
    assert_eq!(too_small.errno(), EINVAL, "five wait: {too_small}");
    inject(&p, Effect::Status { status: 0x8, syndrome: 0xabcd });
    assert_eq!(errno(p.cq[0].resize(100)), Some(ENOMEM));
    p.port.dry.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(errno(p.cq[0].resize(100)), Some(ENOMEM));
    p.port.dry.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!((p.port.model.dma_outstanding(), p.cq[0].cqe()), (before, 63));
    assert!(p.dev.leaked().is_empty());
    assert_eq!(ids(&mut p.cq[0]), [0, 1, 2, 3, 4]);
    complete(&mut p, 5, 5);
    assert_eq!(ids(&mut p.cq[0]), [5, 6, 7, 8, 9]);
    p.poll(1, 10);
    p.end();
}

/// The device never takes it: the old ring works on, the memory of the new one stays until the CQ ends.
#[test]
fn a_resize_without_an_answer_leaves_the_old_ring_working() {
    for delivered in [true, false] {
        let mut p = pair();
        complete(&mut p, 0, 5);
        inject(&p, if delivered { Effect::Never } else { Effect::Delivery(0x3) });
        let error = p.cq[0].resize(127).unwrap_err();
        assert!(!error.refused(), "{error}");
        let kept = p.port.model.dma_outstanding();
        assert_eq!(ids(&mut p.cq[0]), [0, 1, 2, 3, 4]);
        complete(&mut p, 5, 5);
        assert_eq!((ids(&mut p.cq[0]).len(), p.cq[0].cqe()), (5, 63));
        for other in [31, 63] {
            assert_eq!(errno(p.cq[0].resize(other)), Some(EBUSY), "another size, which may be the present one");
        }
        assert_eq!(p.port.model.dma_outstanding(), kept);
        // The same again may work.
        complete(&mut p, 10, 3);
        p.cq[0].resize(100).unwrap();
        assert_eq!((p.cq[0].cqe(), ids(&mut p.cq[0])), (127, vec![10, 11, 12]));
        p.cq[0].resize(31).unwrap();
        p.poll(1, 13);
        let Pair { port, dev, pd, cq, qp, buf } = p;
        drop((qp, cq, buf, pd));
        assert_eq!(dev.leaked().iter().filter(|l| l.what == "completion queue").count(), 0);
        drop(dev);
        assert_eq!((port.model.violations(), port.model.dma_outstanding()), (vec![], (0, 0)));
    }
}

/// The device has gone on in the new ring, and says so after the deadline. Polling follows.
#[test]
fn polling_follows_a_resize_that_was_answered_too_late() {
    for waiting in [0, 1, 5] {
        for (taken, poller) in [(0, false), (1, true), (3, false)] {
            let mut p = pair();
            complete(&mut p, 0, waiting);
            inject(&p, Effect::Late(1000 * SECOND));
            assert_eq!(errno(p.cq[0].resize(127)), Some(ETIMEDOUT));
            complete(&mut p, waiting, 4);
            let mut got = vec![];
            for _ in 0..taken {
                match poller {
                    true => got.push(p.cq[0].start_poll(&POLL).unwrap().completion().wr_id()),
                    false => {
                        let mut wc = [Wc::default()];
                        assert_eq!(p.cq[0].poll_cq(&mut wc), Ok(1));
                        got.push(wc[0].wr_id);
                    }
                }
            }
            got.extend(ids(&mut p.cq[0]));
            assert_eq!(got, (0..waiting + 4).collect::<Vec<_>>());
            assert_eq!(p.cq[0].cqe(), 127);
            // Sizes change again, and nothing is left of it.
            p.cq[0].resize(31).unwrap();
            p.poll(1, waiting as usize + 4);
            p.port.model.step(2000 * SECOND);
            p.end();
        }
    }
}

/// The last entry of the old ring comes in the middle of a batch, which ends in front of it: what follows is in the new ring.
#[test]
fn a_batch_ends_in_front_of_the_last_entry() {
    for poller in [true, false] {
        let mut p = pair();
        inject(&p, Effect::Never);
        assert_eq!(errno(p.cq[0].resize(127)), Some(ETIMEDOUT));
        complete(&mut p, 0, 2);
        let mut last = [0; 64];
        last[63] = 5 << 4;
        let Pair { port, cq: [cq, _], .. } = &mut p;
        let (model, cqn) = (&port.model, cq.cqn());
        if poller {
            let mut poller = cq.start_poll(&POLL).unwrap();
            assert!(model.inject_cqe(cqn, last));
            assert_eq!(poller.next().unwrap().wr_id(), 1);
            assert_eq!(poller.next().err(), Some(PollError::Empty));
        } else {
            assert_eq!(ids(cq), [0, 1]);
            assert!(model.inject_cqe(cqn, last));
        }
        assert_eq!(cq.cqe(), 63);
        assert!(ids(cq).is_empty());
        assert_eq!(cq.cqe(), 127);
        p.poll(1, 2);
        drop(p);
    }
}

/// A resize that was asked for twice, and done twice, leaves an entry in the new ring that looks like a last one.
#[test]
fn what_a_resize_that_was_done_twice_leaves_is_not_taken_for_the_end_of_the_next_one() {
    for (answered, polled) in [(true, 0), (false, 5), (false, 0)] {
        let mut p = pair();
        inject(&p, Effect::Never);
        assert_eq!(errno(p.cq[0].resize(127)), Some(ETIMEDOUT));
        p.cq[0].resize(127).unwrap();
        complete(&mut p, 0, 2);
        let mut last = [0; 64];
        last[63] = 5 << 4;
        assert!(p.port.model.inject_cqe(p.cq[0].cqn(), last));
        complete(&mut p, 2, 3);
        if !answered {
            inject(&p, Effect::Never);
            assert_eq!(errno(p.cq[0].resize(31)), Some(ETIMEDOUT));
            complete(&mut p, 5, 1);
            let mut wcs = [Wc::default(); 5];
            assert_eq!((p.cq[0].poll_cq(&mut wcs[..polled]), p.cq[0].cqe()), (Ok(polled), 127));
        }
        p.cq[0].resize(31).unwrap();
        assert_eq!((ids(&mut p.cq[0]), p.cq[0].cqe()), ((polled as u64..if answered { 5 } else { 6 }).collect(), 31));
        complete(&mut p, 6, 8);
        assert_eq!(ids(&mut p.cq[0]), (6..14).collect::<Vec<_>>());
        p.poll(1, if answered { 13 } else { 14 });
        p.end();
    }
}

/// Entries in both rings are dropped when their queue pair is reset.
#[test]
fn a_reset_finds_entries_behind_a_resize_that_was_answered_too_late() {
    let mut p = pair();
    complete(&mut p, 0, 3);
    inject(&p, Effect::Late(1000 * SECOND));
    assert_eq!(errno(p.cq[0].resize(127)), Some(ETIMEDOUT));
    complete(&mut p, 3, 4);
    let [cq, _] = &mut p.cq;
    p.qp[0].reset(ExclusiveCqs::Same(cq)).unwrap();
    assert!(ids(&mut p.cq[0]).is_empty());
    assert_eq!(p.cq[0].cqe(), 127);
    p.poll(1, 7);
    p.port.model.step(2000 * SECOND);
    p.end();
}

/// The device says that it has gone on, and the old ring does not: a peer's driver believes it, and its CQ is broken.
#[test]
fn a_resize_whose_last_entry_does_not_come_is_an_error_after_a_bounded_wait() {
    let mut p = pair();
    complete(&mut p, 0, 5);
    // Not executed, and answered with success.
    inject(&p, Effect::Status { status: 0, syndrome: 0 });
    let started = p.dev.now();
    let error = p.cq[0].resize(127).unwrap_err();
    assert_eq!(error.errno(), ETIMEDOUT, "{error}");
    assert!(error.to_string().contains("last entry"), "{error}");
    assert!((p.dev.now() - started) / MS < 500);
    assert_eq!(ids(&mut p.cq[0]), [0, 1, 2, 3, 4]);
    p.cq[0].resize(127).unwrap();
    complete(&mut p, 5, 5);
    assert_eq!(ids(&mut p.cq[0]), [5, 6, 7, 8, 9]);
    p.poll(1, 10);
    p.end();
}

/// A CQ in error says so to a resize and a modify, and they change nothing.
#[test]
fn a_queue_in_error_is_not_resized_and_not_modified() {
    let mut p = pair_with(ModelConfig::default(), 3, SIZES, |dev, cqe| dev.create_cq(cqe, 0, 0).unwrap());
    complete(&mut p, 0, 5);
    while p.dev.try_get_async_event().is_some() {}
    let commands = p.port.model.commands().len();
    let is_told = |error: Error| matches!(error, Error::CqInError { .. }) && error.errno() == 5;
    assert!(p.cq[0].resize(100).is_err_and(is_told));
    assert!(p.cq[0].resize(3).is_err_and(is_told), "the size that it has");
    assert!(p.cq[0].modify(&moderated(1, 1)).is_err_and(is_told));
    assert_eq!(p.port.model.commands().len(), commands);
    drop(p);
}

const fn moderated(cq_count: u16, cq_period: u16) -> ModifyCqAttr {
    ModifyCqAttr { attr_mask: CqAttrMask::MODERATE, moderate: ModerateCq { cq_count, cq_period } }
}

#[test]
fn moderation_is_what_the_device_says_afterwards_and_outlasts_a_resize() {
    let (port, dev) = open();
    let mut cq = dev.create_cq(63, 0, 0).unwrap();
    let moderation = |cqc: Cqc| (cqc.cq_max_count(), cqc.cq_period());
    assert_eq!(moderation(cq.query().unwrap()), (0, 0));
    for (count, period) in [(16, 100), (u16::MAX, 4095), (0, 7), (3, 0), (0, 0), (5, 6)] {
        ibv::modify_cq(&cq, &moderated(count, period)).unwrap();
        assert_eq!(moderation(cq.query().unwrap()), (count.into(), period.into()));
    }
    cq.resize(7).unwrap();
    assert_eq!(moderation(cq.query().unwrap()), (5, 6));
    drop(cq);
    close(&port, dev);
}

#[test]
fn wrong_moderation_is_einval_and_a_device_that_does_not_moderate_is_eopnotsupp() {
    let (port, dev) = open();
    let cq = dev.create_cq(63, 0, 0).unwrap();
    let commands = port.model.commands().len();
    for attr_mask in [0, 2, 3, u32::MAX].map(CqAttrMask::from_bits_retain) {
        assert_eq!(errno(cq.modify(&ModifyCqAttr { attr_mask, ..moderated(1, 1) })), Some(EINVAL), "{attr_mask:?}");
    }
    for period in [4096, u16::MAX] {
        assert_eq!(errno(cq.modify(&moderated(1, period))), Some(EINVAL), "{period} us");
    }
    assert_eq!(port.model.commands().len(), commands);
    drop(cq);
    close(&port, dev);

    let (port, dev) = with_caps(CapConfig { cq_moderation: false, ..CapConfig::default() });
    let cq = dev.create_cq(63, 0, 0).unwrap();
    assert_eq!(errno(cq.modify(&moderated(1, 1))), Some(EOPNOTSUPP));
    assert_eq!(errno(cq.modify(&moderated(1, 4096))), Some(EOPNOTSUPP), "the kernel looks at the capability first");
    assert_eq!(errno(cq.modify(&ModifyCqAttr::default())), Some(EINVAL), "the library comes first");
    drop(cq);
    close(&port, dev);
}

#[test]
fn a_moderated_queue_wakes_for_a_number_of_completions_or_after_a_time() {
    let (channel, mut p) = channel_pair();
    p.cq[1].modify(&moderated(4, 4000)).unwrap();
    p.cq[1].req_notify(false).unwrap();
    for wr_id in 0..3 {
        p.post(wr_id, SendFlags::empty());
        p.port.model.step(MS / 10);
        assert_eq!(channel.try_get_event(), None, "{wr_id}");
    }
    p.post(3, SendFlags::empty());
    let event = channel.get_event(p.dev.now() + SECOND).unwrap();
    assert_eq!(event.cqn, p.cq[1].cqn());
    p.cq[1].ack_events(1).unwrap();
    p.poll(1, 4);
    p.cq[1].modify(&moderated(100, 2000)).unwrap();
    p.cq[1].req_notify(false).unwrap();
    let started = p.dev.now();
    p.post(4, SendFlags::empty());
    assert_eq!(channel.try_get_event(), None);
    channel.get_event(p.dev.now() + SECOND).unwrap();
    // Of the period since the last event a little is over.
    assert!((MS..4 * MS).contains(&(p.dev.now() - started)), "{} ns", p.dev.now() - started);
    p.cq[1].ack_events(1).unwrap();
    p.cq[1].modify(&moderated(0, 0)).unwrap();
    p.poll(1, 1);
    p.poll(0, 5);
    end(channel, p);
}

/// Asking for an event outlasts a resize, and so does waiting for one.
#[test]
fn a_queue_that_was_asked_for_an_event_raises_it_after_a_resize() {
    for cqe in [31, 255] {
        let (channel, mut p) = channel_pair();
        for wr_id in 0..10 {
            p.cq[1].req_notify(false).unwrap();
            p.cq[1].resize(cqe + 32 * (wr_id as u32 % 2)).unwrap();
            assert_eq!(channel.try_get_event(), None, "a resize is no completion");
            p.post(wr_id, SendFlags::empty());
            channel.get_event(p.dev.now() + SECOND).unwrap();
            p.cq[1].ack_events(1).unwrap();
            assert_eq!(p.poll(1, 1)[0].wr_id, wr_id);
            p.poll(0, 1);
        }
        assert_eq!(errno(p.cq[1].wait(p.dev.now() + MS)), Some(ETIMEDOUT));
        end(channel, p);
    }
}
