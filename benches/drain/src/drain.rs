//! A ring, its queues, and how they are read.

use std::ffi::CStr;
use std::hint::black_box;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use mlx5::dv::{CqeCompLayout, CqeCompResFormat};
use mlx5::raw::{RawCqAttr, RawQp, RawQpAttr, RawSrq};
use mlx5::{Completion, Cpu, Cq, Error, Packet, PollAttr, PollError, Wc, WcFlags};

/// How completions are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `poll_cq` into an array of 48-byte `ibv_wc`.
    PollCq,
    /// `start_poll`, `next` and the end of the poller; of each completion `wr_id`, status, opcode, `byte_len`, flags, immediate data
    /// and `qp_num` are read.
    Iterator,
    /// `poll_packets` into an array of 32-byte packets.
    Burst,
}

impl Mode {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::PollCq, Self::Iterator, Self::Burst];

    /// Its name in reports.
    pub const fn name(self) -> &'static CStr {
        match self {
            Self::PollCq => c"poll_cq",
            Self::Iterator => c"iterator",
            Self::Burst => c"burst",
        }
    }
}

/// What the entries of a ring are (`enum drain_kind`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whole entries of queue pairs.
    Plain,
    /// Sessions of the basic layout, with a hash in each mini.
    BasicHash,
    /// Sessions of the basic layout, with a checksum in each mini.
    BasicCsum,
    /// Blocks of the enhanced layout, with a hash in each mini.
    EnhancedHash,
    /// Received packets. Their entries name user index 0, whatever the queue.
    Ethernet,
}

impl Kind {
    /// By its number; `None` for one that is none.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0..=4 => Some(Self::Plain),
            5 => Some(Self::BasicHash),
            6 => Some(Self::BasicCsum),
            7 => Some(Self::EnhancedHash),
            8 => Some(Self::Ethernet),
            _ => None,
        }
    }

    const fn compression(self) -> Option<(CqeCompLayout, CqeCompResFormat)> {
        match self {
            Self::Plain | Self::Ethernet => None,
            Self::BasicHash => Some((CqeCompLayout::Basic, CqeCompResFormat::HASH)),
            Self::BasicCsum => Some((CqeCompLayout::Basic, CqeCompResFormat::CSUM)),
            Self::EnhancedHash => Some((CqeCompLayout::Enhanced, CqeCompResFormat::HASH)),
        }
    }
}

/// A ring and its queues, as `struct drain_params` has them.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// The entries.
    pub ring: NonNull<u8>,
    /// How many: a power of two.
    pub entries: u32,
    /// Bytes of each: 64 or 128.
    pub cqe_size: u32,
    /// What they are.
    pub kind: Kind,
    /// User index of the first queue pair; the others follow.
    pub user_index: u32,
    /// Its number; the others follow.
    pub qpn: u32,
    /// How many queue pairs.
    pub queues: u32,
    /// Places of each receive queue: place i has `wr_id` 0x1000 + i.
    pub receives: u32,
    /// Places of each send queue: place i has `wr_id` 0x2000 + i.
    pub sends: u32,
    /// Receives come from a shared queue, whose place i, below the number of entries, has `wr_id` 0x3000 + i.
    pub shared: bool,
}

/// A ring that is drained in one way.
pub struct Drain {
    queues: Vec<RawQp>,
    srq: Option<RawSrq>,
    cq: Cq,
    /// The CQ's doorbell record.
    _record: Box<AtomicU64>,
    mode: Mode,
    wcs: Vec<Wc>,
    packets: Vec<Packet>,
    params: Params,
    /// Entries taken so far.
    taken: u32,
}

impl Drain {
    /// Polls with these instructions, from index 0 on.
    ///
    /// # Errors
    /// What the facade refuses.
    ///
    /// # Safety
    /// The ring is valid for reads and writes until this is dropped, nobody has a reference to it other than to atomics, and nobody
    /// writes to it during [`run`](Self::run), but atomically. `cpu` names what the processor has.
    pub unsafe fn new(params: &Params, mode: Mode, cpu: Cpu) -> Result<Self, Error> {
        let record = Box::new(AtomicU64::new(0));
        let attr = RawCqAttr {
            ring: params.ring,
            log_cq_size: log(params.entries)?,
            cqe_size: u16::try_from(params.cqe_size).unwrap_or(0),
            compression: params.kind.compression(),
            record: NonNull::from(&*record).cast(),
            wc_flags: WcFlags::STANDARD,
            ignore_overrun: false,
            cpu,
        };
        // SAFETY: the caller's promise; the record is on the heap, where it stays until after the CQ is gone, as fields are
        // dropped in their order.
        let cq = unsafe { Cq::from_raw_parts(&attr)? };
        let ids = |first: u64, n: u32| (first..first + u64::from(n)).collect::<Vec<_>>();
        let srq = if params.shared { Some(RawSrq::new(&ids(0x3000, params.entries))?) } else { None };
        let (recv, send) = (ids(0x1000, params.receives), ids(0x2000, params.sends));
        let queues = (0..params.queues.max(1)).map(|n| {
            let user_index = if params.kind == Kind::Ethernet { n } else { params.user_index.wrapping_add(n) };
            let recv_wr_ids = if srq.is_some() { &[] } else { &*recv };
            let qpn = params.qpn.wrapping_add(n);
            RawQp::attach(&cq, &RawQpAttr { user_index, qpn, recv_wr_ids, send_wr_ids: &send, srq: srq.as_ref() })
        });
        let queues = queues.collect::<Result<Vec<_>, _>>()?;
        let (wcs, packets) = (vec![Wc::default(); 64], vec![Packet::default(); 64]);
        Ok(Self { queues, srq, cq, _record: record, mode, wcs, packets, params: *params, taken: 0 })
    }

