//! Pages that firmware keeps its own state in.
//!
//! While firmware has a page it is filled with a pattern, and checked when firmware uses it or gives it back: a driver
//! that writes into it is found out.

use std::collections::BTreeMap;

use crate::device::Device;
use crate::dma::DmaFault;
use crate::eq::{self, Event, event};
use crate::iseg::syndrome;
use crate::violation::ViolationKind;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// The pages that firmware has.
#[derive(Default)]
pub(crate) struct Pages {
    /// Device address, and the pattern it is filled with.
    owned: BTreeMap<u64, u64>,
    /// Pages asked for by events beyond the boot and init pages; less than 0 after pages were offered back.
    extra: i64,
}

impl Pages {
    pub(crate) fn count(&self) -> usize {
        self.owned.len()
    }

    pub(crate) fn has(&self, page: u64) -> bool {
        self.owned.contains_key(&page)
    }

    /// Whether firmware has any of `len` bytes at device address `start`.
    pub(crate) fn owns(&self, start: u64, len: u64) -> bool {
        let from = start.saturating_sub(PAGE as u64 - 1);
        self.owned.range(from..start.saturating_add(len)).next().is_some()
    }

    /// Forgets all pages: a reset.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Pages still missing to hold `wanted` in all.
    pub(crate) fn missing(&self, wanted: u32) -> u32 {
        wanted.saturating_sub(self.owned.len() as u32)
    }

    /// Pages asked for by events and still missing, or offered back when negative; `base` are the boot and init pages.
    pub(crate) fn extra_missing(&self, base: u32) -> i64 {
        i64::from(base) + self.extra - self.owned.len() as i64
    }

    /// Pages that firmware can do without while it needs `base` boot and init pages.
    pub(crate) fn spare(&self, base: u32) -> usize {
        usize::try_from(-self.extra_missing(base)).unwrap_or(0)
    }
}

impl Device {
    /// Boot and init pages.
    pub(crate) fn base_pages(&self) -> u32 {
        self.config.boot_pages + self.config.init_pages
    }

    /// Firmware asks for `pages` pages by an event, or offers some back. Returns whether anyone listens.
    pub(crate) fn request_pages(&mut self, pages: i32) -> bool {
        let heard = eq::subscriber(self, event::PAGE_REQUEST).is_some();
        if heard {
            self.pages.extra += i64::from(pages);
            eq::report(self, Event::page_request(pages));
        }
        heard
    }

    /// The driver cannot give what was asked for.
    pub(crate) fn pages_refused(&mut self) {
        let base = i64::from(self.base_pages());
        self.pages.extra = self.pages.extra.min(self.pages.owned.len() as i64 - base);
    }

    /// Takes a page into use.
    pub(crate) fn page_given(&mut self, page: u64) {
        let pattern = self.random();
        self.pages.owned.insert(page, pattern);
        self.gained();
        // A fault here has been recorded; the page counts as given.
        let _ = self.dma_write("firmware page", page, &fill(pattern));
    }

    /// Gives up to `count` pages back, in no particular order.
    pub(crate) fn pages_taken(&mut self, count: usize) -> Vec<u64> {
        let mut taken = Vec::new();
        while taken.len() < count && !self.pages.owned.is_empty() {
            let index = self.random() as usize % self.pages.owned.len();
            let Some(page) = self.pages.owned.keys().nth(index).copied() else { break };
            // A page that cannot be read is given back all the same.
            let _ = self.check_page(page);
            self.pages.owned.remove(&page);
            taken.push(page);
        }
        taken
    }

    /// Firmware uses its pages: all of them must be as it left them.
    pub(crate) fn check_pages(&mut self) {
        let pages: Vec<u64> = self.pages.owned.keys().copied().collect();
        // One that cannot be read is enough.
        let _ = pages.into_iter().try_for_each(|page| self.check_page(page));
    }

    /// Whether a page can be read; the health buffer says so if not.
    fn check_page(&mut self, page: u64) -> Result<(), DmaFault> {
        let Some(pattern) = self.pages.owned.get(&page).copied() else { return Ok(()) };
        let mut found = [0; PAGE];
        if let Err(fault) = self.dma_read("firmware page", page, &mut found) {
            self.iseg.fall_ill(syndrome::FETCH_PCI_ERROR);
            return Err(fault);
        }
        let wanted = fill(pattern);
        if let Some(at) = (0..PAGE).find(|i| found[*i] != wanted[*i]) {
            self.violate(ViolationKind::PageTouched, format!("byte {at:#x} of the page at {page:#x}"));
            // Once is enough.
            let _ = self.dma_write("firmware page", page, &wanted);
        }
        Ok(())
    }
}

fn fill(pattern: u64) -> [u8; PAGE] {
    let bytes = pattern.to_be_bytes();
    std::array::from_fn(|i| bytes[i % 8] ^ (i / 8) as u8)
}
