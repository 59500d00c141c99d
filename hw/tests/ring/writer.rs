//! A device that compresses: its own idea, in bytes, of where a session lies and what each of its completions is.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU32;

use mlx5_hw::mini_cqe::MiniFormat;

use super::device::poke;

pub type Entry = [u8; 64];

/// Data format of a title or block, in its place in the last byte.
pub const COMPRESSED: u8 = 3 << 2;
/// Opcodes of completions that a session can have: a requester's and four responders'.
pub const TITLES: std::ops::RangeInclusive<u8> = 0..=4;

/// What the reader must make of one completion.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// The whole entry.
    pub bytes: Entry,
    /// It came out of a session.
    pub compressed: bool,
    pub hash: Option<u32>,
    pub checksum: Option<u16>,
    pub stride: Option<u16>,
    /// Slots that it takes.
    pub slots: u32,
}

impl Expected {
    pub fn full(bytes: Entry, slots: u32) -> Self {
        let hash = u32::from_be_bytes(bytes[12..16].try_into().unwrap());
        let checksum = u16::from_be_bytes([bytes[20], bytes[21]]);
        Self { bytes, compressed: false, hash: Some(hash), checksum: Some(checksum), stride: None, slots }
    }

    /// The completion that `mini` stands for: the title's bytes, but for what the table of forms says.
    pub fn of_mini(title: Entry, mini: [u8; 8], format: MiniFormat, nth: u16, owner: u8) -> Self {
        let mut bytes = title;
        let counter = u16::from_be_bytes([title[60], title[61]]).wrapping_add(nth);
        bytes[12..16].fill(0);
        bytes[20..22].fill(0);
        bytes[44..48].copy_from_slice(&mini[4..8]);
        bytes[60..62].copy_from_slice(&counter.to_be_bytes());
        bytes[63] = title[63] & 0xf2 | owner;
        let (first, second) = ([mini[0], mini[1]], [mini[2], mini[3]]);
        let (mut hash, mut checksum, mut stride) = (None, None, Some(u16::from_be_bytes(second)));
        match format {
            _ if title[63] >> 4 == 0 => {
                bytes[60..62].copy_from_slice(&first);
                bytes[56] = mini[2];
                stride = None;
            }
            MiniFormat::Hash => {
                bytes[12..16].copy_from_slice(&mini[0..4]);
                hash = Some(u32::from_be_bytes(mini[0..4].try_into().unwrap()));
                stride = None;
            }
            MiniFormat::Csum | MiniFormat::CsumStridx => {
                bytes[20..22].copy_from_slice(&first);
                checksum = Some(u16::from_be_bytes(first));
                stride = stride.filter(|_| format == MiniFormat::CsumStridx);
            }
            MiniFormat::FtagStridx => {
                bytes[44] = 0;
                bytes[57..60].copy_from_slice(&[mini[4], mini[0], mini[1]]);
            }
            MiniFormat::L34hStridx => bytes[29] = mini[0] & 0xfc | title[29] & 3,
        }
        Self { bytes, compressed: true, hash, checksum, stride, slots: 1 }
    }
}

/// Random bytes, the same for the same seed.
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn mini(&mut self) -> [u8; 8] {
        self.next().to_ne_bytes()
    }

    pub fn minis(&mut self, n: u32) -> Vec<[u8; 8]> {
        (0..n).map(|_| self.mini()).collect()
    }

    /// An entry of this opcode without data.
    pub fn entry(&mut self, opcode: u8) -> Entry {
        let mut entry: Vec<u8> = self.minis(8).concat();
        entry[63] = opcode << 4 | entry[63] & 2;
        entry.try_into().unwrap()
    }
}

/// Writes into a ring; what it wrote and nobody has read yet.
pub struct Writer<'m> {
    mem: &'m [AtomicU32],
    entries: u64,
    size: usize,
    pub enhanced: bool,
    format: MiniFormat,
    /// Slots written or left out so far.
    pub produced: u64,
    /// Slots that the consumer index has given back.
    pub given_back: u64,
    pub waiting: VecDeque<Expected>,
    /// Enhanced: the title, and completions since it.
    title: Option<(Entry, u16)>,
}

impl<'m> Writer<'m> {
    pub fn new(mem: &'m [AtomicU32], size: usize, enhanced: bool, format: MiniFormat, at: u64) -> Self {
        let entries = (4 * mem.len() / size) as u64;
        let waiting = VecDeque::new();
        Self { mem, entries, size, enhanced, format, produced: at, given_back: at, waiting, title: None }
    }

    /// Slots that may be written.
    pub fn room(&self) -> u64 {
        self.entries - (self.produced - self.given_back)
    }

    pub fn lap(&self, n: u64) -> u64 {
        n / self.entries
    }

    fn owner(&self, n: u64) -> u8 {
        (self.lap(n) % 2) as u8
    }

