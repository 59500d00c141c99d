//! Compressed completions, as bytes: minis, the arrays and the title of the basic layout, the blocks of the enhanced one.

use super::cqe::{Completion, Side};
use super::slot::{self, Entry};
use crate::device::Device;
use crate::dma::DmaFault;
use crate::objects::{Cq, MiniFormat};

/// What is left of a completion: eight bytes.
pub(crate) type Mini = [u8; 8];

/// Minis in an array of the basic layout, and in a block of the enhanced one.
const ARRAY: usize = 8;
pub(crate) const BLOCK: usize = 7;
/// `op_own`, bits 3:2: a title or a block.
const COMPRESSED: u8 = 3;
/// The bits of `op_own` that tell the format.
const FORMAT: u8 = 3 << 2;
/// A flow tag's upper byte shares a dword with the byte count.
const COUNT_BESIDE_TAG: u32 = 1 << 24;
/// What no network told: queue pairs on a connection have neither hash nor checksum.
const NO_HASH: u32 = 0xc0de_0000;
/// Bytes of a block that mean nothing.
const UNUSED: u8 = 0x5a;

/// Whether a completion can be a mini: with success, with nothing in it that a mini or the title does not tell.
pub(crate) fn compressible(minis: MiniFormat, completion: &Completion) -> bool {
    let tagged = minis == MiniFormat::FtagStridx && completion.side == Side::Receive;
    let short = !tagged || completion.byte_cnt < COUNT_BESIDE_TAG;
    completion.error.is_none() && completion.inline.is_none() && short
}

/// Whether `next` can be the completion after the first `count` of a session that began with `title`: what is not in its mini
/// must be as in the title, but for the time stamp, and receive requests must follow one another.
pub(crate) fn continues(title: &Completion, count: u32, next: &Completion) -> bool {
    let same_queue = (title.side, title.qpn, title.user_index) == (next.side, next.qpn, next.user_index);
    let same_rest = (title.opcode(), title.solicited) == (next.opcode(), next.solicited);
    let in_place = next.side == Side::Send
        || (title.imm, title.src_qpn, title.route) == (next.imm, next.src_qpn, next.route)
            && next.wqe_counter == title.wqe_counter.wrapping_add(count as u16);
    same_queue && same_rest && in_place
}

/// The mini of a completion.
pub(crate) fn mini(minis: MiniFormat, completion: &Completion) -> Mini {
    let counter = u32::from(completion.wqe_counter);
    let (first, second) = match (completion.side, minis) {
        (Side::Send, _) => (counter << 16 | u32::from(completion.send_opcode) << 8, completion.byte_cnt),
        // What a whole entry has at the place of the flow tag: the queue's number, its upper byte beside the byte count.
        (Side::Receive, MiniFormat::FtagStridx) => {
            (completion.qpn << 16 | counter, completion.qpn >> 16 << 24 | completion.byte_cnt)
        }
        (Side::Receive, _) => (NO_HASH | counter, completion.byte_cnt),
    };
    let mut mini = [0; 8];
    mini[..4].copy_from_slice(&first.to_be_bytes());
    mini[4..].copy_from_slice(&second.to_be_bytes());
    mini
}

/// Writes a session of the basic layout at the producer index: arrays first, the title last. Entries between them stay as they
/// were. What is left of the last array looks like entries of the next lap, so that a driver which leaves it there is found out.
pub(crate) fn put_basic(dev: &mut Device, cq: &Cq, mut title: Entry, minis: &[Mini], own: Own) -> Result<(), DmaFault> {
    for (i, part) in minis.chunks(ARRAY).enumerate() {
        // The first array has the slot behind the title, the others have those of their first completions.
        let index = cq.producer.wrapping_add(if i == 0 { 1 } else { (ARRAY * i) as u32 });
        let mut array = [u8::from(!slot::lap_bit(cq, index)); 64];
        array[..size_of_val(part)].copy_from_slice(part.as_flattened());
        slot::put(dev, cq, index, &array.into())?;
    }
    title.descriptor[44..48].copy_from_slice(&(minis.len() as u32).to_be_bytes());
    title.descriptor[63] = title.descriptor[63] & !FORMAT | COMPRESSED << 2;
    own(cq, cq.producer, &mut title.descriptor);
    slot::put(dev, cq, cq.producer, &title)
}

