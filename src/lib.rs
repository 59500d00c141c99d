//! A kernel-bypass driver for NVIDIA ConnectX (mlx5) with a verbs-compatible API.
#![no_std]
extern crate alloc;
