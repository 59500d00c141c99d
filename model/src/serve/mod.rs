//! The model as a process: a vfio-user server.
//!
//! A client — QEMU's `vfio-user-pci`, or any other — connects to a Unix socket and gets the function as a PCI device:
//! configuration space, BAR 0, MSI-X by eventfds. It says which files hold the memory that the device may reach; the
//! device reads and writes them directly, after looking at each access. Time is the wall clock.
//!
//! ```no_run
//! use mlx5_model::serve::Server;
//! use mlx5_model::{Model, ModelConfig};
//!
//! let model = Model::new(ModelConfig::core());
//! let server = Server::bind(&model, "/tmp/mlx5.sock".as_ref())?;
//! // Start QEMU here, then serve it until it disconnects:
//! let report = server.run()?;
//! assert!(report.violations.is_empty(), "{report}");
//! # Ok::<(), mlx5_model::serve::ServeError>(())
//! ```
//!
//! A client that breaks the protocol gets error replies, or is disconnected; it cannot make the server panic. One thing it
//! can do: a file that it shares and then truncates is gone under the device, and the next access ends the server
//! by `SIGBUS`. QEMU's `memory-backend-memfd` seals its file against that.

mod backend;
mod files;
mod irq;
mod report;

use std::fs;
use std::io;
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_NORESIZE, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_READ,
    VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{IrqInfo, ServerRegion};

use crate::model::Model;
use crate::pci::CONFIG_BYTES;
use backend::Backend;
pub use report::Report;

/// Why a server could not serve.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// There is a file where the socket should be.
    SocketExists(PathBuf),
    /// The system refused.
    Os {
        /// What was tried.
        what: &'static str,
        /// Its answer.
        error: io::Error,
    },
    /// The connection broke, or the client broke the protocol; in words.
    Connection(String),
}

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SocketExists(path) => {
                let path = path.display();
                write!(
                    f,
                    "{path} exists: another server listens there, or one that was killed left it behind; then remove it: rm {path}"
                )
            }
            Self::Os { what, error } => write!(f, "{what}: {error}"),
            Self::Connection(words) => write!(f, "the connection to the client broke: {words}"),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Os { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// A [`Model`] that waits for a client on a Unix socket. Dropping it removes the socket.
pub struct Server {
    model: Model,
    server: vfio_user::Server,
    socket: PathBuf,
}

impl Server {
    /// Listens on a new socket at `path`; as soon as there is one, a client can connect. The function is reset: memory space and bus mastering are off, as the client's
    /// own driver expects it.
    ///
    /// # Errors
    /// [`ServeError::SocketExists`] when something is there already, [`ServeError::Os`] when the system refuses.
    pub fn bind(model: &Model, path: &Path) -> Result<Self, ServeError> {
        let listener = listen(path)?;
        let (bar_size, vectors) = model.shape();
        let server = vfio_user::Server::from_owned_fd(listener.into(), true, irqs(vectors), regions(bar_size));
        model.power_on(None);
        Ok(Self { model: model.clone(), server, socket: path.into() })
    }

    /// Waits for a client, serves it until it disconnects, and says what it did. The device runs on a thread of its own
    /// meanwhile. Afterwards the function is off the bus and has lost its memory; its commands and violations can still be
    /// asked for.
    ///
    /// # Errors
    /// [`ServeError::Connection`] when the connection breaks otherwise than by the client's closing it,
    /// [`ServeError::Os`] when there is no thread for the device.
    pub fn run(self) -> Result<Report, ServeError> {
        let thread = self.model.spawn().map_err(|error| ServeError::Os { what: "starting a thread", error })?;
        let mut backend = Backend::new(&self.model);
        // The protocol's crate panics on some malformed messages.
        let ended = catch_unwind(AssertUnwindSafe(|| self.server.run(&mut backend)));
        drop(thread);
        let report = Report::of(&self.model);
        self.model.power_off();
        match ended {
            Ok(Ok(())) => Ok(report),
            Ok(Err(error)) => Err(ServeError::Connection(error.to_string())),
            Err(_) => Err(ServeError::Connection("a malformed message".into())),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = fs::remove_file(&self.socket);
    }
}

/// A socket is a file before it listens; so it gets its name when it does.
fn listen(path: &Path) -> Result<UnixListener, ServeError> {
    let directory = path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let unnamed = tempfile::Builder::new().make_in(directory, |path| UnixListener::bind(path));
    let named = unnamed.and_then(|socket| Ok(socket.persist_noclobber(path)?));
    named.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => ServeError::SocketExists(path.into()),
        _ => ServeError::Os { what: "listening on the socket", error },
    })
}

fn regions(bar_size: usize) -> Vec<ServerRegion> {
    let region = |index: u32| {
        let size = match index {
            VFIO_PCI_CONFIG_REGION_INDEX => CONFIG_BYTES as u64,
            VFIO_PCI_BAR0_REGION_INDEX => bar_size as u64,
            _ => 0,
        };
        let flags = if size > 0 { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE } else { 0 };
        let argsz = size_of::<vfio_region_info>() as u32;
        let region_info = vfio_region_info { argsz, index, size, flags, ..Default::default() };
        ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None }
    };
    (0..VFIO_PCI_NUM_REGIONS).map(region).collect()
}

fn irqs(vectors: u32) -> Vec<IrqInfo> {
    let irq = |index| match index {
        VFIO_PCI_MSIX_IRQ_INDEX => {
            IrqInfo { index, flags: VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE, count: vectors }
        }
        _ => IrqInfo { index, flags: 0, count: 0 },
    };
    (0..VFIO_PCI_NUM_IRQS).map(irq).collect()
}
