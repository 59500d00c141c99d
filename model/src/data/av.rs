//! The datagram segment: where a datagram goes (address vector).

use super::wqe::{DS_UNIT, WqeFault};
use crate::bytes::bits as get;

/// Where a datagram goes, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) q_key: u32,
    pub(crate) qpn: u32,
    /// The whole address vector: one in the compact form has none of what follows `path`.
    pub(crate) extended: bool,
    /// To the own port, whatever the rest says: on InfiniBand only.
    pub(crate) force_loopback: bool,
    /// Service level: on Ethernet the priority in its upper three bits.
    pub(crate) sl: u8,
    /// Path bits of the source LID.
    pub(crate) path: u8,
    /// LID of the destination; on Ethernet the UDP source port.
    pub(crate) lid: u16,
    pub(crate) mac: [u8; 6],
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    /// A global route header is asked for. RoCE always has one.
    pub(crate) global: bool,
    /// Index of the source address.
    pub(crate) source_index: u8,
    pub(crate) flow_label: u32,
    pub(crate) gid: [u8; 16],
}

/// The force-loopback bit (`fl`), beside the path bits.
pub(super) const FORCE_LOOPBACK: usize = 104;
/// Units of 16 bytes of an address vector: whole, and in the compact form.
const WHOLE: usize = 3;
const COMPACT: usize = 1;

impl Address {
    /// Reads a datagram segment, and returns how many units of 16 bytes it has.
    pub(super) fn decode(raw: &[u8]) -> Result<(Self, usize), WqeFault> {
        if raw.len() < COMPACT * DS_UNIT {
            return Err(WqeFault::Missing("datagram segment"));
        }
        let extended = get(raw, 64, 1) == 1;
        let units = if extended { WHOLE } else { COMPACT };
        if raw.len() < units * DS_UNIT {
            return Err(WqeFault::Missing("rest of the datagram segment"));
        }
        // Beyond the Q_Key, beside the queue number; between port and MAC, beside the GRH bit.
        let always = [(32, 32), (65, 7)];
        let whole = [(128, 32), (224, 1), (226, 2)];
        let reserved =
            always.iter().chain(whole.iter().filter(|_| extended)).find(|(at, width)| get(raw, *at, *width) != 0);
        if let Some((at, _)) = reserved {
            return Err(WqeFault::Reserved(DS_UNIT + at / 8));
        }
        let rest = if extended { &raw[..WHOLE * DS_UNIT] } else { &[0; WHOLE * DS_UNIT][..] };
        let address = Self {
            q_key: get(raw, 0, 32) as u32,
            qpn: get(raw, 72, 24) as u32,
            extended,
            sl: get(raw, 100, 4) as u8,
            force_loopback: get(raw, FORCE_LOOPBACK, 1) == 1,
            path: get(raw, 105, 7) as u8,
            lid: get(raw, 112, 16) as u16,
            mac: core::array::from_fn(|i| rest[20 + i]),
            traffic_class: rest[26],
            hop_limit: rest[27],
            global: get(rest, 225, 1) == 1,
            source_index: get(rest, 228, 8) as u8,
            flow_label: get(rest, 236, 20) as u32,
            gid: core::array::from_fn(|i| rest[32 + i]),
        };
        Ok((address, units))
    }
}
