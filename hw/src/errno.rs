//! Error numbers: Linux's, on every platform.

/// Operation not permitted.
pub const EPERM: i32 = 1;
/// No such entry.
pub const ENOENT: i32 = 2;
/// Input or output error.
pub const EIO: i32 = 5;
/// No such device or address.
pub const ENXIO: i32 = 6;
/// Try again.
pub const EAGAIN: i32 = 11;
/// Out of memory.
pub const ENOMEM: i32 = 12;
/// Bad address.
pub const EFAULT: i32 = 14;
/// Busy.
pub const EBUSY: i32 = 16;
/// Exists already.
pub const EEXIST: i32 = 17;
/// No such device.
pub const ENODEV: i32 = 19;
/// Invalid argument.
pub const EINVAL: i32 = 22;
/// No room left.
pub const ENOSPC: i32 = 28;
/// Out of range.
pub const ERANGE: i32 = 34;
/// Not implemented.
pub const ENOSYS: i32 = 38;
/// No data available.
pub const ENODATA: i32 = 61;
/// Protocol error.
pub const EPROTO: i32 = 71;
/// Value too large.
pub const EOVERFLOW: i32 = 75;
/// Message too long.
pub const EMSGSIZE: i32 = 90;
/// Operation not supported.
pub const EOPNOTSUPP: i32 = 95;
/// Timed out.
pub const ETIMEDOUT: i32 = 110;
/// Cancelled.
pub const ECANCELED: i32 = 125;
