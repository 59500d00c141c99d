//! Records of a session's completions, out of one record for all and the eight bytes of each.

use core::sync::atomic::AtomicU64;

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
use super::Level;
use super::{Cpu, RECORD, Record};
use crate::sync::{AtomicU32, Ordering::Relaxed};

/// Minis in an array.
const ARRAY: usize = 8;

/// Writes records of the completions from number `at` (modulo 8) of an array on, as far as there are names and places: all are
/// `record` but for the name and bytes 20 to 23, the length. How many.
#[inline(always)]
pub(crate) fn take_minis<R: Record>(
    cpu: Cpu,
    minis: &[AtomicU32; 16],
    at: u32,
    record: &R,
    names: &[AtomicU64],
    to: &mut [R],
) -> usize {
    const { assert!(size_of::<R>() == RECORD) }
    let first = at as usize % ARRAY;
    let most = (ARRAY - first).min(names.len()).min(to.len());
    match cpu.0 {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(loom)))]
        Level::Sse41 | Level::Avx2 if (&raw const *minis).addr().is_multiple_of(16) => {
            let from = minis.as_ptr().wrapping_add(2 * first).cast();
            let (record, names, to) = ((&raw const *record).cast(), names.as_ptr().cast(), to.as_mut_ptr().cast());
            // SAFETY: the level says that the processor has the instructions. From `first` on the array has `most` minis, and
            // as many names and records are there; a record is 48 bytes of any value.
            unsafe {
                if matches!(cpu.0, Level::Sse41) {
                    x86::sse41(from, first, record, names, to, most);
                } else {
                    x86::avx2(from, first, record, names, to, most);
                }
            }
        }
        _ => {
            for ((mini, name), to) in minis.chunks_exact(2).skip(first).zip(names).zip(&mut *to) {
                let length = mini.get(1).map_or(0, |word| u32::from_be(word.load(Relaxed)));
                write_record(record, name.load(Relaxed), length, to);
            }
        }
    }
    most
}

/// Writes `record` with another name and length.
#[inline(always)]
pub(crate) fn write_record<R: Record>(record: &R, name: u64, length: u32, to: &mut R) {
    const { assert!(size_of::<R>() == RECORD) }
    let to = (&raw mut *to).cast::<u8>();
    // SAFETY: a record has 48 bytes, of any value.
    unsafe {
        to.copy_from_nonoverlapping((&raw const *record).cast(), RECORD);
        to.cast::<u64>().write_unaligned(name);
        to.add(20).cast::<u32>().write_unaligned(length);
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(loom)))]
mod x86 {
    use core::arch::x86_64::*;
    use core::ptr::read_volatile;

    use super::{ARRAY, RECORD};

    /// A record in three parts, with a length of 0.
    ///
    /// # Safety
    /// 48 bytes are there.
    #[inline]
    #[target_feature(enable = "sse2")]
    unsafe fn parts(record: *const u8) -> [__m128i; 3] {
        // SAFETY: the caller's promise.
        let part = |i: usize| unsafe { _mm_loadu_si128(record.cast::<__m128i>().add(i)) };
        [part(0), _mm_and_si128(part(1), _mm_setr_epi32(-1, 0, -1, -1)), part(2)]
    }

    /// The record of one mini.
    ///
    /// # Safety
    /// Mini, name and record are there.
    #[inline]
    #[target_feature(enable = "sse2")]
    unsafe fn one(parts: [__m128i; 3], mini: *const u64, name: *const u64, to: *mut u8) {
        // SAFETY: the caller's promise; a mini is aligned to its size.
        unsafe {
            let length = (read_volatile(mini) >> 32) as u32;
            let length = _mm_slli_epi64::<32>(_mm_cvtsi32_si128(length.swap_bytes() as i32));
            let to = to.cast::<__m128i>();
            _mm_storeu_si128(
                to,
                _mm_unpacklo_epi64(_mm_cvtsi64_si128(name.read() as i64), _mm_unpackhi_epi64(parts[0], parts[0])),
            );
            _mm_storeu_si128(to.add(1), _mm_or_si128(parts[1], length));
            _mm_storeu_si128(to.add(2), parts[2]);
        }
    }

