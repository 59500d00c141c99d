//! Memory that the device can no longer reach, whoever took it away: what becomes of the queue that lies there, and of those that
//! have to do with it.
//!
//! "Local work queue catastrophic error" (0x05) is what the InfiniBand specification has for a work queue that cannot be accessed, so
//! that nothing can be completed; a completion queue in error tells of an access violation by syndrome 2 of its event, and its status
//! is 0xa, as an event queue's is that could not be written (Linux's headers); Linux's driver names health syndromes 0xa "ICM
//! fetch PCI error" and 0xd "EQ error".

use mlx5_hw::platform::{DmaMem, Platform};
use mlx5_model::ViolationKind::{self, DmaAfterFree, FreedWhileOwned};

use crate::connections::{Pair, pair};
use crate::one_sided::WRITE;
use crate::qp::QpWish;
use crate::raw::{Raw, get, put};
use crate::rdma::{LR, LW, RW, Rdma};
use crate::srq::{BROKEN, CQ};
use crate::wqe::{Wqe, data, inline, remote, signalled};

const CATASTROPHIC: u8 = 0x05;
const CQ_ERROR: u8 = 0x04;

/// Takes memory away from the device.
fn lose(rdma: &Rdma, mem: &mut DmaMem) {
    let gone = std::mem::replace(mem, rdma.alloc(4096));
    // SAFETY: nothing refers to the memory any more, and the device reaches for it only to be caught.
    unsafe { rdma.raw.model.free(gone) };
}

/// What was broken: the memory was taken away while it was in use, and the device was caught at it so many times.
fn caught(rdma: &Rdma, times: usize) {
    let kinds: Vec<ViolationKind> = rdma.raw.model.take_violations().iter().map(|found| found.kind).collect();
    assert_eq!(kinds, [&[FreedWhileOwned][..], &vec![DmaAfterFree; times]].concat());
}

fn caught_once(rdma: &Rdma) {
    caught(rdma, 1);
}

/// The asynchronous events: type and number.
fn events(rdma: &mut Rdma) -> Vec<(u8, u64)> {
    std::iter::from_fn(|| rdma.event()).collect()
}

/// The health syndrome.
fn health(rdma: &Rdma) -> u32 {
    rdma.raw.read32(0x23c) >> 16 & 0xff
}

#[test]
fn a_send_queue_that_cannot_be_read_breaks_down_without_completions() {
    for record in [false, true] {
        let mut p = pair();
        p.recv(64);
        let value = p.rdma.write_send(&mut p.a, signalled(&inline(b"x")));
        let number = u64::from(p.a.qpn);
        if record {
            lose(&p.rdma, &mut p.a.record);
            p.rdma.raw.write64(p.rdma.uar as usize * 4096 + 0x800, value);
        } else {
            lose(&p.rdma, &mut p.a.mem);
            p.rdma.ring(&p.a, value);
        }
        assert_eq!(events(&mut p.rdma), [(CATASTROPHIC, number)], "record {record}");
        assert_eq!((p.rdma.state(&p.a), p.rdma.state(&p.b)), (6, 3));
        p.idle();
        // The record is the receive queue's too, which is to be flushed.
        caught(&p.rdma, if record { 2 } else { 1 });
        assert_eq!(health(&p.rdma), 0);
    }
}

#[test]
fn a_receive_queue_that_cannot_be_read_breaks_down_and_its_sender_hears_of_it() {
    for record in [false, true] {
        let mut p = pair();
        p.recv(64);
        let number = u64::from(p.b.qpn);
        let Pair { rdma, b, .. } = &mut p;
        lose(rdma, if record { &mut b.record } else { &mut b.mem });
        p.send(8);
        let cqe = p.rdma.poll(&mut p.cq_a);
        assert_eq!((cqe[63] >> 4, cqe[55]), (13, 0x14), "remote operation error, record {record}");
        assert_eq!(events(&mut p.rdma), [(CATASTROPHIC, number)]);
        assert_eq!((p.rdma.state(&p.a), p.rdma.state(&p.b)), (6, 6));
        if record {
            // What was posted cannot be counted, so it is not flushed.
            p.idle();
            caught(&p.rdma, 2);
        } else {
            let cqe = p.rdma.poll(&mut p.cq_b);
            assert_eq!((cqe[63] >> 4, cqe[55]), (14, 5), "flushed: that needs the record alone");
            caught_once(&p.rdma);
        }
    }
}

