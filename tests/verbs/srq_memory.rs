//! Shared receive queues in memory: the context, the entries as the headers lay them out, and a device that writes to them.

use std::sync::atomic::Ordering;

use mlx5::hw::cmd::QueryRmp;
use mlx5::hw::prm::Layout;
use mlx5::hw::rmpc::{Rmpc, Wq};
use mlx5::{RecvWr, Sge, Srq};

use crate::srq::Shared;

fn context(s: &Shared, srq: &Srq) -> Rmpc {
    // SAFETY: the command only reads.
    unsafe { s.dev.general_cmd(&QueryRmp { rmpn: srq.srq_num() }) }.unwrap()
}

/// The queue's memory: dword `at`, in CPU order.
fn dword(s: &Shared, at: usize) -> u32 {
    let record = context(s, &s.srq).wq().dbr_addr();
    s.port.words(s.port.allocation(record), at + 1)[at].load(Ordering::Relaxed).swap_bytes()
}

#[test]
fn the_context_says_what_was_asked_for_and_nothing_else() {
    // Eight entries of 64 bytes.
    let s = Shared::new(0, 5);
    let rmpc = context(&s, &s.srq);
    let wq = rmpc.wq();
    let expected = Wq::new().with_pd(s.pd.pdn()).with_dbr_addr(wq.dbr_addr()).with_log_wq_stride(6).with_log_wq_sz(3);
    assert_eq!(wq.words(), expected.words());
    assert_eq!(s.port.allocation(wq.dbr_addr()) + 8 * 64, wq.dbr_addr(), "the record is behind the entries");
    assert_eq!(rmpc.words(), Rmpc::new().with_state(1).with_wq(expected).words());
    s.end();
}

/// `mlx5_wqe_srq_next_seg` and `mlx5_wqe_data_seg`: the next place in bytes 2 and 3, then the pieces, then the key 0x100 if there is room.
#[test]
fn an_entry_is_a_next_segment_and_the_pieces() {
    let mut s = Shared::new(0, 5);
    for place in 0..8 {
        let entry: Vec<u32> = (0..4).map(|at| dword(&s, 16 * place + at)).collect();
        assert_eq!(entry, [(place as u32 + 1) % 8, 0, 0, 0]);
    }
    let lkey = s.buf.lkey();
    let piece = |addr, length| Sge { addr, length, lkey };
    let lists =
        [vec![piece(0x1234_5678_9abc, 5), piece(7, 0), piece(0x10, 6)], vec![piece(1, 2), piece(3, 4), piece(5, 6)]];
    let posts = lists.each_ref().map(|list| RecvWr { wr_id: 1, sg_list: list });
    s.srq.post_recv(&posts).unwrap();
    let entries: Vec<u32> = (0..32).map(|at| dword(&s, at)).collect();
    let first = [1, 0, 0, 0, 5, lkey, 0x1234, 0x5678_9abc, 6, lkey, 0, 0x10, 0, 0x100, 0, 0];
    assert_eq!(entries[..16], first);
    assert_eq!(entries[16..], [2, 0, 0, 0, 2, lkey, 0, 1, 4, lkey, 0, 3, 6, lkey, 0, 5]);
    assert_eq!(dword(&s, 8 * 16), 2, "the record counts");
    s.end();
}

/// Links in memory are written, never read: what is posted is a right list, whatever was written to the entries before. The model
/// checks each link that it follows.
#[test]
fn a_device_that_writes_to_the_links_leads_nobody_astray() {
    let mut s = Shared::new(1, 7);
    let start = s.port.allocation(context(&s, &s.srq).wq().dbr_addr());
    for lap in 0..5_u32 {
        for place in 0..8 {
            for at in 0..16 {
                s.port.words(start, 8 * 16)[16 * place + at].store(0xdead_0000 | lap, Ordering::Relaxed);
            }
        }
        (0..7).for_each(|id| s.post(id).unwrap());
        for id in 0..7 {
            s.send(0, b"x");
            assert_eq!(s.poll(0, 1)[0].wr_id, id);
        }
    }
    s.end();
}
