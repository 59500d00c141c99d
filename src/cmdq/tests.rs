//! The command queue against a device played by hand: entries and mailboxes are read and answered as bytes, at the
//! offsets of the manual.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, Ordering};

use mlx5_hw::be::Be32;
use mlx5_hw::cmd::{Command, DeliveryStatus, Opcode, Sink, Source, Status};

use super::{Claim, CommandQueue, EVENT_GRACE};
use crate::dma::Port;
use crate::error::Error;
use crate::fake::{Fake, IOVA};

struct Rig {
    fake: Fake,
    port: Arc<Port>,
    queue: CommandQueue,
}

fn rig() -> Rig {
    let (fake, port) = Fake::port();
    let queue = CommandQueue::new(&port, 5, 6).unwrap();
    Rig { fake, port, queue }
}

/// The device's view of memory.
fn byte(iova: u64) -> &'static AtomicU8 {
    // SAFETY: the tests read and write only memory that the queue has not freed.
    unsafe { AtomicU8::from_ptr((iova - IOVA) as *mut u8) }
}

fn get8(iova: u64) -> u8 {
    byte(iova).load(Ordering::Relaxed)
}

fn put8(iova: u64, value: u8) {
    byte(iova).store(value, Ordering::Relaxed);
}

fn get32(iova: u64) -> u32 {
    u32::from_be_bytes(core::array::from_fn(|i| get8(iova + i as u64)))
}

fn get64(iova: u64) -> u64 {
    (get32(iova) as u64) << 32 | get32(iova + 4) as u64
}

fn xor(iova: u64, len: u64) -> u8 {
    (0..len).fold(0, |x, i| x ^ get8(iova + i))
}

/// A command of any length.
struct Blob {
    input: Vec<u32>,
    out_len: usize,
}

impl Blob {
    fn new(in_len: usize, out_len: usize) -> Self {
        Self { input: (0..in_len as u32 / 4).map(|i| i.wrapping_mul(0x0101_0307) ^ 0xa500_0000).collect(), out_len }
    }
}

impl Command for Blob {
    const OPCODE: Opcode = Opcode::QUERY_ADAPTER;
    type Out = Vec<u32>;

    fn in_len(&self) -> usize {
        4 * self.input.len()
    }

    fn out_len(&self) -> usize {
        self.out_len
    }

    fn encode(&self, inbox: &mut dyn Sink) {
        let words: Vec<Be32> = self.input.iter().map(|w| Be32::new(*w)).collect();
        inbox.put(0, &words);
        inbox.put(4 * words.len(), &[Be32::new(0xdead_beef)]);
    }

    fn decode(&self, outbox: &dyn Source) -> Vec<u32> {
        let mut words = vec![Be32::ZERO; self.out_len / 4 + 1];
        outbox.get(0, &mut words);
        words.iter().map(|w| w.get()).collect()
    }
}

impl Rig {
    fn entry(&self, slot: u64) -> u64 {
        self.queue.iova() + 64 * slot
    }

    fn post(&self, command: &Blob) -> Claim<'_> {
        let mut claim = self.queue.claim(Opcode::QUERY_ADAPTER, false).expect("a free slot");
        claim.post(command).unwrap();
        claim
    }

    /// Addresses of the bytes of a message, by walking its chain.
    fn message(&self, slot: u64, inline: u64, pointer: u64, length: u64) -> Vec<u64> {
        let entry = self.entry(slot);
        let len = get32(entry + length) as u64;
        let mut at: Vec<u64> = (0..len.min(16)).map(|i| entry + inline + i).collect();
        let mut block = get64(entry + pointer);
        let mut number = 0;
        while (at.len() as u64) < len {
            assert_ne!(block, 0, "the chain ends before the message");
            assert_eq!(block % 1024, 0, "alignment of a block");
            assert_eq!(get32(block + 0x238), number, "block number");
            assert_eq!(get8(block + 0x23d), get8(entry + 0x3c), "token");
            at.extend((0..512.min(len - at.len() as u64)).map(|i| block + i));
            block = get64(block + 0x230);
            number += 1;
        }
        assert_eq!(block, 0, "the chain goes on behind the message");
        at
    }

    fn input(&self, slot: u64) -> Vec<u64> {
        self.message(slot, 0x10, 8, 4)
    }

    fn output(&self, slot: u64) -> Vec<u64> {
        self.message(slot, 0x20, 0x30, 0x38)
    }

    fn answer(&self, slot: u64) {
        let own = self.entry(slot) + 0x3f;
        assert_eq!(get8(own), 1, "the entry is the device's");
        put8(own, 0);
    }
}

#[test]
fn sizes_the_device_cannot_mean_are_refused() {
    let (fake, port) = Fake::port();
    for (log_size, log_stride) in [(0, 6), (6, 6), (15, 15), (5, 8), (3, 0), (1, 15)] {
        let refused = CommandQueue::new(&port, log_size, log_stride).map(|_| ());
        assert_eq!(refused, Err(Error::Protocol { what: "size of the command queue" }), "{log_size} {log_stride}");
    }
    assert_eq!(fake.live(), 0);
}

