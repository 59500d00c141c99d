//! Memory for the device: chunks of 2 MiB, or larger ones for what is larger, cut into what is asked for.

use std::ptr::NonNull;

use mlx5_hw::platform::DmaMem;
use rustix::io::Errno;
use vm_allocator::{AddressAllocator, AllocPolicy, RangeInclusive};

use super::domain::{Domain, Mapped};
use super::memory::{HUGE, Pages};

/// What allocations are multiples of: a cache line.
const LINE: usize = 64;

/// Pages that the device reaches, and which of their bytes are taken.
struct Chunk {
    pages: Pages,
    mapped: Mapped,
    /// Whether the device reaches them still.
    reached: bool,
    huge: bool,
    /// Offsets in it.
    room: AddressAllocator,
    free: usize,
}

impl Chunk {
    fn is_empty(&self) -> bool {
        self.free == self.pages.len()
    }

    /// Takes it from the device, once.
    fn withdraw(&mut self, domain: &mut Domain) -> Result<(), Errno> {
        if self.reached {
            domain.unmap(self.mapped)?;
            self.reached = false;
        }
        Ok(())
    }

    /// Gives the pages back. Those that the device reaches for ever, or the driver still has some of, stay in this process and
    /// are never anybody else's.
    fn end(self) {
        if self.reached || !self.is_empty() {
            std::mem::forget(self.pages);
        }
    }

    /// Takes `size` bytes, a multiple of a line, at a multiple of `align`.
    fn take(&mut self, size: usize, align: usize) -> Option<(NonNull<u8>, u64)> {
        if size > self.free || !self.reached {
            return None;
        }
        let offset = self.room.allocate(size as u64, align as u64, AllocPolicy::FirstMatch).ok()?.start();
        self.free -= size;
        // SAFETY: the offset lies in the pages.
        let ptr = unsafe { self.pages.ptr().add(offset as usize) };
        // SAFETY: nobody else has these bytes, and the device is done with them if it ever had them.
        unsafe { ptr.write_bytes(0, size) };
        Some((ptr, self.mapped.iova + offset))
    }
}

/// All chunks of a function.
pub(super) struct Arena {
    chunks: Vec<Chunk>,
    /// Whether to ask for huge pages first.
    huge: bool,
    /// Allocations given out, and their bytes.
    pub(super) outstanding: u64,
    pub(super) outstanding_bytes: u64,
}

impl Arena {
    pub(super) const fn new(huge: bool) -> Self {
        Self { chunks: Vec::new(), huge, outstanding: 0, outstanding_bytes: 0 }
    }

    /// Bytes of it in huge pages that the device reaches.
    pub(super) fn huge_bytes(&self) -> u64 {
        self.chunks.iter().filter(|c| c.huge && c.reached).map(|c| c.pages.len() as u64).sum()
    }

    /// Zeroed memory of this size and alignment.
    ///
    /// # Errors
    /// How many bytes were to be mapped, and what the system answered; ENOMEM too for more alignment than chunks have.
    pub(super) fn alloc(&mut self, domain: &mut Domain, size: usize, align: usize) -> Result<DmaMem, (usize, Errno)> {
        let whole = size.max(1).checked_next_multiple_of(LINE).ok_or((size, Errno::NOMEM))?;
        let found = self.chunks.iter_mut().find_map(|chunk| chunk.take(whole, align));
        let (ptr, iova) = match found {
            Some(place) => place,
            None => self.grow(domain, whole)?.take(whole, align).ok_or((size, Errno::NOMEM))?,
        };
        self.outstanding += 1;
        self.outstanding_bytes += size as u64;
        // SAFETY: it lies in mapped pages, aligned to a line at least, nobody else has it, and the device reaches the same bytes
        // there; the pages stay as long as some of them is given out.
        Ok(unsafe { DmaMem::new(ptr, iova, size) })
    }

    /// Makes a first chunk.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub(super) fn prepare(&mut self, domain: &mut Domain) -> Result<(), (usize, Errno)> {
        self.grow(domain, HUGE).map(|_| ())
    }

    /// One more chunk, with room for `size` bytes.
    fn grow(&mut self, domain: &mut Domain, size: usize) -> Result<&mut Chunk, (usize, Errno)> {
        let len = size.checked_next_multiple_of(HUGE.max(domain.granule())).ok_or((size, Errno::NOMEM))?;
        let chunk = match self.huge.then(|| chunk(domain, len, true)) {
            Some(Ok(chunk)) => chunk,
            // No huge pages, or too few: smaller ones do as well, only slower.
            _ => chunk(domain, len, false).map_err(|errno| (len, errno))?,
        };
        self.chunks.push(chunk);
        self.chunks.last_mut().ok_or((len, Errno::NOMEM))
    }

    /// Takes memory back. Of the chunks that are empty one is kept.
    pub(super) fn free(&mut self, domain: &mut Domain, mem: &DmaMem) {
        let Some(at) = self.chunks.iter().position(|c| c.mapped.holds(mem.iova())) else { return };
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let (offset, whole) = (mem.iova() - chunk.mapped.iova, mem.size().max(1).next_multiple_of(LINE));
        let range = RangeInclusive::new(offset, offset + whole as u64 - 1);
        if range.is_ok_and(|range| chunk.room.free(&range).is_ok()) {
            chunk.free += whole;
            self.outstanding -= 1;
            self.outstanding_bytes -= mem.size() as u64;
        }
        let empty = self.chunks.get(at).is_some_and(|c| c.is_empty() && c.reached);
        if empty && self.chunks.iter().filter(|c| c.is_empty()).count() > 1 {
            let mut chunk = self.chunks.swap_remove(at);
            let _ = chunk.withdraw(domain);
            chunk.end();
        }
    }

    /// Takes all of it from the device. The driver may still have some, and gives it back as ever.
    ///
    /// # Errors
    /// The first that the kernel answered.
    pub(super) fn withdraw(&mut self, domain: &mut Domain) -> Result<(), Errno> {
        self.chunks.iter_mut().map(|chunk| chunk.withdraw(domain)).fold(Ok(()), Result::and)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.chunks.drain(..).for_each(Chunk::end);
    }
}

/// A chunk of `len` bytes that the device reaches.
fn chunk(domain: &mut Domain, len: usize, huge: bool) -> Result<Chunk, Errno> {
    let pages = Pages::new(len, huge)?;
    let room = AddressAllocator::new(0, len as u64).map_err(|_| Errno::NOMEM)?;
    // SAFETY: the chunk owns both, and gives the pages back only after they are unmapped.
    let mapped = unsafe { domain.map(pages.ptr(), len) }?;
    Ok(Chunk { pages, mapped, reached: true, huge, room, free: len })
}
