//! What people paste into `mlx5 decode`: known lines with odd numbers, any text and any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| mlx5_fuzz::text::run(data));
