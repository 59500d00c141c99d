//! Taking single orderings away, so that a test can show that each is needed.

extern crate std;

use core::cell::{Cell, RefCell};
use core::panic::Location;
use core::sync::atomic::Ordering::{self, Relaxed};
use std::collections::BTreeSet;
use std::thread_local;

/// A place in the sources that asks for an ordering.
pub type Site = &'static Location<'static>;

// loom runs all threads of a model on the thread that checks it.
thread_local! {
    static SEEN: RefCell<BTreeSet<Site>> = const { RefCell::new(BTreeSet::new()) };
    static AWAY: Cell<Option<Site>> = const { Cell::new(None) };
}

/// The places that asked for an ordering on this thread so far.
pub fn seen() -> BTreeSet<Site> {
    SEEN.with_borrow(Clone::clone)
}

/// On this thread, `site` gets no ordering from now on.
pub fn take_away(site: Site) {
    AWAY.set(Some(site));
}

/// The ordering that the caller gets instead of the one it asks for.
#[track_caller]
pub fn granted(ordering: Ordering) -> Ordering {
    if ordering == Relaxed {
        return Relaxed;
    }
    let site = Location::caller();
    SEEN.with_borrow_mut(|seen| seen.insert(site));
    if AWAY.get() == Some(site) { Relaxed } else { ordering }
}

/// A fence, or nothing where it was taken away.
#[track_caller]
pub fn fence(ordering: Ordering) {
    match granted(ordering) {
        Relaxed => {}
        ordering => loom::sync::atomic::fence(ordering),
    }
}
