//! The port: its NIC vport context, its state, its RoCE addresses.

use super::Reject;
use crate::bytes::{be16, be32, bits, put_bits, u8_at};
use crate::device::Device;
use crate::hca::ROCE_ADDRESSES;
use crate::vport::{FIELDS, MAX_MTU, VPORT_BYTES};

type Done = Result<(), Reject>;

/// RoCE version codes: v1, v2; 0xff… none else.
const ROCE_V2: u8 = 2;

fn own_vport(input: &[u8]) -> Done {
    if u8_at(input, 0x8) == 0 && be16(input, 0xa) == 0 { Ok(()) } else { Err(Reject::Vport) }
}

pub(super) fn state(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    own_vport(input)?;
    put_bits(output, 0xf * 8, 4, 1); // admin_state: up
    put_bits(output, 0xf * 8 + 4, 4, dev.link_up.into()); // state: 1 up, 0 down
    Ok(())
}

/// There is a NIC vport context on an Ethernet port only.
fn ethernet(dev: &Device) -> Done {
    if dev.hca.is_infiniband() { Err(Reject::NicVportOff) } else { Ok(()) }
}

pub(super) fn query(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    ethernet(dev)?;
    own_vport(input)?;
    // allowed_list_type: unicast, multicast, VLAN; each list is empty.
    if bits(input, 0xc * 8 + 5, 3) > 2 {
        return Err(Reject::VportList);
    }
    output[0x10..0x10 + VPORT_BYTES].copy_from_slice(&dev.hca.vport.context);
    Ok(())
}

pub(super) fn modify(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    ethernet(dev)?;
    own_vport(input)?;
    let select = be32(input, 0xc);
    let known = FIELDS.iter().fold(0, |all, field| all | field.select);
    if select & !known != 0 {
        return Err(Reject::VportField);
    }
    let context = &input[0x100..0x200];
    let list = usize::from(be16(context, 0xf2));
    let addresses = if select & 1 << 2 != 0 { list } else { 0 };
    if input.len() != 0x200 + 8 * addresses {
        return Err(Reject::InputTail);
    }
    if select & 1 << 6 != 0 && !(68..=MAX_MTU).contains(&be16(context, 0x26)) {
        return Err(Reject::VportMtu);
    }
    for (at, width) in FIELDS.iter().filter(|field| select & field.select != 0).flat_map(|field| field.bits) {
        let value = bits(context, *at, *width);
        put_bits(&mut dev.hca.vport.context, *at, *width, value);
    }
    Ok(())
}

pub(super) fn set_roce_address(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    if dev.hca.caps.current("roce") == 0 {
        return Err(Reject::RoceOff);
    }
    let index = usize::from(be16(input, 0x8));
    if index >= ROCE_ADDRESSES {
        return Err(Reject::RoceIndex);
    }
    if bits(input, 0xb * 8 + 4, 4) > dev.hca.caps.current("num_ports") {
        return Err(Reject::RocePort);
    }
    let layout = &input[0x10..0x30];
    let empty = layout.iter().all(|byte| *byte == 0);
    if !empty && u8_at(layout, 0x1b) != ROCE_V2 {
        return Err(Reject::RoceVersion);
    }
    dev.hca.roce_addresses[index].copy_from_slice(layout);
    Ok(())
}
