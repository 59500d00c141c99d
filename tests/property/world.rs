//! A device on the model with random queues, and what has to be true of them.

use std::collections::VecDeque;

use mlx5::dv::QpCreateFlags;
use mlx5::hw::platform::Platform;
use mlx5::{
    AccessFlags, Cq, Device, DmaBuf, Error, ExclusiveCqs, Pd, PollAttr, PollError, PostError, QpAttr, QpAttrMask,
    QpCap, QpInitAttr, QpState, RecvWr, Remote, SendFlags, SendWr, Sge, Wc, WcOpcode, WrOpcode,
};
use mlx5_model::{Effect, Fault, Match, ModelConfig, ModelThread};

use crate::queues::{CANARY, End, Expected, Form, Message, Queue, Recv, SLOT, Send, name};
use crate::support::{Port, REMOTE, connect, open_with, pattern};

/// Places in the buffer.
const SLOTS: usize = 2048;

/// A device that serves many cases, and the queues of one.
pub struct World {
    pub port: Port,
    dev: Device,
    pd: Pd,
    buf: DmaBuf,
    /// Memory outstanding when there are no queues.
    idle: (usize, usize),
    pub queues: Vec<Queue>,
    pub pairs: Vec<Option<[End; 2]>>,
    prepared: Vec<Prepared>,
    next: u64,
    _thread: Option<ModelThread>,
}

/// A send request whose memory is ready.
struct Prepared {
    wr_id: u64,
    list: Vec<Sge>,
    inline: Vec<u8>,
    opcode: WrOpcode,
    signalled: bool,
}

impl Prepared {
    fn wr(&self) -> SendWr<'_> {
        let mut send_flags = if self.signalled { SendFlags::SIGNALED } else { SendFlags::empty() };
        if !self.inline.is_empty() {
            send_flags |= SendFlags::INLINE;
        }
        let Self { wr_id, list, inline, opcode, .. } = self;
        SendWr { wr_id: *wr_id, sg_list: list, inline_data: inline, opcode: *opcode, send_flags, ud: None }
    }
}

/// A send request to post.
#[derive(Clone, Debug)]
pub struct Wish {
    /// 0 send, 1 with immediate data, 2 write, 3 with immediate data, 4 read, 5 compare and swap, 6 fetch and add.
    pub kind: u8,
    pub length: usize,
    pub signalled: bool,
    pub inline: bool,
    /// The receive that it needs is posted before it.
    pub eager: bool,
}

impl World {
    pub fn new(threaded: bool) -> Self {
        let (port, dev) = open_with(ModelConfig::default());
        let pd = dev.alloc_pd().unwrap();
        let buf = pd.alloc_buf(SLOTS * SLOT, REMOTE | AccessFlags::LOCAL_WRITE).unwrap();
        let _thread = threaded.then(|| port.model.spawn().unwrap());
        let idle = port.model.dma_outstanding();
        Self { port, dev, pd, buf, idle, queues: Vec::new(), pairs: Vec::new(), prepared: Vec::new(), next: 0, _thread }
    }

    /// The longest session of completions that the device writes from now on.
    pub fn limit_sessions(&self, completions: u32) {
        self.port.model.set_session_limit(completions);
    }

    pub fn add_cq(&mut self, make: impl Fn(&Device) -> Result<Cq, Error>) {
        let cq = make(&self.dev).unwrap();
        self.queues.push(Queue { cq, ghosts: 0 });
    }

    /// Lets the next command with `opcode` be refused.
    pub fn refuse(&self, opcode: u16) {
        let effect = Effect::Status { status: 0x8, syndrome: 0x1234 };
        self.port.model.inject(Fault::Command { at: Match::Opcode(opcode), effect });
    }

    /// Takes back refusals that met no command.
    pub fn accept(&self) {
        self.port.model.clear_faults();
    }

    /// Entries that CQ `cq` may hold before it is polled.
    fn pending(&self, cq: usize) -> usize {
        let held = |end: &End| {
            let sends = if end.send_cq == cq { end.sends.len() + end.untold() } else { 0 };
            sends + if end.recv_cq == cq { end.recvs_needed() } else { 0 }
        };
        let ends = self.pairs.iter().flatten().flatten();
        ends.map(held).sum::<usize>() + self.queues[cq].ghosts
    }

