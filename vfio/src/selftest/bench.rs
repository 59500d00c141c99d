//! What the steps work with: a device, and two connected queue pairs on it.

use std::time::Duration;

use mlx5::{
    AccessFlags, Cq, Device, DmaBuf, Error, Pd, Qp, QpAttr, QpCap, QpInitAttr, RecvWr, Remote, SendFlags, SendWr, Sge,
    Srq, Wc, WcStatus, WrOpcode, ibv,
};

use super::outcome::{Doing, Done, Trouble, ensure, wrong};
use crate::cq::Attributes;
use crate::rig::Rig;
use crate::stop;
use crate::traffic::{self, Transport};

/// Bytes of each end's buffer.
pub(super) const BUF: usize = 1 << 16;
/// Sizes of the queue pairs.
const SIZES: QpCap = QpCap { max_send_wr: 32, max_recv_wr: 32, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 64 };
/// Everything that a peer can be allowed, but atomics.
pub(super) const REMOTE: AccessFlags = AccessFlags::REMOTE_WRITE.union(AccessFlags::REMOTE_READ);
/// Between two looks at the registers while something is waited for.
const LOOK: Duration = Duration::from_millis(100);
/// First and longest step of a model's time.
const STEPS: [Duration; 2] = [Duration::from_micros(1), Duration::from_millis(1)];
/// Longest time until retries are used up, whatever device.
pub(super) const RETRIES: Duration = Duration::from_secs(10);

/// A device that steps try things on.
pub(super) struct Bench<'a> {
    pub(super) rig: &'a dyn Rig,
    pub(super) device: &'a Device,
    /// As few of everything as can be.
    pub(super) quick: bool,
}

/// How two ends are made.
#[derive(Clone, Copy)]
pub(super) struct Setup<'a> {
    /// What the peers may do.
    pub(super) access: AccessFlags,
    /// Where end 1 takes its receives from, if not from a queue of its own.
    pub(super) srq: Option<&'a Srq>,
    /// End 1 is connected as well.
    pub(super) answers: bool,
    /// Changes the attributes of end 0's connection.
    pub(super) change: fn(&mut QpAttr),
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self { access: REMOTE, srq: None, answers: true, change: |_| {} }
    }
}

/// Two ends: each a completion queue, a queue pair and a buffer.
pub(super) struct Pair {
    pub(super) cq: [Cq; 2],
    pub(super) qp: [Qp; 2],
    pub(super) buf: [DmaBuf; 2],
}

impl Bench<'_> {
    /// Two completion queues with these attributes.
    pub(super) fn cqs(&self, attributes: &Attributes) -> Result<[Cq; 2], Trouble> {
        let create = || attributes.create(self.device, None, None).doing("creating a completion queue");
        Ok([create()?, create()?])
    }

    /// Does something in a protection domain.
    pub(super) fn in_pd(&self, job: impl FnOnce(&Pd) -> Done) -> Done {
        let pd = ibv::alloc_pd(self.device).doing("allocating a protection domain")?;
        let done = job(&pd)?;
        ibv::dealloc_pd(pd).doing("deallocating a protection domain")?;
        Ok(done)
    }

    /// Does something with two ends and takes them down; the first thing that goes wrong is told.
    pub(super) fn with_pair(
        &self,
        pd: &Pd,
        cqs: [Cq; 2],
        setup: &Setup<'_>,
        job: impl FnOnce(&mut Pair) -> Done,
    ) -> Done {
        let mut pair = self.pair(pd, cqs, setup)?;
        let done = job(&mut pair)?;
        pair.close()?;
        Ok(done)
    }

    /// The same in a protection domain of its own.
    pub(super) fn with_cqs(&self, cqs: [Cq; 2], job: impl FnOnce(&mut Pair) -> Done) -> Done {
        self.in_pd(|pd| self.with_pair(pd, cqs, &Setup::default(), job))
    }

    /// The same over two plain completion queues.
    pub(super) fn with_plain_cqs(&self, setup: &Setup<'_>, job: impl FnOnce(&mut Pair) -> Done) -> Done {
        let cqs = self.cqs(&Attributes { cqe: 63, ..Attributes::default() })?;
        self.in_pd(|pd| self.with_pair(pd, cqs, setup, job))
    }

    fn pair(&self, pd: &Pd, cqs: [Cq; 2], setup: &Setup<'_>) -> Result<Pair, Trouble> {
        let create = |cq: &Cq, srq| {
            let mut init = QpInitAttr { srq, ..QpInitAttr::new(cq, cq, SIZES) };
            ibv::create_qp(pd, &mut init).doing("creating a queue pair")
        };
        let mut qp = [create(&cqs[0], None)?, create(&cqs[1], setup.srq)?];
        let access = setup.access | AccessFlags::LOCAL_WRITE;
        let buf = || pd.alloc_buf(BUF, access).doing("registering a buffer");
        let buf = [buf()?, buf()?];
        let [a, b] = &mut qp;
        let mut attr = traffic::attributes(self.device, b.qp_num());
        attr.qp_access_flags = setup.access;
        (setup.change)(&mut attr);
        traffic::connect(a, &attr, Transport::Rc).doing("connecting a queue pair")?;
        if setup.answers {
            let mut attr = traffic::attributes(self.device, a.qp_num());
            attr.qp_access_flags = setup.access;
            traffic::connect(b, &attr, Transport::Rc).doing("connecting a queue pair")?;
        }
        Ok(Pair { cq: cqs, qp, buf })
    }

    /// Waits until there is something, for `longest` of the device's own time.
    pub(super) fn until<T>(
        &self,
        longest: Duration,
        what: impl Fn() -> String,
        mut ready: impl FnMut() -> Result<Option<T>, Trouble>,
    ) -> Result<T, Trouble> {
        let start = self.device.now();
        let (mut step, mut look) = (STEPS[0], LOOK);
        loop {
            if let Some(value) = ready()? {
                return Ok(value);
            }
            let waited = Duration::from_nanos(self.device.now().saturating_sub(start));
            if waited >= look || waited >= longest {
                look = waited + LOOK;
                self.alive()?;
            }
            if waited >= longest {
                self.rig.hurry();
                return wrong(format!("{} did not come within {} ms", what(), longest.as_millis()));
            }
            if self.rig.own_time() {
                std::thread::yield_now();
            } else {
                self.rig.step(step);
                step = (2 * step).min(STEPS[1]);
            }
        }
    }

    /// Fails if the device has been lost, or the user has had enough.
    pub(super) fn alive(&self) -> Result<(), Trouble> {
        stop::check().or_else(|stopped| wrong(stopped.to_string()))?;
        self.device.health();
        let lost = |why| Error::Failed { why, command: None, sent: false };
        self.device.failure().map_or(Ok(()), |why| Err(Trouble::Driver("the device was lost", lost(why))))
    }

    /// Polls until so many completions have come, whatever they say.
    pub(super) fn poll(&self, cq: &mut Cq, want: usize, longest: Duration) -> Result<Vec<Wc>, Trouble> {
        let mut have = Vec::new();
        let (cqn, got) = (cq.cqn(), std::cell::Cell::new(0));
        let what = || format!("completion {} of {want} of CQ {cqn:#x}", got.get() + 1);
        self.until(longest, what, || {
            let mut wcs = [Wc::default(); 16];
            let room = (want - have.len()).min(wcs.len());
            let n = ibv::poll_cq(cq, wcs.get_mut(..room).unwrap_or_default())?;
            have.extend(wcs.into_iter().take(n));
            got.set(have.len());
            Ok((have.len() == want).then_some(()))
        })?;
        Ok(have)
    }

    /// Polls so many completions, which have to be successful and in this order.
    pub(super) fn succeed(&self, cq: &mut Cq, wr_ids: std::ops::Range<u64>) -> Result<Vec<Wc>, Trouble> {
        let wcs = self.poll(cq, (wr_ids.end - wr_ids.start) as usize, self.rig.patience())?;
        for (wr_id, wc) in wr_ids.zip(&wcs) {
            ensure(wc.wr_id == wr_id, || format!("the completion of wr_id {} came in the place of {wr_id}", wc.wr_id))?;
            ensure(wc.status == WcStatus::SUCCESS, || {
                format!("the request with wr_id {wr_id} failed: {}, vendor error {:#x}", wc.status, wc.vendor_err)
            })?;
        }
        Ok(wcs)
    }
}

