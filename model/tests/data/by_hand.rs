//! Entries and sessions that a test writes into a queue by hand.

use mlx5_model::CqeBytes;

use crate::raw::{get, load, store32};
use crate::rdma::{CqWish, Rdma};
use crate::squeeze::{BASIC, ENHANCED, Form, compressed, slot, squeeze, untouched};

fn ramp(from: u8) -> [u8; 64] {
    core::array::from_fn(|i| from.wrapping_add(i as u8))
}

#[test]
fn an_entry_by_hand_is_as_it_is_but_for_its_owner_bit() {
    let rdma = Rdma::up();
    let mut cq = rdma.cq(CqWish { log_size: 1, entry: 64, ignore_overrun: false });
    for n in 0..6_u8 {
        let mut raw = ramp(n);
        raw[63] = 0x20 | n & 1 ^ 1; // the wrong owner, now and then
        assert!(rdma.raw.model.inject_cqe(cq.cqn, raw));
        let mut right = raw;
        right[63] = 0x20 | n >> 1 & 1;
        assert_eq!(rdma.poll(&mut cq), right);
    }
    rdma.assert_clean();
}

#[test]
fn in_a_queue_that_counts_laps_byte_62_is_put_in() {
    let rdma = Rdma::up();
    let mut cq = compressed(&rdma, Form { log_size: 1, ..ENHANCED });
    for n in 0..6_u8 {
        assert!(rdma.raw.model.inject_cqe(cq.cqn, ramp(n)));
        let slot = load(&cq.mem, 64 * usize::from(n & 1), 64);
        assert_eq!(slot[..62], ramp(n)[..62]);
        assert_eq!((slot[62], slot[63]), (n >> 1, ramp(n)[63] & !1));
        cq.ci += 1;
        store32(&cq.record, 0, cq.ci);
    }
    rdma.assert_clean();
}

#[test]
fn the_first_half_is_the_tests_or_the_paddings_or_stays() {
    let rdma = Rdma::up();
    let halves = CqeBytes { descriptor: ramp(1), first_half: Some(ramp(100)) };
    let plain = CqWish { log_size: 1, entry: 128, ignore_overrun: false };
    let padded = |cqc: &mut [u8]| crate::raw::put(cqc, 8, 3, 2);
    for (cq, without) in [(rdma.cq(plain), [0xee; 64]), (rdma.cq_as(plain, padded), [0; 64])] {
        assert!(rdma.raw.model.inject_cqe(cq.cqn, halves));
        assert!(rdma.raw.model.inject_cqe(cq.cqn, ramp(1)));
        assert_eq!((load(&cq.mem, 0, 64), load(&cq.mem, 128, 64)), (ramp(100).to_vec(), without.to_vec()));
    }
    let small = rdma.cq(CqWish { entry: 64, ..plain });
    assert!(rdma.raw.model.inject_cqe(small.cqn, halves));
    assert_eq!(load(&small.mem, 0, 62), ramp(1)[..62], "no room for the half: it is left out");
    assert_eq!(untouched(&small), [1]);
}

#[test]
fn an_entry_by_hand_overruns_and_raises_events_like_any_other() {
    let mut rdma = Rdma::up();
    let cq = rdma.cq(CqWish { log_size: 1, entry: 64, ignore_overrun: false });
    rdma.arm(&cq, 0, true);
    assert!(rdma.raw.model.inject_cqe(cq.cqn, [0; 64]));
    assert!(rdma.comp_eq.take().is_none(), "not solicited");
    let mut error = [0; 64];
    error[63] = 0xd0;
    assert!(rdma.raw.model.inject_cqe(cq.cqn, error));
    assert!(rdma.comp_eq.take().is_some());
    assert!(!rdma.raw.model.inject_cqe(cq.cqn, error));
    let event = rdma.async_eq.take().unwrap();
    assert_eq!((event[1], get(&event, 0x21 * 8, 24), event[0x2b]), (4, cq.cqn.into(), 1));
    assert!(!rdma.raw.model.inject_cqe(0xabc, error), "no such queue");
}

