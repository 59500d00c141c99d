//! Places of a shared receive queue come back from pollers while the poster takes them (`src/srq/free.rs`, `src/srq/work.rs`).

use loom::cell::UnsafeCell;
use loom::thread;

use crate::free::{Chain, FreeList};
use crate::proof::{Model, each_ordering_is_needed};
use crate::sync::Arc;
use crate::work::SrqWork;

/// The requests in the places: loom notices when a poller reads one that the poster writes to.
struct Queue {
    free: FreeList,
    requests: [UnsafeCell<char>; 3],
}

// SAFETY: loom's cell panics when two threads use it without an order between them.
unsafe impl Sync for Queue {}

impl Queue {
    /// All places are with the device.
    fn new() -> Arc<Self> {
        Arc::new(Self { free: FreeList::new(3), requests: core::array::from_fn(|_| UnsafeCell::new('a')) })
    }

    /// A completion names the place.
    fn complete(&self, place: u32) {
        // SAFETY: a char is there for as long as the cell.
        assert_eq!(self.requests[place as usize].with(|request| unsafe { *request }), 'a');
        let mut chain = Chain::default();
        self.free.chain(&mut chain, place);
        self.free.give(chain);
    }

    /// The poster takes what came free and posts to it; the places.
    fn post(&self) -> Vec<u32> {
        let places: Vec<u32> = self.free.take().collect();
        for place in &places {
            // SAFETY: as above.
            self.requests[*place as usize].with_mut(|request| unsafe { *request = 'b' });
        }
        places
    }
}

/// `pollers` of them complete the given places, while the poster takes twice, and once more in the end.
fn each_place_comes_back_once(pollers: &'static [&'static [u32]]) {
    let queue = Queue::new();
    let threads: Vec<_> = pollers
        .iter()
        .map(|places| {
            let queue = queue.clone();
            thread::spawn(move || places.iter().for_each(|place| queue.complete(*place)))
        })
        .collect();
    let mut all = queue.post();
    all.extend(queue.post());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    all.extend(queue.post());
    all.sort_unstable();
    let mut given: Vec<u32> = pollers.concat();
    given.sort_unstable();
    assert_eq!(all, given, "each once");
}

const MODELS: [Model; 3] = [
    ("each_place_comes_back_once, one poller", || each_place_comes_back_once(&[&[0, 1, 2]])),
    ("each_place_comes_back_once, two pollers", || each_place_comes_back_once(&[&[0], &[1]])),
    ("each_place_comes_back_once, two pollers and three places", || each_place_comes_back_once(&[&[2, 0], &[1]])),
];

#[test]
fn giving_places_back_against_posting_needs_each_ordering() {
    each_ordering_is_needed(&MODELS, &["src/srq/free.rs"], 2);
}

/// A device that is not trusted names one place on two CQs at once.
#[test]
fn a_request_that_two_pollers_end_at_once_gives_its_place_back_once() {
    loom::model(|| {
        let work = Arc::new(SrqWork::new(2));
        work.push(0, 10);
        work.push(1, 11);
        let other = {
            let work = work.clone();
            thread::spawn(move || work.complete(0))
        };
        assert_eq!((work.complete(0), work.complete(1)), (Some(10), Some(11)));
        let mut taken: Vec<u32> = work.take_free().collect();
        assert_eq!(other.join().unwrap(), Some(10));
        taken.extend(work.take_free());
        taken.sort_unstable();
        assert_eq!(taken, [0, 1], "each once");
    });
}
