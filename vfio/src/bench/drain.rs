//! Draining a ring as a program does: through the facade's own [`Cq`], made of raw parts.

use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use mlx5::dv::CqeCompLayout;
use mlx5::raw::{RawCqAttr, RawQp, RawQpAttr, RawSrq};
use mlx5::{Completion, Cpu, Cq, Error, Packet, PollAttr, Wc, WcFlags};

use super::rings::{Image, Kind, MIX, QPN, USER_INDEX, WR_IDS};
use super::subject::{CALLS, Producer, State, Subject};
use crate::options::Compress;

/// Longest batch that a reader can ask for.
const LONGEST: usize = 64;

/// How a program takes its completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// `poll_cq` into an array of so many; of each completion `wr_id`, `byte_len` and status are read.
    Poll(u32),
    /// `start_poll` and `next`, so many before the poller is dropped; of each completion `wr_id`, status, opcode, `byte_len`, flags,
    /// immediate data and `qp_num` are read.
    Iterator(u32),
    /// `poll_packets` into an array of 64; of each packet `wr_id`, `byte_len`, status, hash, checksum, VLAN, flow tag and flags are read.
    Packets,
}

/// A CQ over a ring, with its queue pairs.
pub struct Drain {
    queues: Vec<RawQp>,
    srq: Option<RawSrq>,
    cq: Cq,
    producer: Producer,
    /// The CQ writes here.
    _record: Box<AtomicU64>,
    reader: Reader,
    right: u64,
}

impl Drain {
    /// Such a ring, read in this way with these instructions.
    ///
    /// # Errors
    /// What the facade refuses.
    pub fn new(image: Image, state: State, reader: Reader, cpu: Cpu) -> Result<Self, Error> {
        let mut producer = Producer::new(image, state);
        producer.write();
        let record = Box::new(AtomicU64::new(0));
        let cq = raw_cq(&producer, &record, cpu)?;
        let image = producer.image();
        let wr_ids = WR_IDS.map(|first| (0..1 << image.log()).map(|n| first + n).collect::<Vec<_>>());
        let srq = if image.kind() == Kind::Srq { Some(RawSrq::new(&wr_ids[2])?) } else { None };
        let queues = attach(&cq, image, &wr_ids, srq.as_ref())?;
        let right = image.sum();
        Ok(Self { queues, srq, cq, producer, _record: record, reader, right })
    }
}

/// A CQ that polls in the producer's memory.
fn raw_cq(producer: &Producer, record: &AtomicU64, cpu: Cpu) -> Result<Cq, Error> {
    let image = producer.image();
    let attr = RawCqAttr {
        ring: producer.memory().start(),
        log_cq_size: image.log(),
        cqe_size: image.cqe_size() as u16,
        compression: match image.kind() {
            Kind::Basic(format, _) => Some((CqeCompLayout::Basic, format.bit())),
            Kind::Enhanced => Some((CqeCompLayout::Enhanced, Compress::Hash.bit())),
            _ => None,
        },
        record: NonNull::from(record).cast(),
        wc_flags: WcFlags::STANDARD,
        ignore_overrun: false,
        cpu,
    };
    // SAFETY: ring and record are of atomics and on the heap, where they stay until after the CQ is gone: `Drain` drops its fields
    // in their order. The producer writes the ring only in `prepare`, when nobody polls.
    unsafe { Cq::from_raw_parts(&attr) }
}

/// The queue pairs that the ring's completions name.
fn attach(cq: &Cq, image: &Image, wr_ids: &[Vec<u64>; 3], srq: Option<&RawSrq>) -> Result<Vec<RawQp>, Error> {
    let (user_index, count) = match image.kind() {
        Kind::Ethernet => (0, 1),
        Kind::Mix => (USER_INDEX, MIX),
        _ => (USER_INDEX, 1),
    };
    let queue = |n| {
        let recv_wr_ids = if srq.is_some() { &[] } else { &*wr_ids[0] };
        let (user_index, qpn) = (user_index + n, QPN + n);
        RawQp::attach(cq, &RawQpAttr { user_index, qpn, recv_wr_ids, send_wr_ids: &wr_ids[1], srq })
    };
    (0..count).map(queue).collect()
}