#[test]
fn a_session_by_hand_has_the_bytes_of_the_test() {
    let rdma = Rdma::up();
    let cq = compressed(&rdma, BASIC);
    let minis: Vec<[u8; 8]> = (0..9).map(|n| [n, 1, 2, 3, 4, 5, 6, 7]).collect();
    let mut title = ramp(0);
    title[63] = 0x22;
    assert!(rdma.raw.model.inject_session(cq.cqn, Some(title), &minis));
    let mut right = title;
    right[44..48].copy_from_slice(&[0, 0, 0, 9]);
    right[63] = 0x2e;
    assert_eq!(load(&cq.mem, 0, 64), right);
    assert_eq!(load(&cq.mem, 64, 64), minis[..8].concat());
    assert_eq!(load(&cq.mem, 8 * 64, 8), minis[8]);
    assert_eq!(untouched(&cq), (2..8).chain(9..32).collect::<Vec<_>>());
    assert!(rdma.raw.model.inject_cqe(cq.cqn, title));
    assert_eq!(load(&cq.mem, 9 * 64, 63), title[..63], "behind the session's nine slots");
}

#[test]
fn blocks_by_hand_follow_a_title_or_the_last_one() {
    let rdma = Rdma::up();
    let cq = compressed(&rdma, ENHANCED);
    let minis: Vec<[u8; 8]> = (0..9).map(|n| [n, 1, 2, 3, 4, 5, 6, 7]).collect();
    let mut title = ramp(0);
    title[63] = 0x20;
    assert!(rdma.raw.model.inject_session(cq.cqn, Some(title), &minis));
    assert!(rdma.raw.model.inject_session(cq.cqn, None, &minis[..1]));
    assert_eq!(load(&cq.mem, 0, 62), title[..62]);
    assert_eq!(load(&cq.mem, 62, 2), [0, 0x20]);
    assert_eq!(load(&cq.mem, 64, 56), minis[..7].concat());
    assert_eq!([8, 10].map(|at| load(&cq.mem, 64 * at, 8)), [minis[7].to_vec(), minis[0].to_vec()]);
    assert_eq!([1, 8, 10].map(|at| load(&cq.mem, 64 * at + 62, 2)), [[0, 0x6c], [0, 0x1c], [0, 0x0c]]);
    assert!(slot(&cq, 9).starts_with("eeee"));
}

#[test]
fn the_devices_own_blocks_do_not_follow_an_entry_by_hand() {
    let mut s = squeeze(ENHANCED);
    s.burst(1);
    assert!(s.rdma.raw.model.inject_cqe(s.recv.cqn, ramp(0)));
    s.burst(1);
    assert_eq!(load(&s.recv.mem, 2 * 64 + 62, 2), [0, 0x20], "a title of its own");
}

#[test]
fn a_session_by_hand_that_cannot_be_is_refused() {
    let rdma = Rdma::up();
    let plain = rdma.cq(CqWish { log_size: 4, entry: 64, ignore_overrun: true });
    let (basic, enhanced) = (
        compressed(&rdma, Form { log_size: 2, ignore_overrun: true, ..BASIC }),
        compressed(&rdma, Form { log_size: 2, ignore_overrun: true, ..ENHANCED }),
    );
    let model = &rdma.raw.model;
    let title = Some([0; 64]);
    assert!(!model.inject_session(plain.cqn, title, &[[0; 8]; 2]), "not compressed");
    assert!(!model.inject_session(basic.cqn, None, &[[0; 8]; 2]), "no title");
    assert!(!model.inject_session(basic.cqn, title, &[[0; 8]; 1]), "one is none");
    assert!(!model.inject_session(basic.cqn, title, &[[0; 8]; 5]), "more than the ring");
    assert!(!model.inject_session(enhanced.cqn, title, &[[0; 8]; 4]));
    assert!(model.inject_session(basic.cqn, title, &[[0; 8]; 4]));
    assert!(model.inject_session(enhanced.cqn, title, &[[0; 8]; 3]));
    rdma.assert_clean();
}
