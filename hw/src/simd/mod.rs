//! What reading entries may use of the processor beyond what the target promises.
//!
//! Nothing here looks at the processor: that takes an operating system, or registers that a library should not touch. Who
//! can look tells it by a [`Cpu`].

mod packets;
mod recipe;
mod session;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86;

pub(crate) use packets::packet_taker;
pub use packets::{PACKET, PacketRecipe, PacketRecord};
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

/// What the first of some entries has of its own.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(all(target_arch = "x86_64", target_feature = "sse2")),
    expect(dead_code, reason = "read by byte shuffles alone")
)]
pub struct First {
    /// The counter, and which bits of it count.
    pub(crate) place: u16,
    pub(crate) mask: u16,
    /// The last byte, which all have.
    pub(crate) op_own: u8,
}

/// Takes entries as long as they are alike, four at a time, and writes their records; how many it took: given what is alike, the
/// descriptor of the first entry, the first name, the first record, the most to take, and the first's own.
///
/// Its arguments travel in registers: what is written to memory just before it is read by a wider load is waited for.
///
/// # Safety
/// The processor has what this needs. There are as many entries, at the distance that this is for, and names (but for [`Shared`]),
/// which nobody writes meanwhile; the first descriptor is aligned to 64 bytes. As many records can be written.
pub type TakeMany = unsafe fn(&Alike<'_>, *const u8, *const u64, *mut u8, usize, First) -> usize;

/// The same for one entry; whether it took it.
///
/// # Safety
/// As for [`TakeMany`].
pub type TakeOne = unsafe fn(&Alike<'_>, *const u8, *const u64, *mut u8, First) -> bool;

/// What takes entries.
#[derive(Clone, Copy, Debug)]
pub struct Takers {
    pub(crate) one: TakeOne,
    pub(crate) many: TakeMany,
}

/// Entries that are looked at together.
pub(crate) const FEW: usize = 4;

/// What takes entries of `STRIDE` bytes.
pub(crate) fn takers<K: Kind, const STRIDE: usize>(cpu: Cpu) -> Option<Takers> {
    match cpu.0 {
        Level::Portable => None,
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        Level::Sse41 => Some(Takers { one: x86::one_sse41::<K>, many: x86::many_sse41::<K, STRIDE> }),
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        Level::Avx2 => Some(Takers { one: x86::one_avx2::<K>, many: x86::many_avx2::<K, STRIDE> }),
    }
}
