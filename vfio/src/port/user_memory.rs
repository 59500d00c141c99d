//! Memory of the caller's own that the device reaches.

use std::collections::BTreeMap;
use std::ptr::NonNull;

use rustix::io::Errno;

use super::domain::{Domain, Mapped};

/// What is mapped of it, by the I/O address that the caller knows.
#[derive(Default)]
pub(super) struct UserMemory {
    ranges: BTreeMap<u64, (usize, Mapped)>,
}

impl UserMemory {
    /// Maps the pages that `len` bytes at `ptr` lie in, and gives the bytes' I/O address.
    ///
    /// # Errors
    /// How many bytes were to be mapped, and what the kernel answered: EFAULT for memory that is not there or not writable, EINVAL
    /// for none at all.
    ///
    /// # Safety
    /// As [`Iommu::map`](super::domain::Iommu::map).
    pub(super) unsafe fn map(
        &mut self,
        domain: &mut Domain,
        ptr: NonNull<u8>,
        len: usize,
    ) -> Result<u64, (usize, Errno)> {
        let ahead = ptr.as_ptr() as usize % domain.granule();
        let whole = len.checked_add(ahead).and_then(|end| end.checked_next_multiple_of(domain.granule()));
        let whole = whole.filter(|_| len > 0).ok_or((len, Errno::INVAL))?;
        let start = ptr.as_ptr().wrapping_sub(ahead);
        let start = NonNull::new(start).ok_or((len, Errno::INVAL))?;
        // SAFETY: the caller's promise, for the pages that the bytes lie in.
        let mapped = unsafe { domain.map(start, whole) }.map_err(|errno| (whole, errno))?;
        let iova = mapped.iova + ahead as u64;
        self.ranges.insert(iova, (len, mapped));
        Ok(iova)
    }

    /// Ends a map of `len` bytes.
    ///
    /// # Errors
    /// EINVAL if there is none like that; what the kernel answers, and it is then as before.
    pub(super) fn unmap(&mut self, domain: &mut Domain, iova: u64, len: usize) -> Result<(), Errno> {
        let (_, mapped) = *self.ranges.get(&iova).filter(|(whole, _)| *whole == len).ok_or(Errno::INVAL)?;
        domain.unmap(mapped)?;
        self.ranges.remove(&iova);
        Ok(())
    }

    /// Whether something is mapped there.
    pub(super) fn holds(&self, iova: u64) -> bool {
        self.ranges.contains_key(&iova)
    }

    /// Takes all of it from the device.
    ///
    /// # Errors
    /// The first that the kernel answered; what it did not unmap is as before.
    pub(super) fn withdraw(&mut self, domain: &mut Domain) -> Result<(), Errno> {
        let mut result = Ok(());
        self.ranges.retain(|_, (_, mapped)| {
            let unmapped = domain.unmap(*mapped);
            result = result.and(unmapped);
            unmapped.is_err()
        });
        result
    }
}
