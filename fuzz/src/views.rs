//! Any bytes as what a device says of itself: health, capabilities, the command interface.

use std::hint::black_box;

use mlx5_hw::be::Be32;
use mlx5_hw::caps::{AtomicCaps, CmdHcaCap, RoceCap};
use mlx5_hw::cmd_entry::{CmdIfBox, CmdQueueEntry};
use mlx5_hw::health::HealthBuffer;
use mlx5_hw::prm::{Field, Layout};

/// Reads them as each.
pub fn read_all(bytes: &[u8]) {
    let words = words(bytes);
    let health = layout::<HealthBuffer>(&words);
    let _ = black_box((health.syndrome().meaning(), health.severity_or_default().name(), health.fw_version_parts()));
    layout::<CmdHcaCap>(&words);
    layout::<RoceCap>(&words);
    layout::<AtomicCaps>(&words);
    layout::<CmdQueueEntry>(&words);
    layout::<CmdIfBox>(&words);
}

/// The big-endian dwords in bytes.
pub fn words(bytes: &[u8]) -> Vec<Be32> {
    bytes.chunks_exact(4).map(|c| Be32::new(c.iter().fold(0, |n, &b| n << 8 | u32::from(b)))).collect()
}

/// The layout, after each of its fields was read.
pub fn layout<L: Layout>(words: &[Be32]) -> L {
    let layout = L::from_words(words);
    fields(L::FIELDS, layout.words());
    layout
}

fn fields(all: &[Field], words: &[Be32]) {
    for field in all {
        for index in 0..field.count.max(1) as usize + 1 {
            let _ = black_box((field.get)(words, index));
        }
        fields(field.nested, words.get((field.bit_offset / 32) as usize..).unwrap_or(&[]));
    }
}
