//! Contexts of queues and keys as raw bytes, on top of the driver.

use crate::driver::{Driver, Refused, put, store};

/// What an event queue shall be.
pub struct EqWish {
    pub log_size: u32,
    pub mask: u64,
    pub vector: u32,
}

impl Default for EqWish {
    fn default() -> Self {
        Self { log_size: 4, mask: 0, vector: 0 }
    }
}

/// A queue that was created: its number and the device address of its memory.
#[derive(Clone, Copy)]
pub struct Queue {
    pub number: u32,
    pub ring: u64,
}

impl Driver {
    /// Input of CREATE_EQ behind the first 8 bytes: context at 8, event mask at 0x50, pages at 0x108.
    pub fn eq_body(&self, wish: &EqWish, ring: u64, pages: usize) -> Vec<u8> {
        let mut body = vec![0; 0x108 + 8 * pages];
        put(&mut body, (8 + 0xc) * 8 + 3, 5, wish.log_size.into());
        put(&mut body, (8 + 0xd) * 8, 24, self.uar.into());
        put(&mut body, (8 + 0x16) * 8 + 4, 12, wish.vector.into());
        put(&mut body, 0x50 * 8, 64, wish.mask);
        for i in 0..pages {
            put(&mut body, (0x108 + 8 * i) * 8, 64, ring + 4096 * i as u64);
        }
        body
    }

    /// Memory for an event queue, owner bits 1.
    pub fn eq_ring(&mut self, log_size: u32) -> u64 {
        let ring = self.alloc((64 << log_size).max(4096));
        for i in 0..1 << log_size {
            store(self.memory_at(ring), 64 * i + 0x3f, &[1]);
        }
        ring
    }

    pub fn eq(&mut self, wish: EqWish) -> Result<Queue, Refused> {
        let ring = self.eq_ring(wish.log_size);
        let pages = (64_usize << wish.log_size).div_ceil(4096);
        let out = self.run(0x301, 0, &self.eq_body(&wish, ring, pages), 16)?;
        Ok(Queue { number: out[0xb].into(), ring })
    }

    /// The entry at position `at` of an event queue of 2^`log_size` entries, if the device has written it.
    pub fn eqe(&self, eq: Queue, log_size: u32, at: u32) -> Option<Vec<u8>> {
        let index = (at & ((1 << log_size) - 1)) as usize;
        let entry = crate::driver::load(self.memory_at(eq.ring), 64 * index, 64);
        (u32::from(entry[0x3f] & 1) == (at >> log_size) & 1).then_some(entry)
    }

    pub fn arm_eq(&self, eq: Queue, consumer: u32) {
        self.write(self.uar as usize * 4096 + 0x40, eq.number << 24 | consumer);
    }

    /// Input of CREATE_CQ behind the first 8 bytes.
    pub fn cq_body(&self, eqn: u32, log_size: u32, ring: u64, record: u64, pages: usize) -> Vec<u8> {
        let mut body = vec![0; 0x108 + 8 * pages];
        put(&mut body, (8 + 0xc) * 8 + 3, 5, log_size.into());
        put(&mut body, (8 + 0xd) * 8, 24, self.uar.into());
        put(&mut body, (8 + 0x17) * 8, 8, eqn.into());
        put(&mut body, (8 + 0x38) * 8, 64, record);
        for i in 0..pages {
            put(&mut body, (0x108 + 8 * i) * 8, 64, ring + 4096 * i as u64);
        }
        body
    }

    /// Memory for a completion queue of 64-byte entries, opcode 0xf.
    pub fn cq_ring(&mut self, log_size: u32) -> u64 {
        let ring = self.alloc((64 << log_size).max(4096));
        for i in 0..1 << log_size {
            store(self.memory_at(ring), 64 * i + 0x3f, &[0xf0]);
        }
        ring
    }

    pub fn cq(&mut self, eqn: u32, log_size: u32) -> Result<Queue, Refused> {
        let (ring, record) = (self.cq_ring(log_size), self.alloc(64));
        let pages = (64_usize << log_size).div_ceil(4096);
        let number = self.create(0x400, &self.cq_body(eqn, log_size, ring, record, pages))?;
        Ok(Queue { number, ring })
    }

