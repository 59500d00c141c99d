//! Giving a function to vfio-pci and back.
//!
//! Both are a few lines written into sysfs, on which the kernel acts before the write returns: `driver_override` says that
//! vfio-pci alone may have the function, the `unbind` of its driver takes it away, the `bind` of vfio-pci gives it. What it was
//! before stands in `/run/mlx5` until it is given back; a restart of the machine forgets both.

mod memory;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memory::Memory;

use super::{Bdf, Function, Group, Host, Member, Obstacle, check};

const VFIO_PCI: &str = "vfio-pci";
/// How often is looked for the node.
const LOOK: Duration = Duration::from_millis(20);

/// What the kernel does when it is asked through files. Tests answer in its place.
pub trait Kernel {
    /// Writes a line into a file of sysfs; the kernel acts on it before this returns.
    ///
    /// # Errors
    /// What the kernel answers.
    fn write(&self, path: &Path, line: &str) -> io::Result<()>;

    /// Opens a node for reading and writing and closes it again.
    ///
    /// # Errors
    /// What the kernel answers, EBUSY when a group's node is open elsewhere.
    fn open(&self, path: &Path) -> io::Result<()>;
}

/// The one that runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

impl Kernel for Linux {
    fn write(&self, path: &Path, line: &str) -> io::Result<()> {
        use io::Write;
        // In one call, as the kernel takes each for a line; never made, as a file that is missing has its reason.
        std::fs::OpenOptions::new().write(true).open(path)?.write_all(line.as_bytes())
    }

    fn open(&self, path: &Path) -> io::Result<()> {
        std::fs::OpenOptions::new().read(true).write(true).open(path).map(drop)
    }
}

/// How to bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindOptions {
    /// Take a function that the kernel's network uses, or that has virtual functions.
    pub force: bool,
    /// How long to wait for the group's node. Default: 5 seconds.
    pub patience: Duration,
}

impl Default for BindOptions {
    fn default() -> Self {
        Self { force: false, patience: Duration::from_secs(5) }
    }
}

/// A function that vfio-pci holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The driver that held it before; `None` also when a VFIO driver did.
    pub before: Option<String>,
    /// It was so already, and nothing was done.
    pub already: bool,
    /// Its group's number.
    pub group: u32,
    /// Its group's node.
    pub node: PathBuf,
    /// Members of its group that must go from the kernel's drivers as well before it can be opened.
    pub culprits: Vec<Member>,
}

/// A function that no VFIO driver holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unbound {
    /// The driver that holds it now.
    pub driver: Option<String>,
    /// It was so already, and nothing was done.
    pub already: bool,
}

/// Gives a function to vfio-pci and remembers what it was. One that a VFIO driver holds already stays as it is.
///
/// # Errors
/// What stands in the way. Things are as they were then, or [`Obstacle::NotRestored`] says what is not.
pub fn bind(host: &Host, kernel: &dyn Kernel, bdf: Bdf, options: &BindOptions) -> Result<Bound, Obstacle> {
    let before = check::known(host, bdf)?;
    check::has_iommu(host, &before)?;
    if before.is_bound() {
        let group = await_node(host, bdf, options.patience)?;
        return Ok(bound(&group, None, true));
    }
    check::has_vfio_pci(host)?;
    if !options.force {
        unused(&before)?;
    }
    let remembered = Memory::keep(host, &before)?;
    match give(host, kernel, &before).and_then(|()| await_node(host, bdf, options.patience)) {
        Ok(group) => Ok(bound(&group, before.driver, false)),
        Err(first) => {
            if let Err(then) = put_back(host, kernel, &before) {
                return Err(Obstacle::NotRestored { bdf, first: Box::new(first), then: Box::new(then) });
            }
            remembered.undo();
            Err(first)
        }
    }
}

/// Takes a function from its VFIO driver and gives it to the driver that it had before [`bind`]; where that is not known, to
/// the one that the kernel chooses. A function that does not answer can be given back as well.
///
/// # Errors
/// What stands in the way: [`Obstacle::Busy`] when it is open somewhere, as the kernel would wait for that without end;
/// [`Obstacle::DriverRefused`] when its driver does not take it back: then no driver has it, and this can be tried again.
pub fn unbind(host: &Host, kernel: &dyn Kernel, bdf: Bdf) -> Result<Unbound, Obstacle> {
    let now = check::named(host, bdf)?;
    let memory = Memory::of(host, bdf);
    let ours = now.is_bound();
    // A bind that was killed half-way leaves a function without a driver, and what it wrote down.
    if !ours && (now.driver.is_some() || memory.is_none()) {
        return Ok(Unbound { driver: now.driver, already: true });
    }
    if ours {
        closed(host, kernel, &now)?;
        write(kernel, &now.sysfs.join("driver/unbind"), &bdf.to_string())?;
    }
    override_driver(kernel, &now, memory.as_ref().and_then(|memory| memory.driver_override.as_deref()))?;
    match memory.as_ref().map(|memory| memory.driver.as_deref()) {
        Some(Some(driver)) if host.path(format!("sys/bus/pci/drivers/{driver}")).exists() => {
            take(host, kernel, bdf, driver)?
        }
        Some(None) => {}
        _ => write(kernel, &host.path("sys/bus/pci/drivers_probe"), &bdf.to_string())?,
    }
    Memory::forget(host, bdf);
    Ok(Unbound { driver: host.function(bdf)?.driver, already: false })
}

