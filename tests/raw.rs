//! Queues from raw parts: what is checked, what they answer, and what they leave alone.
#![allow(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use mlx5::dv::{CqeCompLayout, CqeCompResFormat};
use mlx5::raw::{RawCqAttr, RawQp, RawQpAttr, RawSrq};
use mlx5::{Cpu, Cq, Error, Failure, ModerateCq, ModifyCqAttr, PollAttr, PollError, Wc, WcFlags, WcStatus};
use mlx5_hw::ring::{Basic, Cqe64, Cqe128};

/// Four entries of 64 bytes and a doorbell record, as a device would have them.
#[repr(align(64))]
struct Memory {
    ring: [AtomicU8; 4 * 64],
    record: [AtomicU8; 8],
}

impl Memory {
    /// No entry is new yet.
    fn vacant() -> Box<Self> {
        let memory = Self { ring: [const { AtomicU8::new(0) }; 256], record: [const { AtomicU8::new(0xa5) }; 8] };
        memory.ring.chunks(64).for_each(|slot| slot[63].store(0xf0, Relaxed));
        Box::new(memory)
    }

    fn attr(&self) -> RawCqAttr {
        RawCqAttr {
            ring: NonNull::from(&self.ring).cast(),
            log_cq_size: 2,
            cqe_size: 64,
            compression: None,
            record: NonNull::from(&self.record).cast(),
            wc_flags: WcFlags::STANDARD,
            ignore_overrun: false,
            cpu: Cpu::PORTABLE,
        }
    }

    fn cq(&self) -> Cq {
        // SAFETY: the tests drop the CQ first, and touch the memory by atomics only.
        unsafe { Cq::from_raw_parts(&self.attr()) }.unwrap()
    }

    /// What a device writes as entry `index` of the ring's life: byte 63 has opcode and owner bit, bytes 60 and 61 the place in the
    /// queue, byte 56 what a request was, bytes 33 to 35 the user index, bytes 44 to 47 the length.
    fn write(&self, index: usize, opcode: u8, user_index: u8, counter: u8) {
        let slot = &self.ring[index % 4 * 64..][..64];
        let (kind, owner) = (if opcode == REQ { SEND } else { 0 }, opcode << 4 | (index / 4 % 2) as u8);
        for (at, byte) in [(35, user_index), (47, 9), (55, 0x13), (56, kind), (61, counter), (63, owner)] {
            slot[at].store(byte, Relaxed);
        }
    }

    fn record(&self) -> [u8; 8] {
        self.record.each_ref().map(|byte| byte.load(Relaxed))
    }
}

const REQ: u8 = 0;
const RESP_SEND: u8 = 2;
/// A send that ended, as byte 56 has it.
const SEND: u8 = 0x0a;

fn ids(cq: &mut Cq) -> Vec<u64> {
    let mut wcs = [Wc::default(); 4];
    let n = cq.poll_cq(&mut wcs).unwrap();
    wcs[..n].iter().map(|wc| wc.wr_id).collect()
}

#[test]
fn parts_that_make_no_cq_are_refused() {
    let memory = Memory::vacant();
    let good = memory.attr();
    // SAFETY: nothing that is refused is used, and the others are dropped at once.
    let errno = |attr| unsafe { Cq::from_raw_parts(&attr) }.map(|_| ()).map_err(Error::errno);
    assert_eq!(errno(good), Ok(()));
    // SAFETY: within the memory.
    let inside = |ptr: NonNull<u8>, by| unsafe { ptr.add(by) };
    let compressed = |layout, format| RawCqAttr { compression: Some((layout, format)), ..good };
    for attr in [
        RawCqAttr { log_cq_size: 25, ..good },
        RawCqAttr { cqe_size: 0, ..good },
        RawCqAttr { cqe_size: 32, ..good },
        RawCqAttr { ring: inside(good.ring, 8), log_cq_size: 0, ..good },
        RawCqAttr { record: inside(good.record.cast(), 4).cast(), ..good },
        compressed(CqeCompLayout::Basic, CqeCompResFormat::empty()),
        compressed(CqeCompLayout::Enhanced, CqeCompResFormat::HASH | CqeCompResFormat::CSUM),
    ] {
        assert_eq!(errno(attr), Err(22), "{attr:?}");
    }
    let both = WcFlags::COMPLETION_TIMESTAMP | WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK;
    for wc_flags in [WcFlags::from_bits_retain(1 << 40), both] {
        assert_eq!(errno(RawCqAttr { wc_flags, ..good }), Err(95), "{wc_flags:?}");
    }
}

