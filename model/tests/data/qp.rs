//! Queue pairs, by raw bytes: their commands, and posting to them.

use mlx5_hw::platform::DmaMem;

use crate::raw::{get, put, store, store32};
use crate::rdma::{Cq, MAC, Rdma, pages_body};
use crate::wqe::{Wqe, data};

/// What a test wants of a queue pair.
#[derive(Clone, Copy)]
pub struct QpWish {
    /// 0 RC, 1 UC, 2 UD.
    pub service: u8,
    pub q_key: u32,
    pub log_rq: u32,
    /// Bytes of a receive work request.
    pub stride: usize,
    /// Log2 of 64-byte blocks.
    pub log_sq: u32,
    pub user_index: u32,
    pub rnr_retry: u8,
    pub retry_count: u8,
    /// 0: 655 ms, 1: 10 us.
    pub min_rnr_nak: u8,
    pub ack_timeout: u8,
    pub psn: u32,
    pub mtu: u8,
    pub log_msg_max: u8,
    /// `page_offset`: the queue starts at this 64th of its first page.
    pub page_offset: u64,
    /// `rlky`.
    pub reserved_lkey: bool,
    /// `rre`, `rwe`, `rae` from the left: what the peer may do.
    pub remote: u64,
    /// `log_sra_max`, `log_rra_max`: reads and atomics under way.
    pub log_sra: u8,
    pub log_rra: u8,
    /// `cs_req`, `cs_res`: data in the requester's, the responder's completions.
    pub scatter_req: u8,
    pub scatter_res: u8,
    /// 0 free running, 1 the default, 2 real time.
    pub ts_format: u8,
    /// The shared receive queue; its own if none.
    pub srq: Option<u32>,
}

impl QpWish {
    /// Bytes of its own receive queue.
    fn rq_bytes(&self) -> usize {
        if self.srq.is_some() { 0 } else { self.stride << self.log_rq }
    }
}

impl QpWish {
    /// A reliable connection.
    pub const RC: Self = Self {
        service: 0,
        q_key: 0,
        log_rq: 4,
        stride: 32,
        log_sq: 4,
        user_index: 0x1234,
        rnr_retry: 0,
        retry_count: 1,
        min_rnr_nak: 1,
        ack_timeout: 1,
        psn: 0xff_fffe,
        mtu: 3,
        log_msg_max: 30,
        page_offset: 0,
        reserved_lkey: false,
        remote: 7,
        log_sra: 2,
        log_rra: 2,
        scatter_req: 0,
        scatter_res: 0,
        ts_format: 0,
        srq: None,
    };
}

impl Default for QpWish {
    fn default() -> Self {
        Self::RC
    }
}

pub struct Qp {
    pub qpn: u32,
    pub mem: DmaMem,
    pub record: DmaMem,
    pub wish: QpWish,
    pub sq: u16,
    pub rq: u16,
}

impl Rdma {
    /// A queue pair in the reset state.
    pub fn qp(&self, wish: QpWish, send: &Cq, recv: &Cq) -> Qp {
        self.try_qp(wish, send, recv).unwrap_or_else(|refused| panic!("CREATE_QP: {refused:x?}"))
    }

    /// CREATE_QP, or the status and syndrome of its refusal.
    pub fn try_qp(&self, wish: QpWish, send: &Cq, recv: &Cq) -> Result<Qp, (u8, u64)> {
        let bytes = wish.rq_bytes() + (64 << wish.log_sq) + 64 * wish.page_offset as usize;
        let (mem, record) = (self.alloc(bytes), self.alloc(64));
        let mut body = pages_body(264, &mem);
        let qpc = &mut body[16..248];
        self.fill(qpc, &wish);
        put(qpc, 8, 8, wish.service.into());
        put(qpc, 73, 4, wish.log_rq.into());
        put(qpc, 77, 3, u64::from(wish.stride.ilog2()) - 4);
        put(qpc, 81, 4, wish.log_sq.into());
        put(qpc, 91, 1, wish.reserved_lkey.into());
        put(qpc, 104, 24, self.uar.into());
        put(qpc, 1000, 24, send.cqn.into());
        put(qpc, 1256, 24, recv.cqn.into());
        put(qpc, 1172, 6, wish.page_offset);
        put(qpc, 1280, 64, record.iova());
        put(qpc, 1381, 3, wish.srq.is_some().into());
        put(qpc, 1384, 24, wish.srq.unwrap_or(0).into());
        put(qpc, 1584, 8, wish.scatter_req.into());
        put(qpc, 1592, 8, wish.scatter_res.into());
        put(qpc, 88, 2, wish.ts_format.into());
        let out = self.raw.try_command(0x500, 0, &body, 16);
        if out[0] != 0 {
            return Err((out[0], get(&out, 32, 32)));
        }
        Ok(Qp { qpn: get(&out, 72, 24) as u32, mem, record, wish, sq: 0, rq: 0 })
    }

