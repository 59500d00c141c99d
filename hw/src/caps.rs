//! Capabilities: what the device can do and how much of it.
//!
//! Of each page the fields are declared that the driver or the `mlx5` tool uses.

mod general;

pub use general::CmdHcaCap;

crate::prm! {
    /// RoCE capabilities (PRM `roce_cap`).
    pub struct RoceCap("roce_cap", 256) {
        /// Automatic path migration over RoCE.
        roce_apm: 0x00, 1;
        /// Software chooses the UDP source port of RoCE v2.
        sw_r_roce_src_udp_port: 0x04, 1;
        /// Loopback QPs work while RoCE is off.
        fl_rc_qp_when_roce_disabled: 0x05, 1;
        /// Loopback QPs work while RoCE is on.
        fl_rc_qp_when_roce_enabled: 0x06, 1;
        /// Congestion control is set through general registers.
        roce_cc_general: 0x07, 1;
        /// QPs transmit out of order by default.
        qp_ooo_transmit_default: 0x08, 1;
        /// Time stamps of QPs: 0 free running, 1 real time, 2 both.
        qp_ts_format: 0x1e, 2;
        /// Address kinds: bit 1 IPv4, bit 2 IPv6.
        l3_type: 0x8c, 4;
        /// Versions: bit 0 RoCE v1, bit 2 RoCE v2.
        roce_version: 0x98, 8;
        /// UDP destination port of RoCE v2.
        r_roce_dest_udp_port: 0xb0, 16;
        /// Highest UDP source port of RoCE v2.
        r_roce_max_src_udp_port: 0xc0, 16;
        /// Lowest UDP source port of RoCE v2.
        r_roce_min_src_udp_port: 0xd0, 16;
        /// Entries of the RoCE address table.
        roce_address_table_size: 0xf0, 16;
    }
}

crate::prm! {
    /// Capabilities for atomics (PRM `atomic_caps`), with the general capability `atomic`.
    pub struct AtomicCaps("atomic_caps", 256) {
        /// Byte order of the old value that an 8-byte atomic leaves in the requester's memory: [`AtomicOrder`].
        atomic_req_8b_endianness_mode as "atomic_req_8B_endianness_mode": 0x40, 2;
        /// The mode [`AtomicOrder::HOST_ENDIANNESS`] may be set.
        supported_atomic_req_8b_endianness_mode_1 as "supported_atomic_req_8B_endianness_mode_1": 0x46, 1;
        /// Operations on offer: bits of [`AtomicOps`].
        atomic_operations: 0x90, 16;
        /// Sizes on offer for QPs: bit n stands for 2^n bytes.
        atomic_size_qp: 0xb0, 16;
        /// Sizes on offer for dynamically connected transport: bit n stands for 2^n bytes.
        atomic_size_dc: 0xd0, 16;
        /// Sizes of fetch and add that are atomic for the host's processors too: bit n stands for 2^(n + 2) bytes.
        fetch_add_pci_atomic: 0x280, 16;
        /// Sizes of swap that are atomic for the host's processors too: bit n stands for 2^(n + 2) bytes.
        swap_pci_atomic: 0x290, 16;
        /// Sizes of compare and swap that are atomic for the host's processors too: bit n stands for 2^(n + 2) bytes.
        compare_swap_pci_atomic: 0x2a0, 16;
    }
}

crate::prm! {
    /// A page of capabilities (PRM `hca_cap_union`), 4096 bytes, of whatever type was asked for.
    pub struct CapPage("hca_cap_union", 4096) {
        /// The page as general capabilities.
        cmd_hca_cap: 0x00, CmdHcaCap;
        /// The page as RoCE capabilities.
        roce_cap: 0x00, RoceCap;
        /// The page as capabilities for atomics.
        atomic_caps: 0x00, AtomicCaps;
    }
}

impl CapPage {
    /// The page read as general capabilities.
    pub fn general(&self) -> CmdHcaCap {
        self.cmd_hca_cap()
    }

    /// Puts general capabilities into the page; what lies behind them stays.
    pub fn set_general(&mut self, caps: CmdHcaCap) {
        self.set_cmd_hca_cap(caps);
    }

    /// The page read as RoCE capabilities.
    pub fn roce(&self) -> RoceCap {
        self.roce_cap()
    }

    /// The page read as capabilities for atomics.
    pub fn atomic(&self) -> AtomicCaps {
        self.atomic_caps()
    }
}

crate::prm_values! {
    /// Link layer of the ports (PRM `cmd_hca_cap.port_type`).
    pub struct PortType(u8) {
        /// InfiniBand.
        IB = 0x0;
        /// Ethernet.
        ETHERNET = 0x1;
    }
}

crate::prm_values! {
    /// Operations of `atomic_caps.atomic_operations`: bits (constants `MLX5_ATOMIC_OPS_*`).
    pub struct AtomicOps(u16) {
        /// Compare and swap.
        CMP_SWAP = 0x1;
        /// Fetch and add.
        FETCH_ADD = 0x2;
        /// Compare and swap under a mask, of other sizes too.
        EXTENDED_CMP_SWAP = 0x4;
        /// Fetch and add under a mask, of other sizes too.
        EXTENDED_FETCH_ADD = 0x8;
    }
}

crate::prm_values! {
    /// Byte order of an 8-byte atomic's old value at the requester (constants `MLX5_ATOMIC_REQ_MODE_*`).
    pub struct AtomicOrder(u8) {
        /// Big-endian.
        BE = 0x0;
        /// That of the host.
        HOST_ENDIANNESS = 0x1;
    }
}
