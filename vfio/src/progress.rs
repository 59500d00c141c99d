//! What shows on standard error, on a terminal, that something takes long.

use std::io::IsTerminal;
use std::sync::LazyLock;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What takes longer than this shows its progress.
const AFTER: Duration = Duration::from_secs(1);
/// Between two pictures.
const TICK: Duration = Duration::from_millis(100);

/// All that is shown at a time, one below the other.
static SHOWN: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Shows something once it takes long, also while whoever does it is stuck, until this is dropped.
struct Watch {
    end: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Watch {
    /// Begins now; without a terminal nothing ever shows.
    fn new(bar: ProgressBar) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { end: None };
        }
        let (ended, end) = mpsc::channel();
        // Where the system has no thread to give, nothing shows.
        let thread = thread::Builder::new().name("progress".into()).spawn(move || show(bar, &end));
        Self { end: thread.ok().map(|thread| (ended, thread)) }
    }
}

/// Until the other end is dropped. The crate's own ticker is a thread that it cannot do without.
fn show(bar: ProgressBar, end: &Receiver<()>) {
    if end.recv_timeout(AFTER) == Err(RecvTimeoutError::Timeout) {
        let bar = SHOWN.add(bar);
        while end.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            bar.tick();
        }
        bar.finish_and_clear();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((ended, thread)) = self.end.take() {
            drop(ended);
            let _ = thread.join();
        }
    }
}

/// How far something is.
pub(crate) struct Progress {
    /// What is shown, and by whom.
    bar: Option<(ProgressBar, Watch)>,
}

impl Progress {
    /// Begins now; `shown`: people look on.
    pub(crate) fn new(total: u64, shown: bool) -> Self {
        let bar = (shown && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
            let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}");
            let bar = style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style));
            (bar.clone(), Watch::new(bar))
        });
        Self { bar }
    }

    /// So much is done.
    pub(crate) fn set(&mut self, done: u64) {
        if let Some((bar, _)) = &self.bar {
            bar.set_position(done);
        }
    }

    /// What is done now.
    pub(crate) fn name(&mut self, what: &str) {
        if let Some((bar, _)) = &self.bar {
            bar.set_message(what.to_string());
        }
    }
}

/// Something goes on whose end nobody can tell: shown until this is dropped.
pub(crate) struct Busy {
    _watch: Watch,
}

impl Busy {
    /// Begins now.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_message(what.into());
        Self { _watch: Watch::new(bar.with_style(ProgressStyle::default_spinner())) }
    }
}
