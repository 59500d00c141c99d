//! Any interleaving of posting, polling, asking for events, waiting, taking, acknowledging, resizing, moderating, making and
//! destroying, over several CQs, channels and vectors, with events that come late, together, or without their interrupt: no
//! wake-up is lost, and each request completes once.

use std::cell::Cell;

use mlx5_model::EventPace;
use proptest::prelude::*;

use crate::plan::{compressed, full};
use crate::sleepers::{CHANNELS, CQS, How, QPS, VECTORS, Wish, World};
use crate::{cases, check};

#[derive(Clone, Debug)]
enum Op {
    Post { qp: usize, messages: usize, solicited: bool },
    Poll { cq: usize, how: How, most: usize },
    Arm { cq: usize, solicited_only: bool },
    Wait { channel: usize },
    WaitForCq { cq: usize },
    TryGet { channel: usize },
    Ack { cq: usize, events: u32 },
    Step { ns: u64 },
    Late { ns: u64, skip: u64 },
    Pace { vector: u32, pace: EventPace },
    MakeQp { qp: usize, cqs: [usize; 2] },
    DestroyQp { qp: usize },
    FailQp { qp: usize },
    Resize { cq: usize, more: usize },
    Moderate { cq: usize, count: u16, period: u16 },
    ReplaceCq { cq: usize, wish: Wish },
    ReplaceChannel { channel: usize },
    Quiesce,
}

#[derive(Clone, Debug)]
struct Case {
    /// All event queues share an interrupt.
    one_interrupt: bool,
    arms_see_waiting: bool,
    arms_need_new_numbers: bool,
    wishes: Vec<Wish>,
    pairs: Vec<[usize; 2]>,
    ops: Vec<Op>,
}

fn wish() -> impl Strategy<Value = Wish> {
    let plan = prop_oneof![3 => full().boxed(), 1 => compressed().boxed()];
    let channel = prop_oneof![8 => 0..CHANNELS, 1 => Just(CHANNELS)];
    (plan, channel, 0..VECTORS).prop_map(|(plan, channel, vector)| Wish { plan, channel, vector })
}

/// `lost`: of so many interrupts one is lost, in some cases.
fn pace(lost: u32) -> impl Strategy<Value = EventPace> {
    let span = || prop_oneof![1 => Just((0, 0)), 1 => (0..2000_u64, 0..200_000_u64).prop_map(|(a, b)| (a, a + b))];
    let lose = prop_oneof![2 => Just(0), 1 => Just(lost)];
    (span(), span(), lose).prop_map(|(event_ns, interrupt_ns, lose_one_in)| EventPace {
        event_ns,
        interrupt_ns,
        lose_one_in,
    })
}

fn op(lost: u32) -> impl Strategy<Value = Op> {
    let (cq, qp, channel) = (|| 0..CQS, || 0..QPS, || 0..CHANNELS);
    let how = prop_oneof![Just(How::Array), Just(How::Iterator)];
    prop_oneof![
        20 => (qp(), 1..6usize, any::<bool>()).prop_map(|(qp, messages, solicited)| Op::Post { qp, messages, solicited }),
        16 => (cq(), how, 1..9usize).prop_map(|(cq, how, most)| Op::Poll { cq, how, most }),
        20 => (cq(), prop::bool::weighted(0.3)).prop_map(|(cq, solicited_only)| Op::Arm { cq, solicited_only }),
        14 => channel().prop_map(|channel| Op::Wait { channel }),
        4 => cq().prop_map(|cq| Op::WaitForCq { cq }),
        6 => channel().prop_map(|channel| Op::TryGet { channel }),
        6 => (cq(), 0..4u32).prop_map(|(cq, events)| Op::Ack { cq, events }),
        3 => (1..200_000u64).prop_map(|ns| Op::Step { ns }),
        3 => (1..100_000u64, 0..6u64).prop_map(|(ns, skip)| Op::Late { ns, skip }),
        6 => (0..VECTORS, pace(lost)).prop_map(|(vector, pace)| Op::Pace { vector, pace }),
        2 => (qp(), [cq(), cq()]).prop_map(|(qp, cqs)| Op::MakeQp { qp, cqs }),
        1 => qp().prop_map(|qp| Op::DestroyQp { qp }),
        1 => qp().prop_map(|qp| Op::FailQp { qp }),
        4 => (cq(), prop_oneof![0..9usize, 0..70usize]).prop_map(|(cq, more)| Op::Resize { cq, more }),
        2 => (cq(), 0..9u16, 0..200u16).prop_map(|(cq, count, period)| Op::Moderate { cq, count, period }),
        3 => (cq(), wish()).prop_map(|(cq, wish)| Op::ReplaceCq { cq, wish }),
        1 => channel().prop_map(|channel| Op::ReplaceChannel { channel }),
        1 => Just(Op::Quiesce),
    ]
}

