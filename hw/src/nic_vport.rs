//! NIC virtual port context.

crate::prm! {
    /// A MAC address in eight bytes (PRM `mac_address_layout`).
    pub struct MacAddressLayout("mac_address_layout", 8) {
        /// First two bytes of the address.
        mac_addr_47_32: 0x10, 16;
        /// Last four bytes of the address.
        mac_addr_31_0: 0x20, 32;
    }
}

impl MacAddressLayout {
    /// The six bytes in wire order.
    pub const fn bytes(&self) -> [u8; 6] {
        let hi = (self.mac_addr_47_32() as u16).to_be_bytes();
        let lo = self.mac_addr_31_0().to_be_bytes();
        [hi[0], hi[1], lo[0], lo[1], lo[2], lo[3]]
    }
}

crate::prm! {
    /// Context of a NIC virtual port (PRM `nic_vport_context`).
    pub struct NicVportContext("nic_vport_context", 256) {
        /// A send queue may send with several priorities.
        multi_prio_sq: 0x00, 1;
        /// Metadata passes from the port to the switch.
        vport_to_fdb_metadata: 0x01, 1;
        /// Metadata passes from the switch to the port.
        fdb_to_vport_metadata: 0x02, 1;
        /// Headers that a send work request must carry inline: 0 L2, 1 IP, 2 TCP/UDP, 3 inner L2.
        min_wqe_inline_mode: 0x05, 3;
        /// Do not loop multicast back to this function.
        disable_mc_local_lb: 0x1d, 1;
        /// Do not loop unicast back to this function.
        disable_uc_local_lb: 0x1e, 1;
        /// RoCE is on.
        roce_en: 0x1f, 1;
        /// Ask for one event on the next change of the kinds selected by the `event_on_` bits.
        arm_change_event: 0x20, 1;
        /// The event fires on a change of `mtu`.
        event_on_mtu: 0x3b, 1;
        /// The event fires on a change of the promiscuous mode.
        event_on_promisc_change: 0x3c, 1;
        /// The event fires on a change of the VLAN list.
        event_on_vlan_change: 0x3d, 1;
        /// The event fires on a change of the multicast list.
        event_on_mc_address_change: 0x3e, 1;
        /// The event fires on a change of the unicast list.
        event_on_uc_address_change: 0x3f, 1;
        /// How `affiliated_vhca_id` is meant: 0 hardware id, 1 software id.
        vhca_id_type: 0x40, 1;
        /// How a port of a multi-port device is tied to a master.
        affiliation_criteria: 0x4c, 4;
        /// Function that this port is tied to.
        affiliated_vhca_id: 0x50, 16;
        /// Number of the socket-direct group; 0 for none.
        sd_group: 0x101, 3;
        /// Number of functions in the socket-direct group.
        sd_group_size: 0x108, 8;
        /// Largest packet in bytes, Ethernet header included.
        mtu: 0x130, 16;
        /// GUID of the device.
        system_image_guid: 0x140, 64;
        /// GUID of the port.
        port_guid: 0x180, 64;
        /// GUID of the node.
        node_guid: 0x1c0, 64;
        /// Packets dropped for a wrong Q_Key.
        qkey_violation_counter: 0x340, 16;
        /// Receive all unicast packets.
        promisc_uc: 0x780, 1;
        /// Receive all multicast packets.
        promisc_mc: 0x781, 1;
        /// Receive all packets.
        promisc_all: 0x782, 1;
        /// Kind of the list behind the context: [`ListType`].
        allowed_list_type: 0x785, 3;
        /// Number of entries of the list behind the context.
        allowed_list_size: 0x790, 16;
        /// Permanent MAC address; zero when the port has none.
        permanent_address: 0x7a0, MacAddressLayout;
        /// The list that `allowed_list_type` names: MAC addresses or VLANs, 8 bytes each.
        current_uc_mac_address: 0x800, [64;];
    }
}

crate::prm! {
    /// Which fields MODIFY_NIC_VPORT_CONTEXT changes (PRM `modify_nic_vport_field_select`).
    pub struct ModifyNicVportFieldSelect("modify_nic_vport_field_select", 4) {
        /// The affiliation fields.
        affiliation: 0x12, 1;
        /// The unicast loopback bit.
        disable_uc_local_lb: 0x14, 1;
        /// The multicast loopback bit.
        disable_mc_local_lb: 0x15, 1;
        /// The node GUID.
        node_guid: 0x16, 1;
        /// The port GUID.
        port_guid: 0x17, 1;
        /// The inline mode.
        min_inline: 0x18, 1;
        /// The MTU.
        mtu: 0x19, 1;
        /// Arming of the change event.
        change_event: 0x1a, 1;
        /// The promiscuous bits.
        promisc: 0x1b, 1;
        /// The permanent MAC address.
        permanent_address: 0x1c, 1;
        /// The list behind the context.
        addresses_list: 0x1d, 1;
        /// The RoCE bit.
        roce_en: 0x1e, 1;
    }
}

crate::prm_values! {
    /// Kind of the list behind a NIC vport context (PRM `allowed_list_type`).
    pub struct ListType(u8) {
        /// Current unicast addresses.
        UC = 0x0;
        /// Current multicast addresses.
        MC = 0x1;
        /// Current VLANs.
        VLAN = 0x2;
    }
}
