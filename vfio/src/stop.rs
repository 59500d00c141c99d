//! Signals that ask the program to end: it gives back what it has first.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// The signals that are heard, and their names.
const SIGNALS: [(i32, &str); 2] = [(SIGINT, "SIGINT"), (SIGTERM, "SIGTERM")];

/// The number of the signal that came; 0 before one did.
static CAME: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// A signal that asked the program to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    number: i32,
}

impl Stopped {
    /// The exit code of a program that a signal ended, as shells have it.
    pub(crate) fn exit_code(self) -> u8 {
        128 + self.number as u8
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = SIGNALS.iter().find(|(number, _)| *number == self.number).map_or("a signal", |(_, name)| name);
        write!(f, "stopped by {name}")
    }
}

/// From now on the first signal only asks to end; the second one ends the program at once, and the kernel then takes the
/// function back.
///
/// # Errors
/// When the system refuses.
pub(crate) fn listen() -> io::Result<()> {
    let again = Arc::new(AtomicBool::new(false));
    for (number, _) in SIGNALS {
        flag::register_conditional_shutdown(number, 128 + number, again.clone())?;
        flag::register(number, again.clone())?;
        flag::register_usize(number, CAME.clone(), number as usize)?;
    }
    Ok(())
}

/// Whether to go on.
///
/// # Errors
/// The signal that came.
pub(crate) fn check() -> Result<(), Stopped> {
    match CAME.load(Ordering::Relaxed) {
        0 => Ok(()),
        number => Err(Stopped { number: number as i32 }),
    }
}
