//! Polling as reports about other drivers say it should be: the cases of the kinds `poll-*`, `locking` and `bounds`.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use mlx5::hw::dbrec::CqDbRec;
use mlx5::{Cq, ExclusiveCqs, PollError, QpCap, RecvWr, SendFlags, SendWr, Sge, Wc, WcOpcode, WcStatus, WrOpcode};
use mlx5_model::ModelConfig;

use crate::cq_semantics::{POLL, Ring, complete, ids};
use crate::support::{Pair, SIZES, connect, create_qp, open, pair, pair_with, pattern};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

fn with_cqe(cqe: u32, cap: QpCap) -> Pair {
    pair_with(ModelConfig::default(), cqe, cap, |d, n| d.create_cq(n, 0, 0).unwrap())
}

/// Case C-015: the sense of the owner bit at these consumer indices, in a ring of 1024.
#[test]
fn owner_bits_are_those_of_a_counter_that_is_not_wrapped() {
    let mut p = with_cqe(1023, SIZES);
    let ring = Ring::of(&p.port, &p.cq[0]);
    let mut owners = vec![];
    for n in 0..2049_u64 {
        complete(&mut p, n, 1);
        owners.push(ring.dword(n, 15) & 1);
        assert_eq!((ids(&mut p.cq[0]), ids(&mut p.cq[1])), (vec![n], vec![n]));
    }
    let at = |ci: usize| owners[ci];
    assert_eq!([0, 1023, 1024, 2047, 2048].map(at), [0, 0, 1, 1, 0], "the model writes what the case says");
    p.end();
}

/// Case C-017: what a ring is created with is "not ready", in every slot and on every lap, and no error.
#[test]
fn an_entry_that_was_not_written_yet_is_not_ready() {
    let mut p = with_cqe(3, SIZES);
    let ring = Ring::of(&p.port, &p.cq[0]);
    assert_eq!([0, 1, 2, 3].map(|n| ring.dword(n, 15) & 0xff), [0xf0; 4]);
    for n in 0..12 {
        assert_eq!(p.cq[0].start_poll(&POLL).err(), Some(PollError::Empty), "before completion {n}");
        assert_eq!(p.cq[0].poll_cq(&mut [Wc::default(); 4]), Ok(0));
        complete(&mut p, n, 1);
        assert_eq!((ids(&mut p.cq[0]), ids(&mut p.cq[1])), (vec![n], vec![n]));
        // With either owner bit it is still no entry.
        ring.change(n + 1, 15, 0xff, 0xf0 | n as u32 & 1);
    }
    p.end();
}

/// Cases C-022 and C-076: 24 bits, big-endian, in a word of their own: the arm word beside it is not touched.
#[test]
fn the_consumer_index_is_24_bits_in_a_word_of_its_own() {
    for (ci, bytes) in
        [(65_535, [0, 0, 0xff, 0xff]), (65_536, [0, 1, 0, 0]), (0xff_ffff, [0, 0xff, 0xff, 0xff]), (1 << 24, [0; 4])]
    {
        let record = [AtomicU32::new(u32::MAX), AtomicU32::new(0x1234_5678)];
        CqDbRec::new(&record).set_consumer(ci);
        assert_eq!(record[0].load(Relaxed).to_ne_bytes(), bytes, "{ci}");
        assert_eq!(record[1].load(Relaxed), 0x1234_5678);
    }
}

/// Cases C-022 and C-028: a CQ no larger than its queues goes on for ever, also behind the 2^16th completion.
#[test]
fn completions_do_not_stop_after_a_lap_or_after_65536() {
    let cap = QpCap { max_send_wr: 64, max_recv_wr: 64, ..SIZES };
    let mut p = with_cqe(63, cap);
    let (mut wcs, mut total) = ([Wc::default(); 64], 0_u32);
    let ring = Ring::of(&p.port, &p.cq[0]);
    while total < 66_000 {
        p.qp[1].post_recv(&[RecvWr::default(); 60]).unwrap();
        p.qp[0].post_send(&[SendWr { send_flags: SIGNALED, ..Default::default() }; 60]).unwrap();
        p.port.model.step(1_000_000);
        assert_eq!((p.cq[0].poll_cq(&mut wcs), p.cq[1].poll_cq(&mut wcs)), (Ok(60), Ok(60)), "after {total}");
        total += 60;
        assert_eq!(ring.consumer(), total);
    }
    p.end();
}