fn case(lost: u32, ops: usize) -> impl Strategy<Value = Case> {
    let pairs = prop::collection::vec([0..CQS, 0..CQS], 1..=QPS);
    let ops = prop::collection::vec(op(lost), 1..ops);
    (any::<bool>(), any::<bool>(), any::<bool>(), prop::collection::vec(wish(), CQS), pairs, ops).prop_map(
        |(one_interrupt, arms_see_waiting, arms_need_new_numbers, wishes, pairs, ops)| Case {
            one_interrupt,
            arms_see_waiting,
            arms_need_new_numbers,
            wishes,
            pairs,
            ops,
        },
    )
}

impl World {
    fn carry_out(&mut self, op: &Op) {
        match op {
            Op::Post { qp, messages, solicited } => self.post(*qp, *messages, *solicited),
            Op::Poll { cq, how, most } => _ = self.poll(*cq, *how, *most),
            Op::Arm { cq, solicited_only } => self.arm(*cq, *solicited_only),
            Op::Wait { channel } => self.wait(*channel),
            Op::WaitForCq { cq } => self.wait_for_cq(*cq),
            Op::TryGet { channel } => _ = self.try_get(*channel),
            Op::Ack { cq, events } => self.ack(*cq, *events),
            Op::Step { ns } => self.step(*ns),
            Op::Late { ns, skip } => self.late(*ns, *skip),
            Op::Pace { vector, pace } => self.pace(*vector, *pace),
            Op::MakeQp { qp, cqs } => self.make_qp(*qp, *cqs),
            Op::DestroyQp { qp } => self.destroy_qp(*qp),
            Op::FailQp { qp } => self.fail_qp(*qp),
            Op::Resize { cq, more } => self.resize(*cq, *more),
            Op::Moderate { cq, count, period } => self.moderate(*cq, *count, *period),
            Op::ReplaceCq { cq, wish } => self.replace_cq(*cq, wish),
            Op::ReplaceChannel { channel } => self.replace_channel(*channel),
            Op::Quiesce => self.quiesce(),
        }
    }

    fn run(&mut self, case: &Case) {
        self.begin(&case.wishes, case.arms_see_waiting, case.arms_need_new_numbers);
        case.pairs.iter().enumerate().for_each(|(qp, cqs)| self.make_qp(qp, *cqs));
        case.ops.iter().for_each(|op| self.carry_out(op));
        self.quiesce();
        self.end();
    }
}

/// Runs a case on one of the thread's devices; one on which a case failed is not used again.
fn run(case: &Case, threaded: bool) {
    thread_local!(static WORLDS: [Cell<Option<World>>; 2] = const { [Cell::new(None), Cell::new(None)] });
    let place = usize::from(case.one_interrupt);
    let interrupts = if case.one_interrupt { 1 } else { 1 + VECTORS };
    let mut world = WORLDS.with(|worlds| worlds[place].take()).unwrap_or_else(|| World::new(interrupts, threaded));
    world.run(case);
    WORLDS.with(|worlds| worlds[place].set(Some(world)));
}

#[test]
fn no_wake_up_is_lost_and_each_request_completes_once() {
    check(cases(), case(2, 48), |case| run(case, false));
}

#[test]
fn no_wake_up_is_lost_by_a_device_on_a_thread_of_its_own() {
    check(cases(), case(0, 24), |case| run(case, true));
}
