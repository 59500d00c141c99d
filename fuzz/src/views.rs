//! Any bytes as what a device writes by itself: completions, events, health, capabilities.

use std::hint::black_box;
use std::sync::atomic::AtomicU32;

use mlx5_hw::be::Be32;
use mlx5_hw::caps::{AtomicCaps, CmdHcaCap, RoceCap};
use mlx5_hw::cmd_entry::{CmdIfBox, CmdQueueEntry};
use mlx5_hw::cqe::{CqeRef, ErrCqe, SigErrCqe};
use mlx5_hw::eqe::Eqe;
use mlx5_hw::health::HealthBuffer;
use mlx5_hw::prm::{Field, Layout};

/// Reads them as each.
pub fn read_all(bytes: &[u8]) {
    let words: Vec<Be32> =
        bytes.chunks_exact(4).map(|c| Be32::new(c.iter().fold(0, |n, &b| n << 8 | u32::from(b)))).collect();
    let _ = black_box(layout::<Eqe>(&words).event());
    completion(&words);
    let health = layout::<HealthBuffer>(&words);
    let _ = black_box((health.syndrome().meaning(), health.severity_or_default().name(), health.fw_version_parts()));
    layout::<CmdHcaCap>(&words);
    layout::<RoceCap>(&words);
    layout::<AtomicCaps>(&words);
    layout::<ErrCqe>(&words);
    layout::<SigErrCqe>(&words);
    layout::<CmdQueueEntry>(&words);
    layout::<CmdIfBox>(&words);
}

/// The layout, after each of its fields was read.
fn layout<L: Layout>(words: &[Be32]) -> L {
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

fn completion(words: &[Be32]) {
    let memory: [AtomicU32; 16] =
        std::array::from_fn(|i| AtomicU32::new(u32::from_ne_bytes(words.get(i).map_or(0, |w| w.get()).to_be_bytes())));
    let cqe = CqeRef::new(&memory);
    let _ = black_box((cqe.opcode(), cqe.format(), cqe.is_error(), cqe.wqe_counter(), cqe.qpn(), cqe.srqn_or_uidx()));
    let _ = black_box((cqe.byte_cnt(), cqe.timestamp(), cqe.src_qp(), cqe.vlan_info(), cqe.ip_csum_ok()));
    let syndrome = cqe.syndrome();
    let _ = black_box((syndrome.wc_status(), syndrome.meaning(), syndrome.usual_cause(), cqe.hw_synd_type()));
}
