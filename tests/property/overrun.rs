//! CQs that ignore overrun, lapped by any number of entries: completions are lost or late, but each that comes is of a request
//! that its queue pair has posted, polling ends, and when the device has come around to the poller everything is as before.

use std::cell::Cell;

use mlx5::dv::CqeCompLayout;
use mlx5::{Cq, Device, Pd, PollError, Qp, QpCap, SendFlags, SendWr, Wc, WrOpcode};
use proptest::prelude::*;

use crate::plan::{Plan, compressed, full};
use crate::support::{Port, connect, create_qp, open};
use crate::{cases, check};

#[derive(Clone, Debug)]
struct Case {
    plan: Plan,
    /// Requests, then a poll with arrays of so many; and whether there is a new queue pair before.
    steps: Vec<(usize, usize, bool)>,
    sessions: u32,
}

fn case() -> impl Strategy<Value = Case> {
    let plan =
        prop_oneof![full(), compressed()].prop_map(|plan| Plan { ignore_overrun: true, cqe: plan.cqe % 8 + 1, ..plan });
    let step = (0..50usize, 1..40usize, prop::bool::weighted(0.1));
    let sessions = prop_oneof![Just(1u32), 2..16u32];
    (plan, prop::collection::vec(step, 1..12), sessions).prop_map(|(plan, steps, sessions)| Case {
        plan,
        steps,
        sessions,
    })
}

/// A queue pair that writes nothing to itself, and the names of its requests: from `first` to before `next`.
struct Writer {
    qp: Qp,
    first: u64,
    next: u64,
}

const DEPTH: u32 = 1024;

impl Writer {
    fn new(dev: &Device, pd: &Pd, cq: &Cq, first: u64) -> Self {
        let cap = QpCap { max_send_wr: DEPTH, max_recv_wr: 0, max_send_sge: 1, max_recv_sge: 0, max_inline_data: 0 };
        let mut qp = create_qp(pd, cq, cq, cap);
        let own = qp.qp_num();
        connect(dev, &mut qp, own);
        Self { qp, first, next: first }
    }

    /// Posts `n` requests, as far as there is room.
    fn post(&mut self, n: usize) {
        let wr = |wr_id| SendWr {
            wr_id,
            opcode: WrOpcode::RdmaWrite { remote: Default::default() },
            send_flags: SendFlags::SIGNALED,
            ..SendWr::default()
        };
        let wrs: Vec<_> = (self.next..self.next + n as u64).map(wr).collect();
        self.next += match self.qp.post_send(&wrs) {
            Ok(()) => n,
            Err(full) => {
                assert_eq!(full.errno(), 12);
                full.index
            }
        } as u64;
    }

    /// Polls until nothing comes; what came.
    fn drain(&self, cq: &mut Cq, batch: usize, most: usize) -> Vec<u64> {
        let (mut wcs, mut got) = (vec![Wc::default(); batch], Vec::new());
        let mut bad = 0;
        loop {
            match cq.poll_cq(&mut wcs) {
                Ok(0) => return got,
                Ok(n) => got.extend(wcs[..n].iter().map(|wc| wc.wr_id)),
                Err(error) => {
                    assert_ne!(error, PollError::Empty);
                    bad += 1;
                }
            }
            assert!(got.len() + bad <= most, "more than the ring holds: {got:?}");
            assert!(got.iter().all(|name| (self.first..self.next).contains(name)), "{got:?}");
        }
    }
}

fn run(port: &Port, dev: &Device, pd: &Pd, case: &Case) {
    port.model.set_session_limit(case.sessions);
    let mut cq = case.plan.make(dev).unwrap();
    let slots = cq.cqe() as usize + 1;
    // A block of the enhanced layout stands for up to seven completions.
    let most = if case.plan.compressed.is_some() { 7 * slots } else { 2 * slots };
    let mut writer = Writer::new(dev, pd, &cq, 1);
    for (n, batch, renew) in &case.steps {
        if *renew || writer.next - writer.first > 800 {
            writer.qp.destroy().map_err(|e| e.error).unwrap();
            writer = Writer::new(dev, pd, &cq, writer.next);
        }
        writer.post(*n);
        port.model.step(1000);
        writer.drain(&mut cq, *batch, most);
    }
    // An entry of the enhanced layout says which of 256 laps it is of, others which of two.
    let enhanced = matches!(case.plan.compressed, Some((_, CqeCompLayout::Enhanced)));
    let laps = if enhanced { 256 } else { 4 };
    let mut last = Vec::new();
    for _ in 0..laps * slots + 2 * slots {
        if writer.next - writer.first > 800 && last.is_empty() {
            writer.qp.destroy().map_err(|e| e.error).unwrap();
            writer = Writer::new(dev, pd, &cq, writer.next);
        }
        writer.post(1);
        port.model.step(1000);
        last = writer.drain(&mut cq, 8, most);
    }
    assert_eq!(last, [writer.next - 1], "the poller is in step again");
    writer.qp.destroy().map_err(|e| e.error).unwrap();
    cq.destroy().map_err(|e| e.error).unwrap();
    assert_eq!(port.model.violations(), [], "rules broken");
}

#[test]
fn a_poller_that_was_lapped_gets_only_what_was_posted_and_falls_in_step_again() {
    thread_local!(static DEVICE: Cell<Option<(Port, Device, Pd)>> = const { Cell::new(None) });
    check((cases() / 50).max(64), case(), |case| {
        let (port, dev, pd) = DEVICE.take().unwrap_or_else(|| {
            let (port, dev) = open();
            let pd = dev.alloc_pd().unwrap();
            (port, dev, pd)
        });
        run(&port, &dev, &pd, case);
        DEVICE.set(Some((port, dev, pd)));
    });
}
