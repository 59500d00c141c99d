//! The calls of `infiniband/mlx5dv.h` by their names.

use crate::dv::CqInitAttr;
use crate::{Cq, CqInitAttrEx, Device, Error};

/// `mlx5dv_create_cq(3)`.
///
/// # Errors
/// As [`Device::dv_create_cq`].
pub fn create_cq(context: &Device, cq_attr: &CqInitAttrEx<'_>, mlx5_cq_attr: &CqInitAttr) -> Result<Cq, Error> {
    context.dv_create_cq(cq_attr, mlx5_cq_attr)
}