    /// A create command; the number at byte 9 of its output.
    pub fn create(&self, opcode: u16, body: &[u8]) -> Result<u32, Refused> {
        self.run(opcode, 0, body, 16).map(|out| crate::driver::get(&out, 72, 24) as u32)
    }

    /// Input of CREATE_QP behind the first 8 bytes: context at 0x10, one page at 0x108. RC, 4 receives of 16 bytes, 2 send
    /// blocks.
    pub fn qp_body(&self, pd: u32, cqn: u32, ring: u64, record: u64) -> Vec<u8> {
        let mut body = vec![0; 0x110];
        let at = 0x10 * 8;
        put(&mut body, at + 2 * 8 + 3, 2, 3); // pm_state: migrated
        put(&mut body, at + 0x5 * 8, 24, pd.into());
        put(&mut body, at + 0x9 * 8 + 1, 4, 2); // log_rq_size
        put(&mut body, at + 0xa * 8 + 1, 4, 1); // log_sq_size
        put(&mut body, at + 0xd * 8, 24, self.uar.into());
        put(&mut body, at + 0x11 * 8, 24, 7); // user_index
        put(&mut body, at + 0x7d * 8, 24, cqn.into());
        put(&mut body, at + 0x9d * 8, 24, cqn.into());
        put(&mut body, at + 0xa0 * 8, 64, record);
        put(&mut body, 0x108 * 8, 64, ring);
        body
    }

    pub fn qp(&mut self, pd: u32, cqn: u32) -> Result<Queue, Refused> {
        let (ring, record) = (self.alloc(4096), self.alloc(64));
        let number = self.create(0x500, &self.qp_body(pd, cqn, ring, record))?;
        Ok(Queue { number, ring })
    }

    /// A transition with a context: what `fill` puts into it.
    pub fn transition(&self, opcode: u16, qpn: u32, fill: impl Fn(&mut [u8])) -> Result<(), Refused> {
        let mut body = vec![0; 0x108];
        put(&mut body, 0, 32, qpn.into());
        fill(&mut body[0x10..0xf8]);
        self.run(opcode, 0, &body, 16).map(|_| ())
    }

    /// State of a queue pair, by QUERY_QP.
    pub fn qp_state(&self, qpn: u32) -> u64 {
        let mut body = [0; 8];
        put(&mut body, 0, 32, qpn.into());
        crate::driver::get(&self.run(0x50b, 0, &body, 0x110).unwrap(), 0x18 * 8, 4)
    }

    /// Input of CREATE_MKEY behind the first 8 bytes, for one page that starts at `page`; MTT mode.
    pub fn mkey_body(&self, pd: u32, page: u64, len: u64) -> Vec<u8> {
        let mut body = vec![0; 0x108 + 16];
        put(&mut body, (8 + 2) * 8 + 4, 4, 0b1101); // lw, lr, mode 1
        put(&mut body, (8 + 4) * 8, 24, 0xff_ffff); // any QP
        put(&mut body, (8 + 0xd) * 8, 24, pd.into());
        put(&mut body, (8 + 0x10) * 8, 64, page);
        put(&mut body, (8 + 0x18) * 8, 64, len);
        put(&mut body, (8 + 0x34) * 8, 32, 1); // translations_octword_size
        put(&mut body, (8 + 0x3b) * 8 + 2, 6, 12);
        put(&mut body, 0x58 * 8, 32, 1); // translations_octword_actual_size
        put(&mut body, 0x108 * 8, 64, page);
        body
    }

    pub fn mkey(&mut self, pd: u32) -> Result<u32, Refused> {
        let page = self.alloc(4096);
        self.create(0x200, &self.mkey_body(pd, page, 4096))
    }

    /// SET_ROCE_ADDRESS of index 0: version 2, an IPv6 link-local address.
    pub fn roce_address(&self, index: u16) -> Result<(), Refused> {
        let mut body = vec![0; 0x28];
        put(&mut body, 0, 16, index.into());
        body[8..10].copy_from_slice(&[0xfe, 0x80]);
        body[8 + 0x1b] = 2;
        put(&mut body, (8 + 0x1a) * 8 + 4, 4, 1);
        self.run(0x761, 0, &body, 16).map(|_| ())
    }
}
