//! Posting and polling allocate nothing, and free nothing, once the objects exist.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::support::pair;
use mlx5::{PollAttr, RecvWr, SendFlags, SendWr, Wc, WrOpcode};

/// Counts what the current thread does while it is watched.
struct Counting;

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends has no counters any more; nobody watches it.
    let _ = WATCHED.try_with(|w| {
        if w.get() {
            CALLS.with(|c| c.set(c.get() + 1))
        }
    });
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

pub fn calls(f: impl FnOnce()) -> u64 {
    CALLS.with(|c| c.set(0));
    WATCHED.with(|w| w.set(true));
    f();
    WATCHED.with(|w| w.set(false));
    CALLS.with(Cell::get)
}

#[test]
fn the_counter_counts() {
    assert_eq!(calls(|| drop(std::hint::black_box(vec![1_u8; 100]))), 2);
    assert_eq!(calls(|| ()), 0);
}

/// The model runs on a thread of its own here, so that what this thread allocates is the driver's.
#[test]
fn posting_and_polling_allocate_nothing() {
    let mut p = pair();
    let model = p.port.model.spawn().unwrap();
    let (from, to) = ([p.sge(0, 0, 100)], [p.sge(1, 0, 100)]);
    let recvs = [RecvWr { wr_id: 1, sg_list: &to }; 8];
    let sends = [SendWr { wr_id: 2, sg_list: &from, send_flags: SendFlags::SIGNALED, ..Default::default() }; 4];
    let inlined = [SendWr {
        inline_data: &[7; 60],
        sg_list: &[],
        send_flags: SendFlags::INLINE | SendFlags::SIGNALED,
        ..sends[0]
    }; 4];
    let mut wcs = [Wc::default(); 8];
    let mut total = 0;
    for _ in 0..20 {
        let (qps, cqs) = (&mut p.qp, &mut p.cq);
        let mut left = [8, 8];
        // A doorbell is a register write: the model queues it, which is not the driver's doing.
        total += calls(|| qps[1].post_recv(&recvs).unwrap());
        qps[0].post_send(&sends).unwrap();
        qps[0].post_send(&inlined).unwrap();
        while left != [0, 0] {
            total += calls(|| {
                left[0] -= cqs[0].poll_cq(&mut wcs).unwrap();
                if let Ok(mut poller) = cqs[1].start_poll(&PollAttr::default()) {
                    left[1] -= 1;
                    while poller.next().is_ok() {
                        left[1] -= 1;
                    }
                }
            });
        }
    }
    assert_eq!(total, 0, "allocations and frees");
    drop(model);
    p.end();
}

/// A bar that only counts, so that the doorbell of a send can be watched too.
#[test]
fn posting_sends_allocates_nothing() {
    let mut p = pair();
    let from = [p.sge(0, 0, 100)];
    let (sge, inline) = (
        SendWr { sg_list: &from, send_flags: SendFlags::SIGNALED, ..Default::default() },
        SendWr { inline_data: &[7; 60], send_flags: SendFlags::INLINE, ..Default::default() },
    );
    let eight = [p.sge(0, 0, 8)];
    let remote = p.remote(1, 0);
    let one_sided = [
        WrOpcode::RdmaWriteWithImm { remote, imm_data: 1 },
        WrOpcode::RdmaRead { remote },
        WrOpcode::AtomicCmpAndSwp { remote, compare: 1, swap: 2 },
        WrOpcode::AtomicFetchAndAdd { remote, add: 1 },
    ]
    .map(|opcode| SendWr { sg_list: &eight, opcode, ..Default::default() });
    p.qp[1].post_recv(&[RecvWr::default(); 16]).unwrap();
    p.port.deaf.store(true, std::sync::atomic::Ordering::Relaxed);
    let qp = &mut p.qp[0];
    let n = calls(|| {
        qp.post_send(&[sge, inline, sge]).unwrap();
        qp.post_send(&one_sided).unwrap();
        assert!(qp.post_send(&[sge; 32]).is_err(), "a full queue");
    });
    p.port.deaf.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(n, 0, "allocations and frees");
    p.end();
}