impl Pair {
    /// A piece of an end's buffer.
    pub(super) fn sge(&self, end: usize, offset: usize, length: usize) -> Sge {
        let buf = &self.buf[end];
        Sge { addr: buf.addr() + offset as u64, length: length as u32, lkey: buf.lkey() }
    }

    /// A place in end 1's buffer, as end 0 names it.
    pub(super) fn remote(&self, offset: usize) -> Remote {
        Remote { addr: self.buf[1].addr() + offset as u64, rkey: self.buf[1].rkey() }
    }

    /// End 0 asks for something.
    pub(super) fn post(&mut self, wr_id: u64, opcode: WrOpcode, sg_list: &[Sge]) -> Result<(), Trouble> {
        post(&mut self.qp[0], wr_id, opcode, sg_list)
    }

    /// End 1 is ready to receive.
    pub(super) fn receive(&mut self, wr_id: u64, sg_list: &[Sge]) -> Result<(), Trouble> {
        Ok(ibv::post_recv(&mut self.qp[1], &[RecvWr { wr_id, sg_list }])?)
    }

    /// Empty messages from end 0 to end 1.
    pub(super) fn send_empty(&mut self, wr_ids: std::ops::Range<u64>) -> Result<(), Trouble> {
        for wr_id in wr_ids {
            self.receive(wr_id, &[])?;
            self.post(wr_id, WrOpcode::Send, &[])?;
        }
        Ok(())
    }

    /// Fails unless a buffer holds these bytes.
    pub(super) fn holds(&self, end: usize, offset: usize, right: &[u8]) -> Result<(), Trouble> {
        let mut got = vec![0; right.len()];
        self.buf[end].read(offset, &mut got).doing("reading a buffer")?;
        same(right, &got)
    }

    /// Ends everything, in order.
    pub(super) fn close(self) -> Result<(), Trouble> {
        for qp in self.qp {
            ibv::destroy_qp(qp).doing("destroying a queue pair")?;
        }
        for cq in self.cq {
            ibv::destroy_cq(cq).doing("destroying a completion queue")?;
        }
        for buf in self.buf {
            buf.dereg().doing("deregistering a buffer")?;
        }
        Ok(())
    }
}

/// Posts a request whose completion is wanted.
pub(super) fn post(qp: &mut Qp, wr_id: u64, opcode: WrOpcode, sg_list: &[Sge]) -> Result<(), Trouble> {
    let send_flags = SendFlags::SIGNALED;
    Ok(ibv::post_send(qp, &[SendWr { wr_id, sg_list, opcode, send_flags, ..SendWr::default() }])?)
}

/// Fails at the first byte that differs.
pub(super) fn same(right: &[u8], got: &[u8]) -> Result<(), Trouble> {
    let at = right.iter().zip(got).position(|(right, got)| right != got);
    at.map_or(Ok(()), |at| wrong(format!("byte {at} is {:#04x} and should be {:#04x}", got[at], right[at])))
}

/// Bytes that differ from place to place, and with the seed.
pub(super) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    traffic::payload(seed, 0, length)
}
