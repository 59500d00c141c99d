//! Mailboxes: the chains of blocks that carry what does not fit a command queue entry.

use alloc::sync::Arc;
use alloc::vec::Vec;

use mlx5_hw::be::Be32;
use spin::Mutex;

use crate::dma::{DmaRegion, Port};
use crate::error::Error;

/// Bytes of a message that a block carries.
const BLOCK_DATA: usize = 512;
/// Dwords of a block.
const BLOCK_WORDS: usize = 144;
/// Dwords from one block to the next: blocks are aligned to 1 KiB.
const BLOCK_STRIDE: usize = 256;
/// Size of the pieces in which blocks are allocated.
const PIECE: usize = 4096;
const BLOCKS_PER_PIECE: usize = PIECE / (4 * BLOCK_STRIDE);
/// Pieces kept for the next command; what a command needed beyond that goes back to the platform.
const POOLED: usize = 64;

/// Pieces of memory for blocks, used again and again.
pub(crate) struct Pool {
    port: Arc<Port>,
    free: Mutex<Vec<DmaRegion>>,
}

impl Pool {
    pub(crate) fn new(port: Arc<Port>) -> Self {
        Self { port, free: Mutex::new(Vec::new()) }
    }

    /// A chain for a message of `len` bytes behind the 16 that the entry holds.
    pub(crate) fn chain(&self, len: usize) -> Result<Chain, Error> {
        let blocks = len.div_ceil(BLOCK_DATA);
        let wanted = blocks.div_ceil(BLOCKS_PER_PIECE);
        let mut pieces = {
            let mut free = self.free.lock();
            let keep = free.len().saturating_sub(wanted);
            free.split_off(keep)
        };
        while pieces.len() < wanted {
            pieces.push(self.port.alloc(PIECE, PIECE)?);
        }
        Ok(Chain { pieces, blocks })
    }

    /// Takes a chain back. Its memory stays in the pool or is freed.
    pub(crate) fn give_back(&self, chain: Chain) {
        let mut pieces = chain.pieces;
        let surplus = {
            let mut free = self.free.lock();
            let keep = pieces.len().min(POOLED.saturating_sub(free.len()));
            let surplus = pieces.split_off(keep);
            free.append(&mut pieces);
            surplus
        };
        drop(surplus);
    }
}

/// The blocks of one message.
pub(crate) struct Chain {
    pieces: Vec<DmaRegion>,
    blocks: usize,
}

impl Chain {
    /// I/O address of the first block, 0 without blocks.
    pub(crate) fn iova(&self) -> u64 {
        self.block_iova(0)
    }

    fn block_iova(&self, block: usize) -> u64 {
        match self.pieces.get(block / BLOCKS_PER_PIECE) {
            Some(piece) if block < self.blocks => piece.iova() + (4 * BLOCK_STRIDE * (block % BLOCKS_PER_PIECE)) as u64,
            _ => 0,
        }
    }

    fn load(&self, block: usize, word: usize) -> Be32 {
        let at = BLOCK_STRIDE * (block % BLOCKS_PER_PIECE) + word;
        self.pieces.get(block / BLOCKS_PER_PIECE).map_or(Be32::ZERO, |piece| piece.load(at))
    }

    fn store(&self, block: usize, word: usize, value: u32) {
        if let Some(piece) = self.pieces.get(block / BLOCKS_PER_PIECE) {
            piece.store(BLOCK_STRIDE * (block % BLOCKS_PER_PIECE) + word, Be32::new(value));
        }
    }

    /// Clears the data and links the blocks; `token` is that of the entry.
    pub(crate) fn link(&mut self, token: u8) {
        for block in 0..self.blocks {
            for word in 0..BLOCK_WORDS {
                self.store(block, word, 0);
            }
            let next = self.block_iova(block + 1);
            self.store(block, 140, (next >> 32) as u32);
            self.store(block, 141, next as u32);
            self.store(block, 142, block as u32);
            self.store(block, 143, u32::from(token) << 16);
        }
    }

    /// Signs each block, data included.
    pub(crate) fn sign(&self) {
        for block in 0..self.blocks {
            let last = self.load(block, 143).get() & 0x00ff_0000;
            self.store(block, 143, last);
            let control = last | u32::from(!self.xor(block, 128)) << 8;
            self.store(block, 143, control);
            self.store(block, 143, control | u32::from(!self.xor(block, 0)));
        }
    }

    fn xor(&self, block: usize, from: usize) -> u8 {
        super::xor8((from..BLOCK_WORDS).map(|word| self.load(block, word)))
    }

    /// Stores dword `index` of the message's data.
    pub(crate) fn put(&self, index: usize, value: Be32) {
        let block = index / (BLOCK_DATA / 4);
        if block < self.blocks {
            self.store(block, index % (BLOCK_DATA / 4), value.get());
        }
    }

    /// Dword `index` of the message's data.
    pub(crate) fn get(&self, index: usize) -> Be32 {
        let block = index / (BLOCK_DATA / 4);
        if block < self.blocks { self.load(block, index % (BLOCK_DATA / 4)) } else { Be32::ZERO }
    }

    /// The device may write to the blocks from now on.
    pub(crate) fn lend(&mut self) {
        for piece in &mut self.pieces {
            piece.lend("mailboxes of a command without an answer");
        }
    }

    /// The device is done with the blocks.
    pub(crate) fn reclaim(&mut self) {
        for piece in &mut self.pieces {
            piece.reclaim();
        }
    }
}
