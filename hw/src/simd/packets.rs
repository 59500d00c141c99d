//! Received packets, four entries at a time, where the processor has byte shuffles.

use super::recipe::place_in_number;
use super::{Cpu, First, Kind, Level, Receives, Shared};

/// Bytes of a packet's record.
pub const PACKET: usize = 32;

/// A place that no byte is moved to: byte shuffles put a zero there.
const NONE: u8 = 0x80;

/// What a packet stack wants to know of a receive: 32 bytes, of which the first eight are the request's name, and the rest comes
/// out of the entry ([`PacketRecipe`]).
///
/// # Safety
/// The type has 32 bytes, and any values of them are a value of it.
pub unsafe trait PacketRecord {}

/// Where the bytes of a packet's record come from.
///
/// Which moves are possible is said at [`with`](Self::with).
#[derive(Debug)]
pub struct PacketRecipe {
    /// Bytes 8 to 15, and the same once more, out of the dwords 10, 2, 11 and 3 of the descriptor.
    head: [u8; 16],
    /// Bytes 16 to 31, out of the dwords 4 to 7.
    front: [u8; 16],
    /// The same, out of the dwords 12 to 15.
    back: [u8; 16],
    /// Bits that count in bytes 16 to 31.
    keep: [u8; 16],
    /// The most that such a byte can be.
    most: [u8; 16],
    /// Bits that are set in them, whatever the entry says.
    fixed: [u8; 16],
}

impl PacketRecipe {
    /// Records that have zeros behind the name.
    pub const fn new() -> Self {
        let none = [NONE; 16];
        Self { head: none, front: none, back: none, keep: [0; 16], most: [u8::MAX; 16], fixed: [0; 16] }
    }

    /// Byte `to` of the record is byte `from` of the 64-byte descriptor, as far as `bits` says.
    ///
    /// Bytes 8 to 15 of the record come whole from 8 to 15 and 40 to 47; bytes 16 to 31 from 16 to 31 and 48 to 63.
    ///
    /// # Panics
    /// For any other move. To be used in constants, where that does not compile.
    #[expect(clippy::panic, reason = "at compile time")]
    pub const fn with(mut self, from: usize, to: usize, bits: u8) -> Self {
        match (to, from) {
            (8..16, 8..16 | 40..48) if bits == u8::MAX => {
                // Dwords 10, 2, 11, 3.
                let dword = 2 * (from / 4 % 2) + (from < 16) as usize;
                let byte = (4 * dword + from % 4) as u8;
                (self.head[to - 8], self.head[to]) = (byte, byte);
            }
            (16..32, 16..32) => self.front[to - 16] = (from - 16) as u8,
            (16..32, 48..64) => self.back[to - 16] = (from - 48) as u8,
            _ => panic!("no such move"),
        }
        if to >= 16 {
            self.keep[to - 16] = bits;
        }
        self
    }

    /// Byte `to` of the record, 16 to 31, is the lowest bit of `bits` if byte `from` of the descriptor has one of them, else 0.
    pub const fn with_any(self, from: usize, to: usize, bits: u8) -> Self {
        let mut with = self.with(from, to, bits);
        with.most[to - 16] = bits & bits.wrapping_neg();
        with
    }

    /// Byte `to` of the record, 16 to 31, has these bits.
    pub const fn with_fixed(mut self, to: usize, bits: u8) -> Self {
        self.fixed[to - 16] = bits;
        self
    }

    /// The `bytes` bytes of a big-endian number at `from` of the descriptor are one in CPU byte order at `to` of the record.
    pub const fn with_number(mut self, from: usize, to: usize, bytes: usize) -> Self {
        let mut i = 0;
        while i < bytes {
            self = self.with(from + i, place_in_number(to, bytes, i), u8::MAX);
            i += 1;
        }
        self
    }
}

impl Default for PacketRecipe {
    fn default() -> Self {
        Self::new()
    }
}

/// Takes receives of one queue as packets, and writes their records; how many it took: given the user index (dword 8, as in memory)
/// and how records are made, the descriptor of the first entry, the first name, the first record, the most to take, and the first's own.
///
/// # Safety
/// The processor has what this needs. There are as many entries, at the distance that this is for, and names (but for [`Shared`]), which
/// nobody writes meanwhile; the first descriptor is aligned to 64 bytes. As many records can be written.
pub(crate) type PacketTaker = unsafe fn((u32, &PacketRecipe), *const u8, *const u64, *mut u8, usize, First) -> usize;

/// What takes receives of `stride` bytes as packets, of a shared queue or not; `None` if there is nothing.
#[inline(always)]
pub(crate) fn packet_taker(cpu: Cpu, shared: bool, stride: usize) -> Option<PacketTaker> {
    Some(match (shared, stride) {
        (false, 64) => taker::<Receives, 64>(cpu)?,
        (false, 128) => taker::<Receives, 128>(cpu)?,
        (true, 64) => taker::<Shared, 64>(cpu)?,
        (true, 128) => taker::<Shared, 128>(cpu)?,
        _ => return None,
    })
}

