//! The files that hold a client's memory. Each is mapped once, however many ranges lie in it: behind an IOMMU a client
//! sends thousands.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

/// Files that are kept mapped without a range in them, at most.
const KEPT: usize = 16;

/// A whole file in memory.
struct FileMap {
    map: MmapRaw,
    writable: bool,
}

/// The files by device and inode number. A file that is mapped stays, so its numbers are not given to another.
#[derive(Default)]
pub(super) struct Files {
    known: BTreeMap<(u64, u64), Arc<FileMap>>,
}

/// The first byte, and what keeps it mapped.
type Memory = (NonNull<u8>, Arc<dyn Any + Send + Sync>);

impl Files {
    /// `len` bytes of a file from `offset` on; `None` for a file that is not memory, such as registers of another device.
    pub(super) fn memory(&mut self, file: &File, offset: u64, len: u64, write: bool) -> io::Result<Option<Memory>> {
        let about = file.metadata()?;
        if !about.file_type().is_file() {
            return Ok(None);
        }
        let end = offset.checked_add(len).filter(|end| *end <= about.len());
        let end =
            end.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a range beyond the end of its file"))?;
        if len == 0 {
            return Ok(None);
        }
        let id = (about.dev(), about.ino());
        let fits = |known: &&Arc<FileMap>| known.map.len() as u64 >= end && (known.writable || !write);
        let whole = match self.known.get(&id).filter(fits) {
            Some(known) => known.clone(),
            None => self.add(id, file, about.len())?,
        };
        if write && !whole.writable {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        let at = whole.map.as_mut_ptr().wrapping_add(offset as usize);
        Ok(NonNull::new(at).map(|ptr| (ptr, whole as Arc<dyn Any + Send + Sync>)))
    }

    fn add(&mut self, id: (u64, u64), file: &File, len: u64) -> io::Result<Arc<FileMap>> {
        let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let mut options = MmapOptions::new();
        let options = options.len(len);
        let whole = match options.map_raw(file) {
            Ok(map) => FileMap { map, writable: true },
            Err(_) => FileMap { map: options.map_raw_read_only(file)?, writable: false },
        };
        if self.known.len() >= KEPT {
            self.known.retain(|_, known| Arc::strong_count(known) > 1);
        }
        let whole = Arc::new(whole);
        self.known.insert(id, whole.clone());
        Ok(whole)
    }
}
