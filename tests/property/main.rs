//! Properties of the driver on the model, over random lives of queues: made, used, reset, destroyed, with faults.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod cycles;
mod events;
mod mix;
mod overrun;
mod plan;
mod queues;
mod sleepers;
#[allow(dead_code, reason = "more is there for the tests of single verbs")]
#[path = "../verbs/support.rs"]
mod support;
mod world;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Cases of a property: `PROPTEST_CASES`, or 256.
fn cases() -> u32 {
    Config::default().cases
}

/// Tries `test` on `cases` values; the smallest that fails is told.
fn check<S: Strategy>(cases: u32, strategy: S, test: impl Fn(&S::Value)) {
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let run = runner.run(&strategy, |value| {
        test(&value);
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
}
