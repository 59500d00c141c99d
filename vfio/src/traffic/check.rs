//! What the completions of an end have to say, and in which order.

use std::collections::VecDeque;
use std::time::Instant;

use mlx5::{WcFlags, WcOpcode, WcStatus};

use super::failure::{Failure, Queue};
use super::plan::{Plan, Transport};

/// Work requests of a queue that have not completed, in the order in which they were posted.
#[derive(Default)]
pub struct Outstanding {
    posted: VecDeque<u64>,
    /// A later one came first.
    early: Option<u64>,
}

impl Outstanding {
    /// Another one was posted.
    pub fn post(&mut self, wr_id: u64) {
        self.posted.push_back(wr_id);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.posted.len()
    }

    /// Their wr_ids.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.posted.iter().copied()
    }

    /// The one whose turn it is.
    fn next(&self) -> Option<u64> {
        self.posted.front().copied()
    }

    /// Takes note of a completion, and says whether it came in its turn; an error once it shows that the order is wrong.
    fn take(&mut self, end: &'static str, queue: Queue, wr_id: u64) -> Result<bool, Failure> {
        let in_turn = self.next() == Some(wr_id);
        match self.early {
            Some(got) if in_turn => return Err(Failure::Order { end, queue, want: wr_id, got }),
            Some(_) => {}
            None if in_turn => {
                self.posted.pop_front();
                return Ok(true);
            }
            None if self.posted.contains(&wr_id) => self.early = Some(wr_id),
            None => return Err(Failure::Unasked { end, queue, wr_id }),
        }
        Ok(false)
    }

    /// The completion that is lacking when more than `still` of them are.
    pub fn lacks(&self, end: &'static str, queue: Queue, still: usize) -> Option<Lack> {
        let wr_id = self.next().filter(|_| self.len() > still)?;
        Some(Lack { end, queue, wr_id, later: self.early })
    }
}

/// A completion that has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    pub end: &'static str,
    pub queue: Queue,
    pub wr_id: u64,
    /// One behind it that has.
    pub later: Option<u64>,
}

/// A message that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The receive request that it took.
    pub wr_id: u64,
    /// The iteration that it says it is of.
    pub number: Option<u64>,
    /// When that was seen.
    pub at: Instant,
}

/// What the completions of an end have said.
pub struct Progress {
    pub end: &'static str,
    plan: Plan,
    qp_num: u32,
    /// The queue pair of the other end.
    peer: u32,
    /// What its completions carry.
    fields: WcFlags,
    /// What it receives has a network header in front.
    header: bool,
    pub sends: Outstanding,
    /// The iteration of the next message.
    next: u64,
    /// What has arrived and was not looked at yet.
    pub arrived: Vec<Arrival>,
}

/// One completion, however it was polled.
pub struct Done {
    pub wr_id: u64,
    pub status: WcStatus,
    pub vendor_err: u32,
    pub opcode: Option<WcOpcode>,
    pub qp_num: Option<u32>,
    /// The fields that it has, if it has some only.
    pub has: Option<WcFlags>,
    pub byte_len: Option<u32>,
    pub src_qp: Option<u32>,
    /// There is a network header in front of the payload.
    pub grh: bool,
    pub number: Option<u32>,
    /// When it was polled.
    pub at: Instant,
}

impl Progress {
    pub fn new(end: &'static str, plan: Plan, [qp_num, peer]: [u32; 2], fields: WcFlags) -> Self {
        let header = plan.transport == Transport::Ud;
        Self { end, plan, qp_num, peer, fields, header, sends: Outstanding::default(), next: 0, arrived: Vec::new() }
    }

    /// Datagrams that come without an address have no header, where the room for it is all the same.
    pub fn with_header(self, addressed: bool) -> Self {
        Self { header: self.header && addressed, ..self }
    }

    /// Takes note of a completion of the end's sends or of `receives`.
    pub fn take(&mut self, done: &Done, receives: &mut Outstanding) -> Result<(), Failure> {
        let receive = done.opcode == Some(WcOpcode::RECV);
        let (queue, wr_id, end) = (if receive { Queue::Receive } else { Queue::Send }, done.wr_id, self.end);
        if done.status != WcStatus::SUCCESS {
            return Err(Failure::Status { end, queue, wr_id, status: done.status, vendor_err: done.vendor_err });
        }
        if let Some(field) = self.wrong_field(done, receive) {
            return Err(Failure::Field { end, queue, wr_id, field });
        }
        if !receive {
            return self.sends.take(end, queue, wr_id).map(|_| ());
        }
        if receives.take(end, queue, wr_id)? { self.arrive(done) } else { Ok(()) }
    }

    /// A message has come in its turn.
    fn arrive(&mut self, done: &Done) -> Result<(), Failure> {
        let (end, queue, want) = (self.end, Queue::Receive, self.next);
        let numbered = self.plan.numbered && self.fields.contains(WcFlags::IMM);
        let number = done.number.map(u64::from).filter(|_| numbered);
        // The message carries its number: a receive that completes in turn with another message is out of order too, unless
        // those between were lost.
        let right = |n: u64| n == want || n > want && !self.plan.transport.is_reliable();
        if numbered && !number.is_some_and(right) {
            return Err(Failure::Order { end, queue, want, got: number.unwrap_or(0) });
        }
        let iteration = number.unwrap_or(want);
        let size = self.plan.len(iteration) + self.plan.transport.header();
        if done.byte_len != self.fields.contains(WcFlags::BYTE_LEN).then_some(size) {
            return Err(Failure::Length { end, iteration, want: size, got: done.byte_len.unwrap_or(0) });
        }
        self.next = iteration + 1;
        self.arrived.push(Arrival { wr_id: done.wr_id, number, at: done.at });
        Ok(())
    }

