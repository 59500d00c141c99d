//! A kernel-bypass driver for NVIDIA ConnectX (mlx5) with a verbs-compatible API.
#![no_std]
extern crate alloc;

mod cmdq;
pub mod device;
mod dma;
mod eq;
pub mod error;
mod health;
mod pages;

pub use cmdq::CommandCounters;
pub use device::{Device, DeviceConfig};
pub use dma::Leaked;
pub use error::{Error, Returned};
pub use health::Health;
pub use mlx5_hw as hw;
pub use pages::PageCounters;
