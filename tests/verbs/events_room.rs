//! Event queues have room for what programs ask for, however seldom they take events.

use mlx5::{CqInitAttrEx, DeviceConfig, Error, SendFlags};

use crate::events::{EINVAL, channel_pair, cq_on, end};
use crate::support::{close, open_config};
use mlx5_model::ModelConfig;

/// CQs with channels that one completion vector has room for: half the entries of its event queue.
const ROOM: usize = 1024;

/// The loop of the documentation where completions never end: ask, look, and there is something each time, so nothing is waited for.
#[test]
fn asking_without_ever_waiting_overruns_no_event_queue() {
    let (channel, mut pair) = channel_pair();
    for round in 0..5000 {
        pair.arm(false);
        pair.post(round, SendFlags::empty());
        pair.poll(0, 1);
        pair.poll(1, 1);
    }
    assert_eq!(pair.port.model.violations(), []);
    while channel.try_get_event().is_some() {}
    assert_eq!(pair.dev.event_counters().completions, 10_000);
    pair.cq.iter().for_each(|cq| cq.ack_events(5000).unwrap());
    pair.arm(false);
    pair.post(5000, SendFlags::empty());
    assert!(channel.try_get_event().is_some(), "the event queue works on");
    assert!(channel.try_get_event().is_some());
    pair.ack();
    pair.poll(0, 1);
    pair.poll(1, 1);
    end(channel, pair);
}

/// All CQs that a vector takes raise their events at once, after as many requests as are made without a look.
#[test]
fn a_vector_takes_as_many_cqs_as_its_event_queue_has_room_for() {
    let mut config = DeviceConfig::default();
    config.completion_vectors = 2;
    let (port, dev) = open_config(ModelConfig::default(), config);
    let channel = dev.create_comp_channel();
    let mut cqs: Vec<_> = (0..ROOM as u64).map(|i| cq_on(&dev, &channel, 1, i, 0)).collect();
    let one_more = CqInitAttrEx { cqe: 1, channel: Some(&channel), ..Default::default() };
    let outstanding = port.model.dma_outstanding();
    let error = dev.create_cq_ex(&one_more).map(drop).unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }) && error.errno() == EINVAL, "{error}");
    assert_eq!(port.model.dma_outstanding(), outstanding);
    drop((cq_on(&dev, &channel, 1, 0, 1), dev.create_cq(1, 0, 0).unwrap()));

    cqs.iter_mut().for_each(|cq| cq.req_notify(false).unwrap());
    dev.service();
    let mut entry = [0; 64];
    entry[63] = 0x70;
    for cq in &mut cqs {
        assert!(port.model.inject_cqe(cq.cqn(), entry));
    }
    assert_eq!(port.model.violations(), [], "no overrun");
    let taken = std::iter::from_fn(|| channel.try_get_event()).count();
    assert_eq!(taken, ROOM, "each was told");
    cqs.iter().for_each(|cq| cq.ack_events(1).unwrap());
    // One that goes makes room for one, and a refused creation does not use it up.
    cqs.pop();
    let fault = mlx5_model::Fault::Command {
        at: mlx5_model::Match::Opcode(0x400),
        effect: mlx5_model::Effect::Status { status: 0x6, syndrome: 1 },
    };
    port.model.inject(fault);
    assert!(matches!(dev.create_cq_ex(&one_more).map(drop), Err(Error::Command { .. })));
    cqs.push(dev.create_cq_ex(&one_more).unwrap());
    assert!(dev.create_cq_ex(&one_more).is_err());
    drop((cqs, channel));
    close(&port, dev);
}
