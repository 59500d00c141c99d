//! The calls of `infiniband/mlx5dv.h` by their names.

use crate::dv::{self, ClockInfo, CqInitAttr};
use crate::{Cq, CqInitAttrEx, Device, Error};

/// `mlx5dv_create_cq(3)`.
///
/// # Errors
/// As [`Device::dv_create_cq`].
pub fn create_cq(context: &Device, cq_attr: &CqInitAttrEx<'_>, mlx5_cq_attr: &CqInitAttr) -> Result<Cq, Error> {
    context.dv_create_cq(cq_attr, mlx5_cq_attr)
}

/// `mlx5dv_get_clock_info(3)`.
///
/// # Errors
/// As [`Device::dv_clock_info`].
pub fn get_clock_info(context: &Device) -> Result<ClockInfo, Error> {
    context.dv_clock_info()
}

/// `mlx5dv_ts_to_ns(3)`.
pub fn ts_to_ns(clock_info: &ClockInfo, device_timestamp: u64) -> u64 {
    dv::ts_to_ns(clock_info, device_timestamp)
}
