//! Page tables: `entry` maps the first 4 GiB where they are; here a BAR gets the attributes that registers need.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

/// A page table, or several one behind the other.
#[repr(C, align(4096))]
pub struct Tables<const N: usize>(UnsafeCell<[[u64; 512]; N]>);

// SAFETY: written by `entry` before there is any Rust code, then by `map_registers` only, which one processor runs.
unsafe impl<const N: usize> Sync for Tables<N> {}

impl<const N: usize> Tables<N> {
    const fn new() -> Self {
        Self(UnsafeCell::new([[0; 512]; N]))
    }
}

/// The top table: an entry for 512 GiB.
pub static TOP: Tables<1> = Tables::new();
/// The table below its first entry: an entry for 1 GiB.
pub static SECOND: Tables<1> = Tables::new();
/// The tables below its first four entries: an entry for 2 MiB.
pub static DIRECTORIES: Tables<4> = Tables::new();

const SPARE: usize = 12;
/// Tables for BARs beyond 4 GiB.
static SPARES: Tables<SPARE> = Tables::new();
static SPARES_USED: AtomicUsize = AtomicUsize::new(0);

const PAGE: u64 = 2 << 20;
const PRESENT_WRITABLE: u64 = 0b11;
/// Entry 3 of the PAT, which is "uncacheable" from power-on: it holds whatever the MTRRs say about the range, so a BAR is
/// uncached also where firmware described only the hole below 4 GiB.
const UNCACHED: u64 = 1 << 3 | 1 << 4;
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// The end of what lies in the lower half of the address space.
const END: u64 = 1 << 47;

/// Maps physical memory where it is, uncached, in whole pages of 2 MiB. `None` when it lies too high, or no table is left.
///
/// What else lies in the first and the last page becomes uncached too. Those are registers as well: firmware puts BARs
/// where there is no memory.
pub fn map_registers(address: u64, size: u64) -> Option<NonNull<u8>> {
    let end = address.checked_add(size).filter(|end| *end <= END)?;
    for page in (address / PAGE * PAGE..end).step_by(PAGE as usize) {
        let top = TOP.0.get().cast::<u64>();
        let second = below(top, page >> 39)?;
        let directory = below(second, page >> 30)?;
        // SAFETY: one of the 512 entries of a table. The page was mapped with other attributes or not at all, and nobody
        // refers to what is in it; the entry takes effect with `invlpg`.
        unsafe {
            directory.add((page >> 21) as usize % 512).write_volatile(page | LARGE | UNCACHED | PRESENT_WRITABLE);
            asm!("invlpg [{}]", in(reg) page, options(nostack, preserves_flags));
        }
    }
    NonNull::new(core::ptr::with_exposed_provenance_mut(address as usize))
}

/// The table that entry `index` (modulo 512) of `table` names; a spare one becomes it where there is none.
fn below(table: *mut u64, index: u64) -> Option<*mut u64> {
    let entry = table.wrapping_add(index as usize % 512);
    // SAFETY: one of the 512 entries of a table.
    let value = unsafe { entry.read_volatile() };
    if value & PRESENT_WRITABLE != 0 {
        return Some(core::ptr::with_exposed_provenance_mut((value & ADDRESS) as usize));
    }
    let used = SPARES_USED.fetch_add(1, Ordering::Relaxed);
    let fresh = SPARES.0.get().cast::<[u64; 512]>().wrapping_add(used).cast::<u64>();
    if used >= SPARE {
        return None;
    }
    // SAFETY: as above. The new table is zero: nothing is mapped below it yet. Addresses are physical ones here.
    unsafe { entry.write_volatile(fresh.expose_provenance() as u64 | PRESENT_WRITABLE) };
    Some(fresh)
}
