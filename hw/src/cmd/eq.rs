//! Event queues.

use super::{Opcode, Plain};
use crate::eqc::Eqc;

crate::cmd::inbox! {
    /// Input of CREATE_EQ.
    pub struct CreateEqIn("create_eq_in", 272) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// The context.
        eq_context_entry: 0x80, Eqc;
        /// Event types that go to this queue, 64 a word, low types in word 0: bit n stands for type n.
        event_bitmask: 0x2c0, [64; 4];
        /// I/O addresses of the ring's pages.
        pas: 0x880, [64;];
    }
}

crate::cmd::outbox! {
    /// Output of CREATE_EQ.
    pub struct CreateEqOut("create_eq_out", 16) {
        /// Number of the queue.
        eq_number: 0x58, 8;
    }
}

crate::cmd::inbox! {
    /// Input of DESTROY_EQ.
    pub struct DestroyEqIn("destroy_eq_in", 16) {
        /// Number of the queue.
        eq_number: 0x58, 8;
    }
}

crate::cmd::outbox! {
    /// Output of DESTROY_EQ.
    pub struct DestroyEqOut("destroy_eq_out", 16) {
    }
}

crate::cmd::inbox! {
    /// Input of QUERY_EQ.
    pub struct QueryEqIn("query_eq_in", 16) {
        /// Number of the queue.
        eq_number: 0x58, 8;
    }
}

crate::cmd::outbox! {
    /// Output of QUERY_EQ.
    pub struct QueryEqOut("query_eq_out", 272) {
        /// The context.
        eq_context_entry: 0x80, Eqc;
        /// Event types 0 to 63 that go to this queue.
        event_bitmask: 0x2c0, 64;
        /// I/O addresses of the ring's pages.
        pas: 0x880, [64;];
    }
}

/// Creates an event queue; answers its number. The ring's owner bits must have been initialised.
#[derive(Clone, Copy, Debug)]
pub struct CreateEq<'a> {
    /// The context.
    pub eqc: Eqc,
    /// Event types 0 to 63 that go to this queue: bit n stands for type n. Completion events need none.
    pub event_bitmask: u64,
    /// I/O addresses of the ring's pages, of the size that the context says.
    pub pas: &'a [u64],
}

impl Plain for CreateEq<'_> {
    const CODE: Opcode = Opcode::CREATE_EQ;
    type In = CreateEqIn;
    type Reply = CreateEqOut;
    type Value = u32;
    fn fill(&self, input: &mut CreateEqIn) {
        input.set_eq_context_entry(self.eqc);
        input.set_event_bitmask(0, self.event_bitmask);
    }
    fn list(&self) -> &[u64] {
        self.pas
    }
    fn read(&self, out: &CreateEqOut) -> u32 {
        out.eq_number()
    }
}

/// Destroys an event queue.
#[derive(Clone, Copy, Debug)]
pub struct DestroyEq {
    /// Number of the queue.
    pub eqn: u32,
}

impl Plain for DestroyEq {
    const CODE: Opcode = Opcode::DESTROY_EQ;
    type In = DestroyEqIn;
    type Reply = DestroyEqOut;
    type Value = ();
    fn fill(&self, input: &mut DestroyEqIn) {
        input.set_eq_number(self.eqn);
    }
    fn read(&self, _: &DestroyEqOut) {}
}

/// Reads the context of an event queue.
#[derive(Clone, Copy, Debug)]
pub struct QueryEq {
    /// Number of the queue.
    pub eqn: u32,
}

impl Plain for QueryEq {
    const CODE: Opcode = Opcode::QUERY_EQ;
    type In = QueryEqIn;
    type Reply = QueryEqOut;
    type Value = Eqc;
    fn fill(&self, input: &mut QueryEqIn) {
        input.set_eq_number(self.eqn);
    }
    fn read(&self, out: &QueryEqOut) -> Eqc {
        out.eq_context_entry()
    }
}
