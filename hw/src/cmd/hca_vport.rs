//! The port of an InfiniBand function: its context, addresses and partition keys.
//!
//! Of a function with two ports each command names one (`port_num`, from 1 on); with one port that is 0.

use super::{Command, Opcode, Plain, Sink, Source, set_opcode};
use crate::hca_vport::HcaVportContext;

crate::cmd::inbox! {
    /// Input of QUERY_HCA_VPORT_CONTEXT.
    pub struct QueryHcaVportContextIn("query_hca_vport_context_in", 16) {
        /// The port is `vport_number`, not one's own.
        other_vport: 0x40, 1;
        /// Port of a function with two.
        port_num: 0x4c, 4;
        /// Virtual port, with `other_vport`.
        vport_number: 0x50, 16;
    }
}

crate::cmd::outbox! {
    /// Output of QUERY_HCA_VPORT_CONTEXT.
    pub struct QueryHcaVportContextOut("query_hca_vport_context_out", 528) {
        /// The context.
        hca_vport_context: 0x80, HcaVportContext;
    }
}

crate::cmd::inbox! {
    /// Input of QUERY_HCA_VPORT_GID.
    pub struct QueryHcaVportGidIn("query_hca_vport_gid_in", 16) {
        /// The port is `vport_number`, not one's own.
        other_vport: 0x40, 1;
        /// Port of a function with two.
        port_num: 0x4c, 4;
        /// Virtual port, with `other_vport`.
        vport_number: 0x50, 16;
        /// Index in the GID table; 0xffff asks for all.
        gid_index: 0x70, 16;
    }
}

crate::cmd::outbox! {
    /// Output of QUERY_HCA_VPORT_GID. Behind it lie the addresses, 16 bytes each, most significant first.
    pub struct QueryHcaVportGidOut("query_hca_vport_gid_out", 16) {
        /// How many addresses follow.
        gids_num: 0x60, 16;
    }
}

crate::cmd::inbox! {
    /// Input of QUERY_HCA_VPORT_PKEY.
    pub struct QueryHcaVportPkeyIn("query_hca_vport_pkey_in", 16) {
        /// The port is `vport_number`, not one's own.
        other_vport: 0x40, 1;
        /// Port of a function with two.
        port_num: 0x4c, 4;
        /// Virtual port, with `other_vport`.
        vport_number: 0x50, 16;
        /// Index in the P_Key table; 0xffff asks for all.
        pkey_index: 0x70, 16;
    }
}

crate::cmd::outbox! {
    /// Output of QUERY_HCA_VPORT_PKEY.
    pub struct QueryHcaVportPkeyOut("query_hca_vport_pkey_out", 16) {
        /// The keys, each in the lower half of a dword.
        pkey: 0x80, [32;];
    }
}

/// Reads the context of the function's own port.
#[derive(Clone, Copy, Debug)]
pub struct QueryHcaVportContext {
    /// Port of a function with two, from 1 on; else 0.
    pub port_num: u8,
}

impl Plain for QueryHcaVportContext {
    const CODE: Opcode = Opcode::QUERY_HCA_VPORT_CONTEXT;
    type In = QueryHcaVportContextIn;
    type Reply = QueryHcaVportContextOut;
    type Value = HcaVportContext;
    fn fill(&self, input: &mut QueryHcaVportContextIn) {
        input.set_port_num(self.port_num.into());
    }
    fn read(&self, out: &QueryHcaVportContextOut) -> HcaVportContext {
        out.hca_vport_context()
    }
}

/// Reads an address (GID) of the function's own port, most significant byte first.
#[derive(Clone, Copy, Debug)]
pub struct QueryHcaVportGid {
    /// Port of a function with two, from 1 on; else 0.
    pub port_num: u8,
    /// Index in the GID table.
    pub index: u16,
}

impl Command for QueryHcaVportGid {
    const OPCODE: Opcode = Opcode::QUERY_HCA_VPORT_GID;
    type Out = [u8; 16];

    fn in_len(&self) -> usize {
        QueryHcaVportGidIn::BYTES
    }

    fn out_len(&self) -> usize {
        QueryHcaVportGidOut::BYTES + 16
    }

    fn encode(&self, inbox: &mut dyn Sink) {
        let mut input = QueryHcaVportGidIn::new().with_port_num(self.port_num.into()).with_gid_index(self.index.into());
        set_opcode(&mut input, Self::OPCODE);
        inbox.layout(0, &input);
    }

    fn decode(&self, outbox: &dyn Source) -> [u8; 16] {
        let at = QueryHcaVportGidOut::BYTES;
        (u128::from(outbox.u64(at)) << 64 | u128::from(outbox.u64(at + 8))).to_be_bytes()
    }
}

/// Reads a partition key of the function's own port.
#[derive(Clone, Copy, Debug)]
pub struct QueryHcaVportPkey {
    /// Port of a function with two, from 1 on; else 0.
    pub port_num: u8,
    /// Index in the P_Key table.
    pub index: u16,
}

impl Command for QueryHcaVportPkey {
    const OPCODE: Opcode = Opcode::QUERY_HCA_VPORT_PKEY;
    type Out = u16;

    fn in_len(&self) -> usize {
        QueryHcaVportPkeyIn::BYTES
    }

    fn out_len(&self) -> usize {
        QueryHcaVportPkeyOut::BYTES + 4
    }

    fn encode(&self, inbox: &mut dyn Sink) {
        let mut input =
            QueryHcaVportPkeyIn::new().with_port_num(self.port_num.into()).with_pkey_index(self.index.into());
        set_opcode(&mut input, Self::OPCODE);
        inbox.layout(0, &input);
    }

    fn decode(&self, outbox: &dyn Source) -> u16 {
        let mut dword = [crate::be::Be32::ZERO];
        outbox.get(QueryHcaVportPkeyOut::PKEY_OFFSET, &mut dword);
        dword[0].get() as u16
    }
}