    fn has_room(&self, cq: usize, more: usize) -> bool {
        self.pending(cq) + more <= self.queues[cq].cq.cqe() as usize
    }

    fn slot(&mut self) -> usize {
        self.next += 1;
        self.next as usize % SLOTS * SLOT
    }

    fn place(&mut self, content: &[u8]) -> usize {
        let at = self.slot();
        self.buf.write(at, content).unwrap();
        at
    }

    fn sge(&self, at: usize, length: usize) -> Sge {
        Sge { addr: self.buf.addr() + at as u64, length: length as u32, lkey: self.buf.lkey() }
    }

    fn end(&mut self, pair: usize, side: usize) -> &mut End {
        &mut self.pairs[pair].as_mut().expect("a pair")[side]
    }

    fn peek(&self, pair: usize, side: usize) -> &End {
        &self.pairs[pair].as_ref().expect("a pair")[side]
    }

    /// Makes a connection whose ends report to these CQs; `refused` says that the device refuses the first time.
    pub fn make_pair(&mut self, pair: usize, cqs: [[usize; 2]; 2], form: Form, refused: bool) {
        self.destroy_pair(pair, None);
        if refused {
            self.refuse(0x500);
            assert!(self.create_qp(cqs[0], form).is_err());
        }
        let mut ends = cqs.map(|cqs| self.create_qp(cqs, form).unwrap());
        self.join(&mut ends);
        self.pairs[pair] = Some(ends);
    }

    fn create_qp(&self, [send_cq, recv_cq]: [usize; 2], form: Form) -> Result<End, Error> {
        let Form { depth, sig_all, data_in_cqe } = form;
        let (max_send_wr, max_recv_wr, max_inline_data) = (depth, depth, INLINE as u32);
        let cap = QpCap { max_send_wr, max_recv_wr, max_send_sge: 1, max_recv_sge: 1, max_inline_data };
        let mut attr = QpInitAttr::new(&self.queues[send_cq].cq, &self.queues[recv_cq].cq, cap);
        attr.sq_sig_all = sig_all;
        if data_in_cqe {
            attr.create_flags = QpCreateFlags::ALLOW_SCATTER_TO_CQE;
        }
        let qp = self.pd.create_qp(&mut attr)?;
        let (sends, recvs, inbox) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Ok(End { qp, send_cq, recv_cq, form, sends, recvs, inbox, failed: false, stopped: [false; 2] })
    }

    fn join(&self, ends: &mut [End; 2]) {
        let numbers = [ends[1].qp.qp_num(), ends[0].qp.qp_num()];
        for (end, peer) in ends.iter_mut().zip(numbers) {
            connect(&self.dev, &mut end.qp, peer);
        }
    }

    /// Destroys a connection with what it has outstanding; `refused` is a command that the device refuses the first time.
    pub fn destroy_pair(&mut self, pair: usize, refused: Option<u16>) {
        let Some(ends) = self.pairs[pair].take() else { return };
        if let Some(opcode) = refused {
            self.refuse(opcode);
        }
        for end in ends {
            for cq in 0..self.queues.len() {
                self.queues[cq].ghosts += end.left_in(cq);
            }
            if let Err(back) = end.qp.destroy() {
                assert!(refused.is_some(), "{}", back.error);
                back.object.destroy().map_err(|e| e.error).unwrap();
            }
        }
    }

    /// Resets both ends of a connection, and connects them again.
    pub fn reset_pair(&mut self, pair: usize, refused: bool) {
        let Some(mut ends) = self.pairs[pair].take() else { return };
        if refused {
            self.refuse(0x50a);
            assert!(reset(&mut ends[0], &mut self.queues).is_err());
        }
        for end in &mut ends {
            reset(end, &mut self.queues).unwrap();
            for cq in 0..self.queues.len() {
                self.queues[cq].ghosts += end.left_in(cq);
            }
            (end.sends, end.recvs, end.inbox, end.failed, end.stopped) = Default::default();
        }
        self.join(&mut ends);
        self.pairs[pair] = Some(ends);
    }

