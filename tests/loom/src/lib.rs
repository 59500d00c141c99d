//! The code that shares memory without a lock, in every order that the memory model allows: `cargo test -p mlx5-loom` with
//! `RUSTFLAGS="--cfg loom"`. Each barrier is then taken away, and something must fail.
#![cfg(all(test, loom))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

extern crate alloc;

mod attach;
mod clock;
mod copies;
mod events;
#[path = "../../../src/srq/free.rs"]
mod free;
#[path = "../../../src/gate.rs"]
mod gate;
#[path = "../../../src/events/lead.rs"]
mod lead;
#[expect(dead_code, reason = "the driver's, which uses all of it")]
#[path = "../../../src/events/line.rs"]
mod line;
mod places;
mod proof;
mod ring;
#[expect(dead_code, reason = "the driver's, which uses all of it")]
#[path = "../../../src/cq/rows.rs"]
mod rows;
#[expect(dead_code, reason = "the driver's, which looks more than once")]
#[path = "../../../src/clock/seqlock.rs"]
mod seqlock;
mod sync;
#[path = "../../../src/srq/work.rs"]
mod work;
