//! Memory pages that the firmware borrows from the host.

use core::cell::Cell;

use super::{Command, Opcode, Plain, Sink, Source, set_opcode};

crate::cmd::inbox! {
    /// Input of QUERY_PAGES.
    pub struct QueryPagesIn("query_pages_in", 16) {
        /// The function is one of the embedded CPU.
        embedded_cpu_function: 0x40, 1;
        /// Function; 0 is the one that the command is issued on.
        function_id: 0x50, 16;
    }
}

crate::cmd::outbox! {
    /// Output of QUERY_PAGES.
    pub struct QueryPagesOut("query_pages_out", 16) {
        /// The function is one of the embedded CPU.
        embedded_cpu_function: 0x40, 1;
        /// Function that wants the pages.
        function_id: 0x50, 16;
        /// Number of 4 KiB pages; signed: negative when the firmware wants to give some back.
        num_pages: 0x60, 32;
    }
}

crate::cmd::inbox! {
    /// Input of MANAGE_PAGES.
    pub struct ManagePagesIn("manage_pages_in", 16) {
        /// The function is one of the embedded CPU.
        embedded_cpu_function: 0x40, 1;
        /// Function whose pages these are.
        function_id: 0x50, 16;
        /// Number of pages given, or the most to take back.
        input_num_entries: 0x60, 32;
        /// I/O addresses of the pages given.
        pas: 0x80, [64;];
    }
}

crate::cmd::outbox! {
    /// Output of MANAGE_PAGES.
    pub struct ManagePagesOut("manage_pages_out", 16) {
        /// Number of pages that came back.
        output_num_entries: 0x40, 32;
        /// I/O addresses of the pages that came back.
        pas: 0x80, [64;];
    }
}

/// Which pages QUERY_PAGES asks about (PRM `query_pages_in.op_mod`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum PagesStage {
    /// Pages to give before anything else.
    Boot = 1,
    /// Pages to give before INIT_HCA.
    Init = 2,
    /// Pages wanted while running.
    Regular = 3,
}

/// Asks how many pages the firmware wants.
#[derive(Clone, Copy, Debug)]
pub struct QueryPages {
    /// Which pages.
    pub stage: PagesStage,
}

/// Answer of [`QueryPages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagesWanted {
    /// Function to give them to.
    pub func_id: u16,
    /// Number of 4 KiB pages, as the device says it; negative to take some back.
    pub num_pages: i32,
}

impl Plain for QueryPages {
    const CODE: Opcode = Opcode::QUERY_PAGES;
    type In = QueryPagesIn;
    type Reply = QueryPagesOut;
    type Value = PagesWanted;
    fn fill(&self, input: &mut QueryPagesIn) {
        input.set_op_mod(self.stage as u32);
    }
    fn read(&self, out: &QueryPagesOut) -> PagesWanted {
        PagesWanted { func_id: out.function_id() as u16, num_pages: out.num_pages() as i32 }
    }
}

crate::prm_values! {
    /// What MANAGE_PAGES does (PRM `manage_pages_in.op_mod`).
    pub struct PagesOp(u16) {
        /// The host has none to give.
        CANT_GIVE = 0x0;
        /// The host gives pages.
        GIVE = 0x1;
        /// The host takes pages back.
        TAKE = 0x2;
    }
}

/// Gives pages to the firmware. They are the device's until [`TakePages`] returns them or the function is reset.
#[derive(Clone, Copy, Debug)]
pub struct GivePages<'a> {
    /// Function whose pages they are; 0 for one's own.
    pub func_id: u16,
    /// I/O addresses, aligned to 4 KiB, none of them 0.
    pub pages: &'a [u64],
}

impl Plain for GivePages<'_> {
    const CODE: Opcode = Opcode::MANAGE_PAGES;
    type In = ManagePagesIn;
    type Reply = ManagePagesOut;
    type Value = ();
    fn fill(&self, input: &mut ManagePagesIn) {
        input.set_op_mod(PagesOp::GIVE.0.into());
        input.set_function_id(self.func_id.into());
        input.set_input_num_entries(self.pages.len() as u32);
    }
    fn list(&self) -> &[u64] {
        self.pages
    }
    fn read(&self, _: &ManagePagesOut) {}
}

/// Tells the firmware that the host has no pages to give.
#[derive(Clone, Copy, Debug)]
pub struct CannotGivePages {
    /// Function that asked.
    pub func_id: u16,
}

impl Plain for CannotGivePages {
    const CODE: Opcode = Opcode::MANAGE_PAGES;
    type In = ManagePagesIn;
    type Reply = ManagePagesOut;
    type Value = ();
    fn fill(&self, input: &mut ManagePagesIn) {
        input.set_op_mod(PagesOp::CANT_GIVE.0.into());
        input.set_function_id(self.func_id.into());
    }
    fn read(&self, _: &ManagePagesOut) {}
}

/// Takes pages back: up to as many as `pages` has room for. The answer is how many came back as the device says it,
/// unchecked; their addresses are written to `pages`, those beyond the answered count are 0.
#[derive(Clone, Copy, Debug)]
pub struct TakePages<'a> {
    /// Function whose pages they are; 0 for one's own.
    pub func_id: u16,
    /// Room for the addresses.
    pub pages: &'a [Cell<u64>],
}

impl Command for TakePages<'_> {
    const OPCODE: Opcode = Opcode::MANAGE_PAGES;
    type Out = u32;

    fn in_len(&self) -> usize {
        ManagePagesIn::BYTES
    }

    fn out_len(&self) -> usize {
        ManagePagesOut::BYTES + 8 * self.pages.len()
    }

    fn encode(&self, inbox: &mut dyn Sink) {
        let mut input = ManagePagesIn::new()
            .with_op_mod(PagesOp::TAKE.0.into())
            .with_function_id(self.func_id.into())
            .with_input_num_entries(self.pages.len() as u32);
        set_opcode(&mut input, Self::OPCODE);
        inbox.layout(0, &input);
    }

    fn decode(&self, outbox: &dyn Source) -> u32 {
        let count = outbox.layout::<ManagePagesOut>(0).output_num_entries();
        for (i, page) in self.pages.iter().enumerate() {
            let came_back = i < count as usize;
            page.set(if came_back { outbox.u64(ManagePagesOut::PAS_OFFSET + 8 * i) } else { 0 });
        }
        count
    }
}