#[test]
fn an_entry_says_what_the_manual_asks_for() {
    let rig = rig();
    let claim = rig.post(&Blob::new(16, 16));
    let entry = rig.entry(0);
    assert_eq!((get8(entry), get32(entry + 4), get32(entry + 0x38)), (7, 16, 16), "type and lengths");
    assert_eq!((get64(entry + 8), get64(entry + 0x30)), (0, 0), "no mailboxes for short messages");
    assert_eq!(get8(entry + 0x3f), 1, "owner");
    assert_eq!(xor(entry, 64), 0xff, "signature");
    assert_eq!(rig.fake.doorbell(), 1);
    drop(claim);
}

#[test]
fn messages_of_every_size_arrive_and_come_back() {
    let rig = rig();
    for len in [8, 12, 16, 20, 528, 532, 1036, 1040, 1044, 2064, 4112, 6160, 40_000] {
        let command = Blob::new(len, len);
        let claim = rig.post(&command);
        let arrived: Vec<u8> = rig.input(0).into_iter().map(get8).collect();
        let sent: Vec<u8> = command.input.iter().flat_map(|w| w.to_be_bytes()).collect();
        assert_eq!(arrived, sent, "input of {len} bytes");
        for (i, at) in rig.output(0).into_iter().enumerate() {
            put8(at, if i == 0 { 0 } else { (i * 7) as u8 });
        }
        rig.answer(0);
        assert!(claim.answered(0, false));
        let mut back: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        back.extend([0; 4]);
        let came: Vec<u8> = claim.finish(&command).unwrap().iter().flat_map(|w| w.to_be_bytes()).collect();
        assert_eq!(came, back, "output of {len} bytes, and zeros behind it");
    }
}

#[test]
fn blocks_are_signed_while_checksums_are_on_and_entries_always() {
    let rig = rig();
    for on in [true, false] {
        rig.queue.set_signatures(on);
        let claim = rig.post(&Blob::new(2064, 1040));
        assert_eq!(xor(rig.entry(0), 64), 0xff);
        let firsts = [get64(rig.entry(0) + 8), get64(rig.entry(0) + 0x30)];
        for mut block in firsts {
            while block != 0 {
                let (control, whole) = (xor(block + 0x200, 0x3f), xor(block, 0x240));
                if on {
                    assert_eq!((control, whole), (0xff, 0xff), "signatures of a block");
                } else {
                    assert_eq!((get8(block + 0x23e), get8(block + 0x23f)), (0, 0));
                }
                block = get64(block + 0x230);
            }
        }
        rig.answer(0);
        assert!(claim.answered(0, false));
        claim.finish(&Blob::new(2064, 1040)).unwrap();
    }
}

#[test]
fn the_lowest_free_slot_is_taken_and_the_last_one_is_for_pages() {
    let rig = rig();
    let mut claims: Vec<_> = (0..31).map(|_| rig.post(&Blob::new(16, 16))).collect();
    assert_eq!(rig.fake.doorbell(), 0x7fff_ffff);
    assert!(rig.queue.claim(Opcode::QUERY_ADAPTER, false).is_none(), "the last slot is not for everyone");
    let mut pages = rig.queue.claim(Opcode::MANAGE_PAGES, true).unwrap();
    pages.post(&Blob::new(16, 16)).unwrap();
    assert_eq!(rig.fake.doorbell(), u32::MAX);
    let mut tokens: Vec<u8> = (0..32).map(|slot| get8(rig.entry(slot) + 0x3c)).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 32, "no two commands in flight share a token");
    for slot in [20, 7] {
        rig.answer(slot);
        let claim = claims.remove(slot as usize);
        assert!(claim.answered(0, false));
        claim.finish(&Blob::new(16, 16)).unwrap();
    }
    rig.fake.clear_doorbell();
    claims.push(rig.post(&Blob::new(16, 16)));
    assert_eq!(rig.fake.doorbell(), 1 << 7);
}

#[test]
fn answers_out_of_order_go_to_their_commands() {
    let rig = rig();
    let command = Blob::new(16, 16);
    let claims: Vec<_> = (0..4).map(|_| rig.post(&command)).collect();
    for slot in [2, 0, 3, 1] {
        put8(rig.output(slot)[12], 0x40 + slot as u8);
        rig.answer(slot);
        assert!(claims[slot as usize].answered(0, false));
    }
    for (slot, claim) in claims.into_iter().enumerate() {
        assert_eq!(claim.finish(&command).unwrap()[3], (0x40 + slot as u32) << 24);
    }
}