/// Writes a block of the enhanced layout, of 1 to [`BLOCK`] minis, at the producer index. It stands for as many positions as it has
/// minis; all but the first stay as they were.
pub(crate) fn put_block(dev: &mut Device, cq: &Cq, minis: &[Mini]) -> Result<(), DmaFault> {
    let mut block = [UNUSED; 64];
    block[..size_of_val(minis)].copy_from_slice(minis.as_flattened());
    block[63] = (minis.len() as u8).wrapping_sub(1) << 4 | COMPRESSED << 2;
    slot::own(cq, cq.producer, &mut block);
    slot::put(dev, cq, cq.producer, &block.into())
}

/// How a descriptor is marked for a position: with a signature or without.
pub(crate) type Own = fn(&Cq, u32, &mut [u8; 64]);

#[cfg(test)]
mod tests {
    use super::super::cqe::{CqeError, Inline, syndrome};
    use super::*;

    const RECEIVE: Completion = Completion {
        side: Side::Receive,
        error: None,
        user_index: 1,
        qpn: 2,
        wqe_counter: 0xfffe,
        send_opcode: 0x0b,
        byte_cnt: 64,
        imm: 3,
        src_qpn: 4,
        route: (0, 0, 0),
        solicited: false,
        at: 0,
        real_time: false,
        inline: None,
    };
    const SEND: Completion = Completion { side: Side::Send, ..RECEIVE };

    #[test]
    fn errors_data_and_lengths_beyond_24_bits_beside_a_tag_are_no_minis() {
        let hash = |completion| compressible(MiniFormat::Hash, &completion);
        assert!(hash(RECEIVE) && hash(SEND));
        assert!(!hash(Completion { error: Some(CqeError::of(syndrome::FLUSHED)), ..SEND }));
        assert!(!hash(Completion { inline: Inline::take(&[1], 32), ..RECEIVE }));
        let (fits, not) = (Completion { byte_cnt: 0xff_ffff, ..RECEIVE }, Completion { byte_cnt: 1 << 24, ..RECEIVE });
        let tag = |completion| compressible(MiniFormat::FtagStridx, &completion);
        assert!(hash(not) && tag(fits) && !tag(not));
        assert!(tag(Completion { side: Side::Send, ..not }), "a requester's has no tag");
    }

    #[test]
    fn what_a_mini_does_not_tell_must_be_as_in_the_title() {
        let next = Completion { wqe_counter: 0xffff, byte_cnt: 1, at: 5, ..RECEIVE };
        assert!(continues(&RECEIVE, 1, &next));
        assert!(continues(&RECEIVE, 2, &Completion { wqe_counter: 0, ..next }), "counters wrap");
        for other in [
            Completion { user_index: 9, ..next },
            Completion { qpn: 9, ..next },
            Completion { wqe_counter: 0, ..next },
            Completion { send_opcode: 0x0a, ..next },
            Completion { imm: 9, ..next },
            Completion { src_qpn: 9, ..next },
            Completion { route: (0x11, 0, 0), ..next },
            Completion { solicited: true, ..next },
            Completion { side: Side::Send, ..next },
        ] {
            assert!(!continues(&RECEIVE, 1, &other), "{other:?}");
        }
        let sent = Completion { wqe_counter: 7, send_opcode: 8, byte_cnt: 0, ..SEND };
        assert!(continues(&SEND, 1, &sent), "a requester's tells counter and opcode");
        assert!(!continues(&SEND, 1, &Completion { user_index: 9, ..sent }));
    }
}
