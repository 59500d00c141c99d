//! Queue pairs: connections, reliable and not, and datagrams.

mod attr;
mod create;
mod doorbell;
mod modify;
pub(crate) mod post;
mod scatter;
pub(crate) mod segments;
mod send;
mod work;
mod wr;

use alloc::sync::Arc;
use core::fmt;

use mlx5_hw::cmd::{DestroyQp, Qp2Rst, QueryQp};
use mlx5_hw::dbrec::QpDbRec;

pub use attr::{Mtu, QpAttr, QpCap, QpInitAttr, QpState, QpType};
pub use doorbell::SendBatch;
pub use modify::ExclusiveCqs;
pub use post::PostError;
pub(crate) use work::{Outstanding, QpWork, UserIndex, UserIndices};
pub use wr::{RecvWr, Remote, SendWr, Sge, UdAddress, WrOpcode};

use crate::cq::Shared as CqShared;
use crate::device::{BlueFlame, DeviceInner, Patience};
use crate::dma::DmaRegion;
use crate::error::{Error, Returned};
use crate::events::Ticket;
use crate::flags::SendFlags;
use crate::pd::Member;
use crate::srq::Shared as SrqShared;

/// Where the two queues lie in the buffer, and how large they are.
#[derive(Clone, Copy, Debug)]
struct Geometry {
    /// Bytes of a receive WQE, a power of two; 0 without a receive queue.
    rq_stride: usize,
    /// Receive WQEs, a power of two; 0 without a receive queue.
    rq_entries: u32,
    /// Basic blocks of the send queue, a power of two; 0 without a send queue.
    sq_blocks: u32,
    /// What was promised to the caller.
    cap: QpCap,
}

/// A queue pair (`ibv_create_qp(3)`).
///
/// Posting takes it exclusively, so it needs no lock; another thread may poll its CQs meanwhile. Dropping it is the same
/// as [`destroy`](Self::destroy), except that errors are not told.
pub struct Qp {
    member: Member,
    qpn: u32,
    /// Its entry among the objects that events may be about.
    ticket: Ticket,
    qp_type: QpType,
    state: QpState,
    send_cq: Arc<CqShared>,
    recv_cq: Arc<CqShared>,
    /// Where its receives come from, if not from a queue of its own.
    srq: Option<Arc<SrqShared>>,
    work: Arc<QpWork>,
    /// Receive queue, then send queue, then the doorbell record.
    mem: DmaRegion,
    geometry: Geometry,
    /// Its own register for work requests instead of doorbells, if it got one.
    blue_flame: Option<BlueFlame>,
    /// What each send request asks for, whatever its own flags: a completion, or nothing.
    always: SendFlags,
    /// Bytes of an answer up to which it lies in the completion; 0 if it never does.
    answer_in_cqe: u32,
    /// The device does atomics as verbs know them.
    atomics: bool,
    context: u64,
    /// Basic blocks posted to the send queue so far.
    sq_posted: u16,
    /// Those of them that the device was told of.
    sq_announced: u16,
    /// WQEs posted to the receive queue so far.
    rq_posted: u16,
    attr: QpAttr,
    /// The destruction has begun: all that is left to do is to end it.
    ending: bool,
    destroyed: bool,
}

impl Qp {
    /// Number of the queue pair, 24 bits: what the peer needs to reach it.
    pub fn qp_num(&self) -> u32 {
        self.qpn
    }

    /// State as far as the driver has moved it. The device moves a queue pair to the error state by itself: [`query`](Self::query) asks.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Its transport.
    pub fn qp_type(&self) -> QpType {
        self.qp_type
    }

    /// The context given at creation.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// The sizes it was created with, rounded up.
    pub fn cap(&self) -> QpCap {
        self.geometry.cap
    }

    /// The attributes, with the state asked from the device (`ibv_query_qp(3)`).
    ///
    /// # Errors
    /// What the device answers; `Protocol` for a state that no queue pair of ours can be in.
    pub fn query(&self) -> Result<QpAttr, Error> {
        let qpc = self.dev().exec(&QueryQp { qpn: self.qpn })?;
        let state = QpState::from_device(qpc.state())
            .ok_or(Error::Protocol { what: "QUERY_QP answered with an unknown state" })?;
        Ok(QpAttr { qp_state: state, cur_qp_state: state, cap: self.geometry.cap, ..self.attr })
    }

    /// Destroys the queue pair (`ibv_destroy_qp(3)`). Its completions that were not polled are lost.
    ///
    /// # Errors
    /// The queue pair comes back, with what the device answered. It may be in Reset by then, and all that can be done with
    /// it is to try again.
    #[expect(clippy::result_large_err, reason = "the queue pair itself comes back")]
    pub fn destroy(mut self) -> Result<(), Returned<Self>> {
        match self.end(Patience::Full) {
            Ok(()) => Ok(()),
            Err(error) => Err(Returned::new(self, error)),
        }
    }

    fn dev(&self) -> &Arc<DeviceInner> {
        self.member.pd().dev()
    }

    /// The doorbell record.
    fn dbrec(&self) -> Option<QpDbRec<'_>> {
        self.mem.words().get(self.geometry.queue_bytes() / 4..).and_then(QpDbRec::first_of)
    }

    fn end(&mut self, patience: Patience) -> Result<(), Error> {
        if self.destroyed {
            return Ok(());
        }
        if self.state != QpState::Reset {
            self.dev().exec_with(patience, &Qp2Rst { qpn: self.qpn })?;
            (self.state, self.ending) = (QpState::Reset, true);
        }
        self.dev().exec_with(patience, &DestroyQp { qpn: self.qpn })?;
        self.destroyed = true;
        if let Some(register) = self.blue_flame.take() {
            self.dev().blue_flames().give_back(register);
        }
        self.dev().forget(self.ticket);
        // Now the memory of its requests is the caller's: from the device, and from whoever polls just now.
        self.work.copies.close(|| self.dev().port().platform().relax());
        self.mem.reclaim();
        // No entry of this queue pair is written from here on.
        let index = self.work.index.get();
        for cq in [&self.recv_cq, &self.send_cq] {
            cq.rows().retire(index, &self.work, self.srq.is_some() && Arc::ptr_eq(cq, &self.recv_cq));
            cq.rows().reclaim();
        }
        Ok(())
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // What can't be ended keeps its memory, its row in each CQ and so its user index.
        if self.end(Patience::Short).is_err() {
            self.dev().forget(self.ticket);
        }
        self.send_cq.detach();
        self.recv_cq.detach();
        if let Some(srq) = &self.srq {
            srq.detach();
        }
        self.dev().untrack();
    }
}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qp")
            .field("qp_num", &self.qpn)
            .field("qp_type", &self.qp_type)
            .field("state", &self.state)
            .field("cap", &self.geometry.cap)
            .finish_non_exhaustive()
    }
}

impl Geometry {
    fn rq_bytes(&self) -> usize {
        self.rq_stride * self.rq_entries as usize
    }

    /// Bytes of both queues; the doorbell record lies behind them.
    fn queue_bytes(&self) -> usize {
        self.rq_bytes() + self.sq_blocks as usize * mlx5_hw::wqe::BASIC_BLOCK
    }
}
