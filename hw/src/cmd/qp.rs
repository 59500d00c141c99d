//! Queue pairs.

use super::{Opcode, Plain};
use crate::qpc::{Qpc, QpcExtensionAndPasListIn};

crate::cmd::inbox! {
    /// Input of CREATE_QP.
    pub struct CreateQpIn("create_qp_in", 272) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// A context extension of 192 bytes lies before the page list.
        qpc_ext: 0x40, 1;
        /// Number wanted for the QP; 0 for the device's choice.
        input_qpn: 0x48, 24;
        /// Optional fields that are set: bits of [`OptParam`](crate::qpc::OptParam).
        opt_param_mask: 0x80, 32;
        /// Enhanced connection establishment options.
        ece: 0xa0, 32;
        /// The context.
        qpc: 0xc0, Qpc;
        /// Offset of the work queue buffer in the user memory object.
        wq_umem_offset: 0x800, 64;
        /// User memory object that holds the work queues, with `wq_umem_valid`.
        wq_umem_id: 0x840, 32;
        /// The work queues are given as a user memory object, not as a list of pages.
        wq_umem_valid: 0x860, 1;
        /// I/O addresses of the pages of the work queue buffer: receive queue first, then send queue.
        pas: 0x880, [64;];
    }
}

crate::cmd::outbox! {
    /// Output of CREATE_QP.
    pub struct CreateQpOut("create_qp_out", 16) {
        /// Number of the QP.
        qpn: 0x48, 24;
        /// Enhanced connection establishment options that the device supports.
        ece: 0x60, 32;
    }
}

crate::cmd::inbox! {
    /// Input of DESTROY_QP.
    pub struct DestroyQpIn("destroy_qp_in", 16) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// Number of the QP.
        qpn: 0x48, 24;
    }
}

crate::cmd::outbox! {
    /// Output of DESTROY_QP.
    pub struct DestroyQpOut("destroy_qp_out", 16) {
    }
}

crate::cmd::inbox! {
    /// Input of QUERY_QP.
    pub struct QueryQpIn("query_qp_in", 16) {
        /// Answer the context extension too.
        qpc_ext: 0x40, 1;
        /// Number of the QP.
        qpn: 0x48, 24;
    }
}

crate::prm! {
    /// What follows the context in QUERY_QP's output (PRM `qp_pas_or_qpc_ext_and_pas`): the page list, with `qpc_ext`
    /// behind the extension.
    pub struct QpPasOrQpcExtAndPas("qp_pas_or_qpc_ext_and_pas", 192) {
        /// The extension and the page list, with `qpc_ext`.
        qpc_ext_and_pas_list: 0x00, QpcExtensionAndPasListIn;
    }
}

crate::cmd::outbox! {
    /// Output of QUERY_QP.
    pub struct QueryQpOut("query_qp_out", 464) {
        /// Optional fields that are set: bits of [`OptParam`](crate::qpc::OptParam).
        opt_param_mask: 0x80, 32;
        /// Enhanced connection establishment options.
        ece: 0xa0, 32;
        /// The context.
        qpc: 0xc0, Qpc;
        /// The page list, or the extension and the page list.
        qp_pas_or_qpc_ext_and_pas: 0x880, QpPasOrQpcExtAndPas;
        /// I/O addresses of the pages of the work queue buffer.
        pas: 0x880, [64;];
    }
}

crate::cmd::inbox! {
    /// Input of RST2INIT_QP.
    pub struct Rst2initQpIn("rst2init_qp_in", 272) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// Number of the QP.
        qpn: 0x48, 24;
        /// Optional fields that are set: bits of [`OptParam`](crate::qpc::OptParam).
        opt_param_mask: 0x80, 32;
        /// Enhanced connection establishment options.
        ece: 0xa0, 32;
        /// The context; only the fields that the transition takes are read.
        qpc: 0xc0, Qpc;
    }
}

crate::cmd::outbox! {
    /// Output of RST2INIT_QP.
    pub struct Rst2initQpOut("rst2init_qp_out", 16) {
        /// Enhanced connection establishment options in force.
        ece: 0x60, 32;
    }
}

crate::cmd::inbox! {
    /// Input of INIT2RTR_QP.
    pub struct Init2rtrQpIn("init2rtr_qp_in", 272) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// Number of the QP.
        qpn: 0x48, 24;
        /// Optional fields that are set: bits of [`OptParam`](crate::qpc::OptParam).
        opt_param_mask: 0x80, 32;
        /// Enhanced connection establishment options.
        ece: 0xa0, 32;
        /// The context; only the fields that the transition takes are read.
        qpc: 0xc0, Qpc;
    }
}

crate::cmd::outbox! {
    /// Output of INIT2RTR_QP.
    pub struct Init2rtrQpOut("init2rtr_qp_out", 16) {
        /// Enhanced connection establishment options in force.
        ece: 0x60, 32;
    }
}

crate::cmd::inbox! {
    /// Input of RTR2RTS_QP.
    pub struct Rtr2rtsQpIn("rtr2rts_qp_in", 272) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// Number of the QP.
        qpn: 0x48, 24;
        /// Optional fields that are set: bits of [`OptParam`](crate::qpc::OptParam).
        opt_param_mask: 0x80, 32;
        /// Enhanced connection establishment options.
        ece: 0xa0, 32;
        /// The context; only the fields that the transition takes are read.
        qpc: 0xc0, Qpc;
    }
}

