//! Reliable connections over the model: what is sent arrives, once, and both sides are told.

use std::ptr::NonNull;

use crate::support::{
    BUF, INIT, Pair, RTR, RTS, SIZES, connect, create_qp, open, pair, pair_with, path_to, pattern, poll_n,
};
use mlx5::{
    AccessFlags, CqInitAttrEx, ExclusiveCqs, PollAttr, PollError, QpAttr, QpAttrMask, QpCap, QpState, RecvWr,
    SendFlags, SendWr, Sge, WcFlags, WcOpcode, WcResultFlags, WcStatus, WrOpcode, dv, ibv,
};
use mlx5_model::ModelConfig;

#[test]
fn payloads_of_all_sizes_arrive() {
    let mut p = pair();
    for (i, length) in
        [1, 2, 3, 4, 5, 63, 64, 65, 255, 256, 1023, 1024, 1025, 4096, 5000, 65535, BUF].into_iter().enumerate()
    {
        let sent = pattern(i as u64, length);
        p.buf[0].write(0, &sent).unwrap();
        p.buf[1].write(0, &vec![0xee; BUF]).unwrap();
        let (s, r) = p.send(i as u64, length, SendFlags::empty());
        assert_eq!((s.wr_id, s.status, s.opcode), (i as u64, WcStatus::SUCCESS, WcOpcode::SEND));
        assert_eq!((r.wr_id, r.status, r.opcode), (i as u64, WcStatus::SUCCESS, WcOpcode::RECV));
        assert_eq!((r.byte_len as usize, r.flags(), r.imm()), (length, WcResultFlags::empty(), None));
        assert_eq!((s.qp_num, r.qp_num), (p.qp[0].qp_num(), p.qp[1].qp_num()));
        let mut got = vec![0; BUF];
        p.buf[1].read(0, &mut got).unwrap();
        assert!(got[..length] == sent, "payload of {length} bytes");
        assert!(got[length..].iter().all(|b| *b == 0xee), "nothing behind it is touched, {length} bytes");
    }
    p.end();
}

#[test]
fn an_empty_message_completes_with_length_zero() {
    let mut p = pair();
    p.qp[1].post_recv(&[RecvWr { wr_id: 5, sg_list: &[] }]).unwrap();
    p.qp[0].post_send(&[SendWr { wr_id: 6, send_flags: SendFlags::SIGNALED, ..Default::default() }]).unwrap();
    assert_eq!(p.poll(0, 1)[0].wr_id, 6);
    let r = p.poll(1, 1)[0];
    assert_eq!((r.wr_id, r.status, r.byte_len), (5, WcStatus::SUCCESS, 0));
    p.end();
}

#[test]
fn lists_gather_and_scatter_and_skip_empty_pieces() {
    let mut p = pair();
    let data = pattern(9, 1000);
    p.buf[0].write(0, &data[..400]).unwrap();
    p.buf[0].write(8192, &data[400..]).unwrap();
    let to = [p.sge(1, 100, 1), p.sge(1, 0, 0), p.sge(1, 5000, 700), p.sge(1, 9000, 500)];
    p.qp[1].post_recv(&[RecvWr { wr_id: 1, sg_list: &to }]).unwrap();
    let from = [p.sge(0, 0, 400), p.sge(0, 4, 0), p.sge(0, 8192, 600)];
    let wr =
        SendWr { wr_id: 2, sg_list: &from, send_flags: SendFlags::SIGNALED | SendFlags::FENCE, ..Default::default() };
    p.qp[0].post_send(&[wr]).unwrap();
    p.poll(0, 1);
    assert_eq!(p.poll(1, 1)[0].byte_len, 1000);
    let mut got = vec![0; 1000];
    let (a, rest) = got.split_at_mut(1);
    let (b, c) = rest.split_at_mut(700);
    p.buf[1].read(100, a).unwrap();
    p.buf[1].read(5000, b).unwrap();
    p.buf[1].read(9000, c).unwrap();
    assert!(got == data);
    p.end();
}

