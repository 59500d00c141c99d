//! Address handles: where datagrams go. Paths of connections say the same of their one peer.

use core::fmt;

use mlx5_hw::caps::RoceCap;
use mlx5_hw::wqe::{AV_FORCE_LOOPBACK, AV_GRH, Av};

use crate::error::Error;
use crate::limits::Limits;
use crate::pd::{Member, Pd};

/// The lowest UDP source port of RoCE where the device does not say.
const MIN_UDP_PORT: u32 = 0xc000;

const fn invalid<T>(what: &'static str) -> Result<T, Error> {
    Err(Error::Invalid { what })
}

/// The path to a peer (`struct ibv_ah_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AhAttr {
    /// Global route; needed on Ethernet.
    pub grh: Option<GlobalRoute>,
    /// Destination LID, on InfiniBand.
    pub dlid: u16,
    /// Service level, 0 to 15; on Ethernet the priority, 0 to 7.
    pub sl: u8,
    /// Path bits of the source LID, 7 bits, on InfiniBand.
    pub src_path_bits: u8,
    /// Limit of the rate, as in PRM `ads.stat_rate`; 0 for none.
    pub static_rate: u8,
    /// Port, from 1 on.
    pub port_num: u8,
    /// Destination MAC address, on Ethernet. All zeros: the one that the destination's GID tells, if it is a link-local
    /// or a multicast one. (The verbs leave it to the kernel, which asks the network; here nobody does.)
    pub dmac: [u8; 6],
    /// Packets come back to the port that they leave by: of a path, only port and service level then count. That needs no
    /// link, no subnet manager and no address. (Verbs have no such attribute; the device calls it `fl`.) For reliable connections
    /// it is a capability, `fl_rc_qp_when_roce_enabled`, or `fl_rc_qp_when_roce_disabled` on a port without RoCE; unreliable ones
    /// and datagrams can be forced on InfiniBand.
    pub force_loopback: bool,
}

/// The global part of a path (`struct ibv_global_route`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalRoute {
    /// Destination address (GID), most significant byte first.
    pub dgid: [u8; 16],
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Index of the source address in the port's GID table.
    pub sgid_index: u8,
    /// Hops that the packets may take.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
}

impl AhAttr {
    /// Refuses values out of range; `port` is the one that packets leave by.
    pub(crate) fn check(&self, port: u8, limits: &Limits) -> Result<(), Error> {
        if self.port_num != port {
            return invalid("the path's port_num is not the queue pair's");
        }
        if self.sl > if limits.ethernet { 7 } else { 15 } {
            return invalid("the path's sl is out of range");
        }
        if self.force_loopback {
            return Ok(());
        }
        if self.src_path_bits > 127 || self.static_rate > 15 {
            return invalid("the path's src_path_bits or static_rate is out of range");
        }
        match &self.grh {
            None if limits.ethernet => invalid("a path on Ethernet needs a global route"),
            Some(grh) if grh.flow_label >> 20 != 0 => invalid("flow_label has more than 20 bits"),
            Some(grh) if limits.ethernet && u32::from(grh.sgid_index) >= limits.gids => {
                invalid("sgid_index is beyond the GID table")
            }
            _ => Ok(()),
        }
    }

    /// The destination's MAC address: the one given, or the one that its GID tells.
    pub(crate) fn mac(&self) -> Option<[u8; 6]> {
        if self.dmac != [0; 6] { Some(self.dmac) } else { mac_of(&self.grh?.dgid) }
    }
}

/// The MAC address that a GID stands for: of a link-local address made of one (RFC 4291, appendix A), and of a multicast
/// group (RFC 2464, RFC 1112).
fn mac_of(gid: &[u8; 16]) -> Option<[u8; 6]> {
    match *gid {
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xff, 0xfe, d, e, f] => Some([a ^ 2, b, c, d, e, f]),
        [0xff, _, _, _, _, _, _, _, _, _, _, _, a, b, c, d] => Some([0x33, 0x33, a, b, c, d]),
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 224..=239, b, c, d] => Some([0x01, 0x00, 0x5e, b & 0x7f, c, d]),
        _ => None,
    }
}

/// The UDP source port that a flow label stands for, in the dynamic range 0xc000 to 0xffff: all its bits count, so that flows
/// spread over the network's paths.
pub(crate) fn udp_source_port(flow_label: u32) -> u32 {
    MIN_UDP_PORT | ((flow_label ^ flow_label >> 14) & 0x3fff)
}

/// An address handle (`ibv_create_ah(3)`): where a datagram goes.
///
/// It is no object of the device's: requests copy it when they are posted, so it may be destroyed while they are on their way.
/// Its protection domain stays in use as long as it lives. Dropping it is the same as [`destroy`](Self::destroy).
pub struct Ah {
    member: Member,
    /// The address vector without the destination's queue pair.
    av: Av,
}

