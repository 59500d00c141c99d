//! Payload between memory and the wire: gathered and placed piece by piece, through memory keys.

use super::cqe::{CqeError, syndrome};
use super::mkey::{self, Access, KeyFault, Piece, Requester};
use super::wqe::{DataSeg, Segment};
use crate::device::Device;
use crate::dma::DmaFault;

/// Payload is read from memory in pieces of at most this size, so that an absurd length costs nothing before it fails.
const CHUNK: u64 = 1 << 16;

/// Queue pair `qpn` as the user of its own keys.
pub(crate) fn owner(dev: &Device, qpn: u32) -> Requester {
    // Protection domains start at 1: nothing belongs to a queue pair that is gone.
    Requester { qpn, pd: dev.objects.qps.get(&qpn).map_or(0, |qp| qp.pd) }
}

/// Translates a data segment under the rights of `who`.
pub(crate) fn local(dev: &Device, who: Requester, seg: DataSeg, access: Access) -> Result<Vec<Piece>, CqeError> {
    let whole = (seg.addr, seg.len.into());
    let found = if seg.lkey == mkey::RESERVED_LKEY {
        match dev.objects.qps.get(&who.qpn) {
            Some(qp) if qp.reserved_lkey => Ok(vec![Piece { iova: seg.addr, len: seg.len.into() }]),
            _ => Err(KeyFault::Right),
        }
    } else {
        by_key(dev, who, seg.lkey, whole, access)
    };
    found.map_err(|fault| CqeError { syndrome: syndrome::LOCAL_PROT, vendor: fault.vendor() })
}

/// Translates `(address, length)` under a key that `who`, or its peer, names.
pub(crate) fn by_key(
    dev: &Device,
    who: Requester,
    key: u32,
    range: (u64, u64),
    access: Access,
) -> Result<Vec<Piece>, KeyFault> {
    let mkey = dev.objects.mkeys.get(&(key >> 8)).ok_or(KeyFault::Unknown)?;
    mkey::resolve(mkey, key, range, access, who)
}

/// Makes a key free because the peer of `qpn` asks for it.
pub(crate) fn invalidate(dev: &mut Device, qpn: u32, key: u32) -> Result<(), KeyFault> {
    let who = owner(dev, qpn);
    let mkey = dev.objects.mkeys.get_mut(&(key >> 8)).ok_or(KeyFault::Unknown)?;
    mkey::may_invalidate(mkey, key, who)?;
    mkey.invalidate();
    Ok(())
}

/// Collects the bytes of a message.
pub(crate) fn gather(dev: &mut Device, qpn: u32, segments: &[Segment]) -> Result<Vec<u8>, CqeError> {
    let who = owner(dev, qpn);
    let mut payload = Vec::new();
    for segment in segments {
        match segment {
            Segment::Inline(data) => payload.extend_from_slice(data),
            Segment::Data(seg) => {
                let pieces = local(dev, who, *seg, Access::LocalRead)?;
                read(dev, &pieces, &mut payload).map_err(|_| CqeError::of(syndrome::LOCAL_PROT))?;
            }
        }
    }
    Ok(payload)
}

/// Writes a payload along a list that has room for it. All of it is checked before the first byte is written. One that is
/// `inline` in the completion is only checked: that software puts it there is no reason to need fewer rights.
pub(crate) fn place(
    dev: &mut Device,
    who: Requester,
    list: &[DataSeg],
    payload: &[u8],
    inline: bool,
) -> Result<(), CqeError> {
    let mut targets = Vec::new();
    let mut left = payload.len() as u64;
    for seg in list {
        let take = left.min(seg.len.into());
        if take > 0 {
            let part = DataSeg { len: take as u32, ..*seg };
            targets.extend(local(dev, who, part, Access::LocalWrite)?);
        }
        left -= take;
    }
    if inline {
        return Ok(());
    }
    write(dev, &targets, payload).map_err(|_| CqeError::of(syndrome::LOCAL_PROT))
}

/// Appends what lies in `pieces`.
pub(crate) fn read(dev: &mut Device, pieces: &[Piece], payload: &mut Vec<u8>) -> Result<(), DmaFault> {
    for piece in pieces {
        let mut done = 0;
        while done < piece.len {
            let take = CHUNK.min(piece.len - done);
            let old = payload.len();
            payload.resize(old + take as usize, 0);
            dev.dma_read("message payload", piece.iova.wrapping_add(done), &mut payload[old..])?;
            done += take;
        }
    }
    Ok(())
}

/// Writes bytes into `pieces`, as far as either reaches.
pub(crate) fn write(dev: &mut Device, pieces: &[Piece], payload: &[u8]) -> Result<(), DmaFault> {
    let mut rest = payload;
    for piece in pieces {
        let (now, later) = rest.split_at(rest.len().min(piece.len as usize));
        dev.dma_write("message payload", piece.iova, now)?;
        rest = later;
    }
    Ok(())
}
