//! The init segment: the registers at the start of BAR 0.

use crate::device::Device;

impl Device {
    /// Reads the big-endian dword at `offset`.
    pub(crate) fn init_segment_read(&mut self, offset: usize) -> u32 {
        let _ = offset;
        0
    }

    /// Writes the big-endian dword at `offset`.
    pub(crate) fn init_segment_write(&mut self, offset: usize, value: u32) {
        let _ = (offset, value);
    }
}
