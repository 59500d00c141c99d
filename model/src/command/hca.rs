//! The function as a whole: enabling, capabilities, initialising, teardown.

use super::{Reject, own_function};
use crate::bytes::{be16, be32, bits, put_bits, put32};
use crate::caps::{CapError, TYPE_ATOMIC, TYPE_GENERAL};
use crate::device::Device;
use crate::hca::{Hca, HcaState};
use crate::violation::ViolationKind;

type Done = Result<(), Reject>;

/// Capability types 0 to 0x7f: the type above bit 0, which selects the current values.
pub(super) const QUERY_CAP_OP_MODS: &[u16] = &{
    let mut all = [0; 256];
    let mut i = 0;
    while i < all.len() {
        all[i] = i as u16;
        i += 1;
    }
    all
};

/// Capability types 0 to 0x7f, above bit 0.
pub(super) const SET_CAP_OP_MODS: &[u16] = &{
    let mut all = [0; 128];
    let mut i = 0;
    while i < all.len() {
        all[i] = 2 * i as u16;
        i += 1;
    }
    all
};

/// The register for the byte order of the host.
const HOST_ENDIANNESS: u16 = 0x7004;
/// Interface step sequence ids that are offered: 1. A ConnectX-4 Lx does not name 0, which is in force after a reset.
const ISSI_BITS: u32 = 0b10;

pub(super) fn enable(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    own_function(input)?;
    dev.hca = Hca::new(&dev.config);
    dev.hca.state = HcaState::Enabled;
    Ok(())
}

pub(super) fn disable(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    own_function(input)?;
    let held = dev.pages.count();
    if held > 0 {
        dev.violate(ViolationKind::PagesAtDisable, format!("{held} pages"));
    }
    dev.pages.reset();
    dev.hca = Hca::new(&dev.config);
    Ok(())
}

pub(super) fn query_issi(dev: &mut Device, _: &[u8], output: &mut [u8]) -> Done {
    put_bits(output, 0xa * 8, 16, dev.hca.issi.into());
    put32(output, 0x6c, ISSI_BITS);
    Ok(())
}

pub(super) fn set_issi(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    let issi = be16(input, 0xa);
    if issi >= 32 || ISSI_BITS >> issi & 1 == 0 {
        return Err(Reject::Issi);
    }
    dev.hca.issi = issi;
    Ok(())
}

pub(super) fn query_cap(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    own_function(input)?;
    let op_mod = be16(input, 6);
    let page = dev.hca.caps.page(op_mod >> 1, op_mod & 1 == 1).ok_or(Reject::CapType)?;
    output[0x10..0x10 + page.len()].copy_from_slice(&page);
    Ok(())
}

pub(super) fn set_cap(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    own_function(input)?;
    let kind = be16(input, 6) >> 1;
    let page = &input[0x10..];
    let now = dev.hca.caps.page(kind, true).ok_or(Reject::CapType)?;
    let done = match kind {
        TYPE_GENERAL => dev.hca.caps.set_general(page),
        TYPE_ATOMIC => dev.hca.caps.set_atomic(page),
        // No capability of the other types can be changed.
        _ => return if now == page { Ok(()) } else { Err(Reject::CapMaximum) },
    };
    done.map_err(|error| match error {
        CapError::Maximum(_) => Reject::CapMaximum,
        CapError::Unknown(_) => Reject::CapUnknown,
        CapError::Checksum => Reject::CapChecksum,
    })
}

pub(super) fn init(dev: &mut Device, _: &[u8], _: &mut [u8]) -> Done {
    if dev.pages.missing(dev.base_pages()) > 0 {
        return Err(Reject::NoInitPages);
    }
    dev.check_pages();
    dev.hca.state = HcaState::Initialized;
    Ok(())
}

pub(super) fn teardown(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    // 0 graceful, 1 by force.
    if be16(input, 0xa) > 1 {
        return Err(Reject::TeardownProfile);
    }
    if let Some(alive) = dev.objects.alive() {
        dev.violate(ViolationKind::ObjectsAtTeardown, alive);
    }
    dev.drop_objects();
    dev.check_pages();
    dev.hca.state = HcaState::Enabled;
    put_bits(output, 0xf * 8 + 7, 1, 0); // state: success
    Ok(())
}

pub(super) fn query_adapter(dev: &mut Device, _: &[u8], output: &mut [u8]) -> Done {
    put_bits(output, (0x10 + 0x19) * 8, 24, 0x00_02c9); // ieee_vendor_id: Mellanox
    put_bits(output, (0x10 + 0x1e) * 8, 16, 0x15b3); // vsd_vendor_id
    let psid = format!("MODEL{:07x}\0\0\0\0", dev.config.device_id);
    output[0x100..0x110].copy_from_slice(&psid.as_bytes()[..16]);
    Ok(())
}

/// SET_DRIVER_VERSION: the text is for people who look at the firmware's state; nothing here reads it.
pub(super) fn driver_version(dev: &mut Device, _: &[u8], _: &mut [u8]) -> Done {
    if dev.hca.caps.current("driver_version") == 0 { Err(Reject::DriverVersion) } else { Ok(()) }
}

/// ACCESS_REG: op_mod 0 writes, 1 reads.
pub(super) fn access_register(_: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    if be16(input, 0xa) != HOST_ENDIANNESS || be32(input, 0xc) != 0 {
        return Err(Reject::Register);
    }
    if input.len() != 0x20 {
        return Err(Reject::InputTail);
    }
    if output.len() != 0x20 {
        return Err(Reject::OutputLength);
    }
    if be16(input, 6) != 0 {
        return Err(Reject::RegisterWriteOnly);
    }
    if bits(input, 0x10 * 8 + 1, 63) != 0 || bits(input, 0x18 * 8, 64) != 0 {
        return Err(Reject::Reserved);
    }
    if input[0x10] & 0x80 != 0 {
        return Err(Reject::HostEndianness);
    }
    Ok(())
}
