//! Queues come and go while their CQ is polled: the table that the poller reads without a lock (`src/cq/rows.rs`).

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread;

use crate::proof::{Model, each_ordering_is_needed};
use crate::rows::{Pass, Reader, Row, Rows, table};
use crate::sync::Arc;

const INDEX: u32 = 5;

/// A queue: loom notices a use that is not ordered behind its making and before its drop.
struct Queue {
    name: UnsafeCell<char>,
}

// SAFETY: loom's cell panics when two threads use it without an order between them.
unsafe impl Sync for Queue {}

impl Queue {
    fn new(name: char) -> Arc<Self> {
        Arc::new(Self { name: UnsafeCell::new(name) })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: a char is there for as long as the cell.
        self.name.with_mut(|name| unsafe { *name = '-' });
    }
}

/// What the poller makes of an entry: the queue that it names.
fn named(pass: &mut Pass<'_, Queue>) -> Option<char> {
    match pass.find(INDEX) {
        // SAFETY: nobody writes to a queue that is found; if somebody did, loom would notice.
        Row::Live(queue) => Some(queue.name.with(|name| unsafe { *name })),
        Row::Gone(_) | Row::Unknown => None,
    }
}

fn destroy(rows: &Rows<Queue>, queue: Arc<Queue>) {
    rows.retire(INDEX, &queue, false);
    drop(queue);
    rows.reclaim();
}

/// The first queue of a table is made while the poller looks for it.
fn the_first_queue_that_is_found_is_whole() {
    let (rows, reader) = table();
    make_while_polling(&rows, reader);
}

/// A queue is made while the poller looks for it, in a table that has rows.
fn a_queue_that_is_found_is_whole() {
    let (rows, reader) = table();
    assert!(rows.publish(INDEX + 1, &Queue::new('z')));
    make_while_polling(&rows, reader);
}

fn make_while_polling(rows: &Rows<Queue>, mut reader: Reader<Queue>) {
    let poller = thread::spawn(move || {
        let found = named(&mut reader.begin());
        assert!(matches!(found, None | Some('a')));
    });
    assert!(rows.publish(INDEX, &Queue::new('a')));
    poller.join().unwrap();
}

/// A queue is destroyed while the poller, which finds its ring empty, looks for it.
fn a_queue_that_is_found_lives() {
    let (rows, mut reader) = table();
    let queue = Queue::new('a');
    assert!(rows.publish(INDEX, &queue));
    let poller = thread::spawn(move || {
        for _ in 0..2 {
            let mut pass = reader.begin();
            named(&mut pass);
            pass.saw_empty();
            pass.settle();
        }
    });
    destroy(&rows, queue);
    rows.reclaim();
    poller.join().unwrap();
}

/// A queue that leaves something is destroyed while the poller looks for it: it finds the queue, live or gone, or a tombstone.
fn a_queue_that_is_found_as_gone_lives() {
    let (rows, mut reader) = table();
    let queue = Queue::new('a');
    assert!(rows.publish(INDEX, &queue));
    let poller = thread::spawn(move || {
        for _ in 0..2 {
            let mut pass = reader.begin();
            let a = |queue: &Queue| {
                // SAFETY: as in `named`.
                assert_eq!(queue.name.with(|name| unsafe { *name }), 'a');
            };
            match pass.find(INDEX) {
                Row::Live(queue) => a(&queue),
                Row::Gone(Some(queue)) => a(queue),
                Row::Gone(None) | Row::Unknown => {}
            }
            pass.saw_empty();
            pass.settle();
        }
    });
    rows.retire(INDEX, &queue, true);
    drop(queue);
    rows.reclaim();
    rows.reclaim();
    poller.join().unwrap();
}

/// The device writes the last entry of a queue, which is then destroyed, and its index given to another one as soon as the
/// table lets it go. The poller looks at its ring `looks` times a pass.
fn an_old_entry(looks: u32) {
    let (rows, mut reader) = table();
    let queue = Queue::new('a');
    assert!(rows.publish(INDEX, &queue));
    let entries = Arc::new(AtomicU32::new(0));
    let ring = entries.clone();
    let poller = thread::spawn(move || {
        let mut consumed = 0;
        for _ in 0..2 {
            let mut pass = reader.begin();
            for _ in 0..looks {
                if ring.load(Relaxed) == consumed {
                    pass.saw_empty();
                } else {
                    assert_ne!(named(&mut pass), Some('b'), "an entry of the first queue");
                    consumed += 1;
                }
            }
            pass.settle();
        }
    });
    entries.store(1, Relaxed);
    destroy(&rows, queue);
    rows.publish(INDEX, &Queue::new('b'));
    poller.join().unwrap();
}

const MODELS: [Model; 6] = [
    ("the_first_queue_that_is_found_is_whole", the_first_queue_that_is_found_is_whole),
    ("a_queue_that_is_found_is_whole", a_queue_that_is_found_is_whole),
    ("a_queue_that_is_found_lives", a_queue_that_is_found_lives),
    ("a_queue_that_is_found_as_gone_lives", a_queue_that_is_found_as_gone_lives),
    ("an_old_entry_never_names_the_next_queue, one look a pass", || an_old_entry(1)),
    ("an_old_entry_never_names_the_next_queue, two looks a pass", || an_old_entry(2)),
];

#[test]
fn attaching_and_detaching_against_polling_needs_each_ordering() {
    each_ordering_is_needed(&MODELS, &["src/cq/rows.rs"], 9);
}
