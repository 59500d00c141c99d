//! Event queues.

use super::Reject;
use super::ring::{check_buffer, first_wrong_entry};
use crate::bytes::{be64, put_bits, put64, u8_at};
use crate::device::Device;
use crate::objects::Eq;
use crate::violation::ViolationKind;

type Done = Result<(), Reject>;

/// Event types that exist: 0 to 0x27.
const EVENT_TYPES: u64 = (1 << 0x28) - 1;

pub(super) fn create(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    let eq = Eq::decode(&input[0x10..0x50], be64(input, 0x58), &input[0x110..]);
    if u64::from(eq.log_size) > dev.hca.caps.current("log_max_eq_sz") {
        return Err(Reject::EqSize);
    }
    if eq.vector >= dev.config.vectors {
        return Err(Reject::EqVector);
    }
    if eq.event_mask & !EVENT_TYPES != 0 {
        return Err(Reject::EqEvents);
    }
    if !dev.objects.uars.contains(&eq.uar) {
        return Err(Reject::EqUar);
    }
    check_buffer(dev, &eq.buffer, input.len() - 0x110, u64::from(eq.entries()) * 64)?;
    let eqn = dev.objects.free_eq(1 << dev.hca.caps.current("log_max_eq")).ok_or(Reject::NoEq)?;
    if let Some(entry) = first_wrong_entry(dev, &eq.buffer, 64, eq.entries(), |[_, owner]| owner & 1 == 0) {
        dev.violate(ViolationKind::EqNotInitialised, format!("EQ {eqn:#x}, entry {entry}: owner bit is 0"));
    }
    dev.objects.eqs.insert(eqn, eq);
    put_bits(output, 0xb * 8, 8, eqn.into());
    Ok(())
}

pub(super) fn destroy(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    let eqn = u8_at(input, 0xb).into();
    if !dev.objects.eqs.contains_key(&eqn) {
        return Err(Reject::EqUnknown);
    }
    if dev.objects.cqs.values().any(|cq| cq.eqn == eqn) {
        return Err(Reject::EqBusy);
    }
    dev.objects.eqs.remove(&eqn);
    Ok(())
}

pub(super) fn query(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    let eq = dev.objects.eqs.get(&u8_at(input, 0xb).into()).ok_or(Reject::EqUnknown)?;
    eq.encode(&mut output[0x10..0x50]);
    put64(output, 0x58, eq.event_mask);
    // The page list, as far as there is room.
    for (index, page) in eq.buffer.pages.iter().enumerate() {
        put64(output, 0x110 + 8 * index, *page);
    }
    Ok(())
}