#[test]
fn a_shared_receive_queue_that_cannot_be_read_breaks_and_so_does_who_takes_from_it() {
    for record in [false, true] {
        let mut rdma = Rdma::up();
        let mut srq = rdma.srq(3, 64);
        let (mut cq_a, cq_b) = (rdma.cq(CQ), rdma.cq(CQ));
        let (mut a, b) =
            (rdma.qp(QpWish::RC, &cq_a, &cq_a), rdma.qp(QpWish { srq: Some(srq.rmpn), ..QpWish::RC }, &cq_b, &cq_b));
        rdma.connect(&a, &b);
        let to = rdma.register(4096, 0, LR | LW);
        srq.post(&[to.seg(0, 64)]);
        lose(&rdma, if record { &mut srq.record } else { &mut srq.mem });
        rdma.send(&mut a, signalled(&inline(b"x")));
        let cqe = rdma.poll(&mut cq_a);
        assert_eq!((cqe[63] >> 4, cqe[55]), (13, 0x14), "record {record}");
        let events = events(&mut rdma);
        assert_eq!(events[..2], [(BROKEN, srq.rmpn.into()), (CATASTROPHIC, b.qpn.into())]);
        assert_eq!(rdma.state(&b), 6);
        caught_once(&rdma);
    }
}

#[test]
fn a_completion_queue_whose_record_cannot_be_read_is_in_error_by_access() {
    for arm in [false, true] {
        let mut p = pair();
        p.recv(64);
        lose(&p.rdma, &mut p.cq_a.record);
        if arm {
            let value = u64::from(p.cq_a.cqn);
            p.rdma.raw.write64(p.rdma.uar as usize * 4096 + 0x20, value);
        } else {
            p.send(8);
        }
        let event = p.rdma.async_eq.take().unwrap();
        assert_eq!((event[1], get(&event, 0x21 * 8, 24), event[0x2b]), (CQ_ERROR, p.cq_a.cqn.into(), 2), "arm {arm}");
        caught_once(&p.rdma);
        let mut body = [0; 8];
        put(&mut body, 8, 24, p.cq_a.cqn.into());
        assert_eq!(get(&p.rdma.raw.command(0x402, 0, &body, 272), 128, 4), 0xa);
    }
}

#[test]
fn an_event_queue_that_cannot_be_written_reports_nothing_more_and_the_function_is_ill() {
    let mut p = pair();
    let eqn = p.rdma.async_eq.eqn;
    let Rdma { raw, async_eq, .. } = &mut p.rdma;
    let gone = std::mem::replace(&mut async_eq.mem, raw.model.alloc(4096, 4096).unwrap());
    // SAFETY: nothing refers to the memory any more, and the device writes it only to be caught.
    unsafe { raw.model.free(gone) };
    for up in [false, true, false] {
        p.rdma.raw.model.inject(mlx5_model::Fault::Link { up });
    }
    caught_once(&p.rdma);
    assert_eq!(health(&p.rdma), 0xd);
    let mut body = [0; 8];
    body[3] = eqn as u8;
    assert_eq!(get(&p.rdma.raw.command(0x303, 0, &body, 0x110), 128, 4), 0xa, "QUERY_EQ: write failure");
}

#[test]
fn pages_of_firmware_that_cannot_be_read_are_a_health_syndrome() {
    let mut raw = Raw::up();
    let pages = raw.given.pop().unwrap();
    // SAFETY: nothing refers to the memory any more, and firmware reads it only to be caught.
    unsafe { raw.model.free(pages) };
    raw.command(0x103, 0, &[0; 8], 16);
    let kinds: Vec<ViolationKind> = raw.model.violations().iter().map(|found| found.kind).collect();
    assert_eq!(kinds, [FreedWhileOwned, DmaAfterFree], "once for all pages");
    assert_eq!(raw.read32(0x23c) >> 16 & 0xff, 0xa);
}

#[test]
fn payload_that_cannot_be_reached_fails_the_request_on_the_side_to_blame() {
    // What is sent from, what is received into, what is written to: the sender's and the receiver's syndrome, and the event.
    for (which, sender, receiver, event) in
        [("from", 0x04, None, None), ("into", 0x14, Some(0x04), None), ("to", 0x14, None, Some(CATASTROPHIC))]
    {
        let mut p = pair();
        let mut region = p.rdma.register(4096, 0, LR | LW | RW);
        let (segment, there) = (region.seg(0, 8), region.there(0));
        let list = if which == "into" { segment } else { p.to.seg(0, 64) };
        p.rdma.recv(&mut p.b, &[list]);
        lose(&p.rdma, &mut region.mem);
        let from = data(if which == "from" { segment } else { p.from.seg(0, 8) });
        if which == "to" {
            let segments = [remote(there), from].concat();
            p.rdma.send(&mut p.a, Wqe { opcode: WRITE, flags: 8, imm: 0, segments: &segments });
        } else {
            p.rdma.send(&mut p.a, signalled(&from));
        }
        let cqe = p.rdma.poll(&mut p.cq_a);
        assert_eq!((cqe[63] >> 4, cqe[55]), (13, sender), "{which}");
        if let Some(syndrome) = receiver {
            let cqe = p.rdma.poll(&mut p.cq_b);
            assert_eq!((cqe[63] >> 4, cqe[55]), (14, syndrome), "{which}");
        }
        let number = u64::from(p.b.qpn);
        assert_eq!(events(&mut p.rdma), event.map(|kind| (kind, number)).into_iter().collect::<Vec<_>>(), "{which}");
        caught_once(&p.rdma);
    }
}