/// Case C-024: one completion that stands for a whole queue, also where the counter of 16 bits wraps.
#[test]
fn a_completion_that_ends_a_whole_queue_makes_room_for_a_whole_queue() {
    let cap = QpCap { max_send_wr: 256, max_recv_wr: 256, ..SIZES };
    let mut p = with_cqe(511, cap);
    let most = p.qp[0].cap().max_send_wr as usize;
    let quiet = SendWr { opcode: WrOpcode::RdmaWrite { remote: p.remote(1, 0) }, ..Default::default() };
    for round in 0..(70_000 / most as u64) {
        let mut list = vec![quiet; most];
        list[most - 1] = SendWr { wr_id: round, send_flags: SIGNALED, ..quiet };
        p.qp[0].post_send(&list).unwrap();
        assert_eq!(p.qp[0].post_send(&[quiet]).unwrap_err().errno(), 12, "full");
        assert_eq!(p.poll(0, 1)[0].wr_id, round);
    }
    p.end();
}

/// Case C-027: after a reset and a restart, nothing of the time before comes, and nothing of the time after is lost.
#[test]
fn a_queue_that_is_reset_and_started_again_counts_from_the_start() {
    let (port, dev) = open();
    let (pd, mut cq) = (dev.alloc_pd().unwrap(), dev.create_cq(15, 0, 0).unwrap());
    let mut qp = create_qp(&pd, &cq, &cq, SIZES);
    let me = qp.qp_num();
    for round in 0..40_u64 {
        connect(&dev, &mut qp, me);
        let send = |qp: &mut mlx5::Qp, wr_id| {
            qp.post_recv(&[RecvWr { wr_id, sg_list: &[] }]).unwrap();
            qp.post_send(&[SendWr { wr_id, send_flags: SIGNALED, ..Default::default() }]).unwrap();
            port.model.step(1_000_000);
        };
        // Some are polled, some are left, some receives stay outstanding.
        for n in 0..=round % 5 {
            send(&mut qp, 1000 + n);
        }
        let polled = round % 3;
        let mut wcs = [Wc::default(); 2];
        cq.poll_cq(&mut wcs[..polled as usize]).unwrap();
        qp.post_recv(&[RecvWr { wr_id: 9, sg_list: &[] }; 3]).unwrap();
        qp.reset(ExclusiveCqs::Same(&mut cq)).unwrap();
        assert!(ids(&mut cq).is_empty(), "round {round}");
        connect(&dev, &mut qp, me);
        send(&mut qp, round);
        assert_eq!(ids(&mut cq), [round, round]);
        // The whole queue is free again.
        let size = qp.cap().max_recv_wr as usize;
        qp.post_recv(&vec![RecvWr::default(); size]).unwrap();
        qp.reset(ExclusiveCqs::Same(&mut cq)).unwrap();
    }
    qp.destroy().map_err(|e| e.error).unwrap();
    drop((cq, pd));
    crate::support::close(&port, dev);
}

