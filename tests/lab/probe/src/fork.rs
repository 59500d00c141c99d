//! A forked child that has the same memory as the device.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use mlx5::ibv;

use crate::pair::{Pair, Waiting};
use crate::target::Target;
use crate::{Result, say};

/// Sends messages while a child lives that was forked and runs no other program yet: pages of private memory are
/// copied when one of both writes to them, and the device must not be left with the other's.
pub fn run(target: &Target, child_ms: u64) -> Result<()> {
    let device = target.device()?;
    let mut pair = Pair::new(&device, [0, 0])?;
    pair.exchange(&device, 0, Waiting::Polling)?;
    say("fork", "forks");
    let done = AtomicBool::new(false);
    let (child, sent) = thread::scope(|scope| {
        let child = scope.spawn(|| {
            let status = forked(child_ms);
            done.store(true, Ordering::Relaxed);
            status
        });
        let mut sent = 1;
        let result = loop {
            match pair.exchange(&device, sent, Waiting::Polling) {
                Ok(()) => sent += 1,
                Err(error) => break Err(error),
            }
            if done.load(Ordering::Relaxed) {
                break Ok(sent);
            }
        };
        (child.join(), result)
    });
    let status = child.map_err(|_| "the thread that forks panicked")??;
    let sent = sent?;
    pair.close()?;
    ibv::close_device(device).map_err(|e| e.error)?;
    say("fork", &format!("device={} messages={sent} child={status}", target.name()));
    Ok(())
}

/// Forks, and lets the child sleep before it runs `true`.
fn forked(child_ms: u64) -> Result<i32> {
    let mut command = Command::new("true");
    // SAFETY: the child only sleeps, which takes no lock and no memory.
    unsafe {
        command.pre_exec(move || {
            thread::sleep(Duration::from_millis(child_ms));
            Ok(())
        });
    }
    Ok(command.status()?.code().unwrap_or(-1))
}
