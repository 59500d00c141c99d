//! Reading and setting capabilities.

use super::{Command, Opcode, Sink, Source, set_opcode};
use crate::caps::CapPage;

crate::cmd::inbox! {
    /// Input of QUERY_HCA_CAP.
    pub struct QueryHcaCapIn("query_hca_cap_in", 16) {
        /// The capabilities are those of `function_id`, not one's own.
        other_function: 0x40, 1;
        /// `function_id` is a virtual function of the embedded CPU.
        ec_vf_function: 0x41, 1;
        /// How `function_id` is meant: 0 function number, 1 VHCA id.
        function_id_type: 0x43, 1;
        /// Function, with `other_function`.
        function_id: 0x50, 16;
    }
}

crate::cmd::outbox! {
    /// Output of QUERY_HCA_CAP.
    pub struct QueryHcaCapOut("query_hca_cap_out", 4112) {
        /// The page of capabilities.
        capability: 0x80, CapPage;
    }
}

crate::cmd::inbox! {
    /// Input of SET_HCA_CAP.
    pub struct SetHcaCapIn("set_hca_cap_in", 4112) {
        /// The capabilities are those of `function_id`, not one's own.
        other_function: 0x40, 1;
        /// `function_id` is a virtual function of the embedded CPU.
        ec_vf_function: 0x41, 1;
        /// How `function_id` is meant: 0 function number, 1 VHCA id.
        function_id_type: 0x43, 1;
        /// Function, with `other_function`.
        function_id: 0x50, 16;
        /// The page of capabilities.
        capability: 0x80, CapPage;
    }
}

crate::cmd::outbox! {
    /// Output of SET_HCA_CAP.
    pub struct SetHcaCapOut("set_hca_cap_out", 16) {
    }
}

crate::prm_values! {
    /// Which page of capabilities (constants `MLX5_CAP_*`).
    pub struct CapType(u16) {
        /// General capabilities.
        GENERAL = 0x0;
        /// Ethernet offloads.
        ETHERNET_OFFLOADS = 0x1;
        /// On-demand paging.
        ODP = 0x2;
        /// Atomics.
        ATOMIC = 0x3;
        /// RoCE.
        ROCE = 0x4;
        /// IP over InfiniBand.
        IPOIB_OFFLOADS = 0x5;
        /// IP over InfiniBand, enhanced.
        IPOIB_ENHANCED_OFFLOADS = 0x6;
        /// Flow tables of the NIC.
        FLOW_TABLE = 0x7;
        /// Flow tables of the embedded switch.
        ESWITCH_FLOW_TABLE = 0x8;
        /// Embedded switch.
        ESWITCH = 0x9;
        /// Quality of service.
        QOS = 0xc;
        /// Debugging.
        DEBUG = 0xd;
        /// Device memory.
        DEV_MEM = 0xf;
        /// TLS.
        TLS = 0x11;
        /// vDPA emulation.
        VDPA_EMULATION = 0x13;
        /// Events.
        DEV_EVENT = 0x14;
        /// IPsec.
        IPSEC = 0x15;
        /// Encryption of memory.
        CRYPTO = 0x1a;
        /// Split headers and merged payloads.
        SHAMPO = 0x1d;
        /// PSP encryption.
        PSP = 0x1e;
        /// MACsec.
        MACSEC = 0x1f;
        /// General capabilities, second page.
        GENERAL_2 = 0x20;
        /// Choice of the port in a bond.
        PORT_SELECTION = 0x25;
        /// Virtualization.
        ADV_VIRTUALIZATION = 0x26;
        /// Advanced RDMA.
        ADV_RDMA = 0x28;
        /// Emulation of PCIe transactions.
        TLP_EMULATION = 0x2a;
    }
}

/// Which values QUERY_HCA_CAP reads (bit 0 of its `op_mod`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum CapMode {
    /// The most that can be set.
    Max = 0,
    /// Those in force.
    Current = 1,
}

/// Reads a page of capabilities.
#[derive(Clone, Copy, Debug)]
pub struct QueryHcaCap {
    /// Which page.
    pub cap_type: CapType,
    /// Which values.
    pub mode: CapMode,
}

impl Command for QueryHcaCap {
    const OPCODE: Opcode = Opcode::QUERY_HCA_CAP;
    type Out = CapPage;

    fn in_len(&self) -> usize {
        QueryHcaCapIn::BYTES
    }

    fn out_len(&self) -> usize {
        QueryHcaCapOut::BYTES
    }

    fn encode(&self, inbox: &mut dyn Sink) {
        let mut input = QueryHcaCapIn::new().with_op_mod(u32::from(self.cap_type.0) << 1 | self.mode as u32);
        set_opcode(&mut input, Self::OPCODE);
        inbox.layout(0, &input);
    }

    fn decode(&self, outbox: &dyn Source) -> CapPage {
        outbox.layout(PAGE_AT)
    }
}

/// Sets a page of capabilities; to be sent before INIT_HCA. Start from the page that [`QueryHcaCap`] reads.
#[derive(Clone, Copy, Debug)]
pub struct SetHcaCap<'a> {
    /// Which page.
    pub cap_type: CapType,
    /// Its new contents.
    pub page: &'a CapPage,
}

impl Command for SetHcaCap<'_> {
    const OPCODE: Opcode = Opcode::SET_HCA_CAP;
    type Out = ();

    fn in_len(&self) -> usize {
        SetHcaCapIn::BYTES
    }

    fn out_len(&self) -> usize {
        SetHcaCapOut::BYTES
    }

    fn encode(&self, inbox: &mut dyn Sink) {
        let mut head = QueryHcaCapIn::new().with_op_mod(u32::from(self.cap_type.0) << 1);
        set_opcode(&mut head, Self::OPCODE);
        inbox.layout(0, &head);
        inbox.layout(PAGE_AT, self.page);
    }

    fn decode(&self, _: &dyn Source) {}
}

/// Byte offset of the page in both commands, behind the same sixteen bytes.
const PAGE_AT: usize = 16;
