//! Every rule of BlueFlame, broken once by raw bytes.

use mlx5_model::ModelConfig;
use mlx5_model::ViolationKind::{self, *};

use crate::flame::Bench;
use crate::raw::get;
use crate::wqe::{inline, signalled};

/// A name, the rule, and how it is broken.
type Breach = (&'static str, ViolationKind, fn(&mut Bench));

/// A message of one block, and one of two.
const SHORT: [u8; 3] = *b"one";
const LONG: [u8; 60] = [2; 60];

fn no_bf(log_bf_reg_size: u8, bf: bool) -> Bench {
    let mut config = ModelConfig::default();
    (config.caps.log_bf_reg_size, config.caps.bf) = (log_bf_reg_size, bf);
    Bench::with(config)
}

pub const BREACHES: &[Breach] = &[
    ("another byte than in memory", BlueFlameDiffers, |b| {
        let mut block = b.write(signalled(&inline(&SHORT)))[0];
        block[20] ^= 1;
        b.tell();
        b.store(0x800, &block);
    }),
    ("memory that is written after the store", BlueFlameDiffers, |b| {
        b.rdma.recv(&mut b.b, &[]);
        let blocks = b.write(signalled(&[]));
        b.tell();
        crate::raw::store(&b.a.mem, 512, &[0; 64]);
        b.store(0x800, &blocks[0]);
    }),
    ("the last block missing", BlueFlameIncomplete, |b| {
        let blocks = b.write(signalled(&inline(&LONG)));
        b.tell();
        b.store(0x800, &blocks[0]);
        assert!(b.rdma.take(&mut b.send).is_none());
        let blocks = b.write(signalled(&inline(&SHORT)));
        b.tell();
        b.store(0x900, &blocks[0]);
    }),
    ("the last block missing before a doorbell", BlueFlameIncomplete, |b| {
        let blocks = b.write(signalled(&inline(&LONG)));
        b.tell();
        b.store(0x800, &blocks[0]);
        let value = b.rdma.write_send(&mut b.a, signalled(&[]));
        b.rdma.ring(&b.a, value);
    }),
    ("the first block missing", BlueFlameIncomplete, |b| {
        let blocks = b.write(signalled(&inline(&LONG)));
        b.store(0x840, &blocks[1]);
        let value = get(&blocks[0], 0, 64);
        b.tell();
        b.rdma.raw.write64(b.page() + 0x900, value);
    }),
    ("the rest missing when the queue pair is reset", BlueFlameIncomplete, |b| {
        let blocks = b.write(signalled(&inline(&LONG)));
        b.tell();
        b.store(0x800, &blocks[0]);
        b.rdma.leave(0x50a, &b.a);
    }),
    ("the rest missing when the queue pair is destroyed", BlueFlameIncomplete, |b| {
        let blocks = b.write(signalled(&inline(&LONG)));
        b.tell();
        b.store(0x800, &blocks[0]);
        let mut body = [0; 8];
        crate::raw::put(&mut body, 8, 24, b.a.qpn.into());
        b.rdma.raw.command(0x501, 0, &body, 16);
    }),
    ("a request of five blocks", BlueFlameLength, |b| {
        let blocks = b.write(signalled(&inline(&[3; 250])));
        b.tell();
        for (n, block) in blocks[..4].iter().enumerate() {
            b.store(0x800 + 64 * n, block);
        }
    }),
    ("a request of two blocks for a buffer of one", BlueFlameLength, |b| {
        *b = no_bf(7, true);
        let blocks = b.write(signalled(&inline(&LONG)));
        b.tell();
        b.store(0x800, &blocks[0]);
    }),
    ("two requests in one buffer", BlueFlameLength, |b| {
        let first = b.write(signalled(&inline(&SHORT)));
        let second = b.write(signalled(&inline(&SHORT)));
        b.tell();
        b.store(0x800, &first[0]);
        b.store(0x840, &second[0]);
    }),
    ("a block that is no part of the request before it", BlueFlameLength, |b| {
        let blocks = b.write(signalled(&inline(&LONG)));
        b.tell();
        b.store(0x880, &blocks[1]);
        b.store(0x800, &blocks[0]);
    }),
    ("the same buffer twice", BlueFlameBuffer, |b| {
        for _ in 0..2 {
            let blocks = b.write(signalled(&inline(&SHORT)));
            b.tell();
            b.store(0x800, &blocks[0]);
        }
    }),
    ("one buffer for two queue pairs", BlueFlameBuffer, |b| {
        b.flame(signalled(&inline(&SHORT)));
        std::mem::swap(&mut b.a, &mut b.b);
        let blocks = b.write(signalled(&inline(&SHORT)));
        b.tell();
        b.store(0x800, &blocks[0]);
        std::mem::swap(&mut b.a, &mut b.b);
    }),
    ("a function without BlueFlame", BlueFlameMissing, |b| {
        *b = no_bf(9, false);
        b.flame(signalled(&inline(&SHORT)));
        b.flame(signalled(&inline(&SHORT)));
    }),
    ("buffers smaller than a block", BlueFlameMissing, |b| {
        *b = no_bf(6, true);
        b.flame(signalled(&inline(&SHORT)));
    }),
    ("a store over the other doorbells", BlueFlameMissing, |b| b.store(0, &[0; 64])),
    ("a store before the record", SendRecordStale, |b| {
        let blocks = b.write(signalled(&inline(&SHORT)));
        b.store(0x800, &blocks[0]);
        assert!(b.rdma.take(&mut b.send).is_none());
    }),
    ("a store to the UAR of another queue", DoorbellWrongUar, |b| {
        let other = get(&b.rdma.raw.command(0x802, 0, &[0; 8], 16), 72, 24) as usize * 4096;
        let blocks = b.write(signalled(&inline(&SHORT)));
        b.tell();
        b.store_at(other + 0x800, &blocks[0]);
    }),
    ("a store for no queue pair", DoorbellUnknownObject, |b| {
        let mut block = b.write(signalled(&inline(&SHORT)))[0];
        block[4] = 0xab;
        b.store(0x800, &block);
    }),
    ("a store to a page that is not allocated", UarUnknownPage, |b| b.store_at(200 * 4096 + 0x800, &[0; 64])),
    ("a store that is not aligned", BarMisaligned, |b| b.store(0x820, &[0; 64])),
    ("a store beyond the BAR", BarOutOfRange, |b| b.store_at(1 << 20, &[0; 64])),
];

#[test]
fn each_breach_is_noticed_and_named() {
    for (name, kind, commit) in BREACHES {
        let mut b = Bench::new();
        commit(&mut b);
        let found = b.rdma.raw.model.violations();
        assert!(!found.is_empty() && found.iter().all(|violation| violation.kind == *kind), "{name}: {found:?}");
    }
}

/// What the other end has received so far, one message at a time.
fn received(b: &mut Bench, count: usize) -> Vec<Vec<u8>> {
    let one = |b: &mut Bench| {
        b.rdma.recv(&mut b.b, &[b.mr.seg(0, 512)]);
        assert_eq!(b.rdma.poll(&mut b.send)[63] >> 4, 0);
        let cqe = b.rdma.poll(&mut b.recv);
        b.mr.bytes(0, get(&cqe, 352, 32) as usize)
    };
    (0..count).map(|_| one(b)).collect()
}

#[test]
fn a_request_whose_stores_were_wrong_is_read_from_memory() {
    let all = [vec![3; 250], LONG.to_vec(), SHORT.to_vec(), SHORT.to_vec()];
    let cases: [(&str, &[usize]); 6] = [
        ("a request of five blocks", &[0]),
        ("a request of two blocks for a buffer of one", &[1]),
        ("a block that is no part of the request before it", &[1]),
        ("the last block missing", &[1, 2]),
        ("two requests in one buffer", &[2, 3]),
        ("a function without BlueFlame", &[2, 3]),
    ];
    for (name, messages) in cases {
        let (_, _, commit) = BREACHES.iter().find(|row| row.0 == name).unwrap();
        let mut b = Bench::new();
        commit(&mut b);
        let expected: Vec<_> = messages.iter().map(|n| all[*n].clone()).collect();
        assert_eq!(received(&mut b, messages.len()), expected, "{name}");
    }
}

#[test]
fn the_device_keeps_working_after_each_breach() {
    for (name, _, commit) in BREACHES {
        let mut b = Bench::new();
        commit(&mut b);
        let mut fresh = b.anew();
        fresh.flame(signalled(&inline(&LONG)));
        assert_eq!(received(&mut fresh, 1), [LONG.to_vec()], "{name}");
    }
}
