//! A connection, a request, and what is wrong with them.

use std::sync::atomic::Ordering;

use mlx5::{
    AccessFlags, DmaBuf, ExclusiveCqs, Pd, QpAttr, QpAttrMask, QpCap, QpState, RecvWr, Remote, SendFlags, SendWr, Sge,
    WcStatus, WrOpcode,
};

use crate::support::{BUF, INIT, Pair, REMOTE, RTR, RTS, SIZES, connect, create_qp, open, path_to};

/// Bytes of a message or an answer.
const LENGTH: u32 = 8;
/// Bytes of the regions that are made for one row.
const REGION: usize = 4096;
/// Bytes of a piece of a message that is too long.
const HUGE: usize = 1 << 26;
/// An opcode that no header names.
const NO_OPCODE: u32 = 0x3e;

/// Everything that a row needs.
pub struct Scene {
    pub pair: Pair,
    /// Number of the responder's queue pair while the row ran.
    pub responder: u32,
    cause: String,
    op: String,
    /// Memory and protection domains of this row only.
    regions: Vec<DmaBuf>,
    other_pd: Option<Pd>,
    list: Vec<Sge>,
    remote: Remote,
    receive: Sge,
}

impl Scene {
    pub fn new(cause: &str, op: &str) -> Self {
        let (port, dev) = open();
        let pd = dev.alloc_pd().expect("a PD");
        let cq = [(); 2].map(|()| dev.create_cq(63, 0, 0).expect("a CQ"));
        let cap = QpCap { max_send_sge: 20, ..SIZES };
        let qp = [create_qp(&pd, &cq[0], &cq[0], cap), create_qp(&pd, &cq[1], &cq[1], cap)];
        let buf = [(); 2].map(|()| pd.alloc_buf(BUF, REMOTE | AccessFlags::LOCAL_WRITE).expect("a buffer"));
        let pair = Pair { port, dev, pd, cq, qp, buf };
        let (list, remote, receive) = (vec![pair.sge(0, 0, LENGTH as usize)], pair.remote(1, 0), pair.sge(1, 4096, 64));
        let (cause, op) = (cause.to_owned(), op.to_owned());
        let responder = pair.qp[1].qp_num();
        let mut scene = Self { pair, responder, cause, op, regions: Vec::new(), other_pd: None, list, remote, receive };
        scene.keys();
        scene.connect();
        scene
    }

    /// The right that the operation needs at the peer.
    fn right(&self) -> AccessFlags {
        match self.op.as_str() {
            "read" => AccessFlags::REMOTE_READ,
            "cmp_swap" | "fetch_add" => AccessFlags::REMOTE_ATOMIC,
            _ => AccessFlags::REMOTE_WRITE,
        }
    }

    fn region(&mut self, access: AccessFlags) -> &DmaBuf {
        self.regions.push(self.pair.pd.alloc_buf(REGION, access).expect("a region"));
        self.regions.last().expect("just made")
    }

    fn region_of_another_pd(&mut self) -> &DmaBuf {
        let pd = self.pair.dev.alloc_pd().expect("a PD");
        self.regions.push(pd.alloc_buf(REGION, REMOTE | AccessFlags::LOCAL_WRITE).expect("a region"));
        self.other_pd = Some(pd);
        self.regions.last().expect("just made")
    }

    /// What is wrong with keys, addresses and lengths.
    fn keys(&mut self) {
        let (all, right) = (REMOTE | AccessFlags::LOCAL_WRITE, self.right());
        let local =
            |buf: &DmaBuf, offset: usize| Sge { addr: buf.addr() + offset as u64, length: LENGTH, lkey: buf.lkey() };
        let there = |buf: &DmaBuf, offset: usize| Remote { addr: buf.addr() + offset as u64, rkey: buf.rkey() };
        match self.cause.as_str() {
            "bad_lkey" => self.list[0].lkey ^= 0x55_5500,
            "lkey_of_another_pd" => self.list = vec![local(self.region_of_another_pd(), 0)],
            "beyond_the_local_region" => self.list = vec![local(self.region(all), REGION - LENGTH as usize + 1)],
            "no_local_write" => self.list = vec![local(self.region(AccessFlags::empty()), 0)],
            "bad_rkey" => self.remote.rkey ^= 0x55_5500,
            "rkey_of_another_pd" => self.remote = there(self.region_of_another_pd(), 0),
            // Eight bytes further on an atomic stays aligned.
            "beyond_the_remote_region" => self.remote = there(self.region(all), REGION),
            "no_remote_right" => self.remote = there(self.region(all - right), 0),
            "misaligned" => self.remote.addr += 4,
            "receive_too_small" => self.receive.length = LENGTH - 1,
            "receive_with_bad_lkey" => self.receive.lkey ^= 0x55_5500,
            "receive_without_local_write" => self.receive = local(self.region(AccessFlags::empty()), 0),
            "message_too_long" => {
                let most = self.pair.dev.query_port(1).expect("the port").max_msg_sz as usize;
                self.regions.push(self.pair.pd.alloc_buf(HUGE, all).expect("a region"));
                let buf = &self.regions[0];
                self.list = vec![Sge { addr: buf.addr(), length: HUGE as u32, lkey: buf.lkey() }; most / HUGE + 1];
            }
            _ => {}
        }
    }

