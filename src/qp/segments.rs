//! Writing work requests into a queue's memory, segment by segment.
//!
//! Queues are whole segments long and segments are aligned, so the end of the queue is looked at once for each segment, and
//! none lies around it.

use core::slice::Iter;
use core::sync::atomic::{AtomicU32, Ordering};

use mlx5_hw::be::Be32;
use mlx5_hw::wqe::{self, AV_WORDS, SEGMENT};

use super::{Sge, UdAddress};
use crate::error::Error;

/// Dwords of a segment.
const WORDS: usize = SEGMENT / 4;
/// Bytes of inlined data that lie in the segment of their header.
const BESIDE_HEADER: usize = SEGMENT - wqe::InlineSeg::BYTES;

/// A segment's place in a queue.
pub(crate) type Place = [AtomicU32; WORDS];

/// The places of a queue, or of a part of one.
#[inline]
pub(crate) fn places(words: &[AtomicU32]) -> &[Place] {
    words.as_chunks().0
}

/// Stores a segment.
#[inline]
pub(crate) fn store(place: &Place, segment: &[Be32; WORDS]) {
    for (to, from) in place.iter().zip(segment) {
        to.store(from.to_raw(), Ordering::Relaxed);
    }
}

/// Writes segments one behind the other.
pub(crate) struct Writer<'q> {
    ahead: Iter<'q, Place>,
    /// Where it goes on at the end.
    around: &'q [Place],
    /// Segments written so far, and places taken.
    written: usize,
}

impl<'q> Writer<'q> {
    /// Writes into these places, and then no more.
    #[inline]
    pub(crate) fn within(places: &'q [Place]) -> Self {
        Self { ahead: places.iter(), around: &[], written: 0 }
    }

    /// Writes from place `at` of a queue on, around its end.
    #[inline]
    pub(super) fn around(queue: &'q [Place], at: usize) -> Self {
        Self { ahead: queue.get(at..).unwrap_or_default().iter(), around: queue, written: 0 }
    }

    /// Segments written so far, and places taken.
    #[inline]
    pub(super) fn written(&self) -> usize {
        self.written
    }

    /// The next place, for whoever writes to it later.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<&'q Place> {
        self.written += 1;
        match self.ahead.next() {
            None => self.turn(),
            place => place,
        }
    }

    #[cold]
    fn turn(&mut self) -> Option<&'q Place> {
        self.ahead = self.around.iter();
        self.ahead.next()
    }

    /// Writes a segment.
    #[inline]
    pub(crate) fn put(&mut self, segment: &[Be32; WORDS]) {
        if let Some(place) = self.take() {
            store(place, segment);
        }
    }

    /// Writes where a datagram goes.
    #[inline]
    pub(super) fn datagram(&mut self, to: &UdAddress<'_>) {
        let words = wqe::datagram(to.ah.av(), to.remote_qpn, to.remote_qkey);
        words.as_chunks().0.iter().for_each(|segment| self.put(segment));
    }

    /// Writes a data segment for each piece that is not empty.
    ///
    /// # Errors
    /// `Invalid` for a piece of 2^31 bytes or more. Those before it are written by then.
    #[inline]
    pub(crate) fn list(&mut self, list: &[Sge]) -> Result<(), Error> {
        for sge in list {
            if sge.length & wqe::INLINE_SEG != 0 {
                return Err(Error::Invalid { what: "a piece in sg_list has 2^31 bytes or more" });
            }
            if sge.length != 0 {
                self.put(&wqe::data(sge.length, sge.lkey, sge.addr));
            }
        }
        Ok(())
    }

    /// Writes a receive's list, and its end if there is room behind it.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    #[inline]
    pub(crate) fn scatter(mut self, list: &[Sge]) -> Result<(), Error> {
        self.list(list)?;
        self.put(&wqe::end_of_list());
        Ok(())
    }

    /// Writes inlined data with its header, padded with zeros; nothing if there is none.
    #[inline]
    pub(super) fn inline(&mut self, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let header = wqe::inline_header(data.len() as u32);
        let Some((beside, rest)) = data.split_first_chunk::<BESIDE_HEADER>() else {
            let [a, b, c, _] = padded(data);
            return self.put(&[header, a, b, c]);
        };
        let [a, b, c] = words(beside);
        self.put(&[header, a, b, c]);
        let (whole, last) = rest.as_chunks::<SEGMENT>();
        for segment in whole {
            self.put(&words(segment));
        }
        if !last.is_empty() {
            self.put(&padded(last));
        }
    }
}

/// Bytes as they lie, less than a segment of them, followed by zeros. A function of its own, as it takes registers from the rest.
#[inline(never)]
fn padded(bytes: &[u8]) -> [Be32; WORDS] {
    let mut segment = [0; SEGMENT];
    for (to, from) in segment.iter_mut().zip(bytes) {
        *to = *from;
    }
    words(&segment)
}

/// Bytes as they lie, four in a dword.
#[inline]
fn words<const BYTES: usize, const DWORDS: usize>(bytes: &[u8; BYTES]) -> [Be32; DWORDS] {
    let mut words = [Be32::ZERO; DWORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = Be32::from_raw(u32::from_ne_bytes(*bytes));
    }
    words
}

const _: () = assert!(AV_WORDS.is_multiple_of(WORDS));
