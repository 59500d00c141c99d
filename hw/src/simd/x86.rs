//! Four entries at a time on x86-64.
//!
//! Both paths do the same, by 16 bytes or by two times 16: the owner bytes of four entries, the barrier, then what must be alike
//! in them; then each record is moved together out of the vectors that were looked at.

use core::arch::x86_64::*;
use core::ptr::read_volatile;

use super::{FEW, First, Kind, Recipe};
use crate::arch::dma_rmb;
use crate::ring::Alike;

/// Four counters, out of four last dwords.
pub(super) const COUNTERS: [u8; 16] = [1, 0, 0x80, 0x80, 5, 4, 0x80, 0x80, 9, 8, 0x80, 0x80, 13, 12, 0x80, 0x80];

/// A load of 16 constant bytes, of any alignment.
#[inline(always)]
pub(super) fn bytes(from: &[u8; 16]) -> __m128i {
    // SAFETY: 16 bytes are there.
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}

/// One entry, if it is like the others; false if not.
///
/// # Safety
/// As a [`TakeOne`](super::TakeOne), on a processor with SSE4.1.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
unsafe fn one<K: Kind>(alike: &Alike<'_>, at: *const u8, name: *const u64, to: *mut u8, first: First) -> bool {
    // SAFETY: within the descriptor, each load aligned to its size; then within the record.
    unsafe {
        if read_volatile(at.add(63)) != first.op_own {
            return false;
        }
        dma_rmb();
        let dword = |from: usize| read_volatile(at.add(from).cast::<u32>());
        let counter = u16::from_be(read_volatile(at.add(60).cast::<u16>()));
        let in_order = K::SHARED || (counter ^ first.place) & first.mask == 0;
        if dword(32) != alike.user_index || !in_order || K::SENDS && dword(56) != alike.request {
            return false;
        }
        let part = |from: usize| read_volatile(at.add(from).cast::<__m128i>());
        let recipe = alike.recipe;
        let b = part(32);
        let mut end = _mm_setzero_si128();
        if !K::SENDS {
            let moved = _mm_shuffle_epi8(part(16), bytes(&recipe.front));
            end = _mm_and_si128(_mm_or_si128(moved, _mm_shuffle_epi8(b, bytes(&recipe.back))), bytes(&recipe.keep));
            if _mm_extract_epi32::<1>(end) as u32 != alike.headers {
                return false;
            }
            end = _mm_insert_epi32::<1>(end, alike.flags as i32);
        }
        let body = _mm_shuffle_epi8(_mm_blend_epi16::<0b0011_0000>(b, part(48)), bytes(&recipe.middle));
        to.cast::<u64>().write(if K::SHARED { counter.into() } else { name.read() });
        to.cast::<u64>().add(1).write(recipe.fixed);
        _mm_storeu_si128(to.add(16).cast(), body);
        _mm_storeu_si128(to.add(32).cast(), end);
        true
    }
}

/// Two names of four: those at `2 * i` from `names` on, or of a shared queue the counters.
///
/// # Safety
/// There are four names at `names`, unless the queue is shared; and the processor has SSE4.1.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
pub(super) unsafe fn two_names<K: Kind>(names: *const u64, counters: __m128i, i: usize) -> __m128i {
    match i {
        // SAFETY: the caller's promise.
        _ if !K::SHARED => unsafe { _mm_loadu_si128(names.add(2 * i).cast()) },
        0 => _mm_cvtepu32_epi64(counters),
        _ => _mm_cvtepu32_epi64(_mm_unpackhi_epi64(counters, counters)),
    }
}

/// Whether four entries are software's and of one queue and kind, as far as bytes tell.
///
/// # Safety
/// There are four entries at `at`, aligned as for a [`TakeMany`](super::TakeMany).
#[inline(always)]
unsafe fn are_alike<K: Kind, const STRIDE: usize>(alike: &Alike<'_>, op_own: u8, at: *const u8) -> bool {
    // SAFETY: within the four descriptors, each load aligned to its size.
    unsafe {
        let owner = |i: usize| read_volatile(at.add(i * STRIDE + 63)) == op_own;
        if !(owner(0) && owner(1) && owner(2) && owner(3)) {
            return false;
        }
        dma_rmb();
        let dword = |i: usize, from: usize| read_volatile(at.add(i * STRIDE + from).cast::<u32>());
        let of_queue = |i: usize| dword(i, 32) == alike.user_index;
        let of_request = |i: usize| dword(i, 56) == alike.request;
        of_queue(0)
            && of_queue(1)
            && of_queue(2)
            && of_queue(3)
            && (!K::SENDS || of_request(0) && of_request(1) && of_request(2) && of_request(3))
    }
}

