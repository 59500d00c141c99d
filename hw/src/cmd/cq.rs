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

crate::cmd::inbox! {
    /// Input of MODIFY_CQ.
    pub struct ModifyCqIn("modify_cq_in", 272) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// Number of the queue.
        cqn: 0x48, 24;
        /// What of the context is taken: bits of [`CqResizeField`] with operation [`RESIZE_CQ`](CqOp::RESIZE_CQ), else of
        /// [`CqModifyField`].
        modify_field_select_resize_field_select: 0x60, 32;
        /// The context; only the fields that are selected are read.
        cq_context: 0x80, Cqc;
        /// The new ring is given as a user memory object, not as a list of pages.
        cq_umem_valid: 0x2e0, 1;
        /// I/O addresses of the new ring's pages.
        pas: 0x880, [64;];
    }
}

crate::cmd::outbox! {
    /// Output of MODIFY_CQ.
    pub struct ModifyCqOut("modify_cq_out", 16) {
    }
}

crate::prm_values! {
    /// What MODIFY_CQ does (PRM `modify_cq_in.op_mod`).
    pub struct CqOp(u16) {
        /// Changes fields of the context.
        MODIFY_CQ = 0x0;
        /// Exchanges the ring.
        RESIZE_CQ = 0x1;
    }
}

crate::prm_values! {
    /// Fields of the context that MODIFY_CQ changes (PRM `modify_field_select`): a bit each.
    pub struct CqModifyField(u32) {
        /// `cq_period`.
        PERIOD = 0x1;
        /// `cq_max_count`.
        COUNT = 0x2;
        /// `oi`.
        OVERRUN = 0x4;
        /// `cq_period_mode`; needs capability `cq_period_mode_modify`.
        PERIOD_MODE = 0x10;
    }
}

crate::prm_values! {
    /// Fields of the context that a resize changes (PRM `resize_field_select`): a bit each.
    pub struct CqResizeField(u32) {
        /// `log_cq_size`.
        LOG_SIZE = 0x1;
        /// `page_offset`.
        PG_OFFSET = 0x2;
        /// `log_page_size`.
        PG_SIZE = 0x4;
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

/// Gives a completion queue another ring. The device goes on in the new ring, one index behind the old ring's last entry, which
/// says that it is the last ([`Ring::move_to`](crate::ring::Ring::move_to)). Every slot's ownership byte of the new ring
/// must have been initialised.
#[derive(Clone, Copy, Debug)]
pub struct ResizeCq<'a> {
    /// Number of the queue.
    pub cqn: u32,
    /// `log_cq_size`, `log_page_size` and `cqe_sz`, which is what it was; the rest is not read.
    pub cqc: Cqc,
    /// I/O addresses of the new ring's pages, of the size that the context says.
    pub pas: &'a [u64],
}

impl Plain for ResizeCq<'_> {
    const CODE: Opcode = Opcode::MODIFY_CQ;
    type In = ModifyCqIn;
    type Reply = ModifyCqOut;
    type Value = ();
    fn fill(&self, input: &mut ModifyCqIn) {
        let fields = CqResizeField::LOG_SIZE.0 | CqResizeField::PG_OFFSET.0 | CqResizeField::PG_SIZE.0;
        input.set_op_mod(CqOp::RESIZE_CQ.0.into());
        input.set_cqn(self.cqn);
        input.set_modify_field_select_resize_field_select(fields);
        input.set_cq_context(self.cqc);
    }
    fn list(&self) -> &[u64] {
        self.pas
    }
    fn read(&self, _: &ModifyCqOut) {}
}

/// Sets the moderation of a completion queue's events.
#[derive(Clone, Copy, Debug)]
pub struct ModerateCq {
    /// Number of the queue.
    pub cqn: u32,
    /// Completions before an event is raised, 16 bits.
    pub cq_max_count: u32,
    /// Microseconds before an event is raised, 12 bits.
    pub cq_period: u32,
}

impl Plain for ModerateCq {
    const CODE: Opcode = Opcode::MODIFY_CQ;
    type In = ModifyCqIn;
    type Reply = ModifyCqOut;
    type Value = ();
    fn fill(&self, input: &mut ModifyCqIn) {
        input.set_op_mod(CqOp::MODIFY_CQ.0.into());
        input.set_cqn(self.cqn);
        input.set_modify_field_select_resize_field_select(CqModifyField::PERIOD.0 | CqModifyField::COUNT.0);
        input.set_cq_context(Cqc::new().with_cq_period(self.cq_period).with_cq_max_count(self.cq_max_count));
    }
    fn read(&self, _: &ModifyCqOut) {}
}
