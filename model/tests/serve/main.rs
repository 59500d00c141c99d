//! The served function, by a client that writes the bytes of the protocol itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod client;
mod driver;
mod function;
mod hostile;
mod memory;
mod program;