    /// Bytes of the descriptor in slot `n`, the last one last. The half before it in a large entry is noise.
    fn write(&self, n: u64, bytes: &[u8]) {
        let at = (n % self.entries) as usize * self.size;
        for i in 0..self.size - 64 {
            poke(self.mem, at + i, 0x5a ^ i as u8);
        }
        for (i, byte) in bytes.iter().enumerate() {
            poke(self.mem, at + self.size - 64 + i, *byte);
        }
    }

    /// The entry as it is written now: with the mark of this lap.
    fn marked(&self, mut entry: Entry) -> Entry {
        entry[63] = entry[63] & 0xfe | self.owner(self.produced);
        if self.enhanced {
            entry[62] = self.lap(self.produced) as u8;
        }
        entry
    }

    /// What waits is rewritten in full, each in its slot and valid in its lap.
    pub fn expanded(&mut self) {
        let mut at = self.produced - self.slots_waiting();
        for e in &mut self.waiting {
            if e.compressed {
                e.bytes[62] = if self.enhanced { (at / self.entries) as u8 } else { e.bytes[62] };
                *e = Expected::full(e.bytes, 1);
            }
            at += u64::from(e.slots);
        }
    }

    /// Slots of what waits.
    pub fn slots_waiting(&self) -> u64 {
        self.waiting.iter().map(|e| u64::from(e.slots)).sum()
    }

    /// The device goes on in `mem`, which `last` says in the old ring. What waits is then to be found in full, one index further
    /// up. What claimed to start a session of the basic layout does so no more.
    pub fn resized(&mut self, mem: &'m [AtomicU32], last: Entry) {
        self.expanded();
        let mut at = self.produced - self.slots_waiting() + 1;
        self.write(self.produced, &self.marked(last));
        self.produced += 1;
        self.given_back = at;
        self.mem = mem;
        self.entries = (4 * mem.len() / self.size) as u64;
        for e in &mut self.waiting {
            let lap = at / self.entries;
            let mut bytes = e.bytes;
            bytes[63] = bytes[63] & 0xfe | (lap % 2) as u8;
            if self.enhanced {
                bytes[62] = lap as u8;
            } else if bytes[63] & COMPRESSED == COMPRESSED {
                bytes[63] = bytes[63] & 0x0f | 13 << 4;
            }
            *e = Expected::full(bytes, e.slots);
            at += u64::from(e.slots);
        }
    }

    /// An entry of any kind that stands for itself and takes `slots`.
    pub fn itself(&mut self, entry: Entry, slots: u32) {
        let entry = self.marked(entry);
        self.write(self.produced, &entry);
        self.waiting.push_back(Expected::full(entry, slots));
        self.produced += u64::from(slots);
    }

    /// A full entry. Without an error it is the title of the enhanced blocks behind it.
    pub fn full(&mut self, entry: Entry) {
        if TITLES.contains(&(entry[63] >> 4)) {
            self.title = Some((self.marked(entry), 0));
        }
        self.itself(entry, 1);
    }

    /// A session of the basic layout: minis first, the title's last byte last.
    pub fn session(&mut self, title: Entry, minis: &[[u8; 8]]) {
        let first = self.produced;
        for (k, array) in minis.chunks(8).enumerate() {
            self.write(first + if k == 0 { 1 } else { 8 * k as u64 }, &array.concat());
        }
        let mut title = self.marked(title);
        title[44..48].copy_from_slice(&(minis.len() as u32).to_be_bytes());
        title[63] |= COMPRESSED;
        self.write(first, &title);
        for (i, mini) in minis.iter().enumerate() {
            let owner = self.owner(first + i as u64);
            self.waiting.push_back(Expected::of_mini(title, *mini, self.format, i as u16, owner));
        }
        self.produced += minis.len() as u64;
    }

    /// A block of the enhanced layout.
    pub fn block(&mut self, minis: &[[u8; 8]]) {
        let first = self.produced;
        let mut block = [0xc3; 64];
        for (i, mini) in minis.iter().enumerate() {
            block[8 * i..8 * i + 8].copy_from_slice(mini);
        }
        block[63] = (minis.len() as u8 - 1) << 4 | COMPRESSED;
        let Some((title, since)) = &mut self.title else { return self.itself(block, minis.len() as u32) };
        let (title, before) = (*title, *since);
        *since = before.wrapping_add(minis.len() as u16);
        self.write(first, &self.marked(block));
        for (i, mini) in minis.iter().enumerate() {
            let owner = self.owner(first + i as u64);
            let nth = before.wrapping_add(i as u16 + 1);
            let mut expected = Expected::of_mini(title, *mini, self.format, nth, owner);
            // The title's lap, whichever that was: no completion's own.
            expected.bytes[62] = 0;
            self.waiting.push_back(expected);
        }
        self.produced += minis.len() as u64;
    }
}
