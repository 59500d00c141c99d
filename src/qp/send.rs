//! Send requests: what is refused, and what lies in the queue.

use mlx5_hw::be::Be32;
use mlx5_hw::uar;
use mlx5_hw::wqe::{self, BASIC_BLOCK, FmCeSe, SEGMENT, WqeOpcode};

use super::post::{PostError, Room, check_count, each, invalid};
use super::segments::{Place, Writer, places, store};
use super::wr::{Remote, SendWr, Sge, WrOpcode};
use super::{Qp, QpState, QpType};
use crate::error::Error;
use crate::flags::SendFlags;

/// A send request that lies in the queue.
#[derive(Clone, Copy)]
pub(super) struct Written {
    /// The counter of its first basic block.
    pub(super) start: u16,
    /// The doorbell that sends the device there.
    pub(super) doorbell: u64,
}

/// What became of a list of send requests.
pub(super) struct Sent {
    /// The counter of the first basic block behind them.
    pub(super) next: u16,
    /// The last of them that lies in the queue.
    pub(super) last: Option<Written>,
    pub(super) result: Result<(), PostError>,
}

/// Completion mode, solicited and fence by the lower three bits of the send flags.
const FLAGS: [FmCeSe; 8] = {
    let mut table = [FmCeSe::new(); 8];
    let mut bits = 0;
    while bits < table.len() {
        let flags = SendFlags::from_bits_retain(bits as u32);
        let has = [SendFlags::SIGNALED, SendFlags::SOLICITED, SendFlags::FENCE];
        table[bits] = FmCeSe::of_flags(flags.contains(has[0]), flags.contains(has[1]), flags.contains(has[2]));
        bits += 1;
    }
    table
};

impl Qp {
    /// Writes send requests into the queue, and tells nobody.
    pub(super) fn write_sends(&self, wrs: &[SendWr<'_>]) -> Sent {
        let (mut next, mut last) = (self.sq_posted, None);
        let result = self.may_send(wrs).and_then(|()| {
            let most = self.geometry.cap.max_send_wr;
            let mut room = Room::new(|| most.saturating_sub(self.work.send().used()));
            let queue = self.send_queue();
            each(wrs, |wr| {
                room.take()?;
                let (doorbell, blocks) = self.write_send(queue, next, wr)?;
                let answer = wr.opcode.reads().then_some(wr.sg_list);
                self.work.send().push(blocks as u8, wr.wr_id, answer);
                last = Some(Written { start: next, doorbell });
                next = next.wrapping_add(blocks);
                Ok(())
            })
        });
        Sent { next, last, result }
    }

    /// Whether the first of them can be posted, as far as the queue pair and the device go.
    fn may_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        if wrs.is_empty() {
            return Ok(());
        }
        let ready = match self.state {
            QpState::Rts | QpState::Err => Ok(()),
            _ => invalid("sends can be posted in state Rts or Err only"),
        };
        self.dev().check().and(ready).map_err(|error| PostError { index: 0, error })
    }

    /// The send queue's memory: `sq_blocks` basic blocks.
    #[inline]
    pub(super) fn send_queue(&self) -> &[Place] {
        let (start, end) = (self.geometry.rq_bytes() / 4, self.geometry.queue_bytes() / 4);
        places(self.mem.words().get(start..end).unwrap_or_default())
    }

    /// Where in the send queue the basic block with this counter begins.
    #[inline]
    pub(super) fn place_of(&self, block: u16) -> usize {
        (u32::from(block) & self.geometry.sq_blocks.wrapping_sub(1)) as usize * (BASIC_BLOCK / SEGMENT)
    }

    /// Writes one send request; its doorbell and the number of its basic blocks.
    #[inline]
    fn write_send(&self, queue: &[Place], start: u16, wr: &SendWr<'_>) -> Result<(u64, u16), Error> {
        if !SendFlags::all().contains(wr.send_flags) {
            return invalid("unknown bit in send_flags");
        }
        let mut at = Writer::around(queue, self.place_of(start));
        let Some(first) = at.take() else { return invalid("no send queue") };
        self.destination(&mut at, wr)?;
        let (opcode, imm) = self.operation(&mut at, wr)?;
        self.data(&mut at, wr)?;
        let ds = at.written();
        let flags = FLAGS[(wr.send_flags | self.always).bits() as usize % FLAGS.len()];
        let ctrl = wqe::ctrl(opcode, start, self.qpn, ds as u8, flags, imm);
        store(first, &ctrl);
        Ok((uar::sq_doorbell(&ctrl), wqe::basic_blocks(ds) as u16))
    }

