//! Each obstacle in words: what is the matter, and the cure.

use std::path::Path;

use super::{Member, Obstacle, Process};
use crate::host::Bdf;

/// How one gets an IOMMU.
const IOMMU_ON: &str = "switch on VT-d, AMD-Vi or SMMU in the BIOS, and on Intel boot with intel_iommu=on";
const KERNEL_LOG: &str = "look into the kernel's log (dmesg)";

impl Obstacle {
    /// Its name for programs, such as `not-bound`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::NoSuchFunction { .. } => "no-such-function",
            Self::WrongId { .. } => "wrong-id",
            Self::NoVfio { .. } => "no-vfio",
            Self::NoIommu { .. } => "no-iommu",
            Self::NoIommuMode { .. } => "no-iommu-mode",
            Self::NoInterruptRemapping { .. } => "no-interrupt-remapping",
            Self::NotBound { .. } => "not-bound",
            Self::GroupNotViable { .. } => "group-not-viable",
            Self::Busy { .. } => "busy",
            Self::NoNode { .. } => "no-node",
            Self::Permission { .. } => "permission",
            Self::LockedMemory { .. } => "locked-memory",
            Self::BarNotMappable { .. } => "bar-not-mappable",
            Self::NoReset { .. } => "no-reset",
            Self::ResetFailed { .. } => "reset-failed",
            Self::Dead { .. } => "dead",
            Self::TooFewVectors { .. } => "too-few-vectors",
            Self::NetworkUp { .. } => "network-up",
            Self::HasVirtualFunctions { .. } => "has-virtual-functions",
            Self::DriverRefused { .. } => "driver-refused",
            Self::NotRestored { .. } => "not-restored",
            Self::System { .. } => "system",
        }
    }

    /// What is the matter.
    pub fn what(&self) -> String {
        match self {
            Self::NoSuchFunction { bdf } => format!("there is no PCI function {bdf}"),
            Self::WrongId { bdf, vendor, device } => format!("{bdf} is {vendor:04x}:{device:04x}, no mlx5 function"),
            Self::NoVfio { path } => format!("the kernel's VFIO is not loaded, {} is missing", path.display()),
            Self::NoIommu { bdf } => format!("no IOMMU stands between {bdf} and memory"),
            Self::NoIommuMode { bdf } => {
                format!("VFIO gives {bdf} away without an IOMMU, which this driver does not take")
            }
            Self::NoInterruptRemapping { bdf } => format!("the IOMMU does not keep the interrupts of {bdf} apart"),
            Self::NotBound { bdf, driver: None } => format!("no driver holds {bdf}"),
            Self::NotBound { bdf, driver: Some(driver) } => format!("{driver} holds {bdf}, not vfio-pci"),
            Self::GroupNotViable { group, culprits } => held(*group, culprits),
            Self::Busy { bdf, group, holders } => in_use(*bdf, *group, holders),
            Self::NoNode { path } => format!("the function is bound, and {} is missing", path.display()),
            Self::Permission { path } if is_node(path) => format!("no permission to open {}", path.display()),
            Self::Permission { path } => format!("no permission to write to {}", path.display()),
            Self::LockedMemory { limit, wanted } => {
                format!("the process may lock {limit} bytes of memory, and {wanted} are needed")
            }
            Self::BarNotMappable { bdf, why } => format!("the registers of {bdf} (BAR 0) cannot be mapped, {why}"),
            Self::NoReset { bdf } => {
                format!("the kernel has no way to reset {bdf}, so nothing tells that it no longer writes to memory")
            }
            Self::ResetFailed { bdf, errno } => format!("the reset of {bdf} failed ({})", answer(*errno)),
            Self::Dead { bdf } => {
                format!("{bdf} does not answer, it reads as all ones and is in reset, without power or gone")
            }
            Self::TooFewVectors { bdf, has: 0, .. } => format!("{bdf} has no interrupt vectors (MSI-X)"),
            Self::TooFewVectors { bdf, has, wanted } => {
                format!("{bdf} has {has} interrupt vectors, and {wanted} are asked for")
            }
            Self::NetworkUp { bdf, netdevs } => {
                let are = if netdevs.len() > 1 { "are" } else { "is" };
                format!("the kernel's network uses {bdf}, {} {are} up", netdevs.join(", "))
            }
            Self::HasVirtualFunctions { bdf, vfs } => format!("{bdf} has virtual functions ({vfs}), which would go"),
            Self::DriverRefused { bdf, driver, errno } => format!("{driver} did not take {bdf} ({})", answer(*errno)),
            Self::NotRestored { bdf, first, then } => {
                format!("{}; and putting {bdf} back as it was failed, {}", first.what(), then.what())
            }
            Self::System { what, errno } => format!("{what} failed ({})", answer(*errno)),
        }
    }

    /// What to do about it, in a line.
    pub fn cure(&self) -> String {
        match self {
            Self::NoSuchFunction { .. } | Self::WrongId { .. } => {
                "`mlx5 list` shows those that this driver knows".into()
            }
            Self::NoVfio { path } if path.ends_with("vfio_iommu_type1") => "`modprobe vfio_iommu_type1`".into(),
            Self::NoVfio { .. } => "`modprobe vfio-pci`".into(),
            Self::NoIommu { .. } | Self::NoIommuMode { .. } => IOMMU_ON.into(),
            Self::NoInterruptRemapping { .. } => {
                "switch on interrupt remapping (x2APIC) in the BIOS, or, where every user of a \
                 device is trusted, load vfio_iommu_type1 with allow_unsafe_interrupts=1"
                    .into()
            }
            Self::NotBound { bdf, .. } => format!("`mlx5 bind {bdf}` gives it to vfio-pci"),
            Self::GroupNotViable { culprits, .. } => take_away(culprits),
            Self::Busy { group, holders, .. } => close(*group, holders),
            Self::NoNode { .. } => "wait for udev (`udevadm settle`); a container needs the file passed in".into(),
            Self::Permission { path } => permission(path),
            Self::LockedMemory { .. } => {
                "raise the limit: `ulimit -l` (KiB), memlock in /etc/security/limits.conf, LimitMEMLOCK= of a service"
                    .into()
            }
            Self::BarNotMappable { .. } => format!("{KERNEL_LOG}; switch on 'Above 4G decoding' in the BIOS"),
            Self::NoReset { .. } => {
                "use a function that has FLR, such as a virtual one (`lspci -vv` says FLReset+)".into()
            }
            Self::ResetFailed { .. } => format!("{KERNEL_LOG}; a cold boot brings a card back that hangs"),
            Self::Dead { .. } => format!("try again in a second; {KERNEL_LOG}, and at the slot"),
            Self::TooFewVectors { has: 0, .. } => {
                "use another function; a virtual one gets some by its sriov_vf_msix_count in sysfs".into()
            }
            Self::TooFewVectors { has, .. } => format!("ask for fewer, `--vectors {has}`"),
            Self::NetworkUp { netdevs, .. } => {
                let down = list(netdevs.iter().map(|netdev| format!("`ip link set {netdev} down`")));
                format!("{down}, or --force")
            }
            Self::HasVirtualFunctions { bdf, .. } => {
                format!("write 0 to /sys/bus/pci/devices/{bdf}/sriov_numvfs, or --force")
            }
            // EMFILE: an event descriptor for each vector, and the files of VFIO.
            Self::System { errno: 24, .. } => {
                "let more files be open (`ulimit -n`), or ask for fewer `--vectors`".into()
            }
            Self::DriverRefused { .. } | Self::System { .. } => KERNEL_LOG.into(),
            Self::NotRestored { bdf, .. } => {
                format!("{KERNEL_LOG}, then `mlx5 unbind {bdf}` tries it again")
            }
        }
    }
}

