//! What the processor of this machine has for polling.

use mlx5::Cpu;

/// The best level that this processor has.
pub fn detect() -> Cpu {
    levels().into_iter().max().unwrap_or(Cpu::PORTABLE)
}

/// Each level that this processor has, the plainest first.
pub fn levels() -> Vec<Cpu> {
    let mut levels = vec![Cpu::PORTABLE];
    #[cfg(target_arch = "x86_64")]
    levels.extend(vector_levels());
    levels
}

#[cfg(target_arch = "x86_64")]
fn vector_levels() -> impl Iterator<Item = Cpu> {
    // SAFETY: the processor says that it has SSE4.1; whatever moves a thread of this process to another processor keeps to
    // what the first one said, or the compiler's own detection would be wrong as well.
    let sse41 = is_x86_feature_detected!("sse4.1").then(|| unsafe { Cpu::sse41() });
    // SAFETY: the same for AVX2; the macro also asks the operating system for its registers.
    let avx2 = is_x86_feature_detected!("avx2").then(|| unsafe { Cpu::avx2() });
    sse41.into_iter().chain(avx2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_level_is_the_last_of_those_that_are_there_and_the_portable_one_always_is() {
        assert_eq!(levels().first(), Some(&Cpu::PORTABLE));
        assert_eq!(levels().last(), Some(&detect()));
        assert!(levels().is_sorted());
        assert!(detect() >= Cpu::compiled(), "the program would not run otherwise");
    }
}
