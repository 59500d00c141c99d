//! Sessions of the enhanced layout, byte for byte.

use mlx5_model::CapConfig;

use crate::qp::QpWish;
use crate::raw::load;
use crate::rdma::{Cq, LW, Rdma};
use crate::squeeze::{ENHANCED, FTAG, Form, SEND, SEND_IMM, compressed, slot, squeeze, squeeze_with, untouched};
use crate::wqe::{inline, signalled};

/// Trailer of a block: minis, lap.
fn tail(minis: u8, lap: u8) -> String {
    format!("5a5a5a5a5a5a{lap:02x}{:02x}", (minis - 1) << 4 | 0xc)
}

/// The last two bytes of an entry: lap, opcode and format.
fn mark(cq: &Cq, index: usize) -> [u8; 2] {
    load(&cq.mem, (index + 1) * cq.wish.entry - 2, 2).try_into().unwrap()
}

const FREE: &str = "5a5a5a5a5a5a5a5a";

#[test]
fn a_plain_entry_is_the_title_of_the_blocks_behind_it() {
    let mut s = squeeze(ENHANCED);
    s.burst(2);
    assert_eq!(mark(&s.recv, 0), [0, 0x20], "a completion of its own");
    assert_eq!(load(&s.recv.mem, 44, 4), [0, 0, 0, 1], "with its own byte count");
    let free = [FREE; 6].join(" ");
    assert_eq!(slot(&s.recv, 1), format!("c0de000100000002 {free} {}", tail(1, 0)));
    assert_eq!(untouched(&s.recv), (2..32).collect::<Vec<_>>());
    s.rdma.assert_clean();
}

#[test]
fn a_block_has_up_to_seven_minis_and_takes_as_many_slots() {
    let minis =
        |from: usize, to: usize| (from..to).map(|n| format!("c0de{n:04x}000000{:02x}", n + 1)).collect::<Vec<_>>();
    let mut s = squeeze(ENHANCED);
    s.burst(8);
    assert_eq!(slot(&s.recv, 1), format!("{} {}", minis(1, 8).join(" "), tail(7, 0)));
    assert_eq!(untouched(&s.recv), (2..32).collect::<Vec<_>>());
    let mut s = squeeze(ENHANCED);
    s.burst(9);
    assert_eq!(slot(&s.recv, 1), format!("{} {}", minis(1, 8).join(" "), tail(7, 0)));
    assert_eq!(slot(&s.recv, 8), format!("{} {} {}", minis(8, 9).join(" "), [FREE; 6].join(" "), tail(1, 0)));
    assert_eq!(untouched(&s.recv), (2..8).chain(9..32).collect::<Vec<_>>());
    s.rdma.assert_clean();
}

#[test]
fn a_title_holds_for_later_blocks_as_long_as_completions_of_its_queue_follow() {
    let mut s = squeeze(ENHANCED);
    s.burst(3);
    s.burst(1);
    let free = [FREE; 6].join(" ");
    assert_eq!(slot(&s.recv, 3), format!("c0de000300000001 {free} {}", tail(1, 0)));
    s.post(&[(SEND_IMM, 8, 7, inline(b"x")), (SEND, 8, 0, inline(b"y")), (SEND, 8, 0, inline(b"z"))]);
    assert_eq!([mark(&s.recv, 4), mark(&s.recv, 5)], [[0, 0x30], [0, 0x20]], "whole again");
    assert_eq!(slot(&s.recv, 6), format!("c0de000600000001 {free} {}", tail(1, 0)));
    s.rdma.assert_clean();
}

