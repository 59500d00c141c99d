//! What shows on standard error, on a terminal, that something takes long.

use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

/// What takes longer than this shows its progress.
const AFTER: Duration = Duration::from_secs(1);
/// Between two pictures of what turns meanwhile.
const TICK: Duration = Duration::from_millis(100);

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

/// Something goes on whose end nobody can tell: shown until this is dropped.
pub(crate) struct Busy {
    watch: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Busy {
    /// Begins now.
    pub(crate) fn new(what: &'static str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { watch: None };
        }
        let (ended, end) = mpsc::channel();
        let thread = thread::spawn(move || {
            if end.recv_timeout(AFTER) == Err(RecvTimeoutError::Timeout) {
                let bar = ProgressBar::new_spinner().with_message(what);
                bar.enable_steady_tick(TICK);
                // It comes to its end when the other one is dropped.
                let _ = end.recv();
                bar.finish_and_clear();
            }
        });
        Self { watch: Some((ended, thread)) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some((ended, thread)) = self.watch.take() {
            drop(ended);
            let _ = thread.join();
        }
    }
}
