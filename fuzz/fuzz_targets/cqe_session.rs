//! What a device may write into the ring of a completion queue, compressed sessions and all, in each format.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| mlx5_fuzz::sessions::run(data));
