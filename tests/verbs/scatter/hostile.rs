//! A device that writes nonsense: each entry ends its request once, and nothing is written outside of its pieces.
//!
//! The model's entries are changed in the ring before they are polled.

use mlx5::dv::QpCreateFlags;
use mlx5::{PollAttr, PollError, QpCap, RecvWr, SendFlags, SendWr, Wc, WcStatus, WrOpcode};

use super::{
    COUNTER, Entries, OPCODE, allowing, assert_success, bytes, connected, next, post_recv, send_bytes, settle,
};
use super::{cq_of, fill, untouched};
use crate::support::{Pair, SIZES};

/// A receive with room for 48 bytes that a message of no bytes uses up: what lies in its entry is up to the test.
fn empty_message(p: &mut Pair, wr_id: u64) {
    let list = [p.sge(1, 100, 16), p.sge(1, 200, 32)];
    post_recv(&mut p.qp[1], wr_id, &list);
    send_bytes(p, wr_id, &[]);
    assert_success(&next(p, 0), wr_id);
}

#[test]
fn a_length_that_does_not_fit_is_a_length_error_and_nothing_is_written() {
    for size in [64, 128] {
        let mut p = allowing(size, SIZES);
        let entries = Entries::of(&p.port, &p.cq[1]);
        let mut n = 0;
        for (format, byte_cnt) in [
            (1, 33),
            (1, 64),
            (1, 1 << 31),
            (1, u32::MAX),
            // More than the request has room for.
            (2, 49),
            (2, 64),
            (2, 65),
            // How software marks entries that a reset queue left behind.
            (2, u32::MAX),
        ] {
            if format == 2 && size == 64 {
                continue;
            }
            empty_message(&mut p, n);
            entries.put(n, format, &bytes(1, 32), byte_cnt);
            let wc = next(&mut p, 1);
            assert_eq!((wc.wr_id, wc.status), (n, WcStatus::LOC_LEN_ERR), "{byte_cnt} bytes, format {format}");
            assert_eq!((wc.vendor_err, wc.byte_len, wc.qp_num), (0, 0, p.qp[1].qp_num()));
            assert!(untouched(&p, 1, &[]));
            n += 1;
        }
        // A poller tells the same: nothing of such an entry is valid but what every completion has.
        empty_message(&mut p, n);
        entries.put(n, 1, &bytes(1, 32), 33);
        let poller = p.cq[1].start_poll(&PollAttr::default()).unwrap();
        let c = poller.completion();
        assert_eq!((c.wr_id(), c.status(), c.opcode()), (n, WcStatus::LOC_LEN_ERR, None));
        assert_eq!((c.vendor_err(), c.byte_len(), c.completion_ts()), (None, None, None));
        drop(poller);
        // The length that just fits does.
        n += 1;
        empty_message(&mut p, n);
        let (format, len) = if size == 64 { (1, 32) } else { (2, 48) };
        entries.put(n, format, &bytes(2, len), len as u32);
        assert_success(&next(&mut p, 1), n);
        assert!(untouched(&p, 1, &[(100, 16), (200, 32)]));
        assert_eq!([p.bytes(1, 100, 16), p.bytes(1, 200, len - 16)].concat(), bytes(2, len));
        p.end();
    }
}

/// Both bits of inlined data set means "compressed"; 64 bytes have no room in an entry of 64.
#[test]
fn a_format_that_cannot_be_is_an_error_of_the_entry_and_nothing_is_written() {
    for (size, format, byte_cnt) in [(64, 3, 16), (128, 3, 16), (64, 2, 16), (64, 2, u32::MAX)] {
        let mut p = allowing(size, SIZES);
        empty_message(&mut p, 1);
        Entries::of(&p.port, &p.cq[1]).change(0, 15, 0xc, format << 2);
        Entries::of(&p.port, &p.cq[1]).change(0, 11, !0, byte_cnt);
        let error = p.cq[1].poll_cq(&mut [Wc::default()]).unwrap_err();
        assert_eq!(error.errno(), 5, "{error:?}");
        assert!(untouched(&p, 1, &[]));
        p.end();
    }
}

#[test]
fn data_for_a_queue_that_does_not_allow_it_is_an_error_of_the_entry() {
    let mut p = connected(|dev| cq_of(dev, 63, 128), SIZES, QpCreateFlags::empty());
    fill(&p);
    let entries = Entries::of(&p.port, &p.cq[1]);
    for (n, format) in [1, 2].into_iter().enumerate() {
        empty_message(&mut p, 1);
        entries.put(n as u64, format, &bytes(1, 16), 16);
        let error = p.cq[1].poll_cq(&mut [Wc::default()]).unwrap_err();
        assert!(matches!(error, PollError::UnexpectedFormat { format: f, .. } if u32::from(f) == format), "{error:?}");
        assert!(untouched(&p, 1, &[]));
    }
    p.end();
}