impl Subject for Drain {
    fn items(&self) -> u32 {
        1 << self.producer.image().log()
    }

    fn right(&self) -> u64 {
        self.right
    }

    fn prepare(&mut self) {
        // The images count requests from 0 in each lap.
        self.queues.iter().for_each(RawQp::rewind);
        self.srq.iter().for_each(RawSrq::post_again);
        self.producer.produce();
    }

    fn run(&mut self) -> u64 {
        match self.reader {
            Reader::Poll(1) => poll::<1>(&mut self.cq),
            Reader::Poll(16) => poll::<16>(&mut self.cq),
            Reader::Poll(_) => poll::<LONGEST>(&mut self.cq),
            Reader::Iterator(batch) => iterate(&mut self.cq, batch),
            Reader::Packets => packets(&mut self.cq),
        }
    }
}

/// Polls arrays until none is there; an error as well ends it.
#[inline(never)]
fn poll<const BATCH: usize>(cq: &mut Cq) -> u64 {
    let (mut wcs, mut sum) = ([Wc::default(); BATCH], 0);
    while let Ok(n @ 1..) = cq.poll_cq(&mut wcs) {
        for wc in wcs.iter().take(n) {
            sum += wc.wr_id + u64::from(wc.byte_len) + u64::from(wc.status.0);
        }
    }
    sum
}

/// Polls packets until none is there; an error as well ends it.
#[inline(never)]
fn packets(cq: &mut Cq) -> u64 {
    let (mut packets, mut sum, mut others) = ([Packet::default(); LONGEST], 0, 0);
    while let Ok(n @ 1..) = cq.poll_packets(&mut packets) {
        for packet in packets.iter().take(n) {
            sum += packet.wr_id + u64::from(packet.byte_len) + u64::from(packet.raw_status);
            let narrow = u32::from(packet.check_sum ^ packet.vlan);
            others ^= packet.rss_hash ^ packet.flow_tag ^ packet.flags.bits() ^ narrow;
        }
    }
    black_box(others);
    sum
}

/// Polls one by one until none is there; an error as well ends it.
#[inline(never)]
fn iterate(cq: &mut Cq, batch: u32) -> u64 {
    let (mut sum, mut others) = (0, 0);
    while let Ok(mut poller) = cq.start_poll(&PollAttr::default()) {
        sum += read(&poller.completion(), &mut others);
        for _ in 1..batch {
            let Ok(completion) = poller.next() else { break };
            sum += read(&completion, &mut others);
        }
    }
    black_box(others);
    sum
}

/// The seven fields that libmlx5's iterator was asked for when it was measured.
#[inline(always)]
fn read(completion: &Completion<'_>, others: &mut u32) -> u64 {
    let opcode = completion.opcode().map_or(0, |opcode| opcode.0);
    let (imm, qpn) = (completion.imm_data().unwrap_or(0), completion.qp_num().unwrap_or(0));
    *others ^= opcode ^ completion.wc_flags().bits() ^ imm ^ qpn;
    completion.wr_id() + u64::from(completion.byte_len().unwrap_or(0)) + u64::from(completion.status().0)
}

/// Polls of a CQ in which nothing is new.
pub struct Empty(Drain);

impl Empty {
    /// With an array of 16.
    ///
    /// # Errors
    /// What the facade refuses.
    pub fn new(log: u32, cpu: Cpu) -> Result<Self, Error> {
        Drain::new(Image::new(Kind::Send, log, 64), State::Hot, Reader::Poll(16), cpu).map(Self)
    }
}

impl Subject for Empty {
    fn items(&self) -> u32 {
        CALLS
    }

    fn right(&self) -> u64 {
        0
    }

    fn prepare(&mut self) {
        self.0.producer.write();
    }

    fn run(&mut self) -> u64 {
        let mut wcs = [Wc::default(); 16];
        (0..CALLS).map(|_| self.0.cq.poll_cq(&mut wcs).unwrap_or(1) as u64).sum()
    }
}
