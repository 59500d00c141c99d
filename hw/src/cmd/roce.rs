//! The port's RoCE address (GID) table.

use super::{Opcode, Plain};
use crate::roce_address::RoceAddrLayout;

crate::cmd::inbox! {
    /// Input of SET_ROCE_ADDRESS.
    pub struct SetRoceAddressIn("set_roce_address_in", 48) {
        /// Index of the entry.
        roce_address_index: 0x40, 16;
        /// Port of a multi-port function; 0 where there is one.
        vhca_port_num: 0x5c, 4;
        /// The entry; all zero empties it.
        roce_address: 0x80, RoceAddrLayout;
    }
}

crate::cmd::outbox! {
    /// Output of SET_ROCE_ADDRESS.
    pub struct SetRoceAddressOut("set_roce_address_out", 16) {
    }
}

/// Sets an entry of the RoCE address table.
#[derive(Clone, Copy, Debug)]
pub struct SetRoceAddress {
    /// Index of the entry, below capability `roce_address_table_size`.
    pub index: u16,
    /// The entry; all zero empties it.
    pub address: RoceAddrLayout,
}

impl Plain for SetRoceAddress {
    const CODE: Opcode = Opcode::SET_ROCE_ADDRESS;
    type In = SetRoceAddressIn;
    type Reply = SetRoceAddressOut;
    type Value = ();
    fn fill(&self, input: &mut SetRoceAddressIn) {
        input.set_roce_address_index(self.index.into());
        input.set_roce_address(self.address);
    }
    fn read(&self, _: &SetRoceAddressOut) {}
}