/// Case C-035: the opcode is the entry's, whatever was in that place of the queue before.
#[test]
fn the_opcode_of_a_send_is_the_one_that_completed() {
    let mut p = with_cqe(15, QpCap { max_send_wr: 1, ..SIZES });
    let (remote, eight) = (p.remote(1, 0), [p.sge(0, 0, 8)]);
    // What is posted, what completes, how many bytes are told, whether it uses up a receive.
    let kinds = [
        (WrOpcode::RdmaRead { remote }, WcOpcode::RDMA_READ, 8, 0),
        (WrOpcode::Send, WcOpcode::SEND, 0, 1),
        (WrOpcode::AtomicFetchAndAdd { remote, add: 1 }, WcOpcode::FETCH_ADD, 8, 0),
        (WrOpcode::RdmaWrite { remote }, WcOpcode::RDMA_WRITE, 0, 0),
        (WrOpcode::SendWithImm { imm_data: 7 }, WcOpcode::SEND, 0, 1),
        (WrOpcode::AtomicCmpAndSwp { remote, compare: 1, swap: 2 }, WcOpcode::COMP_SWAP, 8, 0),
        (WrOpcode::RdmaWriteWithImm { remote, imm_data: 7 }, WcOpcode::RDMA_WRITE, 0, 1),
    ];
    let land = p.sge(1, 100, 64);
    for (wr_id, (opcode, right, length, received)) in (0..).zip(kinds.into_iter().cycle().take(50)) {
        p.qp[1].post_recv(&vec![RecvWr { wr_id, sg_list: &[land] }; received]).unwrap();
        let send_flags = SIGNALED;
        p.qp[0].post_send(&[SendWr { wr_id, sg_list: &eight, opcode, send_flags, ..Default::default() }]).unwrap();
        let wc = p.poll(0, 1)[0];
        assert_eq!((wc.wr_id, wc.status, wc.opcode, wc.byte_len), (wr_id, WcStatus::SUCCESS, right, length));
        p.poll(1, received);
    }
    p.end();
}

/// Case C-037: bytes 60 and 61 are `01 02`, that is 258.
#[test]
fn the_counter_in_an_entry_is_big_endian() {
    let cap = QpCap { max_recv_wr: 1024, ..SIZES };
    let mut p = with_cqe(15, cap);
    let list: Vec<_> = (0..1024).map(|wr_id| RecvWr { wr_id, sg_list: &[] }).collect();
    p.qp[1].post_recv(&list).unwrap();
    p.qp[0].post_send(&[SendWr { send_flags: SIGNALED, ..Default::default() }]).unwrap();
    p.port.model.step(1_000_000);
    Ring::of(&p.port, &p.cq[1]).change(0, 15, 0xffff << 16, 0x0102 << 16);
    assert_eq!(ids(&mut p.cq[1]), [258], "not 513");
    ids(&mut p.cq[0]);
    p.end();
}

