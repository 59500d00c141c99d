//! Memory keys: from (key, virtual address, length) to I/O addresses, with every check that a card makes on the way.

use crate::objects::{AccessMode, Mkey};

/// What an access wants of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    LocalRead,
    LocalWrite,
    RemoteRead,
    RemoteWrite,
    Atomic,
}

/// Why a key does not give access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyFault {
    /// No mkey with that index.
    Unknown,
    /// The low byte differs from `mkey_7_0`.
    Variant,
    /// The mkey is free, in a mode the model has no translation for, or belongs to another QP.
    NotUsable,
    /// The mkey belongs to another protection domain.
    Pd,
    /// The right asked for is missing.
    Right,
    /// Bytes before the start or behind the end.
    Bounds,
    /// The page list is shorter than the length.
    Translation,
}

impl KeyFault {
    /// The vendor syndrome of a local protection error. All are codes seen together with syndrome 4 on cards; which of
    /// them means what is not public, so the assignment is the model's own.
    pub(crate) const fn vendor(self) -> u8 {
        match self {
            KeyFault::Unknown | KeyFault::Variant => 0x52,
            KeyFault::NotUsable => 0x33,
            KeyFault::Pd => 0x56,
            KeyFault::Right => 0x53,
            KeyFault::Bounds => 0x51,
            KeyFault::Translation => 0x32,
        }
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester {
    pub(crate) qpn: u32,
    pub(crate) pd: u32,
}

/// Some bytes at a device address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) iova: u64,
    pub(crate) len: u64,
}

/// The lkey of all physical memory (QUERY_SPECIAL_CONTEXTS `resd_lkey`), for queue pairs with `rlky`.
pub(crate) const RESERVED_LKEY: u32 = 0x0000_0800;

const ANY_QPN: u32 = 0xff_ffff;

/// Translates `len` bytes at `va` under `key`, whose index led to `mkey`.
pub(crate) fn resolve(
    mkey: &Mkey,
    key: u32,
    (va, len): (u64, u64),
    access: Access,
    who: Requester,
) -> Result<Vec<Piece>, KeyFault> {
    permit(mkey, key, access, who)?;
    let offset = offset_in(mkey, va, len)?;
    match mkey.mode {
        AccessMode::Physical => Ok(vec![Piece { iova: va, len }]),
        AccessMode::Pages => walk(mkey, offset, len),
        AccessMode::Other(_) => Err(KeyFault::NotUsable),
    }
}

fn permit(mkey: &Mkey, key: u32, access: Access, who: Requester) -> Result<(), KeyFault> {
    let right = match access {
        Access::LocalRead => mkey.local_read,
        Access::LocalWrite => mkey.local_write,
        Access::RemoteRead => mkey.remote_read,
        Access::RemoteWrite => mkey.remote_write,
        Access::Atomic => mkey.atomic,
    };
    belongs(mkey, key, who)?;
    if right { Ok(()) } else { Err(KeyFault::Right) }
}

fn belongs(mkey: &Mkey, key: u32, who: Requester) -> Result<(), KeyFault> {
    if u32::from(mkey.variant) != key & 0xff {
        Err(KeyFault::Variant)
    } else if mkey.free || (mkey.qpn != ANY_QPN && mkey.qpn != who.qpn) {
        Err(KeyFault::NotUsable)
    } else if mkey.pd != who.pd {
        Err(KeyFault::Pd)
    } else {
        Ok(())
    }
}

/// Whether the peer of `who` may invalidate the key.
pub(crate) fn may_invalidate(mkey: &Mkey, key: u32, who: Requester) -> Result<(), KeyFault> {
    belongs(mkey, key, who)?;
    if mkey.remote_invalidate { Ok(()) } else { Err(KeyFault::Right) }
}

/// Distance of `va` from the key's start, once the whole range is known to lie inside.
fn offset_in(mkey: &Mkey, va: u64, len: u64) -> Result<u64, KeyFault> {
    va.checked_add(len).ok_or(KeyFault::Bounds)?;
    let offset = va.checked_sub(mkey.start).ok_or(KeyFault::Bounds)?;
    let end = offset.checked_add(len).ok_or(KeyFault::Bounds)?;
    if !mkey.whole_space && end > mkey.len {
        return Err(KeyFault::Bounds);
    }
    Ok(offset)
}

fn walk(mkey: &Mkey, offset: u64, len: u64) -> Result<Vec<Piece>, KeyFault> {
    if !(12..=62).contains(&mkey.page_shift) {
        return Err(KeyFault::Translation);
    }
    let page = 1_u64 << mkey.page_shift;
    let mut at = (mkey.start % page).checked_add(offset).ok_or(KeyFault::Bounds)?;
    let mut left = len;
    let mut pieces = Vec::new();
    while left > 0 {
        let index = usize::try_from(at / page).map_err(|_| KeyFault::Translation)?;
        let base = mkey.pages.get(index).ok_or(KeyFault::Translation)?;
        let take = left.min(page - at % page);
        pieces.push(Piece { iova: base.wrapping_add(at % page), len: take });
        at = at.checked_add(take).ok_or(KeyFault::Bounds)?;
        left -= take;
    }
    Ok(pieces)
}
