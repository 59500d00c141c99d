//! Images of full rings, as a device would have left them: the rule of `tests/data/rings`, for any number of entries.

use crate::options::Compress;

/// User index of the first queue; the others follow.
pub const USER_INDEX: u32 = 0x21;
/// Number of the first queue pair; the others follow.
pub const QPN: u32 = 0x1234;
/// `wr_id` of a queue's first request: of receives, sends, and receives of a shared queue. The others follow.
pub const WR_IDS: [u64; 3] = [0x1000, 0x2000, 0x3000];
/// Queue pairs of a [mix](Kind::Mix).
pub const MIX: u32 = 8;

const HASH: u32 = 0x1bad_cafe;
const CHECKSUM: u32 = 0x1234;
const TIME: u32 = 0x3b9a_ca00;
/// `op_own` of a slot that is the device's.
const INVALID: u8 = 0xf0;
/// Data format of a title or a block, in its place in the last byte.
const COMPRESSED: u8 = 3 << 2;
/// Completions of a block of the enhanced layout.
const BLOCK: u32 = 7;

/// What the completions of a ring are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Received sends.
    Send,
    /// Received sends with immediate data.
    SendImm,
    /// Sends received from a shared queue.
    Srq,
    /// A requester's sends.
    Requester,
    /// Sends and receives of eight queue pairs, half of each with immediate data, in random order.
    Mix,
    /// Packets: no queue pair, a hash for each.
    Ethernet,
    /// Received sends, compressed in the basic layout in sessions of so many.
    Basic(Compress, u32),
    /// Received packets with their hash, compressed in the enhanced layout, seven in a block.
    Enhanced,
}

/// One completion, as its entry tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Number of the queue, from 0 on.
    pub queue: u32,
    /// A requester's.
    pub requester: bool,
    /// With immediate data, or for a requester: sent with it.
    pub imm: bool,
    /// Bytes received. A requester's entry has a number there as well, which means nothing.
    pub byte_cnt: u32,
    /// Place in the work queue.
    pub counter: u16,
}

/// A full ring.
#[derive(Clone, Debug)]
pub struct Image {
    kind: Kind,
    log: u32,
    cqe_size: usize,
    told: Vec<Told>,
    /// On even laps and on odd ones.
    laps: [Vec<u8>; 2],
    /// Slots that a lap writes.
    written: Vec<usize>,
}

impl Image {
    /// A ring of `2^log` slots of `cqe_size` bytes (64 or 128).
    pub fn new(kind: Kind, log: u32, cqe_size: usize) -> Self {
        let entries = 1u32 << log;
        let told = tell(kind, entries);
        let laps = [0, 1].map(|lap| Slots::new(kind, &told, lap).laid_out(cqe_size));
        let op_own = laps[0].chunks(cqe_size).map(|slot| slot.last().is_some_and(|b| b & 0xf0 != INVALID));
        let written = op_own.enumerate().filter_map(|(n, written)| written.then_some(n)).collect();
        Self { kind, log, cqe_size, told, laps, written }
    }

    /// What its completions are.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Slots, as a power of two.
    pub fn log(&self) -> u32 {
        self.log
    }

    /// Bytes of a slot.
    pub fn cqe_size(&self) -> usize {
        self.cqe_size
    }

    /// The completions, in order: one for each slot.
    pub fn told(&self) -> &[Told] {
        &self.told
    }

    /// The ring's bytes on this lap. In the enhanced layout the lap itself is in them, so it has to be asked for lap by lap.
    pub fn lap(&mut self, lap: u32) -> &[u8] {
        let [even, odd] = &mut self.laps;
        let image = if lap & 1 == 0 { even } else { odd };
        if self.kind == Kind::Enhanced {
            for at in self.written.iter().map(|n| (n + 1) * self.cqe_size - 2) {
                image.get_mut(at).into_iter().for_each(|byte| *byte = lap as u8);
            }
        }
        image
    }

    /// The sum of `wr_id`, `byte_len` and status over all completions of a lap. (A requester has no `byte_len`.)
    pub fn sum(&self) -> u64 {
        let wr_ids = if self.kind == Kind::Srq { WR_IDS[2] } else { WR_IDS[0] };
        let one = |told: &Told| match told.requester {
            true => WR_IDS[1] + u64::from(told.counter),
            false => wr_ids + u64::from(told.counter) + u64::from(told.byte_cnt),
        };
        self.told.iter().map(one).sum()
    }
}

/// The completions of one lap.
fn tell(kind: Kind, entries: u32) -> Vec<Told> {
    let plain = |n: u32| {
        let (requester, imm) = (kind == Kind::Requester, kind == Kind::SendImm);
        Told { queue: 0, requester, imm, byte_cnt: length(n, 64), counter: n as u16 }
    };
    match kind {
        Kind::Mix => mix(entries),
        Kind::Basic(_, session) => {
            let whole = entries - entries % session;
            (0..entries).map(|n| Told { byte_cnt: length(n, if n < whole { 60 } else { 64 }), ..plain(n) }).collect()
        }
        Kind::Enhanced => {
            let whole = 1 + (entries - 1) / BLOCK * BLOCK;
            let base = |n| if (1..whole).contains(&n) { 60 } else { 64 };
            (0..entries).map(|n| Told { byte_cnt: length(n, base(n)), ..plain(n) }).collect()
        }
        _ => (0..entries).map(plain).collect(),
    }
}

fn length(n: u32, least: u32) -> u32 {
    least + 37 * n % 1400
}

