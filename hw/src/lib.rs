//! Bytes and rings of NVIDIA ConnectX (mlx5) hardware.
//!
//! This crate knows what the device's structures look like and who owns which ring slot when. It performs no I/O,
//! allocates nothing and needs neither `std` nor `alloc`. Objects, bring-up and the verbs are in the crate `mlx5`.
//!
//! Names are those of the programmer's reference manual (PRM); bit offsets count from the most significant bit of the
//! first big-endian dword, as the PRM does.
#![no_std]

pub mod arch;
pub mod be;
pub mod caps;
pub mod cmd;
pub mod cmd_entry;
pub mod cqc;
pub mod cqe;
pub mod dbrec;
pub mod eqc;
pub mod eqe;
pub mod errno;
pub mod event_batch;
pub mod hca_vport;
pub mod health;
pub mod init_segment;
pub mod mini_cqe;
pub mod mkc;
pub mod mmio;
pub mod nic_vport;
pub mod platform;
pub mod prm;
pub mod qpc;
pub mod ring;
pub mod rmpc;
pub mod roce_address;
pub mod simd;
#[cfg(not(loom))]
mod sync;
#[cfg(loom)]
pub mod sync;
pub mod uar;
pub mod wqe;

#[doc(hidden)]
pub use pastey;
