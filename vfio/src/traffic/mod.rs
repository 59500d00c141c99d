//! Real traffic over completion queues: two connected ends on one device, and round trips whose every byte is compared.

mod check;
mod connect;
mod drain;
mod events;
mod failure;
mod link;
mod payload;
mod plan;
mod receives;
mod rounds;
mod wait;

use std::fmt;
use std::time::{Duration, Instant};

use mlx5::{CompChannel, Cq, Device, ibv};

use crate::latency::Latency;
use crate::progress::{Busy, Progress};
use crate::rig::Rig;
pub(crate) use connect::{attributes, connect};
use events::Events;
use link::Link;
pub(crate) use payload::payload;
pub(crate) use plan::{Plan, Transport};
use rounds::Rounds;

/// How often the program asked, and was told, while the round trips ran.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    /// Polls of a completion queue.
    pub(crate) polls: u64,
    /// Of those, the ones that found nothing.
    pub(crate) empty_polls: u64,
    /// Requests for an event that reached the device.
    pub(crate) arms: u64,
    /// Events taken from the channel.
    pub(crate) events: u64,
    /// Interrupts that the device raised.
    pub(crate) interrupts: u64,
    /// Times that the program slept until an interrupt woke it, or it had slept for long.
    pub(crate) sleeps: u64,
}

/// A message of an unreliable transport that did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Its iteration.
    pub(crate) iteration: u64,
    /// The ends that it was on its way between.
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iteration {} on the way from {} to {}", self.iteration, self.from, self.to)
    }
}

/// What traffic came to.
#[derive(Default)]
pub(crate) struct Ran {
    /// Messages in flight at a time.
    pub(crate) in_flight: u32,
    /// Round trips that were compared byte for byte at both ends.
    pub(crate) verified: u64,
    /// Messages that were sent, both ways.
    pub(crate) sent: u64,
    /// Those that were lost on the way.
    pub(crate) lost: Vec<Lost>,
    /// Completions that were taken, at both ends.
    pub(crate) completions: u64,
    /// How long each message took, from the call that posted its send to the poll that told of its receive.
    pub(crate) latency: Latency,
    /// What waiting took.
    pub(crate) waiting: Waiting,
    /// How long the round trips took.
    pub(crate) elapsed: Duration,
    /// Why they ended early.
    pub(crate) failure: Option<String>,
    /// What could not be taken down.
    pub(crate) teardown: Option<String>,
}

/// Connects two ends, one over each completion queue, runs round trips between them, and takes everything down. With the
/// channel of the completion queues it sleeps instead of polling all the time.
pub(crate) fn run(
    rig: &dyn Rig,
    device: &Device,
    channel: Option<&CompChannel>,
    cqs: [Cq; 2],
    plan: &Plan,
    progress: &mut Progress,
) -> Ran {
    let mut ran = Ran::default();
    let mut link = match Link::new(device, cqs, plan) {
        Ok(link) => link,
        Err(e) => {
            ran.failure = Some(format!("the connection was not made: {e}"));
            return ran;
        }
    };
    ran.in_flight = link.depth;
    let (waits, start) = (rig.waits(), Instant::now());
    let events = channel.map(|channel| Events::new(device, channel));
    let result = Rounds::new(&mut link, device, rig, plan, events, &mut ran).run(|done| progress.set(done));
    ran.elapsed = start.elapsed();
    let waits = rig.waits().since(waits);
    (ran.waiting.interrupts, ran.waiting.sleeps) = (waits.interrupts, waits.sleeps);
    // A model knows better what has reached it.
    ran.waiting.arms = waits.arms.unwrap_or(ran.waiting.arms);
    ran.failure = result.err().map(|e| e.to_string());
    if let Err(e) = link.close() {
        ran.teardown = Some(format!("taking the connection down failed: {e}"));
    }
    ran
}

/// Closes a device; says what was left behind, if anything was.
pub(crate) fn close(rig: &dyn Rig, device: Device) -> Result<(), String> {
    let _busy = Busy::new("taking the device down");
    if let Err(e) = ibv::close_device(device) {
        let leaked: Vec<&str> = e.object.leaked().iter().map(|l| l.what).collect();
        return Err(format!("closing the device failed: {e}; memory kept: {leaked:?}"));
    }
    rig.left().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use mlx5_model::ModelConfig;

    use super::*;
    use crate::rig::ModelRig;

    /// Neither an InfiniBand port without a subnet manager nor one without a link has an address that a packet could go to.
    #[test]
    fn round_trips_run_on_every_kind_of_port() {
        use Transport::{Rc, Uc, Ud};
        let (ethernet, infiniband) = (ModelConfig::default(), ModelConfig::infiniband());
        let down = |config: &ModelConfig| ModelConfig { link_up: false, ..config.clone() };
        for (name, config, transports) in [
            ("Ethernet, down", down(&ethernet), &[Rc][..]),
            ("Ethernet", ethernet, &[Rc, Uc, Ud]),
            ("InfiniBand, down", down(&infiniband), &[Rc, Uc, Ud]),
            ("InfiniBand", infiniband, &[Rc, Uc, Ud]),
        ] {
            for &transport in transports {
                for numbered in [true, false] {
                    let rig = ModelRig::new(config.clone());
                    let device = rig.open(rig.default_config()).unwrap();
                    let cqs = [0, 1].map(|context| ibv::create_cq(&device, 64, context, None, 0).unwrap());
                    let plan = Plan { iters: 50, size: 64, transport, numbered, ..Plan::default() };
                    let ran = run(&rig, &device, None, cqs, &plan, &mut Progress::new(50, false));
                    assert_eq!((ran.failure, ran.teardown), (None, None), "{name}, {transport:?}");
                    assert_eq!((ran.verified, ran.lost.len()), (50, 0), "{name}, {transport:?}");
                    close(&rig, device).unwrap();
                    assert_eq!(rig.violations(), Vec::<String>::new(), "{name}, {transport:?}");
                }
            }
        }
    }
}
