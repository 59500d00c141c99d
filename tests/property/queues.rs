//! What a test knows of its queues: what is posted, and which completion has to come next.

use std::collections::VecDeque;

use mlx5::{Cq, DmaBuf, Qp, Wc, WcOpcode, WcStatus};

use crate::support::pattern;

/// Bytes of the one buffer that a request has for itself.
pub const SLOT: usize = 256;
/// What a receive's place holds before a message comes.
pub const CANARY: u8 = 0xc7;

/// Bytes that have to stand in the buffer when a request is over.
pub enum Expected {
    Nothing,
    /// `length` bytes of the pattern `seed`.
    Pattern {
        at: usize,
        seed: u64,
        length: usize,
    },
    /// A number in this host's byte order.
    Number {
        at: usize,
        value: u64,
    },
}

impl Expected {
    fn check(&self, buf: &DmaBuf) {
        match *self {
            Expected::Nothing => {}
            Expected::Pattern { at, seed, length } => assert!(bytes(buf, at, length) == pattern(seed, length)),
            Expected::Number { at, value } => assert_eq!(bytes(buf, at, 8), value.to_ne_bytes()),
        }
    }
}

fn bytes(buf: &DmaBuf, at: usize, length: usize) -> Vec<u8> {
    let mut out = vec![0; length];
    buf.read(at, &mut out).unwrap();
    out
}

/// A send request that is posted.
pub struct Send {
    pub wr_id: u64,
    pub signalled: bool,
    pub opcode: WcOpcode,
    pub byte_len: usize,
    pub expected: Expected,
}

/// A receive request that is posted, with its place in the buffer.
pub struct Recv {
    pub wr_id: u64,
    pub at: usize,
}

/// A message on its way, which uses up a receive request.
pub struct Message {
    pub seed: u64,
    pub length: usize,
    pub imm: Option<u32>,
    /// An RDMA write's: its data goes elsewhere.
    pub write: bool,
}

/// How to make both ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub depth: u32,
    pub sig_all: bool,
    /// Small data lies in completions: small answers have to be signalled.
    pub data_in_cqe: bool,
}

/// One end of a connection.
pub struct End {
    pub qp: Qp,
    pub send_cq: usize,
    pub recv_cq: usize,
    pub form: Form,
    pub sends: VecDeque<Send>,
    pub recvs: VecDeque<Recv>,
    pub inbox: VecDeque<Message>,
    /// The queue pair is in error, as far as the test knows.
    pub failed: bool,
    /// A request of the send queue, of the receive queue failed: those behind it are flushed.
    pub stopped: [bool; 2],
}

impl End {
    /// Receive requests that are posted, or will have to be for the messages that are on their way.
    pub fn recvs_needed(&self) -> usize {
        self.recvs.len().max(self.inbox.len())
    }

    /// 1 if nobody tells when the last send request is over, else 0.
    pub fn untold(&self) -> usize {
        usize::from(self.sends.back().is_some_and(|send| !send.signalled))
    }

    /// Entries that CQ `cq` may still hold when the queue pair is reset or destroyed.
    pub fn left_in(&self, cq: usize) -> usize {
        let sends = if self.send_cq == cq { self.sends.len() } else { 0 };
        sends + if self.recv_cq == cq { self.recvs.len() } else { 0 }
    }

    /// A completion that CQ `cq` reports for this queue pair.
    pub fn complete(&mut self, cq: usize, wc: &Wc, buf: &DmaBuf) {
        if is_receive(wc.wr_id) {
            assert_eq!(cq, self.recv_cq, "the CQ of receives");
            self.received(wc, buf);
        } else {
            assert_eq!(cq, self.send_cq, "the CQ of sends");
            self.sent(wc, buf);
        }
    }

    fn sent(&mut self, wc: &Wc, buf: &DmaBuf) {
        assert!(self.sends.iter().any(|s| s.wr_id == wc.wr_id), "not outstanding, or completed before: {wc:?}");
        while let Some(send) = self.sends.pop_front() {
            if send.wr_id == wc.wr_id {
                return self.ended(&send, wc, buf);
            }
            assert!(!send.signalled, "the completion of {:#x} is lost", send.wr_id);
            send.expected.check(buf);
        }
    }

    fn ended(&mut self, send: &Send, wc: &Wc, buf: &DmaBuf) {
        if wc.status != WcStatus::SUCCESS {
            return self.fail(wc);
        }
        assert!(!self.stopped[0], "a success behind a failure");
        assert!(send.signalled, "nobody asked for the completion of {:#x}", send.wr_id);
        assert_eq!((wc.opcode, wc.byte_len as usize), (send.opcode, send.byte_len));
        send.expected.check(buf);
    }

    fn received(&mut self, wc: &Wc, buf: &DmaBuf) {
        let recv = self.recvs.pop_front().expect("a receive is outstanding");
        assert_eq!(wc.wr_id, recv.wr_id, "receives complete in order");
        if wc.status != WcStatus::SUCCESS {
            return self.fail(wc);
        }
        assert!(!self.stopped[1], "a message behind a failure");
        let message = self.inbox.pop_front().expect("a message was sent");
        let opcode = if message.write { WcOpcode::RECV_RDMA_WITH_IMM } else { WcOpcode::RECV };
        assert_eq!((wc.opcode, wc.byte_len as usize, wc.imm()), (opcode, message.length, message.imm));
        let length = if message.write { 0 } else { message.length };
        let mut held = pattern(message.seed, length);
        held.resize(SLOT, CANARY);
        assert!(bytes(buf, recv.at, SLOT) == held, "what a receive got");
    }

    /// A request failed; those behind it are flushed.
    fn fail(&mut self, wc: &Wc) {
        let stopped = &mut self.stopped[usize::from(is_receive(wc.wr_id))];
        assert!(!*stopped || wc.status == WcStatus::WR_FLUSH_ERR, "behind a failure: {wc:?}");
        assert_ne!(wc.vendor_err, 0, "a device says why");
        (*stopped, self.failed) = (true, true);
    }
}

/// The names that tests give to requests tell sends from receives.
pub const fn name(number: u64, receive: bool) -> u64 {
    number << 1 | receive as u64
}

const fn is_receive(wr_id: u64) -> bool {
    wr_id & 1 == 1
}

/// A CQ, and how many of its entries nobody waits for.
pub struct Queue {
    pub cq: Cq,
    /// Entries that queues which were reset or destroyed may have left.
    pub ghosts: usize,
}
