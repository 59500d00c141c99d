//! What the fuzz targets share.

pub mod commands;
pub mod port;
pub mod session;
pub mod text;
pub mod views;
