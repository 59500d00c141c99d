//! The user access region (UAR): the page of the BAR through which a driver rings the device.
//!
//! Offsets are in bytes from the start of a UAR page. Doorbells are big-endian; [`Bar`](crate::platform::Bar) writes
//! little-endian values, so each doorbell has a `to_bar` that gives the value to pass to it.

use bitfield_struct::bitfield;

use crate::be::Be32;
use crate::cqe::INDEX_MASK;
use crate::wqe::BASIC_BLOCK;

/// Size of a UAR page when capability `uar_4k` is used.
pub const PAGE_SIZE: usize = 4096;
/// The 64-bit CQ doorbell (PRM `uar_page.cq_doorbell`): asks for an event, see [`CqArm`].
pub const CQ_DOORBELL: usize = 0x20;
/// The 32-bit EQ doorbell that updates the consumer index and arms, see [`EqDoorbell`].
pub const EQ_ARM: usize = 0x40;
/// The 32-bit EQ doorbell that only updates the consumer index.
pub const EQ_NO_ARM: usize = 0x48;
/// The first send doorbell and BlueFlame buffer (PRM `uar_page.bf_reg`), see [`sq_doorbell`].
pub const BLUEFLAME: usize = 0x800;
/// BlueFlame registers in a UAR page, one behind the other from [`BLUEFLAME`] on.
pub const BLUEFLAMES: usize = 4;
/// How many of them, from the first on, Linux and libmlx5 give to ordinary queues (`MLX5_NON_FP_BFREGS_PER_UAR`).
pub const ORDINARY_BLUEFLAMES: usize = 2;

/// Second word of a CQ doorbell record, and upper word of the CQ doorbell: asks for one event.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CqArm {
    /// Consumer index up to which software has seen entries.
    #[bits(24)]
    pub ci: u32,
    /// 0: an event for any entry; 1: only for a solicited one or an error.
    pub cmd: bool,
    #[bits(3)]
    __: u8,
    /// Arm sequence number: counts the events taken, so that the device tells a new request from a repeated one.
    #[bits(2)]
    pub sn: u8,
    #[bits(2)]
    __: u8,
}

impl CqArm {
    /// The request with sequence number `sn` (its low two bits count) at consumer index `ci` (its low 24 bits count).
    #[inline]
    pub const fn request(sn: u32, solicited_only: bool, ci: u32) -> Self {
        Self::from_bits((sn & 3) << Self::SN_OFFSET | (solicited_only as u32) << Self::CMD_OFFSET | (ci & INDEX_MASK))
    }

    /// The value for a 64-bit write to [`CQ_DOORBELL`]: this word, then the CQ number.
    #[inline]
    pub const fn to_bar(self, cqn: u32) -> u64 {
        (((self.into_bits() as u64) << 32) | (cqn & INDEX_MASK) as u64).swap_bytes()
    }
}

/// The EQ doorbell, written to [`EQ_ARM`] or [`EQ_NO_ARM`].
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct EqDoorbell {
    /// Number of entries consumed so far.
    #[bits(24)]
    pub ci: u32,
    /// Number of the EQ.
    pub eqn: u8,
}

impl EqDoorbell {
    /// The doorbell of EQ `eqn` (its low 8 bits count) at consumer index `ci` (its low 24 bits count).
    #[inline]
    pub const fn update(eqn: u32, ci: u32) -> Self {
        Self::from_bits((eqn & 0xff) << Self::EQN_OFFSET | (ci & INDEX_MASK))
    }

    /// The value for a 32-bit write to the BAR.
    #[inline]
    pub const fn to_bar(self) -> u32 {
        self.into_bits().swap_bytes()
    }
}

/// The value for a 64-bit write to [`BLUEFLAME`]: the first two dwords of the last work request's control segment.
#[inline]
pub const fn sq_doorbell(ctrl: &[Be32; 4]) -> u64 {
    (((ctrl[0].get() as u64) << 32) | ctrl[1].get() as u64).swap_bytes()
}

/// Where the BlueFlame registers begin in a UAR page, if each has `1 << log_size` bytes (capability `log_bf_reg_size`): two
/// buffers of half of it, used in turn. Only those that lie in the page whole, and none whose buffers have no room for a basic block.
///
/// A send doorbell may be rung in any of them, at the start of either buffer; or a work request is written there, its blocks one
/// behind the other, and the device need not fetch it.
pub fn blue_flames(log_size: u32) -> impl Iterator<Item = usize> {
    let size = 1_usize.checked_shl(log_size).unwrap_or(0);
    let room = if size < 2 * BASIC_BLOCK { 0 } else { (PAGE_SIZE - BLUEFLAME) / size };
    (0..room.min(BLUEFLAMES)).map(move |n| BLUEFLAME + n * size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cq_doorbell_is_sequence_command_index_then_number() {
        let arm = CqArm::request(2, true, 0xff12_3456);
        assert_eq!(arm.into_bits(), 2 << 28 | 1 << 24 | 0x123456);
        assert_eq!(arm.to_bar(0xff65_4321).to_le_bytes(), [0x21, 0x12, 0x34, 0x56, 0, 0x65, 0x43, 0x21]);
        assert_eq!(CqArm::request(7, false, 0).into_bits(), 3 << 28);
    }

    #[test]
    fn eq_doorbell_is_number_then_index() {
        let db = EqDoorbell::update(0x1a5, 0x0a01_0203);
        assert_eq!(db.to_bar().to_le_bytes(), [0xa5, 0x01, 0x02, 0x03]);
    }

    /// Linux and libmlx5: `MLX5_BF_OFFSET` 0x800, four registers a page (`MLX5_BFREGS_PER_UAR`), of 512 bytes on the cards so far.
    #[test]
    fn blue_flame_registers_lie_one_behind_the_other_within_the_page() {
        let lie = |log_size, at: &[usize]| assert!(blue_flames(log_size).eq(at.iter().copied()), "{log_size}");
        lie(9, &[0x800, 0xa00, 0xc00, 0xe00]);
        lie(8, &[0x800, 0x900, 0xa00, 0xb00]);
        lie(7, &[0x800, 0x880, 0x900, 0x980]);
        // The page ends.
        lie(10, &[0x800, 0xc00]);
        lie(11, &[0x800]);
        (0..7).chain(12..70).chain([u32::MAX]).for_each(|log_size| lie(log_size, &[]));
    }

    #[test]
    fn sq_doorbell_is_the_first_eight_bytes_as_they_lie() {
        let ctrl = [Be32::new(0x0102_030a), Be32::new(0x0405_0603), Be32::ZERO, Be32::ZERO];
        assert_eq!(sq_doorbell(&ctrl).to_le_bytes(), [1, 2, 3, 0xa, 4, 5, 6, 3]);
    }
}
