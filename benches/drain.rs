//! Draining a full ring of completions, beside the floor: `cargo bench -p mlx5-benches`.
//!
//! Compare the two lines of a size with each other: times of one run hold for that machine and moment only.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use mlx5_benches::{FullRing, floor};
use mlx5_hw::ring::{Cqe64, Ring};

/// What `floor` does, through the ring reader: ownership, barrier, lazy field.
fn drain(ring: &mut Ring<Cqe64>, full: &FullRing) -> u32 {
    let lap = (ring.ci() >> ring.log_size() & 1) as usize;
    let mut sum = 0u32;
    if let Ok(mut batch) = ring.consume(&full.laps[lap]) {
        while let Some(cqe) = batch.next() {
            sum = sum.wrapping_add(cqe.byte_cnt());
        }
    }
    sum
}

fn bench(c: &mut Criterion) {
    for log_size in [8, 12] {
        let full = FullRing::new(log_size);
        let mut group = c.benchmark_group(format!("{} entries of 64 bytes", 1 << log_size));
        group.throughput(Throughput::Elements(1 << log_size));
        group.bench_function("floor", |b| b.iter(|| black_box(floor(black_box(&full.laps[0]), 0))));
        if let Ok(mut ring) = Ring::<Cqe64>::new(log_size) {
            assert_eq!(drain(&mut ring, &full), 64 << log_size, "the ring is read whole");
            group.bench_function("ring", |b| b.iter(|| black_box(drain(&mut ring, black_box(&full)))));
        }
        group.finish();
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
