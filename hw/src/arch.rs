//! Barriers between the CPU and the device.
//!
//! The device's accesses to coherent memory are ordered like those of another core, so a barrier here is never more
//! than what the architecture asks for between two observers of the same memory. On x86-64 loads and stores of
//! write-back memory keep their order: only the compiler has to be held back.
//!
//! | call | between | x86-64 | aarch64 | elsewhere |
//! |---|---|---|---|---|
//! | [`dma_rmb`] | the ownership bit read and the entry's body | `fence(Acquire)` | `dmb oshld` | `fence(SeqCst)` |
//! | [`dma_wmb`] | what the device will read and the doorbell that sends it there | `fence(Release)` | `dmb oshst` | `fence(SeqCst)` |
//! | [`dma_mb_before_ci`] | the last access to consumed entries and the consumer index that gives them back | `fence(Release)` | `dmb osh` | `fence(SeqCst)` |
//! | [`wc_flush`] | a write-combined store and the next register write | `sfence` | `dsb st` | `fence(SeqCst)` |
//!
//! `dma_wmb` also stands between a doorbell record and the register write behind it. On a platform whose registers are
//! mapped write-combined, [`wc_flush`] goes around the combined store.

#[cfg(any(not(target_arch = "aarch64"), loom))]
use crate::sync::{Ordering, fence};

/// `dmb`/`dsb` with the given scope. Not `nomem`, so that the compiler moves no access across it either.
#[cfg(target_arch = "aarch64")]
macro_rules! barrier {
    ($instruction:literal) => {
        // SAFETY: a barrier instruction reads and writes no register and no memory.
        unsafe { core::arch::asm!($instruction, options(nostack, preserves_flags)) }
    };
}

/// Loads before it (the ownership bit) are done before loads behind it (the body).
#[inline(always)]
pub fn dma_rmb() {
    #[cfg(any(target_arch = "x86_64", loom))]
    fence(Ordering::Acquire);
    #[cfg(all(target_arch = "aarch64", not(loom)))]
    barrier!("dmb oshld");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", loom)))]
    fence(Ordering::SeqCst);
}

/// Stores before it (entries, records) are seen by the device before stores behind it (record, doorbell).
#[inline(always)]
pub fn dma_wmb() {
    #[cfg(any(target_arch = "x86_64", loom))]
    fence(Ordering::Release);
    #[cfg(all(target_arch = "aarch64", not(loom)))]
    barrier!("dmb oshst");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", loom)))]
    fence(Ordering::SeqCst);
}

/// Loads and stores before it (consumed entries) are done before the store behind it (the consumer index), with which the
/// device may overwrite those entries.
#[inline(always)]
pub fn dma_mb_before_ci() {
    #[cfg(any(target_arch = "x86_64", loom))]
    fence(Ordering::Release);
    #[cfg(all(target_arch = "aarch64", not(loom)))]
    barrier!("dmb osh");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", loom)))]
    fence(Ordering::SeqCst);
}

/// Pushes write-combined stores out to the device and keeps later ones behind them.
#[inline(always)]
pub fn wc_flush() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE, which has this instruction, is part of every x86-64 processor.
    #[allow(unused_unsafe, reason = "a safe function from Rust 1.89 on")]
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(target_arch = "aarch64")]
    barrier!("dsb st");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fence(Ordering::SeqCst);
}
