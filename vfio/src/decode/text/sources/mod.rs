//! The forms of lines, a table for each program that prints them.
//!
//! The forms are those of the public sources and reports of these programs; the order within a table matters only where one
//! line fits two forms: then the first counts.

mod kernel;
mod libraries;
mod mpi;
mod nccl;

use super::format::Format;

/// All tables. A form of a known program counts before one that any program may print.
pub const ALL: &[&[Format]] = &[kernel::FORMATS, nccl::FORMATS, libraries::FORMATS, mpi::FORMATS];
