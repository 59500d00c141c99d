//! The same protocol with the device on a thread of its own: nothing but the owner byte and the record pass between them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::device::memory;
use mlx5_hw::dbrec::CqDbRec;
use mlx5_hw::ring::{Cqe64, Ring};

const COMPLETIONS: u32 = 100_000;
/// Without a completion for so long there will be none.
const STUCK: std::time::Duration = std::time::Duration::from_secs(60);

/// Ends the device's thread when a failed assertion unwinds the reader.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Produces [`COMPLETIONS`] entries as fast as the record lets it: body first, then the last dword.
fn device(mem: &[AtomicU32], record: &[AtomicU32], log: u32, stop: &AtomicBool) {
    let entries = 1 << log;
    for n in 0..COMPLETIONS {
        while n.wrapping_sub(u32::from_be(record[0].load(Ordering::Acquire))) & 0xff_ffff >= entries {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            std::thread::yield_now();
        }
        let slot = &mem[(n % entries) as usize * 16..][..16];
        for (i, word) in slot[..15].iter().enumerate() {
            word.store(n.wrapping_mul(i as u32 + 1).to_be(), Ordering::Relaxed);
        }
        let last = (n & 0xffff) << 16 | 2 << 4 | (n / entries) & 1;
        slot[15].store(last.to_be(), Ordering::Release);
    }
}

#[test]
fn bodies_are_whole_when_the_owner_byte_is_seen() {
    for log in [0, 1, 3, 6] {
        let mut ring = Ring::<Cqe64>::new(log).unwrap();
        let (mem, words) = (memory(ring.bytes()), memory(8));
        Ring::<Cqe64>::init_memory(&mem);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| device(&mem, &words, log, &stop));
            let _stop = Stop(&stop);
            let mut last = std::time::Instant::now();
            let record = CqDbRec::first_of(&words).unwrap();
            let mut seen = 0u32;
            while seen < COMPLETIONS {
                assert!(last.elapsed() < STUCK, "{seen} completions and no more");
                let mut consumer = ring.consume(&mem).unwrap();
                while let Some(cqe) = consumer.next() {
                    assert_eq!(cqe.dword::<0>().get(), seen);
                    assert_eq!(cqe.byte_cnt(), seen.wrapping_mul(12));
                    assert_eq!(cqe.dword::<14>().get(), seen.wrapping_mul(15));
                    assert_eq!(cqe.wqe_counter(), seen as u16);
                    seen += 1;
                }
                if consumer.taken() == 0 {
                    std::thread::yield_now();
                } else {
                    last = std::time::Instant::now();
                }
                let ci = consumer.ci();
                drop(consumer);
                record.set_consumer(ci);
            }
        });
    }
}
