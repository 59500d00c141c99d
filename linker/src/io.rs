//! The ports of the x86: the processor's second address space, for the devices of a PC.

use core::arch::asm;

/// Writes a byte to a port.
pub fn outb(port: u16, value: u8) {
    // SAFETY: the ports written here (serial line, timer, exit device) change no memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) }
}

/// Reads a byte from a port.
pub fn inb(port: u16) -> u8 {
    let value;
    // SAFETY: as above.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) }
    value
}

/// Writes 32 bits to a port.
///
/// It is ordered with accesses to memory: a write to configuration space can stop a device or set it going.
pub fn outl(port: u16, value: u32) {
    // SAFETY: only configuration space is reached so; what a function may do to memory is its driver's affair.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags)) }
}

/// Reads 32 bits from a port.
pub fn inl(port: u16) -> u32 {
    let value;
    // SAFETY: as above.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack, preserves_flags)) }
    value
}

/// How a run ended. QEMU's `isa-debug-exit` makes `value * 2 + 1` of it, its own exit code.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// Everything worked: exit code 33.
    Pass = 16,
    /// There is no function to drive: 35.
    NoFunction = 17,
    /// The machine, not the function, lacks something: 37.
    Machine = 18,
    /// The driver returned an error: 39.
    Driver = 19,
    /// A wrong result: 41.
    Wrong = 20,
    /// The program panicked: 43.
    Panic = 21,
    /// The processor raised an exception: 45.
    Exception = 22,
}

/// Ends the run: through QEMU's `isa-debug-exit` at port 0xf4, and where there is none by standing still.
pub fn exit(verdict: Verdict) -> ! {
    outb(0xf4, verdict as u8);
    loop {
        // SAFETY: stops until an interrupt; interrupts are off.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) }
    }
}
