//! Traces as text. The lines of other programs are from logs of functions that Linux and rdma-core drove.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod diff;
mod lines;
#[cfg(feature = "serve")]
mod program;
