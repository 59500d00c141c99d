//! Messages on one function or on several at once.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use mlx5::ibv;

use crate::pair::{Pair, SIZE, Waiting};
use crate::target::Target;
use crate::{Result, say};

/// So many messages, and an endless run says that it runs.
const RUNNING: u64 = 50;

/// Sends messages on all of them at the same time; without `rounds` for ever. None closes before all are done.
pub fn run(targets: &[Target], rounds: Option<u64>, events: bool) -> Result<()> {
    let waiting = if events { Waiting::Sleeping } else { Waiting::Polling };
    let (barrier, begun) = (&Barrier::new(targets.len()), &AtomicUsize::new(0));
    let run = &|target| {
        one(target, rounds, waiting, barrier, || {
            // The last one says it.
            if begun.fetch_add(1, Ordering::Relaxed) + 1 == targets.len() {
                say("traffic", "running");
            }
        })
    };
    thread::scope(|scope| {
        let threads: Vec<_> = targets.iter().map(|target| scope.spawn(move || run(target))).collect();
        let ends = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())));
        ends.collect::<Vec<_>>().into_iter().collect()
    })
}

fn one(target: &Target, rounds: Option<u64>, waiting: Waiting, all: &Barrier, runs: impl Fn()) -> Result<()> {
    let made = target.device().and_then(|device| Ok((Pair::new(&device, [0, 0])?, device)));
    all.wait();
    let (mut pair, device) = made?;
    let end = rounds.unwrap_or(u64::MAX);
    let sent = (0..end).try_for_each(|n| {
        if n == RUNNING.min(end / 2) {
            runs();
        }
        pair.exchange(&device, n, waiting)
    });
    all.wait();
    sent?;
    pair.close()?;
    ibv::close_device(device).map_err(|e| e.error)?;
    say("traffic", &format!("device={} messages={end} bytes={}", target.name(), end * SIZE as u64));
    Ok(())
}