    fn fill(&self, qpc: &mut [u8], wish: &QpWish) {
        put(qpc, 19, 2, 3); // pm_state: migrated
        put(qpc, 40, 24, self.pd.into());
        put(qpc, 136, 24, wish.user_index.into());
    }

    /// RST2INIT.
    pub fn init(&self, qp: &Qp) {
        self.modify(0x502, qp, |qpc| {
            put(qpc, 1168, 3, qp.wish.remote);
            put(qpc, 1344, 32, qp.wish.q_key.into());
            put(qpc, 1164, 4, qp.wish.remote & 1); // atomic_mode: as in the InfiniBand specification
        });
    }

    /// INIT2RTR towards `peer`.
    pub fn ready_to_receive(&self, qp: &Qp, peer: u32) {
        self.ready_to_receive_from(qp, peer, self.gid, MAC);
    }

    /// INIT2RTR towards a queue pair at an address.
    pub fn ready_to_receive_from(&self, qp: &Qp, peer: u32, gid: [u8; 16], mac: [u8; 6]) {
        self.ready_to_receive_by(qp, peer, |ads| {
            put(ads, 88, 8, 64); // hop_limit
            ads[16..32].copy_from_slice(&gid);
            put(ads, 272, 16, 0xc000); // udp_sport
            ads[38..44].copy_from_slice(&mac);
        });
    }

    /// INIT2RTR towards a queue pair by an address path that `fill` writes.
    pub fn ready_to_receive_by(&self, qp: &Qp, peer: u32, fill: impl Fn(&mut [u8])) {
        let out = self.try_ready_to_receive(qp, peer, fill);
        assert_eq!(out, (0, 0), "INIT2RTR_QP");
    }

    /// The same: status and syndrome.
    pub fn try_ready_to_receive(&self, qp: &Qp, peer: u32, fill: impl Fn(&mut [u8])) -> (u8, u64) {
        self.try_modify(0x503, qp, |qpc| {
            put(qpc, 168, 24, peer.into());
            put(qpc, 64, 3, qp.wish.mtu.into());
            put(qpc, 67, 5, qp.wish.log_msg_max.into());
            put(qpc, 1160, 3, qp.wish.log_rra.into());
            put(qpc, 1187, 5, qp.wish.min_rnr_nak.into());
            put(qpc, 1192, 24, qp.wish.psn.into());
            fill(&mut qpc[24..68]);
        })
    }

    /// RTR2RTS.
    pub fn ready_to_send(&self, qp: &Qp) {
        self.modify(0x504, qp, |qpc| {
            put(qpc, 904, 3, qp.wish.log_sra.into());
            put(qpc, 909, 3, qp.wish.retry_count.into());
            put(qpc, 912, 3, qp.wish.rnr_retry.into());
            put(qpc, 968, 24, qp.wish.psn.into());
            put(qpc, 192 + 64, 5, qp.wish.ack_timeout.into());
            put(qpc, 192 + 296, 8, 1);
        });
    }

    fn modify(&self, opcode: u16, qp: &Qp, fill: impl Fn(&mut [u8])) {
        let (status, syndrome) = self.try_modify(opcode, qp, fill);
        assert_eq!(status, 0, "command {opcode:#x}: syndrome {syndrome:#x}");
    }

    fn try_modify(&self, opcode: u16, qp: &Qp, fill: impl Fn(&mut [u8])) -> (u8, u64) {
        let mut body = vec![0; 264];
        put(&mut body, 8, 24, qp.qpn.into());
        put(&mut body, 64, 32, 0);
        let qpc = &mut body[16..248];
        self.fill(qpc, &qp.wish);
        put(qpc, 192 + 296, 8, 1);
        fill(qpc);
        let out = self.raw.try_command(opcode, 0, &body, 16);
        (out[0], get(&out, 32, 32))
    }

