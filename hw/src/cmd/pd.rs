//! Protection domains.

use super::{Opcode, Plain};

crate::cmd::inbox! {
    /// Input of ALLOC_PD.
    pub struct AllocPdIn("alloc_pd_in", 16) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
    }
}

crate::cmd::outbox! {
    /// Output of ALLOC_PD.
    pub struct AllocPdOut("alloc_pd_out", 16) {
        /// Number of the protection domain.
        pd: 0x48, 24;
    }
}

crate::cmd::inbox! {
    /// Input of DEALLOC_PD.
    pub struct DeallocPdIn("dealloc_pd_in", 16) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// Number of the protection domain.
        pd: 0x48, 24;
    }
}

crate::cmd::outbox! {
    /// Output of DEALLOC_PD.
    pub struct DeallocPdOut("dealloc_pd_out", 16) {
    }
}

/// Allocates a protection domain; answers its number.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocPd;

impl Plain for AllocPd {
    const CODE: Opcode = Opcode::ALLOC_PD;
    type In = AllocPdIn;
    type Reply = AllocPdOut;
    type Value = u32;
    fn fill(&self, _: &mut AllocPdIn) {}
    fn read(&self, out: &AllocPdOut) -> u32 {
        out.pd()
    }
}

/// Frees a protection domain. Nothing may be left in it.
#[derive(Clone, Copy, Debug)]
pub struct DeallocPd {
    /// Number of the protection domain.
    pub pd: u32,
}

impl Plain for DeallocPd {
    const CODE: Opcode = Opcode::DEALLOC_PD;
    type In = DeallocPdIn;
    type Reply = DeallocPdOut;
    type Value = ();
    fn fill(&self, input: &mut DeallocPdIn) {
        input.set_pd(self.pd);
    }
    fn read(&self, _: &DeallocPdOut) {}
}
