//! Receive requests and the memory that they point to.

use mlx5::{AccessFlags, DmaBuf, Error, Pd, Qp, RecvWr, Sge, Srq, SrqAttr, SrqInitAttr, ibv};

use super::check::Outstanding;
use super::failure::Failure;
use super::payload::Message;
use super::plan::Plan;

/// Receive requests, of a queue pair or of a shared receive queue, each with a slot of memory of its own.
pub struct Receives {
    memory: DmaBuf,
    srq: Option<Srq>,
    slots: u32,
    /// Bytes of a slot, and of the network header at its beginning.
    size: u32,
    header: u32,
    /// How many were posted so far: the wr_id of the next one.
    posted: u64,
    pub outstanding: Outstanding,
}

impl Receives {
    /// Room for `slots` messages of a plan.
    pub fn new(pd: &Pd, slots: u32, plan: &Plan) -> Result<Self, Error> {
        let header = plan.transport.header();
        let size = plan.size + header;
        let memory = pd.alloc_buf(slots as usize * size as usize, AccessFlags::LOCAL_WRITE)?;
        let attr = SrqAttr { max_wr: slots, max_sge: 1, srq_limit: 0 };
        let srq = plan.shared.then(|| ibv::create_srq(pd, &mut SrqInitAttr { srq_context: 0, attr })).transpose()?;
        Ok(Self { memory, srq, slots, size, header, posted: 0, outstanding: Outstanding::default() })
    }

    /// The shared receive queue that they are of.
    pub fn srq(&self) -> Option<&Srq> {
        self.srq.as_ref()
    }

    /// Posts until `want` are outstanding, to the shared receive queue or else to the queue pair.
    pub fn post(&mut self, qp: &mut Qp, want: usize) -> Result<(), Failure> {
        while self.outstanding.len() < want {
            let wr_id = self.posted;
            let addr = self.memory.addr() + self.slot(wr_id) as u64;
            let sg_list = [Sge { addr, length: self.size, lkey: self.memory.lkey() }];
            let request = [RecvWr { wr_id, sg_list: &sg_list }];
            match &mut self.srq {
                Some(srq) => ibv::post_srq_recv(srq, &request)?,
                None => ibv::post_recv(qp, &request)?,
            }
            self.outstanding.post(wr_id);
            self.posted += 1;
        }
        Ok(())
    }

    /// Makes sure that the memory of no outstanding request looks as if it held one of these messages, which are about to be sent.
    pub fn mark(&self, messages: &[Message]) -> Result<(), Error> {
        let begins_none = |byte: &u8| !messages.iter().any(|(_, payload)| payload.first() == Some(byte));
        let mark = (0..=u8::MAX).find(begins_none).unwrap_or(0);
        self.outstanding.iter().try_for_each(|wr_id| self.memory.write(self.payload(wr_id), &[mark]))
    }

    /// Whether the memory of a request holds one of these messages.
    pub fn holds(&self, wr_id: u64, messages: &[Message]) -> Result<bool, Error> {
        let mut got = vec![0; (self.size - self.header) as usize];
        self.memory.read(self.payload(wr_id), &mut got)?;
        Ok(messages.iter().any(|(_, payload)| got.starts_with(payload)))
    }

    /// Where the payload begins that a request takes.
    fn payload(&self, wr_id: u64) -> usize {
        self.slot(wr_id) + self.header as usize
    }

    /// Where the memory of a request begins. Requests complete in order: those that are outstanding have different slots.
    fn slot(&self, wr_id: u64) -> usize {
        (wr_id % u64::from(self.slots)) as usize * self.size as usize
    }

    /// Reads what the message has left that a request took: the network header, if there is one, and the first bytes of the
    /// payload.
    pub fn read(&self, wr_id: u64, payload: &mut [u8]) -> Result<Vec<u8>, Error> {
        let mut header = vec![0; self.header as usize];
        self.memory.read(self.slot(wr_id), &mut header)?;
        self.memory.read(self.payload(wr_id), payload)?;
        Ok(header)
    }

    /// Gives everything back, once no queue pair takes from it.
    pub fn close(self) -> Result<(), Error> {
        let srq = self.srq.map_or(Ok(()), |srq| ibv::destroy_srq(srq).map_err(|e| e.error));
        srq.and(self.memory.dereg().map_err(|e| e.error))
    }
}
