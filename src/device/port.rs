//! The port: what it says of itself, on Ethernet and on InfiniBand.
//!
//! Each link layer has commands of its own: an Ethernet port has a NIC context and its RoCE addresses are the driver's to
//! set, an InfiniBand port has an HCA context and its addresses are the subnet manager's. Of an InfiniBand port without the
//! capability `ib_virt` only management datagrams tell (Linux's `mlx5_use_mad_ifc`), which this driver does not send: nothing
//! is known of it then.

use mlx5_hw::caps::{CmdHcaCap, PortType, RoceCap};
use mlx5_hw::cmd::{
    AdapterInfo, ModifyNicVportContext, QueryHcaVportContext, QueryHcaVportGid, QueryHcaVportPkey,
    QueryNicVportContext, QueryVportState, SetRoceAddress,
};
use mlx5_hw::hca_vport::HcaVportContext;
use mlx5_hw::nic_vport::NicVportContext;
use mlx5_hw::roce_address::RoceVersion;

use super::attr::{Caps, DeviceInfo, PortState, link_local};
use super::control::Control;
use crate::error::Error;
use crate::gid::Gid;

/// Bit of `roce_cap.roce_version`.
const ROCE_V2: u32 = 1 << RoceVersion::VERSION_2.0;

/// Reads what the port says of itself, and turns RoCE on.
pub(super) fn identify(control: &Control, caps: &Caps, issi: u16, adapter: &AdapterInfo) -> Result<DeviceInfo, Error> {
    let ethernet = is_ethernet(&caps.general);
    let mut info = DeviceInfo {
        device_id: control.config.device_id,
        firmware: control.port.init_segment().fw_rev(),
        vendor_id: adapter.vendor_id,
        psid: adapter.psid,
        issi,
        ethernet,
        ..DeviceInfo::default()
    };
    if ethernet {
        of_ethernet(control, caps, &mut info)?;
    } else if caps.general.ib_virt() {
        of_infiniband(control, caps, &mut info)?;
    }
    info.port_up = info.port_state == PortState::Active;
    Ok(info)
}

/// The link layer, of a port that has one of the two.
pub(crate) fn is_ethernet(caps: &CmdHcaCap) -> bool {
    caps.port_type() == u32::from(PortType::ETHERNET.0)
}

/// State of an Ethernet port now.
///
/// # Errors
/// Those of QUERY_VPORT_STATE.
pub(crate) fn ethernet_state(control: &Control) -> Result<PortState, Error> {
    let state = control.exec(&QueryVportState)?;
    Ok(if state.is_up() { PortState::Active } else { PortState::Down })
}

/// Context of an InfiniBand port now.
///
/// # Errors
/// `Unsupported` for a port that only management datagrams tell of; those of QUERY_HCA_VPORT_CONTEXT.
pub(crate) fn infiniband_context(control: &Control, caps: &CmdHcaCap, port: u8) -> Result<HcaVportContext, Error> {
    if !caps.ib_virt() {
        return Err(Error::Unsupported { what: "the state of an InfiniBand port (capability ib_virt)" });
    }
    control.exec(&QueryHcaVportContext { port_num: port_to_name(caps, port) })
}

/// Commands name the port of a function that has two, as Linux does.
fn port_to_name(caps: &CmdHcaCap, port: u8) -> u8 {
    if caps.num_ports() == 2 { port } else { 0 }
}

fn of_ethernet(control: &Control, caps: &Caps, info: &mut DeviceInfo) -> Result<(), Error> {
    info.port_state = ethernet_state(control)?;
    let context = control.exec(&QueryNicVportContext)?;
    info.mac = context.permanent_address().bytes();
    info.mtu = context.mtu() as u16;
    info.node_guid = context.node_guid();
    info.port_guid = context.port_guid();
    info.system_image_guid = context.system_image_guid();
    if let Some(roce) = &caps.roce {
        let on = NicVportContext::new().with_roce_en(true);
        let command = ModifyNicVportContext { field_select: ModifyNicVportContext::ROCE_EN, context: on };
        control.step(&command, |steps| steps.roce = true)?;
        info.gid = first_gid(control, roce, info.mac)?;
    }
    Ok(())
}

/// Puts the link-local address into the first entry of the GID table, for RoCE version 2.
fn first_gid(control: &Control, roce: &RoceCap, mac: [u8; 6]) -> Result<Option<[u8; 16]>, Error> {
    if roce.roce_address_table_size() == 0 || roce.roce_version() & ROCE_V2 == 0 {
        return Ok(None);
    }
    let gid = Gid { gid: link_local(mac), mac, vlan: None };
    control.step(&SetRoceAddress { index: 0, address: gid.layout() }, |steps| steps.gid = true)?;
    Ok(Some(gid.gid))
}

fn of_infiniband(control: &Control, caps: &Caps, info: &mut DeviceInfo) -> Result<(), Error> {
    let context = infiniband_context(control, &caps.general, 1)?;
    let port_num = port_to_name(&caps.general, 1);
    info.port_state = PortState::from_device(context.vport_state());
    info.node_guid = context.node_guid();
    info.port_guid = context.port_guid();
    info.system_image_guid = context.system_image_guid();
    info.lid = context.lid() as u16;
    info.sm_lid = context.sm_lid() as u16;
    info.grh_required = context.grh_required();
    info.gid = Some(control.exec(&QueryHcaVportGid { port_num, index: 0 })?);
    info.pkey = control.exec(&QueryHcaVportPkey { port_num, index: 0 })?;
    Ok(())
}
