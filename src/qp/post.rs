//! Posting work requests.
//!
//! A request is written into the queue's memory as it will be read by the device; then, once a call, the doorbell record
//! says how far the queue is filled, and for sends the doorbell in the UAR sends the device there. Between the three
//! stand the barriers of [`mlx5_hw::arch`]. Nothing here allocates.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use mlx5_hw::arch;
use mlx5_hw::be::Be32;
use mlx5_hw::uar;
use mlx5_hw::wqe::{self, BASIC_BLOCK, FmCeSe, SEGMENT};

use super::wr::{Parts, RecvWr, SendWr, Sge, UdAddress};
use super::{Qp, QpState, QpType};
use crate::error::Error;
use crate::flags::SendFlags;

/// A request that was not posted. Those before it were (`ibv_post_send(3)`: `bad_wr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostError {
    /// Index of the request in the list.
    pub index: usize,
    /// Why: `NoMemory` (ENOMEM) when the queue is full, `Invalid` (EINVAL) for the request or the state, `Failed` for a device
    /// that has.
    pub error: Error,
}

impl PostError {
    /// The error number of the verbs: Linux's, on every platform; positive.
    pub const fn errno(&self) -> i32 {
        self.error.errno()
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error {
            Error::NoMemory => write!(f, "request {}: the queue is full; poll its CQ first", self.index),
            error => write!(f, "request {}: {error}", self.index),
        }
    }
}

impl core::error::Error for PostError {}

const fn invalid<T>(what: &'static str) -> Result<T, Error> {
    Err(Error::Invalid { what })
}

/// Posts each request until one fails.
pub(crate) fn each<W>(wrs: &[W], mut post: impl FnMut(&W) -> Result<(), Error>) -> (usize, Result<(), PostError>) {
    for (index, wr) in wrs.iter().enumerate() {
        if let Err(error) = post(wr) {
            return (index, Err(PostError { index, error }));
        }
    }
    (wrs.len(), Ok(()))
}

