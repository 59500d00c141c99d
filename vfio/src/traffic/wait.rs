//! Letting time pass until completions come.

use std::time::{Duration, Instant};

use mlx5_model::Model;

/// Longest wait for a completion while the model runs in the driver's calls: model time.
const DEADLINE: Duration = Duration::from_millis(200);
/// Longest wait while it runs on a thread of its own, where its time is that of the clock on the wall and others may have
/// the processor.
const DEADLINE_OF_THREAD: Duration = Duration::from_secs(5);
/// First and longest step of model time.
const STEPS: [Duration; 2] = [Duration::from_micros(1), Duration::from_millis(1)];

/// One wait: for how long already, and what to do next.
pub struct Wait<'a> {
    model: &'a Model,
    threaded: bool,
    since: Instant,
    stepped: Duration,
    step: Duration,
}

impl<'a> Wait<'a> {
    /// Begins now.
    pub fn new(model: &'a Model, threaded: bool) -> Self {
        Self { model, threaded, since: Instant::now(), stepped: Duration::ZERO, step: STEPS[0] }
    }

    /// Longest wait.
    pub fn longest(&self) -> Duration {
        if self.threaded { DEADLINE_OF_THREAD } else { DEADLINE }
    }

    /// Whose time that is.
    pub fn clock(&self) -> &'static str {
        if self.threaded { "wall-clock time" } else { "model time" }
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        let waited = if self.threaded { self.since.elapsed() } else { self.stepped };
        waited >= self.longest()
    }

    /// Lets a moment pass.
    pub fn pass(&mut self) {
        if self.threaded {
            return std::thread::yield_now();
        }
        self.model.step(self.step.as_nanos() as u64);
        self.stepped += self.step;
        self.step = (2 * self.step).min(STEPS[1]);
    }
}
