//! How a completion queue is polled, told once more and as plainly as it can be: one entry at a time, byte by byte, from what the
//! PRM and libmlx5 say of entries (`struct mlx5_cqe64`, `struct mlx5_err_cqe`, `struct mlx5_mini_cqe8`). It shares no code with
//! the driver.

use std::collections::{HashMap, HashSet};

use mlx5::{Packet, PacketFlags, Wc, WcOpcode, WcStatus};

/// How sessions lie in the ring, if there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Plain,
    Basic(Mini),
    Enhanced(Mini),
}

/// What a responder's mini has beside the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mini {
    Hash,
    Csum,
    CsumStridx,
    FtagStridx,
    L34hStridx,
}

/// Why an entry is no completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    Queue { user_index: u32, qpn: u32 },
    Opcode { opcode: u8, send_opcode: u8, user_index: u32 },
    Format { format: u8, user_index: u32 },
    Session { count: u32 },
    Signature,
    TagList { app_op: u8, user_index: u32 },
}

/// Whose completions these are: the `wr_id` of each place, by the user index.
#[derive(Clone, Debug)]
pub enum Queue {
    /// Of its own receive queue and send queue; counters are modulo their places.
    Own { recv: Vec<u64>, send: Vec<u64> },
    /// Receives are of a shared queue; a counter is a place.
    Shared { srq: Vec<u64>, send: Vec<u64> },
    /// Destroyed.
    Gone,
}

pub struct Naive {
    pub ring: Vec<u8>,
    /// Slots of whole entries of the basic layout that were taken since this was cleared. They may be stamped, and need not be: on the
    /// next lap their owner bit is the wrong one, and on that lap they are written, or stamped as a session's. In `ring` they are not.
    pub may_be_stamped: HashSet<u32>,
    /// What the consumer index was published as, if it was.
    pub record: Option<u32>,
    pub ci: u32,
    log: u32,
    pub cqe_size: usize,
    layout: Layout,
    queues: HashMap<u32, Queue>,
    session: Option<Session>,
    /// Enhanced layout: the last whole completion, and by how much the next one's counter is higher.
    title: Option<([u8; 64], u16)>,
    /// What the completion that came last was made of: its whole entry, and the mini if it came out of a session.
    last: ([u8; 64], Option<([u8; 8], Mini)>),
    pending: Option<Bad>,
}

/// An open session.
struct Session {
    title: [u8; 64],
    /// What the first completion's counter is beyond the title's.
    since: u16,
    /// The array of the completion that was taken last.
    array: [u8; 64],
    /// Completions taken out of it, and all of them.
    at: u32,
    count: u32,
    mini: Mini,
}

/// One batch: where it began, and the slots of sessions in it.
struct Batch {
    start: u32,
    of_sessions: HashSet<u32>,
}

/// What a look at the next entry gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    Nothing,
    Bad(Bad),
    Completion(Wc),
}

/// What a slot of the basic layout ends in when no lap is to take it for an entry.
pub const STAMP: [u8; 4] = [0, 0, 0, 0xf0];

