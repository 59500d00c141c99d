//! The clocks that others read: the device's free-running counter and time of day, and the time of day of the platform.
//!
//! All follow model time. The device's two run `clock_drift_ppm` faster than the platform's, as their crystals are not the same.

use std::sync::MutexGuard;

use crate::bar;
use crate::device::Device;
use crate::model::Model;

const SECOND: u64 = 1_000_000_000;
const MILLION: i128 = 1_000_000;

/// How the platform's time of day differs from the one that model time began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WallClock {
    /// It is ahead by this many nanoseconds.
    Ahead(i128),
    /// The platform knows no time of day.
    Unknown,
}

impl Device {
    /// The device's own count of nanoseconds at `ns` of model time.
    fn own_ns(&self, ns: u64) -> u128 {
        // A clock that stands still or goes back is none.
        let rate = MILLION + i128::from(self.config.clock_drift_ppm).max(1 - MILLION);
        u128::try_from(i128::from(ns) * rate / MILLION).unwrap_or(0)
    }

    /// The free-running counter at `ns` of model time, modulo 2^64: of completions and of the init segment's timer.
    pub(crate) fn free_running(&self, ns: u64) -> u64 {
        let ticks = self.own_ns(ns) * u128::from(self.config.caps.device_frequency_khz) / 1_000_000;
        self.config.timer_start.wrapping_add(ticks as u64)
    }

    /// The device's time of day at `ns` of model time, seconds in the high half, nanoseconds in the low one: of completions and of
    /// the init segment.
    pub(crate) fn real_time(&self, ns: u64) -> u64 {
        let own = self.own_ns(ns);
        let seconds = self.config.epoch_s.wrapping_add((own / u128::from(SECOND)) as u64);
        seconds << 32 | (own % u128::from(SECOND)) as u64
    }

    /// The platform's time of day, in nanoseconds since 1970.
    fn time_of_day(&self) -> Option<u64> {
        let WallClock::Ahead(ahead) = self.wall_clock else { return None };
        let today = i128::from(self.config.epoch_s) * i128::from(SECOND) + i128::from(self.clock.now());
        Some((today + ahead).clamp(0, u64::MAX.into()) as u64)
    }
}

impl Model {
    /// The device, locked, after `ns` nanoseconds, unless time passes by itself.
    fn after(&self, ns: u64) -> MutexGuard<'_, Device> {
        let mut dev = self.lock();
        if !self.is_threaded() {
            let until = dev.clock.now().saturating_add(ns);
            dev.advance(until);
        }
        dev
    }

    /// Lets `ns` nanoseconds pass. In threaded mode time passes by itself and this only runs what is due.
    pub fn step(&self, ns: u64) {
        drop(self.after(ns));
    }

    /// The time, which asking moves on a little.
    pub(crate) fn tick(&self) -> u64 {
        let mut dev = self.lock();
        dev.calls.nows += 1;
        let ns = dev.config.now_ns;
        drop(dev);
        self.after(ns).clock.now()
    }

    /// A read of 32 bits of a register, which takes its time.
    pub(crate) fn register_read(&self, offset: usize) -> u32 {
        let ns = self.lock().config.read_ns;
        bar::read32(&mut self.after(ns), offset)
    }

    /// The platform's time of day, in nanoseconds since 1970.
    pub(crate) fn time_of_day(&self) -> Option<u64> {
        self.lock().time_of_day()
    }

    /// Sets the platform's time of day (nanoseconds since 1970), as a user or a time service does: it jumps, and goes on from
    /// there. With `None` the platform knows no time of day. The device's clocks do not notice.
    pub fn set_wall_clock(&self, ns: Option<u64>) {
        let mut dev = self.lock();
        dev.wall_clock = WallClock::Ahead(0);
        dev.wall_clock = match (ns, dev.time_of_day()) {
            (Some(ns), Some(now)) => WallClock::Ahead(i128::from(ns) - i128::from(now)),
            _ => WallClock::Unknown,
        };
    }

    /// Lets `ns` nanoseconds pass at once, in both modes. What becomes due meanwhile happens at the end, each once, so that a
    /// year costs no more than an instant: as for a machine that slept.
    pub fn jump(&self, ns: u64) {
        let mut dev = self.lock();
        self.wall_jumps(ns);
        let until = dev.clock.now().saturating_add(ns);
        dev.clock.advance_to(until);
        dev.run();
        self.interrupts_may_have_fired(&dev);
    }
}
