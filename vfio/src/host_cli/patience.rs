//! A line on the terminal while the kernel takes its time: a driver that lets a card go may need seconds.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use indicatif::ProgressBar;

/// What takes longer than this is told of.
const AFTER: Duration = Duration::from_secs(1);
/// How often the line moves.
const MOVES: Duration = Duration::from_millis(100);

/// Does something; after a second a line on standard error says what, where that is a terminal.
pub(super) fn patiently<T>(what: &str, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    std::thread::scope(|scope| {
        let (done, waits) = channel::<()>();
        scope.spawn(move || {
            if waits.recv_timeout(AFTER) == Err(RecvTimeoutError::Timeout) {
                let line = ProgressBar::new_spinner().with_message(what.to_string());
                line.enable_steady_tick(MOVES);
                let _ = waits.recv();
                line.finish_and_clear();
            }
        });
        let result = work();
        drop(done);
        result
    })
}
