//! The firmware's memory: pages given to it, and who has which.
//!
//! Each page is booked under its address and function from before it is offered until the firmware has returned it.
//! What the firmware returns is looked up there: an address that it was not given, or has returned before, is counted
//! and otherwise ignored, so no page is freed twice or while the firmware has it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};

use mlx5_hw::cmd::{CannotGivePages, GivePages, Opcode, PagesStage, QueryPages, TakePages};
use spin::Mutex;

use crate::device::Control;
use crate::dma::DmaRegion;
use crate::error::{Error, WaitingFor};

/// Most pages named in one command, as in Linux.
const BATCH: usize = 768;
/// Pages asked back when there is no memory for the answer of a full batch: one mailbox names them, and one is in use again.
const SMALL_BATCH: usize = 64;
/// Page requests kept for later; a firmware that asks for more without being answered is not served.
const MAX_REQUESTS: usize = 64;

/// What became of the firmware's page requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageCounters {
    /// Pages the firmware has now.
    pub given: u64,
    /// Page requests served.
    pub requests: u64,
    /// Page requests refused: no memory, or more than [`max_pages`](crate::DeviceConfig::max_pages).
    pub refused: u64,
    /// Page requests that failed, made no sense or were too many to remember.
    pub failed: u64,
    /// Addresses the firmware returned although it was not given them, or had returned them before.
    pub unknown: u64,
}

struct Page {
    function: u16,
    memory: DmaRegion,
}

#[derive(Default)]
struct Book {
    given: BTreeMap<u64, Page>,
    requests: VecDeque<(u16, i32)>,
    counters: PageCounters,
}

/// The pages of a device's firmware.
#[derive(Default)]
pub(crate) struct Pages {
    book: Mutex<Book>,
    serving: AtomicBool,
}

impl Pages {
    pub(crate) fn counters(&self) -> PageCounters {
        let book = self.book.lock();
        PageCounters { given: book.given.len() as u64, ..book.counters }
    }

    /// Gives what the firmware asks for at a stage of the bring-up.
    ///
    /// # Errors
    /// `Protocol` for a negative number, `Invalid` for more than the user allows, `NoPages` for more than the platform has,
    /// and those of the commands.
    pub(crate) fn satisfy(&self, control: &Control, stage: PagesStage) -> Result<(), Error> {
        let wanted = control.exec(&QueryPages { stage })?;
        match u32::try_from(wanted.num_pages) {
            Err(_) => Err(Error::Protocol { what: "QUERY_PAGES asked for a negative number of pages" }),
            Ok(n) if !self.allowed(control, n) => {
                Err(Error::Invalid { what: "max_pages is less than the firmware asks for" })
            }
            Ok(n) => match self.give(control, wanted.func_id, n, u64::MAX) {
                Err(Error::NoMemory) => Err(Error::NoPages { count: n }),
                other => other,
            },
        }
    }

    fn allowed(&self, control: &Control, more: u32) -> bool {
        self.book.lock().given.len() as u64 + u64::from(more) <= u64::from(control.config.max_pages)
    }

    /// Gives `count` pages to a function. What is left at the time `until` is kept for later as a request.
    fn give(&self, control: &Control, function: u16, count: u32, until: u64) -> Result<(), Error> {
        let mut left = count as usize;
        while left > 0 {
            if control.port.platform().now() >= until {
                self.request(function, i32::try_from(left).unwrap_or(i32::MAX));
                return Ok(());
            }
            let batch = left.min(BATCH);
            left -= batch;
            let result = self.give_batch(control, function, batch, until);
            if left > 0 && matches!(result, Err(Error::Timeout { .. })) {
                // The firmware may take the batch yet, and then waits for the others.
                self.request(function, i32::try_from(left).unwrap_or(i32::MAX));
            }
            result?;
        }
        Ok(())
    }

