//! RoCE address (GID) table entry.

crate::prm! {
    /// One entry of a port's RoCE address table (PRM `roce_addr_layout`). All zero empties the entry.
    pub struct RoceAddrLayout("roce_addr_layout", 32) {
        /// The GID or IP address, most significant byte first; an IPv4 address as ::ffff:a.b.c.d.
        source_l3_address: 0x00, [8; 16];
        /// Packets carry a VLAN tag.
        vlan_valid: 0x83, 1;
        /// VLAN of the tag.
        vlan_id: 0x84, 12;
        /// Source MAC address, first two bytes.
        source_mac_47_32: 0x90, 16;
        /// Source MAC address, last four bytes.
        source_mac_31_0: 0xa0, 32;
        /// Kind of the address: [`RoceL3Type`].
        roce_l3_type: 0xd4, 4;
        /// RoCE version: [`RoceVersion`].
        roce_version: 0xd8, 8;
    }
}

crate::prm_values! {
    /// Kind of address of a RoCE address table entry (PRM `roce_l3_type`).
    pub struct RoceL3Type(u8) {
        /// IPv4.
        IPV4 = 0x0;
        /// IPv6, and GIDs of RoCE v1.
        IPV6 = 0x1;
    }
}

crate::prm_values! {
    /// RoCE version of an address table entry (PRM `roce_version`).
    pub struct RoceVersion(u8) {
        /// RoCE v1: Ethernet packets of type 0x8915.
        VERSION_1 as "1" = 0x0;
        /// RoCE v2: UDP packets.
        VERSION_2 as "2" = 0x2;
    }
}
