//! Random rings: runs of entries of all kinds, good and bad, and bytes of no kind at all.

use std::collections::HashMap;

use proptest::prelude::*;

use crate::naive::{Layout, Mini, Naive, Queue};
use crate::world::{Facade, Shape, levels};

/// User indices of queues that are there; 4 and 5 are those of queues that are gone.
const OWN: u32 = 1;
const TINY: u32 = 2;
const SHARED: u32 = 3;
const GONE: [u32; 2] = [4, 5];
/// Of a queue that has no place at all.
const NONE: u32 = 700;

/// What a device writes, a run of entries of one kind.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Receives of one queue.
    Receive {
        opcode: u8,
        index: u32,
    },
    /// Sends of one queue.
    Request {
        send_opcode: u8,
        index: u32,
    },
    /// Receives and sends of several queues.
    Mixed,
    Error {
        opcode: u8,
    },
    /// A session of so many; what the minis hold is random.
    Session {
        count: u32,
    },
    /// Any opcode and format, of a known queue or another.
    Odd,
    /// Any bytes at all, but so that the slot is software's.
    Noise,
    /// Any bytes at all.
    Anything,
    /// What an earlier lap left.
    Left,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write { kind: Kind, length: u32, seed: u64 },
    Poll { most: usize },
    Iterate { most: usize },
    Packets { most: usize },
}

fn kind() -> impl Strategy<Value = Kind> {
    let index = || prop::sample::select(vec![OWN, OWN, TINY, SHARED, SHARED, GONE[0], GONE[1], NONE, 77]);
    let sends = prop::sample::select(vec![0x08_u8, 0x09, 0x0a, 0x0a, 0x0b, 0x10, 0x11, 0x12, 0x01, 0x25]);
    prop_oneof![
        6 => (prop::sample::select(vec![1_u8, 2, 2, 2, 3, 3, 4]), index())
            .prop_map(|(opcode, index)| Kind::Receive { opcode, index }),
        4 => (sends, index()).prop_map(|(send_opcode, index)| Kind::Request { send_opcode, index }),
        3 => Just(Kind::Mixed),
        1 => prop::sample::select(vec![13_u8, 14]).prop_map(|opcode| Kind::Error { opcode }),
        4 => prop_oneof![4 => 2_u32..=9, 2 => 10_u32..=70, 1 => any::<u32>()].prop_map(|count| Kind::Session { count }),
        1 => Just(Kind::Odd),
        1 => Just(Kind::Noise),
        1 => Just(Kind::Anything),
        1 => Just(Kind::Left),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (kind(), 1_u32..=24, any::<u64>()).prop_map(|(kind, length, seed)| Step::Write { kind, length, seed }),
        3 => (0_usize..=67).prop_map(|most| Step::Poll { most }),
        1 => (1_usize..=20).prop_map(|most| Step::Iterate { most }),
        2 => (0_usize..=67).prop_map(|most| Step::Packets { most }),
    ]
}

fn layout() -> impl Strategy<Value = Layout> {
    let minis = vec![Mini::Hash, Mini::Csum, Mini::CsumStridx, Mini::FtagStridx, Mini::L34hStridx];
    let mini = || prop::sample::select(minis.clone());
    prop_oneof![
        2 => Just(Layout::Plain),
        1 => mini().prop_map(Layout::Basic),
        1 => mini().prop_map(Layout::Enhanced),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let ids = |first: u64, n: u64| (first..first + n).map(|id| (id << 32) + id * 7).collect::<Vec<_>>();
    (0_u32..=7, prop::sample::select(vec![64, 64, 128]), layout()).prop_map(move |(log, cqe_size, layout)| Shape {
        log,
        cqe_size,
        layout,
        queues: HashMap::from([
            (OWN, Queue::Own { recv: ids(0x1000, 256), send: ids(0x2000, 64) }),
            (TINY, Queue::Own { recv: ids(0x1800, 1), send: ids(0x2800, 2) }),
            (SHARED, Queue::Shared { srq: ids(0x3000, 100), send: ids(0x3800, 16) }),
            (GONE[0], Queue::Gone),
            (GONE[1], Queue::Gone),
            (NONE, Queue::Own { recv: Vec::new(), send: Vec::new() }),
        ]),
    })
}

/// Random bytes out of a seed (splitmix64).
struct Bytes(u64);

impl Bytes {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]));
    }
}

