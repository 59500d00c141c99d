//! Ranges that a client of another process maps: any I/O address, memory of a file or none, rights.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{Backing, DmaSpace, Mapping, Rights};

/// Keeps memory mapped.
type Keeper = Arc<dyn Any + Send + Sync>;

/// Ranges at once: `max_dma_maps` of the protocol, for a server that names no other number.
const MOST_RANGES: usize = 65_535;

/// Why a range cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapError {
    /// No bytes.
    Empty,
    /// It goes beyond the last address.
    Wraps,
    /// Something is mapped there.
    Overlaps,
    /// There are as many ranges as there may be.
    TooMany,
}

/// Why ranges cannot be unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnmapError {
    /// It goes beyond the last address.
    Wraps,
    /// It would cut a range in two.
    Partial,
}

/// The last address of `len` bytes at `iova`, which may end at 2^64 exactly.
fn last_of(iova: u64, len: u64) -> Option<u64> {
    iova.checked_add(len.checked_sub(1)?)
}

impl DmaSpace {
    /// Maps a range without memory behind it: the device cannot touch it.
    pub(crate) fn map_nothing(&mut self, iova: u64, len: u64) -> Result<(), MapError> {
        let rights = Rights { read: false, write: false };
        self.insert((iova, len), NonNull::dangling(), rights, None)
    }

    /// Maps `len` bytes at `ptr`.
    ///
    /// # Safety
    /// The bytes are valid for reads, and for writes with that right, as long as `memory` lives, and are shared with others
    /// only as memory of another process is.
    pub(crate) unsafe fn map_memory(
        &mut self,
        iova: u64,
        (ptr, len): (NonNull<u8>, u64),
        rights: Rights,
        memory: Keeper,
    ) -> Result<(), MapError> {
        self.insert((iova, len), ptr, rights, Some(memory))
    }

    fn insert(
        &mut self,
        (iova, len): (u64, u64),
        ptr: NonNull<u8>,
        rights: Rights,
        memory: Option<Keeper>,
    ) -> Result<(), MapError> {
        if len == 0 {
            return Err(MapError::Empty);
        }
        let last = last_of(iova, len).ok_or(MapError::Wraps)?;
        let size = usize::try_from(len).map_err(|_| MapError::Wraps)?;
        let below = self.maps.range(..=last).next_back();
        if below.is_some_and(|(start, mapping)| last_of(*start, mapping.len as u64).is_some_and(|end| end >= iova)) {
            return Err(MapError::Overlaps);
        }
        if self.maps.len() >= MOST_RANGES {
            return Err(MapError::TooMany);
        }
        self.add(iova, Mapping { ptr, len: size, rights, backing: Backing::Foreign(memory) });
        Ok(())
    }

    /// The foreign ranges that lie in `len` bytes at `iova`, all of them when `None`: start and length.
    pub(crate) fn foreign_in(&self, range: Option<(u64, u64)>) -> Result<Vec<(u64, u64)>, UnmapError> {
        let (first, last) = match range {
            None => (0, u64::MAX),
            Some((_, 0)) => return Ok(Vec::new()),
            Some((iova, len)) => (iova, last_of(iova, len).ok_or(UnmapError::Wraps)?),
        };
        let before = self.maps.range(..first).next_back();
        let reaches_in = |(start, mapping): (&u64, &Mapping)| mapping.len as u64 > first - start;
        if before.is_some_and(reaches_in) {
            return Err(UnmapError::Partial);
        }
        let mut found = Vec::new();
        for (start, mapping) in self.maps.range(first..=last) {
            let len = mapping.len as u64;
            if last_of(*start, len).is_none_or(|end| end > last) {
                return Err(UnmapError::Partial);
            }
            if matches!(mapping.backing, Backing::Foreign(_)) {
                found.push((*start, len));
            }
        }
        Ok(found)
    }

    /// Ends a foreign range.
    pub(crate) fn unmap_foreign(&mut self, start: u64) {
        if self.maps.get(&start).is_some_and(|mapping| matches!(mapping.backing, Backing::Foreign(_))) {
            self.take(start);
        }
    }
}
