//! What `src/sync.rs` is in the driver: the same names, with orderings that a test can take away.
//!
//! Who loads with `Relaxed` in the table excludes all who store: it holds the lock, is the only one who stores, or has the table
//! for itself. Loom checks that when such a load is one without synchronisation. (As an atomic one it would also be in the
//! way: loom 0.7 does not try the orders of a store and another thread's load, if the storing thread has loaded in between.)

pub(crate) use loom::sync::Arc;
use loom::sync::atomic;
pub(crate) use mlx5_hw::sync::Ordering;
use mlx5_hw::sync::granted;

pub(crate) struct AtomicPtr<T>(atomic::AtomicPtr<T>);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self(atomic::AtomicPtr::default())
    }
}

impl<T> AtomicPtr<T> {
    #[track_caller]
    pub(crate) fn load(&self, ordering: Ordering) -> *mut T {
        match ordering {
            // SAFETY: loom panics if a store is not ordered with it.
            Ordering::Relaxed => unsafe { self.0.unsync_load() },
            _ => self.0.load(granted(ordering)),
        }
    }

    #[track_caller]
    pub(crate) fn store(&self, value: *mut T, ordering: Ordering) {
        self.0.store(value, granted(ordering));
    }
}

#[derive(Default)]
pub(crate) struct AtomicU64(atomic::AtomicU64);

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        Self(atomic::AtomicU64::new(value))
    }

    #[track_caller]
    pub(crate) fn load(&self, ordering: Ordering) -> u64 {
        match ordering {
            // SAFETY: loom panics if a store is not ordered with it.
            Ordering::Relaxed => unsafe { self.0.unsync_load() },
            _ => self.0.load(granted(ordering)),
        }
    }

    #[track_caller]
    pub(crate) fn store(&self, value: u64, ordering: Ordering) {
        self.0.store(value, granted(ordering));
    }
}

/// Unlike the ones above: who loads with `Relaxed` looks ahead, and looks again.
#[derive(Debug, Default)]
pub(crate) struct AtomicU32(atomic::AtomicU32);

macro_rules! changes {
    ($kind:ident of $number:ident: $($name:ident),*) => {
        impl $kind {$(
            #[track_caller]
            pub(crate) fn $name(&self, value: $number, ordering: Ordering) -> $number {
                // Where a model fails, what is dropped finds loom gone.
                if std::thread::panicking() {
                    return 0;
                }
                self.0.$name(value, granted(ordering))
            }
        )*}
    };
}
changes!(AtomicU32 of u32: fetch_add, fetch_sub, fetch_or, fetch_and, swap);
changes!(AtomicU64 of u64: fetch_add, fetch_or, fetch_and);

impl AtomicU32 {
    pub(crate) fn new(value: u32) -> Self {
        Self(atomic::AtomicU32::new(value))
    }

    #[track_caller]
    pub(crate) fn store(&self, value: u32, ordering: Ordering) {
        self.0.store(value, granted(ordering));
    }

    #[track_caller]
    pub(crate) fn compare_exchange(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.0.compare_exchange(current, new, granted(success), granted(failure))
    }

    #[track_caller]
    pub(crate) fn load(&self, ordering: Ordering) -> u32 {
        self.0.load(granted(ordering))
    }
}

pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}