#[test]
fn immediate_data_arrives_in_network_order() {
    let mut p = pair();
    for flags in [SendFlags::empty(), SendFlags::SOLICITED] {
        let to = p.sge(1, 0, 64);
        p.qp[1].post_recv(&[RecvWr { wr_id: 1, sg_list: &[to] }]).unwrap();
        let wr = SendWr {
            wr_id: 2,
            sg_list: &[p.sge(0, 0, 8)],
            opcode: WrOpcode::SendWithImm { imm_data: 0x0102_0304_u32.to_be() },
            send_flags: SendFlags::SIGNALED | flags,
            ..Default::default()
        };
        p.qp[0].post_send(&[wr]).unwrap();
        let s = p.poll(0, 1)[0];
        assert_eq!((s.opcode, s.imm()), (WcOpcode::SEND, None), "the sender's completion carries none");
        let r = p.poll(1, 1)[0];
        assert_eq!(r.imm_data.to_ne_bytes(), [1, 2, 3, 4]);
        assert_eq!((r.imm(), r.flags()), (Some(0x0102_0304), WcResultFlags::WITH_IMM));
    }
    p.end();
}

#[test]
fn inlined_payloads_of_all_sizes_arrive() {
    let mut p = pair_with(ModelConfig::default(), 63, QpCap { max_inline_data: 900, ..SIZES }, |d, n| {
        d.create_cq(n, 0, 0).unwrap()
    });
    let most = p.qp[0].cap().max_inline_data as usize;
    assert!(most >= 900);
    for length in (1..=130).chain([255, 256, 500, 899, 900, most]) {
        let data = pattern(length as u64, length);
        let to = p.sge(1, 0, BUF);
        p.qp[1].post_recv(&[RecvWr { wr_id: 1, sg_list: &[to] }]).unwrap();
        let send_flags = SendFlags::INLINE | SendFlags::SIGNALED;
        p.qp[0].post_send(&[SendWr { inline_data: &data, send_flags, ..Default::default() }]).unwrap();
        p.poll(0, 1);
        assert_eq!(p.poll(1, 1)[0].byte_len as usize, length);
        let mut got = vec![0; length];
        p.buf[1].read(0, &mut got).unwrap();
        assert!(got == data, "inlined payload of {length} bytes");
    }
    p.end();
}

#[test]
fn unsignalled_sends_are_retired_by_the_next_signalled_one() {
    let mut p = pair();
    let (size, room) = (p.qp[0].cap().max_send_wr as u64, p.sge(1, 0, 64));
    let mut next = 0;
    for _ in 0..50 {
        for _ in 0..size {
            p.qp[1].post_recv(&[RecvWr { wr_id: next, sg_list: &[room] }]).unwrap();
            let send_flags = if next % size == size - 1 { SendFlags::SIGNALED } else { SendFlags::empty() };
            let wr = SendWr { wr_id: next, sg_list: &[p.sge(0, 0, 4)], send_flags, ..Default::default() };
            p.qp[0].post_send(&[wr]).unwrap();
            next += 1;
        }
        let full = p.qp[0].post_send(&[SendWr::default()]).unwrap_err();
        assert_eq!((full.index, full.errno()), (0, 12), "full until the completion is polled");
        assert_eq!(p.poll(0, 1)[0].wr_id, next - 1);
        let received: Vec<_> = p.poll(1, size as usize).iter().map(|wc| wc.wr_id).collect();
        assert_eq!(received, (next - size..next).collect::<Vec<_>>());
    }
    p.end();
}

#[test]
fn sq_sig_all_reports_every_send() {
    let (port, dev) = crate::support::open();
    let pd = dev.alloc_pd().unwrap();
    let mut cq = dev.create_cq(31, 0, 0).unwrap();
    let mut attr = mlx5::QpInitAttr { sq_sig_all: true, ..mlx5::QpInitAttr::new(&cq, &cq, SIZES) };
    let mut a = pd.create_qp(&mut attr).unwrap();
    let mut b = crate::support::create_qp(&pd, &cq, &cq, SIZES);
    let (na, nb) = (a.qp_num(), b.qp_num());
    connect(&dev, &mut a, nb);
    connect(&dev, &mut b, na);
    b.post_recv(&[RecvWr { wr_id: 1, sg_list: &[] }]).unwrap();
    a.post_send(&[SendWr { wr_id: 2, ..Default::default() }]).unwrap();
    let mut ids: Vec<_> = poll_n(&port, &mut cq, 2).iter().map(|wc| (wc.wr_id, wc.opcode)).collect();
    ids.sort_by_key(|(id, _)| *id);
    assert_eq!(ids, [(1, WcOpcode::RECV), (2, WcOpcode::SEND)], "one CQ reports sends and receives of both");
    drop((a, b));
    cq.destroy().map_err(|e| e.error).unwrap();
    pd.dealloc().map_err(|e| e.error).unwrap();
    crate::support::close(&port, dev);
}

