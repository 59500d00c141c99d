//! Completion events on every vector.

use mlx5::{Device, ibv};

use crate::pair::{Pair, Waiting, take};
use crate::target::Target;
use crate::{Result, say};

/// No event takes that long, in nanoseconds.
const PATIENCE: u64 = 60_000_000_000;

/// Sleeps for `rounds` events on each completion vector, one at a time, and counts interrupts meanwhile.
pub fn run(target: &Target, rounds: u64) -> Result<()> {
    let device = target.device()?;
    let vectors = target.config().completion_vectors;
    let mut events = vec![0; vectors as usize];
    let before = target.interrupts()?;
    for first in (0..vectors).step_by(2) {
        let on = [first, (first + 1) % vectors];
        let mut pair = Pair::new(&device, on)?;
        for n in 0..rounds {
            let [one, two] = one_each(&device, &mut pair, n)?;
            events[on[0] as usize] += one;
            events[on[1] as usize] += two;
        }
        pair.close()?;
    }
    let after = target.interrupts()?;
    ibv::close_device(device).map_err(|e| e.error)?;
    for (vector, events) in events.iter().enumerate() {
        // The vector of all else is the first.
        let counted = |counts: &[u64]| counts.get(vector + 1).copied().unwrap_or(0);
        let raised = counted(&after) - counted(&before);
        say("vectors", &format!("device={} vector={vector} events={events} interrupts={raised}", target.name()));
    }
    Ok(())
}

/// Asks for an event on both ends, then sends a message and sleeps until both have come; how many did.
pub fn one_each(device: &Device, pair: &mut Pair, n: u64) -> Result<[u64; 2]> {
    let mut events = [0; 2];
    for cq in &mut pair.cq {
        ibv::req_notify_cq(cq, false)?;
    }
    pair.post(n)?;
    while events.contains(&0) {
        let event = ibv::get_cq_event(&pair.channel, device.now().saturating_add(PATIENCE))?;
        let end = event.context as usize;
        ibv::ack_cq_events(&pair.cq[end], 1)?;
        events[end] += 1;
        take(device, &mut pair.cq[end], Waiting::Polling)?;
    }
    pair.compare(n)?;
    Ok(events)
}