    /// Moves both ends of a connection to the error state.
    pub fn fail_pair(&mut self, pair: usize) {
        for side in 0..2 {
            let attr = QpAttr { qp_state: QpState::Err, ..Default::default() };
            let end = self.end(pair, side);
            end.qp.modify(&attr, QpAttrMask::STATE).unwrap();
            end.failed = true;
        }
    }

    /// Destroys a CQ and makes another in its place; while queues are attached, it is busy and stays.
    pub fn replace_cq(&mut self, cq: usize, refused: bool, make: impl Fn(&Device) -> Result<Cq, Error>) {
        let attached = self.pairs.iter().flatten().flatten().any(|end| end.send_cq == cq || end.recv_cq == cq);
        if refused && !attached {
            self.refuse(0x401);
        }
        let Queue { cq: old, ghosts } = self.queues.swap_remove(cq);
        let (cq_now, ghosts) = match old.destroy() {
            Ok(()) => (make(&self.dev).unwrap(), 0),
            Err(back) => {
                assert!(attached && back.error.errno() == 16 || refused && !attached, "{}", back.error);
                (back.object, ghosts)
            }
        };
        self.queues.push(Queue { cq: cq_now, ghosts });
        let last = self.queues.len() - 1;
        self.queues.swap(cq, last);
    }

    /// Posts a receive request; its queue has to take it exactly if there is room.
    pub fn post_recv(&mut self, pair: usize, side: usize) -> bool {
        let end = self.peek(pair, side);
        let (cq, due) = (end.recv_cq, end.recvs.len() < end.inbox.len());
        if !due && !self.has_room(cq, 1) {
            return false;
        }
        let at = self.place(&[CANARY; SLOT]);
        let (list, wr_id) = ([self.sge(at, SLOT)], name(self.next, true));
        let end = self.end(pair, side);
        let posted = end.qp.post_recv(&[RecvWr { wr_id, sg_list: &list }]);
        if end.recvs.len() == end.qp.cap().max_recv_wr as usize {
            assert_eq!(posted.map_err(|e| e.errno()), Err(12), "the queue is full");
            return false;
        }
        posted.unwrap();
        end.recvs.push_back(Recv { wr_id, at });
        true
    }

    /// Posts send requests with one call, as far as the CQs have room for what they cause; their queue has to take them
    /// exactly if there is room.
    pub fn post_sends(&mut self, pair: usize, side: usize, wishes: &[Wish]) {
        wishes.iter().for_each(|wish| self.prepare_if_room(pair, side, wish));
        self.post(pair, side).unwrap();
    }

    fn prepare_if_room(&mut self, pair: usize, side: usize, wish: &Wish) {
        let broken = self.pairs[pair].iter().flatten().any(|end| end.failed);
        let message = matches!(wish.kind, 0 | 1 | 3);
        let (here, peer) = (self.peek(pair, side), self.peek(pair, 1 - side));
        if message && (broken || peer.inbox.len() == peer.qp.cap().max_recv_wr as usize) {
            return;
        }
        let depth = here.qp.cap().max_send_wr as usize;
        // Somebody has to tell when the whole queue is over.
        let told = here.form.sig_all || here.form.data_in_cqe && wish.kind >= 4;
        let signalled = wish.signalled || told || here.sends.len() + 2 > depth;
        let mut needs = vec![here.send_cq; 1 + usize::from(!signalled) - here.untold()];
        let needs_recv = message && peer.inbox.len() >= peer.recvs.len();
        if needs_recv {
            needs.push(peer.recv_cq);
        }
        if needs.iter().any(|cq| !self.has_room(*cq, needs.iter().filter(|c| *c == cq).count())) {
            return;
        }
        if needs_recv && wish.eager && !self.post_recv(pair, 1 - side) {
            return;
        }
        self.prepare(pair, side, wish, signalled);
    }

