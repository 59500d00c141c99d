//! Moderated completion events: CREATE_CQ's and MODIFY_CQ's (op_mod 0) cq_period, cq_max_count and cq_period_mode.

use mlx5_hw::platform::Platform;
use mlx5_model::{CapConfig, ViolationKind, syndrome_text};

use crate::raw::{Patience, Raw, get, put, store32};
use crate::rdma::{Cq, CqWish, Rdma};

const MODIFY_CQ: u16 = 0x403;
const BAD_PARAM: u8 = 0x03;
/// `modify_field_select`.
const PERIOD: u64 = 1;
const COUNT: u64 = 2;
const OVERRUN: u64 = 4;
const MODE: u64 = 0x10;
const WISH: CqWish = CqWish { log_size: 6, entry: 64, ignore_overrun: false };

/// Fields of the context: first bit, bits, value.
type Field = (usize, usize, u64);

fn period(us: u64) -> Field {
    (132, 12, us)
}

fn count(entries: u64) -> Field {
    (144, 16, entries)
}

const FROM_ENTRIES: Field = (15, 2, 1);
const SOLICITED_BREAKS: Field = (13, 1, 1);

fn body(cq: &Cq, select: u64, fields: &[Field]) -> Vec<u8> {
    let mut body = vec![0; 264];
    put(&mut body, 8, 24, cq.cqn.into());
    put(&mut body, 32, 32, select);
    for (first, width, value) in fields {
        put(&mut body[8..72], *first, *width, *value);
    }
    body
}

fn modify(rdma: &Rdma, cq: &Cq, select: u64, fields: &[Field]) {
    rdma.raw.command(MODIFY_CQ, 0, &body(cq, select, fields), 16);
}

/// A queue whose context has these fields from its creation on.
fn moderated(rdma: &Rdma, fields: &[Field]) -> Cq {
    rdma.cq_as(WISH, |cqc| fields.iter().for_each(|(first, width, value)| put(cqc, *first, *width, *value)))
}

fn write_as(rdma: &Rdma, cq: &Cq, op_own: u8) {
    let mut entry = [0; 64];
    entry[63] = op_own;
    assert!(rdma.raw.model.inject_cqe(cq.cqn, entry));
}

fn write(rdma: &Rdma, cq: &Cq) {
    write_as(rdma, cq, 0x20);
}

/// Takes the event and consumes the first `index` entries.
fn taken(rdma: &mut Rdma, cq: &mut Cq, index: u32) -> usize {
    cq.ci = index;
    store32(&cq.record, 0, index);
    rdma.drain_events()
}

/// Nothing happened for a long time before.
fn bench(fields: &[Field]) -> (Rdma, Cq) {
    let rdma = Rdma::up();
    let cq = moderated(&rdma, fields);
    (rdma, cq)
}

#[test]
fn the_event_comes_with_the_entry_that_makes_the_count_full() {
    let (mut rdma, mut cq) = bench(&[period(4095), count(4), FROM_ENTRIES]);
    for round in 0..3 {
        rdma.arm(&cq, round, false);
        for n in 0..4 {
            assert_eq!(rdma.drain_events(), 0, "round {round}, {n} entries");
            write(&rdma, &cq);
        }
        assert_eq!(taken(&mut rdma, &mut cq, 4 * (round + 1)), 1);
    }
    rdma.assert_clean();
}

#[test]
fn the_event_comes_when_the_period_since_the_last_entry_is_over() {
    let (mut rdma, cq) = bench(&[period(10), count(100), FROM_ENTRIES]);
    rdma.arm(&cq, 0, false);
    for _ in 0..5 {
        write(&rdma, &cq);
        rdma.raw.model.step(9_000);
        assert_eq!(rdma.drain_events(), 0, "each entry starts it anew");
    }
    rdma.raw.model.step(999);
    assert_eq!(rdma.drain_events(), 0);
    rdma.raw.model.step(1);
    assert_eq!(rdma.drain_events(), 1);
    rdma.raw.model.step(1_000_000);
    assert_eq!(rdma.drain_events(), 0, "one event for one arm");
    rdma.assert_clean();
}

#[test]
fn the_event_comes_when_the_period_since_the_last_event_is_over() {
    let (mut rdma, mut cq) = bench(&[period(10), count(100)]);
    rdma.raw.model.step(10_000);
    rdma.arm(&cq, 0, false);
    write(&rdma, &cq);
    assert_eq!(taken(&mut rdma, &mut cq, 1), 1, "the last event is long ago");
    rdma.arm(&cq, 1, false);
    for at in 0..3 {
        write(&rdma, &cq);
        assert_eq!(rdma.drain_events(), 0, "{at}");
        rdma.raw.model.step(3_000);
    }
    rdma.raw.model.step(999);
    assert_eq!(rdma.drain_events(), 0);
    rdma.raw.model.step(1);
    assert_eq!(rdma.drain_events(), 1);
    rdma.assert_clean();
}

