//! The machine as Linux shows it: which functions there are, who holds them, and what stands in the way of opening one.

mod bdf;
pub mod binding;
pub mod check;
mod function;
mod names;
mod obstacle;

use std::path::{Path, PathBuf};

pub use bdf::Bdf;
pub use function::{Function, Group, Netdev};
pub use names::{VENDOR, name};
pub use obstacle::{Member, Obstacle, Process};

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

    /// All mlx5 functions, in the order of their addresses.
    pub fn functions(&self) -> Vec<Function> {
        let found = names_in(&self.path("sys/bus/pci/devices")).into_iter().filter_map(|name| name.parse().ok());
        let mut functions: Vec<Function> = found.filter_map(|bdf| self.function(bdf).ok()).collect();
        functions.retain(|function| function.name.is_some());
        functions.sort_by_key(|function| function.bdf);
        functions
    }

    /// A function as sysfs shows it, whatever device it is of.
    ///
    /// # Errors
    /// [`Obstacle::NoSuchFunction`].
    pub fn function(&self, bdf: Bdf) -> Result<Function, Obstacle> {
        Function::read(self, bdf).ok_or(Obstacle::NoSuchFunction { bdf })
    }
}

/// The content of a small file, without the line's end.
pub(crate) fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim_end().to_string())
}

/// The last name of what a symbolic link leads to: how sysfs names a device's driver or group.
fn link(path: &Path) -> Option<String> {
    Some(std::fs::read_link(path).ok()?.file_name()?.to_string_lossy().into_owned())
}

/// The names in a folder, in order; none where there is no such folder.
pub(crate) fn names_in(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
