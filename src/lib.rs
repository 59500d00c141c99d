//! A kernel-bypass driver for NVIDIA ConnectX (mlx5) with a verbs-compatible API.
#![no_std]
extern crate alloc;

mod cmdq;
pub mod device;
mod dma;
pub mod error;

pub use cmdq::CommandCounters;
pub use device::{Device, DeviceConfig};
pub use dma::Leaked;
pub use error::{Error, Returned};
pub use mlx5_hw as hw;
