//! The NIC vport context: addresses and switches of the port.

use crate::bytes::{be64, bit_at, put_bits, put64};

/// Bytes of the context.
pub(crate) const VPORT_BYTES: usize = 0x100;
/// Largest MTU that may be set: 10 KiB frames less nothing.
pub(crate) const MAX_MTU: u16 = 10_240;

/// The port as its NIC vport context describes it.
pub(crate) struct Vport {
    /// The context, 256 bytes.
    pub(crate) context: [u8; VPORT_BYTES],
}

/// A field that MODIFY_NIC_VPORT_CONTEXT may change.
pub(crate) struct Field {
    /// Its bit in `field_select`.
    pub(crate) select: u32,
    /// Ranges of bits in the context that it covers.
    pub(crate) bits: &'static [(usize, usize)],
}

/// What may be changed. The permanent address and affiliation may not.
pub(crate) const FIELDS: &[Field] = &[
    Field { select: 1 << 1, bits: &[(31, 1)] },                        // roce_en
    Field { select: 1 << 2, bits: &[(0xf2 * 8, 16)] },                 // addresses_list
    Field { select: 1 << 4, bits: &[(0xf0 * 8, 3)] },                  // promisc
    Field { select: 1 << 5, bits: &[(0x4 * 8, 1), (0x7 * 8 + 3, 5)] }, // change_event
    Field { select: 1 << 6, bits: &[(0x26 * 8, 16)] },                 // mtu
    Field { select: 1 << 7, bits: &[(5, 3)] },                         // min_inline
    Field { select: 1 << 8, bits: &[(0x30 * 8, 64)] },                 // port_guid
    Field { select: 1 << 9, bits: &[(0x38 * 8, 64)] },                 // node_guid
    Field { select: 1 << 10, bits: &[(29, 1)] },                       // disable_mc_local_lb
    Field { select: 1 << 11, bits: &[(30, 1)] },                       // disable_uc_local_lb
];

impl Vport {
    /// The context after a reset.
    pub(crate) fn new(mac: [u8; 6]) -> Self {
        let mut context = [0; VPORT_BYTES];
        let guid = u64::from_be_bytes([mac[0], mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]]);
        put_bits(&mut context, 0x26 * 8, 16, 1500);
        put64(&mut context, 0x28, guid);
        put64(&mut context, 0x30, guid + 1);
        put64(&mut context, 0x38, guid);
        context[0xf6..0xfc].copy_from_slice(&mac);
        Self { context }
    }

    /// GUIDs of the system image, the port and the node.
    pub(crate) fn guids(&self) -> [u64; 3] {
        [0x28, 0x30, 0x38].map(|at| be64(&self.context, at))
    }

    /// The port's first GID on InfiniBand: the link-local prefix and its GUID.
    pub(crate) fn gid(&self) -> [u8; 16] {
        let mut gid = [0; 16];
        gid[..2].copy_from_slice(&[0xfe, 0x80]);
        gid[8..].copy_from_slice(&self.context[0x30..0x38]);
        gid
    }

    /// `roce_en`.
    pub(crate) fn roce_on(&self) -> bool {
        bit_at(&self.context, 31)
    }
}
