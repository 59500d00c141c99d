//! How a hardware structure is declared: once, as the PRM lists it.
//!
//! [`prm!`](crate::prm!) turns `field: bit_offset, width` into getters and setters on an array of big-endian dwords
//! and into a table ([`Layout::FIELDS`]) from which tests, traces and decoders read names, places and meanings.
//! [`prm_values!`](crate::prm_values!) does the same for sets of named numbers.
//!
//! A setter keeps the low bits that fit the field; nothing here can panic.

use crate::be::Be32;

/// Place of a field of at most 64 bits: the dword it lies in, the shift and the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// Offset in bits from the most significant bit of the structure.
    pub offset: u32,
    /// Width in bits, 1 to 32 or 64.
    pub width: u32,
}

impl Bits {
    /// A field at `offset`, `width` bits wide. A declaration that straddles a dword does not compile.
    pub const fn new(offset: u32, width: u32) -> Self {
        assert!(
            (width == 64 && offset.is_multiple_of(32)) || (width >= 1 && width <= 32 && offset % 32 + width <= 32),
            "a field lies within one dword or is two whole dwords"
        );
        Self { offset, width }
    }

    /// Index of the dword that holds the field (of the first one for 64 bits).
    #[inline]
    pub const fn dword(self) -> usize {
        (self.offset / 32) as usize
    }

    /// Takes a field of at most 32 bits out of its dword.
    #[inline]
    pub const fn of(self, dword: Be32) -> u32 {
        (dword.get() >> self.shift()) & self.mask()
    }

    /// The dword with a field of at most 32 bits replaced; `value` is cut to the field's width.
    #[inline]
    pub const fn put(self, dword: Be32, value: u32) -> Be32 {
        let mask = self.mask();
        Be32::new((dword.get() & !(mask << self.shift())) | ((value & mask) << self.shift()))
    }

    const fn shift(self) -> u32 {
        (32 - self.width - self.offset % 32) & 31
    }

    const fn mask(self) -> u32 {
        if self.width >= 32 { u32::MAX } else { (1 << self.width) - 1 }
    }
}

/// One field of a declared structure.
pub struct Field {
    /// Name as in the PRM's headers.
    pub name: &'static str,
    /// What it means: the field's documentation.
    pub doc: &'static str,
    /// Offset in bits from the most significant bit of the structure.
    pub bit_offset: u32,
    /// Width in bits of the field, or of one element of an array.
    pub bit_width: u32,
    /// Number of elements; 1 for a plain field, 0 for a list of any length behind the structure.
    pub count: u32,
    /// The fields of a nested structure; empty for a number.
    pub nested: &'static [Field],
    /// Name of the nested structure; empty for a number.
    pub nested_name: &'static str,
    /// Reads element `i` through the declared getter, from the dwords of the whole structure. The elements of a nested
    /// structure are its dwords.
    pub get: fn(&[Be32], usize) -> u64,
    /// Writes element `i` through the declared setter, into the dwords of the whole structure. The elements of a nested
    /// structure are its dwords.
    pub set: fn(&mut [Be32], usize, u64),
}

/// Element `index` of a list behind a structure; 0 beyond `words`.
pub fn tail_get(words: &[Be32], list: Bits, index: usize) -> u64 {
    let at = (list.offset as usize + index * list.width as usize) / 32;
    let word = |at: usize| words.get(at).map_or(0, |w| w.get());
    match list.width {
        64 => (u64::from(word(at)) << 32) | u64::from(word(at + 1)),
        _ => u64::from(word(at)),
    }
}

/// Sets element `index` of a list behind a structure; does nothing beyond `words`.
pub fn tail_set(words: &mut [Be32], list: Bits, index: usize, value: u64) {
    let at = (list.offset as usize + index * list.width as usize) / 32;
    let mut put = |at: usize, value: u32| {
        if let Some(word) = words.get_mut(at) {
            *word = Be32::new(value);
        }
    };
    match list.width {
        64 => {
            put(at, (value >> 32) as u32);
            put(at + 1, value as u32);
        }
        _ => put(at, value as u32),
    }
}

/// A structure declared with [`prm!`](crate::prm!).
pub trait Layout: Copy + 'static {
    /// Name as in the PRM's headers.
    const NAME: &'static str;
    /// Size in bytes, without a variable tail.
    const BYTES: usize;
    /// All fields zero.
    const ZERO: Self;
    /// The fields, in the order of declaration.
    const FIELDS: &'static [Field];

    /// The structure as dwords in device order.
    fn words(&self) -> &[Be32];

    /// The structure as dwords in device order, to be written.
    fn words_mut(&mut self) -> &mut [Be32];

    /// Copies the structure from dwords; what `words` lacks is zero.
    fn from_words(words: &[Be32]) -> Self {
        let mut out = Self::ZERO;
        for (to, from) in out.words_mut().iter_mut().zip(words) {
            *to = *from;
        }
        out
    }
}

