//! A machine made of plain folders, as sysfs of a Linux 6.12 has them: devices below `sys/devices`, symbolic links from everywhere else.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use mlx5_vfio::host::{Bdf, Host};
use tempfile::TempDir;

/// The function that most tests ask for.
pub const CARD: &str = "0000:03:00.0";

pub struct Machine {
    root: TempDir,
}

pub fn bdf(text: &str) -> Bdf {
    text.parse().unwrap()
}

impl Machine {
    /// No function, no VFIO.
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["sys/bus/pci/devices", "sys/bus/pci/drivers", "sys/kernel/iommu_groups", "dev", "proc", "run"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        Self { root }
    }

    /// One ConnectX-5 in group 12, held by vfio-pci, and nothing in its way.
    pub fn ready() -> Self {
        let machine = Self::new();
        machine.vfio().pci(CARD, 0x15b3, 0x1017).group(12, &[CARD]).bind(CARD, "vfio-pci").write("dev/vfio/12", "");
        machine
    }

    pub fn host(&self) -> Host {
        Host::at(self.root.path())
    }

    pub fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.root.path().join(below)
    }

    pub fn write(&self, below: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// The folder of a function.
    pub fn device(&self, name: &str) -> String {
        format!("sys/devices/pci0000:00/{name}")
    }

    pub fn pci(&self, name: &str, vendor: u16, device: u16) -> &Self {
        let folder = self.device(name);
        let mut config = [0; 256];
        config[..2].copy_from_slice(&vendor.to_le_bytes());
        config[2..4].copy_from_slice(&device.to_le_bytes());
        self.write(&format!("{folder}/config"), config);
        for (file, content) in [
            ("vendor", format!("{vendor:#06x}\n")),
            ("device", format!("{device:#06x}\n")),
            ("class", "0x020000\n".to_string()),
            ("driver_override", "(null)\n".to_string()),
            ("numa_node", "-1\n".to_string()),
        ] {
            self.write(&format!("{folder}/{file}"), content);
        }
        symlink("../../../bus/pci", self.path(format!("{folder}/subsystem"))).unwrap();
        symlink(format!("../../../devices/pci0000:00/{name}"), self.path(format!("sys/bus/pci/devices/{name}")))
            .unwrap();
        self
    }

    /// Modules vfio and vfio-pci are loaded.
    pub fn vfio(&self) -> &Self {
        self.driver("vfio-pci").write("dev/vfio/vfio", "")
    }

    /// A driver is loaded.
    pub fn driver(&self, driver: &str) -> &Self {
        fs::create_dir_all(self.path(format!("sys/bus/pci/drivers/{driver}"))).unwrap();
        self
    }

    /// A driver takes a function.
    pub fn bind(&self, name: &str, driver: &str) -> &Self {
        self.driver(driver);
        let link = self.path(format!("{}/driver", self.device(name)));
        symlink(format!("../../../bus/pci/drivers/{driver}"), link).unwrap();
        symlink(
            format!("../../../../devices/pci0000:00/{name}"),
            self.path(format!("sys/bus/pci/drivers/{driver}/{name}")),
        )
        .unwrap();
        self
    }

    /// Its driver lets a function go.
    pub fn unbind(&self, name: &str) -> &Self {
        let link = self.path(format!("{}/driver", self.device(name)));
        let driver = fs::read_link(&link).unwrap().file_name().unwrap().to_string_lossy().into_owned();
        fs::remove_file(link).unwrap();
        fs::remove_file(self.path(format!("sys/bus/pci/drivers/{driver}/{name}"))).unwrap();
        self
    }

    pub fn group(&self, id: u32, members: &[&str]) -> &Self {
        let group = format!("sys/kernel/iommu_groups/{id}");
        self.write(&format!("{group}/type"), "DMA\n");
        fs::create_dir_all(self.path(format!("{group}/devices"))).unwrap();
        for name in members {
            let below = format!("{group}/devices/{name}");
            symlink(format!("../../../../devices/pci0000:00/{name}"), self.path(below)).unwrap();
            let link = self.path(format!("{}/iommu_group", self.device(name)));
            symlink(format!("../../../kernel/iommu_groups/{id}"), link).unwrap();
        }
        self
    }

    pub fn netdev(&self, name: &str, netdev: &str, flags: &str) -> &Self {
        self.write(&format!("{}/net/{netdev}/flags", self.device(name)), flags)
    }

    /// A process that has a file open.
    pub fn process(&self, pid: u32, name: &str, file: &str) -> &Self {
        self.write(&format!("proc/{pid}/comm"), format!("{name}\n"));
        fs::create_dir_all(self.path(format!("proc/{pid}/fd"))).unwrap();
        symlink("/dev/null", self.path(format!("proc/{pid}/fd/0"))).unwrap();
        symlink(self.path(file), self.path(format!("proc/{pid}/fd/7"))).unwrap();
        self
    }
}
