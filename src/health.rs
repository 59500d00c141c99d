//! The health of the firmware, as its health buffer and heartbeat counter show it.

use mlx5_hw::health::HealthSyndrome;
use mlx5_hw::init_segment::NicInterface;
use spin::Mutex;

use crate::dma::Port;
use crate::error::Failure;

/// Shortest time between two looks while a command waits, in nanoseconds.
const LOOK_INTERVAL: u64 = 1_000_000;
/// So many times the counter may be found unchanged before it counts as stopped.
const MISSES: u32 = 3;

/// What the firmware says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// It works.
    Ok,
    /// Its health buffer names a syndrome.
    Syndrome {
        /// `synd` of the health buffer.
        syndrome: HealthSyndrome,
        /// `ext_synd` of the health buffer.
        ext_syndrome: u16,
        /// It asks for a reset (`rfr`): nothing will work before that.
        fatal: bool,
    },
    /// Its heartbeat counter has not moved during three polls. It may come back.
    CounterStopped,
    /// The interface of the NIC is disabled.
    NicDisabled,
    /// A software reset is going on.
    SoftwareReset,
    /// It has forgotten the command queue, or is starting anew: somebody has reset the function.
    Reset,
    /// Registers read as all ones: the device has left the bus.
    Gone,
}

impl Health {
    /// Why the device counts as failed, if this is a condition in which nothing will be answered.
    pub const fn fatal(self) -> Option<Failure> {
        match self {
            Self::Syndrome { syndrome, fatal: true, .. } => Some(Failure::Health(syndrome)),
            Self::NicDisabled | Self::SoftwareReset => Some(Failure::NicDisabled),
            Self::Reset => Some(Failure::Reset),
            Self::Gone => Some(Failure::Gone),
            Self::Ok | Self::Syndrome { .. } | Self::CounterStopped => None,
        }
    }
}

#[derive(Default)]
struct Seen {
    looked_at: Option<u64>,
    counter: u32,
    counted_at: Option<u64>,
    misses: u32,
}

/// Watches the health of a function.
pub(crate) struct Watch {
    seen: Mutex<Seen>,
    /// What the device shows as the low half of the command queue's address while it has that queue.
    queue_address: u32,
}

impl Watch {
    /// Of a function that has taken its command queue.
    pub(crate) fn new(port: &Port) -> Self {
        Self { seen: Mutex::default(), queue_address: port.init_segment().cmdq_state().0 }
    }

    /// Looks now. The counter is compared at most every `poll` nanoseconds.
    pub(crate) fn look(&self, port: &Port, poll: u64) -> Health {
        let state = self.registers(port);
        if state != Health::Ok {
            return state;
        }
        self.count(port, port.platform().now(), poll);
        if self.counter_stopped() { Health::CounterStopped } else { Health::Ok }
    }

    /// Looks if it is time to, while something waits. The counter is compared at most every `poll` nanoseconds.
    ///
    /// # Errors
    /// What [`Health::fatal`] gives.
    pub(crate) fn check(&self, port: &Port, now: u64, poll: u64) -> Result<(), Failure> {
        {
            let mut seen = self.seen.lock();
            if seen.looked_at.is_some_and(|at| now.saturating_sub(at) < LOOK_INTERVAL) {
                return Ok(());
            }
            seen.looked_at = Some(now);
        }
        self.registers(port).fatal().map_or(Ok(()), Err)?;
        self.count(port, now, poll);
        Ok(())
    }

    /// Whether the counter has not moved for so long that the firmware seems to have stopped.
    pub(crate) fn counter_stopped(&self) -> bool {
        self.seen.lock().misses >= MISSES
    }

    /// What the failure of a device is called that has stopped to answer commands: what its registers say, if they say
    /// anything.
    pub(crate) fn silence(&self, port: &Port) -> Failure {
        match self.registers(port) {
            Health::Syndrome { syndrome, .. } => Failure::Health(syndrome),
            other => other.fatal().unwrap_or(Failure::Silent),
        }
    }

    /// Compares the counter, if it is time to.
    fn count(&self, port: &Port, now: u64, poll: u64) {
        let mut seen = self.seen.lock();
        if seen.counted_at.is_none_or(|at| now.saturating_sub(at) >= poll) {
            let counter = port.init_segment().health_counter();
            let moved = seen.counted_at.is_none() || counter != seen.counter;
            seen.misses = if moved { 0 } else { seen.misses + 1 };
            seen.counter = counter;
            seen.counted_at = Some(now);
        }
    }

    /// What the registers say, the counter left aside.
    fn registers(&self, port: &Port) -> Health {
        let state = self.state(port);
        // Last, as the device may leave meanwhile: what was read before would then be ones.
        if port.init_segment().answers() { state } else { Health::Gone }
    }

    /// What the registers of a device say that is there.
    fn state(&self, port: &Port) -> Health {
        let segment = port.init_segment();
        let (address, interface) = segment.cmdq_state();
        match interface {
            NicInterface::DISABLED => return Health::NicDisabled,
            NicInterface::SW_RESET => return Health::SoftwareReset,
            _ => {}
        }
        if address != self.queue_address || segment.initializing() {
            return Health::Reset;
        }
        if segment.health_syndrome().0 == 0 {
            return Health::Ok;
        }
        let buffer = segment.health_buffer();
        let ext_syndrome = buffer.ext_synd() as u16;
        Health::Syndrome { syndrome: buffer.syndrome(), ext_syndrome, fatal: buffer.rfr() }
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::sync::Arc;
    use core::sync::atomic::{AtomicU32, Ordering};

    use mlx5_hw::platform::Bar;

    use super::*;
    use crate::fake::Fake;

    /// Registers of a healthy device that reads as ones from a certain access on.
    struct Leaving(AtomicU32);

    // SAFETY: there is no device.
    unsafe impl Bar for Leaving {
        fn size(&self) -> usize {
            1 << 20
        }

        fn read32(&self, offset: usize) -> u32 {
            let left = self.0.load(Ordering::Relaxed);
            self.0.store(left.saturating_sub(1), Ordering::Relaxed);
            let value: u32 = if offset == 0x14 { 0x1234_5055 } else { 0 };
            if left == 0 { u32::MAX } else { value.swap_bytes() }
        }

        fn write32(&self, _: usize, _: u32) {}

        fn write64(&self, _: usize, _: u64) {}
    }

    #[test]
    fn a_device_that_leaves_during_a_look_is_gone_and_not_sick() {
        for reads in 0..8 {
            let bar = Leaving(AtomicU32::new(1 + reads));
            let port = Port::new(Arc::new(Fake::default()), Box::new(bar), None);
            let seen = Watch::new(&port).look(&port, u64::MAX);
            // State of the queue, initializing, two of the health buffer, and whether it is there; then the counter.
            assert_eq!(seen, if reads < 5 { Health::Gone } else { Health::Ok }, "{reads} reads");
        }
    }
}