/// Takes four entries at a time as long as they are alike; how many.
///
/// # Safety
/// As a [`TakeMany`](super::TakeMany), on a processor with AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn many_avx2<K: Kind, const STRIDE: usize>(
    alike: &Alike<'_>,
    mut at: *const u8,
    mut names: *const u64,
    mut to: *mut u8,
    most: usize,
    first: First,
) -> usize {
    let Recipe { fixed, middle, front, back, keep } = alike.recipe;
    let twice = |from: &[u8; 16]| _mm256_broadcastsi128_si256(bytes(from));
    let (middle, front, back, keep) = (twice(middle), twice(front), twice(back), twice(keep));
    let lane_1 = |value: u32| _mm256_broadcastsi128_si256(_mm_setr_epi32(0, value as i32, 0, 0));
    let (headers, flags, all) = (lane_1(alike.headers), lane_1(alike.flags), lane_1(u32::MAX));
    let fixed = _mm_set1_epi64x(*fixed as i64);
    let mask = _mm_set1_epi32(first.mask.into());
    let mut next = _mm_add_epi32(_mm_set1_epi32(first.place.into()), _mm_setr_epi32(0, 1, 2, 3));
    let mut left = most / FEW;
    while left != 0 {
        // SAFETY: the caller says that four more entries, names and records are there, and that descriptors are aligned to 64
        // bytes. Loads of the ring are volatile, as the device may write to it.
        unsafe {
            if !are_alike::<K, STRIDE>(alike, first.op_own, at) {
                break;
            }
            let part = |i: usize, from: usize| read_volatile(at.add(i * STRIDE + from).cast::<__m128i>());
            let pair = |i, from| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(part(i, from)), part(i + 1, from));
            let (b, c) = ([pair(0, 32), pair(2, 32)], [pair(0, 48), pair(2, 48)]);
            let last = _mm256_unpackhi_epi32(c[0], c[1]);
            let last = _mm_unpackhi_epi32(_mm256_castsi256_si128(last), _mm256_extracti128_si256::<1>(last));
            let counters = _mm_shuffle_epi8(last, bytes(&COUNTERS));
            let mut end = [_mm256_setzero_si256(); 2];
            let mut differ = _mm_setzero_si128();
            if !K::SHARED {
                differ = _mm_and_si128(_mm_xor_si128(counters, next), mask);
            }
            if !K::SENDS {
                for i in 0..2 {
                    let moved = _mm256_shuffle_epi8(pair(2 * i, 16), front);
                    end[i] = _mm256_and_si256(_mm256_or_si256(moved, _mm256_shuffle_epi8(b[i], back)), keep);
                }
                let different = |i: usize| _mm256_xor_si256(end[i], headers);
                let headers = _mm256_and_si256(_mm256_or_si256(different(0), different(1)), all);
                let both = _mm256_or_si256(headers, _mm256_castsi128_si256(differ));
                if _mm256_testz_si256(both, both) == 0 {
                    break;
                }
            } else if _mm_testz_si128(differ, differ) == 0 {
                break;
            }
            let name = |i: usize| two_names::<K>(names, counters, i);
            for i in 0..2 {
                let (body, tail) = (
                    _mm256_shuffle_epi8(_mm256_blend_epi32::<0b0100_0100>(b[i], c[i]), middle),
                    _mm256_blend_epi32::<0b0010_0010>(end[i], flags),
                );
                let (name_0, name_1) = (_mm_unpacklo_epi64(name(i), fixed), _mm_unpackhi_epi64(name(i), fixed));
                let record = to.add(96 * i).cast::<__m256i>();
                let head = _mm256_castsi128_si256(name_0);
                let parts = [
                    _mm256_inserti128_si256::<1>(head, _mm256_castsi256_si128(body)),
                    _mm256_inserti128_si256::<1>(tail, name_1),
                    _mm256_permute2x128_si256::<0x31>(body, tail),
                ];
                _mm256_storeu_si256(record, parts[0]);
                _mm256_storeu_si256(record.add(1), parts[1]);
                _mm256_storeu_si256(record.add(2), parts[2]);
            }
            (at, to, names) = (at.add(4 * STRIDE), to.add(192), names.wrapping_add(4));
        }
        next = _mm_add_epi32(next, _mm_set1_epi32(4));
        left -= 1;
    }
    (most / FEW - left) * FEW
}