fn bound(group: &Group, before: Option<String>, already: bool) -> Bound {
    let culprits = group.members.iter().filter(|member| !member.harmless).cloned().collect();
    Bound { before, already, group: group.id, node: group.node.clone(), culprits }
}

/// Whether the kernel would miss it.
fn unused(function: &Function) -> Result<(), Obstacle> {
    let (bdf, netdevs) = (function.bdf, function.up());
    if !netdevs.is_empty() {
        return Err(Obstacle::NetworkUp { bdf, netdevs });
    }
    if function.vfs > 0 { Err(Obstacle::HasVirtualFunctions { bdf, vfs: function.vfs }) } else { Ok(()) }
}

/// Whether nobody has its group open. Only the kernel knows that for sure.
fn closed(host: &Host, kernel: &dyn Kernel, function: &Function) -> Result<(), Obstacle> {
    let Some(group) = &function.group else { return Ok(()) };
    match kernel.open(&group.node) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Err(check::busy(host, function.bdf, group)),
        _ => Ok(()),
    }
}

/// From its driver to vfio-pci.
fn give(host: &Host, kernel: &dyn Kernel, before: &Function) -> Result<(), Obstacle> {
    override_driver(kernel, before, Some(VFIO_PCI))?;
    if before.driver.is_some() {
        write(kernel, &before.sysfs.join("driver/unbind"), &before.bdf.to_string())?;
    }
    let taken = take(host, kernel, before.bdf, VFIO_PCI);
    // What vfio-pci answers then is EINVAL, which says less.
    let alone = taken.is_err() && host.function(before.bdf)?.group.is_none();
    if alone { Err(Obstacle::NoIommu { bdf: before.bdf }) } else { taken }
}

/// As it was before [`give`], however far that came.
fn put_back(host: &Host, kernel: &dyn Kernel, before: &Function) -> Result<(), Obstacle> {
    let now = host.function(before.bdf)?;
    let moved = now.driver != before.driver;
    if moved && now.driver.is_some() {
        write(kernel, &now.sysfs.join("driver/unbind"), &before.bdf.to_string())?;
    }
    if now.driver_override != before.driver_override {
        override_driver(kernel, before, before.driver_override.as_deref())?;
    }
    match &before.driver {
        Some(driver) if moved => take(host, kernel, before.bdf, driver),
        _ => Ok(()),
    }
}

fn override_driver(kernel: &dyn Kernel, function: &Function, driver: Option<&str>) -> Result<(), Obstacle> {
    // An empty line is none; nothing at all would not reach the kernel.
    write(kernel, &function.sysfs.join("driver_override"), &format!("{}\n", driver.unwrap_or_default()))
}

/// Has a driver take a function that none holds.
fn take(host: &Host, kernel: &dyn Kernel, bdf: Bdf, driver: &str) -> Result<(), Obstacle> {
    let refused = |errno| Obstacle::DriverRefused { bdf, driver: driver.to_string(), errno };
    let path = host.path(format!("sys/bus/pci/drivers/{driver}/bind"));
    kernel.write(&path, &bdf.to_string()).map_err(|error| refused(error.raw_os_error().unwrap_or(0)))?;
    if host.function(bdf)?.driver.as_deref() == Some(driver) { Ok(()) } else { Err(refused(0)) }
}

/// Waits for the node of a function that is bound, and gives its group as it is now.
fn await_node(host: &Host, bdf: Bdf, patience: Duration) -> Result<Group, Obstacle> {
    let group = check::behind_iommu(&host.function(bdf)?)?;
    let start = Instant::now();
    while !group.node.exists() {
        if start.elapsed() >= patience {
            return Err(Obstacle::NoNode { path: group.node });
        }
        std::thread::sleep(LOOK);
    }
    Ok(group)
}

fn write(kernel: &dyn Kernel, path: &Path, line: &str) -> Result<(), Obstacle> {
    kernel.write(path, line).map_err(|error| refusal(path, &error))
}

/// What an answer of the system to something written to a file means.
fn refusal(path: &Path, error: &io::Error) -> Obstacle {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Obstacle::Permission { path: path.to_path_buf() },
        _ => Obstacle::System {
            what: format!("writing to {}", path.display()),
            errno: error.raw_os_error().unwrap_or(0),
        },
    }
}
