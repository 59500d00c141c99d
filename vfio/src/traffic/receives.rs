//! Receive requests and the memory that they point to.

use mlx5::{AccessFlags, DmaBuf, Error, Pd, Qp, RecvWr, Sge, ibv};

use super::check::Outstanding;
use super::failure::Failure;

/// Receive requests, each with a slot of memory of its own.
pub struct Receives {
    memory: DmaBuf,
    slots: u32,
    /// Bytes of a slot.
    size: u32,
    /// How many were posted so far: the wr_id of the next one.
    posted: u64,
    pub outstanding: Outstanding,
}

impl Receives {
    /// Memory for `slots` messages of `size` bytes.
    pub fn new(pd: &Pd, slots: u32, size: u32) -> Result<Self, Error> {
        let memory = pd.alloc_buf(slots as usize * size as usize, AccessFlags::LOCAL_WRITE)?;
        Ok(Self { memory, slots, size, posted: 0, outstanding: Outstanding::default() })
    }

    /// Posts until `want` are outstanding.
    pub fn post(&mut self, qp: &mut Qp, want: usize) -> Result<(), Failure> {
        while self.outstanding.len() < want {
            let wr_id = self.posted;
            let addr = self.memory.addr() + self.slot(wr_id) as u64;
            let sg_list = [Sge { addr, length: self.size, lkey: self.memory.lkey() }];
            ibv::post_recv(qp, &[RecvWr { wr_id, sg_list: &sg_list }])?;
            self.outstanding.post(wr_id);
            self.posted += 1;
        }
        Ok(())
    }

    /// Where the memory of a request begins. Requests complete in order: those that are outstanding have different slots.
    fn slot(&self, wr_id: u64) -> usize {
        (wr_id % u64::from(self.slots)) as usize * self.size as usize
    }

    /// The first bytes of what the message has left that a request took.
    pub fn read(&self, wr_id: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.memory.read(self.slot(wr_id), bytes)
    }

    /// Gives the memory back.
    pub fn close(self) -> Result<(), Error> {
        self.memory.dereg().map_err(|e| e.error)
    }
}