/// What was posted decides, and what the entry says: only a read's or an atomic's data comes back.
#[test]
fn data_for_a_request_that_gets_none_is_a_general_error() {
    let mut p = allowing(64, SIZES);
    let entries = Entries::of(&p.port, &p.cq[0]);
    let (list, remote) = ([p.sge(0, 100, 16)], p.remote(1, 0));
    let ops = [WrOpcode::Send, WrOpcode::RdmaWrite { remote }, WrOpcode::RdmaRead { remote }];
    let (send, read, fetch_add) = (0x0a << 24, 0x10 << 24, 0x12 << 24);
    let cases = [(0, send), (0, read), (0, fetch_add), (1, 0x08 << 24), (1, read), (2, send), (2, 0x08 << 24)];
    for (n, (posted, claimed)) in cases.into_iter().enumerate() {
        post_recv(
            &mut p.qp[1],
            0,
            &[p.buf[1].lkey()].map(|lkey| mlx5::Sge { addr: p.buf[1].addr(), length: 16, lkey }),
        );
        let (opcode, send_flags) = (ops[posted], SendFlags::SIGNALED);
        p.qp[0].post_send(&[SendWr { wr_id: 5, sg_list: &list, opcode, send_flags, ..Default::default() }]).unwrap();
        settle(&p);
        entries.put(n as u64, 1, &bytes(1, 16), 16);
        entries.change(n as u64, OPCODE, 0xff << 24, claimed);
        let wc = next(&mut p, 0);
        assert_eq!((wc.wr_id, wc.status, wc.vendor_err), (5, WcStatus::GENERAL_ERR, 0), "{opcode:?}");
        assert!(untouched(&p, 0, &[]), "{opcode:?}");
    }
    p.end();
}

/// An answer's length: an atomic's is 8 whatever the entry says, a read's is what it says and has to fit.
#[test]
fn the_length_of_an_answer_is_checked() {
    let mut p = allowing(64, SIZES);
    let entries = Entries::of(&p.port, &p.cq[0]);
    let (list, remote) = ([p.sge(0, 100, 8)], p.remote(1, 0));
    let ops = [WrOpcode::AtomicFetchAndAdd { remote, add: 1 }, WrOpcode::RdmaRead { remote }];
    for (n, (op, byte_cnt, status)) in [
        (0, 9, WcStatus::SUCCESS),
        (0, u32::MAX, WcStatus::SUCCESS),
        (1, 8, WcStatus::SUCCESS),
        (1, 9, WcStatus::LOC_LEN_ERR),
        (1, 33, WcStatus::LOC_LEN_ERR),
        (1, u32::MAX, WcStatus::LOC_LEN_ERR),
    ]
    .into_iter()
    .enumerate()
    {
        fill(&p);
        let (opcode, send_flags) = (ops[op], SendFlags::SIGNALED);
        p.qp[0].post_send(&[SendWr { sg_list: &list, opcode, send_flags, ..Default::default() }]).unwrap();
        settle(&p);
        entries.put(n as u64, 1, &bytes(n, 32), byte_cnt);
        assert_eq!(next(&mut p, 0).status, status, "{opcode:?}, {byte_cnt} bytes");
        assert!(untouched(&p, 0, &[(100, 8)]));
        if status == WcStatus::SUCCESS {
            assert_eq!(p.bytes(0, 100, 8), bytes(n, 32)[..8]);
        } else {
            assert!(untouched(&p, 0, &[]));
        }
    }
    p.end();
}

/// Whether the next entry of a side is a completion; else it is a typed error, as it names no request.
fn is_told(p: &mut Pair, side: usize) -> bool {
    match p.cq[side].poll_cq(&mut [Wc::default()]) {
        Ok(n) => n == 1,
        Err(error) => {
            assert!(matches!(error, PollError::UnknownQueue { .. }), "{error:?}");
            false
        }
    }
}