/// Data in completions: the lists were made with the queue, and the copy goes straight to its place.
#[test]
fn copying_data_out_of_completions_allocates_nothing() {
    let mut p = crate::scatter::allowing(128, crate::support::SIZES);
    let (from, to) = ([p.sge(0, 0, 60)], [p.sge(1, 0, 7), p.sge(1, 9, 53)]);
    let recvs = [RecvWr { wr_id: 1, sg_list: &to }; 8];
    let send = SendWr { wr_id: 2, sg_list: &from, send_flags: SendFlags::SIGNALED, ..Default::default() };
    let reads = [SendWr { opcode: WrOpcode::RdmaRead { remote: p.remote(1, 0) }, ..send }; 4];
    let mut wcs = [Wc::default(); 8];
    let mut total = calls(|| p.qp[1].post_recv(&recvs).unwrap());
    p.port.deaf.store(true, std::sync::atomic::Ordering::Relaxed);
    total += calls(|| p.qp[0].post_send(&reads).unwrap());
    p.port.deaf.store(false, std::sync::atomic::Ordering::Relaxed);
    p.qp[0].post_send(&[send; 8]).unwrap();
    p.port.model.step(1_000_000);
    let mut polled = [0, 0];
    total += calls(|| {
        polled[1] = p.cq[1].poll_cq(&mut wcs).unwrap();
        let mut poller = p.cq[0].start_poll(&PollAttr::default()).unwrap();
        polled[0] = 1;
        while poller.next().is_ok() {
            polled[0] += 1;
        }
    });
    assert_eq!((polled, total), ([12, 8], 0), "allocations and frees");
    assert!(wcs.iter().all(|wc| wc.byte_len == 60));
    p.end();
}

/// Events, taken out of the event queues and out of the channel, of several CQs.
#[test]
fn asking_waiting_and_acknowledging_allocate_nothing() {
    let (port, dev) = crate::support::open();
    let channel = dev.create_comp_channel();
    let mut cqs: Vec<_> = (0..20).map(|i| crate::events::cq_on(&dev, &channel, 7, i, 0)).collect();
    let eqn = crate::events::context(&dev, &cqs[0]).c_eqn();
    for round in 1..4 {
        port.deaf.store(true, std::sync::atomic::Ordering::Relaxed);
        let asked = calls(|| cqs.iter_mut().for_each(|cq| cq.req_notify(false).unwrap()));
        port.deaf.store(false, std::sync::atomic::Ordering::Relaxed);
        for cq in &cqs {
            for _ in 0..round {
                port.model.inject(mlx5_model::Fault::StrayCompletionEvent { eqn, cqn: cq.cqn() });
            }
        }
        let mut events = 0;
        let taken = calls(|| {
            while channel.try_get_event().is_some() {
                events += 1;
            }
            cqs.iter().for_each(|cq| cq.ack_events(round).unwrap());
        });
        assert_eq!((events, asked, taken), (20 * round, 0, 0), "events, allocations and frees");
    }
    drop((cqs, channel));
    crate::support::close(&port, dev);
}

/// Shared receive queues: places come back and are posted to again, also those of a queue pair that is gone.
#[test]
fn posting_to_a_shared_queue_and_polling_allocate_nothing() {
    let mut s = crate::srq::Shared::new(2, 15);
    let to = [s.sge(0, 64)];
    let recvs = [RecvWr { wr_id: 1, sg_list: &to }; 15];
    let mut wcs = [Wc::default(); 16];
    let mut total = 0;
    for round in 0..4 {
        total += calls(|| {
            s.srq.post_recv(&recvs).unwrap();
            assert!(s.srq.post_recv(&recvs).is_err(), "full");
        });
        (0..15).for_each(|n| s.send(n % 2, b"x"));
        s.port.model.step(1_000_000);
        if round == 3 {
            s.receivers.remove(0).destroy().map_err(|e| e.error).unwrap();
        }
        let mut polled = [0; 2];
        total += calls(|| {
            polled[0] = s.came[0].poll_cq(&mut wcs).unwrap();
            polled[1] = s.came[1].poll_cq(&mut wcs).unwrap();
        });
        assert_eq!(polled, if round == 3 { [0, 7] } else { [8, 7] });
    }
    assert_eq!(total, 0, "allocations and frees");
    assert_eq!(s.room(), 15);
    s.end();
}