/// Takes four entries at a time as long as they are alike; how many.
///
/// # Safety
/// As a [`TakeMany`](super::TakeMany), on a processor with SSE4.1.
#[target_feature(enable = "sse4.1,ssse3")]
pub(super) unsafe fn many_sse41<K: Kind, const STRIDE: usize>(
    alike: &Alike<'_>,
    mut at: *const u8,
    mut names: *const u64,
    mut to: *mut u8,
    most: usize,
    first: First,
) -> usize {
    let Recipe { fixed, middle, front, back, keep } = alike.recipe;
    let (middle, front, back, keep) = (bytes(middle), bytes(front), bytes(back), bytes(keep));
    let lane_1 = |value: u32| _mm_setr_epi32(0, value as i32, 0, 0);
    let (headers, flags, all) = (lane_1(alike.headers), lane_1(alike.flags), lane_1(u32::MAX));
    let fixed = _mm_set1_epi64x(*fixed as i64);
    let mask = _mm_set1_epi32(first.mask.into());
    let mut next = _mm_add_epi32(_mm_set1_epi32(first.place.into()), _mm_setr_epi32(0, 1, 2, 3));
    let mut left = most / FEW;
    while left != 0 {
        // SAFETY: as in `many_avx2`.
        unsafe {
            if !are_alike::<K, STRIDE>(alike, first.op_own, at) {
                break;
            }
            let part = |i: usize, from: usize| read_volatile(at.add(i * STRIDE + from).cast::<__m128i>());
            let (b, c) = ([0, 1, 2, 3].map(|i| part(i, 32)), [0, 1, 2, 3].map(|i| part(i, 48)));
            let last = _mm_unpackhi_epi64(_mm_unpackhi_epi32(c[0], c[1]), _mm_unpackhi_epi32(c[2], c[3]));
            let counters = _mm_shuffle_epi8(last, bytes(&COUNTERS));
            let mut end = [_mm_setzero_si128(); 4];
            let mut differ = _mm_setzero_si128();
            if !K::SHARED {
                differ = _mm_and_si128(_mm_xor_si128(counters, next), mask);
            }
            if !K::SENDS {
                let mut headers_differ = _mm_setzero_si128();
                for i in 0..4 {
                    let moved = _mm_or_si128(_mm_shuffle_epi8(part(i, 16), front), _mm_shuffle_epi8(b[i], back));
                    end[i] = _mm_and_si128(moved, keep);
                    headers_differ = _mm_or_si128(headers_differ, _mm_xor_si128(end[i], headers));
                }
                differ = _mm_or_si128(differ, _mm_and_si128(headers_differ, all));
            }
            if _mm_testz_si128(differ, differ) == 0 {
                break;
            }
            let name = |i: usize| two_names::<K>(names, counters, i);
            for i in 0..4 {
                let pair = name(i / 2);
                let head = if i % 2 == 0 { _mm_unpacklo_epi64(pair, fixed) } else { _mm_unpackhi_epi64(pair, fixed) };
                let record = to.add(48 * i).cast::<__m128i>();
                _mm_storeu_si128(record, head);
                _mm_storeu_si128(record.add(1), _mm_shuffle_epi8(_mm_blend_epi16::<0b0011_0000>(b[i], c[i]), middle));
                _mm_storeu_si128(record.add(2), _mm_blend_epi16::<0b0000_1100>(end[i], flags));
            }
            (at, to, names) = (at.add(4 * STRIDE), to.add(192), names.wrapping_add(4));
        }
        next = _mm_add_epi32(next, _mm_set1_epi32(4));
        left -= 1;
    }
    (most / FEW - left) * FEW
}

/// One entry by AVX2.
///
/// # Safety
/// As a [`TakeOne`](super::TakeOne).
#[target_feature(enable = "avx2")]
pub(super) unsafe fn one_avx2<K: Kind>(
    alike: &Alike<'_>,
    at: *const u8,
    name: *const u64,
    to: *mut u8,
    first: First,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe { one::<K>(alike, at, name, to, first) }
}

/// One entry by SSE4.1.
///
/// # Safety
/// As a [`TakeOne`](super::TakeOne).
#[target_feature(enable = "sse4.1,ssse3")]
pub(super) unsafe fn one_sse41<K: Kind>(
    alike: &Alike<'_>,
    at: *const u8,
    name: *const u64,
    to: *mut u8,
    first: First,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe { one::<K>(alike, at, name, to, first) }
}
