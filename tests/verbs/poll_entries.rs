//! Entries that end no request of ours: each is told as what it is, once, or passed over in silence; what lies before and
//! behind it is delivered.

use mlx5::{Cq, ExclusiveCqs, PollError, SigErr, Wc};

use crate::cq_semantics::{POLL, Ring, complete, ids};
use crate::support::{Pair, pair};

/// Polls five completions of which the middle one became something else, by `poll_cq` and then by a poller; what each told.
fn around(p: &mut Pair, change: impl Fn(&Ring, u64)) -> [Vec<PollError>; 2] {
    let ring = Ring::of(&p.port, &p.cq[0]);
    let mut told = [vec![], vec![]];
    for (way, told) in told.iter_mut().enumerate() {
        let at = ring.consumer();
        complete(p, 0, 5);
        change(&ring, u64::from(at) + 2);
        let got = if way == 0 { by_poll_cq(&mut p.cq[0], told) } else { by_poller(&mut p.cq[0], told) };
        assert_eq!(got, [0, 1, 3, 4]);
        assert_eq!(ring.consumer(), at + 5, "all of them count");
        assert_eq!(ids(&mut p.cq[1]).len(), 5);
    }
    told
}

fn by_poll_cq(cq: &mut Cq, told: &mut Vec<PollError>) -> Vec<u64> {
    let (mut wcs, mut got) = ([Wc::default(); 8], vec![]);
    loop {
        match cq.poll_cq(&mut wcs) {
            Ok(0) => return got,
            Ok(n) => got.extend(wcs[..n].iter().map(|wc| wc.wr_id)),
            Err(error) => told.push(error),
        }
    }
}

fn by_poller(cq: &mut Cq, told: &mut Vec<PollError>) -> Vec<u64> {
    let mut poller = cq.start_poll(&POLL).unwrap();
    let mut got = vec![poller.completion().wr_id()];
    loop {
        match poller.next() {
            Ok(c) => got.push(c.wr_id()),
            Err(PollError::Empty) => return got,
            Err(error) => told.push(error),
        }
    }
}

/// Both ways told one error, this one.
fn both_told(told: &[Vec<PollError>; 2], is_right: impl Fn(PollError) -> bool) {
    assert!(told.iter().all(|told| told.len() == 1 && is_right(told[0])), "{told:?}");
}

fn opcode(number: u32) -> impl Fn(&Ring, u64) {
    move |ring, n| ring.change(n, 15, 0xf0, number << 4)
}

#[test]
fn the_last_entry_of_a_resized_ring_is_passed_over_in_silence() {
    let mut p = pair();
    assert!(around(&mut p, opcode(5)).iter().all(Vec::is_empty));
    p.end();
}

/// PRM `sig_err_cqe`; what its numbers mean is libmlx5's: guard and application tag above the reference tag.
#[test]
fn a_signature_error_names_its_memory_key_and_loses_no_completion() {
    let mut p = pair();
    let told = around(&mut p, |ring, n| {
        for (word, value) in [
            (4, 0xabcd_0001),
            (5, 0xabce_0002),
            (6, 7),
            (7, 8),
            // The low 24 bits, where else the user index is: those of a queue that exists.
            (8, 0x2000 << 16),
            (9, 0x0012_3456),
            (10, 0x11),
            (11, 0x2200),
        ] {
            ring.change(n, word, u32::MAX, value);
        }
        ring.change(n, 15, 0xf0, 0xc0);
    });
    let error = SigErr {
        sig_type: 0,
        domain: 0,
        syndrome: 0x2000,
        expected: 0xabcd_0001_0000_0007,
        actual: 0xabce_0002_0000_0008,
        offset: 0x11_0000_2200,
        mkey: 0x12_3456,
    };
    both_told(&told, |e| e == PollError::Signature(error));
    assert_eq!(PollError::Signature(error).errno(), 5);
    p.end();
}

#[test]
fn an_entry_of_a_tag_list_is_told_as_no_queue_has_one() {
    let mut p = pair();
    let told = around(&mut p, |ring, n| {
        ring.change(n, 10, 0xffff << 16, 0x0105 << 16);
        ring.change(n, 15, 0xf0, 0x60);
    });
    both_told(&told, |e| matches!(e, PollError::NoTagList { app_op: 5, .. }));
    p.end();
}

