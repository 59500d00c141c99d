//! The control side of the model, driven by raw bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod bringup;
#[path = "../common/bytes.rs"]
mod bytes;
mod clocks;
mod cq_forms;
mod delivery;
mod driver;
mod faults;
#[path = "../data/kinds.rs"]
mod kinds;
mod objects;
mod port;
mod queues;
mod violations;
