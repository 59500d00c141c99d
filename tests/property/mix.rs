//! Any interleaving of posting, polling, making, resetting and destroying, with faults: each request completes once, in order
//! per queue, with its name, status, length and data.

use std::cell::Cell;

use mlx5_model::DataFault;
use proptest::prelude::*;

use crate::plan::{Plan, compressed, full};
use crate::queues::Form;
use crate::world::{How, Wish, World};
use crate::{cases, check};

/// One step of a case. Numbers of connections and CQs are taken modulo what there is.
#[derive(Clone, Debug)]
enum Op {
    Send { pair: usize, side: usize, wishes: Vec<Wish> },
    Recv { pair: usize, side: usize },
    Poll { cq: usize, how: How, most: usize },
    Step { ns: u64 },
    Late { ns: u64, skip: u64 },
    FailSend { skip: u64 },
    Sessions { limit: u32 },
    Quiesce,
    Make { pair: usize, cqs: [[usize; 2]; 2], form: Form, refused: bool },
    Fail { pair: usize },
    Reset { pair: usize, refused: bool },
    Destroy { pair: usize, refused: Option<u16> },
    Replace { cq: usize, refused: bool, plan: Plan },
}

#[derive(Clone, Debug)]
struct Case {
    plans: Vec<Plan>,
    first: Op,
    ops: Vec<Op>,
    /// At the end the receives that are left are flushed, not dropped.
    flush: bool,
}

const PAIRS: usize = 3;

fn wish() -> impl Strategy<Value = Wish> {
    let length = prop_oneof![0usize..=40, 0usize..=200];
    (0u8..7, length, any::<bool>(), any::<bool>(), any::<bool>())
        .prop_map(|(kind, length, signalled, inline, eager)| Wish { kind, length, signalled, inline, eager })
}

/// Some requests, or one many times: such are compressed.
fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let same = (wish(), 1..9usize).prop_map(|(wish, n)| vec![wish; n]);
    prop_oneof![prop::collection::vec(wish(), 1..4), same]
}

fn make() -> impl Strategy<Value = Op> {
    let cqs = [[0..6usize, 0..6], [0..6, 0..6]];
    let form = (2u32..=12, prop::bool::weighted(0.3), any::<bool>()).prop_map(|(depth, sig_all, data_in_cqe)| Form {
        depth,
        sig_all,
        data_in_cqe,
    });
    (0..PAIRS, cqs, form, prop::bool::weighted(0.1)).prop_map(|(pair, cqs, form, refused)| Op::Make {
        pair,
        cqs,
        form,
        refused,
    })
}

fn op(plan: impl Strategy<Value = Plan> + 'static) -> impl Strategy<Value = Op> {
    let how = prop_oneof![4 => Just(How::Array), 4 => Just(How::Iterator), 1 => Just(How::Forgotten)];
    let refused = || prop::bool::weighted(0.1);
    let commands = prop_oneof![8 => Just(None), 1 => Just(Some(0x50a)), 1 => Just(Some(0x501))];
    prop_oneof![
        16 => (0..PAIRS, 0..2usize, wishes())
            .prop_map(|(pair, side, wishes)| Op::Send { pair, side, wishes }),
        6 => (0..PAIRS, 0..2usize).prop_map(|(pair, side)| Op::Recv { pair, side }),
        12 => (0..6usize, how, 1..9usize).prop_map(|(cq, how, most)| Op::Poll { cq, how, most }),
        2 => (1..200_000u64).prop_map(|ns| Op::Step { ns }),
        2 => (1..50_000u64, 0..6u64).prop_map(|(ns, skip)| Op::Late { ns, skip }),
        1 => (0..8u64).prop_map(|skip| Op::FailSend { skip }),
        1 => prop_oneof![Just(1u32), 2..20u32, Just(u32::MAX)].prop_map(|limit| Op::Sessions { limit }),
        1 => Just(Op::Quiesce),
        2 => make(),
        1 => (0..PAIRS).prop_map(|pair| Op::Fail { pair }),
        2 => (0..PAIRS, refused()).prop_map(|(pair, refused)| Op::Reset { pair, refused }),
        1 => (0..PAIRS, commands).prop_map(|(pair, refused)| Op::Destroy { pair, refused }),
        1 => (0..6usize, refused(), plan).prop_map(|(cq, refused, plan)| Op::Replace { cq, refused, plan }),
    ]
}

