//! The command queue entry (64 bytes) and mailbox blocks (576 bytes): their own rules.

use crate::bytes::{be32, be64, u8_at, xor};

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 64;
/// Bytes of a mailbox block, and of data in it.
pub(crate) const BLOCK_BYTES: usize = 576;
pub(crate) const BLOCK_DATA: usize = 512;
/// Bytes of input or output that lie in the entry itself.
pub(crate) const INLINE: usize = 16;

/// Delivery status codes.
pub(crate) mod delivery {
    pub(crate) const SIGNATURE: u8 = 0x01;
    pub(crate) const TOKEN: u8 = 0x02;
    pub(crate) const BLOCK_NUMBER: u8 = 0x03;
    pub(crate) const OUTPUT_POINTER: u8 = 0x04;
    pub(crate) const INPUT_POINTER: u8 = 0x05;
    pub(crate) const FIRMWARE: u8 = 0x06;
    pub(crate) const INPUT_LENGTH: u8 = 0x07;
    pub(crate) const OUTPUT_LENGTH: u8 = 0x08;
    pub(crate) const RESERVED: u8 = 0x09;
    pub(crate) const DESCRIPTOR: u8 = 0x10;
}

/// An entry as it was fetched.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) bytes: [u8; ENTRY_BYTES],
}

impl Entry {
    pub(crate) fn device_owned(&self) -> bool {
        self.bytes[0x3f] & 1 == 1
    }

    pub(crate) fn in_len(&self) -> usize {
        be32(&self.bytes, 0x4) as usize
    }

    pub(crate) fn out_len(&self) -> usize {
        be32(&self.bytes, 0x38) as usize
    }

    pub(crate) fn in_pointer(&self) -> u64 {
        be64(&self.bytes, 0x8)
    }

    pub(crate) fn out_pointer(&self) -> u64 {
        be64(&self.bytes, 0x30)
    }

    pub(crate) fn inline_input(&self) -> &[u8] {
        &self.bytes[0x10..0x20]
    }

    pub(crate) fn token(&self) -> u8 {
        self.bytes[0x3c]
    }

    /// What is wrong with the entry alone: a delivery status and words.
    pub(crate) fn check(&self, signed: bool) -> Result<(), (u8, &'static str)> {
        if self.bytes[0] != 7 {
            return Err((delivery::DESCRIPTOR, "type is not 7"));
        }
        if signed && xor(&self.bytes) != 0xff {
            return Err((delivery::SIGNATURE, "signature of the entry"));
        }
        if self.bytes[1..4] != [0; 3] || self.bytes[0x3e] != 0 || self.bytes[0x3f] & 0xfe != 0 {
            return Err((delivery::RESERVED, "reserved bytes of the entry"));
        }
        if self.in_pointer() & 0x1ff != 0 {
            return Err((delivery::INPUT_POINTER, "input mailbox is not aligned to 512 bytes"));
        }
        if self.out_pointer() & 0x1ff != 0 {
            return Err((delivery::OUTPUT_POINTER, "output mailbox is not aligned to 512 bytes"));
        }
        Ok(())
    }
}

/// What is wrong with a mailbox block, which should be number `number` of a command with `token`.
pub(crate) fn check_block(block: &[u8], number: u32, token: u8, signed: bool) -> Result<(), (u8, &'static str)> {
    if u8_at(block, 0x23d) != token {
        return Err((delivery::TOKEN, "token of a mailbox differs from the entry's"));
    }
    if be32(block, 0x238) != number {
        return Err((delivery::BLOCK_NUMBER, "block number of a mailbox"));
    }
    let control = block.get(0x200..0x23f).unwrap_or(&[]);
    if signed && (xor(control) != 0xff || xor(block) != 0xff) {
        return Err((delivery::SIGNATURE, "signature of a mailbox"));
    }
    let reserved = block.get(0x200..0x230).is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0));
    if reserved || u8_at(block, 0x23c) != 0 {
        return Err((delivery::RESERVED, "reserved bytes of a mailbox"));
    }
    Ok(())
}

/// Device address of the block behind this one; 0 at the end.
pub(crate) fn next_block(block: &[u8]) -> u64 {
    be64(block, 0x230)
}

/// Signs a mailbox block.
pub(crate) fn sign_block(block: &mut [u8; BLOCK_BYTES]) {
    block[0x23e] = 0;
    block[0x23e] = !xor(&block[0x200..0x23f]);
    block[0x23f] = 0;
    block[0x23f] = !xor(&block[..]);
}
