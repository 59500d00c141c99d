//! One-sided operations: what is written, read and counted at the peer, and what each side is told.

use std::sync::atomic::Ordering;

use crate::support::{BUF, Pair, SIZES, create_qp, open, open_with, pair, pair_with, path_to, pattern};
use mlx5::hw::cmd::{CreateMkey, DestroyMkey};
use mlx5::hw::mkc::{AccessMode, Mkc};
use mlx5::{
    AccessFlags, AtomicCap, PollAttr, QpAttr, QpCap, QpState, RecvWr, SendFlags, SendWr, Sge, Wc, WcOpcode,
    WcResultFlags, WcStatus, WrOpcode, ibv,
};
use mlx5_model::{CapConfig, ModelConfig};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

impl Pair {
    /// Side 0 posts one request and gets its completion.
    fn run(&mut self, opcode: WrOpcode, sg_list: &[Sge], flags: SendFlags) -> Wc {
        self.qp[0].post_send(&[SendWr { wr_id: 7, sg_list, opcode, send_flags: flags, ..Default::default() }]).unwrap();
        self.poll(0, 1)[0]
    }
}

fn good(wc: &Wc, opcode: WcOpcode) {
    assert_eq!((wc.wr_id, wc.status, wc.opcode, wc.vendor_err), (7, WcStatus::SUCCESS, opcode, 0));
}

#[test]
fn a_write_of_any_size_lands_where_it_was_sent_and_nobody_is_told() {
    let mut p = pair();
    for (i, length) in [0, 1, 3, 4, 63, 1023, 1024, 1025, 4096, 40_000].into_iter().enumerate() {
        let (from, to) = (11 * i, 1000 + 13 * i);
        let data = pattern(i as u64, length);
        p.buf[0].write(from, &data).unwrap();
        p.buf[1].write(0, &vec![0xee; BUF]).unwrap();
        let opcode = WrOpcode::RdmaWrite { remote: p.remote(1, to) };
        let list = [p.sge(0, from, length / 3), p.sge(0, from + length / 3, length - length / 3)];
        good(&p.run(opcode, &list, SIGNALED), WcOpcode::RDMA_WRITE);
        let mut right = vec![0xee; BUF];
        right[to..to + length].copy_from_slice(&data);
        assert!(p.bytes(1, 0, BUF) == right, "{length} bytes");
    }
    assert_eq!(p.cq[1].poll_cq(&mut [Wc::default()]), Ok(0));
    p.end();
}

#[test]
fn a_write_may_be_inlined() {
    let mut p = pair();
    for length in [1, 4, 11, 28, 64] {
        let data = pattern(length as u64, length);
        let opcode = WrOpcode::RdmaWrite { remote: p.remote(1, length) };
        let send_flags = SendFlags::INLINE | SIGNALED;
        p.qp[0]
            .post_send(&[SendWr { wr_id: 7, inline_data: &data, opcode, send_flags, ..Default::default() }])
            .unwrap();
        good(&p.poll(0, 1)[0], WcOpcode::RDMA_WRITE);
        assert_eq!(p.bytes(1, length, length), data);
    }
    p.end();
}

#[test]
fn a_write_with_immediate_data_uses_up_a_receive_that_needs_no_memory() {
    let mut p = pair();
    let data = pattern(3, 5000);
    p.buf[0].write(0, &data).unwrap();
    p.qp[1].post_recv(&[RecvWr { wr_id: 21, sg_list: &[] }]).unwrap();
    let opcode = WrOpcode::RdmaWriteWithImm { remote: p.remote(1, 100), imm_data: 0x0102_0304_u32.to_be() };
    let list = [p.sge(0, 0, 5000)];
    let s = p.run(opcode, &list, SIGNALED | SendFlags::SOLICITED);
    good(&s, WcOpcode::RDMA_WRITE);
    assert_eq!((s.imm(), s.byte_len), (None, 0));
    let r = p.poll(1, 1)[0];
    assert_eq!((r.wr_id, r.status, r.opcode), (21, WcStatus::SUCCESS, WcOpcode::RECV_RDMA_WITH_IMM));
    assert_eq!((r.byte_len, r.imm(), r.flags()), (5000, Some(0x0102_0304), WcResultFlags::WITH_IMM));
    assert_eq!(r.qp_num, p.qp[1].qp_num());
    assert!(p.bytes(1, 100, 5000) == data);
    p.end();
}