    /// What is wrong with the connection.
    fn connect(&mut self) {
        let right = self.right();
        let Pair { dev, qp, .. } = &mut self.pair;
        let mut attr = [path_to(dev, self.responder), path_to(dev, qp[0].qp_num())];
        attr[0].rnr_retry = 2;
        match self.cause.as_str() {
            "not_enabled_at_the_peer" => attr[1].qp_access_flags -= right,
            "more_reads_than_the_peer_takes" => attr[0].max_rd_atomic = 16,
            "wrong_qpn" => attr[0].dest_qp_num ^= 0x55_5500,
            _ => {}
        }
        for (qp, attr) in qp.iter_mut().zip(attr) {
            for (qp_state, mask) in [(QpState::Init, INIT), (QpState::Rtr, RTR), (QpState::Rts, RTS)] {
                qp.modify(&QpAttr { qp_state, ..attr }, mask).expect("the transition");
            }
        }
    }

    /// Posts receives 11 and 12, lets happen what happens in between, posts the request as 1 and one behind it as 2.
    pub fn post(&mut self) {
        if self.cause != "no_receive" {
            let receive = |wr_id| RecvWr { wr_id, sg_list: std::slice::from_ref(&self.receive) };
            self.pair.qp[1].post_recv(&[receive(11), receive(12)]).expect("room");
        }
        self.meanwhile();
        let opcode = self.opcode();
        let many = if self.cause == "more_reads_than_the_peer_takes" { 12 } else { 1 };
        let send_flags = SendFlags::SIGNALED;
        let request = SendWr { wr_id: 1, sg_list: &self.list, opcode, send_flags, ..Default::default() };
        let behind = SendWr { wr_id: 2, send_flags, ..Default::default() };
        let qp = &mut self.pair.qp[0];
        if self.cause == "unknown_opcode" {
            self.pair.port.deaf.store(true, Ordering::Relaxed);
            qp.post_send(&[request]).expect("room");
            self.pair.port.deaf.store(false, Ordering::Relaxed);
            self.pair.send_queue(4)[0].store((NO_OPCODE).to_be(), Ordering::Relaxed);
            self.pair.qp[0].post_send(&[behind]).expect("room");
        } else {
            let mut requests = vec![request; many];
            requests.push(behind);
            qp.post_send(&requests).expect("room");
        }
    }

    fn meanwhile(&mut self) {
        let Pair { pd, cq, qp, .. } = &mut self.pair;
        let to_error = QpAttr { qp_state: QpState::Err, ..Default::default() };
        match self.cause.as_str() {
            "peer_destroyed" => {
                let fresh = create_qp(pd, &cq[1], &cq[1], SIZES);
                let old = std::mem::replace(&mut qp[1], fresh);
                old.destroy().map_err(|e| e.error).expect("destroyed");
            }
            "peer_in_reset" => qp[1].reset(ExclusiveCqs::Same(&mut cq[1])).expect("reset"),
            "peer_in_error" => qp[1].modify(&to_error, QpAttrMask::STATE).expect("in error"),
            "posted_in_error" => qp[0].modify(&to_error, QpAttrMask::STATE).expect("in error"),
            _ => {}
        }
    }

    fn opcode(&self) -> WrOpcode {
        let remote = self.remote;
        match self.op.as_str() {
            "send" => WrOpcode::Send,
            "send_imm" => WrOpcode::SendWithImm { imm_data: 1 },
            "send_inv" => WrOpcode::SendWithInv { invalidate_rkey: self.pair.buf[1].rkey() },
            "write" => WrOpcode::RdmaWrite { remote },
            "write_imm" => WrOpcode::RdmaWriteWithImm { remote, imm_data: 1 },
            "read" => WrOpcode::RdmaRead { remote },
            "cmp_swap" => WrOpcode::AtomicCmpAndSwp { remote, compare: 0, swap: 1 },
            _ => WrOpcode::AtomicFetchAndAdd { remote, add: 1 },
        }
    }

    /// Resets both queue pairs, connects them anew and sends a message: whatever went wrong is over. Then ends everything.
    pub fn recover(mut self) {
        let Pair { dev, cq, qp, .. } = &mut self.pair;
        let numbers = [qp[0].qp_num(), qp[1].qp_num()];
        for i in 0..2 {
            qp[i].reset(ExclusiveCqs::Same(&mut cq[i])).expect("reset");
            connect(dev, &mut qp[i], numbers[1 - i]);
        }
        let (s, r) = self.pair.send(99, LENGTH as usize, SendFlags::empty());
        let right = (99, WcStatus::SUCCESS);
        assert_eq!([(s.wr_id, s.status), (r.wr_id, r.status)], [right; 2], "{} {}", self.cause, self.op);
        for region in self.regions {
            region.dereg().map_err(|e| e.error).expect("deregistered");
        }
        if let Some(pd) = self.other_pd {
            pd.dealloc().map_err(|e| e.error).expect("deallocated");
        }
        self.pair.end();
    }
}