    /// Drains up to `want` completions in polls of `batch`: how many there were, and the sum of `wr_id`, length and status of each. It
    /// ends at once where none is there, and at an entry that is bad. At the start of a lap all is posted again.
    pub fn run(&mut self, batch: u32, want: u32) -> (u32, u64) {
        if self.params.kind == Kind::EnhancedHash {
            self.number_the_lap();
        }
        // The images count requests from 0 in each lap.
        if self.taken & (self.params.entries - 1) == 0 {
            self.queues.iter().for_each(RawQp::rewind);
        }
        let (drained, sum) = match self.mode {
            Mode::PollCq => {
                let of = |wc: &Wc| (wc.wr_id, wc.byte_len, wc.status.0);
                poll(&mut self.cq, &mut self.wcs, (batch, want), Cq::poll_cq, of)
            }
            Mode::Iterator => self.iterate(batch, want),
            Mode::Burst => {
                let of = |packet: &Packet| (packet.wr_id, packet.byte_len, packet.raw_status.into());
                poll(&mut self.cq, &mut self.packets, (batch, want), Cq::poll_packets, of)
            }
        };
        self.taken = self.taken.wrapping_add(drained);
        self.srq.iter().for_each(RawSrq::post_again);
        (drained, sum)
    }

    /// Entries of the enhanced layout have the lap's number in byte 62, and their images only that of the first two laps. An image that
    /// was laid as it is, by the lap's parity, gets the number here, as a device would have written it. Who writes the number
    /// himself pays for a look at one byte.
    fn number_the_lap(&self) {
        let Params { ring, entries, cqe_size, .. } = self.params;
        // SAFETY: `new` was promised that so many bytes are there, to be reached by atomics, and that nobody else writes to them now.
        let bytes = unsafe { slice::from_raw_parts(ring.cast::<AtomicU8>().as_ptr(), (entries * cqe_size) as usize) };
        let lap = (self.taken >> entries.ilog2()) as u8;
        let tails = || bytes.chunks_exact(cqe_size as usize).filter_map(|slot| slot.last_chunk::<2>());
        let is_image = |tail: &[AtomicU8; 2]| tail[0].load(Relaxed) == lap & 1 && tail[1].load(Relaxed) < 0xf0;
        if lap > 1 && tails().next().is_some_and(is_image) {
            tails().filter(|tail| is_image(tail)).for_each(|[number, _]| number.store(lap, Relaxed));
        }
    }

    fn iterate(&mut self, batch: u32, want: u32) -> (u32, u64) {
        let (mut drained, mut sum, mut others) = (0, 0_u64, 0);
        while drained < want && batch != 0 {
            let Ok(mut poller) = self.cq.start_poll(&PollAttr::default()) else { break };
            let room = batch.min(want - drained);
            sum = sum.wrapping_add(read(&poller.completion(), &mut others));
            let mut taken = 1;
            while taken < room {
                let Ok(completion) = poller.next() else { break };
                sum = sum.wrapping_add(read(&completion, &mut others));
                taken += 1;
            }
            drained += taken;
        }
        black_box(others);
        (drained, sum)
    }
}

/// Polls arrays by `call`, and adds up what `of` tells of each completion: its `wr_id`, length and status.
#[inline(always)]
fn poll<T: Copy + Default>(
    cq: &mut Cq,
    all: &mut Vec<T>,
    (batch, want): (u32, u32),
    call: impl Fn(&mut Cq, &mut [T]) -> Result<usize, PollError>,
    of: impl Fn(&T) -> (u64, u32, u32),
) -> (u32, u64) {
    if batch as usize > all.len() {
        all.resize(batch as usize, T::default());
    }
    let (mut drained, mut sum) = (0, 0_u64);
    while drained < want {
        let room = batch.min(want - drained) as usize;
        let Some(some) = all.get_mut(..room) else { break };
        let Ok(n @ 1..) = call(cq, some) else { break };
        for (wr_id, length, status) in some.iter().take(n).map(&of) {
            sum = sum.wrapping_add(wr_id).wrapping_add(u64::from(length) + u64::from(status));
        }
        drained += n as u32;
    }
    (drained, sum)
}

/// Reads all fields; what makes the sum.
#[inline(always)]
fn read(completion: &Completion<'_>, others: &mut u32) -> u64 {
    let opcode = completion.opcode().map_or(0, |opcode| opcode.0);
    let (imm, qpn) = (completion.imm_data().unwrap_or(0), completion.qp_num().unwrap_or(0));
    *others ^= opcode ^ completion.wc_flags().bits() ^ imm ^ qpn;
    let (length, status) = (completion.byte_len().unwrap_or(0), completion.status().0);
    completion.wr_id().wrapping_add(u64::from(length) + u64::from(status))
}

fn log(entries: u32) -> Result<u32, Error> {
    if entries.is_power_of_two() {
        Ok(entries.ilog2())
    } else {
        Err(Error::Invalid { what: "the number of entries is no power of two" })
    }
}