#[test]
fn a_refusal_is_a_typed_error_with_its_syndrome() {
    let rig = rig();
    let command = Blob::new(16, 16);
    let claim = rig.post(&command);
    for (at, value) in rig.output(0).into_iter().zip([3, 0, 0, 0, 0x12, 0x34, 0x56, 0x78]) {
        put8(at, value);
    }
    rig.answer(0);
    assert!(claim.answered(0, false));
    let error = claim.finish(&command).unwrap_err();
    let opcode = Opcode::QUERY_ADAPTER;
    assert_eq!(error, Error::Command { opcode, status: Status::BAD_PARAM_ERR, syndrome: 0x1234_5678 });
    assert_eq!(error.errno(), 22);

    let claim = rig.post(&command);
    put8(rig.entry(0) + 0x3f, 2 << 1);
    assert!(claim.answered(0, false));
    let error = claim.finish(&command).unwrap_err();
    assert_eq!(error, Error::Delivery { opcode, code: DeliveryStatus::TOK_ERR });
    assert_eq!(error.errno(), 5);
}

#[test]
fn a_command_without_an_answer_keeps_its_slot_and_mailboxes() {
    let rig = rig();
    let late = rig.post(&Blob::new(2064, 2064));
    let (input, output) = (rig.input(0), rig.output(0));
    assert!(!late.answered(u64::MAX, true));
    drop(late);
    let next = rig.post(&Blob::new(2064, 2064));
    assert_eq!(rig.fake.doorbell(), 0b11, "slot 0 is still in use");
    assert!(rig.input(1).iter().chain(&rig.output(1)).all(|at| !input.contains(at) && !output.contains(at)));
    let live = rig.fake.live();
    assert_eq!(rig.queue.kept(false).len(), 2, "a piece of four blocks each way is the device's");

    output.iter().for_each(|at| put8(*at, 0xee));
    rig.answer(0);
    rig.queue.reap();
    let counters = rig.queue.counters();
    assert_eq!((counters.posted, counters.timed_out, counters.late), (2, 1, 1));
    assert_eq!(rig.queue.kept(false), []);
    let again = rig.post(&Blob::new(2064, 2064));
    assert_eq!(get8(rig.entry(0) + 0x3f), 1, "slot 0 is used again");
    assert_eq!(rig.fake.live(), live, "and so is its memory");
    drop((next, again));
}

#[test]
fn memory_the_device_may_still_write_outlives_the_queue_and_is_named() {
    let rig = rig();
    drop(rig.post(&Blob::new(2064, 16)));
    let Rig { fake, port, queue } = rig;
    drop(queue);
    let mut names: Vec<_> = port.leaked().iter().map(|l| (l.what, l.size)).collect();
    names.sort_unstable();
    assert_eq!(names, [("command queue", 4096), ("mailboxes of a command without an answer", 4096)]);
    drop(port);
    assert_eq!(fake.live(), 2, "this platform cannot reset: nothing is freed");
}

#[test]
fn an_event_without_an_answer_completes_nothing() {
    let rig = rig();
    rig.queue.set_events(true);
    let claim = rig.post(&Blob::new(16, 16));
    rig.queue.on_event(1);
    assert!(!claim.answered(0, true));
    assert_eq!(rig.queue.counters().stray_events, 0);
}

#[test]
fn events_for_slots_nobody_uses_are_counted() {
    let rig = rig();
    rig.queue.set_events(true);
    let claim = rig.post(&Blob::new(16, 16));
    rig.queue.on_event(0x8000_0012);
    assert_eq!(rig.queue.counters().stray_events, 3);
    rig.answer(0);
    rig.queue.on_event(1);
    assert!(claim.answered(0, false));
    claim.finish(&Blob::new(16, 16)).unwrap();
    rig.queue.on_event(1);
    assert_eq!(rig.queue.counters().stray_events, 4);
}

#[test]
fn an_answer_whose_event_is_lost_is_found() {
    let rig = rig();
    rig.queue.set_events(true);
    let claim = rig.post(&Blob::new(16, 16));
    rig.answer(0);
    assert!(!claim.answered(1000, false), "the event may still come");
    assert!(!claim.answered(1000 + EVENT_GRACE - 1, false));
    assert!(claim.answered(1000 + EVENT_GRACE, false));
    assert_eq!(rig.queue.counters().lost_events, 1);
    claim.finish(&Blob::new(16, 16)).unwrap();
}

/// A command without an answer says nothing while others are answered; several at a time, and none answered, say all.
#[test]
fn firmware_that_has_stopped_is_told_from_one_that_forgets() {
    let rig = rig();
    let [lost, waits] = [(); 2].map(|()| rig.post(&Blob::new(16, 16)));
    assert!(!lost.overdue(), "the first");
    drop(lost);
    let answered = rig.post(&Blob::new(16, 16));
    put8(rig.entry(2) + 0x3f, 0);
    assert!(!waits.overdue(), "an answer lies there");
    assert!(answered.answered(0, true));
    answered.finish(&Blob::new(16, 16)).unwrap();
    assert!(!waits.overdue(), "one was answered meanwhile");
    drop(waits);
    let one = rig.post(&Blob::new(16, 16));
    assert!(!one.overdue(), "those before it were over when it was posted");
    drop(one);
    let together = [(); 3].map(|()| rig.post(&Blob::new(16, 16)));
    assert_eq!(together.each_ref().map(Claim::overdue), [false, true, true]);
    assert!(!rig.queue.all_abandoned());
}
