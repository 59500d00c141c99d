//! The machine as Linux shows it: which functions there are, who holds them, and what stands in the way of opening one.

mod bdf;
mod obstacle;

use std::path::{Path, PathBuf};

pub use bdf::Bdf;
pub use obstacle::{Member, Obstacle};

/// Where Linux shows its devices. The default is this machine; tests make one of plain folders.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        Self::at("/")
    }
}

impl Host {
    /// A machine whose `/sys`, `/dev`, `/proc` and `/run` lie in this folder.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A file of it, such as `sys/bus/pci/devices`.
    pub fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.root.join(below)
    }
}
