//! From a datagram that was received to the path back to its sender (`ibv_create_ah_from_wc(3)`).
//!
//! The network header comes from the peer: nothing in it is used before it was looked at.

use crate::ah::{Ah, AhAttr, GlobalRoute};
use crate::cq::{Wc, WcOpcode, WcStatus};
use crate::device::{Device, DeviceInner};
use crate::error::Error;
use crate::flags::WcResultFlags;
use crate::limits::Limits;
use crate::pd::Pd;

/// Bytes in front of each datagram's payload.
const GRH_BYTES: usize = 40;
/// An IPv4 header has the last 20 of them.
const IPV4_AT: usize = 20;
/// Next header of the InfiniBand transport, as on InfiniBand and in RoCE version 1.
const NEXT_IBA: u8 = 0x1b;
/// Next header of UDP, as in RoCE version 2.
const NEXT_UDP: u8 = 17;
/// Bytes of the headers and checksum around a datagram's payload: BTH, DETH, ICRC.
const TRANSPORT: u32 = 12 + 8 + 4;
const UDP: u32 = 8;
/// Answers may take any number of hops: what is left of the request's says nothing of the way back.
const HOP_LIMIT: u8 = 0xff;

const fn invalid<T>(what: &'static str) -> Result<T, Error> {
    Err(Error::Invalid { what })
}

/// What a network header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    /// Who sent it; an IPv4 address as `::ffff:a.b.c.d`.
    source: [u8; 16],
    /// Whom it was sent to.
    destination: [u8; 16],
    traffic_class: u8,
    flow_label: u32,
}

impl Header {
    /// An IPv6 or global route header in front of `payload` bytes, for the protocol `next`.
    fn ipv6(grh: &[u8; GRH_BYTES], next: u8, payload: u32) -> Result<Self, Error> {
        let [a, b, c, d, long, short, protocol, _hops, addresses @ ..] = *grh;
        let first = u32::from_be_bytes([a, b, c, d]);
        if first >> 28 != 6 {
            return invalid("the network header's version is not 6");
        }
        if protocol != next {
            return invalid("the network header's next header is not the transport's");
        }
        let around = if next == NEXT_UDP { UDP + TRANSPORT } else { TRANSPORT };
        if u32::from(u16::from_be_bytes([long, short])) < payload.saturating_add(around) {
            return invalid("the network header's length is less than what was received");
        }
        let n = u128::from_be_bytes;
        let (source, destination) = halves(addresses);
        if next == NEXT_UDP && [source, destination].iter().any(|gid| n(*gid) >> 32 == 0xffff) {
            return invalid("the network header has IPv4 addresses in an IPv6 header");
        }
        Self { source, destination, traffic_class: (first >> 20) as u8, flow_label: first & 0xf_ffff }.checked()
    }

    /// An IPv4 header in front of `payload` bytes, of RoCE version 2.
    fn ipv4(grh: &[u8; GRH_BYTES], payload: u32) -> Result<Self, Error> {
        let mut header = [0; GRH_BYTES - IPV4_AT];
        header.copy_from_slice(&grh[IPV4_AT..]);
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        if header[0] != 0x45 {
            return invalid("the network header is not an IPv4 header of 20 bytes");
        }
        // With its checksum a header adds up to all ones (RFC 1071).
        let sum: u32 = (0..header.len()).step_by(2).map(|at| u32::from(word(at))).sum();
        if (sum & 0xffff) + (sum >> 16) != 0xffff {
            return invalid("the network header's checksum is wrong");
        }
        if u32::from(word(2)) < payload.saturating_add(IPV4_AT as u32 + UDP + TRANSPORT) {
            return invalid("the network header's length is less than what was received");
        }
        if word(6) & 0x3fff != 0 || header[9] != NEXT_UDP {
            return invalid("the network header is a fragment's, or its protocol is not UDP");
        }
        let mapped = |at: usize| {
            let address = u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            (0xffff_u128 << 32 | u128::from(address)).to_be_bytes()
        };
        Self { source: mapped(12), destination: mapped(16), traffic_class: header[1], flow_label: 0 }.checked()
    }

    fn checked(self) -> Result<Self, Error> {
        if is_host(&self.source) && is_host(&self.destination) {
            Ok(self)
        } else {
            invalid("an address of the network header is a group's, or nobody's")
        }
    }
}

/// Source and destination.
fn halves(addresses: [u8; 32]) -> ([u8; 16], [u8; 16]) {
    (core::array::from_fn(|i| addresses[i]), core::array::from_fn(|i| addresses[16 + i]))
}

/// Whether it can be the address of one port: not unspecified, loopback, multicast, or of IPv4's classes D and E.
fn is_host(gid: &[u8; 16]) -> bool {
    match u128::from_be_bytes(*gid) {
        0 | 1 => false,
        n if n >> 32 == 0xffff => !matches!(gid[12], 0 | 127 | 224..),
        n => n >> 120 != 0xff,
    }
}

