//! Operations in any mix, over any keys and places, against memory that is plain vectors and copies.

use crate::connections::CQ;
use crate::one_sided::{CAS, FAA, READ, SEND, SEND_IMM, WRITE, WRITE_IMM};
use crate::qp::{Qp, QpWish};
use crate::raw::{get, store32};
use crate::rdma::{ATOMIC, Cq, CqWish, LR, LW, Mr, RR, RW, Rdma};
use crate::wqe::{Wqe, data, operands, remote};

/// A plain congruential generator: the same numbers each time.
pub struct Random(pub u32);

impl Random {
    pub fn byte(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 24) as u8
    }

    /// A number below `limit`, at most 2^24.
    pub fn below(&mut self, limit: usize) -> usize {
        let wide = u32::from_be_bytes([0, self.byte(), self.byte(), self.byte()]);
        wide as usize % limit
    }
}

const SIZE: usize = 9000;
const RIGHTS: [u64; 6] = [31, 31, LR | LW, LR, LW | RW | ATOMIC, LR | LW | RR];

/// A range of a region: (region, first byte, bytes).
type Range = (usize, usize, usize);

/// Registered memory beside what should be in it.
struct World {
    regions: Vec<Mr>,
    bytes: Vec<Vec<u8>>,
    random: Random,
}

/// A request, in the terms of the naive memory.
#[derive(Clone, Debug)]
struct Request {
    opcode: u8,
    list: Vec<Range>,
    there: (usize, usize),
    values: (u64, u64),
    /// The receive request that is posted for it.
    receive: Option<Range>,
}

impl World {
    fn new(rdma: &Rdma) -> Self {
        let region = |n: usize| rdma.register(SIZE, 1000 * n + n, RIGHTS[n]);
        let regions: Vec<Mr> = (0..RIGHTS.len()).map(region).collect();
        let mut random = Random(7);
        let bytes: Vec<Vec<u8>> = regions.iter().map(|_| (0..SIZE).map(|_| random.byte()).collect()).collect();
        for (region, bytes) in regions.iter().zip(&bytes) {
            region.fill(0, bytes);
        }
        Self { regions, bytes, random }
    }

    /// A range that mostly lies inside its region.
    fn range(&mut self, most: usize) -> Range {
        let (region, len) = (self.random.below(RIGHTS.len()), 1 + self.random.below(most));
        let reach = if self.random.below(20) == 0 { SIZE + 8 } else { SIZE - len + 1 };
        (region, self.random.below(reach), len)
    }

    fn request(&mut self) -> Request {
        let opcode = [SEND, SEND_IMM, WRITE, WRITE_IMM, READ, CAS, FAA][self.random.below(7)];
        let atomic = matches!(opcode, CAS | FAA);
        let list = if atomic {
            let (region, at, _) = self.range(8);
            vec![(region, at.min(SIZE - 8), 8)]
        } else {
            (0..self.random.below(4)).map(|_| self.range(2500)).collect()
        };
        let (region, at, _) = self.range(2500);
        // Mostly aligned, and mostly equal to what is there.
        let at = if atomic && self.random.below(8) > 0 { self.aligned(region, at) } else { at };
        let old = self.bytes[region].get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()));
        let compare = if self.random.below(4) == 0 { 1 } else { old };
        let values = (u64::from(self.random.byte()) << 50 | 3, if opcode == CAS { compare } else { 0 });
        let receive = matches!(opcode, SEND | SEND_IMM | WRITE_IMM).then(|| self.range(8000));
        Request { opcode, list, there: (region, at), values, receive }
    }

    /// A place near byte `at` whose virtual address is a multiple of 8.
    fn aligned(&self, region: usize, at: usize) -> usize {
        let va = self.regions[region].va + at as u64;
        at + (va.next_multiple_of(8) - va) as usize
    }

    fn allows(&self, (region, at, len): Range, right: u64) -> bool {
        RIGHTS[region] & right != 0 && at + len <= SIZE
    }

    fn gather(&self, list: &[Range]) -> Option<Vec<u8>> {
        let fine = list.iter().all(|range| self.allows(*range, LR));
        fine.then(|| list.iter().flat_map(|(region, at, len)| self.bytes[*region][*at..at + len].to_vec()).collect())
    }

    /// Copies along a list; false, and nothing is copied, when a range that is needed is not allowed.
    fn place(&mut self, list: &[Range], payload: &[u8]) -> bool {
        let mut rest = payload.len();
        let mut parts = Vec::new();
        for (region, at, len) in list {
            let take = rest.min(*len);
            rest -= take;
            if take > 0 {
                parts.push((*region, *at, take));
            }
        }
        let fine = parts.iter().all(|part| self.allows(*part, LW));
        let mut from = payload;
        for (region, at, take) in parts.into_iter().filter(|_| fine) {
            self.bytes[region][at..at + take].copy_from_slice(&from[..take]);
            from = &from[take..];
        }
        fine
    }

    /// Does a request on the naive memory, and returns the syndrome that it completes with.
    fn carry_out(&mut self, request: &Request) -> u8 {
        let (region, at) = request.there;
        let total = request.list.iter().map(|range| range.2).sum::<usize>();
        let reaches = |world: &Self, len, right| len == 0 || world.allows((region, at, len), right);
        match request.opcode {
            READ if !reaches(self, total, RR) => 0x13,
            READ => {
                let payload = if total == 0 { Vec::new() } else { self.bytes[region][at..at + total].to_vec() };
                if self.place(&request.list, &payload) { 0 } else { 0x04 }
            }
            CAS | FAA if !reaches(self, 8, ATOMIC) => 0x13,
            CAS | FAA if self.aligned(region, at) != at => 0x12,
            CAS | FAA => self.atomic(request),
            _ => match self.gather(&request.list) {
                None => 0x04,
                Some(payload) => self.deliver(request, &payload),
            },
        }
    }

    fn atomic(&mut self, request: &Request) -> u8 {
        let (region, at) = request.there;
        let old = u64::from_le_bytes(self.bytes[region][at..at + 8].try_into().unwrap());
        let (first, compare) = request.values;
        let new = match request.opcode {
            CAS if old == compare => first,
            CAS => old,
            _ => old.wrapping_add(first),
        };
        self.bytes[region][at..at + 8].copy_from_slice(&new.to_le_bytes());
        if self.place(&request.list, &old.to_le_bytes()) { 0 } else { 0x04 }
    }

    fn deliver(&mut self, request: &Request, payload: &[u8]) -> u8 {
        let (region, at) = request.there;
        if matches!(request.opcode, WRITE | WRITE_IMM) {
            if !payload.is_empty() && !self.allows((region, at, payload.len()), RW) {
                return 0x13;
            }
            // A write of nothing may name any place.
            if !payload.is_empty() {
                self.bytes[region][at..at + payload.len()].copy_from_slice(payload);
            }
            return 0;
        }
        let Some(buffer) = request.receive else { return 0x16 };
        if payload.len() > buffer.2 {
            0x12
        } else if self.place(&[buffer], payload) {
            0
        } else {
            0x14
        }
    }

    fn segment(&self, (region, at, len): Range) -> (u32, u64, u32) {
        self.regions[region].seg(at as u64, len as u32)
    }

    fn segments(&self, request: &Request) -> Vec<u8> {
        let mut raw = Vec::new();
        if !matches!(request.opcode, SEND | SEND_IMM) {
            raw.extend_from_slice(&remote(self.regions[request.there.0].there(request.there.1 as u64)));
        }
        if matches!(request.opcode, CAS | FAA) {
            raw.extend_from_slice(&operands(request.values.0, request.values.1));
        }
        raw.extend(request.list.iter().flat_map(|range| data(self.segment(*range))));
        raw
    }

    fn check(&self, what: &str) {
        for (n, (region, bytes)) in self.regions.iter().zip(&self.bytes).enumerate() {
            assert!(region.bytes(0, SIZE) == *bytes, "{what}: region {n}");
        }
    }
}

