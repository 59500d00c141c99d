//! Reading and writing big-endian fields at byte offsets. Out-of-range accesses read zero and write nothing: input of
//! any length is safe to decode.

/// Big-endian 16 bits at byte `off`.
pub(crate) fn be16(buf: &[u8], off: usize) -> u16 {
    bits(buf, off * 8, 16) as u16
}

/// Big-endian 24 bits at byte `off`.
pub(crate) fn be24(buf: &[u8], off: usize) -> u32 {
    bits(buf, off * 8, 24) as u32
}

/// Big-endian 32 bits at byte `off`.
pub(crate) fn be32(buf: &[u8], off: usize) -> u32 {
    let word = buf.get(off..off + 4).and_then(|b| b.try_into().ok());
    word.map_or(0, u32::from_be_bytes)
}

/// Big-endian 64 bits at byte `off`.
pub(crate) fn be64(buf: &[u8], off: usize) -> u64 {
    u64::from(be32(buf, off)) << 32 | u64::from(be32(buf, off + 4))
}

/// The byte at `off`.
pub(crate) fn u8_at(buf: &[u8], off: usize) -> u8 {
    buf.get(off).copied().unwrap_or(0)
}

/// `width` bits (at most 64) starting `off` bits from the most significant bit of byte 0.
pub(crate) fn bits(buf: &[u8], off: usize, width: usize) -> u64 {
    (off..off + width).fold(0, |value, bit| value << 1 | u64::from(bit_at(buf, bit)))
}

/// One bit, counted from the most significant bit of byte 0.
pub(crate) fn bit_at(buf: &[u8], bit: usize) -> bool {
    u8_at(buf, bit / 8) >> (7 - bit % 8) & 1 == 1
}

/// Writes `width` bits starting `off` bits from the most significant bit of byte 0.
pub(crate) fn put_bits(buf: &mut [u8], off: usize, width: usize, value: u64) {
    for i in 0..width {
        let bit = off + i;
        if let Some(byte) = buf.get_mut(bit / 8) {
            let mask = 1 << (7 - bit % 8);
            let on = value >> (width - 1 - i) & 1 == 1;
            *byte = if on { *byte | mask } else { *byte & !mask };
        }
    }
}

/// Writes big-endian 32 bits at byte `off`.
pub(crate) fn put32(buf: &mut [u8], off: usize, value: u32) {
    if let Some(word) = buf.get_mut(off..off + 4) {
        word.copy_from_slice(&value.to_be_bytes());
    }
}

/// Writes big-endian 64 bits at byte `off`.
pub(crate) fn put64(buf: &mut [u8], off: usize, value: u64) {
    put32(buf, off, (value >> 32) as u32);
    put32(buf, off + 4, value as u32);
}

/// XOR of all bytes: what the command interface calls a signature.
pub(crate) fn xor(buf: &[u8]) -> u8 {
    buf.iter().fold(0, |sum, byte| sum ^ byte)
}
