//! Events at any pace, and by hand.

use mlx5_hw::platform::Platform;
use mlx5_model::{EventPace, Fault};

use crate::completions::{Wire, wire};
use crate::raw::{get, put};

/// No event has come.
const NONE: [u32; 0] = [];

/// An event as (type, subtype, number of the object or, of a port event, byte 8).
fn told(eqe: &[u8]) -> (u8, u8, u64) {
    let number = match eqe[1] {
        0x04 => get(eqe, 0x21 * 8, 24),
        0x09 => get(eqe, 0x28 * 8, 8),
        _ => get(eqe, 0x39 * 8, 24),
    };
    (eqe[1], eqe[3], number)
}

impl Wire {
    fn completion_pace(&self, pace: EventPace) {
        assert!(self.rdma.raw.model.set_event_pace(self.rdma.comp_eq.eqn, pace));
    }

    fn step(&self, ns: u64) {
        self.rdma.raw.model.step(ns);
    }

    /// The numbers of the completion queues whose events have come.
    fn completions(&mut self) -> Vec<u32> {
        self.events().iter().map(|(kind, cqn)| (*kind == 0).then_some(*cqn as u32).unwrap()).collect()
    }

    fn async_events(&mut self) -> Vec<(u8, u8, u64)> {
        std::iter::from_fn(|| self.rdma.async_eq.take()).map(|eqe| told(&eqe)).collect()
    }

    fn arm_eq(&self) {
        let eq = &self.rdma.comp_eq;
        self.rdma.raw.write32(self.rdma.uar as usize * 4096 + 0x40, eq.eqn << 24 | eq.ci);
    }

    fn interrupts(&self) -> u64 {
        self.rdma.raw.model.interrupts_of(2)
    }
}

#[test]
fn an_arm_need_not_see_what_waits_but_sees_what_comes_later() {
    for (flags, solicited) in [(8, false), (0xa, true)] {
        let mut w = wire(4, false);
        w.rdma.raw.model.set_arm_sees_waiting(false);
        w.message(flags, b"x");
        w.rdma.arm(&w.recv, 0, solicited);
        assert_eq!(w.completions(), NONE, "it was there before");
        w.message(flags, b"x");
        assert_eq!(w.completions(), [w.recv.cqn], "the later one, with the older still there");
        w.rdma.raw.model.set_arm_sees_waiting(true);
        w.rdma.arm(&w.recv, 1, solicited);
        assert_eq!(w.completions(), [w.recv.cqn]);
        w.rdma.assert_clean();
    }
}

#[test]
fn an_arm_with_the_number_of_one_that_was_answered_may_be_taken_for_that_one() {
    let mut w = wire(4, false);
    w.rdma.raw.model.set_arm_needs_new_number(true);
    for number in [0, 1, 2, 3, 0] {
        w.rdma.arm(&w.recv, number, true);
        w.rdma.arm(&w.recv, number, false);
        w.message(8, b"x");
        assert_eq!(w.completions(), [w.recv.cqn], "{number}: nothing had answered it");
        w.rdma.arm(&w.recv, number, false);
        w.message(8, b"x");
        assert_eq!(w.completions(), NONE, "{number}: answered");
        assert!(w.rdma.take(&mut w.recv).is_some() && w.rdma.take(&mut w.recv).is_some());
    }
    w.rdma.raw.model.set_arm_needs_new_number(false);
    w.rdma.arm(&w.recv, 0, false);
    w.message(8, b"x");
    assert_eq!(w.completions(), [w.recv.cqn], "the number is not looked at");
    w.rdma.assert_clean();
}

#[test]
fn on_its_own_thread_an_arm_that_does_not_see_what_waits_has_arrived_when_it_is_made() {
    for round in 0..200 {
        let mut w = wire(4, false);
        w.rdma.raw.model.set_arm_sees_waiting(false);
        let _thread = w.rdma.raw.model.spawn().unwrap();
        w.rdma.arm(&w.send, 0, false);
        // By hand: the completion passes all doorbells that are on their way.
        assert!(w.rdma.raw.model.inject_cqe(w.send.cqn, [0; 64]));
        assert_eq!(w.completions(), [w.send.cqn], "round {round}");
        w.rdma.assert_clean();
    }
}

#[test]
fn late_events_of_a_queue_are_one_and_those_of_others_their_own() {
    let mut w = wire(4, false);
    w.completion_pace(EventPace { event_ns: (5000, 5000), ..EventPace::default() });
    w.rdma.arm(&w.send, 0, false);
    w.message(8, b"x");
    assert_eq!(w.rdma.take(&mut w.send).map(|cqe| cqe[63] >> 4), Some(0), "the completion itself is not late");
    w.step(3000);
    // Armed once more, and raised once more, before the first has come.
    w.rdma.arm(&w.send, 0, false);
    w.rdma.arm(&w.recv, 0, false);
    w.message(8, b"x");
    w.step(1999);
    assert_eq!(w.completions(), NONE);
    w.step(1);
    assert_eq!(w.completions(), [w.send.cqn], "one for both, at the time of the first");
    w.step(2999);
    assert_eq!(w.completions(), NONE);
    w.step(1);
    assert_eq!(w.completions(), [w.recv.cqn]);
    w.step(1_000_000);
    assert_eq!(w.completions(), NONE);
    w.rdma.assert_clean();
}

