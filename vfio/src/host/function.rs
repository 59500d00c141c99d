//! A PCI function as sysfs shows it.

use std::path::{Path, PathBuf};

use super::{Bdf, Host, Member, link, names, names_in, text};

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its address.
    pub bdf: Bdf,
    /// Its vendor id.
    pub vendor: u16,
    /// Its device id.
    pub device: u16,
    /// What people call it; `None`: it is no mlx5 function.
    pub name: Option<&'static str>,
    /// The driver that holds it.
    pub driver: Option<String>,
    /// The driver that alone may take it, where that was asked for (`driver_override`).
    pub driver_override: Option<String>,
    /// Its IOMMU group; `None`: no IOMMU stands between it and memory.
    pub group: Option<Group>,
    /// The network devices that it is for the kernel.
    pub netdevs: Vec<Netdev>,
    /// The RDMA devices that it is for the kernel, such as `mlx5_0`.
    pub rdma: Vec<String>,
    /// How many virtual functions it has made.
    pub vfs: u32,
    /// The physical function that it belongs to, when it is a virtual one.
    pub physical: Option<Bdf>,
    /// The NUMA node that it is nearest to, where there are several.
    pub numa: Option<u32>,
    /// Whether its configuration space answers; one that is gone or without power reads as all ones.
    pub answers: bool,
    /// Its folder in sysfs.
    pub sysfs: PathBuf,
}

/// An IOMMU group: what can only be given away as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number.
    pub id: u32,
    /// Its functions, this one among them.
    pub members: Vec<Member>,
    /// It is none: VFIO made it up for a function without an IOMMU (`enable_unsafe_noiommu_mode`).
    pub no_iommu: bool,
    /// The node in `/dev` through which VFIO gives it away.
    pub node: PathBuf,
}

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Netdev {
    /// Its name, such as `eth0`.
    pub name: String,
    /// Whether it is switched on (`ip link set up`), which is not whether its link is.
    pub up: bool,
}

impl Function {
    /// `None`: there is no such function.
    pub(super) fn read(host: &Host, bdf: Bdf) -> Option<Self> {
        let sysfs = host.path(format!("sys/bus/pci/devices/{bdf}"));
        let number = |name: &str| text(&sysfs.join(name)).and_then(|text| text.parse::<u32>().ok());
        let (vendor, device) = (id(&sysfs.join("vendor"))?, id(&sysfs.join("device"))?);
        Some(Self {
            bdf,
            vendor,
            device,
            name: names::name(vendor, device),
            driver: link(&sysfs.join("driver")),
            // The kernel prints "(null)" for none.
            driver_override: text(&sysfs.join("driver_override")).filter(|name| !name.is_empty() && name != "(null)"),
            group: Group::read(host, &sysfs),
            netdevs: names_in(&sysfs.join("net")).into_iter().map(|name| Netdev::read(&sysfs, name)).collect(),
            rdma: names_in(&sysfs.join("infiniband")),
            vfs: number("sriov_numvfs").unwrap_or(0),
            physical: link(&sysfs.join("physfn")).and_then(|name| name.parse().ok()),
            // -1 is none, which does not parse.
            numa: number("numa_node"),
            answers: answers(&sysfs.join("config")),
            sysfs,
        })
    }

    /// Whether a VFIO driver holds it: vfio-pci, or one made for a kind of device.
    pub fn is_bound(&self) -> bool {
        self.driver.as_deref().is_some_and(|driver| is_vfio(&self.sysfs, driver))
    }

    /// Its network devices that are switched on.
    pub fn up(&self) -> Vec<String> {
        self.netdevs.iter().filter(|netdev| netdev.up).map(|netdev| netdev.name.clone()).collect()
    }
}

impl Group {
    fn read(host: &Host, sysfs: &Path) -> Option<Self> {
        let id: u32 = link(&sysfs.join("iommu_group"))?.parse().ok()?;
        let folder = host.path(format!("sys/kernel/iommu_groups/{id}"));
        let no_iommu = text(&folder.join("name")).is_some_and(|name| name == "vfio-noiommu");
        let devices = folder.join("devices");
        let members = names_in(&devices).into_iter().map(|device| {
            let sysfs = devices.join(&device);
            let driver = link(&sysfs.join("driver"));
            let harmless = driver.as_deref().is_none_or(|driver| is_harmless(&sysfs, driver));
            Member { device, driver, harmless }
        });
        let node = host.path(format!("dev/vfio/{}{id}", if no_iommu { "noiommu-" } else { "" }));
        Some(Self { id, members: members.collect(), no_iommu, node })
    }
}

impl Netdev {
    fn read(sysfs: &Path, name: String) -> Self {
        let flags = text(&sysfs.join("net").join(&name).join("flags"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok());
        // IFF_UP
        Self { up: flags.is_some_and(|flags| flags & 1 != 0), name }
    }
}

/// Whether a driver is one of VFIO's. Kernels since 6.1 say so in sysfs; the names tell the others.
fn is_vfio(sysfs: &Path, driver: &str) -> bool {
    sysfs.join("vfio-dev").exists() || driver == "vfio-pci" || driver.ends_with("_vfio_pci")
}

/// Whether the group of a device with this driver can be given away: the kernel counts a driver as an owner of the group's
/// DMA unless it is marked `driver_managed_dma` (since Linux 5.19), and these are.
fn is_harmless(sysfs: &Path, driver: &str) -> bool {
    is_vfio(sysfs, driver) || matches!(driver, "pci-stub" | "pcieport")
}

fn id(path: &Path) -> Option<u16> {
    u16::from_str_radix(text(path)?.trim_start_matches("0x"), 16).ok()
}

/// Whether revision and class are something: vendor and device of every virtual function read as all ones (PCI Express Base
/// Specification, 9.3.4.1), and no class does. A configuration space that cannot be read says nothing.
fn answers(config: &Path) -> bool {
    use std::io::Read;
    let mut head = [0; 12];
    let read = std::fs::File::open(config).and_then(|mut file| file.read_exact(&mut head));
    read.is_err() || !head.ends_with(&[0xff; 4])
}
