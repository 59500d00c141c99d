//! How a record is put together from a completion entry.

/// Bytes of a record.
pub const RECORD: usize = 48;

/// A place that no byte is moved to: byte shuffles put a zero there.
const NONE: u8 = 0x80;

/// A completion as somebody wants it: 48 bytes, of which the first eight are the request's name, the next eight are the same for
/// all of a kind, and the rest comes out of the entry ([`Recipe`]).
///
/// # Safety
/// The type has 48 bytes, and any values of them are a value of it.
pub unsafe trait Record: Sized {
    /// Where the records are.
    #[doc(hidden)]
    #[inline(always)]
    fn bytes(records: &mut [Self]) -> *mut u8 {
        const { assert!(size_of::<Self>() == RECORD) }
        records.as_mut_ptr().cast()
    }
}

/// Where the bytes of a record come from, for completions of one kind.
///
/// A record is filled in three parts of 16 bytes. What is in an entry far from where it belongs cannot be moved there by any
/// recipe; which moves are possible is said at [`with`](Self::with).
#[derive(Debug)]
#[cfg_attr(
    not(all(target_arch = "x86_64", target_feature = "sse2")),
    expect(dead_code, reason = "read by byte shuffles alone")
)]
pub struct Recipe {
    /// Bytes 8 to 15.
    pub(super) fixed: u64,
    /// Bytes 16 to 31, out of the dwords 8, 9, 14 and 11 of the descriptor.
    pub(super) middle: [u8; 16],
    /// Bytes 32 to 47, out of the dwords 4 to 7.
    pub(super) front: [u8; 16],
    /// The same, out of the dwords 8 to 11.
    pub(super) back: [u8; 16],
    /// Bits that count in bytes 32 to 47.
    pub(super) keep: [u8; 16],
}

impl Recipe {
    /// Records that have `fixed` (in CPU byte order) in bytes 8 to 15, and zeros behind them.
    pub const fn new(fixed: u64) -> Self {
        Self { fixed, middle: [NONE; 16], front: [NONE; 16], back: [NONE; 16], keep: [0; 16] }
    }

    /// Byte `to` of the record is byte `from` of the 64-byte descriptor, as far as `bits` says.
    ///
    /// Bytes 16 to 31 of the record come whole from 32 to 39, 44 to 47 and 56 to 59; bytes 32 to 47 from 16 to 47.
    ///
    /// # Panics
    /// For any other move. To be used in constants, where that does not compile.
    #[expect(clippy::panic, reason = "at compile time")]
    pub const fn with(mut self, from: usize, to: usize, bits: u8) -> Self {
        match (to, from) {
            (16..32, 32..40 | 44..48) if bits == u8::MAX => self.middle[to - 16] = (from - 32) as u8,
            (16..32, 56..60) if bits == u8::MAX => self.middle[to - 16] = (from - 48) as u8,
            (32..48, 16..32) => self.front[to - 32] = (from - 16) as u8,
            (32..48, 32..48) => self.back[to - 32] = (from - 32) as u8,
            _ => panic!("no such move"),
        }
        if to >= 32 {
            self.keep[to - 32] = bits;
        }
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

/// Where byte `i` of a big-endian number goes in one of as many bytes in CPU byte order at `to`.
pub(super) const fn place_in_number(to: usize, bytes: usize, i: usize) -> usize {
    if cfg!(target_endian = "little") { to + bytes - 1 - i } else { to + i }
}
