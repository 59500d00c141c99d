//! Properties of the driver on the model, over random lives of queues: made, used, reset, destroyed, with faults.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod cycles;
mod mix;
mod overrun;
mod plan;
mod queues;
#[allow(dead_code, reason = "more is there for the tests of single verbs")]
#[path = "../verbs/support.rs"]
mod support;
mod world;
