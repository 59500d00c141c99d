//! The device's limits as the verbs count them.

use mlx5_hw::caps::{AtomicCaps, AtomicOps, AtomicOrder, CmdHcaCap, RoceCap};
use mlx5_hw::qpc::AtomicMode;
use mlx5_hw::wqe::{MAX_DS, SEGMENT};

use crate::cq::CqLimits;
use crate::device::port::is_ethernet;
use crate::device::{Device, DeviceInner, PortState};
use crate::dv::{ContextFlags, CqeCompCaps};

/// Largest send WQE in bytes that its length field can say.
const MAX_SEND_WQE: u32 = MAX_DS as u32 * SEGMENT as u32;
/// Largest receive WQE in bytes that a queue pair's context can say: `log_rq_stride` has three bits.
const MAX_RECV_WQE: u32 = (SEGMENT as u32) << 7;
/// Most pieces that the answer to an RDMA read is scattered to, as Linux states it: what 512 bytes hold.
const MAX_SGE_RD: u32 = 30;
/// Bit of `atomic_size_qp` for 8 bytes.
const ATOMIC_8_BYTES: u32 = 1 << 3;

/// Limits that creating queue pairs checks, from the capabilities in force.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// `log2` of the most work requests (receive) or basic blocks (send) in a queue.
    pub(crate) log_max_qp_sz: u32,
    /// `log2` of the most entries of a shared receive queue; 0 without such queues.
    pub(crate) log_max_srq_sz: u32,
    /// Largest send WQE in bytes, whole segments.
    pub(crate) max_wqe_sz_sq: u32,
    /// Largest receive WQE in bytes, whole segments.
    pub(crate) max_wqe_sz_rq: u32,
    /// `log2` of the longest message in bytes.
    pub(crate) log_max_msg: u32,
    /// `log2` of the reads and atomics outstanding as requester.
    pub(crate) log_max_ra_req: u32,
    /// `log2` of the reads and atomics outstanding as responder.
    pub(crate) log_max_ra_res: u32,
    /// Atomics that requests may ask for and what they mean.
    pub(crate) atomic_cap: AtomicCap,
    /// What a queue pair accepts when its peer may do atomics; `None` for none.
    pub(crate) atomic_mode: Option<AtomicMode>,
    /// The port is Ethernet (RoCE), not InfiniBand.
    pub(crate) ethernet: bool,
    /// Number of entries in the GID table.
    pub(crate) gids: u32,
    /// What is missing for connections that are forced back to the port that they leave by.
    pub(crate) no_loopback: Option<&'static str>,
    /// Number of ports.
    pub(crate) ports: u32,
}

impl Limits {
    pub(crate) fn of(dev: &DeviceInner) -> Self {
        let caps = dev.caps();
        Self::from_caps(&caps.general, caps.atomic.as_ref(), caps.roce.as_ref())
    }

    /// Whatever the device claims, no limit is beyond what the encodings can say.
    fn from_caps(caps: &CmdHcaCap, atomic: Option<&AtomicCaps>, roce: Option<&RoceCap>) -> Self {
        let whole_segments = |bytes: u32| bytes - bytes % SEGMENT as u32;
        let ethernet = is_ethernet(caps);
        Self {
            log_max_qp_sz: caps.log_max_qp_sz().min(15),
            log_max_srq_sz: if caps.log_max_srq() == 0 { 0 } else { caps.log_max_srq_sz().min(15) },
            max_wqe_sz_sq: whole_segments(caps.max_wqe_sz_sq().min(MAX_SEND_WQE)),
            max_wqe_sz_rq: whole_segments(caps.max_wqe_sz_rq().min(MAX_RECV_WQE)),
            log_max_msg: caps.log_max_msg(),
            log_max_ra_req: caps.log_max_ra_req_qp().min(7),
            log_max_ra_res: caps.log_max_ra_res_qp().min(7),
            atomic_cap: atomic.map_or(AtomicCap::None, atomic_cap),
            atomic_mode: atomic.and_then(atomic_mode),
            ethernet,
            gids: if ethernet {
                roce.map_or(0, RoceCap::roce_address_table_size)
            } else {
                gid_table(caps.gid_table_size())
            },
            no_loopback: no_loopback(caps, roce.filter(|_| ethernet)),
            ports: caps.num_ports().max(1),
        }
    }
}

/// What a port lacks for connections that are forced back to it. Opening the device has turned RoCE on where there is any; on
/// an InfiniBand port it is off, whatever the capabilities say of it.
fn no_loopback(caps: &CmdHcaCap, roce: Option<&RoceCap>) -> Option<&'static str> {
    match roce {
        Some(roce) if roce.fl_rc_qp_when_roce_enabled() => None,
        Some(_) => Some("forced loopback (capability fl_rc_qp_when_roce_enabled)"),
        None if caps.fl_rc_qp_when_roce_disabled() => None,
        None => Some("forced loopback (capability fl_rc_qp_when_roce_disabled)"),
    }
}