    /// Datagrams, and nothing else, say where they go.
    #[inline]
    fn destination(&self, at: &mut Writer<'_>, wr: &SendWr<'_>) -> Result<(), Error> {
        match &wr.ud {
            None if self.qp_type != QpType::Ud => Ok(()),
            None => invalid("a datagram needs its destination, ud"),
            Some(_) if self.qp_type != QpType::Ud => invalid("ud is for datagrams"),
            Some(to) if to.remote_qpn >> 24 != 0 => invalid("remote_qpn has more than 24 bits"),
            Some(to) if !to.ah.is_with(&self.member) => invalid("the address handle is of another protection domain"),
            Some(to) => {
                at.datagram(to);
                Ok(())
            }
        }
    }

    /// Writes what lies between control segment and data. What the control segment says of the operation: the opcode, and immediate
    /// data or the key to invalidate.
    #[inline]
    fn operation(&self, at: &mut Writer<'_>, wr: &SendWr<'_>) -> Result<(WqeOpcode, Be32), Error> {
        const NO_IMM: Be32 = Be32::ZERO;
        let raddr = |remote: Remote| wqe::raddr(remote.addr, remote.rkey);
        let named = match wr.opcode {
            WrOpcode::Send => (WqeOpcode::SEND, NO_IMM),
            WrOpcode::SendWithImm { imm_data } => (WqeOpcode::SEND_IMM, Be32::from_raw(imm_data)),
            WrOpcode::RdmaWrite { remote } => {
                self.check_connected()?;
                at.put(&raddr(remote));
                (WqeOpcode::RDMA_WRITE, NO_IMM)
            }
            WrOpcode::RdmaWriteWithImm { remote, imm_data } => {
                self.check_connected()?;
                at.put(&raddr(remote));
                (WqeOpcode::RDMA_WRITE_IMM, Be32::from_raw(imm_data))
            }
            WrOpcode::SendWithInv { invalidate_rkey } => {
                self.check_connected()?;
                (WqeOpcode::SEND_INVAL, Be32::new(invalidate_rkey))
            }
            WrOpcode::RdmaRead { remote } => {
                self.check_answered(wr)?;
                at.put(&raddr(remote));
                (WqeOpcode::RDMA_READ, NO_IMM)
            }
            WrOpcode::AtomicCmpAndSwp { remote, compare, swap } => {
                self.check_atomic(wr)?;
                at.put(&raddr(remote));
                at.put(&wqe::atomic(swap, compare));
                (WqeOpcode::ATOMIC_CS, NO_IMM)
            }
            WrOpcode::AtomicFetchAndAdd { remote, add } => {
                self.check_atomic(wr)?;
                at.put(&raddr(remote));
                at.put(&wqe::atomic(add, 0));
                (WqeOpcode::ATOMIC_FA, NO_IMM)
            }
        };
        Ok(named)
    }

    /// Writes the payload, or where it lies.
    #[inline]
    fn data(&self, at: &mut Writer<'_>, wr: &SendWr<'_>) -> Result<(), Error> {
        let cap = &self.geometry.cap;
        if !wr.send_flags.contains(SendFlags::INLINE) {
            if !wr.inline_data.is_empty() {
                return invalid("inline_data without SendFlags::INLINE");
            }
            check_count(wr.sg_list, cap.max_send_sge as usize)?;
            return at.list(wr.sg_list);
        }
        if !wr.sg_list.is_empty() {
            return invalid("inlined payload goes into inline_data, not sg_list");
        }
        if wr.inline_data.len() > cap.max_inline_data as usize {
            return invalid("more inlined bytes than max_inline_data");
        }
        at.inline(wr.inline_data);
        Ok(())
    }

    #[inline]
    fn check_connected(&self) -> Result<(), Error> {
        match self.qp_type {
            QpType::Rc | QpType::Uc => Ok(()),
            _ => invalid("the queue pair's transport has no such operation"),
        }
    }

    /// An answer that lies in the completion is lost without one.
    fn check_answered(&self, wr: &SendWr<'_>) -> Result<(), Error> {
        if self.qp_type != QpType::Rc {
            return invalid("the queue pair's transport has no such operation");
        }
        if wr.send_flags.contains(SendFlags::INLINE) {
            return invalid("RDMA reads and atomics cannot be inlined");
        }
        let signalled = (wr.send_flags | self.always).contains(SendFlags::SIGNALED);
        let length: u64 = wr.sg_list.iter().map(|sge| u64::from(sge.length)).sum();
        if signalled || length == 0 || length > self.answer_in_cqe.into() {
            return Ok(());
        }
        invalid("an RDMA read or atomic whose answer may lie in its completion needs SendFlags::SIGNALED")
    }

    /// An atomic's answer has one place, of 8 bytes.
    fn check_atomic(&self, wr: &SendWr<'_>) -> Result<(), Error> {
        self.check_answered(wr)?;
        if !self.atomics {
            return Err(Error::Unsupported { what: "atomics" });
        }
        match wr.sg_list {
            [Sge { length: 8, .. }] => Ok(()),
            _ => invalid("an atomic needs one piece in sg_list, of 8 bytes"),
        }
    }
}
