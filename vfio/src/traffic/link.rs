//! The two ends of a connection on one device, made and taken down.

use mlx5::{
    AccessFlags, AhAttr, Cq, Device, DmaBuf, Error, GlobalRoute, Mtu, Pd, Qp, QpAttr, QpAttrMask, QpCap, QpInitAttr,
    QpState, dv, ibv,
};

use super::receives::Receives;

/// Bytes up to which a payload travels inside the work request.
pub const INLINE: u32 = 64;
/// Messages in flight unless another number is asked for.
const IN_FLIGHT: u32 = 16;
/// Most memory of one buffer in bytes, unless a single message is longer.
const BUFFER: u32 = 1 << 20;

/// What the traffic is like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// Round trips.
    pub iters: u64,
    /// Bytes of a message.
    pub size: u32,
    /// Messages are of different lengths, from `size` down to 1 byte: one completion cannot pass for another.
    pub varied: bool,
    /// Where the payloads come from.
    pub seed: u64,
    /// Most messages in flight; as many as suit the queues if `None`.
    pub depth: Option<u32>,
    /// Each message carries its number as immediate data. Entries that differ in it cannot be compressed.
    pub numbered: bool,
    /// Short messages may come in the completion itself.
    pub scatter_to_cqe: bool,
    /// The model runs on a thread of its own.
    pub threaded: bool,
}

impl Plan {
    /// Bytes of an iteration's message.
    pub fn len(&self, iteration: u64) -> u32 {
        let less = if self.varied { iteration % u64::from(self.size) } else { 0 };
        self.size - less as u32
    }

    /// Messages in flight over completion queues of `cqe` entries: each end has a send and a receive outstanding for
    /// every one of them.
    pub fn in_flight(&self, cqe: u32) -> u32 {
        let fits = (cqe / 2).min(BUFFER / self.size);
        self.depth.unwrap_or(fits.min(IN_FLIGHT)).max(1)
    }
}

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
    /// The reliable connection.
    pub qp: Qp,
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
        let receives = vec![Receives::new(&pd, depth, plan.size)?, Receives::new(&pd, depth, plan.size)?];
        let mut a = End::new(&pd, "A", a_cq, A, depth, plan)?;
        let mut b = End::new(&pd, "B", b_cq, B, depth, plan)?;
        a.connect(device, b.qp.qp_num())?;
        b.connect(device, a.qp.qp_num())?;
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
    fn new(pd: &Pd, name: &'static str, cq: Cq, receives: usize, depth: u32, plan: &Plan) -> Result<Self, Error> {
        let cap =
            QpCap { max_send_wr: depth, max_recv_wr: depth, max_send_sge: 1, max_recv_sge: 1, max_inline_data: INLINE };
        let mut init = QpInitAttr::new(&cq, &cq, cap);
        init.create_flags.set(dv::QpCreateFlags::ALLOW_SCATTER_TO_CQE, plan.scatter_to_cqe);
        let qp = ibv::create_qp(pd, &mut init)?;
        let bytes = depth as usize * plan.size as usize;
        let outgoing = pd.alloc_buf(bytes, AccessFlags::empty())?;
        Ok(Self { name, cq, qp, outgoing, receives })
    }

    /// Takes the queue pair to Rts, towards a peer on the same port.
    fn connect(&mut self, device: &Device, peer: u32) -> Result<(), Error> {
        let info = device.info();
        let grh = info.gid.map(|dgid| GlobalRoute { dgid, hop_limit: 64, ..GlobalRoute::default() });
        let attr = QpAttr {
            qp_state: QpState::Init,
            port_num: 1,
            dest_qp_num: peer,
            path_mtu: Mtu::B1024,
            ah_attr: AhAttr { grh, port_num: 1, dmac: info.mac, ..AhAttr::default() },
            min_rnr_timer: 12,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            ..QpAttr::default()
        };
        let init = QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS;
        let rtr = QpAttrMask::STATE
            | QpAttrMask::AV
            | QpAttrMask::PATH_MTU
            | QpAttrMask::DEST_QPN
            | QpAttrMask::RQ_PSN
            | QpAttrMask::MAX_DEST_RD_ATOMIC
            | QpAttrMask::MIN_RNR_TIMER;
        let rts = QpAttrMask::STATE
            | QpAttrMask::SQ_PSN
            | QpAttrMask::TIMEOUT
            | QpAttrMask::RETRY_CNT
            | QpAttrMask::RNR_RETRY
            | QpAttrMask::MAX_QP_RD_ATOMIC;
        for (qp_state, mask) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
            ibv::modify_qp(&mut self.qp, &QpAttr { qp_state, ..attr }, mask)?;
        }
        Ok(())
    }

    fn close(self) -> Result<(), Error> {
        let qp = ibv::destroy_qp(self.qp).map_err(|e| e.error);
        let cq = ibv::destroy_cq(self.cq).map_err(|e| e.error);
        let memory = self.outgoing.dereg().map_err(|e| e.error);
        qp.and(cq).and(memory)
    }
}
