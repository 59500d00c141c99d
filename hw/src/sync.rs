//! The atomics of rings, records and barriers: core's, or with `--cfg loom` those of the model checker loom, which tries every
//! order that the memory model allows (`tests/loom`).

#[cfg(loom)]
mod site;

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(loom)]
pub use {core::sync::atomic::Ordering, loom::sync::atomic::AtomicU32, site::*};
