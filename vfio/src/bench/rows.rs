//! What is measured: the rows of the table, each with its floor, its peers and its marks.

use mlx5::{Cpu, Error};

use super::calls::{Call, Calls};
use super::drain::{Drain, Empty, Reader};
use super::peers::{self, Peers};
use super::rings::{Image, Kind};
use super::subject::{Byte63, Floor, State, Subject};
use crate::options::{Compress, word};

/// How many times the floor a row may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Marks {
    /// What it should come near.
    pub aim: f64,
    /// What it must meet.
    pub must: f64,
    /// It must meet the aim as well.
    pub both: bool,
}

const fn aim(aim: f64, must: f64) -> Option<Marks> {
    Some(Marks { aim, must, both: false })
}

const fn both(aim: f64, must: f64) -> Option<Marks> {
    Some(Marks { aim, must, both: true })
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// What is done.
    pub work: Work,
    /// Slots of the ring, as a power of two; 0 without one.
    pub log: u32,
    /// Where the ring is when a run begins.
    pub state: State,
    /// Who else was measured.
    pub peers: Peers,
    /// Marks, if it has some.
    pub marks: Option<Marks>,
}

/// What a row does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// The floor.
    Floor,
    /// Reads byte 63 of one entry again and again.
    Byte63,
    /// Drains completions of a kind, in entries of so many bytes.
    Drain(Kind, usize, Reader),
    /// Polls an empty CQ.
    Empty,
    /// Calls something that does not poll.
    Call(Call),
}

impl Row {
    /// In words, without the ring: `poll_cq 16, received sends`.
    pub fn name(&self) -> String {
        match self.work {
            Work::Floor => "floor: byte 63, sum of byte_cnt".into(),
            Work::Byte63 => "reading byte 63".into(),
            Work::Empty => "empty poll_cq".into(),
            Work::Call(call) => call.name(),
            Work::Drain(kind, _, reader) => format!("{}, {}", reader.name(), kind.name()),
        }
    }

    /// Slots of the ring, if there is one.
    pub fn entries(&self) -> Option<u32> {
        (self.log != 0).then_some(1 << self.log)
    }

    /// Bytes of an entry.
    pub fn cqe_size(&self) -> usize {
        if let Work::Drain(_, cqe_size, _) = self.work { cqe_size } else { 64 }
    }

    /// What is timed for it.
    ///
    /// # Errors
    /// What the facade refuses.
    pub fn subject(&self, cpu: Cpu) -> Result<Box<dyn Subject>, Error> {
        Ok(match self.work {
            Work::Floor => Box::new(Floor::new(self.log, self.state)),
            Work::Byte63 => Box::new(Byte63::new(self.log)),
            Work::Empty => Box::new(Empty::new(self.log, cpu)?),
            Work::Call(call) => Box::new(Calls::new(call, cpu)?),
            Work::Drain(kind, cqe_size, reader) => {
                Box::new(Drain::new(Image::new(kind, self.log, cqe_size), self.state, reader, cpu)?)
            }
        })
    }

    /// Whether `floor` is this row's floor.
    fn has_floor(&self, floor: &Self) -> bool {
        match self.work {
            Work::Empty | Work::Byte63 => floor.work == Work::Byte63,
            Work::Call(_) => false,
            _ => floor.work == Work::Floor && (floor.log, floor.state) == (self.log, self.state),
        }
    }

    /// The place of this row's floor among others.
    pub fn floor(&self, rows: &[Self]) -> Option<usize> {
        rows.iter().position(|row| self.has_floor(row))
    }

    /// Whether it is a floor itself.
    pub fn is_floor(&self) -> bool {
        matches!(self.work, Work::Floor | Work::Byte63)
    }
}

impl Reader {
    /// In words: `poll_cq 16`.
    pub fn name(self) -> String {
        match self {
            Self::Poll(batch) => format!("poll_cq {batch}"),
            Self::Iterator(batch) => format!("iterator {batch}"),
            Self::Packets => "poll_packets 64".into(),
        }
    }
}

