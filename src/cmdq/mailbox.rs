//! Mailboxes: the chains of blocks that carry what does not fit a command queue entry.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use mlx5_hw::be::Be32;
use mlx5_hw::cmd_entry::{CmdIfBox, DATA_BYTES, MAILBOX_ALIGN, mailboxes};
use mlx5_hw::prm::Layout;
use spin::Mutex;

use crate::dma::{DmaRegion, Leaked, Port};
use crate::error::Error;

/// Dwords from one block to the next.
const STRIDE: usize = MAILBOX_ALIGN / 4;
/// Dwords of data in a block.
const DATA_WORDS: usize = DATA_BYTES / 4;
/// Size of the pieces in which blocks are allocated.
const PIECE: usize = 4096;
const BLOCKS_PER_PIECE: usize = PIECE / MAILBOX_ALIGN;
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

    /// A chain for a message of `len` bytes, those that the entry holds included.
    pub(crate) fn chain(&self, len: usize) -> Result<Chain, Error> {
        let blocks = mailboxes(len);
        let wanted = blocks.div_ceil(BLOCKS_PER_PIECE);
        let mut pieces = {
            let mut free = self.free.lock();
            let keep = free.len().saturating_sub(wanted);
            free.split_off(keep)
        };
        while pieces.len() < wanted {
            match self.port.alloc(PIECE, PIECE) {
                Ok(piece) => pieces.push(piece),
                Err(e) => {
                    // A shorter message may still find room.
                    self.give_back(Chain { pieces, blocks });
                    return Err(e);
                }
            }
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
            Some(piece) if block < self.blocks => piece.iova() + (MAILBOX_ALIGN * (block % BLOCKS_PER_PIECE)) as u64,
            _ => 0,
        }
    }

    /// The dwords of a block, from its first on.
    fn words(&self, block: usize) -> &[AtomicU32] {
        let piece = self.pieces.get(block / BLOCKS_PER_PIECE).map_or(&[][..], DmaRegion::words);
        piece.get(STRIDE * (block % BLOCKS_PER_PIECE)..).unwrap_or_default()
    }

    fn write(&self, block: usize, content: &CmdIfBox) {
        for (to, word) in self.words(block).iter().zip(content.words()) {
            to.store(word.to_raw(), Ordering::Relaxed);
        }
    }

    /// Clears the data and links the blocks; `token` is that of the entry.
    pub(crate) fn link(&self, token: u8) {
        for block in 0..self.blocks {
            let mut content = CmdIfBox::new().with_block_number(block as u32).with_token(token.into());
            content.set_next(self.block_iova(block + 1));
            self.write(block, &content);
        }
    }

    /// Signs each block, data included.
    pub(crate) fn sign(&self) {
        for block in 0..self.blocks {
            let mut content = CmdIfBox::new();
            for (word, from) in content.words_mut().iter_mut().zip(self.words(block)) {
                *word = Be32::from_raw(from.load(Ordering::Relaxed));
            }
            content.sign();
            self.write(block, &content);
        }
    }

    /// Stores dword `index` of the message's data.
    pub(crate) fn put(&self, index: usize, value: Be32) {
        let block = index / DATA_WORDS;
        if block < self.blocks
            && let Some(word) = self.words(block).get(index % DATA_WORDS)
        {
            word.store(value.to_raw(), Ordering::Relaxed);
        }
    }

    /// Dword `index` of the message's data.
    pub(crate) fn get(&self, index: usize) -> Be32 {
        let block = index / DATA_WORDS;
        let word = self.words(block).get(index % DATA_WORDS).filter(|_| block < self.blocks);
        word.map_or(Be32::ZERO, |word| Be32::from_raw(word.load(Ordering::Relaxed)))
    }

    /// The device may write to the blocks from now on.
    pub(crate) fn lend(&mut self) {
        for piece in &mut self.pieces {
            piece.lend("mailboxes of a command without an answer");
        }
    }

    /// Memory that would be kept if this were dropped now.
    pub(crate) fn kept(&self) -> impl Iterator<Item = Leaked> {
        self.pieces.iter().filter_map(DmaRegion::kept)
    }

    /// The device is done with the blocks.
    pub(crate) fn reclaim(&mut self) {
        for piece in &mut self.pieces {
            piece.reclaim();
        }
    }
}
