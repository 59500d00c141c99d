//! Two queue pairs whose completions are compressed, and the bytes that come of it.

use mlx5_model::CapConfig;

use crate::qp::{Qp, QpWish};
use crate::raw::{Raw, load, put, store32};
use crate::rdma::{Cq, CqWish, LW, Mr, RW, Rdma};
use crate::wqe::{Wqe, inline};

/// The form of a compressed queue's entries.
#[derive(Clone, Copy)]
pub struct Form {
    pub log_size: u32,
    pub entry: usize,
    /// `cqe_sz` 2.
    pub padded: bool,
    /// `mini_cqe_res_format`, and its extension in bit 2.
    pub minis: u64,
    pub enhanced: bool,
    pub ignore_overrun: bool,
}

pub const HASH: u64 = 0;
pub const CSUM: u64 = 1;
pub const FTAG: u64 = 2;
pub const CSUM_STRIDX: u64 = 3;
pub const HEADERS: u64 = 4;

pub const BASIC: Form =
    Form { log_size: 5, entry: 64, padded: false, minis: HASH, enhanced: false, ignore_overrun: false };
pub const ENHANCED: Form = Form { enhanced: true, ..BASIC };

pub struct Squeeze {
    pub rdma: Rdma,
    pub a: Qp,
    pub b: Qp,
    pub send: Cq,
    pub recv: Cq,
    pub to: Mr,
}

/// SEND, and with immediate data.
pub const SEND: u8 = 0x0a;
pub const SEND_IMM: u8 = 0x0b;

pub fn squeeze(form: Form) -> Squeeze {
    squeeze_with(CapConfig::default(), form)
}

pub fn squeeze_with(caps: CapConfig, form: Form) -> Squeeze {
    let rdma = Rdma::on(Raw::up_with(caps, true));
    let (send, recv) = (compressed(&rdma, form), compressed(&rdma, form));
    let (a, b) = rdma.pair(QpWish { log_rq: 6, log_sq: 6, ..QpWish::default() }, &send, &recv);
    let to = rdma.register(4096, 0, LW | RW);
    Squeeze { rdma, a, b, send, recv, to }
}

/// A compressed completion queue.
pub fn compressed(rdma: &Rdma, form: Form) -> Cq {
    let wish = CqWish { log_size: form.log_size, entry: form.entry, ignore_overrun: form.ignore_overrun };
    rdma.cq_as(wish, |cqc| {
        if form.padded {
            put(cqc, 0x08, 3, 2);
        }
        put(cqc, 0x11, 1, 1);
        put(cqc, 0x12, 2, form.minis & 3);
        put(cqc, 0x1e, 2, form.enhanced.into());
        put(cqc, 0x5c, 2, form.minis >> 2);
    })
}

impl Squeeze {
    /// Posts what shall go in one go: one doorbell. A receive is posted for each send.
    pub fn post(&mut self, requests: &[(u8, u8, u32, Vec<u8>)]) {
        let mut bell = 0;
        for (opcode, flags, imm, segments) in requests {
            if matches!(*opcode, SEND | SEND_IMM) {
                self.rdma.recv(&mut self.b, &[self.to.seg(0, 512)]);
            }
            bell = self.rdma.write_send(&mut self.a, Wqe { opcode: *opcode, flags: *flags, imm: *imm, segments });
        }
        self.rdma.ring(&self.a, bell);
    }

    /// `count` sends of 1, 2, … bytes in one go.
    pub fn burst(&mut self, count: usize) {
        let sends: Vec<_> = (1..=count).map(|len| (SEND, 8, 0, inline(&vec![7; len]))).collect();
        self.post(&sends);
    }

    /// Tells the device that all of the first `index` completions are consumed, on both sides.
    pub fn consumed(&self, index: u32) {
        for cq in [&self.send, &self.recv] {
            store32(&cq.record, 0, index & 0xff_ffff);
        }
    }
}

/// The descriptor in a slot, as hexadecimal digits, a space after each eighth byte.
pub fn slot(cq: &Cq, index: usize) -> String {
    let bytes = load(&cq.mem, (index + 1) * cq.wish.entry - 64, 64);
    let parts: Vec<String> = bytes.chunks(8).map(|part| part.iter().map(|b| format!("{b:02x}")).collect()).collect();
    parts.join(" ")
}

/// The same without the time stamp, and without the signature where that byte is one.
pub fn title(cq: &Cq, index: usize) -> String {
    let text = slot(cq, index);
    // Bytes 48 to 55, and 62.
    format!("{}................{}..{}", &text[..102], &text[118..131], &text[133..])
}

/// The queue's slots that still have their first bytes.
pub fn untouched(cq: &Cq) -> Vec<usize> {
    let old = ["eeeeeeeeeeeeeeee"; 7].join(" ") + " eeeeeeeeeeeefff0";
    (0..1 << cq.wish.log_size).filter(|index| slot(cq, *index) == old).collect()
}
