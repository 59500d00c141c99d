//! The lines of the clock are read while they are measured anew (`src/clock/seqlock.rs`).

use loom::thread;

use crate::proof::{Model, each_ordering_is_needed};
use crate::seqlock::SeqLock;
use crate::sync::Arc;

/// Who looks `looks` times while the words change has those of one change, and later not those of an earlier one.
fn looking(changes: u64, looks: u32) {
    let lock = Arc::new(SeqLock::<2>::new());
    let writer = lock.clone();
    let writer = thread::spawn(move || (1..=changes).for_each(|n| writer.write(&[n, n])));
    let mut last = 0;
    for _ in 0..looks {
        if let Some([first, second]) = lock.look() {
            assert_eq!(first, second, "the halves of two changes");
            assert!(first >= last, "{first} after {last}");
            last = first;
        }
    }
    writer.join().unwrap();
    assert_eq!(lock.look(), Some([changes; 2]), "nobody writes any more");
}

const MODELS: [Model; 2] =
    [("two looks at one change", || looking(1, 2)), ("one look at two changes", || looking(2, 1))];

#[test]
fn reading_the_clock_while_it_is_measured_needs_each_ordering() {
    each_ordering_is_needed(&MODELS, &["src/clock/seqlock.rs"], 4);
}