    /// Two queue pairs, connected, ready to send.
    pub fn pair(&self, wish: QpWish, a: &Cq, b: &Cq) -> (Qp, Qp) {
        let first = self.qp(wish, a, a);
        let second = self.qp(QpWish { user_index: wish.user_index + 1, ..wish }, b, b);
        self.connect(&first, &second);
        (first, second)
    }

    /// Brings two queue pairs from the reset state to ready to send, each the other's peer.
    pub fn connect(&self, first: &Qp, second: &Qp) {
        for (qp, peer) in [(first, second), (second, first)] {
            self.init(qp);
            self.ready_to_receive(qp, peer.qpn);
            self.ready_to_send(qp);
        }
    }

    /// QUERY_QP: the context.
    pub fn context(&self, qp: &Qp) -> Vec<u8> {
        let mut body = [0; 8];
        put(&mut body, 8, 24, qp.qpn.into());
        self.raw.command(0x50b, 0, &body, 464)[24..256].to_vec()
    }

    /// QUERY_QP: the state.
    pub fn state(&self, qp: &Qp) -> u64 {
        get(&self.context(qp), 0, 4)
    }

    /// 2ERR (0x507) or 2RST (0x50a).
    pub fn leave(&self, opcode: u16, qp: &Qp) {
        let mut body = [0; 8];
        put(&mut body, 8, 24, qp.qpn.into());
        self.raw.command(opcode, 0, &body, 16);
    }

    /// Writes a receive work request: data segments, and the terminating lkey where room is left. Does not tell.
    pub fn write_recv(&self, qp: &mut Qp, list: &[(u32, u64, u32)]) {
        let mut raw = vec![0; qp.wish.stride];
        for (i, seg) in list.iter().enumerate() {
            raw[16 * i..16 * i + 16].copy_from_slice(&data(*seg));
        }
        if list.len() * 16 < raw.len() {
            put(&mut raw[16 * list.len()..], 32, 32, 0x100);
        }
        let slot = usize::from(qp.rq) & ((1 << qp.wish.log_rq) - 1);
        store(&qp.mem, 64 * qp.wish.page_offset as usize + slot * qp.wish.stride, &raw);
        qp.rq = qp.rq.wrapping_add(1);
    }

    /// Posts a receive work request.
    pub fn recv(&self, qp: &mut Qp, list: &[(u32, u64, u32)]) {
        self.write_recv(qp, list);
        store32(&qp.record, 0, qp.rq.into());
    }

    /// Writes a send work request, wrapping at the end of the ring. Returns the doorbell's value.
    pub fn write_send(&self, qp: &mut Qp, wqe: Wqe<'_>) -> u64 {
        let mut raw = vec![0; 16];
        put(&mut raw, 8, 16, qp.sq.into());
        put(&mut raw, 24, 8, wqe.opcode.into());
        put(&mut raw, 32, 24, qp.qpn.into());
        raw[11] = wqe.flags;
        put(&mut raw, 96, 32, wqe.imm.into());
        raw.extend_from_slice(wqe.segments);
        raw.resize(raw.len().next_multiple_of(16), 0);
        let ds = raw.len() / 16;
        put(&mut raw, 58, 6, ds as u64);
        self.store_send(qp, &raw);
        qp.sq = qp.sq.wrapping_add(ds.div_ceil(4) as u16);
        get(&raw, 0, 64)
    }

    /// Stores bytes at the producer of a send queue.
    pub fn store_send(&self, qp: &Qp, raw: &[u8]) {
        let base = 64 * qp.wish.page_offset as usize + qp.wish.rq_bytes();
        for (i, unit) in raw.chunks(16).enumerate() {
            let at = (usize::from(qp.sq) * 64 + 16 * i) % (64 << qp.wish.log_sq);
            store(&qp.mem, base + at, unit);
        }
    }

    /// Tells the producer, then rings.
    pub fn ring(&self, qp: &Qp, value: u64) {
        store32(&qp.record, 4, qp.sq.into());
        self.raw.write64(self.uar as usize * 4096 + 0x800, value);
    }

    /// Posts a send work request.
    pub fn send(&self, qp: &mut Qp, wqe: Wqe<'_>) {
        let value = self.write_send(qp, wqe);
        self.ring(qp, value);
    }
}
