//! Virtual ports.

use super::{Opcode, Plain};
use crate::be::Be32;
use crate::nic_vport::{ModifyNicVportFieldSelect, NicVportContext};
use crate::prm::{Bits, Layout};

crate::cmd::inbox! {
    /// Input of QUERY_NIC_VPORT_CONTEXT.
    pub struct QueryNicVportContextIn("query_nic_vport_context_in", 16) {
        /// The port is `vport_number`, not one's own.
        other_vport: 0x40, 1;
        /// Port, with `other_vport`.
        vport_number: 0x50, 16;
        /// Kind of the list to answer: [`ListType`](crate::nic_vport::ListType).
        allowed_list_type: 0x65, 3;
    }
}

crate::cmd::outbox! {
    /// Output of QUERY_NIC_VPORT_CONTEXT.
    pub struct QueryNicVportContextOut("query_nic_vport_context_out", 272) {
        /// The context.
        nic_vport_context: 0x80, NicVportContext;
    }
}

crate::cmd::inbox! {
    /// Input of MODIFY_NIC_VPORT_CONTEXT.
    pub struct ModifyNicVportContextIn("modify_nic_vport_context_in", 512) {
        /// The port is `vport_number`, not one's own.
        other_vport: 0x40, 1;
        /// Port, with `other_vport`.
        vport_number: 0x50, 16;
        /// Fields to change.
        field_select: 0x60, ModifyNicVportFieldSelect;
        /// Their new values.
        nic_vport_context: 0x800, NicVportContext;
    }
}

crate::cmd::outbox! {
    /// Output of MODIFY_NIC_VPORT_CONTEXT.
    pub struct ModifyNicVportContextOut("modify_nic_vport_context_out", 16) {
    }
}

crate::cmd::inbox! {
    /// Input of QUERY_VPORT_STATE; `op_mod` 0 asks for the NIC's port.
    pub struct QueryVportStateIn("query_vport_state_in", 16) {
        /// The port is `vport_number`, not one's own.
        other_vport: 0x40, 1;
        /// Port, with `other_vport`.
        vport_number: 0x50, 16;
    }
}

crate::cmd::outbox! {
    /// Output of QUERY_VPORT_STATE.
    pub struct QueryVportStateOut("query_vport_state_out", 16) {
        /// Highest rate in units of 100 Mbit/s; 0 where the port does not say.
        max_tx_speed: 0x60, 16;
        /// What the administrator wants: 0 down, 1 up, 2 as the physical port.
        admin_state: 0x78, 4;
        /// What is: 0 down, 1 up.
        state: 0x7c, 4;
    }
}

/// Reads the context of the function's own NIC port.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueryNicVportContext;

impl Plain for QueryNicVportContext {
    const CODE: Opcode = Opcode::QUERY_NIC_VPORT_CONTEXT;
    type In = QueryNicVportContextIn;
    type Reply = QueryNicVportContextOut;
    type Value = NicVportContext;
    fn fill(&self, _: &mut QueryNicVportContextIn) {}
    fn read(&self, out: &QueryNicVportContextOut) -> NicVportContext {
        out.nic_vport_context()
    }
}

/// Changes the context of the function's own NIC port.
#[derive(Clone, Copy, Debug)]
pub struct ModifyNicVportContext {
    /// Fields to change: the constants of this type.
    pub field_select: u32,
    /// Their new values.
    pub context: NicVportContext,
}

impl ModifyNicVportContext {
    /// The unicast loopback bit.
    pub const DISABLE_UC_LOCAL_LB: u32 = bit(ModifyNicVportFieldSelect::DISABLE_UC_LOCAL_LB);
    /// The multicast loopback bit.
    pub const DISABLE_MC_LOCAL_LB: u32 = bit(ModifyNicVportFieldSelect::DISABLE_MC_LOCAL_LB);
    /// The node GUID.
    pub const NODE_GUID: u32 = bit(ModifyNicVportFieldSelect::NODE_GUID);
    /// The port GUID.
    pub const PORT_GUID: u32 = bit(ModifyNicVportFieldSelect::PORT_GUID);
    /// The MTU.
    pub const MTU: u32 = bit(ModifyNicVportFieldSelect::MTU);
    /// The promiscuous bits.
    pub const PROMISC: u32 = bit(ModifyNicVportFieldSelect::PROMISC);
    /// The RoCE bit.
    pub const ROCE_EN: u32 = bit(ModifyNicVportFieldSelect::ROCE_EN);
}

const fn bit(field: Bits) -> u32 {
    0x8000_0000 >> field.offset
}

impl Plain for ModifyNicVportContext {
    const CODE: Opcode = Opcode::MODIFY_NIC_VPORT_CONTEXT;
    type In = ModifyNicVportContextIn;
    type Reply = ModifyNicVportContextOut;
    type Value = ();
    fn fill(&self, input: &mut ModifyNicVportContextIn) {
        input.set_field_select(ModifyNicVportFieldSelect::from_words(&[Be32::new(self.field_select)]));
        input.set_nic_vport_context(self.context);
    }
    fn read(&self, _: &ModifyNicVportContextOut) {}
}

/// Reads the state of the function's own NIC port.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueryVportState;

/// Answer of [`QueryVportState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VportState {
    /// What the administrator wants: 0 down, 1 up, 2 as the physical port.
    pub admin_state: u8,
    /// What is: 0 down, 1 up.
    pub state: u8,
    /// Highest rate in units of 100 Mbit/s; 0 where the port does not say.
    pub max_tx_speed: u16,
}

impl VportState {
    /// Whether the port is up.
    pub const fn is_up(self) -> bool {
        self.state == 1
    }
}

impl Plain for QueryVportState {
    const CODE: Opcode = Opcode::QUERY_VPORT_STATE;
    type In = QueryVportStateIn;
    type Reply = QueryVportStateOut;
    type Value = VportState;
    fn fill(&self, _: &mut QueryVportStateIn) {}
    fn read(&self, out: &QueryVportStateOut) -> VportState {
        VportState {
            admin_state: out.admin_state() as u8,
            state: out.state() as u8,
            max_tx_speed: out.max_tx_speed() as u16,
        }
    }
}
