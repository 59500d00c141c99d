//! Exceptions of the processor: said aloud and ended with a code of their own, instead of a silent reset of the machine.

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;

use crate::io::{self, Verdict};
use crate::serial::say;

const VECTORS: usize = 32;
/// Exceptions for which the processor pushes an error code.
const WITH_CODE: u64 = 1 << 8 | 0x1f << 10 | 1 << 17 | 1 << 21 | 1 << 29 | 1 << 30;

// A handler for each vector pushes its number; none of them returns, so what they overwrite does not matter.
global_asm!(
    r#"
    .irp v, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
trap_\v:
    push \v
    jmp trap_any
    .endr
trap_any:
    mov rdi, rsp
    and rsp, -16
    call {report}
    ud2

    .section .rodata.traps, "a"
    .balign 8
    .globl trap_table
trap_table:
    .irp v, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    .quad trap_\v
    .endr
    .text
    "#,
    report = sym report,
);

unsafe extern "C" {
    static trap_table: [u64; VECTORS];
}

/// A gate of the interrupt descriptor table.
#[derive(Clone, Copy)]
#[repr(C)]
struct Gate {
    offset_low: u16,
    selector: u16,
    options: u16,
    offset_middle: u16,
    offset_high: u32,
    reserved: u32,
}

struct Idt(UnsafeCell<[Gate; VECTORS]>);

// SAFETY: written once, by `init`, before anything reads it.
unsafe impl Sync for Idt {}

static IDT: Idt = {
    let absent = Gate { offset_low: 0, selector: 0, options: 0, offset_middle: 0, offset_high: 0, reserved: 0 };
    Idt(UnsafeCell::new([absent; VECTORS]))
};

/// What `lidt` reads.
#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

/// Installs the handlers.
pub fn init() {
    const CODE_SEGMENT: u16 = 8;
    const PRESENT_INTERRUPT_GATE: u16 = 0x8e00;
    // SAFETY: the table is in read-only data.
    let handlers = unsafe { &trap_table };
    let gates = handlers.map(|at| Gate {
        offset_low: at as u16,
        selector: CODE_SEGMENT,
        options: PRESENT_INTERRUPT_GATE,
        offset_middle: (at >> 16) as u16,
        offset_high: (at >> 32) as u32,
        reserved: 0,
    });
    let pointer = Pointer { limit: size_of::<[Gate; VECTORS]>() as u16 - 1, base: IDT.0.get() as u64 };
    // SAFETY: nobody else uses the table, which lives for ever; each gate names a handler in the 64-bit code segment.
    unsafe {
        IDT.0.get().write(gates);
        asm!("lidt [{}]", in(reg) &raw const pointer, options(readonly, nostack, preserves_flags));
    }
}

/// Says what happened. `frame` is the stack: the vector, an error code for some, then where it happened.
extern "C" fn report(frame: *const u64) -> ! {
    let word = |i| {
        // SAFETY: the handler and the processor have pushed at least six words.
        unsafe { frame.add(i).read() }
    };
    let vector = word(0);
    let coded = WITH_CODE >> (vector & 63) & 1 != 0;
    let (code, at) = if coded { (word(1), word(2)) } else { (0, word(1)) };
    let address: u64;
    // SAFETY: reading CR2, the address of a page fault, changes nothing.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    say!("FAIL exception {vector} at {at:#x}, error code {code:#x}, last page fault at {address:#x}");
    io::exit(Verdict::Exception)
}