/// Who completes next is random (Marsaglia's xorshift), the place in each work queue goes on by one.
fn mix(entries: u32) -> Vec<Told> {
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = [[0u16; 2]; MIX as usize];
    let one = |n| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (queue, requester, imm) = (random as u32 % MIX, random >> 20 & 1 == 0, random >> 21 & 1 == 1);
        let counter = next.get_mut(queue as usize).map_or(0, |sides| {
            let side = &mut sides[usize::from(requester)];
            *side += 1;
            *side - 1
        });
        Told { queue, requester, imm, byte_cnt: length(n, 64), counter }
    };
    (0..entries).map(one).collect()
}

/// The entries of a lap, 64 bytes each.
struct Slots<'a> {
    kind: Kind,
    told: &'a [Told],
    lap: u8,
    slots: Vec<[u8; 64]>,
}

impl<'a> Slots<'a> {
    fn new(kind: Kind, told: &'a [Told], lap: u8) -> Self {
        let mut free = [0; 64];
        free[63] = INVALID;
        let slots = if let Kind::Basic(..) | Kind::Enhanced = kind { vec![free; told.len()] } else { Vec::new() };
        let mut this = Self { kind, told, lap, slots };
        match kind {
            Kind::Basic(format, session) => this.sessions(format, session as usize),
            Kind::Enhanced => this.blocks(),
            _ => this.slots = (0..told.len()).map(|n| this.full(n)).collect(),
        }
        this
    }

    /// As they lie in slots of this size: the entry is in the last 64 bytes.
    fn laid_out(self, cqe_size: usize) -> Vec<u8> {
        let before = vec![0; cqe_size - 64];
        self.slots.iter().flat_map(|slot| before.iter().chain(slot).copied()).collect()
    }

    /// The whole entry of completion `n`.
    fn full(&self, n: usize) -> [u8; 64] {
        let told = self.told[n];
        let ethernet = self.kind == Kind::Ethernet;
        let hash = match self.kind {
            Kind::Ethernet => HASH ^ n as u32,
            Kind::Basic(..) | Kind::Enhanced => HASH,
            _ => 0,
        };
        let (opcode, wqe_opcode) = match (told.requester, told.imm) {
            (true, imm) => (0, if imm { 0xb } else { 0xa }),
            (false, imm) => (if imm { 3 } else { 2 }, 0),
        };
        let imm = if told.imm && !told.requester { 0xabc0_0000 + n as u32 } else { 0 };
        let qpn = if ethernet { 0xff_ffff } else { QPN + told.queue };
        let mut words = [0u32; 16];
        (words[3], words[6], words[9], words[11]) = (hash, 0x5678, imm, told.byte_cnt);
        words[7] = if ethernet { 0x0616_0000 } else { 0x0628_0000 };
        words[8] = if ethernet { 0 } else { USER_INDEX + told.queue };
        words[13] = TIME + 13 * n as u32;
        words[14] = wqe_opcode << 24 | qpn;
        let lap = if self.kind == Kind::Enhanced { u32::from(self.lap) << 8 } else { 0 };
        words[15] = u32::from(told.counter) << 16 | lap | opcode << 4 | u32::from(self.lap & 1);
        let mut bytes = [0; 64];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// Sessions of the basic layout: a title, arrays of eight in the slot behind it and then in each eighth. What is left at the
    /// end is whole entries.
    fn sessions(&mut self, format: Compress, session: usize) {
        let count = self.told.len();
        for first in (0..count / session).map(|k| k * session) {
            for nth in (0..session).step_by(8) {
                let minis = (nth..session.min(nth + 8)).map(|i| {
                    let own = match format {
                        Compress::Hash => HASH ^ (first + i) as u32,
                        _ => (CHECKSUM + i as u32) << 16,
                    };
                    (own, self.told[first + i].byte_cnt)
                });
                let array = minis.collect::<Vec<_>>();
                pack(&mut self.slots[first + nth.max(1)], &array);
            }
            let mut title = self.full(first);
            title[44..48].copy_from_slice(&(session as u32).to_be_bytes());
            title[63] |= COMPRESSED;
            self.slots[first] = title;
        }
        for n in count - count % session..count {
            self.slots[n] = self.full(n);
        }
    }

    /// Blocks of the enhanced layout behind a whole entry, which is their title; whole entries at the end. A block has its lap, no
    /// owner.
    fn blocks(&mut self) {
        let (count, block) = (self.told.len(), BLOCK as usize);
        self.slots[0] = self.full(0);
        let mut n = 1;
        while n + block <= count {
            let minis = (n..n + block).map(|i| (HASH ^ i as u32, self.told[i].byte_cnt)).collect::<Vec<_>>();
            pack(&mut self.slots[n], &minis);
            self.slots[n][62] = self.lap;
            self.slots[n][63] = (BLOCK as u8 - 1) << 4 | COMPRESSED;
            n += block;
        }
        for n in n..count {
            self.slots[n] = self.full(n);
        }
    }
}

/// Compressed completions in one slot. The last byte of a slot that they do not fill says that it is free.
fn pack(slot: &mut [u8; 64], minis: &[(u32, u32)]) {
    for (to, (own, byte_cnt)) in slot.chunks_exact_mut(8).zip(minis) {
        let (first, second) = to.split_at_mut(4);
        first.copy_from_slice(&own.to_be_bytes());
        second.copy_from_slice(&byte_cnt.to_be_bytes());
    }
}
