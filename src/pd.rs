//! Protection domains.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use mlx5_hw::cmd::{AllocPd, DeallocPd};

use crate::device::{Device, DeviceInner, Patience};
use crate::error::{Error, Returned};

/// What a protection domain and the objects in it share; the last of them to go ends it.
pub(crate) struct PdShared {
    dev: Arc<DeviceInner>,
    pdn: u32,
    /// Memory regions and queue pairs in it.
    members: AtomicU32,
    deallocated: AtomicBool,
}

impl PdShared {
    pub(crate) fn dev(&self) -> &Arc<DeviceInner> {
        &self.dev
    }

    pub(crate) fn pdn(&self) -> u32 {
        self.pdn
    }

    fn dealloc(&self, patience: Patience) -> Result<(), Error> {
        if !self.deallocated.load(Ordering::Acquire) {
            self.dev.exec_with(patience, &DeallocPd { pd: self.pdn })?;
            self.deallocated.store(true, Ordering::Release);
        }
        Ok(())
    }
}

impl Drop for PdShared {
    fn drop(&mut self) {
        // A number that can't be given back is lost until the device is closed, and with it nothing else.
        let _ = self.dealloc(Patience::Short);
        self.dev.untrack();
    }
}

/// Membership of an object in a protection domain.
pub(crate) struct Member(Arc<PdShared>);

impl Member {
    pub(crate) fn pd(&self) -> &PdShared {
        &self.0
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.members.fetch_sub(1, Ordering::Release);
    }
}

/// A protection domain (`ibv_alloc_pd(3)`): memory regions and queue pairs work together only within one.
pub struct Pd {
    shared: Arc<PdShared>,
}

impl Device {
    /// Allocates a protection domain (`ibv_alloc_pd(3)`).
    ///
    /// # Errors
    /// What the device answers.
    pub fn alloc_pd(&self) -> Result<Pd, Error> {
        let dev = self.inner().clone();
        let pdn = dev.exec(&AllocPd)?;
        dev.track();
        let (members, deallocated) = (AtomicU32::new(0), AtomicBool::new(false));
        Ok(Pd { shared: Arc::new(PdShared { dev, pdn, members, deallocated }) })
    }
}

impl Pd {
    /// The device's number for the protection domain, 24 bits.
    pub fn pdn(&self) -> u32 {
        self.shared.pdn
    }

    /// Gives the protection domain back (`ibv_dealloc_pd(3)`).
    ///
    /// # Errors
    /// The protection domain comes back, usable as before: `Busy` (EBUSY) while memory regions or queue pairs are in it;
    /// else what the device answers.
    pub fn dealloc(self) -> Result<(), Returned<Self>> {
        if self.shared.members.load(Ordering::Acquire) != 0 {
            return Err(Returned::new(self, Error::Busy));
        }
        match self.shared.dealloc(Patience::Full) {
            Ok(()) => Ok(()),
            Err(error) => Err(Returned::new(self, error)),
        }
    }

    pub(crate) fn shared(&self) -> &PdShared {
        &self.shared
    }

    /// Takes an object in.
    pub(crate) fn join(&self) -> Member {
        self.shared.members.fetch_add(1, Ordering::Relaxed);
        Member(self.shared.clone())
    }
}

impl fmt::Debug for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pd").field("pdn", &self.pdn()).finish_non_exhaustive()
    }
}