#[inline(always)]
fn taker<K: Kind, const STRIDE: usize>(cpu: Cpu) -> Option<PacketTaker> {
    match cpu.0 {
        Level::Portable => None,
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        Level::Sse41 => Some(x86::sse41::<K, STRIDE>),
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        Level::Avx2 => Some(x86::avx2::<K, STRIDE>),
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86 {
    use core::arch::x86_64::*;
    use core::ptr::read_volatile;

    use super::super::x86::{COUNTERS, bytes, two_names};
    use super::super::{First, Kind};
    use super::{PACKET, PacketRecipe};
    use crate::arch::dma_rmb;

    macro_rules! paths {
        ($($(#[$doc:meta])* $name:ident, $feature:literal;)*) => {$(
            $(#[$doc])*
            ///
            /// # Safety
            /// What [`PacketTaker`](super::PacketTaker) says.
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn $name<K: Kind, const STRIDE: usize>(
                (user_index, recipe): (u32, &PacketRecipe),
                entries: *const u8,
                names: *const u64,
                to: *mut u8,
                most: usize,
                first: First,
            ) -> usize {
                let PacketRecipe { head, front, back, keep, most: cap, fixed } = recipe;
                let (head, front, back) = (bytes(head), bytes(front), bytes(back));
                let (keep, cap, fixed) = (bytes(keep), bytes(cap), bytes(fixed));
                let mask = _mm_set1_epi32(first.mask.into());
                // SAFETY: of what is there, as `PacketTaker` says, in descriptors aligned to 64 bytes. Loads of the ring are volatile, as
                // the device may write to it.
                let part = |at: *const u8, from: usize| unsafe { read_volatile(at.add(from).cast::<__m128i>()) };
                // All but the name: bytes 8 to 15, twice, and the rest.
                let moved = |at: *const u8, last: __m128i| {
                    let lengths = _mm_shuffle_epi8(_mm_unpackhi_epi32(part(at, 32), part(at, 0)), head);
                    let rest = _mm_or_si128(_mm_shuffle_epi8(part(at, 16), front), _mm_shuffle_epi8(last, back));
                    (lengths, _mm_or_si128(_mm_min_epu8(_mm_and_si128(rest, keep), cap), fixed))
                };
                let (mut at, mut names, mut to, mut left, mut place) = (entries, names, to, most, first.place);
                let mut next = _mm_add_epi32(_mm_set1_epi32(place.into()), _mm_setr_epi32(0, 1, 2, 3));
                // SAFETY: `PacketTaker` says that `most` entries, names and records are there.
                unsafe {
                    let owner = |at: *const u8| read_volatile(at.add(63)) == first.op_own;
                    let of_queue = |at: *const u8| read_volatile(at.add(32).cast::<u32>()) == user_index;
                    while left >= 4 {
                        let entry = |i: usize| at.add(i * STRIDE);
                        if !(owner(entry(0)) && owner(entry(1)) && owner(entry(2)) && owner(entry(3))) {
                            break;
                        }
                        dma_rmb();
                        if !(of_queue(entry(0)) && of_queue(entry(1)) && of_queue(entry(2)) && of_queue(entry(3))) {
                            break;
                        }
                        let d = [0, 1, 2, 3].map(|i| part(entry(i), 48));
                        let last = _mm_unpackhi_epi64(_mm_unpackhi_epi32(d[0], d[1]), _mm_unpackhi_epi32(d[2], d[3]));
                        let counters = _mm_shuffle_epi8(last, bytes(&COUNTERS));
                        let differ = _mm_and_si128(_mm_xor_si128(counters, next), mask);
                        if !K::SHARED && _mm_testz_si128(differ, differ) == 0 {
                            break;
                        }
                        let names_of = |i: usize| two_names::<K>(names, counters, i);
                        for i in 0..4 {
                            let (name, (lengths, rest)) = (names_of(i / 2), moved(entry(i), d[i]));
                            let even = i % 2 == 0;
                            let start =
                                if even { _mm_unpacklo_epi64(name, lengths) } else { _mm_unpackhi_epi64(name, lengths) };
                            let record = to.add(PACKET * i).cast::<__m128i>();
                            _mm_storeu_si128(record, start);
                            _mm_storeu_si128(record.add(1), rest);
                        }
                        (at, names, to) = (at.add(4 * STRIDE), names.wrapping_add(4), to.add(4 * PACKET));
                        next = _mm_add_epi32(next, _mm_set1_epi32(4));
                        (left, place) = (left - 4, place.wrapping_add(4));
                    }
                    while left != 0 && owner(at) {
                        dma_rmb();
                        let last = part(at, 48);
                        let counter = u16::from_be(_mm_extract_epi16::<6>(last) as u16);
                        if !of_queue(at) || !K::SHARED && (counter ^ place) & first.mask != 0 {
                            break;
                        }
                        let name = if K::SHARED { counter.into() } else { names.read() };
                        let (lengths, rest) = moved(at, last);
                        let record = to.cast::<__m128i>();
                        _mm_storeu_si128(record, _mm_unpacklo_epi64(_mm_cvtsi64_si128(name as i64), lengths));
                        _mm_storeu_si128(record.add(1), rest);
                        (at, names, to) = (at.add(STRIDE), names.wrapping_add(1), to.add(PACKET));
                        (left, place) = (left - 1, place.wrapping_add(1));
                    }
                }
                most - left
            }
        )*};
    }
    paths! {
        /// Takes packets, four at a time where there are as many, by AVX2; how many.
        avx2, "avx2";
        /// Takes packets, four at a time where there are as many, by SSE4.1; how many.
        sse41, "sse4.1,ssse3";
    }
}