#[test]
fn a_period_or_a_count_of_zero_moderates_nothing() {
    for fields in [[period(0), count(9)], [period(9), count(0)], [period(0), count(0)]] {
        let (mut rdma, cq) = bench(&fields);
        rdma.arm(&cq, 0, false);
        write(&rdma, &cq);
        assert_eq!(rdma.drain_events(), 1, "{fields:?}");
    }
}

#[test]
fn a_solicited_entry_breaks_the_moderation_of_a_queue_that_says_so_only() {
    let held = [period(100), count(100), FROM_ENTRIES];
    for (fields, at_once) in [(&held[..], 0), (&[held[0], held[1], held[2], SOLICITED_BREAKS][..], 1)] {
        for (op_own, breaks) in [(0x20, false), (0x22, true), (0xe0, true)] {
            let (mut rdma, cq) = bench(fields);
            rdma.arm(&cq, 0, false);
            write_as(&rdma, &cq, op_own);
            let now = if breaks { at_once } else { 0 };
            assert_eq!(rdma.drain_events(), now, "{op_own:#x}, {at_once}");
            rdma.raw.model.step(100_000);
            assert_eq!(rdma.drain_events(), 1 - now);
        }
    }
}

#[test]
fn entries_that_are_there_already_are_moderated_too() {
    let (mut rdma, mut cq) = bench(&[period(10), count(3), FROM_ENTRIES]);
    write(&rdma, &cq);
    rdma.arm(&cq, 0, false);
    assert_eq!(rdma.drain_events(), 0);
    rdma.raw.model.step(10_000);
    assert_eq!(taken(&mut rdma, &mut cq, 0), 1);
    (0..3).for_each(|_| write(&rdma, &cq));
    rdma.arm(&cq, 1, false);
    assert_eq!(taken(&mut rdma, &mut cq, 4), 1, "three since the last event");
    rdma.arm(&cq, 2, true);
    write(&rdma, &cq);
    rdma.raw.model.step(10_000);
    assert_eq!(rdma.drain_events(), 0, "solicited only");
    rdma.assert_clean();
}

#[test]
fn arming_for_solicited_entries_takes_back_what_was_owed_for_any() {
    let (mut rdma, cq) = bench(&[period(10), count(3), FROM_ENTRIES]);
    rdma.arm(&cq, 0, false);
    write(&rdma, &cq);
    rdma.arm(&cq, 0, true);
    rdma.raw.model.step(100_000);
    assert_eq!(rdma.drain_events(), 0);
    write_as(&rdma, &cq, 0x22);
    rdma.raw.model.step(10_000);
    assert_eq!(rdma.drain_events(), 1);
}

#[test]
fn another_moderation_holds_at_once_also_for_what_is_held_back() {
    let (mut rdma, mut cq) = bench(&[period(4000), count(50), FROM_ENTRIES]);
    rdma.arm(&cq, 0, false);
    (0..5).for_each(|_| write(&rdma, &cq));
    modify(&rdma, &cq, COUNT, &[count(9)]);
    assert_eq!(rdma.drain_events(), 0, "five of nine");
    modify(&rdma, &cq, PERIOD, &[period(20)]);
    rdma.raw.model.step(20_000);
    assert_eq!(taken(&mut rdma, &mut cq, 5), 1, "the shorter period");
    rdma.arm(&cq, 1, false);
    write(&rdma, &cq);
    modify(&rdma, &cq, PERIOD | COUNT, &[]);
    assert_eq!(rdma.drain_events(), 1, "no moderation any more");
    rdma.assert_clean();
}

#[test]
fn the_query_tells_what_was_selected_and_no_other_field_changes() {
    let (rdma, cq) = bench(&[period(7), count(8)]);
    let context = |rdma: &Rdma| {
        let mut body = [0; 8];
        put(&mut body, 8, 24, cq.cqn.into());
        rdma.raw.command(0x402, 0, &body, 272)[16..80].to_vec()
    };
    let before = context(&rdma);
    for (select, field) in [
        (PERIOD, period(0xfff)),
        (COUNT, count(0xfffe)),
        (MODE, FROM_ENTRIES),
        (OVERRUN, (14, 1, 1)),
        (PERIOD, period(1)),
    ] {
        modify(&rdma, &cq, select, &[field]);
        assert_eq!(get(&context(&rdma), field.0, field.1), field.2, "{field:?}");
    }
    let mut right = before;
    [period(1), count(0xfffe), FROM_ENTRIES, (14, 1, 1)]
        .iter()
        .for_each(|(at, bits, v)| put(&mut right, *at, *bits, *v));
    assert_eq!(context(&rdma), right);
    rdma.assert_clean();
}

