//! The port of the mlx5 driver to Linux VFIO, and the pieces of its command-line tool.

pub mod cli;
pub mod decode;
mod info;
mod pingpong;
