//! What reading entries may use of the processor beyond what the target promises.
//!
//! Nothing here looks at the processor: that takes an operating system, or registers that a library should not touch. Who
//! can look tells it by a [`Cpu`].

mod recipe;
mod session;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86;

pub use recipe::{RECORD, Recipe, Record};
pub(crate) use session::{take_minis, write_record};

use crate::ring::Alike;

/// Instructions that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpu(Level);

/// Each level has what the ones before it have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// What Rust's own operations become.
    Portable,
    /// Byte shuffles of 16 bytes.
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    Sse41,
    /// The same of three operands, and loads and stores of 32 bytes.
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    Avx2,
}

impl Cpu {
    /// No more than Rust's own operations: right everywhere.
    pub const PORTABLE: Self = Self(Level::Portable);

    /// What the target was compiled for.
    pub const fn compiled() -> Self {
        #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
        return Self(Level::Avx2);
        #[cfg(all(target_arch = "x86_64", target_feature = "sse4.1", not(target_feature = "avx2")))]
        return Self(Level::Sse41);
        #[cfg(not(all(target_arch = "x86_64", target_feature = "sse4.1")))]
        Self::PORTABLE
    }

    /// A processor with SSSE3 and SSE4.1.
    ///
    /// # Safety
    /// It is there on each processor on which completions are polled.
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    pub const unsafe fn sse41() -> Self {
        Self(Level::Sse41)
    }

    /// A processor with AVX2, and an operating system that keeps its registers.
    ///
    /// # Safety
    /// That is so on each processor on which completions are polled.
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    pub const unsafe fn avx2() -> Self {
        Self(Level::Avx2)
    }

    /// Its name, for reports: `portable`, `sse4.1` or `avx2`.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Level::Portable => "portable",
            #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
            Level::Sse41 => "sse4.1",
            #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
            Level::Avx2 => "avx2",
        }
    }
}

impl Default for Cpu {
    fn default() -> Self {
        Self::compiled()
    }
}

/// What kind of completions a stretch has.
#[doc(hidden)]
pub trait Kind {
    /// Sends.
    const SENDS: bool = false;
    /// Receives of a shared queue, in any order: a record's name is the counter.
    const SHARED: bool = false;
}

/// Sends, one behind the other.
pub enum Sends {}

impl Kind for Sends {
    const SENDS: bool = true;
}

/// Receives, one behind the other.
pub enum Receives {}

impl Kind for Receives {}

/// Receives of a shared queue.
pub enum Shared {}

impl Kind for Shared {
    const SHARED: bool = true;
}

/// Entries to be taken if they are alike: one queue, one kind, in the queue's order.
///
/// It travels in registers: what is written to memory just before it is read by a wider load is waited for.
///
/// # Safety
/// What reads it may take for granted: from `entries` on there are `most` entries of the path's stride, from `names` on as many
/// names (but for [`Shared`]), which nobody writes meanwhile; `entries` is the descriptor of the first one and aligned to 64 bytes.
/// `most` records can be written to `to`.
#[derive(Clone, Copy)]
pub struct Stretch {
    pub(crate) entries: *const u8,
    pub(crate) names: *const u64,
    pub(crate) to: *mut u8,
    pub(crate) most: usize,
    pub(crate) first: First,
}

/// What the first entry of a stretch has of its own.
#[derive(Clone, Copy)]
pub struct First {
    /// The counter, and which bits of it count.
    pub(crate) place: u16,
    pub(crate) mask: u16,
    /// The last byte, which all have.
    pub(crate) op_own: u8,
}

/// Takes entries as long as they are alike, from the first on, and writes their records; how many it took.
///
/// # Safety
/// What [`Stretch`] says, with a stride of `STRIDE` bytes.
#[inline(always)]
pub(crate) unsafe fn take<K: Kind, const STRIDE: usize>(cpu: Cpu, alike: &Alike<'_>, stretch: Stretch) -> usize {
    let Stretch { entries, names, to, most, first } = stretch;
    match cpu.0 {
        Level::Portable => 0,
        // SAFETY: the level says that the processor has the instructions; the rest is the caller's promise.
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        Level::Sse41 => unsafe { x86::sse41::<K, STRIDE>(alike, entries, names, to, most, first) },
        // SAFETY: likewise.
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        Level::Avx2 if most < 4 => unsafe { x86::avx2_few::<K, STRIDE>(alike, entries, names, to, most, first) },
        // SAFETY: likewise.
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        Level::Avx2 => unsafe { x86::avx2::<K, STRIDE>(alike, entries, names, to, most, first) },
    }
}