/// The device: where it writes next, and what it has room for.
struct Device {
    at: u32,
    log: u32,
    cqe_size: usize,
    layout: Layout,
    counters: HashMap<(u32, bool), u32>,
    /// Queues end in their order, as with a device that is right.
    orderly: bool,
    /// What precedes the user index is left at zero.
    quiet: bool,
}

impl Device {
    /// Which place of its queue a completion is of.
    fn counter(&mut self, bytes: &mut Bytes, index: u32, request: bool) -> u16 {
        if !self.orderly && bytes.below(8) == 0 {
            return bytes.next() as u16;
        }
        let counter = self.counters.entry((index, request)).or_default();
        let places = if index == SHARED && !request { 100 } else { 1 << 16 };
        let n = *counter % places;
        *counter = counter.wrapping_add(1);
        n as u16
    }

    fn room(&self, ci: u32) -> u32 {
        (1 << self.log) - self.at.wrapping_sub(ci)
    }

    fn slot<'r>(&self, ring: &'r mut [u8], index: u32) -> &'r mut [u8] {
        let at = (index % (1 << self.log)) as usize * self.cqe_size;
        &mut ring[at..][..self.cqe_size]
    }

    /// Marks the slot as this lap's.
    fn own(&self, entry: &mut [u8], index: u32) {
        let (lap, end) = (index >> self.log, entry.len());
        if matches!(self.layout, Layout::Enhanced(_)) {
            entry[end - 2] = lap as u8;
        } else {
            entry[end - 1] = entry[end - 1] & !1 | lap as u8 & 1;
        }
    }

    /// A whole entry of random bytes, but for what makes it one of this queue.
    fn entry(&mut self, ring: &mut [u8], bytes: &mut Bytes, (opcode, send_opcode): (u8, u8), index: u32) {
        let counter = self.counter(bytes, index, matches!(opcode, 0 | 13));
        let slot = self.slot(ring, self.at);
        bytes.fill(slot);
        let at = slot.len() - 64;
        let entry = &mut slot[at..];
        if self.quiet {
            entry[..32].fill(0);
        }
        entry[32] = bytes.next() as u8;
        entry[33..36].copy_from_slice(&index.to_be_bytes()[1..]);
        entry[56] = send_opcode;
        entry[60..62].copy_from_slice(&counter.to_be_bytes());
        entry[63] = opcode << 4 | bytes.next() as u8 & 0b10;
        if bytes.below(3) != 0 {
            entry[55] = [0x01, 0x02, 0x04, 0x05, 0x06, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x22]
                [bytes.below(13) as usize];
        }
        let at = self.at;
        self.own(self.slot(ring, at), at);
        self.at = at.wrapping_add(1);
    }

    /// A session of `count`, as far as there is room. Slots that it leaves out stay as they are.
    fn session(&mut self, ring: &mut [u8], bytes: &mut Bytes, count: u32, room: u32) {
        let index = [OWN, SHARED, TINY, 77][bytes.below(4) as usize];
        let opcode = bytes.below(5) as u8;
        let title = self.at;
        let send_opcode = 0x0a;
        match self.layout {
            Layout::Plain | Layout::Basic(_) => {
                self.entry(ring, bytes, (opcode, send_opcode), index);
                let at = self.cqe_size - 64;
                let entry = &mut self.slot(ring, title)[at..];
                entry[63] |= 0b1100;
                entry[44..48].copy_from_slice(&count.to_be_bytes());
                let count = count.clamp(1, room);
                for k in 0..count.div_ceil(8) {
                    let array = title.wrapping_add(if k == 0 { 1 } else { 8 * k });
                    if array.wrapping_sub(title) < room {
                        self.minis(ring, bytes, array, opcode);
                    }
                }
                self.at = title.wrapping_add(count);
            }
            Layout::Enhanced(_) => {
                if bytes.below(3) != 0 {
                    self.entry(ring, bytes, (opcode, send_opcode), index);
                }
                let (block, left) = (self.at, room - self.at.wrapping_sub(title));
                if left != 0 {
                    let count = if count > 16 { 8 } else { count.min(left).clamp(1, 7) };
                    self.minis(ring, bytes, block, opcode);
                    let slot = self.slot(ring, block);
                    let end = slot.len();
                    slot[end - 1] = (count as u8 - 1) << 4 | 0b1100;
                    self.own(self.slot(ring, block), block);
                    self.at = block.wrapping_add(count.min(left));
                }
            }
        }
    }

    /// An array: of requests that are known, or any bytes.
    fn minis(&self, ring: &mut [u8], bytes: &mut Bytes, array: u32, opcode: u8) {
        let at = self.cqe_size - 64;
        let entry = &mut self.slot(ring, array)[at..];
        bytes.fill(entry);
        if opcode == 0 {
            for mini in entry.chunks_mut(8) {
                mini[2] = [0x0a, 0x08, 0x10, 0x11, 0x25][bytes.below(5) as usize];
            }
        }
    }

    fn write(&mut self, ring: &mut [u8], ci: u32, kind: Kind, length: u32, seed: u64) {
        let bytes = &mut Bytes(seed);
        self.quiet = bytes.below(2) == 0;
        for _ in 0..length {
            let room = self.room(ci);
            if room == 0 {
                return;
            }
            match kind {
                Kind::Receive { opcode, index } => self.entry(ring, bytes, (opcode, 0), index),
                Kind::Request { send_opcode, index } => self.entry(ring, bytes, (0, send_opcode), index),
                Kind::Mixed => {
                    let index = [OWN, TINY, SHARED][bytes.below(3) as usize];
                    let opcode = [0, 2, 3][bytes.below(3) as usize];
                    self.entry(ring, bytes, (opcode, 0x0a), index);
                }
                Kind::Error { opcode } => self.entry(ring, bytes, (opcode, 0), OWN),
                Kind::Session { count } => self.session(ring, bytes, count, room),
                Kind::Odd => {
                    let index = [OWN, SHARED, 77][bytes.below(3) as usize];
                    let opcode = bytes.below(15) as u8;
                    let at = self.at;
                    self.entry(ring, bytes, (opcode, 0x0a), index);
                    let slot = self.slot(ring, at);
                    let end = slot.len();
                    slot[end - 1] |= (bytes.below(3) as u8) << 2;
                }
                Kind::Noise | Kind::Anything => {
                    let at = self.at;
                    bytes.fill(self.slot(ring, at));
                    if matches!(kind, Kind::Noise) {
                        let slot = self.slot(ring, at);
                        let end = slot.len();
                        slot[end - 1] = bytes.below(0xf0) as u8;
                        self.own(self.slot(ring, at), at);
                    }
                    self.at = at.wrapping_add(1);
                }
                Kind::Left => self.at = self.at.wrapping_add(1),
            }
        }
    }
}