crate::cmd::outbox! {
    /// Output of RTR2RTS_QP.
    pub struct Rtr2rtsQpOut("rtr2rts_qp_out", 16) {
        /// Enhanced connection establishment options in force.
        ece: 0x60, 32;
    }
}

crate::cmd::inbox! {
    /// Input of 2ERR_QP.
    pub struct Qp2errIn("qp_2err_in", 16) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// Number of the QP.
        qpn: 0x48, 24;
    }
}

crate::cmd::outbox! {
    /// Output of 2ERR_QP.
    pub struct Qp2errOut("qp_2err_out", 16) {
    }
}

crate::cmd::inbox! {
    /// Input of 2RST_QP.
    pub struct Qp2rstIn("qp_2rst_in", 16) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// Function that the command is tunnelled to; 0 for none.
        vhca_tunnel_id: 0x20, 16;
        /// Number of the QP.
        qpn: 0x48, 24;
    }
}

crate::cmd::outbox! {
    /// Output of 2RST_QP.
    pub struct Qp2rstOut("qp_2rst_out", 16) {
    }
}

/// Creates a QP in state reset; answers its number.
#[derive(Clone, Copy, Debug)]
pub struct CreateQp<'a> {
    /// The context.
    pub qpc: Qpc,
    /// I/O addresses of the pages of the work queue buffer (receive queue first, then send queue), of the size that
    /// the context says.
    pub pas: &'a [u64],
}

impl Plain for CreateQp<'_> {
    const CODE: Opcode = Opcode::CREATE_QP;
    type In = CreateQpIn;
    type Reply = CreateQpOut;
    type Value = u32;
    fn fill(&self, input: &mut CreateQpIn) {
        input.set_qpc(self.qpc);
    }
    fn list(&self) -> &[u64] {
        self.pas
    }
    fn read(&self, out: &CreateQpOut) -> u32 {
        out.qpn()
    }
}

/// Reads the context of a QP.
#[derive(Clone, Copy, Debug)]
pub struct QueryQp {
    /// Number of the QP.
    pub qpn: u32,
}

impl Plain for QueryQp {
    const CODE: Opcode = Opcode::QUERY_QP;
    type In = QueryQpIn;
    type Reply = QueryQpOut;
    type Value = Qpc;
    fn fill(&self, input: &mut QueryQpIn) {
        input.set_qpn(self.qpn);
    }
    fn read(&self, out: &QueryQpOut) -> Qpc {
        out.qpc()
    }
}

/// Destroys a QP. Once it has succeeded no completion of the QP can appear.
#[derive(Clone, Copy, Debug)]
pub struct DestroyQp {
    /// Number of the QP.
    pub qpn: u32,
}

impl Plain for DestroyQp {
    const CODE: Opcode = Opcode::DESTROY_QP;
    type In = DestroyQpIn;
    type Reply = DestroyQpOut;
    type Value = ();
    fn fill(&self, input: &mut DestroyQpIn) {
        input.set_qpn(self.qpn);
    }
    fn read(&self, _: &DestroyQpOut) {}
}

/// Moves a QP from any state to error: all work is flushed.
#[derive(Clone, Copy, Debug)]
pub struct Qp2Err {
    /// Number of the QP.
    pub qpn: u32,
}

impl Plain for Qp2Err {
    const CODE: Opcode = Opcode::QP_2ERR;
    type In = Qp2errIn;
    type Reply = Qp2errOut;
    type Value = ();
    fn fill(&self, input: &mut Qp2errIn) {
        input.set_qpn(self.qpn);
    }
    fn read(&self, _: &Qp2errOut) {}
}

/// Moves a QP from any state to reset.
#[derive(Clone, Copy, Debug)]
pub struct Qp2Rst {
    /// Number of the QP.
    pub qpn: u32,
}

impl Plain for Qp2Rst {
    const CODE: Opcode = Opcode::QP_2RST;
    type In = Qp2rstIn;
    type Reply = Qp2rstOut;
    type Value = ();
    fn fill(&self, input: &mut Qp2rstIn) {
        input.set_qpn(self.qpn);
    }
    fn read(&self, _: &Qp2rstOut) {}
}

/// Declares a command that moves a QP on, with the fields that its new state needs.
macro_rules! transition {
    ($(#[$doc:meta])* $name:ident, $opcode:expr, $input:ident, $output:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            /// Number of the QP.
            pub qpn: u32,
            /// Optional fields that `qpc` sets: bits of [`OptParam`](crate::qpc::OptParam).
            pub opt_param_mask: u32,
            /// The fields that the transition sets.
            pub qpc: Qpc,
        }

        impl Plain for $name {
            const CODE: Opcode = $opcode;
            type In = $input;
            type Reply = $output;
            type Value = ();
            fn fill(&self, input: &mut $input) {
                input.set_qpn(self.qpn);
                input.set_opt_param_mask(self.opt_param_mask);
                input.set_qpc(self.qpc);
            }
            fn read(&self, _: &$output) {}
        }
    };
}

transition!(
    /// Moves a QP from reset to initialised.
    Rst2Init, Opcode::RST2INIT_QP, Rst2initQpIn, Rst2initQpOut
);
transition!(
    /// Moves a QP from initialised to ready to receive.
    Init2Rtr, Opcode::INIT2RTR_QP, Init2rtrQpIn, Init2rtrQpOut
);
transition!(
    /// Moves a QP from ready to receive to ready to send.
    Rtr2Rts, Opcode::RTR2RTS_QP, Rtr2rtsQpIn, Rtr2rtsQpOut
);
