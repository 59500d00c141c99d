//! The table of violations: each rule of the control side is broken once with raw bytes. The rules of the data path have
//! a table of their own; together they cover every rule there is.

use std::collections::BTreeSet;

use mlx5_hw::platform::{Bar, Platform};
use mlx5_model::ViolationKind::{self, *};
use mlx5_model::{Effect, Fault, Match, ModelConfig};

use crate::driver::{Driver, put, sign, store};
use crate::kinds::COMMITTED_HERE;
use crate::queues::EqWish;

/// What is broken, the rule, and how.
type Row = (&'static str, ViolationKind, fn(&mut Driver));

const EQ_DOORBELL: usize = 0x40;

/// A command with several mailboxes each way.
fn long(d: &Driver) -> [u8; 64] {
    d.build(0, 0x109, 0, &[0; 8 + 4096], 1024)
}

fn uar(d: &Driver, offset: usize) -> usize {
    d.uar as usize * 4096 + offset
}

fn never(d: &Driver, slot: usize) {
    d.model.inject(Fault::Command { at: Match::Opcode(0x107), effect: Effect::Never });
    d.post(slot, &d.build(slot, 0x107, 1, &[0; 8], 16));
}

/// Rows on a function that is up.
const UP: &[Row] = &[
    ("an event queue page that is not mapped", DmaUnmapped, |d| {
        let body = d.eq_body(&EqWish::default(), 0x7000_0000_0000, 1);
        d.run(0x301, 0, &body, 16).unwrap_err();
    }),
    ("the ring of a live event queue is freed", FreedWhileOwned, |d| {
        d.eq(EqWish::default()).unwrap();
        let ring = d.memory.pop().unwrap();
        // SAFETY: from this platform's `alloc`; that the device still owns it is the point.
        unsafe { d.model.free(ring) };
    }),
    ("a mailbox of a command that has not completed is freed", FreedWhileOwned, |d| {
        d.model.inject(Fault::Command { at: Match::Opcode(0x109), effect: Effect::Never });
        d.post(0, &long(d));
        d.finish();
    }),
    ("4 bytes at an odd offset", BarMisaligned, |d| {
        d.model.read32(2);
    }),
    ("8 bytes at a multiple of 4", BarMisaligned, |d| d.model.write64(0x14, 0)),
    ("a read beyond the BAR", BarOutOfRange, |d| assert_eq!(d.model.read32(1 << 20), u32::MAX)),
    ("a write to the health buffer", BarReadOnly, |d| d.write(0x200, 1)),
    ("a slot twice", CommandSlotBusy, |d| {
        never(d, 1);
        d.write(0x18, 2);
    }),
    ("an entry that software owns", CommandNotOwned, |d| {
        let mut entry = d.build(1, 0x107, 1, &[0; 8], 16);
        entry[0x3f] = 0;
        sign(&mut entry);
        d.post(1, &entry);
    }),
    ("another queue address", QueueAddressChanged, |d| d.write(0x14, 0x1000)),
    ("a wrong token", CommandDelivery, |d| {
        let entry = long(d);
        d.spoil_block(0, 0, 1, 0x23d, &[0]);
        d.post(0, &entry);
    }),
    ("an input too long", CommandLength, |d| {
        d.run(0x800, 0, &[0; 16], 16).unwrap_err();
    }),
    ("an output too short", CommandLength, |d| {
        d.run(0x101, 0, &[0; 8], 264).unwrap_err();
    }),
    ("a reserved bit", ReservedBits, |d| {
        d.run(0x800, 0, &[0, 0, 0, 0, 0, 0, 0, 1], 16).unwrap_err();
    }),
    ("a user id without user contexts", ReservedBits, |d| {
        let mut entry = d.build(0, 0x800, 0, &[0; 8], 16);
        entry[0x13] = 1;
        sign(&mut entry);
        d.post(0, &entry);
    }),
    ("capabilities after INIT_HCA", CommandOrder, |d| {
        d.set_caps(&[0; 4096]).unwrap_err();
    }),
    ("an opcode that does not exist", UnknownCommand, |d| {
        d.run(0x999, 0, &[0; 8], 16).unwrap_err();
    }),
    ("an op_mod that does not exist", UnknownCommand, |d| {
        d.run(0x800, 1, &[0; 8], 16).unwrap_err();
    }),
    ("a page that is not aligned", BadPage, |d| {
        let page = d.alloc(8192) + 64;
        d.run(0x108, 1, &Driver::give_body(&[page]), 16).unwrap_err();
    }),
    ("page 0", BadPage, |d| {
        d.run(0x108, 1, &Driver::give_body(&[0]), 16).unwrap_err();
    }),
    ("a page that is not mapped", BadPage, |d| {
        d.run(0x108, 1, &Driver::give_body(&[0x7000_0000_0000]), 16).unwrap_err();
    }),
    ("a page twice in a list", BadPage, |d| {
        let page = d.alloc(4096);
        d.run(0x108, 1, &Driver::give_body(&[page, page]), 16).unwrap_err();
    }),
    ("a page that firmware has", BadPage, |d| {
        let page = d.last_given().iova();
        d.run(0x108, 1, &Driver::give_body(&[page]), 16).unwrap_err();
    }),
    ("a page that an event queue lies in", BadPage, |d| {
        let ring = d.eq(EqWish::default()).unwrap().ring;
        d.run(0x108, 1, &Driver::give_body(&[ring]), 16).unwrap_err();
    }),
    ("the command queue as a page", BadPage, |d| {
        let page = d.queue().iova();
        d.run(0x108, 1, &Driver::give_body(&[page]), 16).unwrap_err();
    }),
    ("no page", BadPage, |d| {
        d.run(0x108, 1, &Driver::give_body(&[]), 16).unwrap_err();
    }),
    ("a write into a page of firmware", PageTouched, |d| {
        store(d.last_given(), 5 * 4096 + 77, &[1, 2, 3]);
        d.small(0x803, d.uar).unwrap();
        d.run(0x103, 0, &[0; 8], 16).unwrap();
    }),
    ("a firmware page is freed", FreedWhileOwned, |d| {
        let page = d.alloc(4096);
        d.run(0x108, 1, &Driver::give_body(&[page]), 16).unwrap();
        let mem = d.memory.pop().unwrap();
        // SAFETY: from this platform's `alloc`; that the device still owns it is the point.
        unsafe { d.model.free(mem) };
    }),
    ("a UAR is left at teardown", ObjectsAtTeardown, |d| {
        d.run(0x103, 0, &[0; 8], 16).unwrap();
    }),
    ("pages are left at disable", PagesAtDisable, |d| {
        d.small(0x803, d.uar).unwrap();
        d.run(0x103, 0, &[0; 8], 16).unwrap();
        d.run(0x105, 0, &[0; 8], 12).unwrap();
    }),
    ("an event queue of zeroes", EqNotInitialised, |d| {
        let ring = d.alloc(4096);
        let body = d.eq_body(&EqWish::default(), ring, 1);
        d.run(0x301, 0, &body, 16).unwrap();
    }),
    ("one completion queue entry of zeroes", CqNotInitialised, |d| {
        let eqn = d.eq(EqWish::default()).unwrap().number;
        let (ring, record) = (d.cq_ring(4), d.alloc(64));
        store(d.memory_at(ring), 15 * 64 + 63, &[0]);
        let body = d.cq_body(eqn, 4, ring, record, 1);
        d.create(0x400, &body).unwrap();
    }),
    ("more events than entries", EqOverrun, |d| {
        d.eq(EqWish { log_size: 2, mask: 1 << 0xa, vector: 0 }).unwrap();
        for _ in 0..5 {
            d.pages_wanted(1);
        }
    }),
    ("a consumer index ahead of the producer", EqConsumerIndex, |d| {
        let eq = d.eq(EqWish::default()).unwrap();
        d.arm_eq(eq, 1);
    }),
    ("a consumer index that goes back", EqConsumerIndex, |d| {
        let eq = d.eq(EqWish { mask: 1 << 0xa, ..EqWish::default() }).unwrap();
        d.pages_wanted(1);
        d.arm_eq(eq, 1);
        d.arm_eq(eq, 0);
    }),
    ("a doorbell in a page that is not allocated", UarUnknownPage, |d| d.write(9 * 4096 + EQ_DOORBELL, 1 << 24)),
    ("a doorbell of the wrong width", UarUnknownOffset, |d| d.write64(uar(d, EQ_DOORBELL), 1 << 56)),
    ("a doorbell where there is none", UarUnknownOffset, |d| d.write(uar(d, 0x100), 0)),
    ("a doorbell of an event queue that is gone", DoorbellUnknownObject, |d| {
        let eq = d.eq(EqWish::default()).unwrap();
        d.small(0x302, eq.number).unwrap();
        d.arm_eq(eq, 0);
    }),
    ("a doorbell in another UAR", DoorbellWrongUar, |d| {
        let eq = d.eq(EqWish::default()).unwrap();
        let other = d.small(0x802, 0).unwrap() as usize;
        d.write(other * 4096 + EQ_DOORBELL, eq.number << 24);
    }),
];

/// Rows on a function that has only been reset.
const COLD: &[Row] = &[
    ("a command queue that is not mapped", DmaUnmapped, |d| {
        d.write(0x10, 0x7fff);
        d.write(0x14, 0);
        d.write(0x18, 1);
    }),
    ("a command queue that is freed", DmaAfterFree, |d| {
        let mem = d.model.alloc(4096, 4096).unwrap();
        d.write(0x10, (mem.iova() >> 32) as u32);
        d.write(0x14, mem.iova() as u32);
        // SAFETY: from this platform's `alloc`; what the device does with it is the point.
        unsafe { d.model.free(mem) };
        d.write(0x18, 1);
    }),
    ("a doorbell before the queue has an address", DoorbellBeforeQueueAddress, |d| d.write(0x18, 1)),
    ("a doorbell while firmware boots", DoorbellWhileInitializing, |d| {
        d.model.inject(Fault::NeverBoots);
        d.write(0x18, 1);
    }),
    ("a command before ENABLE_HCA", CommandOrder, |d| {
        d.start();
        d.small(0x800, 0).unwrap_err();
    }),
    ("ENABLE_HCA with a reserved bit", ReservedBits, |d| {
        d.start();
        let mut body = [0; 8];
        put(&mut body, 40, 1, 1);
        body[4] = 1;
        d.run(0x104, 0, &body, 12).unwrap_err();
    }),
];

#[test]
fn each_breach_is_noticed_and_named() {
    for (name, kind, commit) in UP {
        let mut d = Driver::up(ModelConfig::default());
        assert_eq!(d.broken(), [], "{name}: before");
        commit(&mut d);
        let broken = d.broken();
        assert!(broken.contains(kind), "{name}: {broken:?}");
        assert!(broken.iter().all(|seen| seen == kind), "{name}: only the one rule: {broken:?}");
    }
    for (name, kind, commit) in COLD {
        let mut d = Driver::new(ModelConfig::default());
        commit(&mut d);
        assert_eq!(d.broken(), [*kind], "{name}");
    }
}

#[test]
fn every_rule_is_broken_by_some_row() {
    let rows = UP.iter().chain(COLD).map(|(_, kind, _)| *kind).chain(COMMITTED_HERE.iter().copied());
    let broken: BTreeSet<ViolationKind> = rows.collect();
    let all: BTreeSet<ViolationKind> = ViolationKind::ALL.iter().copied().collect();
    assert_eq!(all.difference(&broken).collect::<Vec<_>>(), Vec::<&ViolationKind>::new());
}

#[test]
fn each_rule_says_what_hardware_does() {
    let sentences: BTreeSet<&str> = ViolationKind::ALL.iter().map(|kind| kind.consequence()).collect();
    assert!(sentences.iter().all(|text| text.ends_with('.') && text.len() > 20));
}