/// Where the device writes next: it is never behind what was read.
fn catch_up(device: &mut Device, naive: &Naive) {
    if device.at.wrapping_sub(naive.ci) > 1 << device.log {
        device.at = naive.ci;
    }
}

fn play(shape: &Shape, orderly: bool, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut naive = shape.naive();
    let mut facades: Vec<(_, Facade)> = levels().into_iter().map(|cpu| (cpu, shape.facade(cpu))).collect();
    let mut device = Device {
        at: 0,
        log: shape.log,
        cqe_size: shape.cqe_size,
        layout: shape.layout,
        counters: HashMap::new(),
        orderly,
        quiet: false,
    };
    for slot in naive.ring.chunks_mut(64) {
        slot[62..].copy_from_slice(&[0xff, 0xf0]);
    }
    facades.iter().for_each(|(_, facade)| facade.lay(&naive.ring));
    for step in steps {
        match *step {
            Step::Write { kind, length, seed } => {
                catch_up(&mut device, &naive);
                let ci = naive.ci;
                device.write(&mut naive.ring, ci, kind, length, seed);
                facades.iter().for_each(|(_, facade)| facade.lay(&naive.ring));
            }
            Step::Poll { most } => {
                let expected = naive.poll_cq(most);
                for (cpu, facade) in &mut facades {
                    prop_assert_eq!(&facade.poll_cq(most), &expected, "{}", cpu.name());
                }
            }
            Step::Packets { most } => {
                let expected = naive.poll_packets(most);
                for (cpu, facade) in &mut facades {
                    prop_assert_eq!(&facade.poll_packets(most), &expected, "{}", cpu.name());
                }
            }
            Step::Iterate { most } => {
                let expected = naive.iterate(most);
                for (cpu, facade) in &mut facades {
                    prop_assert_eq!(&facade.iterate(most), &expected, "{}", cpu.name());
                }
            }
        }
        for (cpu, facade) in &facades {
            prop_assert_eq!(facade.record(), naive.record, "{}", cpu.name());
            prop_assert!(facade.ring_is(&naive), "{}: the ring after it", cpu.name());
            facade.post_again();
        }
        naive.may_be_stamped.clear();
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn random_rings_are_read_as_the_naive_model_reads_them(
        shape in shape(),
        orderly in prop::bool::weighted(0.7),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        play(&shape, orderly, &steps)?;
    }
}
