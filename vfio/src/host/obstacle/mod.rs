//! What stands in the way of opening a function, each with its cure in a line.

mod text;

use std::fmt;
use std::path::PathBuf;

use super::Bdf;

/// A member of an IOMMU group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name in sysfs: the address of a PCI function.
    pub device: String,
    /// The driver that holds it.
    pub driver: Option<String>,
    /// Whether the group can be given away all the same: no driver holds it, or one that does no DMA of its own.
    pub harmless: bool,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.device, self.driver.as_deref().unwrap_or("no driver"))
    }
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// What it runs.
    pub name: String,
    /// It is this one.
    pub own: bool,
}

/// Why a function cannot be opened, or given to VFIO or back. Its text says [`what`](Self::what) is the
/// matter and, after a colon, the [`cure`](Self::cure).
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
    /// VFIO gives it away without an IOMMU (`enable_unsafe_noiommu_mode`), and this driver does not take it: the device could
    /// write to all memory, and the addresses that it was told would not stay right, since locked pages still move.
    NoIommuMode {
        /// The function.
        bdf: Bdf,
    },
    /// The IOMMU does not keep the function's interrupts apart, and VFIO was not told that this is allowed.
    NoInterruptRemapping {
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
        /// Who has it open, as far as this user may see that.
        holders: Vec<Process>,
    },
    /// It is bound, and `/dev` has no node for its group, or for containers.
    NoNode {
        /// The file that is missing.
        path: PathBuf,
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
    /// The kernel uses it as a network device that is switched on.
    NetworkUp {
        /// The function.
        bdf: Bdf,
        /// The network devices.
        netdevs: Vec<String>,
    },
    /// It has virtual functions, which would go with its driver.
    HasVirtualFunctions {
        /// The function.
        bdf: Bdf,
        /// How many.
        vfs: u32,
    },
    /// A driver did not take it.
    DriverRefused {
        /// The function.
        bdf: Bdf,
        /// The driver.
        driver: String,
        /// What the kernel answered; 0: nothing, and the driver does not hold it.
        errno: i32,
    },
    /// What was begun failed, and things could not be put back as they were.
    NotRestored {
        /// The function.
        bdf: Bdf,
        /// What failed first.
        first: Box<Obstacle>,
        /// What failed when it was put back.
        then: Box<Obstacle>,
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
        write!(f, "{}: {}", self.what(), self.cure())
    }
}

impl std::error::Error for Obstacle {}

#[cfg(test)]
mod tests;
