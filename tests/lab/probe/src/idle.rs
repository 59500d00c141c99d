//! What an idle wait costs.

use std::thread;
use std::time::Instant;

use mlx5::{Error, ibv};

use crate::accounts::{switches, ticks};
use crate::pair::Pair;
use crate::target::Target;
use crate::{Result, say};

/// One thread waits for a completion, one for an event of another channel, one for an asynchronous event: nothing
/// comes.
pub fn run(target: &Target, seconds: u64) -> Result<()> {
    let device = target.device()?;
    let mut pair = Pair::new(&device, [0, 0])?;
    // On a vector of its own, so that each of the three leads on its own.
    let other = Pair::new(&device, [1, 1])?;
    let deadline = device.now().saturating_add(seconds * 1_000_000_000);
    let started = Instant::now();
    let before = ticks()?;
    let waits = thread::scope(|scope| {
        let event = scope.spawn(|| counted(|| ibv::get_cq_event(&other.channel, deadline).map(|_| ())));
        let fault = scope.spawn(|| counted(|| ibv::get_async_event(&device, deadline).map(|_| ())));
        let completion = counted(|| pair.cq[0].wait(deadline));
        [Ok(completion), event.join(), fault.join()].map(|end| end.map_err(|_| "a thread panicked")?)
    });
    let (ticks, ms) = (ticks()? - before, started.elapsed().as_millis());
    let (mut each, mut sum) = (String::new(), 0);
    for (name, wait) in ["completion", "event", "asynchronous"].into_iter().zip(waits) {
        let switches = wait?;
        sum += switches;
        each += &format!(" {name}={switches}");
    }
    say("idle", &format!("device={} ms={ms} ticks={ticks} switches={sum}{each}", target.name()));
    pair.close()?;
    other.close()?;
    Ok(ibv::close_device(device).map_err(|e| e.error)?)
}

/// Waits in vain; how often this thread was switched meanwhile.
fn counted(wait: impl FnOnce() -> Result<(), Error>) -> Result<u64> {
    let before = switches()?;
    match wait() {
        Err(Error::NoEvent) => Ok(switches()? - before),
        end => Err(format!("the wait ended with {end:?}").into()),
    }
}
