//! Big-endian integers with their natural alignment.
//!
//! Byte-array types would tear: a volatile or atomic access to them compiles to one access a byte. These are plain
//! integers that hold the bytes in device order, so that one value is one load or store.

macro_rules! be {
    ($(#[$doc:meta])* $name:ident, $int:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name($int);

        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0);

            /// The big-endian form of a value in CPU order.
            #[inline]
            pub const fn new(value: $int) -> Self {
                Self(value.to_be())
            }

            /// The value in CPU order.
            #[inline]
            pub const fn get(self) -> $int {
                $int::from_be(self.0)
            }

            /// Wraps an integer loaded as it lies in memory.
            #[inline]
            pub const fn from_raw(raw: $int) -> Self {
                Self(raw)
            }

            /// The integer to store so that its bytes lie in memory in device order.
            #[inline]
            pub const fn to_raw(self) -> $int {
                self.0
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "{:#x}", self.get())
            }
        }
    };
}

be!(
    /// A 16-bit big-endian integer, aligned to two bytes.
    Be16, u16
);
be!(
    /// A 32-bit big-endian integer, aligned to four bytes.
    Be32, u32
);
be!(
    /// A 64-bit big-endian integer, aligned to eight bytes.
    Be64, u64
);
