//! The driver in a program that has neither `std` nor start-up code: the proof that `mlx5` and `mlx5-hw` need neither.
//!
//! It opens a function that has fallen off the bus (registers that read as all ones, which is what a bus gives for a
//! device that is not there) and must be told so by a typed error. It ends with exit code 0 if it was.
//! As an x86-64 Linux process it can be run anywhere; it makes two system calls, `write` and `exit`.
#![no_std]
#![no_main]

extern crate alloc;

mod heap;
mod mem;
mod port;

use core::arch::{asm, global_asm};
use core::fmt::{self, Write};
use core::ptr::NonNull;
use mlx5::{Device, DeviceConfig, Error, Failure};
use mlx5_hw::mmio::MmioBar;

// The stack is aligned to 16 bytes here, as a call expects it to be before it pushes the return address.
global_asm!(".globl _start", "_start:", "xor ebp, ebp", "call {main}", "ud2", main = sym main);

/// Registers of a device that is not there.
#[repr(C, align(4096))]
struct AbsentBar(core::cell::UnsafeCell<[u8; 1 << 16]>);

// SAFETY: only reached through volatile accesses by one thread.
unsafe impl Sync for AbsentBar {}

static ABSENT: AbsentBar = AbsentBar(core::cell::UnsafeCell::new([0xff; 1 << 16]));

extern "C" fn main() -> ! {
    // SAFETY: a static, aligned, 64 KiB long, and nobody makes a reference to its bytes.
    let bar = unsafe { MmioBar::new(NonNull::from(&ABSENT).cast(), 1 << 16) };
    match Device::open(port::Arena, bar, DeviceConfig::default()) {
        Err(error @ Error::Failed { why: Failure::Gone, .. }) => {
            let _ = writeln!(Stdout, "no device, as expected: {error}");
            exit(0)
        }
        Err(error) => {
            let _ = writeln!(Stdout, "the wrong error for a device that is not there: {error}");
            exit(1)
        }
        Ok(_) => {
            let _ = writeln!(Stdout, "opened a device that is not there");
            exit(1)
        }
    }
}

struct Stdout;

impl Write for Stdout {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        // SAFETY: `write` reads the bytes of `s`; the kernel clobbers rcx and r11.
        unsafe {
            asm!("syscall", inout("rax") 1usize => _, in("rdi") 1, in("rsi") s.as_ptr(), in("rdx") s.len(),
                 out("rcx") _, out("r11") _, options(nostack));
        }
        Ok(())
    }
}

fn exit(code: i32) -> ! {
    // SAFETY: `exit` does not return.
    unsafe { asm!("syscall", in("rax") 60, in("rdi") code, options(noreturn, nostack)) }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Stdout, "{info}");
    exit(101)
}