/// All counters wrap: WQE counters at 2^16, ring indices and owner bits many times.
#[test]
fn every_message_completes_once_and_in_order_while_all_rings_wrap() {
    let cap = QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 8 };
    let mut p = pair_with(ModelConfig::default(), 7, cap, |d, n| d.create_cq(n, 0, 0).unwrap());
    let total = 70_000_u64;
    let room = p.sge(1, 0, 8);
    for base in (0..total).step_by(4) {
        for wr_id in base..base + 4 {
            p.qp[1].post_recv(&[RecvWr { wr_id, sg_list: &[room] }]).unwrap();
            let data = wr_id.to_le_bytes();
            let send_flags = SendFlags::INLINE | SendFlags::SIGNALED;
            p.qp[0].post_send(&[SendWr { wr_id, inline_data: &data, send_flags, ..Default::default() }]).unwrap();
        }
        let sent: Vec<_> = p.poll(0, 4).iter().map(|wc| (wc.wr_id, wc.status)).collect();
        let received: Vec<_> = p.poll(1, 4).iter().map(|wc| (wc.wr_id, wc.status)).collect();
        let right: Vec<_> = (base..base + 4).map(|id| (id, WcStatus::SUCCESS)).collect();
        assert_eq!((sent, received), (right.clone(), right));
        let mut last = [0; 8];
        p.buf[1].read(0, &mut last).unwrap();
        assert_eq!(u64::from_le_bytes(last), base + 3);
    }
    assert_eq!(p.cq[0].poll_cq(&mut [mlx5::Wc::default()]), Ok(0));
    p.end();
}

#[test]
fn a_list_of_requests_rings_the_doorbell_once() {
    let mut p = pair();
    let to = p.sge(1, 0, 64);
    p.qp[1].post_recv(&[RecvWr { wr_id: 0, sg_list: &[to] }; 8]).unwrap();
    let before = p.port.doorbells.load(std::sync::atomic::Ordering::Relaxed);
    let wrs: Vec<_> =
        (0..8).map(|wr_id| SendWr { wr_id, send_flags: SendFlags::SIGNALED, ..Default::default() }).collect();
    p.qp[0].post_send(&wrs).unwrap();
    p.qp[0].post_send(&[]).unwrap();
    assert_eq!(p.port.doorbells.load(std::sync::atomic::Ordering::Relaxed), before + 1);
    let ids: Vec<_> = p.poll(0, 8).iter().map(|wc| wc.wr_id).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 7]);
    p.poll(1, 8);
    p.end();
}

#[test]
fn both_ways_of_polling_tell_the_same() {
    let mut p = pair_with(ModelConfig::default(), 63, SIZES, |dev, cqe| {
        let wc_flags = WcFlags::STANDARD | WcFlags::COMPLETION_TIMESTAMP;
        dev.create_cq_ex(&CqInitAttrEx { cqe, wc_flags, ..Default::default() }).unwrap()
    });
    for round in 0..20_u32 {
        let n = 1 + (round % 7) as usize;
        let to = p.sge(1, 0, 64);
        p.qp[1].post_recv(&vec![RecvWr { wr_id: 7, sg_list: &[to] }; 2 * n]).unwrap();
        let sge = [p.sge(0, 0, 3)];
        let imm =
            |i| SendWr { wr_id: 7, sg_list: &sge, opcode: WrOpcode::SendWithImm { imm_data: i }, ..Default::default() };
        for i in 0..2 * n as u32 {
            p.qp[0].post_send(&[SendWr { send_flags: SendFlags::SIGNALED, ..imm(round + i % n as u32) }]).unwrap();
        }
        for side in 0..2 {
            let wcs = p.poll(side, n);
            let mut poller = p.cq[side].start_poll(&PollAttr::default()).unwrap();
            for (i, wc) in wcs.iter().enumerate() {
                let c = if i == 0 { poller.completion() } else { poller.next().unwrap() };
                assert_eq!(c.to_wc(), *wc);
                let receive = side == 1;
                assert_eq!((c.wr_id(), c.status(), c.opcode()), (wc.wr_id, wc.status, Some(wc.opcode)));
                assert_eq!(c.byte_len(), receive.then_some(wc.byte_len));
                assert_eq!(c.imm_data(), receive.then_some(wc.imm_data));
                assert_eq!((c.qp_num(), c.vendor_err(), c.wc_flags()), (Some(wc.qp_num), None, wc.flags()));
                assert!(c.completion_ts().is_some() && c.invalidated_rkey().is_none());
            }
            assert_eq!(poller.next().err(), Some(PollError::Empty));
        }
    }
    p.end();
}

