//! Work requests as bytes.

use crate::raw::put;

/// A send work request: opcode, `fm_ce_se`, immediate data, and the bytes of its segments.
#[derive(Clone, Copy)]
pub struct Wqe<'a> {
    pub opcode: u8,
    pub flags: u8,
    pub imm: u32,
    pub segments: &'a [u8],
}

/// SEND with a completion.
pub fn signalled(segments: &[u8]) -> Wqe<'_> {
    Wqe { opcode: 0x0a, flags: 8, imm: 0, segments }
}

/// A data segment: (lkey, address, length).
pub fn data((lkey, addr, len): (u32, u64, u32)) -> [u8; 16] {
    let mut raw = [0; 16];
    put(&mut raw, 0, 32, len.into());
    put(&mut raw, 32, 32, lkey.into());
    put(&mut raw, 64, 64, addr);
    raw
}

/// An inline segment.
pub fn inline(bytes: &[u8]) -> Vec<u8> {
    let mut raw = (1 << 31 | bytes.len() as u32).to_be_bytes().to_vec();
    raw.extend_from_slice(bytes);
    raw.resize(raw.len().next_multiple_of(16), 0);
    raw
}

/// A remote address segment: (rkey, address).
pub fn remote((rkey, addr): (u32, u64)) -> [u8; 16] {
    let mut raw = [0; 16];
    put(&mut raw, 0, 64, addr);
    put(&mut raw, 64, 32, rkey.into());
    raw
}

/// An atomic segment: the value to swap in or to add, and the one to compare with.
pub fn operands(swap_add: u64, compare: u64) -> [u8; 16] {
    let mut raw = [0; 16];
    put(&mut raw, 0, 64, swap_add);
    put(&mut raw, 64, 64, compare);
    raw
}
