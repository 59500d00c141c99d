//! A progress bar on standard error, on a terminal and when something takes long.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

/// What takes longer than this shows its progress.
const AFTER: Duration = Duration::from_secs(1);

/// How far something is.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    start: Instant,
    total: u64,
    shown: bool,
}

impl Progress {
    /// Begins now; `shown`: people look on.
    pub(crate) fn new(total: u64, shown: bool) -> Self {
        Self { bar: None, start: Instant::now(), total, shown: shown && std::io::stderr().is_terminal() }
    }

    /// So much is done.
    pub(crate) fn set(&mut self, done: u64) {
        if self.bar.is_none() && self.shown && self.start.elapsed() > AFTER {
            self.bar = Some(ProgressBar::new(self.total));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