    fn give_batch(&self, control: &Control, function: u16, count: usize, until: u64) -> Result<(), Error> {
        let mut fresh = Vec::with_capacity(count);
        for _ in 0..count {
            fresh.push(control.port.alloc(4096, 4096)?);
        }
        let addresses: Vec<u64> = fresh.iter().map(DmaRegion::iova).collect();
        {
            let mut book = self.book.lock();
            for mut memory in fresh {
                memory.lend("page of the firmware");
                book.given.insert(memory.iova(), Page { function, memory });
            }
        }
        let result = control.exec_pages(until, &GivePages { func_id: function, pages: &addresses });
        if result.is_err_and(Error::refused) {
            self.strike(function, addresses.iter().copied());
        }
        result
    }

    /// Takes pages that the firmware no longer has out of the book and frees them; tells how many were in it.
    fn strike(&self, function: u16, addresses: impl Iterator<Item = u64>) -> usize {
        let mut freed = Vec::new();
        let mut book = self.book.lock();
        for address in addresses {
            match book.given.remove(&address) {
                Some(mut page) if page.function == function => {
                    page.memory.reclaim();
                    freed.push(page);
                }
                other => {
                    book.counters.unknown += 1;
                    if let Some(page) = other {
                        book.given.insert(address, page);
                    }
                }
            }
        }
        drop(book);
        freed.len()
    }

    /// Asks a function for at most `count` pages back; tells how many came.
    fn take(&self, control: &Control, function: u16, count: usize, until: u64) -> Result<usize, Error> {
        match self.take_batch(control, function, count, until) {
            Err(error) if error.of_memory() && count > SMALL_BATCH => {
                self.take_batch(control, function, SMALL_BATCH, until)
            }
            other => other,
        }
    }

    fn take_batch(&self, control: &Control, function: u16, count: usize, until: u64) -> Result<usize, Error> {
        let cells = vec![Cell::new(0); count.min(BATCH)];
        let returned = control.exec_pages(until, &TakePages { func_id: function, pages: &cells })? as usize;
        let known = self.strike(function, cells.iter().take(returned).map(Cell::get));
        if returned > cells.len() {
            return Err(Error::Protocol { what: "MANAGE_PAGES returned more pages than asked for" });
        }
        Ok(known)
    }

    /// Asks for all pages back, until none is left.
    ///
    /// # Errors
    /// `Timeout` if the firmware keeps some, and those of the command.
    pub(crate) fn reclaim(&self, control: &Control) -> Result<(), Error> {
        let mut deadline = control.deadline(control.config.timeouts.pages);
        loop {
            let (function, count) = {
                let book = self.book.lock();
                let Some(first) = book.given.values().next() else { return Ok(()) };
                let function = first.function;
                (function, book.given.values().filter(|p| p.function == function).count())
            };
            // Linux always asks for a full batch's worth.
            let took = self.take(control, function, BATCH, u64::MAX)?;
            if took >= count {
                continue;
            }
            if took > 0 {
                deadline = control.deadline(control.config.timeouts.pages);
            } else if control.port.platform().now() >= deadline {
                return Err(Error::Timeout { opcode: Opcode::MANAGE_PAGES, waiting_for: WaitingFor::Pages });
            }
            control.pause();
        }
    }

    /// Leaves to the ledger what the firmware has not returned.
    pub(crate) fn abandon(&self) {
        let mut book = self.book.lock();
        book.requests.clear();
        let kept = core::mem::take(&mut book.given);
        drop(book);
        drop(kept);
    }

    /// A page request event: `pages` more, or so many back if negative. Served by [`serve`](Self::serve).
    pub(crate) fn request(&self, function: u16, pages: i32) {
        let mut book = self.book.lock();
        if let Some((_, sum)) = book.requests.iter_mut().find(|(f, sum)| *f == function && (*sum < 0) == (pages < 0)) {
            *sum = sum.saturating_add(pages);
        } else if book.requests.len() < MAX_REQUESTS {
            book.requests.push_back((function, pages));
        } else {
            book.counters.failed += 1;
        }
    }

