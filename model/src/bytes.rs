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
    let end = (off + width).div_ceil(8);
    let value = (off / 8..end).fold(0, |value, at| value << 8 | u128::from(u8_at(buf, at)));
    (value >> (end * 8 - off - width) & mask(width)) as u64
}

/// The lowest `width` bits.
fn mask(width: usize) -> u128 {
    (1 << width) - 1
}

/// One bit, counted from the most significant bit of byte 0.
pub(crate) fn bit_at(buf: &[u8], bit: usize) -> bool {
    u8_at(buf, bit / 8) >> (7 - bit % 8) & 1 == 1
}

/// Writes `width` bits (at most 64) starting `off` bits from the most significant bit of byte 0.
pub(crate) fn put_bits(buf: &mut [u8], off: usize, width: usize, value: u64) {
    let end = (off + width).div_ceil(8);
    let shift = end * 8 - off - width;
    let (mask, value) = (mask(width) << shift, u128::from(value) << shift);
    for (at, low) in (off / 8..end).rev().zip((0..).step_by(8)) {
        if let Some(byte) = buf.get_mut(at) {
            let mask = (mask >> low) as u8;
            *byte = *byte & !mask | (value >> low) as u8 & mask;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A field bit by bit, as the PRM counts them.
    fn naive(buf: &[u8], off: usize, width: usize) -> u64 {
        (off..off + width).fold(0, |value, bit| value << 1 | u64::from(bit_at(buf, bit)))
    }

    #[test]
    fn fields_of_any_place_and_width_are_read_and_written_and_nothing_beside_them() {
        let buf: Vec<u8> = (0..24_u32).map(|i| (i * 151 + 77) as u8).collect();
        for off in 0..200 {
            for width in 0..=64 {
                let old = naive(&buf, off, width);
                assert_eq!(bits(&buf, off, width), old, "{width} bits at {off}");
                let mut other = buf.clone();
                put_bits(&mut other, off, width, !old);
                let inside = |bit: usize| (off..off + width).contains(&bit);
                let changed = (0..192).filter(|bit| bit_at(&other, *bit) != bit_at(&buf, *bit));
                assert_eq!(changed.collect::<Vec<_>>(), (0..192).filter(|bit| inside(*bit)).collect::<Vec<_>>());
                put_bits(&mut other, off, width, old);
                assert_eq!(other, buf);
            }
        }
    }
}
