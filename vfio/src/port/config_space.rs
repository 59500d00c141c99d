//! The function's configuration space, as far as the port needs it.

use std::os::fd::BorrowedFd;

use rustix::io::{Errno, pread, pwrite};

const COMMAND: u64 = 0x04;
const REVISION: u64 = 0x08;
const STATUS: u64 = 0x06;
const CAPABILITIES: u64 = 0x34;

const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_MASTER: u16 = 1 << 2;
const STATUS_CAPABILITIES: u16 = 1 << 4;

const CAP_MSIX: u8 = 0x11;
/// Capabilities are 4 bytes each at least, behind the header of 64: a list that is longer runs in circles.
const MOST_CAPABILITIES: usize = (256 - 64) / 4;

/// Where in which BAR the table of MSI-X lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MsixTable {
    pub(super) bar: u8,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Configuration space, through the kernel.
pub(super) struct ConfigSpace<'a> {
    device: BorrowedFd<'a>,
    offset: u64,
}

impl<'a> ConfigSpace<'a> {
    /// That of a device's descriptor whose region of it begins at `offset`.
    pub(super) const fn new(device: BorrowedFd<'a>, offset: u64) -> Self {
        Self { device, offset }
    }

    fn read<const N: usize>(&self, at: u64) -> Result<[u8; N], Errno> {
        let mut bytes = [0; N];
        let got = pread(self.device, &mut bytes, self.offset + at)?;
        if got == N { Ok(bytes) } else { Err(Errno::IO) }
    }

    fn read16(&self, at: u64) -> Result<u16, Errno> {
        self.read(at).map(u16::from_le_bytes)
    }

    /// Vendor and device.
    pub(super) fn ids(&self) -> Result<(u16, u16), Errno> {
        Ok((self.read16(0)?, self.read16(2)?))
    }

    /// Whether the function does not answer. Class and revision are asked for: the kernel makes up vendor and device of virtual
    /// functions itself, and no class is all ones.
    pub(super) fn dead(&self) -> bool {
        self.read(REVISION).is_ok_and(|bytes| bytes == [0xff; 4])
    }

    /// Lets the function answer at its BARs and read and write memory, or takes the latter from it.
    pub(super) fn set_master(&self, on: bool) -> Result<(), Errno> {
        let old = self.read16(COMMAND)?;
        let new = if on { old | COMMAND_MEMORY | COMMAND_MASTER } else { old & !COMMAND_MASTER };
        let put = pwrite(self.device, &new.to_le_bytes(), self.offset + COMMAND)?;
        if put == 2 && self.read16(COMMAND)? == new { Ok(()) } else { Err(Errno::IO) }
    }

    /// The table of MSI-X; `None` for a function without.
    pub(super) fn msix_table(&self) -> Result<Option<MsixTable>, Errno> {
        let mut failed = None;
        let table = find_msix(|at| {
            self.read(u64::from(at)).map(u32::from_le_bytes).unwrap_or_else(|errno| {
                failed = Some(errno);
                0
            })
        });
        failed.map_or(Ok(table), Err)
    }
}

/// Looks for the table of MSI-X in a configuration space that is read by dwords.
fn find_msix(mut dword: impl FnMut(u8) -> u32) -> Option<MsixTable> {
    let status = (dword(STATUS as u8 & !3) >> 16) as u16;
    let mut at = (dword(CAPABILITIES as u8) & 0xfc) as u8;
    for _ in 0..MOST_CAPABILITIES {
        if status & STATUS_CAPABILITIES == 0 || !(0x40..=0xf4).contains(&at) {
            return None;
        }
        let head = dword(at);
        if head as u8 == CAP_MSIX {
            let table = dword(at + 4);
            let entries = u64::from(head >> 16 & 0x7ff) + 1;
            return Some(MsixTable { bar: table as u8 & 7, offset: u64::from(table & !7), bytes: entries * 16 });
        }
        at = (head >> 8) as u8 & 0xfc;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// C-092: memory space and bus mastering are turned on together, before the BAR is touched; the rest stays as it is. A file
    /// plays the device.
    #[test]
    fn memory_space_and_bus_mastering_are_turned_on_and_only_the_latter_off() {
        let file = tempfile::tempfile().unwrap();
        let at = |offset| {
            let mut bytes = [0; 2];
            pread(&file, &mut bytes, offset).unwrap();
            u16::from_le_bytes(bytes)
        };
        pwrite(&file, &[0xb3, 0x15, 0x18, 0x10, 0x00, 0x04, 0x10, 0x00, 0, 0, 0, 2], 0x700).unwrap();
        let config = ConfigSpace::new(file.as_fd(), 0x700);
        assert_eq!((config.ids(), config.dead()), (Ok((0x15b3, 0x1018)), false));
        config.set_master(true).unwrap();
        assert_eq!((at(0x704), at(0x706)), (0x0406, 0x10));
        config.set_master(false).unwrap();
        assert_eq!(at(0x704), 0x0402);
        pwrite(&file, &[0xff; 12], 0x700).unwrap();
        assert!(config.dead());
        assert_eq!(ConfigSpace::new(file.as_fd(), 0x800).ids(), Err(Errno::IO), "nothing is there");
    }

    fn space(dwords: &[(u8, u32)]) -> impl FnMut(u8) -> u32 {
        let dwords = dwords.to_vec();
        move |at| dwords.iter().find(|(a, _)| *a == at).map_or(0, |(_, value)| *value)
    }

    /// The list of a ConnectX: PCI Express, vital product data, MSI-X with 64 entries at 0x2000 of BAR 0, power management.
    #[test]
    fn the_table_of_msix_is_found_behind_other_capabilities() {
        let connectx = [
            (0x04, 0x0010_0006),
            (0x34, 0x60),
            (0x60, 0x0002_4810),
            (0x48, 0x0000_9c03),
            (0x9c, 0x003f_c011),
            (0xa0, 0x0000_2000),
            (0xc0, 0x0003_0001),
        ];
        assert_eq!(find_msix(space(&connectx)), Some(MsixTable { bar: 0, offset: 0x2000, bytes: 1024 }));
        let in_bar_4 = [(0x04, 0x0010_0000), (0x34, 0x40), (0x40, 0x0007_0011), (0x44, 0x0000_3004)];
        assert_eq!(find_msix(space(&in_bar_4)), Some(MsixTable { bar: 4, offset: 0x3000, bytes: 128 }));
    }

    #[test]
    fn a_list_that_ends_lacks_or_runs_in_circles_has_no_table() {
        assert_eq!(find_msix(space(&[(0x04, 0x0010_0000), (0x34, 0x40), (0x40, 0x0001)])), None);
        assert_eq!(find_msix(space(&[(0x34, 0x40), (0x40, 0x11)])), None, "the status says that there is no list");
        assert_eq!(find_msix(space(&[(0x04, 0x0010_0000), (0x34, 0x40), (0x40, 0x4001)])), None, "a circle");
        assert_eq!(find_msix(|_| u32::MAX), None, "a function that is gone");
    }
}
