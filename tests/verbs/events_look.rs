//! Why the order is ask, look again, sleep; and what a sleep costs.

use mlx5::{DeviceConfig, Error, SendFlags, Wc};
use mlx5_model::DataFault;

use crate::events::{SECOND, channel_pair, cq_on, end, pair_on_channel};
use crate::support::{close, open};

/// When the completion comes to a program that has just found nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    BeforeItAsks,
    AfterItAsked,
    WhileItSleeps,
}

/// Whether a program that polls, asks, looks again if `look`, and sleeps, learns of a completion that comes `when`.
fn woken(arm_sees_waiting: bool, look: bool, when: When) -> bool {
    let (channel, mut pair) = channel_pair();
    pair.port.model.set_arm_sees_waiting(arm_sees_waiting);
    let mut wcs = [Wc::default(); 2];
    assert_eq!(pair.cq[1].poll_cq(&mut wcs), Ok(0));
    if when == When::BeforeItAsks {
        pair.post(1, SendFlags::empty());
    }
    pair.cq[1].req_notify(false).unwrap();
    if when == When::AfterItAsked {
        pair.post(1, SendFlags::empty());
    }
    let mut found = if look { pair.cq[1].poll_cq(&mut wcs).unwrap() } else { 0 };
    if when == When::WhileItSleeps {
        pair.port.model.inject_data(DataFault::LateCqe { ns: SECOND / 2 }, 1);
        pair.port.model.inject_data(DataFault::LateCqe { ns: SECOND / 2 }, 0);
        pair.post(1, SendFlags::empty());
    }
    let woken = found > 0 || channel.get_event(pair.dev.now() + SECOND).is_ok_and(|_| pair.cq[1].ack_events(1).is_ok());
    // The completion is there in any case.
    found += pair.cq[1].poll_cq(&mut wcs).unwrap();
    assert_eq!(found, 1);
    pair.poll(0, 1);
    end(channel, pair);
    woken
}

/// A device may raise nothing for what it has when it is asked: only the second look finds that.
#[test]
fn without_a_second_look_after_asking_a_wake_up_is_lost_and_with_it_none_is() {
    for when in [When::BeforeItAsks, When::AfterItAsked, When::WhileItSleeps] {
        for arm_sees_waiting in [true, false] {
            assert!(woken(arm_sees_waiting, true, when), "{when:?}");
            let lost = when == When::BeforeItAsks && !arm_sees_waiting;
            assert_eq!(woken(arm_sees_waiting, false, when), !lost, "{when:?}, {arm_sees_waiting}");
        }
    }
}

/// An hour of sleep: no doorbell and no busy turn, and no look into the CQ, where an entry lies that no event told of. What it
/// does is to look at the clock and at the firmware's health when it turns over, ten times a second.
#[test]
fn an_idle_hour_is_a_few_calls_a_second() {
    for interrupts in [1, 2] {
        let mut config = DeviceConfig::default();
        config.interrupts = interrupts;
        let (channel, mut pair) = pair_on_channel(config);
        let model = pair.port.model.clone();
        pair.post(1, SendFlags::empty());
        let before = model.calls();
        assert_eq!(channel.get_event(pair.dev.now() + 3600 * SECOND), Err(Error::NoEvent));
        let calls = model.calls().since(&before);
        assert_eq!((calls.doorbells(), calls.relaxes, calls.pauses), (0, 0, 0), "{calls:?}");
        assert!((36_000..36_100).contains(&calls.waits), "{calls:?}");
        // A turn reads the clock for the time that serving may take, for its deadline, for the look and for the sleep. Its look
        // is 17 reads at most: the 16 dwords of the health buffer, and the one with `nic_interface`.
        let turns = calls.waits + 1;
        assert!(calls.nows <= 4 * turns && calls.reads <= 17 * calls.waits, "{calls:?}");
        pair.poll(0, 1);
        pair.poll(1, 1);
        end(channel, pair);
    }
}

/// The same for the convenience, which asks once.
#[test]
fn an_idle_wait_for_a_cq_asks_once() {
    let (port, dev) = open();
    let channel = dev.create_comp_channel();
    let mut cq = cq_on(&dev, &channel, 7, 0, 0);
    let before = port.model.calls();
    assert_eq!(cq.wait(dev.now() + 3600 * SECOND), Err(Error::NoEvent));
    let calls = port.model.calls().since(&before);
    assert_eq!((calls.cq_arms, calls.doorbells(), calls.relaxes, calls.pauses), (1, 1, 0, 0), "{calls:?}");
    assert!((36_000..36_100).contains(&calls.waits), "{calls:?}");
    drop((cq, channel));
    close(&port, dev);
}
