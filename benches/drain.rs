//! Every row of `mlx5 bench cq` under criterion: `cargo bench -p mlx5-benches -- 'poll_cq 16'`.
//!
//! Compare times of one run only, or a run with the one before on an idle machine. How many times the floor a path takes is told by
//! `mlx5 bench cq`.

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use mlx5_benches::rows::{Row, rows};
use mlx5_benches::subject::Subject;

/// Times of so many runs together. What fills the ring in between is not timed.
fn time(subject: &mut dyn Subject, runs: u64) -> Duration {
    let mut all = Duration::ZERO;
    for _ in 0..runs {
        subject.prepare();
        let start = Instant::now();
        let sum = subject.run();
        all += start.elapsed();
        assert_eq!(sum, subject.right(), "every completion is read");
    }
    all
}

fn name(row: &Row) -> String {
    let ring = row.entries().map(|entries| format!(", {entries} of {} bytes, {}", row.cqe_size(), row.state.name()));
    row.name() + &ring.unwrap_or_default()
}

fn bench(c: &mut Criterion) {
    for row in rows(false) {
        let mut subject = row.subject(mlx5_vfio::cpu::detect()).unwrap_or_else(|e| {
            eprintln!("{}: {e}", name(&row));
            std::process::exit(1)
        });
        let mut group = c.benchmark_group(name(&row));
        group.throughput(Throughput::Elements(u64::from(subject.items())));
        group.bench_function("run", |b| b.iter_custom(|runs| time(&mut *subject, runs)));
        group.finish();
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