    /// What a completion should not say, or lacks. Fields that only other kinds of queues have are none here.
    fn wrong_field(&self, done: &Done, receive: bool) -> Option<String> {
        if !receive && done.opcode != Some(WcOpcode::SEND) {
            return Some(format!("its opcode is {:?}", done.opcode));
        }
        if done.qp_num != self.fields.contains(WcFlags::QP_NUM).then_some(self.qp_num) {
            return Some(format!("its queue pair is {:?}, not {:#x}", done.qp_num, self.qp_num));
        }
        let datagram = receive && self.plan.transport == Transport::Ud;
        if datagram && self.fields.contains(WcFlags::SRC_QP) && done.src_qp != Some(self.peer) {
            return Some(format!("its sender is {:?}, not {:#x}", done.src_qp, self.peer));
        }
        if done.grh != (receive && self.header) {
            return Some(format!("it has {} network header", if done.grh { "a" } else { "no" }));
        }
        let mut right = WcFlags::QP_NUM | WcFlags::COMPLETION_TIMESTAMP | WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK;
        if receive {
            right |= WcFlags::BYTE_LEN | WcFlags::SRC_QP | WcFlags::SLID | WcFlags::SL;
            right |= WcFlags::DLID_PATH_BITS | WcFlags::FLOW_TAG;
            right.set(WcFlags::IMM, self.plan.numbered);
        }
        right &= self.fields;
        done.has.filter(|has| *has != right).map(|has| format!("it has {has:?}, and should have {right:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second message of 64 bytes at most, received into queue pair 0x41.
    fn good() -> Done {
        Done {
            wr_id: 1,
            status: WcStatus::SUCCESS,
            vendor_err: 0,
            opcode: Some(WcOpcode::RECV),
            qp_num: Some(0x41),
            has: None,
            byte_len: Some(63),
            src_qp: None,
            grh: false,
            number: None,
            at: Instant::now(),
        }
    }

    fn take(fields: WcFlags, done: &Done) -> Result<(), Failure> {
        let plan = Plan { iters: 2, size: 64, varied: true, ..Plan::default() };
        let mut progress = Progress::new("B", plan, [0x41, 0x40], fields);
        progress.next = 1;
        let mut receives = Outstanding::default();
        receives.post(1);
        progress.sends.post(1);
        progress.take(done, &mut receives)
    }

    #[test]
    fn a_completion_that_says_what_is_not_so_is_found() {
        let all = WcFlags::all();
        assert_eq!(take(all, &good()), Ok(()));
        assert_eq!(take(all, &Done { opcode: Some(WcOpcode::SEND), byte_len: None, ..good() }), Ok(()));
        let length = Failure::Length { end: "B", iteration: 1, want: 63, got: 64 };
        assert_eq!(take(all, &Done { byte_len: Some(64), ..good() }), Err(length), "the length of the one before");
        let unasked = Failure::Unasked { end: "B", queue: Queue::Receive, wr_id: 0 };
        assert_eq!(take(all, &Done { wr_id: 0, ..good() }), Err(unasked), "the one before, again");
        for (wrong, says) in [
            (Done { qp_num: Some(0x40), ..good() }, "its queue pair is Some(64), not 0x41"),
            (Done { opcode: Some(WcOpcode::RDMA_WRITE), ..good() }, "its opcode is "),
            (Done { opcode: None, ..good() }, "its opcode is None"),
        ] {
            let error = take(all, &wrong).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_datagram_from_somebody_else_or_without_its_header_is_found() {
        let plan = Plan { iters: 2, size: 64, transport: Transport::Ud, ..Plan::default() };
        let take = |done: &Done| {
            let mut receives = Outstanding::default();
            receives.post(1);
            Progress::new("B", plan, [0x41, 0x40], WcFlags::all()).take(done, &mut receives)
        };
        let right = || Done { byte_len: Some(64 + 40), src_qp: Some(0x40), grh: true, ..good() };
        assert_eq!(take(&right()), Ok(()));
        for (wrong, says) in [
            (Done { src_qp: Some(0x41), ..right() }, "its sender is Some(65), not 0x40"),
            (Done { grh: false, ..right() }, "it has no network header"),
            (Done { byte_len: Some(64), ..right() }, "with 64 bytes instead of 104"),
        ] {
            let error = take(&wrong).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_field_that_was_asked_for_and_is_not_there_or_the_other_way_round_is_found() {
        let asked = WcFlags::BYTE_LEN | WcFlags::QP_NUM | WcFlags::SL | WcFlags::TM_INFO;
        let has = |fields| take(asked, &Done { has: Some(fields), ..good() });
        let right = asked - WcFlags::TM_INFO;
        assert_eq!(has(right), Ok(()), "there are no tag lists");
        for wrong in [right - WcFlags::SL, right | WcFlags::SLID] {
            assert!(matches!(has(wrong), Err(Failure::Field { .. })), "{wrong:?}");
        }
    }

    #[test]
    fn completions_out_of_turn_are_told_once_the_one_between_comes_and_lack_it_until_then() {
        let mut queue = Outstanding::default();
        (5..8).for_each(|wr_id| queue.post(wr_id));
        let mut take = |wr_id| queue.take("A", Queue::Send, wr_id);
        assert_eq!((take(5), take(7)), (Ok(true), Ok(false)));
        let order = Failure::Order { end: "A", queue: Queue::Send, want: 6, got: 7 };
        assert_eq!(take(6), Err(order));
        let lack = Lack { end: "A", queue: Queue::Send, wr_id: 6, later: Some(7) };
        assert_eq!([0, 1, 2].map(|still| queue.lacks("A", Queue::Send, still)), [Some(lack), Some(lack), None]);
    }
}
