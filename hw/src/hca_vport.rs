//! HCA virtual port context: the port of an InfiniBand function.

crate::prm! {
    /// Context of an InfiniBand port (PRM `hca_vport_context`).
    pub struct HcaVportContext("hca_vport_context", 512) {
        /// Fields to change, for MODIFY_HCA_VPORT_CONTEXT.
        field_select: 0x00, 32;
        /// The subnet manager knows of virtual ports.
        sm_virt_aware: 0x100, 1;
        /// Subnet management packets may be sent.
        has_smi: 0x101, 1;
        /// Raw packets may be sent.
        has_raw: 0x102, 1;
        /// Packets need a global route header: ports share a LID.
        grh_required: 0x103, 1;
        /// Planes of a multi-plane port; 0 for one that is none.
        num_port_plane: 0x108, 8;
        /// State of the link, as the InfiniBand specification numbers it (PortInfo:PortPhysicalState): 5 up.
        port_physical_state: 0x110, 4;
        /// What the administrator wants of the virtual port: 0 down, 1 up, 2 as the physical port.
        vport_state_policy: 0x114, 4;
        /// State of the physical port, as the InfiniBand specification numbers it (PortInfo:PortState): 4 active.
        port_state: 0x118, 4;
        /// State of the virtual port, numbered likewise.
        vport_state: 0x11c, 4;
        /// GUID of the device.
        system_image_guid: 0x140, 64;
        /// GUID of the port.
        port_guid: 0x180, 64;
        /// GUID of the node.
        node_guid: 0x1c0, 64;
        /// Capabilities of the port (PortInfo:CapabilityMask).
        cap_mask1: 0x200, 32;
        /// Which of them may be changed.
        cap_mask1_field_select: 0x220, 32;
        /// Further capabilities (PortInfo:CapabilityMask2).
        cap_mask2: 0x240, 32;
        /// Which of them may be changed.
        cap_mask2_field_select: 0x260, 32;
        /// LID of the port; 0 or 0xffff while the subnet manager has given none.
        lid: 0x300, 16;
        /// What the subnet manager has done (PortInfo:InitTypeReply).
        init_type_reply: 0x314, 4;
        /// LID mask: the port has 2^lmc LIDs.
        lmc: 0x318, 3;
        /// Time that packets may stay in the subnet: 4.096 µs << value.
        subnet_timeout: 0x31b, 5;
        /// LID of the subnet manager.
        sm_lid: 0x320, 16;
        /// Service level of the subnet manager.
        sm_sl: 0x330, 4;
        /// Packets dropped for a wrong Q_Key.
        qkey_violation_counter: 0x340, 16;
        /// Packets dropped for a wrong P_Key.
        pkey_violation_counter: 0x350, 16;
    }
}
