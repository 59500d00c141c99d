//! Two connected queue pairs of one device, and messages between them.

use std::thread;
use std::time::Duration;

use mlx5::{
    AccessFlags, AhAttr, CompChannel, Cq, Device, DmaBuf, GlobalRoute, Pd, Qp, QpAttr, QpAttrMask, QpCap, QpInitAttr,
    QpState, RecvWr, SendFlags, SendWr, Sge, Wc, WcStatus, ibv,
};

use crate::Result;

/// Bytes of a message.
pub const SIZE: usize = 512;
/// No message takes that long.
const PATIENCE: Duration = Duration::from_secs(60);
const CAP: QpCap = QpCap { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };

/// Two ends, each with a completion queue of its own on a vector of its own. What is destroyed first stands first.
pub struct Pair {
    /// Connected to each other.
    pub qp: [Qp; 2],
    /// Each reports what its queue pair does.
    pub cq: [Cq; 2],
    /// A message goes from one to the other.
    pub buf: [DmaBuf; 2],
    /// Events of both completion queues.
    pub channel: CompChannel,
    /// Holds the queue pairs and the memory.
    pub pd: Pd,
}

/// How completions are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// By looking again and again.
    Polling,
    /// Asleep.
    Sleeping,
}

impl Pair {
    /// Makes and connects both ends, on these completion vectors.
    pub fn new(device: &Device, vectors: [u32; 2]) -> Result<Self, mlx5::Error> {
        let channel = ibv::create_comp_channel(device);
        let pd = ibv::alloc_pd(device)?;
        let buf = [pd.alloc_buf(SIZE, AccessFlags::LOCAL_WRITE)?, pd.alloc_buf(SIZE, AccessFlags::LOCAL_WRITE)?];
        let [one, two] = vectors;
        let cq =
            [ibv::create_cq(device, 16, 0, Some(&channel), one)?, ibv::create_cq(device, 16, 1, Some(&channel), two)?];
        let mut a = ibv::create_qp(&pd, &mut QpInitAttr::new(&cq[0], &cq[0], CAP))?;
        let mut b = ibv::create_qp(&pd, &mut QpInitAttr::new(&cq[1], &cq[1], CAP))?;
        connect(device, &mut a, b.qp_num())?;
        connect(device, &mut b, a.qp_num())?;
        Ok(Self { qp: [a, b], cq, buf, channel, pd })
    }

    /// Posts message number `n`: it goes to end `n % 2`. Its bytes are told by its number.
    pub fn post(&mut self, n: u64) -> Result<()> {
        let (to, from) = ((n % 2) as usize, ((n + 1) % 2) as usize);
        self.buf[from].write(0, &payload(n))?;
        let piece = |buf: &DmaBuf| [Sge { addr: buf.addr(), length: SIZE as u32, lkey: buf.lkey() }];
        ibv::post_recv(&mut self.qp[to], &[RecvWr { wr_id: n, sg_list: &piece(&self.buf[to]) }])?;
        let sg_list = &piece(&self.buf[from]);
        let send = SendWr { wr_id: n, sg_list, send_flags: SendFlags::SIGNALED, ..SendWr::default() };
        Ok(ibv::post_send(&mut self.qp[from], &[send])?)
    }

    /// Compares what arrived of message number `n`.
    pub fn compare(&self, n: u64) -> Result<()> {
        let (mut got, sent) = ([0; SIZE], payload(n));
        self.buf[(n % 2) as usize].read(0, &mut got)?;
        match got.iter().zip(&sent).position(|(got, sent)| got != sent) {
            None => Ok(()),
            Some(at) => Err(format!("byte {at} of message {n} is {:#x}, not {:#x}", got[at], sent[at]).into()),
        }
    }

    /// Sends message number `n`, waits for both completions, and compares it.
    pub fn exchange(&mut self, device: &Device, n: u64, waiting: Waiting) -> Result<()> {
        self.post(n)?;
        for cq in &mut self.cq {
            let wc = take(device, cq, waiting)?;
            if wc.status != WcStatus::SUCCESS || wc.wr_id != n {
                return Err(format!("message {n} completed as {} with {}", wc.wr_id, wc.status).into());
            }
        }
        self.compare(n)
    }

    /// Ends everything, in order.
    pub fn close(self) -> Result<()> {
        for qp in self.qp {
            ibv::destroy_qp(qp).map_err(|e| e.error)?;
        }
        for cq in self.cq {
            ibv::destroy_cq(cq).map_err(|e| e.error)?;
        }
        for buf in self.buf {
            buf.dereg().map_err(|e| e.error)?;
        }
        ibv::destroy_comp_channel(self.channel).map_err(|e| e.error)?;
        Ok(ibv::dealloc_pd(self.pd).map_err(|e| e.error)?)
    }
}

/// The next completion.
pub fn take(device: &Device, cq: &mut Cq, waiting: Waiting) -> Result<Wc> {
    let deadline = device.now().saturating_add(PATIENCE.as_nanos() as u64);
    let mut wc = [Wc::default()];
    while ibv::poll_cq(cq, &mut wc)? == 0 {
        match waiting {
            Waiting::Sleeping => cq.wait(deadline)?,
            Waiting::Polling if device.now() > deadline => return Err("a completion did not come".into()),
            Waiting::Polling => thread::yield_now(),
        }
    }
    Ok(wc[0])
}

/// The bytes of message number `n`.
fn payload(n: u64) -> [u8; SIZE] {
    std::array::from_fn(|i| (n.wrapping_mul(31) as u8).wrapping_add(i as u8))
}

/// Takes a queue pair to Rts, towards queue pair `peer` of the same port.
fn connect(device: &Device, qp: &mut Qp, peer: u32) -> Result<(), mlx5::Error> {
    use QpAttrMask as M;
    let info = device.info();
    let grh = info.gid.map(|dgid| GlobalRoute { dgid, hop_limit: 1, ..GlobalRoute::default() });
    let attr = QpAttr {
        port_num: 1,
        qp_access_flags: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ,
        dest_qp_num: peer,
        ah_attr: AhAttr { grh, port_num: 1, dmac: info.mac, ..AhAttr::default() },
        min_rnr_timer: 12,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        ..QpAttr::default()
    };
    let init = M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS;
    let rtr = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    let rts = M::STATE | M::SQ_PSN | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
    for (qp_state, mask) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
        ibv::modify_qp(qp, &QpAttr { qp_state, ..attr }, mask)?;
    }
    Ok(())
}