/// The memory of a request that is over is the caller's again, and there is none at a place where nothing was posted.
#[test]
fn an_entry_that_comes_again_or_names_no_request_writes_nothing() {
    let mut p = allowing(64, SIZES);
    let entries = Entries::of(&p.port, &p.cq[1]);
    empty_message(&mut p, 7);
    entries.put(0, 1, &bytes(1, 16), 16);
    assert_success(&next(&mut p, 1), 7);
    assert_eq!(p.bytes(1, 100, 16), bytes(1, 16));
    fill(&p);
    for (n, counter) in [(1, 0), (2, 9), (3, 0xffff)] {
        empty_message(&mut p, 8);
        entries.put(n, 1, &bytes(2, 16), 16);
        entries.change(n, COUNTER.0, COUNTER.1, counter << 16);
        assert_eq!(is_told(&mut p, 1), n == 1, "place {counter}");
        assert!(untouched(&p, 1, &[]), "place {counter}");
    }
    // The same for answers.
    let (list, sends) = ([p.sge(0, 100, 8)], Entries::of(&p.port, &p.cq[0]));
    let opcode = WrOpcode::RdmaRead { remote: p.remote(1, 0) };
    let read = [SendWr { sg_list: &list, opcode, send_flags: SendFlags::SIGNALED, ..Default::default() }];
    for (n, counter) in [(4, None), (5, Some(4)), (6, Some(9)), (7, Some(0xffff))] {
        p.buf[1].write(0, &bytes(3, 8)).unwrap();
        p.qp[0].post_send(&read).unwrap();
        settle(&p);
        if let Some(counter) = counter {
            sends.change(n, COUNTER.0, COUNTER.1, counter << 16);
        }
        assert_eq!(is_told(&mut p, 0), n <= 5, "place {counter:?}");
        assert_eq!(untouched(&p, 0, &[]), counter.is_some(), "place {counter:?}");
        fill(&p);
    }
    p.end();
}

/// A batch that was forgotten comes again; its data is in place already and may be in use.
#[test]
fn a_completion_that_comes_again_after_a_forgotten_batch_is_not_copied_again() {
    let mut p = allowing(64, SIZES);
    let to = p.sge(1, 100, 16);
    post_recv(&mut p.qp[1], 7, &[to]);
    send_bytes(&mut p, 7, &bytes(1, 16));
    std::mem::forget(p.cq[1].start_poll(&PollAttr::default()).unwrap());
    assert_eq!(p.bytes(1, 100, 16), bytes(1, 16));
    fill(&p);
    assert_success(&next(&mut p, 1), 7);
    assert!(untouched(&p, 1, &[]));
    next(&mut p, 0);
    p.end();
}

/// What a reset marks is dropped; a device that writes the mark itself, before the reset or after it, cannot take a request's
/// completion away.
#[test]
fn a_mark_counts_only_for_entries_that_were_there_at_the_reset() {
    let mut p = allowing(128, QpCap { max_recv_wr: 64, ..SIZES });
    let entries = Entries::of(&p.port, &p.cq[1]);
    let (mut n, slots) = (0, u64::from(p.cq[1].cqe()) + 1);
    for round in 0..2 * slots / 4 {
        for wr_id in [round, round + 1] {
            empty_message(&mut p, wr_id);
            entries.put(n, 2, &[], u32::MAX);
            let wc = next(&mut p, 1);
            assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::LOC_LEN_ERR), "entry {n}");
            n += 1;
        }
        (0..2).for_each(|_| empty_message(&mut p, 7));
        n += 2;
        let peer = p.qp[0].qp_num();
        p.qp[1].reset(mlx5::ExclusiveCqs::Same(&mut p.cq[1])).unwrap();
        p.qp[0].reset(mlx5::ExclusiveCqs::Same(&mut p.cq[0])).unwrap();
        assert_eq!(p.cq[1].poll_cq(&mut [Wc::default(); 4]), Ok(0));
        let own = p.qp[1].qp_num();
        crate::support::connect(&p.dev, &mut p.qp[1], peer);
        crate::support::connect(&p.dev, &mut p.qp[0], own);
    }
    p.end();
}

/// The places of a queue that was reset hold nothing any more, whatever stood in them.
#[test]
fn lists_of_before_a_reset_are_forgotten() {
    let mut p = allowing(64, SIZES);
    let list = [p.sge(1, 100, 16)];
    p.qp[1].post_recv(&[RecvWr { wr_id: 1, sg_list: &list }; 8]).unwrap();
    let peer = p.qp[0].qp_num();
    p.qp[1].reset(mlx5::ExclusiveCqs::Same(&mut p.cq[1])).unwrap();
    crate::support::connect(&p.dev, &mut p.qp[1], peer);
    let entries = Entries::of(&p.port, &p.cq[1]);
    for n in 0..3 {
        post_recv(&mut p.qp[1], 2, &[]);
        send_bytes(&mut p, 2, &[]);
        entries.put(n, 1, &bytes(2, 16), 16);
        entries.change(n, COUNTER.0, COUNTER.1, (n as u32 + 4) << 16);
        assert!(!is_told(&mut p, 1));
        assert!(untouched(&p, 1, &[]));
        next(&mut p, 0);
    }
    p.end();
}
