//! Drains completion queues through `mlx5` for programs in C: `drain.h`, which can be implemented for any driver, so that several
//! are timed in one process on the same bytes.
//!
//! Nothing here polls. A [`Drain`] is the facade's own CQ, made of raw parts over the caller's ring, and its modes call what
//! users call. Modes, in the order of their numbers: see [`Mode`]. A ring is aligned to 64 bytes.

mod drain;
mod ffi;

pub use drain::{Drain, Kind, Mode, Params};
pub use ffi::{DrainParams, drain_free, drain_mode_name, drain_modes, drain_new, drain_run};

/// What polling may use of the processor that this runs on.
pub fn best_cpu() -> mlx5::Cpu {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") {
            // SAFETY: it is there, with its registers, and so on each processor that this process is moved to.
            return unsafe { mlx5::Cpu::avx2() };
        }
        if is_x86_feature_detected!("ssse3") {
            // SAFETY: the same.
            return unsafe { mlx5::Cpu::ssse3() };
        }
    }
    mlx5::Cpu::compiled()
}
