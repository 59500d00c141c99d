//! What reading entries may use of the processor beyond what the target promises.
//!
//! Nothing here looks at the processor: that takes an operating system, or registers that a library should not touch. Who
//! can look tells it by a [`Cpu`].

/// Instructions that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpu(Level);

/// Each level has what the ones before it have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// What Rust's own operations become.
    Portable,
    /// Byte shuffles of 16 bytes.
    #[cfg(target_arch = "x86_64")]
    Ssse3,
    /// The same of three operands, and loads and stores of 32 bytes.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Cpu {
    /// No more than Rust's own operations: right everywhere.
    pub const PORTABLE: Self = Self(Level::Portable);

    /// What the target was compiled for.
    pub const fn compiled() -> Self {
        #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
        return Self(Level::Avx2);
        #[cfg(all(target_arch = "x86_64", target_feature = "ssse3", not(target_feature = "avx2")))]
        return Self(Level::Ssse3);
        #[cfg(not(all(target_arch = "x86_64", target_feature = "ssse3")))]
        Self::PORTABLE
    }

    /// A processor with SSSE3.
    ///
    /// # Safety
    /// It is there on each processor on which completions are polled.
    #[cfg(target_arch = "x86_64")]
    pub const unsafe fn ssse3() -> Self {
        Self(Level::Ssse3)
    }

    /// A processor with AVX2, and an operating system that keeps its registers.
    ///
    /// # Safety
    /// That is so on each processor on which completions are polled.
    #[cfg(target_arch = "x86_64")]
    pub const unsafe fn avx2() -> Self {
        Self(Level::Avx2)
    }

    /// Its name, for reports: `portable`, `ssse3` or `avx2`.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Ssse3 => "ssse3",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
        }
    }
}

impl Default for Cpu {
    fn default() -> Self {
        Self::compiled()
    }
}
