//! The two ways in which sessions lie in a ring.

use super::formats::{owner_is_lap, sealed::Sealed, with_lap_bit};
use super::sessions::{Compressed, Open, Session};
use super::{Consumer, PlainFormat};
use crate::be::Be32;
use crate::cqe::{Cqe64Layout, CqeDataFormat, CqeOpcode, CqeRef, OpOwn};

/// How sessions lie in a ring.
pub trait Layout: Sealed + Sized + core::fmt::Debug {
    /// Last dword of a vacant slot.
    const VACANT: u32;
    /// A title may serve sessions of later batches.
    const KEEPS_TITLE: bool;

    /// Slots of sessions are stamped on every lap.
    const STAMPS_SESSIONS: bool = !Self::KEEPS_TITLE;

    /// Whether the slot with last dword `tail` is software's in lap `lap`.
    fn is_owned(tail: Be32, lap: u32) -> bool;

    /// The last dword of an entry that starts no session made software's in lap `lap`.
    fn owned(tail: Be32, lap: u32) -> Be32;

    /// Number of completions that an entry which starts a session claims.
    fn session_length(cqe: CqeRef<'_>) -> u32;

    /// A full entry was taken.
    fn full<'m>(session: &mut Session<'m>, cqe: CqeRef<'m>);

    /// `cqe` was taken, which starts a session: opens it before its first completion. False if no device writes such an
    /// entry; then the batch is behind it.
    fn begin<'m, F: PlainFormat>(batch: &mut Consumer<'m, Compressed<F, Self>>, cqe: CqeRef<'m>) -> bool;

    /// Stamps the slots of the batch that a later lap could take for an entry.
    fn stamp<F: PlainFormat>(batch: &Consumer<'_, Compressed<F, Self>>);
}

/// Whether a title can have this opcode: a completion, and no error.
const fn is_title(opcode: CqeOpcode) -> bool {
    opcode.0 <= CqeOpcode::RESP_SEND_INV.0
}

#[inline(always)]
const fn without_format(op_own: OpOwn) -> OpOwn {
    const FORMAT: u8 = OpOwn::new().with_format(CqeDataFormat::COMPRESSED).into_bits();
    OpOwn::from_bits(op_own.into_bits() & !FORMAT)
}

/// The basic layout (PRM `cqc.cqe_comp_layout` 0).
#[derive(Debug)]
pub enum BasicLayout {}

impl Sealed for BasicLayout {}

impl Layout for BasicLayout {
    const VACANT: u32 = 0xf0;
    const KEEPS_TITLE: bool = false;

    #[inline(always)]
    fn is_owned(tail: Be32, lap: u32) -> bool {
        owner_is_lap(tail, lap)
    }

    /// One that claims to start a session, and has not the room for it here, must not find it elsewhere: it gets an opcode that
    /// no title has.
    fn owned(tail: Be32, lap: u32) -> Be32 {
        let op_own = OpOwn::from_bits(tail.get() as u8);
        let starts = op_own.format() == CqeDataFormat::COMPRESSED;
        let op_own = if starts { op_own.with_opcode(CqeOpcode::REQ_ERR) } else { op_own };
        with_lap_bit(Cqe64Layout::OP_OWN.put(tail, op_own.into_bits().into()), lap)
    }

    #[inline(always)]
    fn session_length(cqe: CqeRef<'_>) -> u32 {
        cqe.byte_cnt()
    }

    #[inline(always)]
    fn full<'m>(_: &mut Session<'m>, _: CqeRef<'m>) {}

    #[inline]
    fn begin<'m, F: PlainFormat>(batch: &mut Consumer<'m, Compressed<F, Self>>, cqe: CqeRef<'m>) -> bool {
        let behind = batch.ci;
        let title = behind.wrapping_sub(1);
        let count = Self::session_length(cqe);
        batch.sessions.first.get_or_insert(title);
        // What is left of the batch is the most that the device can have written.
        let room = batch.end.wrapping_sub(title);
        if !is_title(cqe.opcode()) || count < 2 || count > batch.sessions.max_num || count > room {
            return false;
        }
        let op_own = without_format(cqe.op_own());
        batch.sessions.open = Open { op_own, titled: true, since: 0, at: 0, count };
        batch.sessions.title = cqe.words();
        batch.sessions.minis = batch.descriptor(behind);
        batch.ci = title;
        true
    }

    #[inline]
    fn stamp<F: PlainFormat>(batch: &Consumer<'_, Compressed<F, Self>>) {
        if let Some(first) = batch.sessions.first {
            batch.stamp_all(first, batch.ci);
        }
    }
}

/// The enhanced layout (PRM `cqc.cqe_comp_layout` 1).
#[derive(Debug)]
pub enum EnhancedLayout {}

impl EnhancedLayout {
    /// Minis in a block: one less than fit, for the place of the last is the block's own tail.
    const MAX: u32 = 7;
    /// Consumed slots are stamped in the laps that are multiples of this.
    const STAMP_LAPS: u32 = 128;

    const fn is_stamped(lap: u32) -> bool {
        lap.is_multiple_of(Self::STAMP_LAPS)
    }
}

impl Sealed for EnhancedLayout {}

impl Layout for EnhancedLayout {
    const VACANT: u32 = 0xfff0;
    const KEEPS_TITLE: bool = true;

    #[inline(always)]
    fn is_owned(tail: Be32, lap: u32) -> bool {
        let tail = tail.get();
        (tail as u8) < 0xf0 && (tail >> 8) as u8 == lap as u8
    }

    fn owned(tail: Be32, lap: u32) -> Be32 {
        with_lap_bit(Cqe64Layout::SIGNATURE.put(tail, lap), lap)
    }

    #[inline(always)]
    fn session_length(cqe: CqeRef<'_>) -> u32 {
        u32::from(cqe.opcode().0) + 1
    }

    #[inline(always)]
    fn full<'m>(session: &mut Session<'m>, cqe: CqeRef<'m>) {
        if is_title(cqe.opcode()) {
            session.title = cqe.words();
            session.open.titled = true;
            session.open.op_own = without_format(cqe.op_own());
            session.open.since = 1;
        }
    }

    #[inline]
    fn begin<'m, F: PlainFormat>(batch: &mut Consumer<'m, Compressed<F, Self>>, cqe: CqeRef<'m>) -> bool {
        let block = batch.ci.wrapping_sub(1);
        let count = Self::session_length(cqe);
        let room = batch.end.wrapping_sub(block);
        if !batch.sessions.open.titled || count > Self::MAX || count > room {
            batch.ci = block.wrapping_add(count.min(room));
            return false;
        }
        batch.sessions.open.at = 0;
        batch.sessions.open.count = count;
        batch.sessions.minis = cqe.words();
        batch.ci = block;
        true
    }

    #[inline]
    fn stamp<F: PlainFormat>(batch: &Consumer<'_, Compressed<F, Self>>) {
        let mut ci = batch.start;
        // A batch reaches into two laps at most.
        if !Self::is_stamped(batch.lap(ci)) && !Self::is_stamped(batch.lap(batch.ci)) {
            return;
        }
        while ci != batch.ci {
            if Self::is_stamped(batch.lap(ci)) {
                batch.stamp(ci);
            }
            ci = ci.wrapping_add(1);
        }
    }
}
