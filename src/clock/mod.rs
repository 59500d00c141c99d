//! The device's free-running counter, and what time of day it stands for.
//!
//! Whoever needs the time of completions reads the [`Lines`] without a lock. Once a second of use, one thread measures: it reads the
//! counter between two looks at the platform's time of day. Nothing is measured for a device that nobody asks.

mod lines;
mod query;
mod seqlock;

use alloc::sync::Arc;

use mlx5_hw::caps::CmdHcaCap;
use spin::{Mutex, MutexGuard};

use crate::dma::Port;
use crate::error::Error;
use lines::{Follower, Moment, WORDS};
pub(crate) use lines::{Lines, MASK};
pub use query::{ValuesEx, ValuesMask};
use seqlock::SeqLock;

/// Nanoseconds for which a measurement is good, and after which it is not used any more: that is before the line ends that no time is
/// told beyond (`Follower::in_use`), however the clocks differ.
const FRESH: u64 = 1_000_000_000;
const STALE: u64 = FRESH + FRESH / 32;
/// Measurements, of which the shortest is taken.
const TRIES: u32 = 3;

/// Why there is no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoTime {
    /// Not now: try again.
    Busy,
    /// There is none: what is missing.
    Unsupported(&'static str),
}

impl From<NoTime> for Error {
    fn from(why: NoTime) -> Self {
        match why {
            NoTime::Busy => Self::ClockBusy,
            NoTime::Unsupported(what) => Self::Unsupported { what },
        }
    }
}

/// Why a measurement came to nothing.
enum Unmeasured {
    /// The platform does not know the time of day.
    NoTimeOfDay,
    /// The counter reads as all ones: the device is gone.
    NoCounter,
}

/// The clock of a device.
pub(crate) struct Clock {
    port: Arc<Port>,
    /// Ticks of the counter in a second; 0 if the firmware does not say.
    second: u64,
    /// The lines, and when they were measured, by the platform's clock.
    lines: SeqLock<{ WORDS + 1 }>,
    follower: Mutex<Follower>,
}

impl Clock {
    pub(crate) fn new(port: Arc<Port>, caps: &CmdHcaCap) -> Self {
        let (number, unit) = match caps.device_frequency_khz() {
            0 => (caps.device_frequency_mhz(), 1_000_000),
            khz => (khz, 1000),
        };
        let second = u64::from(number) * unit;
        let follower = Follower::new(second.max(1)).rounded_to(unit);
        Self { port, second, lines: SeqLock::new(), follower: Mutex::new(follower) }
    }

    /// What the counter shows. The device is not trusted to be there: all ones are what is read when it is gone.
    pub(crate) fn ticks(&self) -> Result<u64, NoTime> {
        if self.second == 0 {
            return Err(NoTime::Unsupported("a clock: the firmware states no frequency (device_frequency_khz)"));
        }
        Ok(self.port.init_segment().internal_timer())
    }

    /// Makes sure that there are lines.
    pub(crate) fn start(&self) -> Result<(), NoTime> {
        self.ticks()?;
        let mut follower = self.follower.lock();
        // Nobody else writes, so it can be read.
        match self.stored() {
            Some((lines, _)) if lines.known() => Ok(()),
            _ => self
                .measure(&mut follower, Lines::default())
                .map(|_| ())
                .map_err(|_| NoTime::Unsupported("wall-clock time on a platform that does not know the time of day")),
        }
    }

    /// The lines as of now, for time stamps up to a second from now. They are started.
    pub(crate) fn lines(&self) -> Result<Lines, NoTime> {
        let (lines, measured) = self.stored().ok_or(NoTime::Busy)?;
        let age = self.port.platform().now().saturating_sub(measured);
        if age < FRESH {
            return Ok(lines);
        }
        self.renew(lines, age)
    }

    /// Measures, unless another thread is about to.
    #[cold]
    fn renew(&self, lines: Lines, age: u64) -> Result<Lines, NoTime> {
        let last = || if age < STALE { Ok(lines) } else { Err(NoTime::Busy) };
        let Some(mut follower) = self.follower.try_lock() else { return last() };
        // Another thread may just have done it.
        let Some((now, _)) = self.stored().filter(|(now, _)| *now == lines) else { return last() };
        match self.measure(&mut follower, now) {
            Ok(lines) => Ok(lines),
            Err(Unmeasured::NoTimeOfDay) => last(),
            // Nothing is stamped any more by a device that is gone.
            Err(Unmeasured::NoCounter) => Ok(lines),
        }
    }

    fn stored(&self) -> Option<(Lines, u64)> {
        let words = self.lines.read()?;
        let (lines, [measured]) =
            words.split_first_chunk().and_then(|(lines, rest)| Some((lines, rest.first_chunk()?)))?;
        Some((Lines::from_words(lines), *measured))
    }

    fn measure(&self, follower: &mut MutexGuard<'_, Follower>, lines: Lines) -> Result<Lines, Unmeasured> {
        let moment = self.moment()?;
        let lines = follower.follow(lines, moment);
        let mut words = [0; WORDS + 1];
        words[..WORDS].copy_from_slice(&lines.to_words());
        words[WORDS] = self.port.platform().now();
        self.lines.write(&words);
        Ok(lines)
    }

    /// The counter, and the time of day in the middle of the time that reading it took.
    fn moment(&self) -> Result<Moment, Unmeasured> {
        let (platform, segment) = (self.port.platform(), self.port.init_segment());
        let mut best = Err(Unmeasured::NoTimeOfDay);
        let mut least = u64::MAX;
        for _ in 0..TRIES {
            let before = platform.wall_clock().ok_or(Unmeasured::NoTimeOfDay)?;
            let ticks = segment.internal_timer();
            let after = platform.wall_clock().ok_or(Unmeasured::NoTimeOfDay)?;
            if ticks == u64::MAX {
                best = best.or(Err(Unmeasured::NoCounter));
                continue;
            }
            // It may be set back just now.
            let Some(width) = after.checked_sub(before).filter(|width| *width < least) else { continue };
            (least, best) = (width, Ok(Moment { ticks, ns: before + width / 2 }));
        }
        best
    }
}