    /// Notes a request for the next [`post`](Self::post). Where its queue is full, it is posted alone, and refused.
    fn prepare(&mut self, pair: usize, side: usize, wish: &Wish, signalled: bool) {
        let (send, list, inline, opcode) = self.request(wish, signalled);
        let wr_id = send.wr_id;
        let end = self.peek(pair, side);
        if end.sends.len() == end.qp.cap().max_send_wr as usize {
            self.post(pair, side).unwrap();
            self.prepared.push(Prepared { wr_id, list, inline, opcode, signalled });
            assert_eq!(self.post(pair, side).map_err(|e| e.errno()), Err(12), "the queue is full");
            return;
        }
        self.prepared.push(Prepared { wr_id, list, inline, opcode, signalled });
        self.end(pair, side).sends.push_back(send);
        let imm = match opcode {
            WrOpcode::SendWithImm { imm_data } | WrOpcode::RdmaWriteWithImm { imm_data, .. } => {
                Some(u32::from_be(imm_data))
            }
            _ => None,
        };
        if matches!(wish.kind, 0 | 1 | 3) {
            let message = Message { seed: wr_id, length: wish.length, imm, write: wish.kind == 3 };
            self.end(pair, 1 - side).inbox.push_back(message);
        }
    }

    /// Posts what was prepared, with one call.
    fn post(&mut self, pair: usize, side: usize) -> Result<(), PostError> {
        let prepared = std::mem::take(&mut self.prepared);
        let wrs: Vec<_> = prepared.iter().map(Prepared::wr).collect();
        self.end(pair, side).qp.post_send(&wrs)
    }

    /// Prepares memory for a request: what to expect of it, its list or inlined data, its opcode.
    fn request(&mut self, wish: &Wish, signalled: bool) -> (Send, Vec<Sge>, Vec<u8>, WrOpcode) {
        let length = wish.length;
        let (at, there) = (self.slot(), self.slot());
        let wr_id = name(self.next, false);
        let remote = Remote { addr: self.buf.addr() + there as u64, rkey: self.buf.rkey() };
        let mut data = pattern(wr_id, length);
        let (imm_data, old) = (wr_id as u32, wr_id.rotate_left(17));
        let atomic = Expected::Number { at, value: old };
        let (opcode, kind, byte_len, expected) = match wish.kind {
            0 => (WrOpcode::Send, WcOpcode::SEND, 0, Expected::Nothing),
            1 => (WrOpcode::SendWithImm { imm_data }, WcOpcode::SEND, 0, Expected::Nothing),
            2 | 3 => {
                let write = Expected::Pattern { at: there, seed: wr_id, length };
                let plain = WrOpcode::RdmaWrite { remote };
                let opcode = if wish.kind == 2 { plain } else { WrOpcode::RdmaWriteWithImm { remote, imm_data } };
                (opcode, WcOpcode::RDMA_WRITE, 0, write)
            }
            4 => {
                let read = Expected::Pattern { at, seed: wr_id, length };
                (WrOpcode::RdmaRead { remote }, WcOpcode::RDMA_READ, length, read)
            }
            5 => {
                let compare = if wish.inline { old } else { !old };
                (WrOpcode::AtomicCmpAndSwp { remote, compare, swap: 7 }, WcOpcode::COMP_SWAP, 8, atomic)
            }
            _ => (WrOpcode::AtomicFetchAndAdd { remote, add: 3 }, WcOpcode::FETCH_ADD, 8, atomic),
        };
        let send = Send { wr_id, signalled, opcode: kind, byte_len, expected };
        if wish.kind < 4 && wish.inline && length <= INLINE {
            return (send, Vec::new(), data, opcode);
        }
        let length = if wish.kind > 4 { 8 } else { length };
        if wish.kind > 4 {
            data = old.to_ne_bytes().to_vec();
        }
        self.buf.write(if wish.kind < 4 { at } else { there }, &data).unwrap();
        (send, vec![self.sge(at, length)], Vec::new(), opcode)
    }

    /// Polls CQ `cq` for up to `most` completions and checks them; how many came.
    pub fn poll(&mut self, cq: usize, how: How, most: usize) -> usize {
        let queue = &mut self.queues[cq];
        let wcs = match how {
            How::Array => poll_array(&mut queue.cq, most),
            How::Iterator => iterate(&mut queue.cq, most, false),
            How::Forgotten => {
                let forgotten = iterate(&mut queue.cq, most, true);
                let again = poll_array(&mut queue.cq, forgotten.len().max(1));
                assert!(again.starts_with(&forgotten), "what a forgotten poller took comes again");
                again
            }
        };
        if wcs.len() < most && how != How::Forgotten {
            queue.ghosts = 0;
        }
        for wc in &wcs {
            let mut ends = self.pairs.iter_mut().flatten().flatten();
            let end = ends.find(|end| end.qp.qp_num() == wc.qp_num);
            let end = end.unwrap_or_else(|| panic!("a completion of no queue pair that is there: {wc:?}"));
            end.complete(cq, wc, &self.buf);
        }
        wcs.len()
    }

