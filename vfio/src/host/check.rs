//! Whether a function can be opened, as far as sysfs and `/dev` tell it.

use std::path::{Path, PathBuf};

use super::{Bdf, Function, Group, Host, Obstacle, Process, names_in, text};

/// A function that nothing visible stands in the way of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The function.
    pub function: Function,
    /// Its group's number.
    pub group: u32,
    /// Its group's node, such as `/dev/vfio/12`.
    pub node: PathBuf,
    /// The node that makes containers, `/dev/vfio/vfio`.
    pub container: PathBuf,
}

/// Looks for what stands in the way of opening a function, in the order in which one removes it: the right function, an
/// IOMMU, VFIO, its driver, its group, the nodes, permissions. Whether another process has it open shows only when it is
/// opened ([`busy`]).
///
/// # Errors
/// The first obstacle.
pub fn ready(host: &Host, bdf: Bdf) -> Result<Ready, Obstacle> {
    let function = known(host, bdf)?;
    has_iommu(host, &function)?;
    if !function.is_bound() {
        has_vfio_pci(host)?;
        return Err(Obstacle::NotBound { bdf, driver: function.driver });
    }
    let group = behind_iommu(&function)?;
    viable(&group)?;
    let container = host.path("dev/vfio/vfio");
    for node in [&container, &group.node] {
        if !node.exists() {
            return Err(Obstacle::NoNode { path: node.clone() });
        }
    }
    may_open(&container)?;
    may_open(&group.node)?;
    Ok(Ready { function, group: group.id, node: group.node, container })
}

/// A function of a known device that answers.
pub(super) fn known(host: &Host, bdf: Bdf) -> Result<Function, Obstacle> {
    let function = named(host, bdf)?;
    if function.answers { Ok(function) } else { Err(Obstacle::Dead { bdf }) }
}

/// A function of a known device, be it dead.
pub(super) fn named(host: &Host, bdf: Bdf) -> Result<Function, Obstacle> {
    match host.function(bdf)? {
        Function { name: None, vendor, device, .. } => Err(Obstacle::WrongId { bdf, vendor, device }),
        function => Ok(function),
    }
}

/// Whether an IOMMU stands before a function, or may: some kernels tell a function's group only once a driver has it, such as
/// Linux 6.12 with virtio-iommu.
pub(super) fn has_iommu(host: &Host, function: &Function) -> Result<(), Obstacle> {
    let later = function.driver.is_none() && !names_in(&host.path("sys/class/iommu")).is_empty();
    if function.group.is_none() && later { Ok(()) } else { behind_iommu(function).map(|_| ()) }
}

/// The group of a function that an IOMMU keeps apart.
pub(super) fn behind_iommu(function: &Function) -> Result<Group, Obstacle> {
    match &function.group {
        None => Err(Obstacle::NoIommu { bdf: function.bdf }),
        Some(group) if group.no_iommu => Err(Obstacle::NoIommuMode { bdf: function.bdf }),
        Some(group) => Ok(group.clone()),
    }
}

/// Whether the driver that gives functions away is there.
pub(super) fn has_vfio_pci(host: &Host) -> Result<(), Obstacle> {
    let path = host.path("sys/bus/pci/drivers/vfio-pci");
    if path.exists() { Ok(()) } else { Err(Obstacle::NoVfio { path }) }
}

/// Whether a group can be given away: no member is held by a driver of the kernel that does DMA.
///
/// # Errors
/// [`Obstacle::GroupNotViable`] with each of those members.
pub fn viable(group: &Group) -> Result<(), Obstacle> {
    let culprits: Vec<_> = group.members.iter().filter(|member| !member.harmless).cloned().collect();
    if culprits.is_empty() { Ok(()) } else { Err(Obstacle::GroupNotViable { group: group.id, culprits }) }
}

/// [`Obstacle::Busy`] when a process that this user may see has the group of a function open. Only opening it tells for sure.
pub fn in_use(host: &Host, function: &Function) -> Option<Obstacle> {
    let group = function.group.as_ref()?;
    let holders = holders(host, &group.node);
    (!holders.is_empty()).then_some(Obstacle::Busy { bdf: function.bdf, group: group.id, holders })
}

/// [`Obstacle::Busy`] with the processes that have a group open, as far as this user may see them.
pub fn busy(host: &Host, bdf: Bdf, group: &Group) -> Obstacle {
    Obstacle::Busy { bdf, group: group.id, holders: holders(host, &group.node) }
}

/// The processes that have a node open, as far as this user may see them: one's own, for root all.
fn holders(host: &Host, node: &Path) -> Vec<Process> {
    let (proc, own) = (host.path("proc"), std::process::id());
    let opened = |pid: &u32| {
        let files = proc.join(pid.to_string()).join("fd");
        names_in(&files).iter().any(|fd| std::fs::read_link(files.join(fd)).is_ok_and(|file| file == node))
    };
    let name = |pid: u32| text(&proc.join(pid.to_string()).join("comm")).unwrap_or_default();
    let pids = names_in(&proc).into_iter().filter_map(|name| name.parse().ok()).filter(opened);
    let mut holders: Vec<Process> = pids.map(|pid| Process { pid, name: name(pid), own: pid == own }).collect();
    holders.sort_by_key(|process| process.pid);
    holders
}

fn may_open(path: &Path) -> Result<(), Obstacle> {
    if may_read_and_write(path) { Ok(()) } else { Err(Obstacle::Permission { path: path.to_path_buf() }) }
}

/// Asked of the kernel without opening: a group can be open once only, and someone else may be about to.
#[cfg(target_os = "linux")]
fn may_read_and_write(path: &Path) -> bool {
    use rustix::fs::{Access, access};
    access(path, Access::READ_OK | Access::WRITE_OK).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn may_read_and_write(_path: &Path) -> bool {
    true
}