#[test]
fn entries_of_128_bytes_carry_the_same() {
    let mut p = pair_with(ModelConfig::default(), 3, SIZES, |dev, cqe| {
        let wc_flags = WcFlags::STANDARD;
        let attr = CqInitAttrEx { cqe, wc_flags, ..Default::default() };
        let dv = dv::CqInitAttr { comp_mask: dv::CqInitAttrMask::CQE_SIZE, cqe_size: 128, ..Default::default() };
        ibv::dv::create_cq(dev, &attr, &dv).unwrap()
    });
    assert_eq!((p.cq[0].cqe_size(), p.cq[0].cqe()), (128, 3));
    for i in 0..200 {
        let (s, r) = p.send(i, 1 + i as usize, SendFlags::empty());
        assert_eq!((s.wr_id, r.wr_id, r.byte_len as u64), (i, i, 1 + i));
    }
    p.end();
}

#[test]
fn the_callers_own_memory_is_reached_at_any_offset() {
    let mut p = pair();
    let access = AccessFlags::LOCAL_WRITE;
    for (offset, length) in [(0, 5000), (1, 4095), (13, 4096), (4095, 2), (100, 100_000)] {
        let mut memory = vec![0_u8; offset + length + 1];
        let ptr = NonNull::new(memory.as_mut_ptr().wrapping_add(offset)).unwrap();
        // SAFETY: the vector outlives the region, and nothing refers to it meanwhile.
        let mr = unsafe { mlx5::ibv::reg_mr(&p.pd, ptr, length, access) }.unwrap();
        assert_eq!((mr.addr(), mr.length(), mr.lkey()), (ptr, length, mr.rkey()));
        let length = length.min(BUF);
        let data = pattern(offset as u64, length);
        p.buf[0].write(0, &data).unwrap();
        let to = Sge { addr: ptr.as_ptr() as u64, length: length as u32, lkey: mr.lkey() };
        p.qp[1].post_recv(&[RecvWr { wr_id: 1, sg_list: &[to] }]).unwrap();
        let wr = SendWr { sg_list: &[p.sge(0, 0, length)], send_flags: SendFlags::SIGNALED, ..Default::default() };
        p.qp[0].post_send(&[wr]).unwrap();
        assert_eq!((p.poll(0, 1)[0].status, p.poll(1, 1)[0].status), (WcStatus::SUCCESS, WcStatus::SUCCESS));
        mlx5::ibv::dereg_mr(mr).map_err(|e| e.error).unwrap();
        assert!(memory[offset..offset + length] == data && memory[offset + length] == 0);
    }
    p.end();
}

/// A responder takes at least as many reads as it was told to, a requester starts at most as many.
#[test]
fn outstanding_reads_that_are_no_power_of_two_are_rounded_to_the_safe_side() {
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    let cq = dev.create_cq(15, 0, 0).unwrap();
    for (asked, responder, requester) in [(0, 0, 0), (1, 0, 0), (2, 1, 1), (3, 2, 1), (5, 3, 2), (8, 3, 3)] {
        let mut qp = create_qp(&pd, &cq, &cq, SIZES);
        let attr = QpAttr { max_rd_atomic: asked, max_dest_rd_atomic: asked, ..path_to(&dev, qp.qp_num()) };
        for (qp_state, mask) in [(QpState::Init, INIT), (QpState::Rtr, RTR), (QpState::Rts, RTS)] {
            qp.modify(&QpAttr { qp_state, ..attr }, mask).unwrap();
        }
        // SAFETY: a query names no memory and takes nothing away.
        let qpc = unsafe { dev.general_cmd(&mlx5::hw::cmd::QueryQp { qpn: qp.qp_num() }) }.unwrap();
        assert_eq!((qpc.log_rra_max(), qpc.log_sra_max()), (responder, requester), "{asked}");
        assert_eq!((qpc.rre(), qpc.rwe()), (asked != 0, true), "{asked}: reads need room for them");
        // MLX5_ATOMIC_MODE_IB_COMP: the device has the standard's atomics and no others.
        assert_eq!((qpc.rae(), qpc.atomic_mode()), (asked != 0, (asked != 0).into()), "{asked}: and so do atomics");
    }
    drop((cq, pd));
    crate::support::close(&port, dev);
}