    /// Helps everything that is posted to its end, and polls until it is there. Receives without a message stay, unless
    /// their queue pair failed.
    pub fn quiesce(&mut self) {
        let deadline = self.port.now() + 3_000_000_000;
        let mut moved = vec![false; self.pairs.len()];
        loop {
            let mut polled = 0;
            for (pair, moved) in moved.iter_mut().enumerate() {
                self.help(pair, moved);
            }
            for cq in 0..self.queues.len() {
                polled += self.poll(cq, How::Array, 16);
            }
            if polled == 0 {
                if self.pairs.iter().flatten().all(is_quiet) {
                    return;
                }
                assert!(self.port.now() < deadline, "requests that do not complete");
                self.port.relax();
            }
        }
    }

    fn help(&mut self, pair: usize, moved: &mut bool) {
        let Some(ends) = &self.pairs[pair] else { return };
        if ends.iter().any(|end| end.failed) && !std::mem::replace(moved, true) {
            self.fail_pair(pair);
        }
        for side in 0..2 {
            while !*moved && self.peek(pair, side).recvs.len() < self.peek(pair, side).inbox.len() {
                assert!(self.post_recv(pair, side));
            }
            if self.peek(pair, side).untold() == 1 {
                let wish = Wish { kind: 2, length: 0, signalled: true, inline: false, eager: false };
                self.prepare(pair, side, &wish, true);
                self.post(pair, side).unwrap();
            }
        }
    }

    /// Ends the case: destroys everything, and checks that nothing comes any more, nothing is left, and no rule was broken.
    pub fn end_case(&mut self) {
        for pair in 0..self.pairs.len() {
            self.destroy_pair(pair, None);
        }
        for cq in 0..self.queues.len() {
            assert_eq!(self.poll(cq, How::Array, 64), 0, "no queue is left");
        }
        for queue in self.queues.drain(..) {
            queue.cq.destroy().map_err(|e| e.error).unwrap();
        }
        self.pairs.clear();
        self.accept();
        assert_eq!(self.port.model.violations(), [], "rules broken");
        assert_eq!(self.port.model.dma_outstanding(), self.idle, "memory not given back");
    }
}

/// Inlined bytes that a queue pair takes.
const INLINE: usize = 40;

/// How to poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Array,
    Iterator,
    /// The poller is forgotten, then polled again.
    Forgotten,
}

fn poll_array(cq: &mut Cq, most: usize) -> Vec<Wc> {
    let mut wcs = vec![Wc::default(); most];
    let n = cq.poll_cq(&mut wcs).expect("good entries");
    wcs.truncate(n);
    wcs
}

fn iterate(cq: &mut Cq, most: usize, forget: bool) -> Vec<Wc> {
    let mut poller = match cq.start_poll(&PollAttr::default()) {
        Ok(poller) => poller,
        Err(error) => {
            assert_eq!(error, PollError::Empty);
            return Vec::new();
        }
    };
    let mut wcs = vec![poller.completion().to_wc()];
    while wcs.len() < most {
        match poller.next() {
            Ok(completion) => wcs.push(completion.to_wc()),
            Err(error) => {
                assert_eq!(error, PollError::Empty);
                break;
            }
        }
    }
    if forget {
        std::mem::forget(poller);
    }
    wcs
}

fn reset(end: &mut End, queues: &mut [Queue]) -> Result<(), Error> {
    let cqs = match queues.get_disjoint_mut([end.send_cq, end.recv_cq]) {
        Ok([send, recv]) => ExclusiveCqs::Two { send: &mut send.cq, recv: &mut recv.cq },
        Err(_) => ExclusiveCqs::Same(&mut queues[end.send_cq].cq),
    };
    end.qp.reset(cqs)
}

/// Whether nothing is under way on a connection.
fn is_quiet(ends: &[End; 2]) -> bool {
    let failed = ends.iter().any(|end| end.failed);
    ends.iter().all(|end| end.sends.is_empty() && if failed { end.recvs.is_empty() } else { end.inbox.is_empty() })
}
