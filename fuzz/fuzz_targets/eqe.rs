//! What a device may write into the ring of an event queue, and through the tool's decoder.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| mlx5_fuzz::eqe::run(data));
