//! The job: messages there and back between two queue pairs on the one function, each compared byte by byte.

use core::fmt;

use mlx5::{
    AccessFlags, AhAttr, Cq, Device, DmaBuf, Error, GlobalRoute, Mtu, Pd, PollError, PostError, Qp, QpAttr, QpAttrMask,
    QpCap, QpInitAttr, QpState, RecvWr, SendFlags, SendWr, Sge, Wc, WcStatus, ibv,
};

use crate::clock::Clock;
use crate::io::Verdict;
use crate::serial::say;

const ROUND_TRIPS: u32 = 16;
/// The longest message.
const LONGEST: usize = 4096;
/// How long a message may take: 10 s, for a device that another process plays.
const PATIENCE: u64 = 10_000_000_000;
const SEND_ID: u64 = 1;
const RECEIVE_ID: u64 = 2;

/// Why the run did not pass.
pub enum Reason {
    /// There is no function.
    NoFunction,
    /// The machine lacks something.
    Machine(&'static str),
    /// A call of the driver failed.
    Driver(Error),
    /// A request could not be posted.
    Post(PostError),
    /// The completion queue holds nonsense.
    Poll(PollError),
    /// A request failed.
    Completion(WcStatus, u32),
    /// A wrong result.
    Wrong(&'static str),
}

impl Reason {
    /// The exit code for it.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::NoFunction => Verdict::NoFunction,
            Self::Machine(_) => Verdict::Machine,
            Self::Driver(_) | Self::Post(_) | Self::Poll(_) => Verdict::Driver,
            Self::Completion(..) | Self::Wrong(_) => Verdict::Wrong,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFunction => f.write_str("no function of vendor 15b3 on any bus"),
            Self::Machine(what) | Self::Wrong(what) => f.write_str(what),
            Self::Driver(error) => error.fmt(f),
            Self::Post(error) => error.fmt(f),
            Self::Poll(error) => error.fmt(f),
            Self::Completion(status, vendor) => write!(f, "a request ended with {status}, vendor error {vendor:#x}"),
        }
    }
}

impl From<Error> for Reason {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}

impl From<PostError> for Reason {
    fn from(error: PostError) -> Self {
        Self::Post(error)
    }
}

/// A queue pair and its memory.
struct End {
    qp: Qp,
    buf: DmaBuf,
}

impl End {
    fn new(pd: &Pd, cq: &Cq) -> Result<Self, Error> {
        let cap = QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
        let buf = pd.alloc_buf(LONGEST, AccessFlags::LOCAL_WRITE)?;
        Ok(Self { qp: ibv::create_qp(pd, &mut QpInitAttr::new(cq, cq, cap))?, buf })
    }

    fn piece(&self, length: usize) -> [Sge; 1] {
        [Sge { addr: self.buf.addr(), length: length as u32, lkey: self.buf.lkey() }]
    }

    fn end(self) -> Result<(), Error> {
        ibv::destroy_qp(self.qp).map_err(|e| e.error)?;
        self.buf.dereg().map_err(|e| e.error)
    }
}

/// Makes the objects, sends the messages, ends the objects.
pub fn round_trips(device: &Device, clock: &Clock) -> Result<(), Reason> {
    let pd = ibv::alloc_pd(device)?;
    let channel = ibv::create_comp_channel(device);
    let mut cq = ibv::create_cq(device, 15, 0, Some(&channel), 0)?;
    let (mut a, mut b) = (End::new(&pd, &cq)?, End::new(&pd, &cq)?);
    connect(device, &mut a.qp, b.qp.qp_num())?;
    connect(device, &mut b.qp, a.qp.qp_num())?;
    let mut bytes = 0;
    for i in 0..ROUND_TRIPS {
        // Lengths from 1 to the longest, most of them odd.
        let length = (LONGEST - 1) * i as usize / (ROUND_TRIPS as usize - 1) + 1;
        send(&mut a, &mut b, &mut cq, clock, 2 * i, length)?;
        send(&mut b, &mut a, &mut cq, clock, 2 * i + 1, length)?;
        bytes += 2 * length;
    }
    say!("{ROUND_TRIPS} round trips, {bytes} bytes compared");
    a.end()?;
    b.end()?;
    ibv::destroy_cq(cq).map_err(|e| e.error)?;
    ibv::destroy_comp_channel(channel).map_err(|e| e.error)?;
    ibv::dealloc_pd(pd).map_err(|e| e.error)?;
    Ok(())
}

/// Takes a queue pair to ready-to-send, connected to queue pair `peer` on the same port.
fn connect(device: &Device, qp: &mut Qp, peer: u32) -> Result<(), Error> {
    use QpAttrMask as M;
    let info = device.info();
    let grh = info.gid.map(|dgid| GlobalRoute { dgid, hop_limit: 1, ..GlobalRoute::default() });
    let attr = QpAttr {
        path_mtu: Mtu::B1024,
        port_num: 1,
        dest_qp_num: peer,
        ah_attr: AhAttr { grh, port_num: 1, dmac: info.mac, ..AhAttr::default() },
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
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

/// One message: both ends complete, and what arrives is what was sent.
fn send(from: &mut End, to: &mut End, cq: &mut Cq, clock: &Clock, number: u32, length: usize) -> Result<(), Reason> {
    let mut sent = [0; LONGEST];
    fill(&mut sent[..length], number);
    from.buf.write(0, &sent[..length])?;
    let room = to.piece(LONGEST);
    ibv::post_recv(&mut to.qp, &[RecvWr { wr_id: RECEIVE_ID, sg_list: &room }])?;
    let piece = from.piece(length);
    let request = SendWr { wr_id: SEND_ID, sg_list: &piece, send_flags: SendFlags::SIGNALED, ..SendWr::default() };
    ibv::post_send(&mut from.qp, &[request])?;
    // There by polling, back by events.
    wait_for_both(cq, clock, length, number % 2 == 1)?;
    let mut arrived = [0; LONGEST];
    to.buf.read(0, &mut arrived[..length])?;
    if arrived[..length] != sent[..length] {
        return Err(Reason::Wrong("other bytes arrived than were sent"));
    }
    Ok(())
}

/// Polls until the send and the receive have completed, each once and well; with `events` only when an event has told that there
/// is something. This machine has no interrupts, so waiting for one looks at the event queues again and again.
fn wait_for_both(cq: &mut Cq, clock: &Clock, length: usize, events: bool) -> Result<(), Reason> {
    let deadline = clock.now().saturating_add(PATIENCE);
    let (mut sent, mut received) = (false, false);
    while !(sent && received) {
        if events {
            cq.wait(deadline)?;
        }
        let mut wc = [Wc::default(); 2];
        let n = ibv::poll_cq(cq, &mut wc).map_err(Reason::Poll)?;
        for wc in &wc[..n] {
            if wc.status != WcStatus::SUCCESS {
                return Err(Reason::Completion(wc.status, wc.vendor_err));
            }
            match wc.wr_id {
                SEND_ID if !sent => sent = true,
                RECEIVE_ID if !received && wc.byte_len as usize == length => received = true,
                _ => return Err(Reason::Wrong("a completion that no request asked for, or of another length")),
            }
        }
        if n == 0 && clock.now() >= deadline {
            return Err(Reason::Wrong("a completion did not come within 10 seconds"));
        }
    }
    Ok(())
}

/// Bytes that differ from message to message.
fn fill(bytes: &mut [u8], number: u32) {
    let mut x = u64::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in bytes {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        *byte = (x >> 24) as u8;
    }
}
