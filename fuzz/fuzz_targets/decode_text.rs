//! What people paste into `mlx5 decode`: any text and any bytes, under every kind that they can be taken for.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| mlx5_vfio::decode::fuzz(data));