impl Kind {
    /// In words: `received sends`.
    pub fn name(self) -> String {
        match self {
            Self::Send => "received sends".into(),
            Self::SendImm => "with immediate data".into(),
            Self::Srq => "from a shared queue".into(),
            Self::Requester => "sends".into(),
            Self::Mix => "mix of 8 QPs".into(),
            Self::Ethernet => "Ethernet".into(),
            Self::Basic(of, session) => format!("{}, sessions of {session}", word(of)),
            Self::Enhanced => "enhanced, hash, 7".into(),
        }
    }
}

/// A row of a hot ring of 256 entries of 64 bytes.
const fn hot(kind: Kind, reader: Reader, peers: Peers, marks: Option<Marks>) -> Row {
    Row { work: Work::Drain(kind, 64, reader), log: 8, state: State::Hot, peers, marks }
}

const fn floor(log: u32, state: State) -> Row {
    Row { work: Work::Floor, log, state, peers: peers::NONE, marks: None }
}

impl Row {
    const fn large(self) -> Self {
        Self { log: 12, ..self }
    }

    const fn bytes_128(self) -> Self {
        match self.work {
            Work::Drain(kind, _, reader) => Self { work: Work::Drain(kind, 128, reader), ..self },
            _ => self,
        }
    }

    const fn of(self, state: State) -> Self {
        Self { state, ..self }
    }
}

/// All rows, or those of a first look: floors and what has marks.
pub fn rows(quick: bool) -> Vec<Row> {
    let mut rows = vec![Row { work: Work::Byte63, log: 8, state: State::Hot, peers: peers::NONE, marks: None }];
    rows.extend(
        [8, 12].into_iter().flat_map(|log| [State::Hot, State::L3, State::Cold].map(|state| floor(log, state))),
    );
    rows.extend(plain());
    rows.extend(compressed());
    rows.extend(colder());
    rows.push(Row { work: Work::Empty, log: 8, state: State::Hot, peers: peers::EMPTY, marks: aim(3.0, 5.0) });
    rows.extend(calls());
    if quick {
        let needed: Vec<_> = rows.iter().filter(|row| row.marks.is_some()).copied().collect();
        rows.retain(|row| row.marks.is_some() || needed.iter().any(|needed| needed.has_floor(row)));
    }
    rows
}

fn plain() -> Vec<Row> {
    use Kind::{Ethernet, Mix, Requester, Send, SendImm, Srq};
    use Reader::{Iterator, Packets, Poll};
    vec![
        hot(Send, Poll(1), peers::POLL_1, aim(5.0, 6.5)),
        hot(Send, Poll(16), peers::POLL_16, both(2.2, 3.0)),
        hot(Send, Poll(64), peers::POLL_64, both(2.0, 2.7)),
        hot(Send, Iterator(64), peers::ITERATOR_64, aim(2.1, 2.6)),
        hot(Send, Poll(1), peers::POLL_1_4096, None).large(),
        hot(Send, Poll(16), peers::POLL_16_4096, None).large(),
        hot(Send, Poll(64), peers::POLL_64_4096, None).large(),
        hot(Send, Iterator(64), peers::ITERATOR_64_4096, None).large(),
        hot(Requester, Poll(16), peers::REQUESTER, aim(2.5, 3.5)),
        hot(Requester, Iterator(64), peers::ITERATOR_REQUESTER, aim(2.1, 2.5)),
        hot(SendImm, Poll(16), peers::IMM, None),
        hot(SendImm, Iterator(64), peers::ITERATOR_IMM, None),
        hot(Srq, Poll(16), peers::SRQ, both(2.6, 3.5)),
        hot(Srq, Iterator(64), peers::ITERATOR_SRQ, None),
        hot(Send, Poll(16), peers::BYTES_128, both(2.6, 3.3)).bytes_128(),
        hot(Send, Iterator(64), peers::ITERATOR_128, None).bytes_128(),
        hot(Requester, Poll(16), peers::REQUESTER_128, None).bytes_128(),
        hot(Mix, Poll(16), peers::MIX, None),
        hot(Mix, Poll(16), peers::MIX_4096, both(4.5, 6.0)).large(),
        hot(Mix, Iterator(64), peers::ITERATOR_MIX_4096, None).large(),
        hot(Ethernet, Packets, peers::ETHERNET, aim(2.0, 3.0)),
        hot(Ethernet, Poll(64), peers::ETHERNET, None),
        hot(Ethernet, Iterator(64), peers::ETHERNET, None),
    ]
}