/// Case C-042: after an error, a poll that finds nothing takes nothing.
#[test]
fn polls_that_find_nothing_after_an_error_skip_nothing() {
    let mut p = pair();
    let ring = Ring::of(&p.port, &p.cq[0]);
    let bad = Sge { lkey: 0xdead_be00, ..p.sge(0, 0, 8) };
    p.qp[0].post_send(&[SendWr { wr_id: 1, sg_list: &[bad], ..Default::default() }]).unwrap();
    p.port.model.step(1_000_000);
    assert_eq!(p.poll(0, 1)[0].status, WcStatus::LOC_PROT_ERR);
    for _ in 0..100 {
        assert_eq!(p.cq[0].poll_cq(&mut [Wc::default(); 8]), Ok(0));
        assert_eq!(p.cq[0].start_poll(&POLL).err(), Some(PollError::Empty));
    }
    assert_eq!(ring.consumer(), 1);
    // What is flushed later is all there.
    for wr_id in 2..7 {
        p.qp[0].post_send(&[SendWr { wr_id, send_flags: SIGNALED, ..Default::default() }]).unwrap();
    }
    let flushed = p.poll(0, 5);
    assert!(flushed.iter().all(|wc| wc.status == WcStatus::WR_FLUSH_ERR));
    assert_eq!(flushed.iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
    assert_eq!(ring.consumer(), 6);
    p.end();
}

/// Cases C-025 and C-043: entries that nobody sees still take room until they are polled, and then give it back: with a device
/// that minds (no overrun) for many laps.
#[test]
fn entries_that_are_not_delivered_do_not_fill_the_ring() {
    let (port, dev) = open();
    let (pd, mut cq) = (dev.alloc_pd().unwrap(), dev.create_cq(7, 0, 0).unwrap());
    for round in 0..30 {
        let mut qp = create_qp(&pd, &cq, &cq, QpCap { max_send_wr: 4, max_recv_wr: 4, ..SIZES });
        let me = qp.qp_num();
        connect(&dev, &mut qp, me);
        qp.post_recv(&[RecvWr::default(); 3]).unwrap();
        qp.post_send(&[SendWr { send_flags: SIGNALED, ..Default::default() }; 3]).unwrap();
        port.model.step(1_000_000);
        qp.destroy().map_err(|e| e.error).unwrap();
        assert_eq!(cq.poll_cq(&mut [Wc::default(); 8]), Ok(0), "round {round}");
        assert_eq!(Ring::of(&port, &cq).consumer(), 6 * (round + 1));
        assert_eq!(cq.query().unwrap().status(), 0, "no overrun");
    }
    drop((cq, pd));
    crate::support::close(&port, dev);
}

/// Case C-078: requests whose segments end at, or run over, the end of the send queue go on at its start.
#[test]
fn requests_that_run_over_the_end_of_the_queue_go_on_at_its_start() {
    let cap = QpCap { max_send_wr: 8, max_send_sge: 8, ..SIZES };
    let mut p = with_cqe(63, cap);
    let data = pattern(5, 800);
    p.buf[0].write(0, &data).unwrap();
    for round in 0..200_usize {
        // One to eight pieces: requests of one, two and three blocks, so every segment comes to lie at the end some time.
        let pieces = 1 + round * 7 % 8;
        let list: Vec<_> = (0..pieces).map(|i| p.sge(0, 100 * i, 100)).collect();
        p.qp[1].post_recv(&[RecvWr { wr_id: 1, sg_list: &[p.sge(1, 0, 1000)] }]).unwrap();
        p.qp[0].post_send(&[SendWr { wr_id: 2, sg_list: &list, send_flags: SIGNALED, ..Default::default() }]).unwrap();
        let (s, r) = (p.poll(0, 1)[0], p.poll(1, 1)[0]);
        assert_eq!((s.status, r.status, r.byte_len as usize), (WcStatus::SUCCESS, WcStatus::SUCCESS, 100 * pieces));
        assert!(p.bytes(1, 0, 100 * pieces) == data[..100 * pieces], "{pieces} pieces");
    }
    p.end();
}

/// Case C-075: a CQ is polled through `&mut`, so no lock is taken whatever the flag says; to use it on two threads is the caller's
/// lock, and that works with both.
#[test]
fn a_cq_created_for_one_thread_and_one_that_is_not_poll_the_same() {
    for flags in [mlx5::CreateCqFlags::empty(), mlx5::CreateCqFlags::SINGLE_THREADED] {
        let mut p = pair_with(ModelConfig::default(), 15, SIZES, |d, cqe| {
            let comp_mask = mlx5::CqInitAttrMask::FLAGS;
            d.create_cq_ex(&mlx5::CqInitAttrEx { cqe, comp_mask, flags, ..Default::default() }).unwrap()
        });
        complete(&mut p, 0, 5);
        assert_eq!(ids(&mut p.cq[0]), [0, 1, 2, 3, 4]);
        let cq = std::sync::Mutex::new(&mut p.cq[1]);
        let all = std::sync::Mutex::new(vec![]);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    let mut one = [Wc::default()];
                    while cq.lock().map(|mut cq: std::sync::MutexGuard<'_, &mut Cq>| cq.poll_cq(&mut one)).unwrap()
                        == Ok(1)
                    {
                        all.lock().unwrap().push(one[0].wr_id);
                    }
                });
            }
        });
        let mut all = all.into_inner().unwrap();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
        p.end();
    }
}