#[test]
fn the_seed_draws_when_events_come() {
    let delays = || {
        let mut w = wire(4, false);
        w.completion_pace(EventPace { event_ns: (100, 199), ..EventPace::default() });
        let delay = |round: u32| {
            w.rdma.arm(&w.send, round & 3, false);
            w.message(8, b"x");
            w.rdma.poll(&mut w.send);
            w.rdma.poll(&mut w.recv);
            let turns = (0_u64..1000).find(|_| {
                !w.completions().is_empty() || {
                    w.step(1);
                    false
                }
            });
            turns.expect("an event")
        };
        (0..50).map(delay).collect::<Vec<u64>>()
    };
    let first = delays();
    assert!(first.iter().all(|ns| (100..200).contains(ns)), "{first:?}");
    assert!(first.iter().collect::<std::collections::BTreeSet<_>>().len() > 20, "{first:?}");
    assert_eq!(first, delays());
}

#[test]
fn no_event_of_a_completion_queue_comes_behind_its_end() {
    let mut w = wire(4, false);
    w.completion_pace(EventPace { event_ns: (5000, 5000), ..EventPace::default() });
    let lone = w.rdma.cq(w.send.wish);
    w.rdma.arm(&lone, 0, false);
    assert!(w.rdma.raw.model.inject_cqe(lone.cqn, [0; 64]));
    assert_eq!(w.completions(), NONE);
    let mut body = [0; 8];
    put(&mut body, 8, 24, lone.cqn.into());
    w.rdma.raw.command(0x401, 0, &body, 16); // DESTROY_CQ
    assert_eq!(w.completions(), [lone.cqn], "it came before the command completed");
    w.step(1_000_000);
    assert_eq!(w.completions(), NONE, "and not once more");
    w.rdma.assert_clean();
}

#[test]
fn a_late_interrupt_is_one_for_all_that_came_meanwhile() {
    let mut w = wire(4, false);
    w.completion_pace(EventPace { interrupt_ns: (5000, 5000), ..EventPace::default() });
    w.arm_eq();
    w.rdma.arm(&w.send, 0, false);
    w.rdma.arm(&w.recv, 0, false);
    w.message(8, b"x");
    assert_eq!(w.completions().len(), 2, "the entries are there at once");
    w.step(4000);
    w.arm_eq();
    w.rdma.arm(&w.send, 1, false);
    w.step(999);
    assert_eq!((w.interrupts(), w.completions().len()), (0, 1));
    w.step(1);
    assert_eq!(w.interrupts(), 1, "one for the third event too");
    w.arm_eq();
    w.rdma.arm(&w.send, 2, false);
    w.step(5000);
    assert_eq!(w.interrupts(), 2);
    w.rdma.assert_clean();
}

#[test]
fn a_lost_interrupt_leaves_the_queue_disarmed_with_its_entry() {
    let mut w = wire(4, false);
    w.completion_pace(EventPace { lose_one_in: 1, ..EventPace::default() });
    w.arm_eq();
    w.rdma.arm(&w.send, 0, false);
    w.message(8, b"x");
    assert_eq!((w.interrupts(), w.completions().len()), (0, 1));
    w.completion_pace(EventPace::default());
    w.rdma.arm(&w.recv, 0, false);
    assert_eq!((w.interrupts(), w.completions().len()), (0, 1), "not armed");
    w.arm_eq();
    w.rdma.arm(&w.send, 1, false);
    assert_eq!((w.interrupts(), w.completions().len()), (1, 1));
    w.rdma.assert_clean();
}

#[test]
fn some_interrupts_are_lost_and_some_are_not() {
    let mut w = wire(4, false);
    w.completion_pace(EventPace { lose_one_in: 3, ..EventPace::default() });
    w.message(8, b"x");
    for round in 0..300 {
        w.arm_eq();
        w.rdma.arm(&w.send, round & 3, false);
        assert_eq!(w.completions().len(), 1);
        w.rdma.drain_events();
    }
    assert!((150..250).contains(&w.interrupts()), "{}", w.interrupts());
    w.rdma.assert_clean();
}