#[test]
fn opcodes_that_nothing_has_are_told() {
    let mut p = pair();
    for number in 7..12 {
        let told = around(&mut p, opcode(number));
        both_told(&told, |e| matches!(e, PollError::UnknownOpcode { opcode, .. } if u32::from(opcode) == number));
    }
    // Of send requests: NOP, TSO, masked atomics, SET_PSV, GET_PSV, UMR, and two without a name.
    for number in [0x00, 0x0e, 0x14, 0x15, 0x20, 0x21, 0x25, 0x07, 0xff] {
        let told = around(&mut p, |ring, n| ring.change(n, 14, 0xff << 24, number << 24));
        both_told(
            &told,
            |e| matches!(e, PollError::UnknownOpcode { opcode: 0, send_opcode, .. } if u32::from(send_opcode) == number),
        );
    }
    p.end();
}

#[test]
fn an_entry_of_a_queue_that_nobody_knows_is_told() {
    let mut p = pair();
    // The last one is no queue's: to firmware it means that there is none.
    for index in [0x40, 0xff_fffe, 0xff_ffff] {
        let told = around(&mut p, |ring, n| ring.change(n, 8, 0xff_ffff, index));
        both_told(&told, |e| matches!(e, PollError::UnknownQueue { user_index, .. } if user_index == index));
    }
    p.end();
}

/// The error that `poll_cq` found behind good entries comes from whatever polls next, before anything else, and once.
#[test]
fn an_error_that_waits_comes_first_and_once_from_either_way_of_polling() {
    let mut p = pair();
    let ring = Ring::of(&p.port, &p.cq[0]);
    for round in 0..4_u64 {
        complete(&mut p, 0, 5);
        ring.change(5 * round + 2, 15, 0xf0, 0x70);
        assert_eq!(ids(&mut p.cq[0]), [0, 1]);
        // Of no use to those who ask wrongly or for nothing: they get what they would have got.
        assert_eq!(p.cq[0].start_poll(&mlx5::PollAttr { comp_mask: 1 }).err(), Some(PollError::InvalidAttr));
        assert_eq!(p.cq[0].poll_cq(&mut []), Ok(0));
        let error = if round % 2 == 0 {
            p.cq[0].start_poll(&POLL).map(drop).unwrap_err()
        } else {
            p.cq[0].poll_cq(&mut [Wc::default()]).unwrap_err()
        };
        assert!(matches!(error, PollError::UnknownOpcode { opcode: 7, .. }));
        let poller = p.cq[0].start_poll(&POLL).unwrap();
        assert_eq!(poller.completion().wr_id(), 3);
        drop(poller);
        assert_eq!(ids(&mut p.cq[0]), [4]);
        ids(&mut p.cq[1]);
    }
    p.end();
}

/// A reset drops its queue's entries, and no other that has the same number where those have the user index.
#[test]
fn a_reset_drops_no_entry_that_ends_no_request() {
    let mut p = pair();
    complete(&mut p, 0, 4);
    let ring = Ring::of(&p.port, &p.cq[0]);
    ring.change(1, 15, 0xf0, 0xc0);
    ring.change(2, 15, 0xf0, 0x60);
    ring.change(3, 15, 0x0c, 0x0c);
    let [cq, _] = &mut p.cq;
    p.qp[0].reset(ExclusiveCqs::Same(cq)).unwrap();
    let mut told = vec![];
    assert!(by_poll_cq(cq, &mut told).is_empty());
    let right: [fn(PollError) -> bool; 3] = [
        |e| matches!(e, PollError::Signature(_)),
        |e| matches!(e, PollError::NoTagList { .. }),
        |e| matches!(e, PollError::BadSession { .. }),
    ];
    assert!(told.len() == 3 && told.iter().zip(right).all(|(e, is_right)| is_right(*e)), "{told:?}");
    p.poll(1, 4);
    p.end();
}

#[test]
fn a_session_on_a_queue_without_compression_is_told() {
    let mut p = pair();
    let told = around(&mut p, |ring, n| {
        ring.change(n, 11, u32::MAX, 9);
        ring.change(n, 15, 0xc, 0xc);
    });
    both_told(&told, |e| matches!(e, PollError::BadSession { count: 9, .. }));
    p.end();
}
