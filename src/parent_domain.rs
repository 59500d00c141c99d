//! Parent domains: a protection domain together with the caller's own memory for queues.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use mlx5_hw::platform::{DmaMem, PlatformError};

use crate::device::{Device, DeviceInner};
use crate::dv::ResourceType;
use crate::error::{Error, Returned};
use crate::pd::{Member, Pd};

/// Gives queues their memory (`alloc` and `free` of `struct ibv_parent_domain_init_attr`; `ibv_alloc_parent_domain(3)`).
///
/// The driver calls it while an object is created or ends, holding no lock. What `pd_context` is in C are the implementation's
/// own fields.
///
/// # Safety
/// The driver lets the device write to what [`alloc`](Self::alloc) hands out: it is as [`DmaMem::new`] asks, belongs to the
/// driver alone until it comes back through [`free`](Self::free), and stays reachable for the device at its I/O address until
/// then, however long that takes, even when all other references to the allocator are gone.
pub unsafe trait QueueAllocator: Send + Sync {
    /// Allocates at least `size` bytes, aligned to `align` for both CPU and device, contiguous in I/O addresses, coherent
    /// with the device, and not at I/O address 0. It need not be zeroed. `None` leaves it to the platform
    /// (`IBV_ALLOCATOR_USE_DEFAULT`).
    ///
    /// # Errors
    /// [`PlatformError::NoMemory`] and others: creating the object then fails with the same. (In C, a null pointer.)
    fn alloc(&self, size: usize, align: usize, resource: ResourceType) -> Result<Option<DmaMem>, PlatformError>;

    /// Takes memory back, once for each that [`alloc`](Self::alloc) handed out: when the object has ended on the device, or a
    /// reset of the function has ended what a failed destruction had left to it. If neither happens it is never called.
    ///
    /// # Safety
    /// `mem` came from this allocator's `alloc` for `resource`, nothing refers to it, and the device no longer reads or
    /// writes it.
    unsafe fn free(&self, mem: DmaMem, resource: ResourceType);
}

/// How to make a parent domain (`struct ibv_parent_domain_init_attr`; `ibv_alloc_parent_domain(3)`).
///
/// There is no thread domain: what it would spare, locks, is not there.
#[derive(Clone, Default)]
pub struct ParentDomainInitAttr<'a> {
    /// The protection domain; must be given.
    pub pd: Option<&'a Pd>,
    /// Where queues get their memory from; without one, from the platform.
    pub allocator: Option<Arc<dyn QueueAllocator>>,
}

impl fmt::Debug for ParentDomainInitAttr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_allocator = self.allocator.is_some();
        f.debug_struct("ParentDomainInitAttr").field("pd", &self.pd).field("allocator", &has_allocator).finish()
    }
}

/// What a parent domain and the objects in it share.
struct Shared {
    pd: Member,
    allocator: Option<Arc<dyn QueueAllocator>>,
    members: AtomicU32,
}

/// Membership of an object in a parent domain.
pub(crate) struct DomainMember(Arc<Shared>);

impl DomainMember {
    pub(crate) fn allocator(&self) -> Option<&Arc<dyn QueueAllocator>> {
        self.0.allocator.as_ref()
    }
}

impl Drop for DomainMember {
    fn drop(&mut self) {
        self.0.members.fetch_sub(1, Ordering::Release);
    }
}

/// A protection domain together with the caller's own memory for queues (`ibv_alloc_parent_domain(3)`).
///
/// CQs take it; queue pairs and memory regions take the protection domain itself. Dropping it while CQs are in it keeps what
/// they need.
pub struct ParentDomain {
    shared: Arc<Shared>,
}

impl Device {
    /// Makes a parent domain (`ibv_alloc_parent_domain(3)`).
    ///
    /// # Errors
    /// `Invalid` (EINVAL) without a protection domain, or with one of another device.
    pub fn alloc_parent_domain(&self, attr: &ParentDomainInitAttr<'_>) -> Result<ParentDomain, Error> {
        let Some(pd) = attr.pd else { return Err(Error::Invalid { what: "no protection domain is given" }) };
        if !Arc::ptr_eq(pd.shared().dev(), self.inner()) {
            return Err(Error::Invalid { what: "a protection domain of another device" });
        }
        let shared = Shared { pd: pd.join(), allocator: attr.allocator.clone(), members: AtomicU32::new(0) };
        Ok(ParentDomain { shared: Arc::new(shared) })
    }
}

impl ParentDomain {
    /// Ends the parent domain (`ibv_dealloc_pd(3)`). Its protection domain lives on.
    ///
    /// # Errors
    /// It comes back, usable as before: `Busy` (EBUSY) while CQs are in it.
    pub fn dealloc(self) -> Result<(), Returned<Self>> {
        match self.shared.members.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(Returned::new(self, Error::Busy)),
        }
    }

    pub(crate) fn dev(&self) -> &Arc<DeviceInner> {
        self.shared.pd.pd().dev()
    }

    pub(crate) fn allocator(&self) -> Option<&Arc<dyn QueueAllocator>> {
        self.shared.allocator.as_ref()
    }

    /// Takes an object in.
    pub(crate) fn join(&self) -> DomainMember {
        self.shared.members.fetch_add(1, Ordering::Relaxed);
        DomainMember(self.shared.clone())
    }
}

impl fmt::Debug for ParentDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParentDomain").field("pdn", &self.shared.pd.pd().pdn()).finish_non_exhaustive()
    }
}