impl Qp {
    /// Posts send requests, in order (`ibv_post_send(3)`). The device is told once, after the last of them.
    ///
    /// A send whose completion is not asked for keeps its place in the queue until a later one's completion is polled.
    ///
    /// # Errors
    /// The first request that cannot be posted, and why; the ones before it are posted. `NoMemory` (ENOMEM) when the queue is
    /// full; `Invalid` (EINVAL) for unknown flags, more pieces or inlined bytes than the queue pair was created for, a piece
    /// of 2^31 bytes or more, an operation that the transport does not have (`ibv_post_send(3)`), a datagram without a destination,
    /// one to a queue pair number of more than 24 bits or with an address handle of another protection domain, a destination on a
    /// connection, payload in the wrong field, an RDMA read or atomic that is inlined, an atomic whose list is not
    /// one piece of 8 bytes (libmlx5 would write 8 bytes to a shorter one), and in a state other than Rts and Err;
    /// `Unsupported` (EOPNOTSUPP) for atomics on a device without. Keys, addresses and what the peer allows are checked by the
    /// devices: such a request is posted, and its completion tells. With data in completions
    /// ([`ALLOW_SCATTER_TO_CQE`](crate::dv::QpCreateFlags::ALLOW_SCATTER_TO_CQE)) an answer that may lie in its completion has to ask
    /// for that one, or is `Invalid`; elsewhere it would be lost.
    ///
    /// A device that was found to have failed takes nothing more: `Failed` for the first request, as Linux's mlx5_ib refuses
    /// it. Posting does not look for that; waiting, commands and [`Device::health`](crate::Device::health) do.
    pub fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        if !wrs.is_empty() {
            self.dev().check().map_err(|error| PostError { index: 0, error })?;
        }
        let mut last = None;
        let (posted, result) = each(wrs, |wr| {
            last = Some(self.write_send(wr)?);
            Ok(())
        });
        if let Some(ctrl) = last.filter(|_| posted != 0) {
            if let Some(record) = self.dbrec() {
                record.set_send(self.sq_posted);
            }
            arch::dma_wmb();
            self.dev().ring_uar64(uar::BLUEFLAME, uar::sq_doorbell(&ctrl));
        }
        result
    }

    /// Posts receive requests, in order (`ibv_post_recv(3)`). The device is told once, after the last of them.
    ///
    /// # Errors
    /// The first request that cannot be posted, and why; the ones before it are posted. `NoMemory` (ENOMEM) when the queue is
    /// full; `Invalid` (EINVAL) for more pieces than the queue pair was created for, a piece of 2^31 bytes or more, in state
    /// Reset, and when the receives come from a shared receive queue.
    pub fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        let (posted, result) = each(wrs, |wr| self.write_recv(wr));
        if posted != 0
            && let Some(record) = self.dbrec()
        {
            record.set_receive(self.rq_posted);
        }
        result
    }

    /// Writes one send request; its control segment.
    fn write_send(&mut self, wr: &SendWr<'_>) -> Result<[Be32; 4], Error> {
        if !matches!(self.state, QpState::Rts | QpState::Err) {
            return invalid("sends can be posted in state Rts or Err only");
        }
        self.check_send(wr)?;
        if self.work.send.used() >= self.geometry.cap.max_send_wr {
            return Err(Error::NoMemory);
        }
        let rq = self.geometry.rq_bytes() / 4;
        let words = self.geometry.sq_blocks as usize * (BASIC_BLOCK / 4);
        let Some(queue) = self.mem.words().get(rq..rq + words) else { return invalid("no send queue") };
        let start = self.sq_posted;
        let mut at = Writer { queue, at: usize::from(start) * (BASIC_BLOCK / 4) };
        at.skip(SEGMENT / 4);
        let parts = wr.opcode.parts();
        let inlined = wr.send_flags.contains(SendFlags::INLINE);
        let ds = 1
            + at.datagram(wr.ud.as_ref())
            + at.operands(&parts)
            + if inlined { at.inline(wr.inline_data) } else { at.list(wr.sg_list) };
        let signalled = self.sq_sig_all || wr.send_flags.contains(SendFlags::SIGNALED);
        let fenced = wr.send_flags.contains(SendFlags::FENCE);
        let solicited = wr.send_flags.contains(SendFlags::SOLICITED);
        let flags = FmCeSe::of_flags(signalled, solicited, fenced);
        let ctrl = wqe::ctrl(parts.opcode, start, self.qpn, ds as u8, flags, parts.imm);
        Writer { queue, at: usize::from(start) * (BASIC_BLOCK / 4) }.put(&ctrl);
        let answer = wr.opcode.reads().then_some(wr.sg_list);
        self.work.send.push(start.into(), wr.wr_id, answer);
        self.sq_posted = start.wrapping_add(wqe::basic_blocks(ds) as u16);
        Ok(ctrl)
    }

    fn check_send(&self, wr: &SendWr<'_>) -> Result<(), Error> {
        let cap = &self.geometry.cap;
        if !wr.opcode.is_of(self.qp_type) {
            return invalid("the queue pair's transport has no such operation");
        }
        self.check_destination(wr)?;
        if !SendFlags::all().contains(wr.send_flags) {
            return invalid("unknown bit in send_flags");
        }
        if wr.send_flags.contains(SendFlags::INLINE) {
            if wr.opcode.reads() {
                return invalid("RDMA reads and atomics cannot be inlined");
            }
            if !wr.sg_list.is_empty() {
                return invalid("inlined payload goes into inline_data, not sg_list");
            }
            if wr.inline_data.len() > cap.max_inline_data as usize {
                return invalid("more inlined bytes than max_inline_data");
            }
        } else if !wr.inline_data.is_empty() {
            return invalid("inline_data without SendFlags::INLINE");
        }
        if wr.opcode.is_atomic() {
            self.check_atomic(wr.sg_list)?;
        } else {
            check_list(wr.sg_list, cap.max_send_sge)?;
        }
        if wr.opcode.reads() { self.check_answer(wr) } else { Ok(()) }
    }

    /// Datagrams, and nothing else, say where they go.
    #[inline]
    fn check_destination(&self, wr: &SendWr<'_>) -> Result<(), Error> {
        match &wr.ud {
            None if self.qp_type != QpType::Ud => Ok(()),
            None => invalid("a datagram needs its destination, ud"),
            Some(_) if self.qp_type != QpType::Ud => invalid("ud is for datagrams"),
            Some(to) if to.remote_qpn >> 24 != 0 => invalid("remote_qpn has more than 24 bits"),
            Some(to) if !to.ah.is_with(&self.member) => invalid("the address handle is of another protection domain"),
            Some(_) => Ok(()),
        }
    }

    /// An answer that lies in the completion is lost without one.
    fn check_answer(&self, wr: &SendWr<'_>) -> Result<(), Error> {
        let signalled = self.sq_sig_all || wr.send_flags.contains(SendFlags::SIGNALED);
        let length: u64 = wr.sg_list.iter().map(|sge| u64::from(sge.length)).sum();
        if signalled || length == 0 || length > self.answer_in_cqe.into() {
            return Ok(());
        }
        invalid("an RDMA read or atomic whose answer may lie in its completion needs SendFlags::SIGNALED")
    }

    /// An atomic's answer has one place, of 8 bytes.
    fn check_atomic(&self, list: &[Sge]) -> Result<(), Error> {
        if !self.atomics {
            return Err(Error::Unsupported { what: "atomics" });
        }
        match list {
            [Sge { length: 8, .. }] => Ok(()),
            _ => invalid("an atomic needs one piece in sg_list, of 8 bytes"),
        }
    }

    fn write_recv(&mut self, wr: &RecvWr<'_>) -> Result<(), Error> {
        if self.state == QpState::Reset {
            return invalid("nothing can be posted in state Reset");
        }
        if self.srq.is_some() {
            return invalid("its receives come from a shared receive queue: Srq::post_recv");
        }
        let geometry = self.geometry;
        check_list(wr.sg_list, geometry.cap.max_recv_sge)?;
        if self.work.recv.used() >= geometry.rq_entries {
            return Err(Error::NoMemory);
        }
        let Some(queue) = self.mem.words().get(..geometry.rq_bytes() / 4) else { return invalid("no receive queue") };
        let counter = self.rq_posted;
        let mut at = Writer { queue, at: usize::from(counter) * (geometry.rq_stride / 4) };
        if at.list(wr.sg_list) < geometry.rq_stride / SEGMENT {
            at.put(&wqe::end_of_list());
        }
        self.work.recv.push(counter.into(), wr.wr_id, Some(wr.sg_list));
        self.rq_posted = counter.wrapping_add(1);
        Ok(())
    }
}