impl Pd {
    /// Creates an address handle (`ibv_create_ah(3)`).
    ///
    /// # Errors
    /// `Invalid` (EINVAL) for a port that the device does not have, a service level, path bits, rate, flow label or
    /// source address out of range, and on Ethernet for a path without a global route or to a GID that does not tell its MAC
    /// address when `dmac` does not either; `Unsupported` (EOPNOTSUPP) for a path with `force_loopback` on
    /// Ethernet.
    pub fn create_ah(&self, attr: &AhAttr) -> Result<Ah, Error> {
        let dev = self.shared().dev();
        let limits = Limits::of(dev);
        if attr.port_num == 0 || u32::from(attr.port_num) > limits.ports {
            return invalid("port_num is not a port of the device");
        }
        attr.check(attr.port_num, &limits)?;
        if attr.force_loopback && limits.ethernet {
            return Err(Error::Unsupported { what: "forced loopback of datagrams on Ethernet" });
        }
        let av = if limits.ethernet { ethernet(attr, dev.caps().roce.as_ref())? } else { infiniband(attr) };
        Ok(Ah { member: self.join(), av })
    }
}

/// What every address vector says of a global route.
fn global(grh: &GlobalRoute) -> Av {
    let mut av = Av::new()
        .with_tclass(grh.traffic_class.into())
        .with_hop_limit(grh.hop_limit.into())
        .with_grh_gid_fl(u32::from(grh.sgid_index) << 20 | grh.flow_label);
    for (i, byte) in grh.dgid.into_iter().enumerate() {
        av.set_rgid(i, byte.into());
    }
    av
}

fn ethernet(attr: &AhAttr, roce: Option<&RoceCap>) -> Result<Av, Error> {
    let Some(mac) = attr.mac() else {
        return invalid("the destination's GID does not tell its MAC address: give it as dmac");
    };
    let grh = attr.grh.unwrap_or_default();
    let lowest = || roce.map_or(0, RoceCap::r_roce_min_src_udp_port).max(MIN_UDP_PORT);
    let port = if grh.flow_label == 0 { lowest() } else { udp_source_port(grh.flow_label) };
    let mut av = global(&grh).with_stat_rate_sl(u32::from(attr.static_rate << 4 | attr.sl << 1)).with_rlid(port);
    for (i, byte) in mac.into_iter().enumerate() {
        av.set_rmac(i, byte.into());
    }
    Ok(av)
}

fn infiniband(attr: &AhAttr) -> Av {
    if attr.force_loopback {
        return Av::new().with_stat_rate_sl(attr.sl.into()).with_fl_mlid(AV_FORCE_LOOPBACK);
    }
    let route = attr.grh.map_or_else(Av::new, |grh| {
        let av = global(&grh);
        av.with_grh_gid_fl(av.grh_gid_fl() | AV_GRH)
    });
    route
        .with_stat_rate_sl(u32::from(attr.static_rate << 4 | attr.sl))
        .with_fl_mlid(attr.src_path_bits.into())
        .with_rlid(attr.dlid.into())
}

impl Ah {
    /// Ends it (`ibv_destroy_ah(3)`), which cannot fail.
    pub fn destroy(self) {
        drop(self);
    }

    /// Whether it belongs to the same protection domain.
    #[inline]
    pub(crate) fn is_with(&self, member: &Member) -> bool {
        core::ptr::eq(self.member.pd(), member.pd())
    }

    /// The address vector without the destination's queue pair.
    #[inline]
    pub(crate) fn av(&self) -> &Av {
        &self.av
    }
}

impl fmt::Debug for Ah {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ah").field("pdn", &self.member.pd().pdn()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 4291 (34-56-78-9a-bc-de), RFC 2464 (last 32 bits) and RFC 1112 (low 23 bits).
    #[test]
    fn some_gids_tell_their_mac_address() {
        let of = |gid: u128| mac_of(&gid.to_be_bytes());
        assert_eq!(of(0xfe80_0000_0000_0000_3656_78ff_fe9a_bcde), Some([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]));
        assert_eq!(of(0xff02_0000_0000_0000_0000_0001_ff28_9c5a), Some([0x33, 0x33, 0xff, 0x28, 0x9c, 0x5a]));
        assert_eq!(of(0xffff_e081_0203), Some([0x01, 0x00, 0x5e, 0x01, 0x02, 0x03]));
        assert_eq!(of(0xffff_efff_fffa), Some([0x01, 0x00, 0x5e, 0x7f, 0xff, 0xfa]));
        assert_eq!((of(0xffff_c0a8_0001), of(0xffff_f000_0001)), (None, None), "one host, and no group");
        assert_eq!(of(0xfe80_0000_0000_0000_3656_7800_009a_bcde), None, "not made of a MAC address");
        assert_eq!(of(0x2001_0db8_0000_0000_3656_78ff_fe9a_bcde), None, "not on this link");
    }

    #[test]
    fn flow_labels_become_dynamic_ports() {
        assert_eq!((udp_source_port(0), udp_source_port(0x4001), udp_source_port(0xf_ffff)), (0xc000, 0xc000, 0xffc0));
        assert_eq!(udp_source_port(0x4002), 0xc003, "the upper six bits are folded in");
    }
}
