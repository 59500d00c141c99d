//! What the table of queues, the gates of memory keys and the waiting for events are made of. The loom tests (`tests/loom`) put the same
//! code on a module of this name whose types try every order that the memory model allows.

pub(crate) use alloc::sync::Arc;
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

pub(crate) use spin::Mutex;