/// Back to a fresh connection, with empty completion queues.
fn reconnect(rdma: &Rdma, qps: [&mut Qp; 2], cqs: [&mut Cq; 2]) {
    let [a, b] = qps;
    for qp in [&mut *a, &mut *b] {
        rdma.leave(0x50a, qp);
        (qp.sq, qp.rq) = (0, 0);
        store32(&qp.record, 0, 0);
        store32(&qp.record, 4, 0);
    }
    for cq in cqs {
        while rdma.take(cq).is_some() {}
        store32(&cq.record, 0, cq.ci & 0xff_ffff);
    }
    rdma.connect(a, b);
}

#[test]
fn any_mix_of_operations_leaves_memory_as_plain_copies_do() {
    let mut rdma = Rdma::up();
    let cq = CqWish { log_size: 6, ..CQ };
    let (mut cq_a, mut cq_b) = (rdma.cq(cq), rdma.cq(cq));
    let (mut a, mut b) = rdma.pair(QpWish::default(), &cq_a, &cq_b);
    let mut world = World::new(&rdma);
    let mut seen = std::collections::BTreeMap::new();
    for round in 0..2500 {
        // One doorbell for all; each waits for what is before it.
        let batch: Vec<Request> = (0..1 + world.random.below(4)).map(|_| world.request()).collect();
        let mut last = 0;
        for request in &batch {
            if let Some(buffer) = request.receive {
                let buffer = world.segment(buffer);
                rdma.recv(&mut b, &[buffer]);
            }
            let segments = world.segments(request);
            let imm = u32::from(matches!(request.opcode, SEND_IMM | WRITE_IMM));
            let wqe = Wqe { opcode: request.opcode, flags: 2 << 5 | 8, imm, segments: &segments };
            last = rdma.write_send(&mut a, wqe);
        }
        rdma.ring(&a, last);
        let mut broken = false;
        for request in &batch {
            let expected = if broken { 5 } else { world.carry_out(request) };
            broken |= expected != 0;
            let cqe = rdma.poll(&mut cq_a);
            let syndrome = if cqe[63] >> 4 == 0 { 0 } else { cqe[55] };
            assert_eq!((syndrome, cqe[56]), (expected, request.opcode), "round {round}: {request:?}");
            *seen.entry((request.opcode, expected)).or_insert(0) += 1;
            if !broken && request.receive.is_some() {
                let got = rdma.poll(&mut cq_b);
                assert_eq!(get(&got, 352, 32) as usize, request.list.iter().map(|range| range.2).sum::<usize>());
            }
        }
        if broken {
            world.check(&format!("round {round}"));
            reconnect(&rdma, [&mut a, &mut b], [&mut cq_a, &mut cq_b]);
            rdma.drain_async_events();
        }
    }
    world.check("at the end");
    for opcode in [SEND, SEND_IMM, WRITE, WRITE_IMM, READ, CAS, FAA] {
        assert!(seen.get(&(opcode, 0)).is_some_and(|count| *count > 50), "{opcode:#x}: {seen:?}");
        assert!(seen.iter().any(|((code, syndrome), _)| *code == opcode && !matches!(syndrome, 0 | 5)), "{seen:?}");
    }
    rdma.assert_clean();
}