#[test]
fn a_title_holds_no_longer_than_the_timeout_nor_for_more_than_the_limit() {
    let mut s = squeeze(ENHANCED);
    s.burst(2);
    s.rdma.raw.model.step(17_000);
    s.burst(2);
    assert_eq!(mark(&s.recv, 2), [0, 0x20], "17 of 16 us have passed");
    let mut s = squeeze_with(CapConfig { cqe_compression_max_num: 5, ..CapConfig::default() }, ENHANCED);
    s.burst(12);
    assert_eq!([0, 1, 5, 6, 10, 11].map(|at| mark(&s.recv, at)[1]), [0x20, 0x3c, 0x20, 0x3c, 0x20, 0x0c]);
}

#[test]
fn a_reset_queue_pair_begins_with_a_title() {
    let caps = CapConfig { cqe_compression_timeout: u16::MAX, ..CapConfig::default() };
    let mut s = squeeze_with(caps, ENHANCED);
    s.burst(2);
    s.rdma.leave(0x50a, &s.a);
    s.rdma.leave(0x50a, &s.b);
    s.rdma.connect(&s.a, &s.b);
    (s.a.sq, s.b.rq) = (0, 0);
    for qp in [&s.a, &s.b] {
        crate::raw::store(&qp.record, 0, &[0; 8]);
    }
    s.burst(1);
    assert_eq!((mark(&s.send, 2), mark(&s.recv, 2)), ([0, 0], [0, 0x20]));
    s.rdma.assert_clean();
}

/// Its format bits say where the data is, and the minis behind it would say the same.
#[test]
fn an_entry_with_data_in_it_is_no_title() {
    let rdma = Rdma::up();
    let (send, recv) = (compressed(&rdma, ENHANCED), compressed(&rdma, ENHANCED));
    // cs_res 1: up to 32 bytes.
    let (mut a, mut b) = rdma.pair(QpWish { scatter_res: 1, ..QpWish::default() }, &send, &recv);
    let to = rdma.register(4096, 0, LW);
    for (n, len) in [8, 33, 33].into_iter().enumerate() {
        rdma.recv(&mut b, &[to.seg(0, 64)]);
        rdma.send(&mut a, signalled(&inline(&vec![7; len])));
        assert_eq!(mark(&recv, n)[1], [0x24, 0x20, 0x0c][n], "{len} bytes");
    }
    rdma.assert_clean();
}

#[test]
fn byte_62_counts_laps_and_the_owner_bit_stays_0() {
    let mut s = squeeze(Form { log_size: 2, ..ENHANCED });
    s.rdma.raw.model.set_session_limit(3);
    for lap in 0..600_u32 {
        s.rdma.raw.model.step(20_000); // no title holds any more
        s.burst(3);
        s.burst(1);
        let tags = [mark(&s.recv, 0), mark(&s.recv, 1), mark(&s.recv, 3)];
        assert_eq!(tags, [[lap as u8, 0x20], [lap as u8, 0x1c], [lap as u8, 0x20]], "lap {lap}");
        s.consumed(4 * (lap + 1));
    }
    s.rdma.assert_clean();
}

#[test]
fn blocks_know_requesters_flow_tags_and_128_bytes() {
    let mut s = squeeze(Form { minis: FTAG, entry: 128, ..ENHANCED });
    s.burst(3);
    let free = [FREE; 5].join(" ");
    assert_eq!(slot(&s.send, 1), format!("00010a0000000002 00020a0000000003 {free} {}", tail(2, 0)));
    assert_eq!(slot(&s.recv, 1), format!("0041000100000002 0041000200000003 {free} {}", tail(2, 0)));
    assert_eq!(load(&s.recv.mem, 128, 64), [0xee; 64]);
}

#[test]
fn a_queue_that_ignores_overruns_gets_blocks_no_longer_than_it_is() {
    let mut s = squeeze(Form { log_size: 2, ignore_overrun: true, ..ENHANCED });
    s.burst(9);
    // Title and three on each lap, then a title of lap 2 alone.
    assert_eq!([mark(&s.recv, 0), mark(&s.recv, 1)], [[2, 0x20], [1, 0x2c]]);
    s.rdma.assert_clean();
}