fn case<P: Strategy<Value = Plan> + 'static>(plan: fn() -> P) -> impl Strategy<Value = Case> {
    (prop::collection::vec(plan(), 1..4), make(), prop::collection::vec(op(plan()), 1..40), any::<bool>())
        .prop_map(|(plans, first, ops, flush)| Case { plans, first, ops, flush })
}

impl World {
    fn carry_out(&mut self, op: &Op) {
        let queues = self.queues.len();
        let here = |world: &World, pair: usize| world.pairs[pair].is_some();
        match op {
            Op::Send { pair, side, wishes } if here(self, *pair) => {
                self.post_sends(*pair, *side, wishes);
            }
            Op::Recv { pair, side } if here(self, *pair) => {
                self.post_recv(*pair, *side);
            }
            Op::Poll { cq, how, most } => {
                self.poll(cq % queues, *how, *most);
            }
            Op::Step { ns } => self.port.model.step(*ns),
            Op::Late { ns, skip } => self.port.model.inject_data(DataFault::LateCqe { ns: *ns }, *skip),
            Op::FailSend { skip } => {
                self.port.model.inject_data(DataFault::FailSend { syndrome: 0x14, vendor: 0x5a }, *skip);
            }
            Op::Sessions { limit } => self.limit_sessions(*limit),
            Op::Quiesce => self.quiesce(),
            Op::Make { pair, cqs, form, refused } => {
                let cqs = cqs.map(|cqs| cqs.map(|cq| cq % queues));
                self.make_pair(*pair, cqs, *form, *refused);
            }
            Op::Fail { pair } if here(self, *pair) => self.fail_pair(*pair),
            Op::Reset { pair, refused } => self.reset_pair(*pair, *refused),
            Op::Destroy { pair, refused } if here(self, *pair) => self.destroy_pair(*pair, *refused),
            Op::Replace { cq, refused, plan } => self.replace_cq(cq % queues, *refused, |dev| plan.make(dev)),
            Op::Send { .. } | Op::Recv { .. } | Op::Fail { .. } | Op::Destroy { .. } => {}
        }
    }

    fn run(&mut self, case: &Case) {
        self.pairs.resize_with(PAIRS, || None);
        for plan in &case.plans {
            self.add_cq(|dev| plan.make(dev));
        }
        self.carry_out(&case.first);
        case.ops.iter().for_each(|op| self.carry_out(op));
        self.quiesce();
        if case.flush {
            (0..PAIRS).for_each(|pair| self.carry_out(&Op::Fail { pair }));
            self.quiesce();
        }
        self.end_case();
    }
}

/// Runs a case on the thread's device; one on which a case failed is not used again.
fn run(case: &Case, threaded: bool) {
    thread_local!(static WORLD: Cell<Option<World>> = const { Cell::new(None) });
    let mut world = WORLD.take().unwrap_or_else(|| World::new(threaded));
    world.run(case);
    WORLD.set(Some(world));
}

#[test]
fn every_request_completes_once_and_in_order() {
    check(cases(), case(full), |case| run(case, false));
}

#[test]
fn every_request_completes_once_and_in_order_where_entries_are_compressed() {
    check(cases(), case(compressed), |case| run(case, false));
}

#[test]
fn a_device_on_a_thread_of_its_own_gives_the_same() {
    check((cases() / 10).min(10_000), prop_oneof![case(full), case(compressed)], |case| run(case, true));
}