fn list(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

fn held(group: u32, culprits: &[Member]) -> String {
    let them = if culprits.is_empty() { "a member".into() } else { list(culprits.iter().map(ToString::to_string)) };
    format!("IOMMU group {group} is given away only as a whole, and drivers of the kernel hold {them}")
}

fn in_use(bdf: Bdf, group: u32, holders: &[Process]) -> String {
    let by = if holders.is_empty() { "another process".into() } else { list(holders.iter().map(process)) };
    format!("{bdf} is in use, {by} has IOMMU group {group} open")
}

fn close(group: u32, holders: &[Process]) -> String {
    if holders.is_empty() {
        format!("`fuser -v /dev/vfio/{group}` as root names it; end it")
    } else if holders.iter().any(|process| process.own) {
        "close what it has of the group first, which takes a minute where a function does not answer".into()
    } else {
        "end it: a group is open to one program, and for one function at a time".into()
    }
}

fn process(process: &Process) -> String {
    let who = if process.own { "this process" } else { process.name.as_str() };
    format!("{who} (pid {})", process.pid)
}

fn take_away(culprits: &[Member]) -> String {
    if !culprits.is_empty() && culprits.iter().all(|member| member.driver.as_deref() == Some("mlx5_core")) {
        let names: Vec<&str> = culprits.iter().map(|member| member.device.as_str()).collect();
        format!("`mlx5 bind {}` takes them away", names.join(" "))
    } else {
        "take each away, by its address in /sys/bus/pci/devices/ADDRESS/driver/unbind".into()
    }
}

/// Whether a file is one of VFIO's nodes; those in sysfs are the others.
fn is_node(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.ends_with("dev/vfio"))
}

fn permission(path: &Path) -> String {
    let shown = path.display();
    if !is_node(path) {
        "run this as root (sudo)".into()
    } else if path.ends_with("vfio/vfio") {
        format!("`sudo chmod 666 {shown}`, which is its usual mode")
    } else {
        format!("`sudo chown $USER {shown}`, or for good a udev rule: SUBSYSTEM==\"vfio\", OWNER=\"USER\"")
    }
}

fn answer(errno: i32) -> String {
    if errno == 0 {
        return "without a reason".into();
    }
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    let words = text.split(" (os error").next().unwrap_or_default();
    format!("{words}, errno {errno}")
}
