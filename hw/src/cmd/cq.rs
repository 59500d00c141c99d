//! Completion queues.

use super::{Opcode, Plain};
use crate::cqc::Cqc;

crate::cmd::inbox! {
    /// Input of CREATE_CQ.
    pub struct CreateCqIn("create_cq_in", 272) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// The context.
        cq_context: 0x80, Cqc;
        /// Offset of the ring in the user memory object.
        cq_umem_offset: 0x280, 64;
        /// User memory object that holds the ring, with `cq_umem_valid`.
        cq_umem_id: 0x2c0, 32;
        /// The ring is given as a user memory object, not as a list of pages.
        cq_umem_valid: 0x2e0, 1;
        /// I/O addresses of the ring's pages.
        pas: 0x880, [64;];
    }
}

crate::cmd::outbox! {
    /// Output of CREATE_CQ.
    pub struct CreateCqOut("create_cq_out", 16) {
        /// Number of the queue.
        cqn: 0x48, 24;
    }
}

crate::cmd::inbox! {
    /// Input of DESTROY_CQ.
    pub struct DestroyCqIn("destroy_cq_in", 16) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// Number of the queue.
        cqn: 0x48, 24;
    }
}

crate::cmd::outbox! {
    /// Output of DESTROY_CQ.
    pub struct DestroyCqOut("destroy_cq_out", 16) {
    }
}

crate::cmd::inbox! {
    /// Input of QUERY_CQ.
    pub struct QueryCqIn("query_cq_in", 16) {
        /// Number of the queue.
        cqn: 0x48, 24;
    }
}

crate::cmd::outbox! {
    /// Output of QUERY_CQ.
    pub struct QueryCqOut("query_cq_out", 272) {
        /// The context.
        cq_context: 0x80, Cqc;
        /// I/O addresses of the ring's pages.
        pas: 0x880, [64;];
    }
}

/// Creates a completion queue; answers its number. Every slot's ownership byte must have been initialised.
#[derive(Clone, Copy, Debug)]
pub struct CreateCq<'a> {
    /// The context.
    pub cqc: Cqc,
    /// I/O addresses of the ring's pages, of the size that the context says.
    pub pas: &'a [u64],
}

impl Plain for CreateCq<'_> {
    const CODE: Opcode = Opcode::CREATE_CQ;
    type In = CreateCqIn;
    type Reply = CreateCqOut;
    type Value = u32;
    fn fill(&self, input: &mut CreateCqIn) {
        input.set_cq_context(self.cqc);
    }
    fn list(&self) -> &[u64] {
        self.pas
    }
    fn read(&self, out: &CreateCqOut) -> u32 {
        out.cqn()
    }
}

/// Destroys a completion queue. No work queue may be attached.
#[derive(Clone, Copy, Debug)]
pub struct DestroyCq {
    /// Number of the queue.
    pub cqn: u32,
}

impl Plain for DestroyCq {
    const CODE: Opcode = Opcode::DESTROY_CQ;
    type In = DestroyCqIn;
    type Reply = DestroyCqOut;
    type Value = ();
    fn fill(&self, input: &mut DestroyCqIn) {
        input.set_cqn(self.cqn);
    }
    fn read(&self, _: &DestroyCqOut) {}
}

/// Reads the context of a completion queue.
#[derive(Clone, Copy, Debug)]
pub struct QueryCq {
    /// Number of the queue.
    pub cqn: u32,
}

impl Plain for QueryCq {
    const CODE: Opcode = Opcode::QUERY_CQ;
    type In = QueryCqIn;
    type Reply = QueryCqOut;
    type Value = Cqc;
    fn fill(&self, input: &mut QueryCqIn) {
        input.set_cqn(self.cqn);
    }
    fn read(&self, out: &QueryCqOut) -> Cqc {
        out.cq_context()
    }
}
