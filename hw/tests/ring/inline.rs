//! Messages that lie in the entries themselves.

use std::sync::atomic::{AtomicU32, Ordering};

use mlx5_hw::ring::{Cqe64, Cqe128, CqeFormat, Ring};

use crate::device::{memory, poke};

/// The bytes in which a message lies, of each entry of a full ring whose byte `i` is `i % 251`, all of data format `format`.
fn areas<F: CqeFormat>(format: u8) -> Vec<Option<Vec<u8>>> {
    let mut ring = Ring::<F>::new(2).unwrap();
    let mem = memory(ring.bytes());
    for at in 0..ring.bytes() {
        poke(&mem, at, if at % F::SIZE == F::SIZE - 1 { 0x20 | format << 2 } else { (at % 251) as u8 });
    }
    let mut entries = ring.consume(&mem).unwrap();
    let bytes = |words: &[AtomicU32]| words.iter().flat_map(|w| w.load(Ordering::Relaxed).to_ne_bytes()).collect();
    std::iter::from_fn(|| entries.next()).map(|cqe| cqe.inline_data().map(bytes)).collect()
}

fn ring_bytes(slot: usize, size: usize, from: usize, len: usize) -> Option<Vec<u8>> {
    Some((slot * size + from..slot * size + from + len).map(|at| (at % 251) as u8).collect())
}

/// Data of 32 bytes lies at the start of the descriptor, data of 64 bytes before it. Case C-078: in the last slot too.
#[test]
fn inlined_data_lies_in_the_descriptor_or_before_it() {
    let small: Vec<_> = (0..4).map(|slot| ring_bytes(slot, 64, 0, 32)).collect();
    assert_eq!(areas::<Cqe64>(1), small);
    let small: Vec<_> = (0..4).map(|slot| ring_bytes(slot, 128, 64, 32)).collect();
    assert_eq!(areas::<Cqe128>(1), small);
    let large: Vec<_> = (0..4).map(|slot| ring_bytes(slot, 128, 0, 64)).collect();
    assert_eq!(areas::<Cqe128>(2), large);
}

/// A compressed title has both bits of inlined data set and is neither; 64 bytes have no room in an entry of 64.
#[test]
fn other_formats_have_no_inlined_data() {
    for format in [0, 3] {
        assert_eq!(areas::<Cqe64>(format), [const { None }; 4]);
        assert_eq!(areas::<Cqe128>(format), [const { None }; 4]);
    }
    assert_eq!(areas::<Cqe64>(2), [const { None }; 4]);
}
