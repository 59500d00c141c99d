//! Data in completions ("scatter to CQE"): a small message lies in its completion entry, and the poller copies it to where the
//! request wants it.
//!
//! Where that is must not be read from the work request in the ring, which the device can write to. Queues that allow
//! data in completions keep [`Lists`] of their own: the pieces of each outstanding request, in atomics, made with the queue, so
//! that posting and polling allocate nothing. What a list says is the caller's word; [`Keys`] checks each piece when it is
//! written to.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use mlx5_hw::cqe::CqeRef;
use mlx5_hw::wqe::WqeOpcode;

use super::{QpWork, Sge};
use crate::cq::WcStatus;
use crate::keys::{Denied, Keys};

/// Largest message that an entry holds, in bytes.
const MOST: usize = 64;
/// Bytes of an atomic's answer.
const ATOMIC_BYTES: u32 = 8;

/// The shape of a request whose data does not come back.
const NO_ANSWER: u32 = u32::MAX;

/// The scatter lists of a queue's requests.
///
/// As many pieces as the queue's memory has segments, `1 << log` for each place in the queue, and used as that is: a request's
/// list starts at the pieces of its place and goes on in those of the places that it covers, around the end.
pub(crate) struct Lists {
    pieces: Box<[Piece]>,
    /// For each place, the number of pieces of the request that starts there, or [`NO_ANSWER`].
    shapes: Box<[AtomicU32]>,
    log: u32,
}

#[derive(Default)]
struct Piece {
    addr: AtomicU64,
    length: AtomicU32,
    lkey: AtomicU32,
}

impl Lists {
    /// For a queue of `places`, a power of two (or none), with `1 << log` pieces each.
    pub(super) fn new(places: u32, log: u32) -> Self {
        Self {
            pieces: (0..places << log).map(|_| Piece::default()).collect(),
            shapes: (0..places).map(|_| AtomicU32::new(NO_ANSWER)).collect(),
            log,
        }
    }

    /// Poster: notes the list of the request that starts at `counter`; `None` for one whose data does not come back.
    #[inline]
    pub(super) fn put(&self, counter: u32, list: Option<&[Sge]>) {
        let Some(shape) = self.shape(counter) else { return };
        let mut count = 0;
        for sge in list.unwrap_or_default().iter().filter(|sge| sge.length != 0) {
            if let Some(piece) = self.piece(counter, count) {
                piece.addr.store(sge.addr, Ordering::Relaxed);
                piece.length.store(sge.length, Ordering::Relaxed);
                piece.lkey.store(sge.lkey, Ordering::Relaxed);
            }
            count += 1;
        }
        shape.store(list.map_or(NO_ANSWER, |_| count), Ordering::Relaxed);
    }

    /// Poller: copies `data` to the pieces of the request at `counter`, each by `write`. What that denies ends it.
    fn copy(&self, counter: u32, data: &[u8], write: impl Fn(&Sge, &[u8]) -> Result<(), Denied>) -> WcStatus {
        let count = self.shape(counter).map_or(NO_ANSWER, |shape| shape.load(Ordering::Relaxed));
        if count == NO_ANSWER {
            return WcStatus::GENERAL_ERR;
        }
        let list = || (0..count).map_while(|n| self.piece(counter, n)).map(Piece::load);
        let room: u64 = list().map(|sge| u64::from(sge.length)).sum();
        if room < data.len() as u64 {
            return WcStatus::LOC_LEN_ERR;
        }
        let mut rest = data;
        for sge in list() {
            let (now, later) = rest.split_at(rest.len().min(sge.length as usize));
            if now.is_empty() {
                break;
            }
            if write(&sge, now).is_err() {
                return WcStatus::LOC_PROT_ERR;
            }
            rest = later;
        }
        WcStatus::SUCCESS
    }

    fn shape(&self, counter: u32) -> Option<&AtomicU32> {
        self.shapes.get(counter as usize & self.shapes.len().wrapping_sub(1))
    }

    /// Piece `n` of the list that starts at `counter`.
    fn piece(&self, counter: u32, n: u32) -> Option<&Piece> {
        let at = (counter << self.log).wrapping_add(n) as usize;
        self.pieces.get(at & self.pieces.len().wrapping_sub(1))
    }
}

impl Piece {
    fn load(&self) -> Sge {
        Sge {
            addr: self.addr.load(Ordering::Relaxed),
            length: self.length.load(Ordering::Relaxed),
            lkey: self.lkey.load(Ordering::Relaxed),
        }
    }
}

