//! A run of entries that are alike but for one bit of one of them: what reads several at once must see each bit that counts, at each
//! place.

use std::collections::HashMap;

use mlx5::Cpu;

use crate::naive::{Layout, Mini, Naive, Queue};
use crate::world::{Shape, levels};

/// Entries in the run; the first ones are what the others are compared with.
const RUN: usize = 12;
/// Each place of the first four that are taken at once, the next four, and what is left.
const PLACES_IN_RUN: [usize; 7] = [2, 3, 4, 5, 6, 10, 11];
/// Places of each queue.
const PLACES: u64 = 32;

/// What all entries of a run have: last byte, opcode of the request, whether receives are of a shared queue.
const RUNS: [(u8, u8, bool); 5] =
    [(0x20, 0, false), (0x30, 0, false), (0x00, 0x0a, false), (0x00, 0x10, false), (0x20, 0, true)];

fn entry(counter: usize, (op_own, send_opcode, _): (u8, u8, bool)) -> [u8; 64] {
    let mut entry = [0; 64];
    // ml_path, slid, flags_rqpn, then user index 1, immediate data, byte_cnt, the queue's number.
    entry[17] = 0x15;
    entry[22..28].copy_from_slice(&[0x12, 0x34, 0x05, 0, 0x56, 0x78]);
    entry[35..40].copy_from_slice(&[1, 0xab, 0xcd, 0xef, 0x01]);
    entry[44..48].copy_from_slice(&[0, 0, 5, counter as u8]);
    entry[56..64].copy_from_slice(&[send_opcode, 0, 0x12, 0x34, 0, counter as u8, 0, op_own]);
    entry
}

fn shape(shared: bool) -> Shape {
    let ids = |first: u64| (first..first + PLACES).collect::<Vec<_>>();
    // Indices that a bit leads to have names of their own.
    let queue = |index: u64| match shared {
        false => Queue::Own { recv: ids(index << 32), send: ids((index << 32) + 0x1000) },
        true => Queue::Shared { srq: ids(0x2000), send: ids((index << 32) + 0x1000) },
    };
    let queues = HashMap::from([0, 1, 3, 5, 0x101].map(|index| (index, queue(index.into()))));
    Shape { log: 4, cqe_size: 64, layout: Layout::Plain, queues }
}

/// The run's ring, and for each of its entries in turn all that differ in one bit of it.
fn each_bit(mut check: impl FnMut(&Shape, Naive, &str)) {
    for run in RUNS {
        let shape = shape(run.2);
        for (at, bit) in PLACES_IN_RUN.into_iter().flat_map(|at| (0..512).map(move |bit| (at, bit))) {
            let mut naive = shape.naive();
            for (n, slot) in naive.ring.chunks_mut(64).enumerate() {
                slot.copy_from_slice(&entry(n, run));
                if n >= RUN {
                    slot[63] = 0xf0;
                }
            }
            naive.ring[64 * at + bit / 8] ^= 1 << (bit % 8);
            check(&shape, naive, &format!("{run:x?}, entry {at}, bit {bit}"));
        }
    }
}

#[test]
fn every_bit_that_counts_is_seen_at_every_place() {
    let check = |shape: &Shape, mut naive: Naive, packets: bool, what: &str| {
        let facades = levels().into_iter().map(|cpu| (cpu, shape.facade(cpu)));
        let mut facades: Vec<_> = facades.inspect(|(_, facade)| facade.lay(&naive.ring)).collect();
        for _ in 0..3 {
            let expected = if packets { naive.poll_packets(16).map(Err) } else { naive.poll_cq(16).map(Ok) };
            for (cpu, facade) in &mut facades {
                let seen = if packets { facade.poll_packets(16).map(Err) } else { facade.poll_cq(16).map(Ok) };
                assert_eq!(seen, expected, "{what}, {}", cpu.name());
                assert_eq!(facade.record(), naive.record, "{what}, {}", cpu.name());
            }
        }
    };
    each_bit(|shape, naive, what| check(shape, naive, false, what));
    each_bit(|shape, naive, what| check(shape, naive, true, what));
}

/// The iterator is the same with every processor.
#[test]
fn every_bit_that_counts_is_seen_by_both_iterators() {
    each_bit(|shape, mut naive, what| {
        let mut facades = [shape.facade(Cpu::PORTABLE), shape.facade(Cpu::PORTABLE)];
        facades.iter().for_each(|facade| facade.lay(&naive.ring));
        let expected = naive.iterate(16);
        let [any, format] = &mut facades;
        assert_eq!(any.iterate_any(16), expected, "{what}");
        assert_eq!(format.iterate_format(16), expected, "{what}");
        assert_eq!(facades.map(|facade| facade.record()), [naive.record; 2], "{what}");
    });
}

/// A ring of two sessions of four receives whose titles differ in this bit alone.
fn two_titles(layout: Layout, bit: Option<usize>) -> Naive {
    let mut naive = Shape { layout, ..shape(false) }.naive();
    naive.ring.chunks_mut(64).for_each(|slot| slot[62..].copy_from_slice(&[0xff, 0xf0]));
    let basic = matches!(layout, Layout::Basic(_));
    // Slots that a session takes with its title, and as many requests.
    let taken = if basic { 4 } else { 5 };
    for session in 0..2 {
        let mut title = entry(taken * session, (0x20, 0, false));
        let mut minis = [0; 64];
        minis
            .chunks_mut(8)
            .enumerate()
            .take(4)
            .for_each(|(n, mini)| mini[6..].copy_from_slice(&[session as u8, n as u8]));
        if basic {
            // Its length is the session's, and it is the first of the four.
            title[44..48].copy_from_slice(&[0, 0, 0, 4]);
            title[63] = 0x2c;
        } else {
            // A block of four, in lap 0.
            minis[63] = 0x3c;
        }
        if let Some(bit) = bit.filter(|_| session == 1) {
            title[bit / 8] ^= 1 << (bit % 8);
        }
        let first = 64 * taken * session;
        naive.ring[first..first + 64].copy_from_slice(&title);
        naive.ring[first + 64..first + 128].copy_from_slice(&minis);
    }
    naive
}

/// A record of the first title must serve none that it would be wrong for.
#[test]
fn every_bit_of_a_second_title_that_counts_is_seen() {
    for layout in [Mini::Hash, Mini::Csum, Mini::CsumStridx]
        .into_iter()
        .flat_map(|mini| [Layout::Basic(mini), Layout::Enhanced(mini)])
    {
        for bit in 0..512 {
            let mut naive = two_titles(layout, Some(bit));
            let shape = Shape { layout, ..shape(false) };
            let mut facades: Vec<_> = levels().into_iter().map(|cpu| (cpu, shape.facade(cpu))).collect();
            facades.iter().for_each(|(_, facade)| facade.lay(&naive.ring));
            for _ in 0..4 {
                let expected = naive.poll_cq(16);
                for (cpu, facade) in &mut facades {
                    assert_eq!(facade.poll_cq(16), expected, "{layout:?}, bit {bit}, {}", cpu.name());
                    assert_eq!(facade.record(), naive.record, "{layout:?}, bit {bit}, {}", cpu.name());
                }
            }
        }
    }
}

#[test]
fn completions_of_two_titles_that_are_alike_are_all_there() {
    for (layout, all) in [(Layout::Basic(Mini::Hash), 8), (Layout::Enhanced(Mini::Hash), 10)] {
        assert_eq!(two_titles(layout, None).poll_cq(16).map(|wcs| wcs.len()), Ok(all), "{layout:?}");
    }
}
