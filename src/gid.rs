//! The port's table of source addresses (GIDs), on Ethernet.

use alloc::collections::BTreeMap;

use mlx5_hw::cmd::SetRoceAddress;
use mlx5_hw::roce_address::{RoceAddrLayout, RoceL3Type, RoceVersion};

use crate::device::Device;
use crate::error::Error;
use crate::sync::Mutex;

/// An address that RoCE packets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid {
    /// The address, most significant byte first; an IPv4 address as `::ffff:a.b.c.d`.
    pub gid: [u8; 16],
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// VLAN id, 12 bits, if packets are tagged.
    pub vlan: Option<u16>,
}

impl Gid {
    /// Whether it stands for an IPv4 address.
    pub const fn is_ipv4(&self) -> bool {
        matches!(self.gid, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, _, _, _, _])
    }

    /// The entry as SET_ROCE_ADDRESS takes it.
    pub(crate) fn layout(&self) -> RoceAddrLayout {
        let [a, b, c, d, e, f] = self.mac;
        let l3 = if self.is_ipv4() { RoceL3Type::IPV4 } else { RoceL3Type::IPV6 };
        let mut out = RoceAddrLayout::new()
            .with_source_mac_47_32(u16::from_be_bytes([a, b]).into())
            .with_source_mac_31_0(u32::from_be_bytes([c, d, e, f]))
            .with_vlan_valid(self.vlan.is_some())
            .with_vlan_id(self.vlan.unwrap_or_default().into())
            .with_roce_l3_type(l3.0.into())
            .with_roce_version(RoceVersion::VERSION_2.0.into());
        for (i, byte) in self.gid.into_iter().enumerate() {
            out.set_source_l3_address(i, byte.into());
        }
        out
    }
}

/// What this driver has put into the table. An entry is not in here while it is being changed, nor after a change whose
/// outcome is unknown.
pub(crate) struct Gids(Mutex<BTreeMap<u16, Gid>>);

impl Gids {
    /// A table with what the bring-up has put into entry 0.
    pub(crate) fn new(first: Option<Gid>) -> Self {
        Self(Mutex::new(first.map(|gid| (0, gid)).into_iter().collect()))
    }

    /// The first entry with this address, and its index.
    pub(crate) fn find(&self, gid: &[u8; 16]) -> Option<(u16, Gid)> {
        self.0.lock().iter().find(|(_, entry)| entry.gid == *gid).map(|(index, entry)| (*index, *entry))
    }
}

impl Device {
    /// Sets an entry of the GID table (SET_ROCE_ADDRESS), as RoCE version 2; `None` empties it. Opening the device has put
    /// the link-local address into entry 0.
    ///
    /// # Errors
    /// `Unsupported` (EOPNOTSUPP) on a port without RoCE; `Invalid` (EINVAL) for an index beyond the table or a VLAN id of
    /// more than 12 bits; what the device answers.
    pub fn set_gid(&self, index: u16, gid: Option<&Gid>) -> Result<(), Error> {
        let Some(roce) = &self.caps().roce else {
            return Err(Error::Unsupported { what: "RoCE addresses on this port" });
        };
        if u32::from(index) >= roce.roce_address_table_size() {
            return Err(Error::Invalid { what: "the index is beyond the GID table" });
        }
        if gid.and_then(|g| g.vlan).is_some_and(|vlan| vlan >> 12 != 0) {
            return Err(Error::Invalid { what: "the VLAN id has more than 12 bits" });
        }
        let address = gid.map_or(RoceAddrLayout::new(), Gid::layout);
        let table = &self.inner().gids().0;
        let before = table.lock().remove(&index);
        let result = self.inner().exec(&SetRoceAddress { index, address });
        let now = match &result {
            Ok(()) => gid.copied(),
            Err(e) if e.refused() => before,
            Err(_) => None,
        };
        if let Some(gid) = now {
            table.lock().insert(index, gid);
        }
        result
    }
}