impl QpWork {
    /// Poller: copies the message in the entry to the pieces of the request that it ends. To be called before the request counts as
    /// over, as its place is then the poster's again.
    ///
    /// How the request ended; `None` if no message can lie in an entry of this queue, or not in this entry. Nothing is copied
    /// once the memory is the caller's: for a request that is over already (an entry that comes again), and when the queue pair
    /// was destroyed since its row was found, which flushes the request.
    #[inline(never)]
    pub(crate) fn scatter(&self, receive: bool, cqe: CqeRef<'_>, keys: &Keys) -> Option<WcStatus> {
        let queue = self.queue(receive);
        let (lists, area) = (queue.lists()?, cqe.inline_data()?);
        let counter = cqe.wqe_counter();
        let Some(_visit) = self.copies.pass() else { return Some(WcStatus::WR_FLUSH_ERR) };
        if !queue.is_outstanding(counter) {
            return Some(WcStatus::SUCCESS);
        }
        let length = match WqeOpcode(cqe.sop_opcode()) {
            _ if receive => cqe.byte_cnt(),
            WqeOpcode::RDMA_READ => cqe.byte_cnt(),
            WqeOpcode::ATOMIC_CS | WqeOpcode::ATOMIC_FA => ATOMIC_BYTES,
            _ => return Some(WcStatus::GENERAL_ERR),
        };
        let mut bytes = [0; MOST];
        for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(area) {
            *to = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        let Some(data) = bytes.get(..area.len() * 4).and_then(|bytes| bytes.get(..length as usize)) else {
            return Some(WcStatus::LOC_LEN_ERR);
        };
        let write = |sge: &Sge, data: &[u8]| keys.write(self.pd, sge.lkey, sge.addr, data);
        Some(lists.copy(counter.into(), data, write))
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use core::ptr::NonNull;

    use mlx5_hw::be::Be32;

    use super::super::work::{Outstanding, UserIndex};
    use super::*;
    use crate::gate::Gate;
    use crate::keys::{Region, Writes};

    fn list(lengths: &[u32]) -> alloc::vec::Vec<Sge> {
        lengths.iter().enumerate().map(|(n, length)| Sge { addr: n as u64, length: *length, lkey: 0 }).collect()
    }

    /// What is copied where: the piece's number and the bytes.
    fn copied(lists: &Lists, counter: u32, data: &[u8]) -> (WcStatus, alloc::vec::Vec<(u64, alloc::vec::Vec<u8>)>) {
        let pieces = core::cell::RefCell::new(alloc::vec::Vec::new());
        let write = |sge: &Sge, data: &[u8]| {
            pieces.borrow_mut().push((sge.addr, data.into()));
            Ok(())
        };
        (lists.copy(counter, data, write), pieces.into_inner())
    }

    /// Case C-078: the last place's list, and one that starts there and goes on at the first.
    #[test]
    fn a_list_at_the_end_of_the_queue_is_whole() {
        let lists = Lists::new(4, 2);
        for counter in [3, 7, 0xffff] {
            lists.put(counter, Some(&list(&[1, 1, 1, 1, 1, 1])));
            let (status, pieces) = copied(&lists, counter, &[10, 11, 12, 13, 14, 15]);
            assert_eq!(status, WcStatus::SUCCESS);
            assert_eq!(pieces, (0..6).map(|n| (n, [10 + n as u8].into())).collect::<alloc::vec::Vec<_>>());
        }
    }

    #[test]
    fn empty_pieces_are_left_out_and_data_that_does_not_fit_is_not_copied_at_all() {
        let lists = Lists::new(2, 2);
        lists.put(0, Some(&list(&[0, 2, 0, 3])));
        assert_eq!(copied(&lists, 0, &[1, 2, 3]).1, [(1, [1, 2].into()), (3, [3].into())]);
        assert_eq!(copied(&lists, 0, &[1]).1, [(1, [1].into())]);
        assert_eq!(copied(&lists, 0, &[]), (WcStatus::SUCCESS, [].into()));
        assert_eq!(copied(&lists, 0, &[0; 6]), (WcStatus::LOC_LEN_ERR, [].into()));
        lists.put(0, Some(&list(&[u32::MAX >> 1; 4])));
        assert_eq!(copied(&lists, 0, &[5; 64]).1, [(0, [5; 64].into())]);
    }

    /// The row may have been found before the queue pair was destroyed, and the memory be the caller's since.
    #[test]
    fn a_queue_pair_that_is_gone_gets_no_data() {
        let (memory, keys) = ([const { AtomicU32::new(0) }; 2], Keys::default());
        let region = Region { start: NonNull::from(&memory).cast(), len: 8, writes: Writes::Words };
        // SAFETY: the words are atomics, and are there until the end.
        assert!(unsafe { keys.publish(0x500, 7, region) });
        let work = QpWork {
            index: UserIndex::take(&Arc::default()).unwrap(),
            pd: 7,
            copies: Gate::default(),
            queues: [Outstanding::new(1, 0, None), Outstanding::new(1, 2, Some(Lists::new(2, 0)))],
            srq: None,
        };
        work.recv().push(1, 1, Some(&[Sge { addr: memory.as_ptr().addr() as u64, length: 8, lkey: 0x500 }]));
        let entry = [const { AtomicU32::new(u32::MAX) }; 16];
        // 8 bytes for the request at counter 0, in the descriptor.
        entry[11].store(Be32::new(8).to_raw(), Ordering::Relaxed);
        entry[15].store(Be32::new(0x24).to_raw(), Ordering::Relaxed);
        let scatter = || work.scatter(true, CqeRef::new(&entry), &keys);
        let dword = || memory[1].load(Ordering::Relaxed);
        work.copies.open();
        work.copies.close(|| unreachable!("nobody copies"));
        assert_eq!((scatter(), dword()), (Some(WcStatus::WR_FLUSH_ERR), 0));
        work.copies.open();
        assert_eq!((scatter(), dword()), (Some(WcStatus::SUCCESS), u32::MAX));
        work.copies.close(|| unreachable!("nobody copies any more"));
    }

    #[test]
    fn requests_without_an_answer_get_none() {
        let lists = Lists::new(2, 2);
        assert_eq!(copied(&lists, 1, &[1]).0, WcStatus::GENERAL_ERR, "never posted");
        lists.put(1, Some(&list(&[1])));
        lists.put(1, None);
        assert_eq!(copied(&lists, 1, &[1]).0, WcStatus::GENERAL_ERR);
        lists.put(1, Some(&[]));
        assert_eq!(copied(&lists, 1, &[1]).0, WcStatus::LOC_LEN_ERR);
        assert_eq!(copied(&Lists::new(0, 0), 1, &[1]).0, WcStatus::GENERAL_ERR, "no queue");
    }
}
