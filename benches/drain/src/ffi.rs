//! The functions of `drain.h`.

use std::ffi::{c_char, c_void};
use std::ptr::{self, NonNull};

use mlx5_vfio::cpu;

use super::{Drain, Kind, Mode, Params};

/// `struct drain_params`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DrainParams {
    /// The entries, aligned to 64 bytes.
    pub ring: *mut u8,
    /// How many entries: a power of two.
    pub nent: u32,
    /// Bytes of an entry: 64 or 128.
    pub cqe_sz: u32,
    /// `enum drain_kind`.
    pub kind: u32,
    /// Completions in a session. Not looked at: each says how long it is.
    pub session: u32,
    /// User index of the first queue pair.
    pub uidx0: u32,
    /// Number of the first queue pair.
    pub qpn0: u32,
    /// Queue pairs.
    pub nqp: u32,
    /// Places of each receive queue: none, or a power of two.
    pub rq_wqe_cnt: u32,
    /// Places of each send queue: none, or a power of two.
    pub sq_wqe_cnt: u32,
    /// Not 0: receives come from a shared queue.
    pub has_srq: u32,
}

/// Number of modes.
#[unsafe(no_mangle)]
pub extern "C" fn drain_modes() -> u32 {
    Mode::ALL.len() as u32
}

/// Name of a mode; null for one that is none.
#[unsafe(no_mangle)]
pub extern "C" fn drain_mode_name(mode: u32) -> *const c_char {
    Mode::ALL.get(mode as usize).map_or(ptr::null(), |mode| mode.name().as_ptr())
}

/// A ring to be drained in mode `mode`; null for a ring or a mode that is none.
///
/// # Safety
/// `params` is null or points to such a structure. Its `ring` is null or valid for reads and writes of the entries until
/// [`drain_free`], and is not written to while [`drain_run`] runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drain_new(params: *const DrainParams, mode: u32) -> *mut c_void {
    // SAFETY: the caller's promise.
    let Some(params) = (unsafe { params.as_ref() }) else { return ptr::null_mut() };
    let (Some(ring), Some(kind), Some(mode)) =
        (NonNull::new(params.ring), Kind::from_number(params.kind), Mode::ALL.get(mode as usize))
    else {
        return ptr::null_mut();
    };
    let params = Params {
        ring,
        entries: params.nent,
        cqe_size: params.cqe_sz,
        kind,
        user_index: params.uidx0,
        qpn: params.qpn0,
        queues: params.nqp,
        receives: params.rq_wqe_cnt,
        sends: params.sq_wqe_cnt,
        shared: params.has_srq != 0,
    };
    // SAFETY: the caller's promise; the processor was asked.
    let drain = unsafe { Drain::new(&params, *mode, cpu::detect()) };
    drain.map_or(ptr::null_mut(), |drain| Box::into_raw(Box::new(drain)).cast())
}

/// Drains up to `want` completions in polls of `batch`; how many there were. `wr_id`, length and status of each are added to `*sum`.
///
/// # Safety
/// `h` is null or came from [`drain_new`], was not freed and is used by one thread at a time; `sum` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drain_run(h: *mut c_void, batch: u32, want: u32, sum: *mut u64) -> u32 {
    // SAFETY: the caller's promise: it is what `drain_new` made.
    let Some(drain) = (unsafe { h.cast::<Drain>().as_mut() }) else { return 0 };
    let (drained, more) = drain.run(batch, want);
    // SAFETY: the caller's promise.
    if let Some(sum) = unsafe { sum.as_mut() } {
        *sum = sum.wrapping_add(more);
    }
    drained
}

/// Ends it. The ring is the caller's alone again.
///
/// # Safety
/// `h` is null or came from [`drain_new`], and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drain_free(h: *mut c_void) {
    if let Some(drain) = NonNull::new(h.cast::<Drain>()) {
        // SAFETY: the caller's promise: it is what `drain_new` took out of a box.
        drop(unsafe { Box::from_raw(drain.as_ptr()) });
    }
}
