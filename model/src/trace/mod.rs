//! Traces of commands as text: one line a command.
//!
//! ```text
//! 4.591694 CMD slot=31 MANAGE_PAGES(0x108) opmod=1 uid=0 inlen=144 outlen=16 st=0 give=16 total=16
//! ```
//!
//! The time in seconds may be missing; `st=?` stands for a command that has not completed. Behind the status follow the
//! inputs and answers that matter, as [`Detail`]s. [`read`] takes what [`Line`] writes, and logs of other programs in
//! the same form that write details as `GIVE 16 total 16` and numbers as `mask 400`; it passes over every other line. [`compare`] finds where two traces differ in meaning.

mod align;
pub(crate) mod detail;
mod diff;
mod line;
mod meaning;
mod numbers;

pub use diff::{Difference, Ignore, Kind, TooLong, compare};
pub use line::{Detail, Line, Value, read};
