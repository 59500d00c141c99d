//! A client of the vfio-user protocol, version 0.0: every number is written out here, as its specification has it.

use std::fs::File;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use mlx5_model::serve::{Report, ServeError, Server};
use mlx5_model::{Model, ModelConfig};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

pub const VERSION: u16 = 1;
pub const DMA_MAP: u16 = 2;
pub const DMA_UNMAP: u16 = 3;
pub const REGION_INFO: u16 = 5;
pub const IRQ_INFO: u16 = 7;
pub const SET_IRQS: u16 = 8;
pub const REGION_READ: u16 = 9;
pub const REGION_WRITE: u16 = 10;
pub const DEVICE_RESET: u16 = 13;

/// Region numbers.
pub const BAR0: u32 = 0;
pub const CONFIG: u32 = 7;

/// Flags of a message.
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// A client, and the function that is served to it on a thread.
pub struct Client {
    /// The function; nobody's when another process serves.
    pub model: Model,
    stream: UnixStream,
    id: u16,
    server: Option<JoinHandle<Result<Report, ServeError>>>,
}

/// A path for a socket that no other test uses.
pub fn socket_path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("mlx5-{}-{}.sock", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    std::env::temp_dir().join(name)
}

/// Connects to a server, with a limit to what a test waits for.
pub fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

impl Client {
    /// Serves a function, connects, and agrees on the version.
    pub fn new(config: ModelConfig) -> Self {
        Self::silent(config).greet()
    }

    /// Connects to another process, and agrees on the version.
    pub fn of_process(path: &Path) -> Self {
        Self { model: Model::default(), stream: connect(path), id: 0, server: None }.greet()
    }

    fn greet(mut self) -> Self {
        let (major, minor) = ([0, 0], [0, 0]);
        let version = [&major[..], &minor, b"{\"capabilities\":{\"max_msg_fds\":16}}\0"].concat();
        let reply = self.call(VERSION, &version, &[]).unwrap();
        assert_eq!(reply[..4], [0; 4], "version 0.0");
        self
    }

    /// Serves a function and connects, without a word.
    pub fn silent(config: ModelConfig) -> Self {
        let (model, path) = (Model::new(config), socket_path());
        let server = Server::bind(&model, &path).unwrap();
        let server = std::thread::spawn(move || server.run());
        Self { model, stream: connect(&path), id: 0, server: Some(server) }
    }

    /// Sends a message; `size` is what its header says.
    pub fn send(&mut self, command: u16, flags: u32, size: usize, body: &[u8], fds: &[&File]) {
        self.id = self.id.wrapping_add(1);
        let (id, command, error) = (self.id.to_le_bytes(), command.to_le_bytes(), [0; 4]);
        let header = [&id[..], &command, &(size as u32).to_le_bytes(), &flags.to_le_bytes(), &error].concat();
        let bytes = [&header[..], body].concat();
        let fds: Vec<_> = fds.iter().map(|file| file.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        }
        let sent = sendmsg(&self.stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
        assert_eq!(sent, bytes.len());
    }

    /// Waits for the reply to the last message; `None` when it is an error.
    pub fn reply(&mut self) -> Option<Vec<u8>> {
        let mut header = [0; 16];
        self.stream.read_exact(&mut header).unwrap();
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!(header[..2], self.id.to_le_bytes(), "the reply is to the last message");
        let mut body = vec![0; word(4) as usize - 16];
        self.stream.read_exact(&mut body).unwrap();
        (word(8) & ERROR == 0).then_some(body)
    }

    /// Whether the server has hung up.
    pub fn is_cut_off(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0) | Err(_))
    }

    pub fn call(&mut self, command: u16, body: &[u8], fds: &[&File]) -> Option<Vec<u8>> {
        self.send(command, 0, 16 + body.len(), body, fds);
        self.reply()
    }

    pub fn read(&mut self, region: u32, offset: u64, count: u32) -> Option<Vec<u8>> {
        let body = [&offset.to_le_bytes()[..], &region.to_le_bytes(), &count.to_le_bytes()].concat();
        self.call(REGION_READ, &body, &[]).map(|reply| reply[16..].to_vec())
    }

    /// A posted write.
    pub fn write(&mut self, region: u32, offset: u64, data: &[u8]) {
        let count = data.len() as u32;
        let body = [&offset.to_le_bytes()[..], &region.to_le_bytes(), &count.to_le_bytes(), data].concat();
        self.send(REGION_WRITE, NO_REPLY, 16 + body.len(), &body, &[]);
    }

    /// A register of BAR 0.
    pub fn register(&mut self, offset: u64) -> u32 {
        u32::from_be_bytes(self.read(BAR0, offset, 4).unwrap().try_into().unwrap())
    }

    /// Maps `len` bytes at `iova`: rights 1 read, 2 write; `file` with an offset in it, or nothing.
    pub fn map(&mut self, (iova, len): (u64, u64), rights: u32, file: Option<(&File, u64)>) -> Option<Vec<u8>> {
        let offset = file.map_or(0, |(_, offset)| offset);
        let argsz = 32_u32.to_le_bytes();
        let numbers = [offset, iova, len].map(u64::to_le_bytes).concat();
        let body = [&argsz[..], &rights.to_le_bytes(), &numbers].concat();
        let fds: Vec<&File> = file.iter().map(|(file, _)| *file).collect();
        self.call(DMA_MAP, &body, &fds)
    }

    /// Unmaps `len` bytes at `iova`; flag 2 is for all that is mapped.
    pub fn unmap(&mut self, (iova, len): (u64, u64), flags: u32) -> Option<Vec<u8>> {
        let (argsz, numbers) = (24_u32.to_le_bytes(), [iova, len].map(u64::to_le_bytes).concat());
        self.call(DMA_UNMAP, &[&argsz[..], &flags.to_le_bytes(), &numbers].concat(), &[])
    }

    /// Sets interrupts of `index`: flags 0x24 are eventfds, 0x21 none.
    pub fn set_irqs(&mut self, index: u32, flags: u32, (start, count): (u32, u32), fds: &[&File]) -> Option<Vec<u8>> {
        let body = [20, flags, index, start, count].map(u32::to_le_bytes).concat();
        self.call(SET_IRQS, &body, fds)
    }

    /// Disconnects and returns how the server ended.
    pub fn end(self) -> Result<Report, ServeError> {
        drop(self.stream);
        self.server.expect("served here").join().expect("the server does not panic")
    }
}
