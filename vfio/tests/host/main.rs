//! The machine as Linux shows it, on machines made of folders.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod binding;
mod check;
#[path = "../common/mod.rs"]
mod common;
mod function;
mod kernel;
mod list;
mod machine;