fn be16(bytes: &[u8]) -> u16 {
    u16::from_be_bytes(bytes[..2].try_into().unwrap())
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

impl Naive {
    pub fn new(log: u32, cqe_size: usize, layout: Layout, queues: HashMap<u32, Queue>) -> Self {
        Self {
            ring: vec![0; cqe_size << log],
            may_be_stamped: HashSet::new(),
            record: None,
            ci: 0,
            log,
            cqe_size,
            layout,
            queues,
            session: None,
            title: None,
            last: ([0; 64], None),
            pending: None,
        }
    }

    fn entries(&self) -> u32 {
        1 << self.log
    }

    /// The 64 bytes that describe the completion in the slot of index `ci`: the last of the slot.
    fn slot(&mut self, ci: u32) -> &mut [u8] {
        let at = (ci % self.entries()) as usize * self.cqe_size;
        &mut self.ring[at..][..self.cqe_size][self.cqe_size - 64..]
    }

    fn copy_of(&mut self, ci: u32) -> [u8; 64] {
        self.slot(ci).try_into().unwrap()
    }

    /// Whether the slot of index `ci` has an entry of this lap.
    fn is_new(&mut self, ci: u32) -> bool {
        let (lap, enhanced) = (ci >> self.log, matches!(self.layout, Layout::Enhanced(_)));
        let entry = self.copy_of(ci);
        let of_this_lap = if enhanced { entry[62] == lap as u8 } else { u32::from(entry[63] & 1) == lap & 1 };
        entry[63] >> 4 != 15 && of_this_lap
    }

    /// `poll_cq` of an array of `most`.
    pub fn poll_cq(&mut self, most: usize) -> Result<Vec<Wc>, Bad> {
        self.poll(most, |_, wc| wc)
    }

    /// The same as packets.
    pub fn poll_packets(&mut self, most: usize) -> Result<Vec<Packet>, Bad> {
        self.poll(most, |naive, wc| packet(&wc, &naive.last.0, naive.last.1))
    }

    fn poll<T>(&mut self, most: usize, made: impl Fn(&Self, Wc) -> T) -> Result<Vec<T>, Bad> {
        if most == 0 {
            return Ok(Vec::new());
        }
        if let Some(bad) = self.pending.take() {
            return Err(bad);
        }
        let (mut batch, mut all) = (self.begin(), Vec::new());
        let mut bad = None;
        while all.len() < most {
            match self.next(&mut batch) {
                Next::Nothing => break,
                Next::Bad(why) => {
                    bad = Some(why);
                    break;
                }
                Next::Completion(wc) => all.push(made(self, wc)),
            }
        }
        self.end(batch);
        match bad {
            Some(bad) if all.is_empty() => Err(bad),
            bad => {
                self.pending = bad;
                Ok(all)
            }
        }
    }

    /// `start_poll`, and `next` so often that `most` answers have been given; an error of `start_poll` is the only one.
    pub fn iterate(&mut self, most: usize) -> Vec<Next> {
        if let Some(bad) = self.pending.take() {
            return vec![Next::Bad(bad)];
        }
        let mut batch = self.begin();
        let mut seen = vec![self.next(&mut batch)];
        while seen.len() < most && matches!(seen[0], Next::Completion(_)) {
            seen.push(self.next(&mut batch));
        }
        self.end(batch);
        seen
    }

    fn begin(&self) -> Batch {
        Batch { start: self.ci, of_sessions: HashSet::new() }
    }

    /// Stamps what a later lap must not take for an entry, and publishes the index.
    fn end(&mut self, batch: Batch) {
        let enhanced = matches!(self.layout, Layout::Enhanced(_));
        let mut ci = batch.start;
        while ci != self.ci {
            if enhanced && (ci >> self.log).is_multiple_of(128) {
                self.slot(ci)[60..].copy_from_slice(&[0, 0, 0xff, 0xf0]);
            } else if batch.of_sessions.contains(&ci) {
                self.slot(ci)[60..].copy_from_slice(&STAMP);
            } else if matches!(self.layout, Layout::Basic(_)) {
                self.may_be_stamped.insert(ci % self.entries());
            }
            ci = ci.wrapping_add(1);
        }
        if self.ci != batch.start {
            self.record = Some(self.ci & 0xff_ffff);
        }
    }

    fn next(&mut self, batch: &mut Batch) -> Next {
        loop {
            let Some(entry) = self.take(batch) else { return Next::Nothing };
            let entry = match entry {
                Ok(entry) => entry,
                Err(count) => return Next::Bad(Bad::Session { count }),
            };
            if let Some(next) = self.decode(&entry) {
                return next;
            }
        }
    }

    /// The next whole entry, or the count of a session that cannot be one.
    fn take(&mut self, batch: &mut Batch) -> Option<Result<[u8; 64], u32>> {
        if let Some(session) = self.session.take() {
            return Some(Ok(self.take_of(session, batch)));
        }
        let room = self.entries() - self.ci.wrapping_sub(batch.start);
        if room == 0 || !self.is_new(self.ci) {
            return None;
        }
        let entry = self.copy_of(self.ci);
        let is_title = entry[63] >> 4 <= 4;
        if entry[63] >> 2 & 3 != 3 {
            if is_title {
                self.title = Some((entry, 1));
            }
            self.ci = self.ci.wrapping_add(1);
            self.last = (entry, None);
            return Some(Ok(entry));
        }
        match self.layout {
            Layout::Plain => {
                self.ci = self.ci.wrapping_add(1);
                Some(Err(be32(&entry[44..])))
            }
            Layout::Basic(mini) => {
                let count = be32(&entry[44..]);
                if !is_title || count < 2 || count > room {
                    self.ci = self.ci.wrapping_add(1);
                    return Some(Err(count));
                }
                // Each array is in the slot of its first completion, but the first in the slot behind.
                let array = self.copy_of(self.ci.wrapping_add(1));
                Some(Ok(self.take_of(Session { title: entry, since: 0, array, at: 0, count, mini }, batch)))
            }
            Layout::Enhanced(mini) => {
                let count = u32::from(entry[63] >> 4) + 1;
                let Some((title, since)) = self.title.filter(|_| count <= 7 && count <= room) else {
                    self.ci = self.ci.wrapping_add(count.min(room));
                    return Some(Err(count));
                };
                self.title = Some((title, since.wrapping_add(count as u16)));
                Some(Ok(self.take_of(Session { title, since, array: entry, at: 0, count, mini }, batch)))
            }
        }
    }

    /// The next completion of a session, as a whole entry. A slot is read when its completion is taken, not before.
    fn take_of(&mut self, mut session: Session, batch: &mut Batch) -> [u8; 64] {
        // The title has the lap's owner bit as any whole entry has.
        if session.at != 0 && matches!(self.layout, Layout::Basic(_)) {
            batch.of_sessions.insert(self.ci);
        }
        if session.at != 0 && session.at.is_multiple_of(8) {
            session.array = self.copy_of(self.ci);
        }
        let Session { title, since, array, at, count, mini } = &mut session;
        let bytes = &array[*at as usize % 8 * 8..][..8];
        let entry = expand(title, since.wrapping_add(*at as u16), bytes, *mini);
        self.last = (entry, Some((bytes.try_into().unwrap(), *mini)));
        *at += 1;
        self.ci = self.ci.wrapping_add(1);
        self.session = (*at != *count).then_some(session);
        entry
    }

    /// What a whole entry says; `None` if it is not for the caller.
    fn decode(&self, entry: &[u8; 64]) -> Option<Next> {
        let (opcode, format) = (entry[63] >> 4, entry[63] >> 2 & 3);
        let (user_index, qpn) = (be32(&entry[32..]) & 0xff_ffff, be32(&entry[56..]) & 0xff_ffff);
        let send_opcode = entry[56];
        let receive = match opcode {
            0 | 13 => false,
            1..=4 | 14 => true,
            5 => return None,
            6 => return Some(Next::Bad(Bad::TagList { app_op: entry[41], user_index })),
            12 => return Some(Next::Bad(Bad::Signature)),
            _ => return Some(Next::Bad(Bad::Opcode { opcode, send_opcode, user_index })),
        };
        let unknown = Some(Next::Bad(Bad::Queue { user_index, qpn }));
        let Some(queue) = self.queues.get(&user_index) else { return unknown };
        if matches!(queue, Queue::Gone) {
            return None;
        }
        let sent = (opcode == 0).then(|| sent(send_opcode));
        if sent == Some(None) {
            return Some(Next::Bad(Bad::Opcode { opcode, send_opcode, user_index }));
        }
        if opcode < 13 && format != 0 {
            return Some(Next::Bad(Bad::Format { format, user_index }));
        }
        let Some(wr_id) = queue.wr_id(receive, be16(&entry[60..])) else { return unknown };
        let wc = Wc { wr_id, qp_num: qpn, ..Wc::default() };
        Some(Next::Completion(match (opcode, sent.flatten()) {
            (13 | 14, _) => Wc { status: status(entry[55]), vendor_err: entry[54].into(), ..wc },
            (_, Some(sent)) => Wc {
                opcode: sent,
                byte_len: match sent {
                    WcOpcode::RDMA_READ => be32(&entry[44..]),
                    WcOpcode::COMP_SWAP | WcOpcode::FETCH_ADD => 8,
                    _ => 0,
                },
                ..wc
            },
            _ => received(entry, wc),
        }))
    }
}

impl Queue {
    fn wr_id(&self, receive: bool, counter: u16) -> Option<u64> {
        let counter = usize::from(counter);
        match self {
            Self::Shared { srq, .. } if receive => srq.get(counter).copied(),
            Self::Own { recv: ids, .. } if receive => ids.get(counter.checked_rem(ids.len())?).copied(),
            Self::Own { send: ids, .. } | Self::Shared { send: ids, .. } => {
                ids.get(counter.checked_rem(ids.len())?).copied()
            }
            Self::Gone => None,
        }
    }
}

/// Completion `n` after a title, as a whole entry.
fn expand(title: &[u8; 64], n: u16, mini: &[u8], format: Mini) -> [u8; 64] {
    let mut entry = *title;
    entry[63] &= !0b1100;
    entry[44..48].copy_from_slice(&mini[4..]);
    if title[63] >> 4 == 0 {
        // A requester's: counter, opcode.
        entry[60..62].copy_from_slice(&mini[..2]);
        entry[56] = mini[2];
        return entry;
    }
    entry[60..62].copy_from_slice(&be16(&title[60..]).wrapping_add(n).to_be_bytes());
    match format {
        Mini::FtagStridx => {
            (entry[57], entry[44]) = (mini[4], 0);
            entry[58..60].copy_from_slice(&mini[..2]);
        }
        // But for the two lowest bits, which are the title's.
        Mini::L34hStridx => entry[29] = mini[0] & !3 | entry[29] & 3,
        Mini::Hash | Mini::Csum | Mini::CsumStridx => {}
    }
    entry
}

/// What a send request was (`MLX5_OPCODE_*`).
fn sent(opcode: u8) -> Option<WcOpcode> {
    Some(match opcode {
        0x01 | 0x0a | 0x0b => WcOpcode::SEND,
        0x08 | 0x09 => WcOpcode::RDMA_WRITE,
        0x10 => WcOpcode::RDMA_READ,
        0x11 => WcOpcode::COMP_SWAP,
        0x12 => WcOpcode::FETCH_ADD,
        _ => return None,
    })
}

/// `handle_responder` of libmlx5.
fn received(entry: &[u8; 64], wc: Wc) -> Wc {
    const GRH: u32 = 1;
    const WITH_IMM: u32 = 2;
    const IP_CSUM_OK: u32 = 4;
    const WITH_INV: u32 = 8;
    let word = be32(&entry[36..]);
    let (opcode, with, imm_data) = match entry[63] >> 4 {
        1 => (WcOpcode::RECV_RDMA_WITH_IMM, WITH_IMM, word.to_be()),
        3 => (WcOpcode::RECV, WITH_IMM, word.to_be()),
        4 => (WcOpcode::RECV, WITH_INV, word),
        _ => (WcOpcode::RECV, 0, 0),
    };
    let flags_rqpn = be32(&entry[24..]);
    let grh = if flags_rqpn >> 28 & 3 != 0 { GRH } else { 0 };
    let good = entry[28] & 0b110 == 0b110 && entry[29] >> 2 & 3 == 2;
    Wc {
        opcode,
        byte_len: be32(&entry[44..]),
        imm_data,
        src_qp: flags_rqpn & 0xff_ffff,
        wc_flags: with | grh | if good { IP_CSUM_OK } else { 0 },
        pkey_index: word as u16,
        slid: be16(&entry[22..]),
        sl: (flags_rqpn >> 24 & 0xf) as u8,
        dlid_path_bits: entry[17] & 0x7f,
        ..wc
    }
}

/// What a packet stack is told, of `struct mlx5_cqe64` and `struct mlx5_mini_cqe8` as Linux reads them (`CQE_L2_OK`, `CQE_L3_OK`,
/// `CQE_L4_OK`, `get_cqe_l4_hdr_type`, `get_cqe_l3_hdr_type`, `cqe_has_vlan`).
fn packet(wc: &Wc, entry: &[u8; 64], mini: Option<([u8; 8], Mini)>) -> Packet {
    use PacketFlags as F;
    let Wc { wr_id, byte_len, vendor_err, .. } = *wc;
    let nothing =
        Packet { wr_id, byte_len, raw_status: wc.status.0 as u8, vendor_err: vendor_err as u8, ..Packet::default() };
    if wc.status != WcStatus::SUCCESS || wc.opcode.0 < 128 {
        return nothing;
    }
    let (hash, check_sum, stride) = match mini {
        None => (Some(be32(&entry[12..])), Some(be16(&entry[20..])), None),
        Some((mini, Mini::Hash)) => (Some(be32(&mini)), None, None),
        Some((mini, Mini::Csum)) => (None, Some(be16(&mini)), None),
        Some((mini, Mini::CsumStridx)) => (None, Some(be16(&mini)), Some(be16(&mini[2..]))),
        Some((mini, Mini::FtagStridx | Mini::L34hStridx)) => (None, None, Some(be16(&mini[2..]))),
    };
    let mut flags = F::RECEIVED | F::FLOW_TAG;
    let is = [
        (F::L2_OK, entry[28] & 1 != 0),
        (F::L3_OK, entry[28] & 2 != 0),
        (F::L4_OK, entry[28] & 4 != 0),
        (F::VLAN_STRIPPED, entry[29] & 1 != 0),
        (F::GRH, entry[24] >> 4 & 3 != 0),
        (F::RSS_HASH, hash.is_some()),
        (F::CHECK_SUM, check_sum.is_some()),
        (F::STRIDE_INDEX, stride.is_some()),
    ];
    is.iter().for_each(|(flag, is)| flags.set(*flag, *is));
    let types = u32::from(entry[29] >> 2 & 3) << 10 | u32::from(entry[29] >> 4 & 7) << 12;
    Packet {
        rss_hash: hash.unwrap_or(0),
        flow_tag: be32(&entry[56..]) & 0xff_ffff,
        vlan: be16(&entry[30..]),
        stride_index: stride.unwrap_or(0),
        flags: flags | F::from_bits_retain(types),
        check_sum: check_sum.unwrap_or(0),
        ..nothing
    }
}

/// `mlx5_handle_error_cqe` of libmlx5.
fn status(syndrome: u8) -> WcStatus {
    match syndrome {
        0x01 => WcStatus::LOC_LEN_ERR,
        0x02 => WcStatus::LOC_QP_OP_ERR,
        0x04 => WcStatus::LOC_PROT_ERR,
        0x05 => WcStatus::WR_FLUSH_ERR,
        0x06 => WcStatus::MW_BIND_ERR,
        0x10 => WcStatus::BAD_RESP_ERR,
        0x11 => WcStatus::LOC_ACCESS_ERR,
        0x12 => WcStatus::REM_INV_REQ_ERR,
        0x13 => WcStatus::REM_ACCESS_ERR,
        0x14 => WcStatus::REM_OP_ERR,
        0x15 => WcStatus::RETRY_EXC_ERR,
        0x16 => WcStatus::RNR_RETRY_EXC_ERR,
        0x22 => WcStatus::REM_ABORT_ERR,
        _ => WcStatus::GENERAL_ERR,
    }
}
