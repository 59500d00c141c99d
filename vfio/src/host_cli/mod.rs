//! `mlx5 list`, `mlx5 bind`, `mlx5 unbind`: what functions the machine has, and who holds them.

mod bind;
mod list;

pub(crate) use bind::{BindArgs, UnbindArgs, bind, unbind};
pub(crate) use list::{ListArgs, list};

pub(crate) const LIST_EXAMPLES: &str = "\
Reads sysfs only: no function is opened, and no rights are needed.

Examples:
  mlx5 list
  mlx5 list --json | jq -r '.[] | select(.ready) | .bdf'     what can be opened now";

pub(crate) const BIND_EXAMPLES: &str = "\
Takes functions from their drivers and gives them to vfio-pci, until `mlx5 unbind` or a restart of the machine. Needs root, \
an IOMMU and the module vfio-pci; docs/vfio.md has the set-up. A function that the network uses or that has virtual functions \
is not taken. When something fails, the old driver has the function again.

Examples:
  sudo mlx5 bind 0000:03:00.0
  sudo mlx5 bind 03:00.0 03:00.1                 all functions of an IOMMU group
  sudo mlx5 bind --force 03:00.0                 although its network device is up
  sudo chown $USER /dev/vfio/12                  then no command needs root";

pub(crate) const UNBIND_EXAMPLES: &str = "\
Takes functions from vfio-pci and gives them to the driver that they had before `mlx5 bind`, or to the one that the kernel \
chooses. Needs root. One that a process has open is left alone.

Examples:
  sudo mlx5 unbind 0000:03:00.0";