#[test]
fn a_read_of_any_size_is_scattered_to_its_pieces() {
    let mut p = pair();
    for (i, length) in [0, 1, 5, 64, 1024, 1025, 30_000].into_iter().enumerate() {
        let (from, to) = (17 * i, 2000 + 19 * i);
        let data = pattern(i as u64, length);
        p.buf[1].write(from, &data).unwrap();
        p.buf[0].write(0, &vec![0xee; BUF]).unwrap();
        let opcode = WrOpcode::RdmaRead { remote: p.remote(1, from) };
        let gap = 100;
        let list = [p.sge(0, to, length / 2), p.sge(0, to + length / 2 + gap, length - length / 2)];
        let wc = p.run(opcode, &list, SIGNALED);
        good(&wc, WcOpcode::RDMA_READ);
        assert_eq!(wc.byte_len as usize, length);
        let mut right = vec![0xee; BUF];
        right[to..to + length / 2].copy_from_slice(&data[..length / 2]);
        right[to + length / 2 + gap..to + length + gap].copy_from_slice(&data[length / 2..]);
        assert!(p.bytes(0, 0, BUF) == right, "{length} bytes");
    }
    assert_eq!(p.cq[1].poll_cq(&mut [Wc::default()]), Ok(0), "the peer is not told");
    p.end();
}

/// Values and results are numbers of the host, as with Linux, which sets the device so (`atomic_req_8B_endianness_mode`).
#[test]
fn atomics_give_the_old_number_and_change_the_peers() {
    let mut p = pair();
    let at = 64;
    let start = 0x0102_0304_0506_0708_u64;
    p.buf[1].write(at, &start.to_ne_bytes()).unwrap();
    let remote = p.remote(1, at);
    let cas = |compare, swap| WrOpcode::AtomicCmpAndSwp { remote, compare, swap };
    let add = |add| WrOpcode::AtomicFetchAndAdd { remote, add };
    // Operation, what it finds, what it leaves.
    let steps = [
        (cas(start + 1, 5), start, start),
        (cas(start, u64::MAX - 1), start, u64::MAX - 1),
        (add(3), u64::MAX - 1, 1),
        (add(0), 1, 1),
        (add(1 << 63), 1, (1 << 63) + 1),
        (cas((1 << 63) + 1, 0x1122_3344_5566_7788), (1 << 63) + 1, 0x1122_3344_5566_7788),
    ];
    for (opcode, old, new) in steps {
        let list = [p.sge(0, 8, 8)];
        let wc = p.run(opcode, &list, SIGNALED);
        let kind = if matches!(opcode, WrOpcode::AtomicFetchAndAdd { .. }) {
            WcOpcode::FETCH_ADD
        } else {
            WcOpcode::COMP_SWAP
        };
        good(&wc, kind);
        assert_eq!(wc.byte_len, 8);
        assert_eq!(p.bytes(0, 8, 8), old.to_ne_bytes(), "{opcode:?}: what was there");
        assert_eq!(p.bytes(1, at, 8), new.to_ne_bytes(), "{opcode:?}: what is there");
    }
    p.end();
}

#[test]
fn the_iterator_tells_of_each_operation_what_the_array_tells() {
    let mut p = pair();
    let remote = p.remote(1, 0);
    p.qp[1].post_recv(&[RecvWr { wr_id: 1, sg_list: &[] }]).unwrap();
    let list = [p.sge(0, 0, 8)];
    let wr = |opcode| SendWr {
        wr_id: 7,
        sg_list: &list,
        opcode,
        send_flags: SIGNALED | SendFlags::FENCE,
        ..Default::default()
    };
    p.qp[0]
        .post_send(&[
            wr(WrOpcode::RdmaWrite { remote }),
            wr(WrOpcode::RdmaRead { remote }),
            wr(WrOpcode::AtomicCmpAndSwp { remote, compare: 1, swap: 1 }),
            wr(WrOpcode::AtomicFetchAndAdd { remote, add: 1 }),
            wr(WrOpcode::RdmaWriteWithImm { remote, imm_data: 9 }),
        ])
        .unwrap();
    p.port.model.step(1_000_000);
    let right = [
        (WcOpcode::RDMA_WRITE, None),
        (WcOpcode::RDMA_READ, Some(8)),
        (WcOpcode::COMP_SWAP, Some(8)),
        (WcOpcode::FETCH_ADD, Some(8)),
        (WcOpcode::RDMA_WRITE, None),
    ];
    let mut poller = p.cq[0].start_poll(&PollAttr::default()).unwrap();
    for (i, (opcode, byte_len)) in right.into_iter().enumerate() {
        let c = if i == 0 { poller.completion() } else { poller.next().unwrap() };
        assert_eq!((c.status(), c.opcode(), c.byte_len()), (WcStatus::SUCCESS, Some(opcode), byte_len));
        assert_eq!((c.imm_data(), c.invalidated_rkey(), c.wc_flags()), (None, None, WcResultFlags::empty()));
        assert_eq!(c.to_wc().opcode, opcode);
    }
    drop(poller);
    let poller = p.cq[1].start_poll(&PollAttr::default()).unwrap();
    let c = poller.completion();
    assert_eq!((c.opcode(), c.byte_len(), c.imm_data()), (Some(WcOpcode::RECV_RDMA_WITH_IMM), Some(8), Some(9)));
    assert_eq!((c.invalidated_rkey(), c.wc_flags()), (None, WcResultFlags::WITH_IMM));
    drop(poller);
    p.end();
}