#[test]
fn a_queue_told_to_ignore_overruns_does_and_watches_again_when_told() {
    let mut rdma = Rdma::up();
    let cq = rdma.cq(CqWish { log_size: 1, ..WISH });
    modify(&rdma, &cq, OVERRUN, &[(14, 1, 1)]);
    (0..5).for_each(|_| write(&rdma, &cq));
    store32(&cq.record, 0, 4);
    modify(&rdma, &cq, OVERRUN, &[]);
    write(&rdma, &cq);
    assert!(!rdma.raw.model.inject_cqe(cq.cqn, [0; 64]), "two wait already");
    assert_eq!(rdma.drain_async_events(), 1);
    rdma.assert_clean();
}

#[test]
fn each_field_needs_its_capability_at_creation_and_later() {
    type Row = (&'static str, fn(&mut CapConfig), u64, Field);
    let rows: &[Row] = &[
        ("moderation without the cq_moderation capability", |c| c.cq_moderation = false, PERIOD, period(1)),
        ("moderation without the cq_moderation capability", |c| c.cq_moderation = false, COUNT, count(1)),
        ("oi without the cq_oi capability", |c| c.cq_oi = false, OVERRUN, (14, 1, 1)),
        (
            "cq_period_mode 1 without the cq_period_start_from_cqe capability",
            |c| c.cq_period_start_from_cqe = false,
            MODE,
            FROM_ENTRIES,
        ),
        (
            "another cq_period_mode without the cq_period_mode_modify capability",
            |c| c.cq_period_mode_modify = false,
            MODE,
            FROM_ENTRIES,
        ),
        ("cq_period_mode is not a mode", |_| (), MODE, (15, 2, 2)),
    ];
    for (reason, without, select, field) in rows {
        let mut caps = CapConfig::default();
        without(&mut caps);
        let rdma = Rdma::on(Raw::up_with(caps, true));
        let cq = rdma.cq(WISH);
        let out = rdma.raw.try_command(MODIFY_CQ, 0, &body(&cq, *select, &[*field]), 16);
        assert_eq!((out[0], syndrome_text(get(&out, 32, 32) as u32)), (BAD_PARAM, Some(*reason)));
        modify(&rdma, &cq, *select, &[]);
        rdma.assert_clean();
    }
}

#[test]
fn what_no_driver_may_send_is_a_violation() {
    let (rdma, cq) = bench(&[]);
    let rows = [
        ("a field is selected that cannot be changed", 0x8, count(0)),
        ("a field is selected that cannot be changed", 0x20, count(0)),
        ("a field that is not selected differs from the CQ's", PERIOD, count(1)),
        ("a field that is not selected differs from the CQ's", PERIOD, SOLICITED_BREAKS),
        ("a field that is not selected differs from the CQ's", 0, period(1)),
    ];
    for (reason, select, field) in rows {
        let out = rdma.raw.try_command(MODIFY_CQ, 0, &body(&cq, select, &[field]), 16);
        assert_eq!((out[0], syndrome_text(get(&out, 32, 32) as u32)), (BAD_PARAM, Some(reason)));
        assert_eq!(rdma.raw.model.take_violations()[0].kind, ViolationKind::ReservedBits);
    }
    let mut long = body(&cq, PERIOD, &[]);
    long.extend_from_slice(&[0; 8]);
    let out = rdma.raw.try_command(MODIFY_CQ, 0, &long, 16);
    assert_eq!(syndrome_text(get(&out, 32, 32) as u32), Some("length of the list differs from what the context says"));
    assert_eq!(rdma.raw.model.take_violations()[0].kind, ViolationKind::CommandLength);
}

#[test]
fn a_destroyed_queue_raises_nothing_for_the_next_one_of_its_number() {
    let (mut rdma, cq) = bench(&[period(10), count(3), FROM_ENTRIES]);
    rdma.arm(&cq, 0, false);
    write(&rdma, &cq);
    let mut body = [0; 8];
    put(&mut body, 8, 24, cq.cqn.into());
    rdma.raw.command(0x401, 0, &body, 16);
    let next = moderated(&rdma, &[]);
    assert_eq!(next.cqn, cq.cqn);
    rdma.arm(&next, 0, false);
    rdma.raw.model.step(100_000);
    assert_eq!(rdma.drain_events(), 0);
}

#[test]
fn on_a_thread_of_its_own_the_period_passes_by_the_wall_clock() {
    let (mut rdma, cq) = bench(&[period(2000), count(100), FROM_ENTRIES]);
    let thread = rdma.raw.model.spawn().unwrap();
    rdma.arm(&cq, 0, false);
    write(&rdma, &cq);
    let mut patience = Patience::new();
    while rdma.drain_events() == 0 {
        assert!(patience.left());
        rdma.raw.model.relax();
    }
    drop(thread);
    rdma.assert_clean();
}
