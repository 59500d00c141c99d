//! Doorbell pages (user access regions).

use super::{Opcode, Plain};

crate::cmd::inbox! {
    /// Input of ALLOC_UAR.
    pub struct AllocUarIn("alloc_uar_in", 16) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
    }
}

crate::cmd::outbox! {
    /// Output of ALLOC_UAR.
    pub struct AllocUarOut("alloc_uar_out", 16) {
        /// Index of the page: it lies in BAR 0 at index times the UAR page size.
        uar: 0x48, 24;
    }
}

crate::cmd::inbox! {
    /// Input of DEALLOC_UAR.
    pub struct DeallocUarIn("dealloc_uar_in", 16) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// Index of the page.
        uar: 0x48, 24;
    }
}

crate::cmd::outbox! {
    /// Output of DEALLOC_UAR.
    pub struct DeallocUarOut("dealloc_uar_out", 16) {
    }
}

/// Allocates a doorbell page; answers its index, to be checked against the size of the BAR.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocUar;

impl Plain for AllocUar {
    const CODE: Opcode = Opcode::ALLOC_UAR;
    type In = AllocUarIn;
    type Reply = AllocUarOut;
    type Value = u32;
    fn fill(&self, _: &mut AllocUarIn) {}
    fn read(&self, out: &AllocUarOut) -> u32 {
        out.uar()
    }
}

/// Frees a doorbell page.
#[derive(Clone, Copy, Debug)]
pub struct DeallocUar {
    /// Index of the page.
    pub uar: u32,
}

impl Plain for DeallocUar {
    const CODE: Opcode = Opcode::DEALLOC_UAR;
    type In = DeallocUarIn;
    type Reply = DeallocUarOut;
    type Value = ();
    fn fill(&self, input: &mut DeallocUarIn) {
        input.set_uar(self.uar);
    }
    fn read(&self, _: &DeallocUarOut) {}
}
