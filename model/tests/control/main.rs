//! The control side of the model, driven by raw bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bringup;
mod delivery;
mod driver;
mod faults;
mod objects;
mod port;
mod queues;
#[path = "../rules/mod.rs"]
mod rules;
mod violations;
