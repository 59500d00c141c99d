//! Memory keys.

use super::Reject;
use crate::bytes::{be24, be32, bit_at, put_bits, put32};
use crate::data::{RESERVED_LKEY, TERMINATE_LKEY};
use crate::device::Device;
use crate::objects::{AccessMode, Mkey};

type Done = Result<(), Reject>;

pub(super) fn create(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    // translations_octword_actual_size: 16-byte units behind the context.
    let octwords = be32(input, 0x60) as usize;
    if input.len() - 0x110 != octwords.saturating_mul(16) {
        return Err(Reject::InputTail);
    }
    if bit_at(input, 0xc * 8) {
        return Err(Reject::MkeyOnDemand);
    }
    let mkey = Mkey::decode(&input[0x10..0x50], &input[0x110..]);
    if !dev.objects.pds.contains(&mkey.pd) {
        return Err(Reject::MkeyPd);
    }
    // InfiniBand specification: what a peer may change, the owner may change.
    if (mkey.remote_write || mkey.atomic) && !mkey.local_write {
        return Err(Reject::MkeyRights);
    }
    match mkey.mode {
        AccessMode::Physical => (),
        AccessMode::Pages => check_pages(&mkey, be32(&mkey.context, 0x34))?,
        AccessMode::Other(_) => return Err(Reject::MkeyMode),
    }
    let index = dev.objects.free_mkey(1 << dev.hca.caps.current("log_max_mkey")).ok_or(Reject::NoMkey)?;
    dev.objects.mkeys.insert(index, mkey);
    put_bits(output, 0x9 * 8, 24, index.into());
    Ok(())
}

/// Whether the page list covers the range. `octwords` is the room for translations that the context asks for.
fn check_pages(mkey: &Mkey, octwords: u32) -> Done {
    if mkey.free {
        return Ok(());
    }
    if !(12..=31).contains(&mkey.page_shift) {
        return Err(Reject::MkeyPageSize);
    }
    let page = 1_u64 << mkey.page_shift;
    if mkey.start.checked_add(mkey.len).is_none() {
        return Err(Reject::MkeyRange);
    }
    let needed = (mkey.start % page).saturating_add(mkey.len).div_ceil(page);
    let listed = mkey.pages.len() as u64;
    if listed < needed || u64::from(octwords).saturating_mul(2) < needed {
        return Err(Reject::MkeyTooShort);
    }
    let used = mkey.pages.iter().take(needed as usize);
    if used.clone().any(|pa| pa % page != 0) { Err(Reject::MkeyPageAlign) } else { Ok(()) }
}

pub(super) fn destroy(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    dev.objects.mkeys.remove(&be24(input, 0x9)).map(|_| ()).ok_or(Reject::MkeyUnknown)
}

pub(super) fn query(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    let mkey = dev.objects.mkeys.get(&be24(input, 0x9)).ok_or(Reject::MkeyUnknown)?;
    output[0x10..0x50].copy_from_slice(&mkey.context);
    Ok(())
}

/// QUERY_SPECIAL_CONTEXTS.
pub(super) fn special(_: &mut Device, _: &[u8], output: &mut [u8]) -> Done {
    put32(output, 0xc, RESERVED_LKEY);
    put32(output, 0x14, TERMINATE_LKEY);
    Ok(())
}
