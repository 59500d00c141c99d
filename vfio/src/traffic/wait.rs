//! Letting time pass until completions come.

use std::time::{Duration, Instant};

use mlx5::{Device, Error};

use super::failure::Failure;
use crate::rig::Rig;
use crate::stop;

/// First and longest step of model time.
const STEPS: [Duration; 2] = [Duration::from_micros(1), Duration::from_millis(1)];
/// How often it is looked whether the device is still there, and whether the user has had enough.
const LOOK: Duration = Duration::from_millis(100);

/// One wait: for how long already, and what to do next.
pub struct Wait<'a> {
    rig: &'a dyn Rig,
    own_time: bool,
    since: Instant,
    looked: Instant,
    stepped: Duration,
    step: Duration,
}

impl<'a> Wait<'a> {
    /// Begins now.
    pub fn new(rig: &'a dyn Rig) -> Self {
        let now = Instant::now();
        Self { rig, own_time: rig.own_time(), since: now, looked: now, stepped: Duration::ZERO, step: STEPS[0] }
    }

    /// Longest wait.
    pub fn longest(&self) -> Duration {
        self.rig.patience()
    }

    /// Longest sleep, after which to look again.
    pub fn longest_sleep(&self) -> Duration {
        LOOK.min(self.longest())
    }

    /// Whose time that is.
    pub fn clock(&self) -> &'static str {
        if self.own_time { "wall-clock time" } else { "model time" }
    }

    /// Whether it is over.
    ///
    /// # Errors
    /// `Driver` when there is nothing to wait for, as the device has failed, and `Stopped` when the user has had enough.
    pub fn is_over(&mut self, device: &Device) -> Result<bool, Failure> {
        let waited = if self.own_time { self.since.elapsed() } else { self.stepped };
        let over = waited >= self.longest();
        if over || self.own_time && self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            check(device)?;
        }
        Ok(over)
    }

    /// Lets a moment pass.
    pub fn pass(&mut self) {
        if self.own_time {
            return std::thread::yield_now();
        }
        self.rig.step(self.step);
        self.stepped += self.step;
        self.step = (2 * self.step).min(STEPS[1]);
    }
}

/// Whether to go on.
fn check(device: &Device) -> Result<(), Failure> {
    stop::check().map_err(Failure::Stopped)?;
    device.health();
    device.failure().map_or(Ok(()), |why| Err(Failure::Driver(Error::Failed { why, command: None, sent: false })))
}
