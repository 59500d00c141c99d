//! Telling the device of send requests that lie in the queue.

use core::sync::atomic::{AtomicU32, Ordering};

use mlx5_hw::arch;
use mlx5_hw::uar;
use mlx5_hw::wqe::{BASIC_BLOCK, SEGMENT};

use super::segments::Place;
use super::send::Written;
use super::{PostError, Qp, SendWr};

/// Send requests that the device is told of together: [`Qp::wr_start`].
#[must_use = "the requests are posted when it is dropped"]
pub struct SendBatch<'q> {
    qp: &'q mut Qp,
    last: Option<Written>,
}

impl SendBatch<'_> {
    /// Writes send requests into the queue, in order.
    ///
    /// # Errors
    /// As [`Qp::post_send`]; what was written before, also in earlier calls, is posted all the same.
    #[inline]
    pub fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        let sent = self.qp.write_sends(wrs);
        self.qp.sq_posted = sent.next;
        self.last = sent.last.or(self.last);
        sent.result
    }

    /// Tells the device of them (`ibv_wr_complete`, `ibv_wr_post(3)`): what dropping the batch does.
    pub fn wr_complete(self) {}
}

impl Drop for SendBatch<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(last) = self.last {
            self.qp.announce(&last);
        }
    }
}

impl Qp {
    /// Begins send requests that the device is told of together (`ibv_wr_post(3)`): one store to the doorbell record and one doorbell
    /// for however many calls. There is no `ibv_wr_abort`: what was written is posted when the batch is dropped, or after
    /// [`forget`](core::mem::forget) with the next request of the queue pair.
    #[inline]
    pub fn wr_start(&mut self) -> SendBatch<'_> {
        SendBatch { qp: self, last: None }
    }

    /// Tells the device how far the queue is filled: by a doorbell, or by the one request itself where the queue pair has a
    /// BlueFlame register that it fits into.
    fn announce(&mut self, last: &Written) {
        if let Some(record) = self.dbrec() {
            record.set_send(self.sq_posted);
        }
        let alone = last.start == self.sq_announced;
        self.sq_announced = self.sq_posted;
        let blocks = usize::from(self.sq_posted.wrapping_sub(last.start));
        let (offset, whole) = match &mut self.blue_flame {
            None => (uar::BLUEFLAME, false),
            Some(register) => (register.turn(), alone && blocks * BASIC_BLOCK <= register.room()),
        };
        if whole {
            self.write_whole(offset, last.start, blocks);
        } else {
            arch::dma_wmb();
            self.dev().ring_uar64(offset, last.doorbell);
        }
    }

    /// Writes a request of the queue to a BlueFlame buffer.
    fn write_whole(&self, offset: usize, start: u16, blocks: usize) {
        arch::wc_flush();
        for block in 0..blocks {
            let at = self.place_of(start.wrapping_add(block as u16));
            let places = self.send_queue().get(at..at + BASIC_BLOCK / SEGMENT).unwrap_or_default();
            self.dev().write_uar(offset + block * BASIC_BLOCK, &words(places));
        }
        arch::wc_flush();
    }
}

/// A basic block of the queue as the bus sees it.
fn words(places: &[Place]) -> [u64; BASIC_BLOCK / 8] {
    let load = |half: &AtomicU32| u64::from(u32::from_le(half.load(Ordering::Relaxed)));
    let mut words = [0; BASIC_BLOCK / 8];
    let pairs = places.iter().flat_map(|place| place.as_chunks().0);
    for (word, [low, high]) in words.iter_mut().zip(pairs) {
        *word = load(low) | load(high) << 32;
    }
    words
}