#[test]
fn queue_pairs_that_cannot_be_attached_are_refused() {
    let memory = Memory::vacant();
    let cq = memory.cq();
    let attach = |user_index, recv_wr_ids| {
        RawQp::attach(&cq, &RawQpAttr { user_index, recv_wr_ids, ..Default::default() }).map_err(Error::errno)
    };
    let first = attach(5, &[1, 2]).unwrap();
    assert_eq!(attach(5, &[1, 2]).err(), Some(22), "taken");
    assert_eq!(attach(0xff_ffff, &[1, 2]).err(), Some(22), "means none");
    assert_eq!(attach(u32::MAX, &[1, 2]).err(), Some(22));
    assert_eq!(attach(6, &[1, 2, 3]).err(), Some(22), "no power of two");
    assert_eq!(attach(6, &[0; 1 << 17]).err(), Some(22), "more than 16 bits count");
    assert!(attach(0xff_fffe, &[0; 1 << 16]).is_ok());
    assert_eq!(RawSrq::new(&[0; (1 << 16) + 1]).map_err(Error::errno).err(), Some(22));
    drop(first);
}

/// Receives and sends of one queue pair, whose places are posted again a lap later.
#[test]
fn completions_have_the_ids_of_their_places() {
    let memory = Memory::vacant();
    let mut cq = memory.cq();
    let attr = RawQpAttr { user_index: 5, recv_wr_ids: &[10, 11], send_wr_ids: &[20, 21], ..Default::default() };
    let qp = RawQp::attach(&cq, &attr).unwrap();
    for (n, opcode) in [RESP_SEND, REQ, RESP_SEND, REQ].iter().cycle().take(16).enumerate() {
        memory.write(n, *opcode, 5, (n / 2) as u8);
        let id = if *opcode == REQ { 20 } else { 10 } + (n as u64 / 2) % 2;
        assert_eq!(ids(&mut cq), [id], "entry {n}");
        assert_eq!(memory.record(), [0, 0, 0, n as u8 + 1, 0xa5, 0xa5, 0xa5, 0xa5]);
        qp.announce_receives(u32::from(*opcode == RESP_SEND));
        qp.announce_sends(u32::from(*opcode == REQ));
    }
    assert_eq!(ids(&mut cq), []);
}

#[test]
fn a_cq_is_polled_as_a_ring_of_the_format_that_it_has() {
    let memory = Memory::vacant();
    let mut cq = memory.cq();
    let attr = RawQpAttr { user_index: 5, recv_wr_ids: &[10, 11, 12, 13], ..Default::default() };
    let _qp = RawQp::attach(&cq, &attr).unwrap();
    assert!(cq.as_ring::<Cqe128>().is_none() && cq.as_ring::<Basic<Cqe64>>().is_none());
    let mut ring = cq.as_ring::<Cqe64>().unwrap();
    assert_eq!(ring.start_poll(&PollAttr { comp_mask: 1 }).err(), Some(PollError::InvalidAttr));
    assert_eq!(ring.start_poll(&PollAttr::default()).err(), Some(PollError::Empty));
    (0..3).for_each(|n| memory.write(n, RESP_SEND, 5, n as u8));
    let mut poller = ring.start_poll(&PollAttr::default()).unwrap();
    assert_eq!(poller.completion().wr_id(), 10);
    assert_eq!(
        [11, 12].map(|_| poller.next().map(|c| (c.wr_id(), c.byte_len()))),
        [Ok((11, Some(9))), Ok((12, Some(9)))]
    );
    assert_eq!(poller.next().err(), Some(PollError::Empty));
    assert_eq!(poller.completion().wr_id(), 12);
    assert_eq!(memory.record(), [0xa5; 8], "nothing is given back yet");
    drop(poller);
    assert_eq!(memory.record(), [0, 0, 0, 3, 0xa5, 0xa5, 0xa5, 0xa5]);
}

#[test]
fn completions_of_a_queue_that_goes_during_a_batch_are_left_out() {
    let memory = Memory::vacant();
    let mut cq = memory.cq();
    let attr = RawQpAttr { user_index: 5, recv_wr_ids: &[10, 11, 12, 13], ..Default::default() };
    let qp = RawQp::attach(&cq, &attr).unwrap();
    let _other = RawQp::attach(&cq, &RawQpAttr { user_index: 6, recv_wr_ids: &[20], ..attr }).unwrap();
    (0..3).for_each(|n| memory.write(n, RESP_SEND, 5, n as u8));
    let mut poller = cq.start_poll(&PollAttr::default()).unwrap();
    assert_eq!([11, 12].map(|_| poller.next().map(|c| c.wr_id())), [Ok(11), Ok(12)]);
    drop(poller);
    (3..6).for_each(|n| memory.write(n, RESP_SEND, 5, n as u8));
    memory.write(6, RESP_SEND, 6, 0);
    qp.announce_receives(4);
    let mut poller = cq.start_poll(&PollAttr::default()).unwrap();
    assert_eq!(poller.next().map(|c| c.wr_id()), Ok(10));
    drop(qp);
    assert_eq!(poller.next().map(|c| c.wr_id()), Ok(20));
    assert_eq!(poller.completion().qp_num(), Some(0));
}

