//! The network header of a datagram: 40 bytes in front of what the receiver gets, whether or not there is one.
//!
//! An IPv6 header (RoCE v2) and a global route header (InfiniBand) have 40 bytes; an IPv4 header has the last 20 of them, and what
//! is before it stays as it was, as UCX found it on cards.

use crate::device::Device;

use super::av::Address;
use super::wqe::{Ctrl, opcode};

/// Bytes that a receiver of datagrams has to have room for in front of them.
pub(crate) const GRH_BYTES: usize = 40;

/// How a datagram came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    /// The header: the last bytes of the 40.
    pub(crate) header: Vec<u8>,
    /// The completion's bits 31:24 beside the source queue: bit 28, the header is in the data; below, over RoCE its kind, over
    /// InfiniBand the service level.
    pub(crate) flags: u8,
    pub(crate) source_lid: u16,
    /// Path bits of the destination LID.
    pub(crate) path: u8,
}

const HEADER_IN_DATA: u8 = 1 << 4;
/// Kinds of RoCE headers in completions.
const IPV6: u8 = 1;
const IPV4: u8 = 2;
/// `roce_l3_type` of an address.
const ADDRESS_IPV4: u8 = 0;
/// Next header of the InfiniBand transport (IBA), and UDP.
const NEXT_IBA: u8 = 0x1b;
const NEXT_UDP: u8 = 17;

/// Bytes of a packet behind the network header, without UDP: transport headers, payload in full words, checksum.
fn transport_bytes(ctrl: &Ctrl, len: usize) -> usize {
    const BTH: usize = 12;
    const DETH: usize = 8;
    const ICRC: usize = 4;
    let immediate = if ctrl.opcode == opcode::SEND_IMM { 4 } else { 0 };
    BTH + DETH + immediate + len.next_multiple_of(4) + ICRC
}

/// The header of RoCE v2, as the source address says of IPv4 or IPv6.
pub(super) fn roce(source: &[u8; 32], to: &Address, ctrl: &Ctrl, len: usize) -> Network {
    const UDP: usize = 8;
    let bytes = (UDP + transport_bytes(ctrl, len)) as u16;
    let (header, kind) = if source[0x1a] & 0xf == ADDRESS_IPV4 {
        (ipv4(&source[12..16], to, bytes), IPV4)
    } else {
        (ipv6(&source[..16], to, bytes, NEXT_UDP), IPV6)
    };
    Network { header, flags: HEADER_IN_DATA | kind, source_lid: 0, path: 0 }
}

/// A local route, and a global route header if it is asked for; `None` when the LID is not the port's.
pub(super) fn infiniband(dev: &Device, to: &Address, ctrl: &Ctrl, len: usize) -> Option<Network> {
    let (lid, paths) = (dev.config.lid, (1_u16 << dev.config.lmc.min(7)) - 1);
    let path = (to.lid.wrapping_sub(lid) & paths) as u8;
    let plain =
        Network { header: Vec::new(), flags: to.sl, source_lid: lid.wrapping_add(u16::from(to.path) & paths), path };
    let global = || Network {
        header: ipv6(&dev.hca.vport.gid(), to, transport_bytes(ctrl, len) as u16, NEXT_IBA),
        flags: HEADER_IN_DATA | to.sl,
        ..plain.clone()
    };
    let own = to.force_loopback || dev.owns_lid(to.lid);
    own.then(|| if to.global { global() } else { plain.clone() })
}

fn ipv6(source: &[u8], to: &Address, bytes: u16, next: u8) -> Vec<u8> {
    let first = 6 << 28 | u32::from(to.traffic_class) << 20 | to.flow_label;
    let mut header = first.to_be_bytes().to_vec();
    header.extend_from_slice(&bytes.to_be_bytes());
    header.extend_from_slice(&[next, to.hop_limit]);
    header.extend_from_slice(source);
    header.extend_from_slice(&to.gid);
    header
}

fn ipv4(source: &[u8], to: &Address, bytes: u16) -> Vec<u8> {
    const DONT_FRAGMENT: u8 = 0x40;
    let mut header = vec![0x45, to.traffic_class];
    header.extend_from_slice(&(20 + bytes).to_be_bytes());
    header.extend_from_slice(&[0, 0, DONT_FRAGMENT, 0, to.hop_limit, NEXT_UDP, 0, 0]);
    header.extend_from_slice(source);
    header.extend_from_slice(&to.gid[12..]);
    let words = header.chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}
