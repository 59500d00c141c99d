//! The machine as Linux shows it, on machines made of folders.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod check;
mod function;
mod machine;
