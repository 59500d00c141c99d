//! What the fuzz targets share.

pub mod commands;
pub mod cqe;
pub mod eqe;
pub mod memory;
pub mod port;
pub mod session;
pub mod sessions;
pub mod text;
pub mod views;
