//! Any bytes as one completion entry.

use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;

use mlx5_hw::be::Be32;
use mlx5_hw::cqe::{Cqe64Layout, CqeRef, ErrCqe, SigErrCqe, TmCqe};
use mlx5_hw::mini_cqe::MiniCqe8;
use mlx5_hw::prm::Bits;
use mlx5_hw::ring::{Cqe64, Cqe128, CqeFormat, Ring};
use mlx5_vfio::decode::{Kind, Record, decode_bytes};

use crate::memory::Memory;
use crate::views::{layout, words};

/// Bytes of the largest entry.
const LARGEST: usize = 128;

/// Reads them as an entry of 64 and of 128 bytes that is new in a ring of one slot, as each overlay, and as the tool does.
pub fn run(data: &[u8]) {
    let bytes = &data[..data.len().min(LARGEST)];
    in_a_ring::<Cqe64>(bytes);
    in_a_ring::<Cqe128>(bytes);
    let words = words(bytes);
    layout::<Cqe64Layout>(&words);
    layout::<ErrCqe>(&words);
    layout::<SigErrCqe>(&words);
    layout::<TmCqe>(&words);
    layout::<MiniCqe8>(&words);
    // The tables take most of the time: only where there are more bytes than an entry has.
    let shown = if data.len() > LARGEST { 2 } else { 0 };
    for record in decode_bytes(bytes, Some(Kind::Cqe)).iter().flatten().take(shown) {
        let _ = black_box((record.title(), Record::to_text(record)));
    }
}

/// The ring's lap is such that the entry's owner bit makes it software's.
fn in_a_ring<F: CqeFormat>(bytes: &[u8]) {
    let memory = Memory::new(F::SIZE);
    memory.write(0, bytes);
    let op_own = bytes.get(F::SIZE - 1).copied().unwrap_or(0);
    let mut ring = Ring::<F>::with_ci(0, (op_own & 1).into()).expect("a ring of one slot");
    let mut batch = ring.consume(memory.ring()).expect("memory of one slot");
    let found = batch.next();
    assert_eq!(found.is_some(), op_own < 0xf0, "software's but for the opcode of a vacant slot");
    if let Some(cqe) = found {
        let seen = Seen::read(cqe);
        let syndrome = cqe.syndrome();
        let _ = black_box((syndrome.wc_status(), syndrome.meaning(), syndrome.usual_cause(), format!("{cqe:?}")));
        let inside = cqe.words().iter().map(|word| Be32::from_raw(word.load(Relaxed)));
        assert!(seen.full.into_iter().eq(inside), "a full entry stands for itself");
        assert!(batch.next().is_none(), "one slot, one entry");
    }
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The full entry.
    pub full: [Be32; 16],
    /// Hash, checksum and stride index.
    packet: (Option<u32>, Option<u16>, Option<u16>),
    /// The message in it.
    data: Vec<u32>,
}

impl Seen {
    /// Reads an entry with each accessor.
    pub fn read(cqe: CqeRef<'_>) -> Self {
        let _ = black_box((cqe.op_own(), cqe.opcode(), cqe.format(), cqe.solicited(), cqe.owner(), cqe.is_error()));
        let _ = black_box((cqe.is_ordinary(), cqe.mini_format()));
        let _ = black_box((cqe.is_compressed(), cqe.wqe_counter(), cqe.signature(), cqe.sop_opcode(), cqe.qpn()));
        let _ = black_box((cqe.flow_tag(), cqe.srqn_or_uidx(), cqe.byte_cnt(), cqe.imm_inval_pkey(), cqe.timestamp()));
        let _ = black_box((cqe.flags_rqpn(), cqe.src_qp(), cqe.sl(), cqe.has_grh(), cqe.slid(), cqe.dlid_path_bits()));
        let _ = black_box((cqe.vlan_info(), cqe.l3_hdr_type(), cqe.l4_hdr_type(), cqe.vlan_stripped()));
        let _ = black_box((cqe.ip_csum_ok(), cqe.vendor_err_synd(), cqe.hw_err_synd(), cqe.hw_synd_type()));
        let _ = black_box((
            cqe.dword::<0>(),
            cqe.dword::<15>(),
            cqe.field(Bits::new(0x1f8, 8)),
            cqe.field(Bits::new(0x200, 8)),
        ));
        let data = cqe.inline_data().unwrap_or(&[]);
        assert!(data.len() <= 16, "what lies in one entry");
        Self {
            full: cqe.expand(),
            packet: (cqe.rss_hash_result(), cqe.check_sum(), cqe.stride_index()),
            data: data.iter().map(|word| word.load(Relaxed)).collect(),
        }
    }

    /// The full entry but for the signature, which says something else in each layout of compression.
    pub fn without_signature(&self) -> [Be32; 16] {
        let mut full = self.full;
        full[15] = Cqe64Layout::SIGNATURE.put(full[15], 0);
        full
    }
}