#[test]
fn an_interrupt_of_an_event_queue_that_is_gone_does_not_come() {
    let mut w = wire(4, false);
    let model = w.rdma.raw.model.clone();
    let new = |w: &Wire| {
        let mem = w.rdma.alloc(4096);
        (0..16).for_each(|i| crate::raw::store(&mem, 64 * i + 63, &[1]));
        let mut body = crate::rdma::pages_body(264, &mem);
        put(&mut body[8..72], 99, 5, 4);
        put(&mut body[8..72], 104, 24, w.rdma.uar.into());
        put(&mut body[8..72], 180, 12, 7);
        get(&w.rdma.raw.command(0x301, 0, &body, 16), 88, 8) as u32
    };
    let eqn = new(&w);
    let info = model.event_queues().into_iter().find(|eq| eq.eqn == eqn).unwrap();
    assert_eq!((info.vector, info.event_mask, model.event_queues().len()), (7, 0, 3));
    model.set_event_pace(eqn, EventPace { interrupt_ns: (5000, 5000), ..EventPace::default() });
    w.rdma.raw.write32(w.rdma.uar as usize * 4096 + 0x40, eqn << 24);
    model.inject(Fault::StrayCompletionEvent { eqn, cqn: 1 });
    let mut body = [0; 8];
    put(&mut body, 24, 8, eqn.into());
    w.rdma.raw.command(0x302, 0, &body, 16); // DESTROY_EQ
    assert!(!model.set_event_pace(eqn, EventPace::default()));
    assert_eq!(new(&w), eqn, "the number is used again");
    w.step(1_000_000);
    assert_eq!(model.interrupts_of(7), 0);
    assert_eq!(w.completions(), NONE);
    w.rdma.assert_clean();
}

#[test]
fn the_link_goes_down_and_up_with_an_event_and_stays_so_over_a_reset() {
    let mut w = wire(4, false);
    let model = w.rdma.raw.model.clone();
    let state = |w: &Wire| get(&w.rdma.raw.command(0x750, 0, &[0; 8], 16), 0xf * 8, 8);
    assert_eq!(state(&w), 0x11, "admin up, up");
    model.inject(Fault::Link { up: false });
    assert_eq!((w.async_events(), state(&w)), (vec![(9, 1, 0x10)], 0x10));
    model.inject(Fault::Link { up: true });
    assert_eq!((w.async_events(), state(&w)), (vec![(9, 4, 0x10)], 0x11));
    model.inject(Fault::Link { up: false });
    w.rdma.assert_clean();
    model.reset().unwrap();
    model.inject(Fault::Link { up: false });
    assert_eq!(w.async_events(), [(9, 1, 0x10)], "nobody hears it after the reset");
}

#[test]
fn a_completion_queue_breaks_by_hand() {
    for (syndrome, status) in [(1, 9), (2, 10)] {
        let mut w = wire(4, false);
        let model = w.rdma.raw.model.clone();
        model.inject(Fault::CqError { cqn: w.recv.cqn, syndrome });
        let event = w.rdma.async_eq.take().unwrap();
        assert_eq!((told(&event), event[0x2b]), ((4, 0, w.recv.cqn.into()), syndrome));
        let mut body = [0; 8];
        put(&mut body, 8, 24, w.recv.cqn.into());
        assert_eq!(get(&w.rdma.raw.command(0x402, 0, &body, 272), 128, 4), status);
        w.message(8, b"x");
        assert!(w.rdma.take(&mut w.recv).is_none(), "nothing is written any more");
        model.inject(Fault::CqError { cqn: 0x12345, syndrome });
        assert!(w.async_events().contains(&(4, 0, 0x12345)), "an event of nothing");
    }
}

#[test]
fn events_of_queue_pairs_and_of_shared_receive_queues_by_hand() {
    let mut w = wire(4, false);
    let model = w.rdma.raw.model.clone();
    let event = |kind, number| model.inject(Fault::QueueEvent { kind, number });
    for kind in [1, 2, 3, 7, 0x12, 0x13, 0x14] {
        event(kind, w.a.qpn);
        assert_eq!(w.async_events(), [(kind, 0, w.a.qpn.into())]);
    }
    assert_eq!(w.rdma.state(&w.a), 3, "still RTS");
    for kind in [5, 0x10, 0x11] {
        event(kind, 0xabcdef);
        assert_eq!(w.async_events(), [(kind, 0, 0xabcdef)], "no such queue pair");
        let mut w = wire(4, false);
        w.rdma.raw.model.inject(Fault::QueueEvent { kind, number: w.a.qpn });
        assert_eq!((w.async_events(), w.rdma.state(&w.a)), (vec![(kind, 0, w.a.qpn.into())], 6));
    }
    w.rdma.assert_clean();
}

#[test]
fn an_event_of_any_type_and_bytes_goes_where_it_is_sent() {
    let mut w = wire(4, false);
    let model = w.rdma.raw.model.clone();
    let data: [u8; 28] = std::array::from_fn(|i| i as u8 ^ 0xa5);
    let event = |eqn, kind| model.inject(Fault::Event { eqn, kind, sub: 7, data });
    for kind in [8, 0x2a, 63, 64, 200, 255] {
        event(None, kind);
    }
    assert_eq!(w.async_events(), [], "nobody subscribed");
    event(Some(99), 9);
    assert_eq!(w.async_events(), [], "no such queue");
    for kind in 0..=255 {
        event(Some(w.rdma.async_eq.eqn), kind);
        let eqe = w.rdma.async_eq.take().unwrap();
        assert_eq!((eqe[1], eqe[3], &eqe[0x20..0x3c]), (kind, 7, &data[..]));
        w.rdma.drain_async_events();
    }
    w.rdma.assert_clean();
}