#[test]
fn receives_of_a_shared_queue_are_posted_again() {
    let memory = Memory::vacant();
    let mut cq = memory.cq();
    let srq = RawSrq::new(&[30, 31, 32]).unwrap();
    let attr = RawQpAttr { user_index: 5, srq: Some(&srq), ..Default::default() };
    let (_a, _b) = (RawQp::attach(&cq, &attr), RawQp::attach(&cq, &RawQpAttr { user_index: 6, ..attr }));
    for (n, (index, place, id)) in [(5, 2, 32), (6, 0, 30), (6, 1, 31), (5, 2, 32), (5, 0, 30)].into_iter().enumerate()
    {
        memory.write(n, RESP_SEND, index, place);
        assert_eq!(ids(&mut cq), [id]);
        srq.post_again();
    }
    memory.write(5, RESP_SEND, 5, 3);
    let unknown = cq.poll_cq(&mut [Wc::default()]);
    assert!(matches!(unknown, Err(PollError::UnknownQueue { user_index: 5, .. })), "no such place: {unknown:?}");
}

#[test]
fn what_takes_a_device_says_that_there_is_none() {
    let memory = Memory::vacant();
    let mut cq = memory.cq();
    memory.write(0, RESP_SEND, 5, 0);
    let qp =
        RawQp::attach(&cq, &RawQpAttr { user_index: 5, qpn: 77, recv_wr_ids: &[1], ..Default::default() }).unwrap();
    assert_eq!(ids(&mut cq), [1]);
    assert_eq!((cq.cqe(), cq.cqe_size(), cq.wc_flags(), qp.qp_num()), (3, 64, WcFlags::STANDARD, 77));
    let query = cq.query().map(|_| ());
    assert!(matches!(query, Err(Error::Failed { why: Failure::NoDevice, sent: false, .. })), "{query:?}");
    assert_eq!(query.map_err(Error::errno), Err(19));
    assert_eq!(cq.resize(100).map_err(Error::errno), Err(38));
    let moderate =
        ModifyCqAttr { attr_mask: mlx5::CqAttrMask::MODERATE, moderate: ModerateCq { cq_count: 1, cq_period: 1 } };
    assert_eq!(cq.modify(&moderate).map_err(Error::errno), Err(95));
    assert_eq!(cq.req_notify(false), Ok(()), "nobody is told, as without a channel");
    assert_eq!(cq.wait(u64::MAX).map_err(Error::errno), Err(22));
    let returned = cq.destroy().unwrap_err();
    assert_eq!(returned.error, Error::Busy, "a queue pair is attached");
    drop(qp);
    returned.object.destroy().unwrap();
}

#[test]
fn entries_of_a_queue_pair_that_is_gone_are_stepped_over() {
    let memory = Memory::vacant();
    let mut cq = memory.cq();
    let of = |user_index| RawQpAttr { user_index, recv_wr_ids: &[10], ..Default::default() };
    let (gone, stays) = (RawQp::attach(&cq, &of(5)).unwrap(), RawQp::attach(&cq, &of(6)).unwrap());
    memory.write(0, RESP_SEND, 5, 0);
    memory.write(1, RESP_SEND, 6, 0);
    drop(gone);
    let mut wc = [Wc::default()];
    assert_eq!((cq.poll_cq(&mut wc), wc[0].wr_id), (Ok(1), 10));
    assert_eq!(memory.record()[3], 2, "both are the device's again");
    assert!(RawQp::attach(&cq, &of(5)).is_err(), "an entry of the old one may be there");
    assert_eq!(ids(&mut cq), []);
    assert!(RawQp::attach(&cq, &of(5)).is_ok());
    drop(stays);
}

#[test]
fn the_memory_stays_as_it_was_and_the_callers() {
    let memory = Memory::vacant();
    let before: Vec<u8> = memory.ring.iter().map(|byte| byte.load(Relaxed)).collect();
    let cq = memory.cq();
    let qp = RawQp::attach(&cq, &RawQpAttr::default()).unwrap();
    drop(cq);
    drop(qp);
    let after: Vec<u8> = memory.ring.iter().map(|byte| byte.load(Relaxed)).collect();
    assert_eq!((after, memory.record()), (before, [0xa5; 8]));
}

#[test]
fn the_consumer_index_is_not_written_where_overrun_is_ignored() {
    let memory = Memory::vacant();
    // SAFETY: as in `Memory::cq`.
    let mut cq = unsafe { Cq::from_raw_parts(&RawCqAttr { ignore_overrun: true, ..memory.attr() }) }.unwrap();
    let qp = RawQp::attach(&cq, &RawQpAttr { user_index: 5, recv_wr_ids: &[1], ..Default::default() }).unwrap();
    memory.write(0, RESP_SEND, 5, 0);
    assert_eq!((ids(&mut cq), memory.record()), (vec![1], [0xa5; 8]));
    drop(qp);
}

/// An error's entry has its syndrome in byte 55: 0x13 is a remote access error.
#[test]
fn errors_come_as_from_any_cq() {
    let memory = Memory::vacant();
    let mut cq = memory.cq();
    let qp = RawQp::attach(&cq, &RawQpAttr { user_index: 5, send_wr_ids: &[1, 2], ..Default::default() }).unwrap();
    memory.write(0, 13, 5, 1);
    let mut wc = [Wc::default()];
    assert_eq!(cq.poll_cq(&mut wc), Ok(1));
    assert_eq!((wc[0].wr_id, wc[0].status), (2, WcStatus::REM_ACCESS_ERR));
    drop(qp);
}
