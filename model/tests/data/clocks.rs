//! Time stamps of completions: which clock, and which queues go together.

use mlx5_model::{CapConfig, ModelConfig, syndrome_text};

use crate::qp::QpWish;
use crate::raw::{Raw, get, put};
use crate::rdma::{Cq, CqWish, LW, Rdma};
use crate::wqe::{inline, signalled};

const FREE_RUNNING: u64 = 0;
const DEFAULT: u64 = 1;
const REAL_TIME: u64 = 2;

fn cq(rdma: &Rdma, format: u64) -> Cq {
    let wish = CqWish { log_size: 2, entry: 64, ignore_overrun: false };
    rdma.cq_as(wish, |cqc| put(cqc, 0x5e, 2, format))
}

#[test]
fn a_queue_pair_in_real_time_stamps_with_seconds_and_nanoseconds_and_another_with_ticks() {
    for format in [FREE_RUNNING, DEFAULT, REAL_TIME] {
        let rdma = Rdma::up();
        let (mut send, recv) = (cq(&rdma, format), cq(&rdma, format));
        let (mut a, mut b) = rdma.pair(QpWish { ts_format: format as u8, ..QpWish::default() }, &send, &recv);
        let to = rdma.register(64, 0, LW);
        rdma.raw.model.step(2_500_000_000);
        rdma.recv(&mut b, &[to.seg(0, 64)]);
        rdma.send(&mut a, signalled(&inline(b"x")));
        // The registers of the init segment: internal_timer and real_time.
        let clock = |at| u64::from(rdma.raw.read32(at)) << 32 | u64::from(rdma.raw.read32(at + 4));
        let (ticks, day) = (clock(0x1000), clock(0x1040));
        let stamp = get(&rdma.poll(&mut send), 384, 64);
        assert_eq!(stamp, if format == REAL_TIME { day } else { ticks }, "format {format}");
        assert_eq!(day >> 32, 1_700_000_002, "two seconds after the model began");
        assert!((500_000_000..600_000_000).contains(&(day & 0xffff_ffff)));
        rdma.assert_clean();
    }
}

/// Once before the counter wraps, once behind it.
#[test]
fn time_stamps_wrap_with_the_counter_and_drift_with_it() {
    let start = u64::MAX - 156_250_000;
    for (clock_drift_ppm, format) in [(0, FREE_RUNNING), (500, FREE_RUNNING), (-500, DEFAULT), (500, REAL_TIME)] {
        let config = ModelConfig { timer_start: start, clock_drift_ppm, ..ModelConfig::default() };
        let rdma = Rdma::on(Raw::made(config, true));
        let (mut send, recv) = (cq(&rdma, format), cq(&rdma, format));
        let (mut a, mut b) = rdma.pair(QpWish { ts_format: format as u8, ..QpWish::default() }, &send, &recv);
        let to = rdma.register(64, 0, LW);
        let clock = |at| u64::from(rdma.raw.read32(at)) << 32 | u64::from(rdma.raw.read32(at + 4));
        let mut ticks = Vec::new();
        for _ in 0..2 {
            rdma.recv(&mut b, &[to.seg(0, 64)]);
            rdma.send(&mut a, signalled(&inline(b"x")));
            let right = clock(if format == REAL_TIME { 0x1040 } else { 0x1000 });
            assert_eq!(get(&rdma.poll(&mut send), 384, 64), right, "{clock_drift_ppm} ppm, format {format}");
            ticks.push(clock(0x1000));
            rdma.raw.model.jump(2_000_000_000);
        }
        assert!(ticks[0] >= start && ticks[1] < start, "{ticks:x?}");
        let passed = 312_500_000i64 + 312_500_000 / 1_000_000 * i64::from(clock_drift_ppm);
        assert!(ticks[1].wrapping_sub(ticks[0]).abs_diff(passed as u64) < 156_250, "{ticks:x?}");
        rdma.assert_clean();
    }
}

#[test]
fn queues_with_clocks_that_do_not_agree_are_refused() {
    let no_real_time = CapConfig { real_time_ts: false, ..CapConfig::default() };
    let rows = [
        (CapConfig::default(), FREE_RUNNING, REAL_TIME, None),
        (CapConfig::default(), DEFAULT, FREE_RUNNING, None),
        (CapConfig::default(), FREE_RUNNING, 3, Some("ts_format is not a format")),
        (CapConfig::default(), REAL_TIME, FREE_RUNNING, Some("a CQ in real time, and a ts_format that is not")),
        (CapConfig::default(), REAL_TIME, DEFAULT, Some("a CQ in real time, and a ts_format that is not")),
        (no_real_time, FREE_RUNNING, REAL_TIME, Some("ts_format real time without its capability")),
    ];
    for (caps, of_cq, of_qp, reason) in rows {
        let rdma = Rdma::on(Raw::up_with(caps, true));
        let (one, other) = (cq(&rdma, FREE_RUNNING), cq(&rdma, of_cq));
        for (send, recv) in [(&one, &other), (&other, &one)] {
            let answer = rdma.try_qp(QpWish { ts_format: of_qp as u8, ..QpWish::default() }, send, recv);
            let refused = answer.err().map(|(status, syndrome)| {
                assert_eq!(status, 3);
                syndrome_text(syndrome as u32).unwrap()
            });
            assert_eq!(refused, reason, "CQ {of_cq}, QP {of_qp}");
        }
    }
}