/// A key that its owner lets peers invalidate (PRM `mkc.en_rinval`): verbs make them for memory windows only.
#[test]
fn a_send_with_invalidate_ends_a_key_that_allows_it_and_names_it() {
    let mut p = pair();
    let start = p.buf[1].addr();
    let mkc = Mkc::new()
        .with_lr(true)
        .with_lw(true)
        .with_rr(true)
        .with_rw(true)
        .with_umr_en(true)
        .with_en_rinval(true)
        .with_access_mode(AccessMode::MTT)
        .with_qpn(0xff_ffff)
        .with_mkey_7_0(0x5a)
        .with_pd(p.pd.pdn())
        .with_start_addr(start)
        .with_len(4096)
        .with_translations_octword_size(1)
        .with_log_page_size(12);
    // SAFETY: the key names a page of a buffer that outlives it.
    let index = unsafe { p.dev.general_cmd(&CreateMkey { mkc, translations: &[p.port.iova(start)] }) }.unwrap();
    let rkey = index << 8 | 0x5a;
    p.qp[1].post_recv(&[RecvWr { wr_id: 1, sg_list: &[] }]).unwrap();
    good(&p.run(WrOpcode::SendWithInv { invalidate_rkey: rkey }, &[], SIGNALED), WcOpcode::SEND);
    let poller = p.cq[1].start_poll(&PollAttr::default()).unwrap();
    let c = poller.completion();
    assert_eq!((c.opcode(), c.invalidated_rkey(), c.imm_data()), (Some(WcOpcode::RECV), Some(rkey), None));
    assert_eq!((c.wc_flags(), c.to_wc().imm_data), (WcResultFlags::WITH_INV, rkey));
    drop(poller);
    let list = [p.sge(0, 0, 8)];
    let wc = p.run(WrOpcode::RdmaWrite { remote: mlx5::Remote { addr: start, rkey } }, &list, SIGNALED);
    assert_eq!(wc.status, WcStatus::REM_ACCESS_ERR, "the key is gone");
    // SAFETY: nobody uses the key any more.
    unsafe { p.dev.general_cmd(&DestroyMkey { mkey_index: index }) }.unwrap();
    p.end();
}

/// `ibv_post_send(3)`; `_mlx5_post_send` of rdma-core: EOPNOTSUPP without atomics.
#[test]
fn posting_refuses_what_no_device_could_carry_out() {
    const EINVAL: i32 = 22;
    let mut p = pair();
    let remote = p.remote(1, 0);
    let (eight, four, none) = ([p.sge(0, 0, 8)], [p.sge(0, 0, 4)], [p.sge(0, 0, 0)]);
    let two = [p.sge(0, 0, 8), p.sge(0, 8, 8)];
    let read = WrOpcode::RdmaRead { remote };
    let cas = WrOpcode::AtomicCmpAndSwp { remote, compare: 0, swap: 0 };
    let add = WrOpcode::AtomicFetchAndAdd { remote, add: 0 };
    let wr = |opcode, sg_list| SendWr { opcode, sg_list, ..Default::default() };
    let inlined = |opcode| SendWr { opcode, inline_data: &[1; 8], send_flags: SendFlags::INLINE, ..Default::default() };
    for (bad, what) in [
        (inlined(read), "an inlined read"),
        (inlined(cas), "an inlined atomic"),
        (SendWr { inline_data: &[], ..inlined(add) }, "an inlined atomic without data"),
        (wr(cas, &[][..]), "no place for the answer"),
        (wr(add, &none), "an empty place for the answer"),
        (wr(add, &four), "too small a place for the answer"),
        (wr(cas, &two), "two places for the answer"),
    ] {
        let error = ibv::post_send(&mut p.qp[0], &[bad]).unwrap_err();
        assert_eq!((error.index, error.errno()), (0, EINVAL), "{what}");
    }
    good(&p.run(add, &eight, SIGNALED), WcOpcode::FETCH_ADD);
    p.end();
}

