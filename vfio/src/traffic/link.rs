//! The two ends of a connection on one device, made and taken down.

use mlx5::{AccessFlags, Cq, Device, DmaBuf, Error, Pd, Qp, QpCap, QpInitAttr, dv, ibv};

use super::connect::{Peer, connect_to};
use super::plan::{INLINE, Plan};
use super::receives::Receives;

/// The end that sends first, in [`Link::ends`].
pub const A: usize = 0;
/// The end that sends back what it receives.
pub const B: usize = 1;

/// One end: a CQ for its sends and receives, a queue pair, and memory.
pub struct End {
    /// Name in messages.
    pub name: &'static str,
    /// Reports both queues.
    pub cq: Cq,
    /// Sends and receives.
    pub qp: Qp,
    /// The other end, once it is connected to it.
    pub peer: Option<Peer>,
    /// Where its own payloads lie, one slot for each message in flight.
    pub outgoing: DmaBuf,
    /// Which of [`Link::receives`] takes the peer's messages.
    pub receives: usize,
}

/// Two connected ends and what they lie in.
pub struct Link {
    /// [`A`] and [`B`].
    pub ends: [End; 2],
    /// The receive requests of the ends.
    pub receives: Vec<Receives>,
    /// Number of messages in flight at a time.
    pub depth: u32,
    pd: Pd,
}

impl Link {
    /// Makes both ends, with a completion queue each, and connects them.
    pub fn new(device: &Device, [a_cq, b_cq]: [Cq; 2], plan: &Plan) -> Result<Self, Error> {
        let pd = ibv::alloc_pd(device)?;
        let depth = plan.in_flight(a_cq.cqe().min(b_cq.cqe()));
        let queues = if plan.shared { 1 } else { 2 };
        let receives = (0..queues).map(|_| Receives::new(&pd, depth, plan)).collect::<Result<Vec<_>, _>>()?;
        let (at_a, at_b) = (A % queues, B % queues);
        let mut a = End::new(&pd, "A", a_cq, (at_a, &receives[at_a]), depth, plan)?;
        let mut b = End::new(&pd, "B", b_cq, (at_b, &receives[at_b]), depth, plan)?;
        a.peer = Some(connect_to(device, &pd, &mut a.qp, b.qp.qp_num(), plan.transport)?);
        b.peer = Some(connect_to(device, &pd, &mut b.qp, a.qp.qp_num(), plan.transport)?);
        Ok(Self { ends: [a, b], receives, depth, pd })
    }

    /// Ends everything, in order. The first error is told, the rest goes on.
    pub fn close(self) -> Result<(), Error> {
        let mut done: Vec<_> = self.ends.into_iter().map(End::close).collect();
        done.extend(self.receives.into_iter().map(Receives::close));
        done.push(ibv::dealloc_pd(self.pd).map_err(|e| e.error));
        done.into_iter().collect()
    }
}

impl End {
    fn new(
        pd: &Pd,
        name: &'static str,
        cq: Cq,
        (index, receives): (usize, &Receives),
        depth: u32,
        plan: &Plan,
    ) -> Result<Self, Error> {
        let cap =
            QpCap { max_send_wr: depth, max_recv_wr: depth, max_send_sge: 1, max_recv_sge: 1, max_inline_data: INLINE };
        let mut init = QpInitAttr::new(&cq, &cq, cap);
        init.qp_type = plan.transport.qp_type();
        init.srq = receives.srq();
        init.create_flags.set(dv::QpCreateFlags::ALLOW_SCATTER_TO_CQE, plan.scatter_to_cqe);
        let qp = ibv::create_qp(pd, &mut init)?;
        let bytes = depth as usize * plan.size as usize;
        let outgoing = pd.alloc_buf(bytes, AccessFlags::empty())?;
        Ok(Self { name, cq, qp, peer: None, outgoing, receives: index })
    }

    fn close(self) -> Result<(), Error> {
        drop(self.peer);
        let qp = ibv::destroy_qp(self.qp).map_err(|e| e.error);
        let cq = ibv::destroy_cq(self.cq).map_err(|e| e.error);
        let memory = self.outgoing.dereg().map_err(|e| e.error);
        qp.and(cq).and(memory)
    }
}
