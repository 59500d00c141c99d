//! Asking for the clock.

use bitflags::bitflags;

use super::MASK;
use crate::device::Device;
use crate::dv::ClockInfo;
use crate::error::Error;

bitflags! {
    /// What [`Device::query_rt_values_ex`] asks for (`enum ibv_values_mask`; `ibv_query_rt_values_ex(3)`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ValuesMask: u32 {
        /// The device's free-running counter.
        const RAW_CLOCK = 1 << 0;
    }
}

/// Values of a device as they are now (`struct ibv_values_ex`; `ibv_query_rt_values_ex(3)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValuesEx {
    /// Which of the fields below were asked for, and are valid.
    pub comp_mask: ValuesMask,
    /// The free-running counter, in ticks (`hca_core_clock` of them in a millisecond): what raw time stamps are compared with. C
    /// has them as the nanoseconds of a `timespec`.
    pub raw_clock: u64,
}

impl Device {
    /// Asks for values that change by themselves (`ibv_query_rt_values_ex(3)`): a few register reads, no command.
    ///
    /// # Errors
    /// `Invalid` (EINVAL) for an unknown bit; `Unsupported` (EOPNOTSUPP) for the clock of a device whose firmware states no
    /// frequency; `Failed` for a device that is found to be gone.
    pub fn query_rt_values_ex(&self, comp_mask: ValuesMask) -> Result<ValuesEx, Error> {
        if !ValuesMask::all().contains(comp_mask) {
            return Err(Error::Invalid { what: "unknown bit in comp_mask" });
        }
        let mut values = ValuesEx { comp_mask, raw_clock: 0 };
        if comp_mask.contains(ValuesMask::RAW_CLOCK) {
            values.raw_clock = self.inner().clock().ticks()?;
            self.there(values.raw_clock)?;
        }
        Ok(values)
    }

    /// How time stamps become nanoseconds since 1970, as of now (`mlx5dv_get_clock_info(3)`), for
    /// [`dv::ts_to_ns`](crate::dv::ts_to_ns). Good for time stamps from the last second to the next one.
    ///
    /// # Errors
    /// `Unsupported` (EOPNOTSUPP) without a stated frequency, or on a platform that knows no time of day; `ClockBusy`
    /// (EBUSY) when it can't be told at the moment: try again.
    pub fn dv_clock_info(&self) -> Result<ClockInfo, Error> {
        let clock = self.inner().clock();
        clock.start()?;
        let (from, mult, shift) = clock.lines()?.tangent();
        Ok(ClockInfo { nsec: from.ns, last_cycles: from.ticks & MASK, frac: 0, mult, shift, mask: MASK })
    }

    /// A counter of all ones may be a device that is gone.
    fn there(&self, ticks: u64) -> Result<(), Error> {
        if ticks == u64::MAX {
            self.health();
        }
        match self.failure() {
            Some(why) if ticks == u64::MAX => Err(Error::Failed { why, command: None, sent: false }),
            _ => Ok(()),
        }
    }
}
