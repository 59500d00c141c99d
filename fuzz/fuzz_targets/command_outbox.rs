//! What a device may answer: any bytes as the output of each command, as an event, a completion, health and capabilities;
//! and answers of a device that are right but for a few bytes, under a driver that brings it up and uses it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| match data.split_first() {
    Some((0, rest)) => mlx5_fuzz::session::run(rest),
    Some((_, rest)) => {
        mlx5_fuzz::commands::decode_all(rest);
        mlx5_fuzz::views::read_all(rest);
    }
    None => {}
});
