//! What stands in the way of opening a function, each with its cure in a line.

use std::fmt;
use std::path::PathBuf;

use super::Bdf;

/// A function of an IOMMU group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which.
    pub bdf: Bdf,
    /// The driver that holds it.
    pub driver: Option<String>,
}

/// Why a function cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// There is no such function.
    NoSuchFunction {
        /// The address asked for.
        bdf: Bdf,
    },
    /// It is not one that this driver knows: another vendor, or another device of this one.
    WrongId {
        /// The function.
        bdf: Bdf,
        /// Its vendor id.
        vendor: u16,
        /// Its device id.
        device: u16,
    },
    /// The kernel has no VFIO, or its modules are not loaded.
    NoVfio {
        /// The file that is missing.
        path: PathBuf,
    },
    /// No IOMMU stands between the function and memory.
    NoIommu {
        /// The function.
        bdf: Bdf,
    },
    /// Another driver than vfio-pci holds it, or none.
    NotBound {
        /// The function.
        bdf: Bdf,
        /// The driver that holds it.
        driver: Option<String>,
    },
    /// Other functions of its group are held by drivers of the kernel, so the group is not given away.
    GroupNotViable {
        /// The group.
        group: u32,
        /// Those functions.
        culprits: Vec<Member>,
    },
    /// Another process has the function's group open.
    Busy {
        /// The function.
        bdf: Bdf,
        /// Its group.
        group: u32,
    },
    /// The user may not open a file.
    Permission {
        /// Which.
        path: PathBuf,
    },
    /// The process may not lock as much memory as is needed.
    LockedMemory {
        /// How much it may lock, in bytes.
        limit: u64,
        /// How much it has locked and wants, in bytes, together.
        wanted: u64,
    },
    /// BAR 0 cannot be mapped.
    BarNotMappable {
        /// The function.
        bdf: Bdf,
        /// Why.
        why: &'static str,
    },
    /// The function cannot be reset, without which nothing is known of what it still does.
    NoReset {
        /// The function.
        bdf: Bdf,
    },
    /// It could be reset, and the reset failed.
    ResetFailed {
        /// The function.
        bdf: Bdf,
        /// What the kernel answered.
        errno: i32,
    },
    /// It does not answer: its registers read as all ones. It is in reset, without power, or gone.
    Dead {
        /// The function.
        bdf: Bdf,
    },
    /// The function has fewer interrupt vectors than asked for.
    TooFewVectors {
        /// The function.
        bdf: Bdf,
        /// How many it has.
        has: u32,
        /// How many are asked for.
        wanted: u32,
    },
    /// The system refused something else.
    System {
        /// What was tried.
        what: String,
        /// What it answered.
        errno: i32,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Obstacle {}