/// Both operations of the InfiniBand specification.
const STANDARD: u32 = (AtomicOps::CMP_SWAP.0 | AtomicOps::FETCH_ADD.0) as u32;
/// Either operation under a mask.
const EXTENDED: u32 = (AtomicOps::EXTENDED_CMP_SWAP.0 | AtomicOps::EXTENDED_FETCH_ADD.0) as u32;

/// As Linux decides: both operations, on 8 bytes, and answers in the host's byte order.
fn atomic_cap(atomic: &AtomicCaps) -> AtomicCap {
    let both = atomic.atomic_operations() & STANDARD == STANDARD;
    let host_order = atomic.atomic_req_8b_endianness_mode() != u32::from(AtomicOrder::BE.0);
    let fits = both && atomic.atomic_size_qp() & ATOMIC_8_BYTES != 0 && host_order;
    if fits { AtomicCap::Hca } else { AtomicCap::None }
}

/// As Linux decides: the largest size on offer where there are operations under a mask, else what the specification says.
fn atomic_mode(atomic: &AtomicCaps) -> Option<AtomicMode> {
    let operations = atomic.atomic_operations();
    // Up to 256 bytes have a mode.
    let sizes = atomic.atomic_size_qp() & 0x1ff;
    if operations & EXTENDED != 0 && sizes != 0 {
        return Some(match sizes.ilog2() {
            log @ 4.. => AtomicMode(log as u8),
            _ => AtomicMode::UP_TO_8B,
        });
    }
    (operations & STANDARD == STANDARD).then_some(AtomicMode::IB_SPEC)
}

/// What atomics are atomic against (`enum ibv_atomic_cap`; `ibv_query_device(3)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtomicCap {
    /// There are none.
    #[default]
    None,
    /// Each other, at this device.
    Hca,
    /// Everything in the system, the processors too.
    Glob,
}

/// What a device can do (`struct ibv_device_attr`, `struct ibv_device_attr_ex`, `struct mlx5dv_context`; `ibv_query_device(3)`,
/// `ibv_query_device_ex(3)`, `mlx5dv_query_device(3)`), as far as this driver uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceAttr {
    /// Firmware version: major, minor, subminor.
    pub fw_ver: (u16, u16, u16),
    /// GUID of the node.
    pub node_guid: u64,
    /// GUID of the system.
    pub sys_image_guid: u64,
    /// IEEE vendor id.
    pub vendor_id: u32,
    /// PCI device id.
    pub vendor_part_id: u32,
    /// Most queue pairs.
    pub max_qp: u32,
    /// Most outstanding work requests of a queue.
    pub max_qp_wr: u32,
    /// Most pieces in a work request.
    pub max_sge: u32,
    /// Most pieces in an RDMA read.
    pub max_sge_rd: u32,
    /// Most completion queues.
    pub max_cq: u32,
    /// Most entries of a completion queue.
    pub max_cqe: u32,
    /// Most memory regions.
    pub max_mr: u32,
    /// Most protection domains.
    pub max_pd: u32,
    /// Most shared receive queues; 0 for none.
    pub max_srq: u32,
    /// Most outstanding requests of a shared receive queue.
    pub max_srq_wr: u32,
    /// Most pieces in a request of a shared receive queue.
    pub max_srq_sge: u32,
    /// Most RDMA reads and atomics outstanding at a queue pair as responder.
    pub max_qp_rd_atom: u32,
    /// Most RDMA reads and atomics outstanding at a queue pair as requester.
    pub max_qp_init_rd_atom: u32,
    /// Most RDMA reads and atomics outstanding as responder, of all queue pairs together.
    pub max_res_rd_atom: u32,
    /// Whether there are atomics, and what they are atomic against.
    pub atomic_cap: AtomicCap,
    /// Number of ports.
    pub phys_port_cnt: u8,
    /// Completion vectors: `comp_vector` is below this.
    pub num_comp_vectors: u32,
    /// The bits of a completion's raw time stamp that count.
    pub completion_timestamp_mask: u64,
    /// Frequency of the clock in raw time stamps, in kHz.
    pub hca_core_clock: u64,
    /// What the device offers in compressed completions.
    pub cqe_comp_caps: CqeCompCaps,
    /// Further abilities.
    pub flags: ContextFlags,
}

