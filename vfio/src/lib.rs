//! The pieces of the `mlx5` command-line tool. The port of the driver to Linux VFIO will live here; it is not there yet.

pub mod cli;
mod cq;
pub mod decode;
mod info;
mod latency;
mod options;
mod pingpong;
mod progress;
mod traffic;