    /// Where the lengths of two minis are, as the second dwords of two parts.
    const LENGTHS: [i8; 32] = [
        -1, -1, -1, -1, 7, 6, 5, 4, -1, -1, -1, -1, -1, -1, -1, -1, //
        -1, -1, -1, -1, 15, 14, 13, 12, -1, -1, -1, -1, -1, -1, -1, -1,
    ];

    macro_rules! paths {
        ($($name:ident, $feature:literal, $pair:ident;)*) => {$(
            /// Writes `most` records of the minis from `from` on, which is number `first` of its array.
            ///
            /// # Safety
            /// The processor has the feature. `most` minis, names and records are there, the array is aligned to 16 bytes, and nobody
            /// writes to the names.
            #[inline]
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn $name(
                from: *const u64,
                first: usize,
                record: *const u8,
                names: *const u64,
                to: *mut u8,
                most: usize,
            ) {
                // SAFETY: the caller's promise; pairs start at an even mini, so they are aligned.
                unsafe {
                    let parts = parts(record);
                    if most == ARRAY {
                        for i in [0, 2, 4, 6] {
                            $pair(parts, from.add(i), names.add(i), to.add(i * RECORD));
                        }
                        return;
                    }
                    let mut i = 0;
                    if first % 2 != 0 && most != 0 {
                        one(parts, from, names, to);
                        i = 1;
                    }
                    while i + 2 <= most {
                        $pair(parts, from.add(i), names.add(i), to.add(i * RECORD));
                        i += 2;
                    }
                    if i != most {
                        one(parts, from.add(i), names.add(i), to.add(i * RECORD));
                    }
                }
            }
        )*};
    }
    paths! {
        sse41, "sse4.1,ssse3", pair_sse41;
        avx2, "avx2", pair_avx2;
    }

    /// The records of two minis.
    ///
    /// # Safety
    /// Minis, names and records are there, and the minis aligned to 16 bytes.
    #[inline]
    #[target_feature(enable = "sse4.1,ssse3")]
    unsafe fn pair_sse41(parts: [__m128i; 3], minis: *const u64, names: *const u64, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            let minis = read_volatile(minis.cast::<__m128i>());
            let names = _mm_loadu_si128(names.cast());
            let lengths = LENGTHS.as_ptr().cast::<__m128i>();
            let length = |i: usize| _mm_shuffle_epi8(minis, _mm_loadu_si128(lengths.add(i)));
            let to = to.cast::<__m128i>();
            _mm_storeu_si128(to, _mm_unpacklo_epi64(names, _mm_unpackhi_epi64(parts[0], parts[0])));
            _mm_storeu_si128(to.add(1), _mm_or_si128(parts[1], length(0)));
            _mm_storeu_si128(to.add(2), parts[2]);
            _mm_storeu_si128(to.add(3), _mm_unpackhi_epi64(names, parts[0]));
            _mm_storeu_si128(to.add(4), _mm_or_si128(parts[1], length(1)));
            _mm_storeu_si128(to.add(5), parts[2]);
        }
    }

    /// The same by AVX2.
    ///
    /// # Safety
    /// As there.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn pair_avx2(parts: [__m128i; 3], minis: *const u64, names: *const u64, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            let minis = _mm256_broadcastsi128_si256(read_volatile(minis.cast::<__m128i>()));
            let names = _mm_loadu_si128(names.cast());
            let fixed = _mm_unpackhi_epi64(parts[0], parts[0]);
            let lengths = _mm256_shuffle_epi8(minis, _mm256_loadu_si256(LENGTHS.as_ptr().cast()));
            let middle = _mm256_or_si256(_mm256_broadcastsi128_si256(parts[1]), lengths);
            let end = _mm256_broadcastsi128_si256(parts[2]);
            let head = [_mm_unpacklo_epi64(names, fixed), _mm_unpackhi_epi64(names, fixed)];
            let to = to.cast::<__m256i>();
            let first = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(head[0]), _mm256_castsi256_si128(middle));
            _mm256_storeu_si256(to, first);
            _mm256_storeu_si256(to.add(1), _mm256_inserti128_si256::<1>(end, head[1]));
            _mm256_storeu_si256(to.add(2), _mm256_permute2x128_si256::<0x31>(middle, end));
        }
    }
}