#[test]
fn a_device_without_atomics_says_so_everywhere() {
    const EOPNOTSUPP: i32 = 95;
    let caps = CapConfig { atomic: false, ..CapConfig::default() };
    let (port, dev) = open_with(ModelConfig { caps, ..ModelConfig::default() });
    assert_eq!(dev.query_device().atomic_cap, AtomicCap::None);
    let (pd, cq) = (dev.alloc_pd().unwrap(), dev.create_cq(7, 0, 0).unwrap());
    let mut qp = create_qp(&pd, &cq, &cq, SIZES);
    let attr = QpAttr { qp_state: QpState::Init, ..path_to(&dev, qp.qp_num()) };
    let steps = [
        (QpState::Init, crate::support::INIT),
        (QpState::Rtr, crate::support::RTR),
        (QpState::Rts, crate::support::RTS),
    ];
    let plain = QpAttr { qp_access_flags: AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE, ..attr };
    for (qp_state, mask) in steps {
        qp.modify(&QpAttr { qp_state, ..plain }, mask).unwrap();
    }
    let add = WrOpcode::AtomicFetchAndAdd { remote: mlx5::Remote::default(), add: 1 };
    let list = [Sge { length: 8, ..Default::default() }];
    let error = qp.post_send(&[SendWr { opcode: add, sg_list: &list, ..Default::default() }]).unwrap_err();
    assert_eq!(error.errno(), EOPNOTSUPP);
    let mut other = create_qp(&pd, &cq, &cq, SIZES);
    other.modify(&attr, crate::support::INIT).unwrap();
    let rtr = QpAttr { qp_state: QpState::Rtr, ..attr };
    assert_eq!(other.modify(&rtr, crate::support::RTR).map_err(|e| e.errno()), Err(EOPNOTSUPP));
    drop((qp, other, cq, pd));
    crate::support::close(&port, dev);
}

/// `enum ibv_wr_opcode` of `infiniband/verbs.h`.
#[test]
fn opcodes_have_the_numbers_of_the_verbs() {
    let remote = mlx5::Remote::default();
    let opcodes = [
        (WrOpcode::RdmaWrite { remote }, 0),
        (WrOpcode::RdmaWriteWithImm { remote, imm_data: 0 }, 1),
        (WrOpcode::Send, 2),
        (WrOpcode::SendWithImm { imm_data: 0 }, 3),
        (WrOpcode::RdmaRead { remote }, 4),
        (WrOpcode::AtomicCmpAndSwp { remote, compare: 0, swap: 0 }, 5),
        (WrOpcode::AtomicFetchAndAdd { remote, add: 0 }, 6),
        (WrOpcode::SendWithInv { invalidate_rkey: 0 }, 9),
    ];
    for (opcode, number) in opcodes {
        assert_eq!(opcode.number(), number, "{opcode:?}");
    }
    assert_eq!(WrOpcode::default().number(), 2);
}

/// The most of each size that creation promised, with each operation, as often as was promised.
#[test]
fn the_largest_requests_fit_as_often_as_promised() {
    for pieces in [0, 1, 2, 3, 6, 7] {
        let cap = QpCap { max_send_sge: pieces, max_send_wr: 4, max_inline_data: 0, ..SIZES };
        let mut p = pair_with(ModelConfig::default(), 63, cap, |d, n| d.create_cq(n, 0, 0).unwrap());
        let cap = p.qp[0].cap();
        let remote = p.remote(1, 0);
        let many: Vec<_> = (0..cap.max_send_sge as usize).map(|i| p.sge(0, 64 * i, 8)).collect();
        let one = [p.sge(0, 0, 8)];
        for (opcode, list) in [
            (WrOpcode::RdmaWrite { remote }, &many[..]),
            (WrOpcode::RdmaRead { remote }, &many[..]),
            (WrOpcode::AtomicFetchAndAdd { remote, add: 1 }, &one[..]),
        ] {
            fill(&mut p, &SendWr { wr_id: 7, opcode, sg_list: list, send_flags: SIGNALED, ..Default::default() });
        }
        p.end();
    }
}

/// Fills the send queue before the device learns of it, and looks at all completions.
fn fill(p: &mut Pair, wr: &SendWr<'_>) {
    let most = p.qp[0].cap().max_send_wr as usize;
    p.port.deaf.store(true, Ordering::Relaxed);
    p.qp[0].post_send(&vec![*wr; most - 1]).unwrap();
    p.port.deaf.store(false, Ordering::Relaxed);
    let error = p.qp[0].post_send(&[*wr, *wr]).unwrap_err();
    assert_eq!((error.index, error.errno()), (1, 12), "the queue is full");
    assert!(p.poll(0, most).iter().all(|wc| wc.status == WcStatus::SUCCESS), "{wr:?}");
}

#[test]
fn the_device_tells_of_reads_and_atomics() {
    let (port, dev) = open();
    let attr = dev.query_device();
    assert_eq!(attr.atomic_cap, AtomicCap::Hca);
    assert!(attr.max_qp_rd_atom >= 1 && attr.max_qp_init_rd_atom >= 1 && attr.max_res_rd_atom >= attr.max_qp_rd_atom);
    assert!(attr.max_sge_rd >= 1 && attr.max_sge_rd <= 30);
    crate::support::close(&port, dev);
}
