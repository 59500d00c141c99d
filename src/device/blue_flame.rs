//! BlueFlame: a work request is written to the device instead of a doorbell, and not fetched from memory.
//!
//! A UAR page has four registers. The first is for the doorbells of all who have none of their own, the second is given to one queue
//! pair, as parts of two requests must not mix in a buffer and posting takes no lock. The last two Linux and libmlx5 give to no
//! ordinary queue pair (`MLX5_NON_FP_BFREGS_PER_UAR` is 2); what is different about them is not public, so nobody has them here.

use alloc::vec::Vec;

use mlx5_hw::uar;
use spin::Mutex;

use super::attr::Caps;

/// A register that one queue pair has to itself: two buffers, used in turn.
pub(crate) struct BlueFlame {
    /// Bytes from the start of the UAR page to the buffer whose turn it is.
    offset: usize,
    /// Bytes of a buffer, a power of two.
    half: usize,
}

impl BlueFlame {
    /// The largest request that fits, in bytes.
    pub(crate) const fn room(&self) -> usize {
        self.half
    }

    /// Where to write now, in bytes from the start of the UAR page; next time it is the other buffer.
    pub(crate) const fn turn(&mut self) -> usize {
        let now = self.offset;
        self.offset ^= self.half;
        now
    }
}

/// The registers that nobody has.
#[derive(Default)]
pub(crate) struct Registers(Mutex<Vec<BlueFlame>>);

impl Registers {
    /// Those of a UAR page; none where the device or the port has no BlueFlame.
    pub(super) fn new(caps: &Caps, has_wc: bool) -> Self {
        let able = has_wc && caps.general.bf();
        let log_size = caps.general.log_bf_reg_size();
        let offsets = uar::blue_flames(if able { log_size } else { 0 });
        let registers = offsets
            .take(uar::ORDINARY_BLUEFLAMES)
            .skip(1)
            .map(|offset| BlueFlame { offset, half: 1 << (log_size - 1) });
        Self(Mutex::new(registers.collect()))
    }

    pub(crate) fn take(&self) -> Option<BlueFlame> {
        self.0.lock().pop()
    }

    /// Nobody writes to it any more. Its turn goes on where it is.
    pub(crate) fn give_back(&self, register: BlueFlame) {
        self.0.lock().push(register);
    }
}

#[cfg(test)]
mod tests {
    use mlx5_hw::caps::CmdHcaCap;

    use super::*;

    fn caps(bf: bool, log_bf_reg_size: u32) -> Caps {
        let general = CmdHcaCap::new().with_bf(bf).with_log_bf_reg_size(log_bf_reg_size);
        Caps { general, atomic: None, roce: None }
    }

    /// libmlx5: `bf_reg_size` is both buffers, the first register of a page has doorbells only, and the last two are nobody's.
    #[test]
    fn a_register_has_two_buffers_that_take_turns_whoever_has_it() {
        let registers = Registers::new(&caps(true, 9), true);
        let mut register = registers.take().unwrap();
        assert_eq!([register.turn(), register.turn(), register.turn(), register.room()], [0xa00, 0xb00, 0xa00, 256]);
        assert!(registers.take().is_none());
        registers.give_back(register);
        let mut again = registers.take().unwrap();
        assert_eq!((again.turn(), again.turn(), registers.take().is_none()), (0xb00, 0xa00, true));
    }

    #[test]
    fn without_it_or_with_buffers_too_small_nobody_gets_one() {
        for (bf, log_size, has_wc) in
            [(false, 9, true), (true, 9, false), (true, 0, true), (true, 6, true), (true, 11, true), (true, 31, true)]
        {
            assert!(Registers::new(&caps(bf, log_size), has_wc).take().is_none(), "{bf} {log_size} {has_wc}");
        }
        assert_eq!(Registers::new(&caps(true, 7), true).take().unwrap().room(), 64);
    }
}