#[test]
fn a_deregistered_key_is_refused_by_the_device() {
    let mut p = pair();
    let old = p.sge(0, 0, 8);
    let fresh = p.pd.alloc_buf(BUF, AccessFlags::LOCAL_WRITE).unwrap();
    let stale = std::mem::replace(&mut p.buf[0], fresh);
    stale.dereg().map_err(|e| e.error).unwrap();
    let to = p.sge(1, 0, 64);
    p.qp[1].post_recv(&[RecvWr { wr_id: 1, sg_list: &[to] }]).unwrap();
    p.qp[0].post_send(&[SendWr { wr_id: 2, sg_list: &[old], ..Default::default() }]).unwrap();
    let s = p.poll(0, 1)[0];
    assert_eq!((s.wr_id, s.status), (2, WcStatus::LOC_PROT_ERR), "reported although it was not signalled");
    p.end();
}

#[test]
fn the_error_state_flushes_what_is_posted() {
    let mut p = pair();
    let to = p.sge(1, 0, 64);
    p.qp[1].post_recv(&[RecvWr { wr_id: 31, sg_list: &[to] }, RecvWr { wr_id: 32, sg_list: &[to] }]).unwrap();
    p.qp[1].modify(&QpAttr { qp_state: QpState::Err, ..Default::default() }, QpAttrMask::STATE).unwrap();
    assert_eq!((p.qp[1].state(), p.qp[1].query().unwrap().qp_state), (QpState::Err, QpState::Err));
    p.qp[1].post_send(&[SendWr { wr_id: 33, ..Default::default() }]).unwrap();
    let mut flushed = p.poll(1, 3);
    flushed.sort_by_key(|wc| wc.wr_id);
    for (wc, wr_id) in flushed.iter().zip(31..) {
        assert_eq!((wc.wr_id, wc.status, wc.qp_num), (wr_id, WcStatus::WR_FLUSH_ERR, p.qp[1].qp_num()));
        assert_ne!(wc.vendor_err, 0);
        assert_eq!((wc.byte_len, wc.wc_flags), (0, 0));
    }
    p.end();
}

#[test]
fn reset_drops_this_queues_entries_only_and_the_queue_works_again() {
    let (port, dev) = crate::support::open();
    let pd = dev.alloc_pd().unwrap();
    let mut cq = dev.create_cq(63, 0, 0).unwrap();
    let mut qps: Vec<_> = (0..4).map(|_| crate::support::create_qp(&pd, &cq, &cq, SIZES)).collect();
    let numbers: Vec<_> = qps.iter().map(|q| q.qp_num()).collect();
    for (i, qp) in qps.iter_mut().enumerate() {
        connect(&dev, qp, numbers[i ^ 1]);
    }
    let message = |qps: &mut [mlx5::Qp], from: usize, wr_id| {
        qps[from ^ 1].post_recv(&[RecvWr { wr_id: wr_id + 100, sg_list: &[] }]).unwrap();
        let send_flags = SendFlags::SIGNALED;
        qps[from].post_send(&[SendWr { wr_id, send_flags, ..Default::default() }]).unwrap();
    };
    message(&mut qps, 0, 1);
    message(&mut qps, 2, 2);
    message(&mut qps, 0, 3);
    port.model.step(1_000_000);
    qps[0].reset(ExclusiveCqs::Same(&mut cq)).unwrap();
    let mut ids: Vec<_> = poll_n(&port, &mut cq, 4).iter().map(|wc| wc.wr_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [2, 101, 102, 103], "1 and 3 are dropped");
    assert_eq!(cq.start_poll(&PollAttr::default()).err(), Some(PollError::Empty));
    assert_eq!((qps[0].state(), qps[0].query().unwrap().qp_state), (QpState::Reset, QpState::Reset));
    qps[1].reset(ExclusiveCqs::Same(&mut cq)).unwrap();
    connect(&dev, &mut qps[0], numbers[1]);
    connect(&dev, &mut qps[1], numbers[0]);
    for round in 0..40 {
        message(&mut qps, 0, round);
        let mut ids: Vec<_> = poll_n(&port, &mut cq, 2).iter().map(|wc| wc.wr_id).collect();
        ids.sort_unstable();
        assert_eq!(ids, [round, round + 100]);
    }
    let mut other = dev.create_cq(1, 0, 0).unwrap();
    let wrong = qps[0].reset(ExclusiveCqs::Two { send: &mut cq, recv: &mut other });
    assert_eq!(wrong.map_err(mlx5::Error::errno), Err(22), "not this queue pair's CQs");
    drop(qps);
    drop((cq, other, pd));
    crate::support::close(&port, dev);
}

#[test]
fn dropping_everything_in_any_order_gives_everything_back() {
    let Pair { port, dev, pd, cq, qp, buf } = pair();
    // Backwards: what others need goes first.
    drop(pd);
    drop(cq);
    drop(buf);
    drop(qp);
    crate::support::close(&port, dev);
}
