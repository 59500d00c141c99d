//! The steps, in the order in which they run.

mod device;
mod entries;
mod errors;
mod events;
mod memory;
mod queues;
mod transports;

use super::bench::Bench;
use super::need::Need;
use super::outcome::Done;

/// Something that is tried on an open device.
pub(super) struct Step {
    /// What it is called.
    pub(super) name: String,
    /// What it shows.
    pub(super) shows: String,
    /// The capabilities without which it is not tried.
    pub(super) needs: Vec<Need>,
    /// It takes a connection.
    pub(super) connects: bool,
    /// What it does; tells what there is to tell.
    pub(super) job: Job,
}

type Job = Box<dyn Fn(&Bench<'_>) -> Done>;

fn step(
    name: impl Into<String>,
    shows: impl Into<String>,
    needs: &[Need],
    job: impl Fn(&Bench<'_>) -> Done + 'static,
) -> Step {
    Step { name: name.into(), shows: shows.into(), needs: needs.to_vec(), connects: true, job: Box::new(job) }
}

/// All steps between bring-up and teardown.
pub(super) fn all() -> Vec<Step> {
    let groups =
        [device::steps(), entries::steps(), queues::steps(), events::steps(), transports::steps(), memory::steps()];
    groups.into_iter().flatten().chain(errors::steps()).collect()
}

/// Whether the port's messages to itself arrive, which all steps with a connection take.
pub(super) fn loopback(bench: &Bench<'_>) -> Done {
    device::loopback(bench)
}

/// What is tried once more on a function that has come up again.
pub(super) fn again(bench: &Bench<'_>) -> Done {
    transports::plain(bench)
}
