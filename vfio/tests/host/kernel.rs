//! The kernel's part on a machine made of folders: what it does about a line that is written into sysfs
//! (Linux: drivers/base/bus.c, drivers/pci/pci-sysfs.c).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::path::Path;

use mlx5_vfio::host::binding::Kernel;

use crate::machine::Machine;

pub const ENODEV: i32 = 19;
pub const EBUSY: i32 = 16;
pub const EINVAL: i32 = 22;

pub struct FakeKernel<'a> {
    pub machine: &'a Machine,
    /// Each file that was written, and the line.
    pub writes: RefCell<Vec<(String, String)>>,
    /// Drivers that do not take what they are given, and their answer.
    pub refuses: RefCell<HashMap<String, i32>>,
    /// The write that fails, counted from 0, and what it answers.
    pub fails: Cell<Option<(usize, i32)>>,
    /// The driver that knows mlx5 functions.
    pub finds: Option<&'static str>,
    /// The group that a function gets only when a driver takes it.
    pub late_group: Option<u32>,
    /// Whether nodes appear.
    pub nodes: bool,
    /// Whether a process has a group open.
    pub open: bool,
}

impl<'a> FakeKernel<'a> {
    pub fn new(machine: &'a Machine) -> Self {
        machine.driver("mlx5_core");
        let (writes, refuses) = (RefCell::default(), RefCell::default());
        Self {
            machine,
            writes,
            refuses,
            fails: Cell::new(None),
            finds: Some("mlx5_core"),
            late_group: None,
            nodes: true,
            open: false,
        }
    }

    /// The names of the files written, with the lines.
    pub fn written(&self) -> Vec<String> {
        self.writes.borrow().iter().map(|(file, line)| format!("{file} {}", line.trim_end())).collect()
    }

    fn read(&self, name: &str, file: &str) -> String {
        std::fs::read_to_string(self.machine.path(format!("{}/{file}", self.machine.device(name)))).unwrap()
    }

    fn held(&self, name: &str) -> Option<String> {
        let link = std::fs::read_link(self.machine.path(format!("{}/driver", self.machine.device(name)))).ok()?;
        Some(link.file_name().unwrap().to_string_lossy().into_owned())
    }

    fn node(&self, name: &str) -> Option<String> {
        let group = std::fs::read_link(self.machine.path(format!("{}/iommu_group", self.machine.device(name)))).ok()?;
        Some(format!("dev/vfio/{}", group.file_name().unwrap().to_string_lossy()))
    }

    fn attach(&self, name: &str, driver: &str) -> io::Result<()> {
        if let (Some(id), None) = (self.late_group, self.node(name)) {
            self.machine.group(id, &[name]);
        }
        let only = self.read(name, "driver_override");
        let known = only.trim_end() == driver || only.trim_end() == "(null)" && self.finds == Some(driver);
        let answer = match self.refuses.borrow().get(driver) {
            Some(errno) => Some(*errno),
            None if self.held(name).is_some() => Some(EBUSY),
            None if driver == "vfio-pci" && self.node(name).is_none() => Some(EINVAL),
            None => (!known).then_some(ENODEV),
        };
        if let Some(errno) = answer {
            // A driver that says nothing and does not take it: 0.
            return if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) };
        }
        self.machine.bind(name, driver);
        if let (true, true, Some(node)) = (driver == "vfio-pci", self.nodes, self.node(name)) {
            self.machine.write(&node, "");
        }
        Ok(())
    }

    fn detach(&self, name: &str) {
        if self.held(name).as_deref() == Some("vfio-pci") {
            let _ = std::fs::remove_file(self.machine.path(self.node(name).unwrap()));
        }
        self.machine.unbind(name);
    }
}

impl Kernel for FakeKernel<'_> {
    fn write(&self, path: &Path, line: &str) -> io::Result<()> {
        let root = self.machine.path("");
        let file = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        self.writes.borrow_mut().push((file.clone(), line.to_string()));
        if let Some((count, errno)) = self.fails.get()
            && count + 1 == self.writes.borrow().len()
        {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let parts: Vec<&str> = file.split('/').collect();
        match parts.as_slice() {
            ["sys", "bus", "pci", "devices", name, "driver_override"] => {
                let text = if line.trim_end().is_empty() { "(null)\n" } else { line };
                self.machine.write(&format!("{}/driver_override", self.machine.device(name)), text);
            }
            ["sys", "bus", "pci", "devices", name, "driver", "unbind"] => {
                assert_eq!(*name, line);
                if self.held(name).is_none() {
                    return Err(io::ErrorKind::NotFound.into());
                }
                self.detach(name);
            }
            ["sys", "bus", "pci", "drivers", driver, "bind"] => return self.attach(line, driver),
            ["sys", "bus", "pci", "drivers_probe"] => {
                let only = self.read(line, "driver_override");
                let driver = if only.trim_end() == "(null)" { self.finds } else { Some(only.trim_end()) };
                // No driver is no error here.
                let _ = driver.map(|driver| self.attach(line, driver));
            }
            _ => panic!("the kernel has no file {file}"),
        }
        Ok(())
    }

    fn open(&self, path: &Path) -> io::Result<()> {
        assert!(path.starts_with(self.machine.path("dev/vfio")), "{}", path.display());
        if self.open { Err(io::Error::from_raw_os_error(EBUSY)) } else { Ok(()) }
    }
}
