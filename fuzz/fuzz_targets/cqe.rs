//! What a device may write as a completion: any bytes through each accessor, and through the tool's decoder.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| mlx5_fuzz::cqe::run(data));