    /// Serves the page requests that have come, until the time `until`; what is left then is for the next call. Does
    /// nothing while another thread is at it, or while the firmware has not answered the page command before.
    pub(crate) fn serve(&self, control: &Control, until: u64) {
        if self.book.lock().requests.is_empty() || !control.queue.page_slot_free() {
            return;
        }
        if self.serving.swap(true, Ordering::Acquire) {
            return;
        }
        let _guard = Serving(&self.serving);
        // Requests that come meanwhile wait for the next call: a firmware that never stops asking stops nobody.
        let waiting = self.book.lock().requests.len();
        for _ in 0..waiting {
            if control.port.platform().now() >= until || !control.queue.page_slot_free() {
                return;
            }
            let Some((function, pages)) = self.book.lock().requests.pop_front() else { return };
            let result = self.answer(control, function, pages, until);
            let mut book = self.book.lock();
            match result {
                Ok(()) => book.counters.requests += 1,
                Err(error) if error.of_memory() => book.counters.refused += 1,
                Err(_) => book.counters.failed += 1,
            }
        }
    }

    fn answer(&self, control: &Control, function: u16, pages: i32, until: u64) -> Result<(), Error> {
        if pages < 0 {
            let mut left = pages.unsigned_abs() as usize;
            let given = self.book.lock().given.values().filter(|p| p.function == function).count();
            left = left.min(given);
            while left > 0 {
                if control.port.platform().now() >= until {
                    self.request(function, i32::try_from(left).map_or(i32::MIN, |n| -n));
                    return Ok(());
                }
                let took = self.take(control, function, left, until)?;
                if took == 0 {
                    return Err(Error::Protocol { what: "MANAGE_PAGES returned none of the pages offered" });
                }
                left = left.saturating_sub(took);
            }
            return Ok(());
        }
        let wanted = pages.unsigned_abs();
        let result = match self.allowed(control, wanted) {
            true => self.give(control, function, wanted, until),
            false => Err(Error::NoMemory),
        };
        if result.is_err_and(Error::of_memory) {
            control.exec_pages(until, &CannotGivePages { func_id: function })?;
        }
        result
    }
}

struct Serving<'a>(&'a AtomicBool);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn only_pages_that_were_given_and_only_once_are_freed() {
        let (fake, port) = Fake::port();
        let pages = Pages::default();
        let mut addresses = Vec::new();
        for function in [0, 0, 7] {
            let mut memory = port.alloc(4096, 4096).unwrap();
            memory.lend("page of the firmware");
            addresses.push(memory.iova());
            pages.book.lock().given.insert(memory.iova(), Page { function, memory });
        }
        let [first, second, other] = addresses[..] else { panic!("three pages") };
        let returned = [first, first, 0, u64::MAX, second + 1, other];
        assert_eq!(pages.strike(0, returned.into_iter()), 1);
        assert_eq!((pages.counters().unknown, pages.counters().given, fake.live()), (5, 2, 2));
        assert_eq!(pages.strike(7, [other].into_iter()), 1);
        assert_eq!(pages.strike(0, [second].into_iter()), 1);
        assert_eq!((fake.live(), port.leaked().len()), (0, 0));
    }

    #[test]
    fn pages_the_firmware_keeps_are_named() {
        let (fake, port) = Fake::port();
        let pages = Pages::default();
        let mut memory = port.alloc(4096, 4096).unwrap();
        memory.lend("page of the firmware");
        pages.book.lock().given.insert(memory.iova(), Page { function: 0, memory });
        pages.abandon();
        assert_eq!(port.leaked().iter().map(|l| l.what).collect::<Vec<_>>(), ["page of the firmware"]);
        assert_eq!(fake.live(), 1);
    }

    #[test]
    fn requests_are_summed_by_function_and_direction_and_bounded() {
        let pages = Pages::default();
        for request in [(0, i32::MAX), (0, 5), (0, i32::MIN), (0, -5), (3, 2), (3, 4)] {
            pages.request(request.0, request.1);
        }
        assert_eq!(pages.book.lock().requests, [(0, i32::MAX), (0, i32::MIN), (3, 6)]);
        (10..1000).for_each(|function| pages.request(function, 1));
        assert_eq!(pages.book.lock().requests.len(), MAX_REQUESTS);
        assert_eq!(pages.counters().failed, 990 - 61);
    }
}
