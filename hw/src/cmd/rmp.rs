//! Receive memory pools: what a shared receive queue is to the device.

use super::{Opcode, Plain};
use crate::rmpc::{RmpState, Rmpc, Wq};

crate::prm! {
    /// What MODIFY_RMP changes (PRM `rmp_bitmask`).
    pub struct RmpBitmask("rmp_bitmask", 8) {
        /// The low watermark.
        lwm: 0x3f, 1;
    }
}

crate::cmd::inbox! {
    /// Input of CREATE_RMP.
    pub struct CreateRmpIn("create_rmp_in", 272) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// The context. The list of its pages follows.
        ctx: 0x100, Rmpc;
    }
}

crate::cmd::outbox! {
    /// Output of CREATE_RMP.
    pub struct CreateRmpOut("create_rmp_out", 16) {
        /// Number of the pool.
        rmpn: 0x48, 24;
    }
}

crate::cmd::inbox! {
    /// Input of MODIFY_RMP.
    pub struct ModifyRmpIn("modify_rmp_in", 272) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// State that the pool is in: [`RmpState`].
        rmp_state: 0x40, 4;
        /// Number of the pool.
        rmpn: 0x48, 24;
        /// Which fields are changed.
        bitmask: 0x80, RmpBitmask;
        /// Their new values, and the new state.
        ctx: 0x100, Rmpc;
    }
}

crate::cmd::outbox! {
    /// Output of MODIFY_RMP.
    pub struct ModifyRmpOut("modify_rmp_out", 16) {
    }
}

crate::cmd::inbox! {
    /// Input of DESTROY_RMP.
    pub struct DestroyRmpIn("destroy_rmp_in", 16) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// Number of the pool.
        rmpn: 0x48, 24;
    }
}

crate::cmd::outbox! {
    /// Output of DESTROY_RMP.
    pub struct DestroyRmpOut("destroy_rmp_out", 16) {
    }
}

crate::cmd::inbox! {
    /// Input of QUERY_RMP.
    pub struct QueryRmpIn("query_rmp_in", 16) {
        /// Number of the pool.
        rmpn: 0x48, 24;
    }
}

crate::cmd::outbox! {
    /// Output of QUERY_RMP.
    pub struct QueryRmpOut("query_rmp_out", 272) {
        /// The context.
        rmp_context: 0x100, Rmpc;
    }
}

/// Creates a receive memory pool; answers its number.
#[derive(Clone, Copy, Debug)]
pub struct CreateRmp<'a> {
    /// The context.
    pub rmpc: Rmpc,
    /// I/O addresses of the queue's pages, of the size that the context says.
    pub pas: &'a [u64],
}

impl Plain for CreateRmp<'_> {
    const CODE: Opcode = Opcode::CREATE_RMP;
    type In = CreateRmpIn;
    type Reply = CreateRmpOut;
    type Value = u32;
    fn fill(&self, input: &mut CreateRmpIn) {
        input.set_ctx(self.rmpc);
    }
    fn list(&self) -> &[u64] {
        self.pas
    }
    fn read(&self, out: &CreateRmpOut) -> u32 {
        out.rmpn()
    }
}

/// Sets the low watermark of a receive memory pool that works.
#[derive(Clone, Copy, Debug)]
pub struct ModifyRmp {
    /// Number of the pool.
    pub rmpn: u32,
    /// Fewer entries than this raise an event, once; 0 turns it off.
    pub lwm: u16,
}

impl Plain for ModifyRmp {
    const CODE: Opcode = Opcode::MODIFY_RMP;
    type In = ModifyRmpIn;
    type Reply = ModifyRmpOut;
    type Value = ();
    fn fill(&self, input: &mut ModifyRmpIn) {
        let ready = RmpState::RDY.0.into();
        input.set_rmp_state(ready);
        input.set_rmpn(self.rmpn);
        input.set_bitmask(RmpBitmask::new().with_lwm(true));
        input.set_ctx(Rmpc::new().with_state(ready).with_wq(Wq::new().with_lwm(self.lwm.into())));
    }
    fn read(&self, _: &ModifyRmpOut) {}
}

/// Destroys a receive memory pool. No queue pair may take from it.
#[derive(Clone, Copy, Debug)]
pub struct DestroyRmp {
    /// Number of the pool.
    pub rmpn: u32,
}

impl Plain for DestroyRmp {
    const CODE: Opcode = Opcode::DESTROY_RMP;
    type In = DestroyRmpIn;
    type Reply = DestroyRmpOut;
    type Value = ();
    fn fill(&self, input: &mut DestroyRmpIn) {
        input.set_rmpn(self.rmpn);
    }
    fn read(&self, _: &DestroyRmpOut) {}
}

/// Reads the context of a receive memory pool.
#[derive(Clone, Copy, Debug)]
pub struct QueryRmp {
    /// Number of the pool.
    pub rmpn: u32,
}

impl Plain for QueryRmp {
    const CODE: Opcode = Opcode::QUERY_RMP;
    type In = QueryRmpIn;
    type Reply = QueryRmpOut;
    type Value = Rmpc;
    fn fill(&self, input: &mut QueryRmpIn) {
        input.set_rmpn(self.rmpn);
    }
    fn read(&self, out: &QueryRmpOut) -> Rmpc {
        out.rmp_context()
    }
}