impl Device {
    /// The path back to a datagram's sender (`ibv_init_ah_from_wc`, `ibv_create_ah_from_wc(3)`): `wc` is the completion of the
    /// receive, `grh` the first 40 bytes of its buffer, which are only looked at when `wc` says that a header is there.
    ///
    /// Nobody tells the sender's MAC address: `dmac` is that of the GID table when the sender is this port itself, else zero,
    /// which is enough for link-local addresses; give it for all others before [`Pd::create_ah`]. On InfiniBand the answer
    /// comes from the port's first GID.
    ///
    /// # Errors
    /// `Invalid` (EINVAL) for a completion that is no successful receive with room for the header, a port that the device
    /// does not have, a header that is malformed, shorter than what was received, from or to a group or nobody, or, on
    /// Ethernet, missing or to an address that is not in the GID table; `Unsupported` (EOPNOTSUPP) for packets of RoCE version 1.
    pub fn init_ah_from_wc(&self, port_num: u8, wc: &Wc, grh: &[u8; GRH_BYTES]) -> Result<AhAttr, Error> {
        init(self.inner(), port_num, wc, grh)
    }
}

impl Pd {
    /// Creates an address handle for answers to a datagram's sender (`ibv_create_ah_from_wc(3)`).
    ///
    /// # Errors
    /// As [`Device::init_ah_from_wc`] and [`create_ah`](Self::create_ah): so also `Invalid` (EINVAL) for a sender whose
    /// address does not tell its MAC address.
    pub fn create_ah_from_wc(&self, wc: &Wc, grh: &[u8; GRH_BYTES], port_num: u8) -> Result<Ah, Error> {
        self.create_ah(&init(self.shared().dev(), port_num, wc, grh)?)
    }
}

fn init(dev: &DeviceInner, port_num: u8, wc: &Wc, grh: &[u8; GRH_BYTES]) -> Result<AhAttr, Error> {
    let limits = Limits::of(dev);
    if port_num == 0 || u32::from(port_num) > limits.ports {
        return invalid("port_num is not a port of the device");
    }
    if wc.status != WcStatus::SUCCESS || wc.opcode != WcOpcode::RECV {
        return invalid("the completion is not a successful receive's");
    }
    let Some(payload) = wc.byte_len.checked_sub(GRH_BYTES as u32) else {
        return invalid("the completion is not a datagram's: it has no room for the network header");
    };
    let grh = wc.flags().contains(WcResultFlags::GRH).then_some(grh);
    if limits.ethernet { ethernet(dev, port_num, wc.sl, grh, payload) } else { infiniband(port_num, wc, grh, payload) }
}

/// The device says what kind of header it put there, in bits of the service level.
fn ethernet(
    dev: &DeviceInner,
    port_num: u8,
    kind: u8,
    grh: Option<&[u8; GRH_BYTES]>,
    payload: u32,
) -> Result<AhAttr, Error> {
    let Some(grh) = grh else { return invalid("a datagram without a network header on Ethernet") };
    let header = match kind & 3 {
        0 => return Err(Error::Unsupported { what: "answers to packets of RoCE version 1" }),
        1 => Header::ipv6(grh, NEXT_UDP, payload)?,
        2 => Header::ipv4(grh, payload)?,
        _ => return invalid("the completion's kind of network header is unknown"),
    };
    let own = dev.gids().find(&header.destination);
    let Some(sgid_index) = own.and_then(|(index, _)| u8::try_from(index).ok()) else {
        return invalid("the datagram's destination is not in the GID table");
    };
    let dmac = dev.gids().find(&header.source).map_or([0; 6], |(_, sender)| sender.mac);
    Ok(AhAttr { grh: Some(route(&header, sgid_index)), port_num, dmac, ..AhAttr::default() })
}

fn infiniband(port_num: u8, wc: &Wc, grh: Option<&[u8; GRH_BYTES]>, payload: u32) -> Result<AhAttr, Error> {
    let header = grh.map(|grh| Header::ipv6(grh, NEXT_IBA, payload)).transpose()?;
    let grh = header.map(|header| route(&header, 0));
    let (dlid, sl, src_path_bits) = (wc.slid, wc.sl, wc.dlid_path_bits);
    Ok(AhAttr { grh, dlid, sl, src_path_bits, port_num, ..AhAttr::default() })
}

fn route(header: &Header, sgid_index: u8) -> GlobalRoute {
    GlobalRoute {
        dgid: header.source,
        flow_label: header.flow_label,
        sgid_index,
        hop_limit: HOP_LIMIT,
        traffic_class: header.traffic_class,
    }
}