fn compressed() -> Vec<Row> {
    use Compress::{Csum, CsumStridx, FtagStridx, Hash, L34hStridx};
    let basic = |format, session, peers, marks| hot(Kind::Basic(format, session), Reader::Poll(64), peers, marks);
    vec![
        basic(Hash, 7, peers::HASH_7, None),
        basic(Hash, 8, peers::HASH_8, both(1.6, 2.2)),
        basic(Hash, 16, peers::HASH_16, None),
        basic(Hash, 32, peers::HASH_32, None),
        basic(Hash, 63, peers::HASH_63, both(1.4, 1.6)),
        basic(Csum, 8, peers::CSUM_8, None),
        basic(Csum, 63, peers::CSUM_63, None),
        basic(CsumStridx, 8, peers::NONE, None),
        basic(CsumStridx, 63, peers::NONE, None),
        basic(FtagStridx, 8, peers::NONE, None),
        basic(FtagStridx, 63, peers::NONE, None),
        basic(L34hStridx, 8, peers::NONE, None),
        basic(L34hStridx, 63, peers::NONE, None),
        hot(Kind::Basic(Hash, 8), Reader::Iterator(64), peers::HASH_8, None),
        hot(Kind::Basic(Hash, 63), Reader::Iterator(64), peers::HASH_63, None),
        basic(Hash, 63, peers::NONE, None).large(),
        hot(Kind::Enhanced, Reader::Poll(64), peers::ENHANCED, both(1.3, 1.7)),
        hot(Kind::Enhanced, Reader::Iterator(64), peers::ENHANCED, None),
        hot(Kind::Basic(Hash, 8), Reader::Packets, peers::HASH_8, None),
        hot(Kind::Basic(Hash, 63), Reader::Packets, peers::HASH_63, None),
        hot(Kind::Enhanced, Reader::Packets, peers::ENHANCED, None),
        hot(Kind::Enhanced, Reader::Poll(64), peers::NONE, None).large(),
    ]
}

/// Rings that are not in the nearest caches.
fn colder() -> Vec<Row> {
    use Reader::{Iterator, Poll};
    use State::{Cold, L3};
    let send = |reader, peers, marks| hot(Kind::Send, reader, peers, marks);
    vec![
        send(Poll(16), peers::L3_16, None).of(L3),
        send(Iterator(64), peers::L3_ITERATOR, None).of(L3),
        send(Poll(16), peers::L3_16_4096, None).large().of(L3),
        send(Poll(16), peers::COLD_16, None).of(Cold),
        send(Poll(64), peers::COLD_16, both(1.15, 1.4)).of(Cold),
        send(Iterator(64), peers::COLD_ITERATOR, None).of(Cold),
        send(Poll(64), peers::COLD_16_4096, None).large().of(Cold),
    ]
}

fn calls() -> Vec<Row> {
    use Call::{Arm, Command, PostRecv, PostSend};
    let call = |call| Row { work: Work::Call(call), log: 0, state: State::Hot, peers: peers::NONE, marks: None };
    [PostSend(1), PostSend(16), PostRecv(1), PostRecv(16), Arm, Command].map(call).into()
}
