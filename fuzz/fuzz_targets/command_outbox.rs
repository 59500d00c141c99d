//! What a device may answer: any bytes as the output of each command, as health and capabilities.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    mlx5_fuzz::commands::decode_all(data);
    mlx5_fuzz::views::read_all(data);
});