/// State of a port, as far as this driver uses it (`struct ibv_port_attr`; `ibv_query_port(3)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttr {
    /// Its state.
    pub state: PortState,
    /// The port is up: its state is active.
    pub active: bool,
    /// Largest packet of an Ethernet port in bytes; 0 on InfiniBand.
    pub ethernet_mtu: u16,
    /// Longest message in bytes.
    pub max_msg_sz: u32,
    /// Number of entries in the GID table.
    pub gid_tbl_len: u32,
    /// Number of entries in the P_Key table; 1 on Ethernet, as Linux says.
    pub pkey_tbl_len: u16,
    /// LID of an InfiniBand port; 0 or 0xffff while the subnet manager has given none; 0 on Ethernet.
    pub lid: u16,
    /// The port has 2^lmc LIDs.
    pub lmc: u8,
    /// LID of the subnet manager; 0 without.
    pub sm_lid: u16,
    /// Service level of the subnet manager.
    pub sm_sl: u8,
    /// The link is Ethernet.
    pub ethernet: bool,
}

impl Device {
    /// What the device can do (`ibv_query_device(3)`).
    pub fn query_device(&self) -> DeviceAttr {
        let (info, caps, limits) = (self.info(), &self.caps().general, Limits::of(self.inner()));
        let cq = CqLimits::of(self.inner());
        let send_sges = (limits.max_wqe_sz_sq / SEGMENT as u32).saturating_sub(2);
        DeviceAttr {
            fw_ver: info.firmware,
            node_guid: info.node_guid,
            sys_image_guid: info.system_image_guid,
            vendor_id: info.vendor_id,
            vendor_part_id: info.device_id.into(),
            max_qp: power(caps.log_max_qp()),
            max_qp_wr: power(limits.log_max_qp_sz),
            max_sge: send_sges.min(limits.max_wqe_sz_rq / SEGMENT as u32),
            max_sge_rd: send_sges.min(MAX_SGE_RD),
            max_cq: power(caps.log_max_cq()),
            max_cqe: power(cq.log_max_size) - 1,
            max_mr: power(caps.log_max_mkey()),
            max_pd: power(caps.log_max_pd()),
            max_srq: if limits.log_max_srq_sz == 0 { 0 } else { power(caps.log_max_srq()) },
            max_srq_wr: power(limits.log_max_srq_sz) - 1,
            max_srq_sge: (limits.max_wqe_sz_rq / SEGMENT as u32).saturating_sub(1),
            max_qp_rd_atom: power(limits.log_max_ra_res),
            max_qp_init_rd_atom: power(limits.log_max_ra_req),
            max_res_rd_atom: power(limits.log_max_ra_res).saturating_mul(power(caps.log_max_qp())),
            atomic_cap: limits.atomic_cap,
            phys_port_cnt: limits.ports as u8,
            num_comp_vectors: self.inner().num_comp_vectors(),
            completion_timestamp_mask: crate::clock::MASK,
            hca_core_clock: caps.device_frequency_khz().into(),
            cqe_comp_caps: cq.compression,
            flags: cq.flags(),
        }
    }

    /// State of a port, counted from 1 (`ibv_query_port(3)`), asked from the device (QUERY_VPORT_STATE; on InfiniBand
    /// QUERY_HCA_VPORT_CONTEXT).
    ///
    /// # Errors
    /// `Invalid` (EINVAL) for a port that the device does not have; `Unsupported` (EOPNOTSUPP) on InfiniBand without the
    /// capability `ib_virt`; what the device answers.
    pub fn query_port(&self, port_num: u8) -> Result<PortAttr, crate::Error> {
        let (info, limits) = (self.info(), Limits::of(self.inner()));
        if port_num == 0 || u32::from(port_num) > limits.ports {
            return Err(crate::Error::Invalid { what: "port_num is not a port of the device" });
        }
        let (state, context) = self.inner().port_now(port_num)?;
        let context = context.unwrap_or_default();
        Ok(PortAttr {
            state,
            active: state == PortState::Active,
            ethernet_mtu: info.mtu,
            max_msg_sz: power(limits.log_max_msg),
            gid_tbl_len: limits.gids,
            pkey_tbl_len: if limits.ethernet { 1 } else { pkey_table(self.caps().general.pkey_table_size()) },
            lid: context.lid() as u16,
            lmc: context.lmc() as u8,
            sm_lid: context.sm_lid() as u16,
            sm_sl: context.sm_sl() as u8,
            ethernet: limits.ethernet,
        })
    }
}

/// Entries of the P_Key table, by its code in the capabilities; 0 for one that is none (`mlx5_to_sw_pkey_sz` of Linux).
const fn pkey_table(code: u32) -> u16 {
    if code > 5 { 0 } else { 128 << code }
}

/// Entries of an InfiniBand port's GID table, likewise (`mlx5_get_gid_table_len`).
const fn gid_table(code: u32) -> u32 {
    if code > 4 { 0 } else { 8 << code }
}

