//! What the device says of itself.

use mlx5_hw::caps::{AtomicCaps, CmdHcaCap, RoceCap};

/// Capabilities as they are in force: read again after the driver has set its own.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Caps {
    /// General capabilities.
    pub general: CmdHcaCap,
    /// Capabilities for atomics; `None` without atomics.
    pub atomic: Option<AtomicCaps>,
    /// RoCE capabilities; `None` without RoCE.
    pub roce: Option<RoceCap>,
}

/// State of a port (`enum ibv_port_state`), on InfiniBand that of the virtual port (PortInfo:PortState). An Ethernet port is
/// down or active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortState {
    /// No link.
    #[default]
    Down = 1,
    /// There is a link, and no subnet manager has configured the port yet.
    Init = 2,
    /// Configured, and not yet to be used.
    Armed = 3,
    /// Ready.
    Active = 4,
}

impl PortState {
    /// By the number of the InfiniBand specification; one that is none is taken for down.
    pub(crate) const fn from_device(state: u32) -> Self {
        match state {
            2 => Self::Init,
            3 => Self::Armed,
            4 => Self::Active,
            _ => Self::Down,
        }
    }
}

/// Identity of the function and its port, as read when the device was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// PCI device id, as the user gave it.
    pub device_id: u16,
    /// Firmware version: major, minor, subminor.
    pub firmware: (u16, u16, u16),
    /// IEEE vendor id (QUERY_ADAPTER).
    pub vendor_id: u32,
    /// Name of the firmware's parameter set (QUERY_ADAPTER), padded with zeros.
    pub psid: [u8; 16],
    /// Interface step sequence id in force, 0 or 1.
    pub issi: u16,
    /// The port is Ethernet; InfiniBand if not.
    pub ethernet: bool,
    /// State of the port (QUERY_VPORT_STATE; on InfiniBand QUERY_HCA_VPORT_CONTEXT). Without the capability `ib_virt` nothing
    /// is known of an InfiniBand port: it counts as down, and all of its fields below are zero.
    pub port_state: PortState,
    /// Whether the port was up: active.
    pub port_up: bool,
    /// MAC address of the port; zero if it has none.
    pub mac: [u8; 6],
    /// Largest packet of the port in bytes; 0 on InfiniBand.
    pub mtu: u16,
    /// LID of an InfiniBand port; 0 or 0xffff while the subnet manager has given none; 0 on Ethernet.
    pub lid: u16,
    /// LID of an InfiniBand port's subnet manager; 0 without.
    pub sm_lid: u16,
    /// Packets of an InfiniBand port need a global route: it shares its LID with others.
    pub grh_required: bool,
    /// First entry of an InfiniBand port's P_Key table; 0 on Ethernet.
    pub pkey: u16,
    /// Port GUID.
    pub port_guid: u64,
    /// Node GUID.
    pub node_guid: u64,
    /// System image GUID.
    pub system_image_guid: u64,
    /// First entry of the port's GID table, most significant byte first: on Ethernet the link-local address made from the MAC
    /// address, `None` without RoCE version 2; on InfiniBand subnet prefix and port GUID,
    /// `None` without the capability `ib_virt`.
    pub gid: Option<[u8; 16]>,
}

/// The link-local address of a MAC address: fe80::/64 with the modified EUI-64.
pub(crate) fn link_local(mac: [u8; 6]) -> [u8; 16] {
    let [a, b, c, d, e, f] = mac;
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

#[cfg(test)]
mod tests {
    /// RFC 4291, appendix A: the universal bit is inverted and ff:fe put into the middle.
    #[test]
    fn link_local_address_follows_rfc_4291() {
        let gid = super::link_local([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
        assert_eq!(gid, [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x36, 0x56, 0x78, 0xff, 0xfe, 0x9a, 0xbc, 0xde]);
    }
}
