//! Time: the processor's time stamp counter, measured against the PC's timer.
//!
//! CPUID often does not tell the counter's frequency, in virtual machines above all; the timer of a PC (PIT, channel 2,
//! the loudspeaker's) counts 1 193 182 times a second everywhere.

use crate::io::{inb, outb};

const PIT_HZ: u64 = 1_193_182;
const PIT_DATA: u16 = 0x42;
const PIT_CONTROL: u16 = 0x43;
const SPEAKER: u16 = 0x61;
/// How long to measure, in counts of the timer: 10 ms.
const MEASURED: u16 = 11_932;
/// Counts of the processor, seconds at any frequency, after which a timer that stands still is given up.
const PATIENCE: u64 = 1 << 34;

/// A clock that never goes back: the counter of the one processor in use.
#[derive(Clone, Copy)]
pub struct Clock {
    start: u64,
    /// Nanoseconds per count, times 2^32.
    scale: u64,
}

impl Clock {
    /// Measures the counter, which takes 10 ms. `None` when the machine has no such timer.
    pub fn measure() -> Option<Self> {
        const GATE: u8 = 1;
        const SOUND: u8 = 2;
        const RAN_THROUGH: u8 = 1 << 5;
        outb(SPEAKER, inb(SPEAKER) & !SOUND | GATE);
        let begin = counter();
        let mut start = restart();
        while counter().wrapping_sub(begin) <= PATIENCE {
            let now = sample();
            // After 55 ms the timer begins anew: a virtual machine on a busy host may have stood still for so long.
            if inb(SPEAKER) & RAN_THROUGH != 0 {
                start = restart();
                continue;
            }
            let (counts, ticks) = (start.1.wrapping_sub(now.1), now.0.wrapping_sub(start.0));
            if counts >= MEASURED && ticks > 0 {
                let ns = u128::from(counts) * 1_000_000_000 / u128::from(PIT_HZ);
                let scale = u64::try_from((ns << 32) / u128::from(ticks)).ok()?;
                return (scale > 0).then_some(Self { start: start.0, scale });
            }
        }
        None
    }

    /// Nanoseconds since the measurement.
    pub fn now(&self) -> u64 {
        ((u128::from(counter().saturating_sub(self.start)) * u128::from(self.scale)) >> 32) as u64
    }

    /// Waits, busily.
    pub fn sleep(&self, ns: u64) {
        let end = self.now().saturating_add(ns);
        while self.now() < end {
            core::hint::spin_loop();
        }
    }
}

/// Lets the timer count down from its highest number; both counters then.
fn restart() -> (u64, u16) {
    const CHANNEL_2_ONCE_FROM_16_BITS: u8 = 0xb0;
    outb(PIT_CONTROL, CHANNEL_2_ONCE_FROM_16_BITS);
    outb(PIT_DATA, 0xff);
    outb(PIT_DATA, 0xff);
    sample()
}

/// Both counters at one moment: of a few tries the one in which the least time passed between the two.
fn sample() -> (u64, u16) {
    const LATCH_CHANNEL_2: u8 = 0x80;
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..4 {
        let before = counter();
        outb(PIT_CONTROL, LATCH_CHANNEL_2);
        let after = counter();
        let count = u16::from_le_bytes([inb(PIT_DATA), inb(PIT_DATA)]);
        best = best.min((after.saturating_sub(before), before, count));
    }
    (best.1, best.2)
}

fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it is not turned off (CR4.TSD is clear).
    unsafe { core::arch::x86_64::_rdtsc() }
}