/// Declares a hardware structure.
///
/// ```
/// mlx5_hw::prm! {
///     /// A structure of eight bytes.
///     pub struct Example("example", 8) {
///         /// One bit: a `bool`.
///         valid: 0x00, 1;
///         /// Up to 32 bits: a `u32`.
///         cqn: 0x08, 24;
///         /// An array: the getter takes the index.
///         rates: 0x20, [16; 2];
///     }
/// }
/// let e = Example::new().with_valid(true).with_cqn(0x123456).with_rates(1, 7);
/// assert_eq!((e.valid(), e.cqn(), e.rates(1), e.rates(2)), (true, 0x123456, 7, 0));
/// ```
///
/// A kind of `64` is a `u64`; the name of another declared structure nests that structure; `[64;]` (or `[32;]`) is a
/// list of any length behind the structure, of which only the place is declared. A name that Rust cannot spell is
/// given as `r#type as "type"`.
#[macro_export]
macro_rules! prm {
    ($(#[$meta:meta])* $vis:vis struct $name:ident($prm:literal, $bytes:literal) {
        $($(#[doc = $doc:expr])* $field:ident $(as $csv:literal)?: $off:literal, $kind:tt;)*
    }) => {
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq)]
        $vis struct $name([$crate::be::Be32; $bytes / 4]);

        #[allow(clippy::len_without_is_empty, reason = "a field may be called `len`")]
        impl $name {
            /// Size in bytes.
            pub const BYTES: usize = $bytes;

            /// All fields zero.
            pub const fn new() -> Self {
                Self([$crate::be::Be32::ZERO; $bytes / 4])
            }

            $($crate::prm!(@access [$($doc),*] $field $off $kind);)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl $crate::prm::Layout for $name {
            const NAME: &'static str = $prm;
            const BYTES: usize = $bytes;
            const ZERO: Self = Self::new();
            const FIELDS: &'static [$crate::prm::Field] =
                &[$($crate::prm!(@field $name [$($doc),*] [$($csv)?] $field $off $kind)),*];

            fn words(&self) -> &[$crate::be::Be32] {
                &self.0
            }

            fn words_mut(&mut self) -> &mut [$crate::be::Be32] {
                &mut self.0
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let mut s = f.debug_struct(stringify!($name));
                $($crate::prm!(@debug s self $field $kind);)*
                s.finish()
            }
        }
    };

    (@debug $s:ident $self:ident $field:ident [$w:tt;]) => {};
    (@debug $s:ident $self:ident $field:ident [$w:tt; $n:literal]) => {
        $s.field(stringify!($field), &core::array::from_fn::<_, $n, _>(|i| $self.$field(i)))
    };
    (@debug $s:ident $self:ident $field:ident $kind:tt) => { $s.field(stringify!($field), &$self.$field()) };

    (@name [] $field:ident) => { stringify!($field) };
    (@name [$csv:literal] $field:ident) => { $csv };

    (@ty 1) => { bool };
    (@ty 64) => { u64 };
    (@ty $w:literal) => { u32 };

    (@load $self:ident $bits:expr, $i:expr, 64) => {{
        let d = $bits.dword() + 2 * $i;
        ((($self.0[d].get() as u64) << 32) | $self.0[d + 1].get() as u64)
    }};
    (@load $self:ident $bits:expr, $i:expr, 1) => {
        $bits.of($self.0[$bits.dword()]) != 0
    };
    (@load $self:ident $bits:expr, $i:expr, $w:literal) => {
        $bits.of($self.0[$bits.dword()])
    };
    (@store $self:ident $bits:expr, $i:expr, $v:ident, 64) => {{
        let d = $bits.dword() + 2 * $i;
        $self.0[d] = $crate::be::Be32::new(($v >> 32) as u32);
        $self.0[d + 1] = $crate::be::Be32::new($v as u32);
    }};
    (@store $self:ident $bits:expr, $i:expr, $v:ident, $w:tt) => {{
        let d = $bits.dword();
        $self.0[d] = $bits.put($self.0[d], $v as u32);
    }};

    (@access [$($doc:expr),*] $field:ident $off:literal [$w:tt;]) => { $crate::pastey::paste! {
        $(#[doc = $doc])*
        #[doc = concat!("\n\nByte offset of a list of ", $w, "-bit elements behind the structure.")]
        pub const [<$field:upper _OFFSET>]: usize = $off / 8;
    }};
    (@access [$($doc:expr),*] $field:ident $off:literal [$w:tt; $n:literal]) => { $crate::pastey::paste! {
        $(#[doc = $doc])*
        #[doc = concat!("\n\nBits ", $off, ", ", $w, " wide, ", $n, " elements. An index beyond them reads as 0.")]
        #[inline]
        pub const fn $field(&self, index: usize) -> $crate::prm!(@elem $w) {
            if index >= $n {
                return 0;
            }
            $crate::prm!(@load_elem self $off $w index)
        }
        #[doc = concat!("Sets an element of `", stringify!($field), "`; an index beyond the array does nothing.")]
        #[inline]
        pub const fn [<set_ $field>](&mut self, index: usize, value: $crate::prm!(@elem $w)) {
            if index < $n {
                $crate::prm!(@store_elem self $off $w index value)
            }
        }
        #[doc = concat!("The structure with an element of `", stringify!($field), "` set.")]
        #[inline]
        pub const fn [<with_ $field>](mut self, index: usize, value: $crate::prm!(@elem $w)) -> Self {
            self.[<set_ $field>](index, value);
            self
        }
    }};
    (@access [$($doc:expr),*] $field:ident $off:literal $t:ident) => { $crate::pastey::paste! {
        $(#[doc = $doc])*
        #[doc = concat!("\n\nNested structure at bit ", $off, ".")]
        pub fn $field(&self) -> $t {
            <$t as $crate::prm::Layout>::from_words(&self.0[$off / 32..])
        }
        #[doc = concat!("Sets the nested structure `", stringify!($field), "`.")]
        pub fn [<set_ $field>](&mut self, value: $t) {
            const { assert!($off % 32 == 0) };
            for (to, from) in self.0[$off / 32..].iter_mut().zip($crate::prm::Layout::words(&value)) {
                *to = *from;
            }
        }
        #[doc = concat!("The structure with the nested `", stringify!($field), "` set.")]
        pub fn [<with_ $field>](mut self, value: $t) -> Self {
            self.[<set_ $field>](value);
            self
        }
    }};
    (@access [$($doc:expr),*] $field:ident $off:literal $w:tt) => { $crate::pastey::paste! {
        #[doc = concat!("Place of `", stringify!($field), "`.")]
        pub const [<$field:upper>]: $crate::prm::Bits = $crate::prm::Bits::new($off, $w);
        $(#[doc = $doc])*
        #[doc = concat!("\n\nBits ", $off, ", ", $w, " wide.")]
        #[inline]
        pub const fn $field(&self) -> $crate::prm!(@ty $w) {
            $crate::prm!(@load self Self::[<$field:upper>], 0, $w)
        }
        #[doc = concat!("Sets `", stringify!($field), "`, cut to its width.")]
        #[inline]
        pub const fn [<set_ $field>](&mut self, value: $crate::prm!(@ty $w)) {
            $crate::prm!(@store self Self::[<$field:upper>], 0, value, $w)
        }
        #[doc = concat!("The structure with `", stringify!($field), "` set, cut to its width.")]
        #[inline]
        pub const fn [<with_ $field>](mut self, value: $crate::prm!(@ty $w)) -> Self {
            self.[<set_ $field>](value);
            self
        }
    }};

    (@elem 64) => { u64 };
    (@elem $w:literal) => { u32 };
    (@load_elem $self:ident $off:literal 64 $i:ident) => {
        $crate::prm!(@load $self $crate::prm::Bits::new($off, 64), $i, 64)
    };
    (@load_elem $self:ident $off:literal $w:literal $i:ident) => {{
        let bits = $crate::prm::Bits::new($off + $w * $i as u32, $w);
        bits.of($self.0[bits.dword()])
    }};
    (@store_elem $self:ident $off:literal 64 $i:ident $v:ident) => {
        $crate::prm!(@store $self $crate::prm::Bits::new($off, 64), $i, $v, 64)
    };
    (@store_elem $self:ident $off:literal $w:literal $i:ident $v:ident) => {{
        let bits = $crate::prm::Bits::new($off + $w * $i as u32, $w);
        let d = bits.dword();
        $self.0[d] = bits.put($self.0[d], $v);
    }};

    (@field $name:ident [$($doc:expr),*] [$($csv:literal)?] $field:ident $off:literal [$w:tt;]) => {
        $crate::prm::Field {
            name: $crate::prm!(@name [$($csv)?] $field), doc: concat!($($doc),*), bit_offset: $off, bit_width: $w,
            count: 0, nested: &[], nested_name: "",
            get: |words, i| $crate::prm::tail_get(words, $crate::prm::Bits::new($off, $w), i),
            set: |words, i, value| $crate::prm::tail_set(words, $crate::prm::Bits::new($off, $w), i, value),
        }
    };
    (@field $name:ident [$($doc:expr),*] [$($csv:literal)?] $field:ident $off:literal [$w:tt; $n:literal]) => { $crate::pastey::paste! {
        $crate::prm::Field {
            name: $crate::prm!(@name [$($csv)?] $field), doc: concat!($($doc),*), bit_offset: $off, bit_width: $w,
            count: $n, nested: &[], nested_name: "",
            get: |words, i| <$name as $crate::prm::Layout>::from_words(words).$field(i) as u64,
            set: |words, i, value| {
                let s = <$name as $crate::prm::Layout>::from_words(words).[<with_ $field>](i, value as _);
                for (to, from) in words.iter_mut().zip(s.0) { *to = from; }
            },
        }
    }};
    (@field $name:ident [$($doc:expr),*] [$($csv:literal)?] $field:ident $off:literal $t:ident) => { $crate::pastey::paste! {
        $crate::prm::Field {
            name: $crate::prm!(@name [$($csv)?] $field), doc: concat!($($doc),*), bit_offset: $off,
            bit_width: 8 * <$t as $crate::prm::Layout>::BYTES as u32, count: 1,
            nested: <$t as $crate::prm::Layout>::FIELDS, nested_name: <$t as $crate::prm::Layout>::NAME,
            get: |words, i| {
                let inner = <$name as $crate::prm::Layout>::from_words(words).$field();
                $crate::prm::Layout::words(&inner).get(i).map_or(0, |word| word.get() as u64)
            },
            set: |words, i, value| {
                let mut s = <$name as $crate::prm::Layout>::from_words(words);
                let mut inner = s.$field();
                if let Some(word) = $crate::prm::Layout::words_mut(&mut inner).get_mut(i) {
                    *word = $crate::be::Be32::new(value as u32);
                }
                s.[<set_ $field>](inner);
                for (to, from) in words.iter_mut().zip(s.0) { *to = from; }
            },
        }
    }};
    (@field $name:ident [$($doc:expr),*] [$($csv:literal)?] $field:ident $off:literal $w:tt) => { $crate::pastey::paste! {
        $crate::prm::Field {
            name: $crate::prm!(@name [$($csv)?] $field), doc: concat!($($doc),*), bit_offset: $off, bit_width: $w,
            count: 1, nested: &[], nested_name: "",
            get: |words, _| <$name as $crate::prm::Layout>::from_words(words).$field() as u64,
            set: |words, _, value| {
                let s = <$name as $crate::prm::Layout>::from_words(words)
                    .[<with_ $field>]($crate::prm!(@from_u64 value $w));
                for (to, from) in words.iter_mut().zip(s.0) { *to = from; }
            },
        }
    }};
    (@from_u64 $v:ident 1) => { $v & 1 != 0 };
    (@from_u64 $v:ident $w:tt) => { $v as _ };
}

/// Declares a set of named numbers: a newtype with one constant a name, so that a number without a name survives.
/// A name that Rust cannot spell is given as `QP_2ERR as "2ERR_QP"`.
#[macro_export]
macro_rules! prm_values {
    ($(#[$meta:meta])* $vis:vis struct $name:ident($int:ident) {
        $($(#[doc = $doc:expr])* $value:ident $(as $csv:literal)? = $number:literal;)*
    }) => {
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        $vis struct $name(pub $int);

        impl $name {
            $($(#[doc = $doc])* pub const $value: Self = Self($number);)*

            /// The named numbers: name, number, meaning.
            pub const VALUES: &'static [(&'static str, u64, &'static str)] =
                &[$(($crate::prm!(@name [$($csv)?] $value), $number as u64, concat!($($doc),*))),*];

            /// The name, as in the PRM's headers, or `None` for a number without one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($crate::prm!(@name [$($csv)?] $value)),)*
                    _ => None,
                }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => write!(f, "{:#x}", self.0),
                }
            }
        }
    };
}

/// Lets named numbers be fields of a `bitfield` structure.
macro_rules! bitfield_conversions {
    ($name:ident) => {
        impl $name {
            /// Wraps the bits of the field.
            pub const fn from_bits(bits: u8) -> Self {
                Self(bits)
            }

            /// The bits of the field.
            pub const fn into_bits(self) -> u8 {
                self.0
            }
        }
    };
}
pub(crate) use bitfield_conversions;