/// 2 to the power of `log`, at most 2^31.
fn power(log: u32) -> u32 {
    1 << log.min(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `log_rq_stride` counts from 16 bytes in three bits, `ds` counts 16-byte segments in six.
    #[test]
    fn work_requests_are_no_larger_than_their_encodings_can_say() {
        let of = |sq, rq| {
            let caps = CmdHcaCap::new().with_max_wqe_sz_sq(sq).with_max_wqe_sz_rq(rq);
            let limits = Limits::from_caps(&caps, None, None);
            (limits.max_wqe_sz_sq, limits.max_wqe_sz_rq)
        };
        assert_eq!(of(0xffff, 0xffff), (63 * 16, 2048));
        assert_eq!(of(1024, 512), (63 * 16, 512));
        assert_eq!(of(47, 31), (32, 16));
        assert_eq!(of(0, 0), (0, 0));
    }

    /// As Linux's steering and its VFIO selftest decide (`dr_send_allow_fl`, `mlx5st_query_fl_caps`): what counts with RoCE is in the
    /// page of RoCE, what counts without is in the general one.
    #[test]
    fn forced_loopback_is_a_capability_with_and_without_roce() {
        let ethernet = CmdHcaCap::new().with_port_type(1);
        let general = |off| ethernet.with_fl_rc_qp_when_roce_disabled(off);
        // Its RoCE stays off, though it may have a page for it.
        let infiniband = |off| general(off).with_port_type(0);
        let roce =
            |off, on| Some(RoceCap::new().with_fl_rc_qp_when_roce_disabled(off).with_fl_rc_qp_when_roce_enabled(on));
        for (general, roce, missing) in [
            (general(false), roce(false, true), None),
            (general(true), roce(true, false), Some("fl_rc_qp_when_roce_enabled")),
            (general(true), None, None),
            (general(false), None, Some("fl_rc_qp_when_roce_disabled")),
            (infiniband(false), roce(false, true), Some("fl_rc_qp_when_roce_disabled")),
            (infiniband(true), roce(false, false), None),
        ] {
            let what = Limits::from_caps(&general, None, roce.as_ref()).no_loopback;
            let named = |name| what.is_some_and(|what| what.contains(name));
            assert!(missing.map_or(what.is_none(), named), "{what:?}");
        }
    }

    /// `mlx5_get_gid_table_len` and `mlx5_to_sw_pkey_sz` of Linux.
    #[test]
    fn tables_of_a_port_have_the_sizes_that_linux_reads_from_their_codes() {
        assert_eq!([0, 1, 4, 5, u32::MAX].map(gid_table), [8, 16, 128, 0, 0]);
        assert_eq!([0, 1, 5, 6, u32::MAX].map(pkey_table), [128, 256, 4096, 0, 0]);
    }

    /// `get_atomic_caps` and `get_atomic_mode` of Linux's mlx5_ib, by operations, sizes and byte order.
    #[test]
    fn atomics_are_offered_as_linux_offers_them() {
        use AtomicCap::{Hca, None as No};
        for (operations, sizes, order, cap, mode) in [
            (0b0011, 0b1000, 1, Hca, Some(AtomicMode::IB_SPEC)),
            (0b0011, 0b1000, 0, No, Some(AtomicMode::IB_SPEC)),
            (0b0011, 0b0100, 1, No, Some(AtomicMode::IB_SPEC)),
            (0b0001, 0b1000, 1, No, None),
            (0b0010, 0b1000, 1, No, None),
            (0b1111, 0b0000_1100, 1, Hca, Some(AtomicMode::UP_TO_8B)),
            (0b1111, 0b0000_0100, 1, No, Some(AtomicMode::UP_TO_8B)),
            (0b1111, 0b0001_1000, 1, Hca, Some(AtomicMode::UP_TO_16B)),
            (0b0111, 0x1ff, 1, Hca, Some(AtomicMode::UP_TO_256B)),
            (0b1011, 0xe00, 1, No, Some(AtomicMode::IB_SPEC)),
            (0b1100, 0xe00, 1, No, None),
            (0, 0, 1, No, None),
        ] {
            let atomic = AtomicCaps::new()
                .with_atomic_operations(operations)
                .with_atomic_size_qp(sizes)
                .with_atomic_req_8b_endianness_mode(order);
            let limits = Limits::from_caps(&CmdHcaCap::new(), Some(&atomic), None);
            assert_eq!((limits.atomic_cap, limits.atomic_mode), (cap, mode), "{operations:#b} {sizes:#x} {order}");
        }
        let limits = Limits::from_caps(&CmdHcaCap::new(), None, None);
        assert_eq!((limits.atomic_cap, limits.atomic_mode), (No, None), "no page");
    }
}
