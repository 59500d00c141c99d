//! The port of the driver to Linux VFIO, and the pieces of the `mlx5` command-line tool.

pub mod bench;
pub mod cli;
pub mod cpu;
mod cq;
pub mod decode;
pub mod host;
mod host_cli;
mod info;
mod latency;
mod options;
mod pingpong;
#[cfg(target_os = "linux")]
pub mod port;
mod progress;
mod rig;
mod selftest;
mod stop;
mod traffic;
