//! What an idle wait costs.

use std::thread;
use std::time::Instant;

use mlx5::{Error, ibv};

use crate::accounts::Usage;
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
    let before = Usage::now()?;
    let ends = thread::scope(|scope| {
        let event = scope.spawn(|| ibv::get_cq_event(&other.channel, deadline).err());
        let fault = scope.spawn(|| ibv::get_async_event(&device, deadline).err());
        let ends = [pair.cq[0].wait(deadline).err(), event.join().ok().flatten(), fault.join().ok().flatten()];
        // Threads that have ended are no longer listed with their switches.
        ends
    });
    let after = Usage::now()?;
    if ends != [Some(Error::NoEvent); 3] {
        return Err(format!("the waits ended with {ends:?}").into());
    }
    let (ticks, switches) = (after.ticks - before.ticks, after.switches.saturating_sub(before.switches));
    let ms = started.elapsed().as_millis();
    say("idle", &format!("device={} ms={ms} ticks={ticks} switches={switches}", target.name()));
    pair.close()?;
    other.close()?;
    Ok(ibv::close_device(device).map_err(|e| e.error)?)
}
