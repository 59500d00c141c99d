//! Real traffic over completion queues: two connected ends on one device, and round trips whose every byte is compared.

mod check;
mod drain;
mod failure;
mod link;
mod payload;
mod receives;
mod rounds;
mod wait;

use std::time::{Duration, Instant};

use mlx5::{Cq, Device, ibv};
use mlx5_model::Model;

use crate::latency::Latency;
use crate::progress::Progress;
use link::Link;
pub(crate) use link::Plan;
use rounds::Rounds;

/// What traffic came to.
#[derive(Default)]
pub(crate) struct Ran {
    /// Messages in flight at a time.
    pub(crate) in_flight: u32,
    /// Round trips that were compared byte for byte at both ends.
    pub(crate) verified: u64,
    /// How long each message took, from the call that posted its send to the poll that told of its receive.
    pub(crate) latency: Latency,
    /// How long the round trips took.
    pub(crate) elapsed: Duration,
    /// Why they ended early.
    pub(crate) failure: Option<String>,
    /// What could not be taken down.
    pub(crate) teardown: Option<String>,
}

/// Connects two ends, one over each completion queue, runs round trips between them, and takes everything down.
pub(crate) fn run(model: &Model, device: &Device, cqs: [Cq; 2], plan: &Plan, progress: &mut Progress) -> Ran {
    let mut ran = Ran::default();
    let mut link = match Link::new(device, cqs, plan) {
        Ok(link) => link,
        Err(e) => {
            ran.failure = Some(format!("the connection was not made: {e}"));
            return ran;
        }
    };
    ran.in_flight = link.depth;
    let start = Instant::now();
    let result = Rounds::new(&mut link, model, plan, &mut ran).run(|done| progress.set(done));
    ran.elapsed = start.elapsed();
    ran.failure = result.err().map(|e| e.to_string());
    if let Err(e) = link.close() {
        ran.teardown = Some(format!("taking the connection down failed: {e}"));
    }
    ran
}

/// Closes a device; says what was left behind, if anything was.
pub(crate) fn close(model: &Model, device: Device) -> Result<(), String> {
    if let Err(e) = ibv::close_device(device) {
        let leaked: Vec<&str> = e.object.leaked().iter().map(|l| l.what).collect();
        return Err(format!("closing the device failed: {e}; memory kept: {leaked:?}"));
    }
    match model.dma_outstanding() {
        (0, _) => Ok(()),
        (ranges, bytes) => Err(format!("{ranges} ranges of memory ({bytes} bytes) were not given back")),
    }
}
