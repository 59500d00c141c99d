//! Every way of polling gives the same: each set of instructions, and a naive model that knows nothing of the driver.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod differ;
mod images;
mod naive;
mod random;
mod world;
