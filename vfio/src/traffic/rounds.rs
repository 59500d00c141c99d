//! The round trips: bursts of messages from A to B and back, each compared byte for byte at both ends.

use std::fmt;

use mlx5::{
    Completion, Cq, Error, PollAttr, PollError, PostError, RecvWr, SendFlags, SendWr, Sge, Wc, WcFlags, WcOpcode,
    WcResultFlags, WcStatus, WrOpcode, ibv,
};
use mlx5_model::Model;

use super::link::{End, INLINE, Link, Plan};

/// Longest wait for a completion, in nanoseconds of model time.
const DEADLINE: u64 = 200_000_000;
/// Longest step of model time while waiting.
const STEP: u64 = 1_000_000;

/// Why the round trips ended early. Iterations, bytes and wr_ids count from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A byte that arrived is not the one that was sent.
    Mismatch { end: &'static str, iteration: u64, byte: usize, sent: u8, got: u8 },
    /// A message arrived with another length.
    Length { end: &'static str, iteration: u64, want: u32, got: u32 },
    /// A completion did not come.
    Missing { end: &'static str, queue: Queue, wr_id: u64, later: Option<u64> },
    /// Completions of one queue came in another order than the work requests.
    Order { end: &'static str, queue: Queue, want: u64, got: u64 },
    /// A work request failed.
    Status { end: &'static str, queue: Queue, wr_id: u64, status: WcStatus, vendor_err: u32 },
    /// A completion says something that is not so, or has not what was asked for.
    Field { end: &'static str, queue: Queue, wr_id: u64, field: String },
    /// The library refused something.
    Driver(Error),
    /// A work request was not accepted.
    Post(PostError),
    /// An entry of a CQ could not be read.
    Poll(PollError),
}

/// Which of a queue pair's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Sends.
    Send,
    /// Receives.
    Receive,
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Send { "send" } else { "receive" })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch { end, iteration, byte, sent, got } => write!(
                f,
                "payload mismatch at iteration {iteration}, byte {byte}: {sent:#04x} was sent, {got:#04x} arrived at {end}"
            ),
            Self::Length { end, iteration, want, got } => {
                write!(f, "message of iteration {iteration} arrived at {end} with {got} bytes instead of {want}")
            }
            Self::Missing { end, queue, wr_id, later } => {
                write!(f, "completion missing: {end}'s {queue} with wr_id {wr_id} did not complete within ")?;
                write!(f, "{} ms of model time", DEADLINE / 1_000_000)?;
                later.map_or(Ok(()), |later| write!(f, ", though wr_id {later} behind it did"))
            }
            Self::Order { end, queue, want, got } => {
                write!(f, "completion out of order at {end}'s {queue} queue: expected wr_id {want}, got {got}")
            }
            Self::Status { end, queue, wr_id, status, vendor_err } => {
                write!(f, "{end}'s {queue} with wr_id {wr_id} failed: {status}, vendor error {vendor_err:#x}")
            }
            Self::Field { end, queue, wr_id, field } => {
                write!(f, "the completion of {end}'s {queue} with wr_id {wr_id} is wrong: {field}")
            }
            Self::Driver(e) => e.fmt(f),
            Self::Post(e) => e.fmt(f),
            Self::Poll(e) => e.fmt(f),
        }
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Self::Driver(e)
    }
}

impl From<PostError> for Failure {
    fn from(e: PostError) -> Self {
        Self::Post(e)
    }
}

impl From<PollError> for Failure {
    fn from(e: PollError) -> Self {
        Self::Poll(e)
    }
}

/// Which completion of a queue is next.
#[derive(Default)]
struct Stream {
    done: u64,
    /// A later one came first.
    early: Option<u64>,
}

impl Stream {
    /// Takes note of a completion; an error if it shows that the order is wrong.
    fn take(&mut self, end: &'static str, queue: Queue, wr_id: u64) -> Result<(), Failure> {
        match self.early {
            None if wr_id == self.done => self.done += 1,
            None => self.early = Some(wr_id),
            Some(got) if wr_id == self.done => return Err(Failure::Order { end, queue, want: wr_id, got }),
            Some(_) => {}
        }
        Ok(())
    }
}

/// What the completions of an end have said.
struct Progress {
    end: &'static str,
    plan: Plan,
    qp_num: u32,
    /// What its completions carry.
    fields: WcFlags,
    sends: Stream,
    receives: Stream,
}

/// One completion, however it was polled.
struct Done {
    wr_id: u64,
    status: WcStatus,
    vendor_err: u32,
    opcode: Option<WcOpcode>,
    qp_num: Option<u32>,
    /// The fields that it has, if it has some only.
    has: Option<WcFlags>,
    byte_len: Option<u32>,
    number: Option<u32>,
}

impl Progress {
    fn new(end: &'static str, plan: Plan, qp_num: u32, fields: WcFlags) -> Self {
        Self { end, plan, qp_num, fields, sends: Stream::default(), receives: Stream::default() }
    }

    fn take(&mut self, done: &Done) -> Result<(), Failure> {
        let receive = done.opcode == Some(WcOpcode::RECV);
        let (queue, wr_id, end) = (if receive { Queue::Receive } else { Queue::Send }, done.wr_id, self.end);
        if done.status != WcStatus::SUCCESS {
            return Err(Failure::Status { end, queue, wr_id, status: done.status, vendor_err: done.vendor_err });
        }
        if let Some(field) = self.wrong_field(done, receive) {
            return Err(Failure::Field { end, queue, wr_id, field });
        }
        if !receive {
            return self.sends.take(end, queue, wr_id);
        }
        let size = self.plan.len(wr_id);
        if done.byte_len != self.fields.contains(WcFlags::BYTE_LEN).then_some(size) {
            return Err(Failure::Length { end, iteration: wr_id, want: size, got: done.byte_len.unwrap_or(0) });
        }
        // The message carries its number: a receive that completes in turn with another message is out of order too.
        let numbered = self.plan.numbered && self.fields.contains(WcFlags::IMM);
        if numbered && wr_id == self.receives.done && done.number != Some(wr_id as u32) {
            return Err(Failure::Order { end, queue, want: wr_id, got: done.number.unwrap_or(0).into() });
        }
        self.receives.take(end, queue, wr_id)
    }

    /// What a completion should not say, or lacks. Fields that only other kinds of queues have are none here.
    fn wrong_field(&self, done: &Done, receive: bool) -> Option<String> {
        if !receive && done.opcode != Some(WcOpcode::SEND) {
            return Some(format!("its opcode is {:?}", done.opcode));
        }
        if done.qp_num != self.fields.contains(WcFlags::QP_NUM).then_some(self.qp_num) {
            return Some(format!("its queue pair is {:?}, not {:#x}", done.qp_num, self.qp_num));
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

    /// The completion that a wait until `sends` and `receives` of them lacks, if it lacks one.
    fn lacks(&self, sends: u64, receives: u64) -> Option<Failure> {
        let queues = [(Queue::Receive, &self.receives, receives), (Queue::Send, &self.sends, sends)];
        let (queue, stream, _) = queues.into_iter().find(|(_, stream, want)| stream.done < *want)?;
        Some(Failure::Missing { end: self.end, queue, wr_id: stream.done, later: stream.early })
    }
}

/// Runs the round trips.
pub struct Rounds<'a> {
    link: &'a mut Link,
    model: &'a Model,
    plan: Plan,
    a: Progress,
    b: Progress,
    /// Payloads that were compared at both ends.
    pub verified: u64,
}

impl<'a> Rounds<'a> {
    /// The round trips of a plan over a link.
    pub fn new(link: &'a mut Link, model: &'a Model, plan: &Plan) -> Self {
        let plan = *plan;
        // `ibv_poll_cq` gives all fields, whatever was asked for.
        let a = Progress::new("A", plan, link.a.qp.qp_num(), WcFlags::all());
        let b = Progress::new("B", plan, link.b.qp.qp_num(), link.b.cq.wc_flags());
        Self { link, model, plan, a, b, verified: 0 }
    }

    /// Runs them, telling `progress` how many are done.
    pub fn run(&mut self, mut progress: impl FnMut(u64)) -> Result<(), Failure> {
        let (mut first, iters) = (0, self.plan.iters);
        while first < iters {
            let next = iters.min(first + u64::from(self.link.depth));
            self.burst(first, next)?;
            first = next;
            progress(first);
        }
        Ok(())
    }

    /// Iterations `first..next`, all in flight at once.
    fn burst(&mut self, first: u64, next: u64) -> Result<(), Failure> {
        let size = self.plan.size;
        let payloads: Vec<Vec<u8>> =
            (first..next).map(|i| payload(self.plan.seed, i, self.plan.len(i) as usize)).collect();
        for end in [&mut self.link.b, &mut self.link.a] {
            post_receives(end, first, next, size)?;
        }
        for (slot, payload) in payloads.iter().enumerate() {
            self.link.a.outgoing.write(slot * size as usize, payload)?;
        }
        post_sends(&mut self.link.a, first, &payloads, &self.plan)?;
        self.wait(|a, b| b.lacks(0, next).or_else(|| a.lacks(next, 0)))?;
        let arrived = compare(&self.link.b, first, &payloads, size)?;
        for (slot, payload) in arrived.iter().enumerate() {
            self.link.b.outgoing.write(slot * size as usize, payload)?;
        }
        post_sends(&mut self.link.b, first, &arrived, &self.plan)?;
        self.wait(|a, b| a.lacks(0, next).or_else(|| b.lacks(next, 0)))?;
        compare(&self.link.a, first, &payloads, size)?;
        self.verified += next - first;
        Ok(())
    }

    /// Polls until nothing is lacking. Model time moves on while nothing comes, so a lost completion ends it soon.
    fn wait(&mut self, lacks: impl Fn(&Progress, &Progress) -> Option<Failure>) -> Result<(), Failure> {
        let (mut waited, mut step) = (0, 1_000);
        loop {
            let came = drain(&mut self.link.a.cq, &mut self.a)? + drain_lazily(&mut self.link.b.cq, &mut self.b)?;
            let Some(failure) = lacks(&self.a, &self.b) else { return Ok(()) };
            if came != 0 {
                (waited, step) = (0, 1_000);
                continue;
            }
            if waited >= DEADLINE {
                return Err(failure);
            }
            self.model.step(step);
            waited += step;
            step = (2 * step).min(STEP);
        }
    }
}

/// Polls with `ibv_poll_cq`.
fn drain(cq: &mut Cq, progress: &mut Progress) -> Result<usize, Failure> {
    let mut wcs = [Wc::default(); 16];
    let n = ibv::poll_cq(cq, &mut wcs)?;
    for wc in wcs.iter().take(n) {
        progress.take(&Done {
            wr_id: wc.wr_id,
            status: wc.status,
            vendor_err: wc.vendor_err,
            opcode: Some(wc.opcode),
            qp_num: Some(wc.qp_num),
            has: None,
            byte_len: Some(wc.byte_len),
            number: wc.flags().contains(WcResultFlags::WITH_IMM).then(|| u32::from_be(wc.imm_data)),
        })?;
    }
    Ok(n)
}

/// Polls with `ibv_start_poll`, `ibv_next_poll` and `ibv_end_poll`.
fn drain_lazily(cq: &mut Cq, progress: &mut Progress) -> Result<usize, Failure> {
    let mut poller = match ibv::start_poll(cq, &PollAttr::default()) {
        Err(PollError::Empty) => return Ok(0),
        other => other?,
    };
    let mut n = 0;
    loop {
        let entry = poller.completion();
        progress.take(&Done {
            wr_id: entry.wr_id(),
            status: entry.status(),
            vendor_err: entry.vendor_err().unwrap_or(0),
            opcode: entry.opcode(),
            qp_num: entry.qp_num(),
            has: Some(fields(&entry)),
            byte_len: entry.byte_len(),
            number: entry.imm_data().map(u32::from_be),
        })?;
        n += 1;
        match ibv::next_poll(&mut poller) {
            Ok(_) => {}
            Err(PollError::Empty) => break,
            Err(e) => return Err(e.into()),
        }
    }
    ibv::end_poll(poller);
    Ok(n)
}

/// The fields of a completion that can be read.
fn fields(entry: &Completion<'_>) -> WcFlags {
    let readers = [
        (WcFlags::BYTE_LEN, entry.byte_len().is_some()),
        (WcFlags::IMM, entry.imm_data().is_some() || entry.invalidated_rkey().is_some()),
        (WcFlags::QP_NUM, entry.qp_num().is_some()),
        (WcFlags::SRC_QP, entry.src_qp().is_some()),
        (WcFlags::SLID, entry.slid().is_some()),
        (WcFlags::SL, entry.sl().is_some()),
        (WcFlags::DLID_PATH_BITS, entry.dlid_path_bits().is_some()),
        (WcFlags::COMPLETION_TIMESTAMP, entry.completion_ts().is_some()),
        (WcFlags::CVLAN, entry.cvlan().is_some()),
        (WcFlags::FLOW_TAG, entry.flow_tag().is_some()),
        (WcFlags::TM_INFO, entry.tm_info().is_some()),
        (WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK, entry.completion_wallclock_ns().is_some()),
    ];
    readers.into_iter().filter(|(_, has)| *has).map(|(field, _)| field).collect()
}

/// `length` bytes in the memory of a slot, which has `size`.
fn slot(addr: u64, lkey: u32, slot: u64, size: u32, length: u32) -> [Sge; 1] {
    [Sge { addr: addr + slot * u64::from(size), length, lkey }]
}

fn post_receives(end: &mut End, first: u64, next: u64, size: u32) -> Result<(), PostError> {
    for wr_id in first..next {
        let sg_list = slot(end.incoming.addr(), end.incoming.lkey(), wr_id - first, size, size);
        ibv::post_recv(&mut end.qp, &[RecvWr { wr_id, sg_list: &sg_list }])?;
    }
    Ok(())
}

/// Posts the sends of a burst with one doorbell. Short payloads travel in the work request, longer ones in memory.
fn post_sends(end: &mut End, first: u64, payloads: &[Vec<u8>], plan: &Plan) -> Result<(), PostError> {
    let pieces: Vec<[Sge; 1]> = (0_u64..)
        .zip(payloads)
        .map(|(i, p)| slot(end.outgoing.addr(), end.outgoing.lkey(), i, plan.size, p.len() as u32))
        .collect();
    let requests: Vec<SendWr<'_>> = (first..)
        .zip(payloads.iter().zip(&pieces))
        .map(|(wr_id, (payload, sg_list))| {
            let inline = payload.len() <= INLINE as usize;
            SendWr {
                wr_id,
                sg_list: if inline { &[] } else { sg_list },
                inline_data: if inline { payload } else { &[] },
                opcode: if plan.numbered {
                    WrOpcode::SendWithImm { imm_data: (wr_id as u32).to_be() }
                } else {
                    WrOpcode::Send
                },
                send_flags: if inline { SendFlags::SIGNALED | SendFlags::INLINE } else { SendFlags::SIGNALED },
            }
        })
        .collect();
    ibv::post_send(&mut end.qp, &requests)
}

/// Compares what arrived with what was sent, and gives it back.
fn compare(end: &End, first: u64, payloads: &[Vec<u8>], size: u32) -> Result<Vec<Vec<u8>>, Failure> {
    let mut arrived = Vec::with_capacity(payloads.len());
    for (slot, sent) in payloads.iter().enumerate() {
        let mut got = vec![0; sent.len()];
        end.incoming.read(slot * size as usize, &mut got)?;
        if got != *sent {
            let (end, iteration) = (end.name, first + slot as u64);
            let different = sent.iter().zip(&got).enumerate().find(|(_, (s, g))| s != g);
            let (byte, (&sent, &got)) = different.unwrap_or((0, (&0, &0)));
            return Err(Failure::Mismatch { end, iteration, byte, sent, got });
        }
        arrived.push(got);
    }
    Ok(arrived)
}

/// The payload of an iteration: splitmix64 from a state that seed and iteration give.
pub fn payload(seed: u64, iteration: u64, size: usize) -> Vec<u8> {
    let mut state = seed ^ iteration.wrapping_mul(0xd134_2543_de82_ef95);
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second message of 64 bytes at most, received into queue pair 0x41.
    const GOOD: Done = Done {
        wr_id: 1,
        status: WcStatus::SUCCESS,
        vendor_err: 0,
        opcode: Some(WcOpcode::RECV),
        qp_num: Some(0x41),
        has: None,
        byte_len: Some(63),
        number: None,
    };

    fn take(fields: WcFlags, done: &Done) -> Result<(), Failure> {
        let plan =
            Plan { iters: 2, size: 64, varied: true, seed: 0, depth: None, numbered: false, scatter_to_cqe: false };
        Progress::new("B", plan, 0x41, fields).take(done)
    }

    #[test]
    fn a_completion_that_says_what_is_not_so_is_found() {
        let all = WcFlags::all();
        assert_eq!(take(all, &GOOD), Ok(()));
        assert_eq!(take(all, &Done { opcode: Some(WcOpcode::SEND), byte_len: None, ..GOOD }), Ok(()));
        let length = Failure::Length { end: "B", iteration: 1, want: 63, got: 64 };
        assert_eq!(take(all, &Done { byte_len: Some(64), ..GOOD }), Err(length), "the length of the one before");
        for (wrong, says) in [
            (Done { qp_num: Some(0x40), ..GOOD }, "its queue pair is Some(64), not 0x41"),
            (Done { opcode: Some(WcOpcode::RDMA_WRITE), ..GOOD }, "its opcode is "),
            (Done { opcode: None, ..GOOD }, "its opcode is None"),
        ] {
            let error = take(all, &wrong).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_field_that_was_asked_for_and_is_not_there_or_the_other_way_round_is_found() {
        let asked = WcFlags::BYTE_LEN | WcFlags::QP_NUM | WcFlags::SL | WcFlags::TM_INFO;
        let has = |fields| take(asked, &Done { has: Some(fields), ..GOOD });
        let right = asked - WcFlags::TM_INFO;
        assert_eq!(has(right), Ok(()), "there are no tag lists");
        for wrong in [right - WcFlags::SL, right | WcFlags::SLID] {
            assert!(matches!(has(wrong), Err(Failure::Field { .. })), "{wrong:?}");
        }
    }

    #[test]
    fn payloads_differ_by_iteration_and_by_seed_and_fill_their_size() {
        let mut seen = std::collections::HashSet::new();
        for (seed, iteration) in (0..4).flat_map(|s| (0..500).map(move |i| (s, i))) {
            let bytes = payload(seed, iteration, 21);
            assert_eq!(bytes.len(), 21);
            assert_eq!(bytes, payload(seed, iteration, 21));
            assert!(seen.insert(bytes), "seed {seed}, iteration {iteration}");
        }
    }
}
