//! Drains completion queues through `mlx5` for programs in C: `drain.h`, which can be implemented for any driver, so that several
//! are timed in one process on the same bytes.
//!
//! Nothing here polls. A [`Drain`] is the facade's own CQ, made of raw parts over the caller's ring, and its modes call what
//! users call. Modes, in the order of their numbers: see [`Mode`]. A ring is aligned to 64 bytes.

mod drain;
mod ffi;

pub use drain::{Drain, Kind, Mode, Params};
pub use ffi::{DrainParams, drain_free, drain_mode_name, drain_modes, drain_new, drain_run};