pub(crate) fn check_list(list: &[Sge], most: u32) -> Result<(), Error> {
    if list.len() > most as usize {
        return invalid("more pieces in sg_list than the queue was created for");
    }
    if list.iter().any(|sge| sge.length & wqe::INLINE_SEG != 0) {
        return invalid("a piece in sg_list has 2^31 bytes or more");
    }
    Ok(())
}

/// Writes dwords into a queue, a power of two of them, around its end.
pub(crate) struct Writer<'q> {
    pub(crate) queue: &'q [AtomicU32],
    /// The next dword.
    pub(crate) at: usize,
}

impl Writer<'_> {
    #[inline]
    fn skip(&mut self, words: usize) {
        self.at += words;
    }

    #[inline]
    pub(crate) fn put(&mut self, words: &[Be32]) {
        for word in words {
            if let Some(place) = self.queue.get(self.at & (self.queue.len().wrapping_sub(1))) {
                place.store(word.to_raw(), Ordering::Relaxed);
            }
            self.at += 1;
        }
    }

    /// Writes where a datagram goes; the number of segments.
    #[inline]
    fn datagram(&mut self, to: Option<&UdAddress<'_>>) -> usize {
        let Some(to) = to else { return 0 };
        self.put(&wqe::datagram(to.ah.av(), to.remote_qpn, to.remote_qkey));
        wqe::AV_WORDS / (SEGMENT / 4)
    }

    /// Writes what lies between the control segment and the data of an operation on the peer's memory; the number of segments.
    #[inline]
    fn operands(&mut self, parts: &Parts) -> usize {
        if let Some(remote) = parts.remote {
            self.put(&wqe::raddr(remote.addr, remote.rkey));
        }
        if let Some((swap_add, compare)) = parts.atomic {
            self.put(&wqe::atomic(swap_add, compare));
        }
        usize::from(parts.remote.is_some()) + usize::from(parts.atomic.is_some())
    }

    /// Writes a data segment for each piece that is not empty; how many.
    #[inline]
    pub(crate) fn list(&mut self, list: &[Sge]) -> usize {
        let pieces = list.iter().filter(|sge| sge.length != 0);
        pieces.map(|sge| self.put(&wqe::data(sge.length, sge.lkey, sge.addr))).count()
    }

    /// Writes inlined data with its header, padded with zeros; the number of segments.
    #[inline]
    fn inline(&mut self, data: &[u8]) -> usize {
        if data.is_empty() {
            return 0;
        }
        let segments = wqe::inline_segments(data.len());
        let end = self.at + segments * (SEGMENT / 4);
        self.put(&[wqe::inline_header(data.len() as u32)]);
        for chunk in data.chunks(4) {
            let mut bytes = [0; 4];
            for (to, from) in bytes.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.put(&[Be32::from_raw(u32::from_ne_bytes(bytes))]);
        }
        while self.at < end {
            self.put(&[Be32::ZERO]);
        }
        segments
    }
}
