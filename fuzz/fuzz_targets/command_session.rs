//! Answers of a device that are right but for a few bytes, under a driver that brings it up and uses it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| mlx5_fuzz::session::run(data));
