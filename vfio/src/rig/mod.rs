//! What the commands of the tool run on: the software model, or a function of this machine.

mod args;
#[cfg(target_os = "linux")]
mod facts;
#[cfg(target_os = "linux")]
mod function;
mod model;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mlx5::{Device, DeviceConfig, Error};
use mlx5_model::{CompletionCounts, Model};

use crate::cli::Failure;
pub(crate) use args::DeviceArgs;
pub(crate) use model::ModelRig;

/// By so much waits are shorter once one was in vain.
const HURRIED: u32 = 10;

/// What waiting took since the function was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// Requests for an event that reached the device, where that can be seen.
    pub(crate) arms: Option<u64>,
    /// Interrupts that came.
    pub(crate) interrupts: u64,
    /// Times that the program slept until an interrupt woke it, or it had slept for long.
    pub(crate) sleeps: u64,
}

impl Waits {
    /// What came after `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            arms: self.arms.zip(before.arms).map(|(now, before)| now - before),
            interrupts: self.interrupts - before.interrupts,
            sleeps: self.sleeps - before.sleeps,
        }
    }
}

/// A function to run on.
pub(crate) trait Rig: Sync {
    /// What it is, in words and without a full stop.
    fn title(&self) -> String;

    /// Its name in JSON (`device`).
    fn name(&self) -> String;

    /// What a maintainer wants to know of where it runs: names and values.
    fn facts(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// What the port has counted and holds now.
    fn counters(&self) -> Vec<(&'static str, u64)>;

    /// How to open it, with as many completion vectors as it was given.
    fn default_config(&self) -> DeviceConfig;

    /// Brings it up. It can be opened again when the device has been closed.
    ///
    /// # Errors
    /// `NoDevice`, in words.
    fn open(&self, config: DeviceConfig) -> Result<Device, Failure>;

    /// Lets a model run by itself from now on, as a function always does.
    ///
    /// # Errors
    /// When the system has no thread to give, in words.
    fn run_by_itself(&self) -> Result<(), String> {
        Ok(())
    }

    /// Lets a model run in the driver's calls again.
    fn stand_still(&self) {}

    /// Whether it runs by itself and by the clock on the wall; else it does in the driver's calls and in [`step`](Self::step).
    fn own_time(&self) -> bool;

    /// Lets it run for so long, unless it runs by itself.
    fn step(&self, time: Duration);

    /// The longest time that a completion may take, in its own time.
    fn patience(&self) -> Duration;

    /// Something was waited for in vain: by the clock on the wall later waits are shorter, so that a run ends soon whose device
    /// answers nothing.
    fn hurry(&self);

    /// What waiting took so far.
    fn waits(&self) -> Waits;

    /// How completions were written, which only a model tells.
    fn completions(&self) -> Option<CompletionCounts> {
        self.model().map(Model::completions)
    }

    /// The rules of the hardware that the driver broke. Only a model judges.
    fn violations(&self) -> Vec<String> {
        self.model().map_or(Vec::new(), |model| model.violations().iter().map(ToString::to_string).collect())
    }

    /// What was not given back, once the device has been closed.
    fn left(&self) -> Option<String>;

    /// The model, for what only a model can do.
    fn model(&self) -> Option<&Model> {
        None
    }
}

/// How long waits by the clock on the wall may be.
struct Patience {
    longest: Duration,
    hurried: AtomicBool,
}

impl Patience {
    /// `longest` until something was waited for in vain.
    const fn new(longest: Duration) -> Self {
        Self { longest, hurried: AtomicBool::new(false) }
    }

    fn now(&self) -> Duration {
        if self.hurried.load(Ordering::Relaxed) { self.longest / HURRIED } else { self.longest }
    }

    fn hurry(&self) {
        self.hurried.store(true, Ordering::Relaxed);
    }
}

/// Why there is nothing to work with.
fn did_not_come_up(device: String, error: Error) -> Failure {
    // The driver knows no options of the tool's.
    let (kind, hint) = match error {
        Error::FirmwareNotReady => ("firmware-not-ready", " (`--firmware-wait SECONDS` waits longer)"),
        _ => ("did-not-come-up", ""),
    };
    Failure::NoDevice { device, why: format!("the device did not come up: {error}{hint}"), kind }
}

/// What was not given back, in words.
fn not_given_back(ranges: u64, bytes: u64) -> Option<String> {
    (ranges != 0).then(|| format!("{ranges} ranges of memory ({bytes} bytes) were not given back"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firmware_that_is_slow_is_told_with_the_option_that_waits_longer() {
        let told = |error| match did_not_come_up("03:00.0".into(), error) {
            Failure::NoDevice { why, kind, .. } => (why, kind),
            other => panic!("{other:?}"),
        };
        let (why, kind) = told(Error::FirmwareNotReady);
        assert!(why.contains("did not become ready in time; wait, or reset the device and open it again"), "{why}");
        assert!(why.ends_with("(`--firmware-wait SECONDS` waits longer)") && kind == "firmware-not-ready", "{why}");
        let (why, kind) = told(Error::NoMemory);
        assert!(!why.contains("firmware-wait") && kind == "did-not-come-up", "{why}");
    }
}
