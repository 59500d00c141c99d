//! The memory functions that the compiler calls. The prebuilt `core` of a hosted target leaves them to a C library.
//!
//! String instructions, since the compiler would turn a plain loop back into a call of the function that it stands in.

use core::arch::asm;

/// Copies `n` bytes between ranges that do not overlap.
///
/// # Safety
/// As C's `memcpy`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the caller promises both ranges; the direction flag is clear by the calling convention.
    unsafe {
        asm!("rep movsb", inout("rcx") n => _, inout("rdi") to => _, inout("rsi") from => _,
             options(nostack, preserves_flags));
    }
    to
}

/// Copies `n` bytes between ranges that may overlap.
///
/// # Safety
/// As C's `memmove`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= n {
        // SAFETY: a forward copy never overtakes its source here.
        return unsafe { memcpy(to, from, n) };
    }
    // SAFETY: the caller promises both ranges; n > 0, since the distance is below it. The flag is cleared again.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rcx") n => _, inout("rdi") to.add(n - 1) => _,
             inout("rsi") from.add(n - 1) => _, options(nostack));
    }
    to
}

/// Fills `n` bytes with `value`.
///
/// # Safety
/// As C's `memset`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, n: usize) -> *mut u8 {
    // SAFETY: the caller promises the range.
    unsafe {
        asm!("rep stosb", inout("rcx") n => _, inout("rdi") to => _, in("al") value as u8,
             options(nostack, preserves_flags));
    }
    to
}

/// Compares `n` bytes.
///
/// # Safety
/// As C's `memcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    for i in 0..n {
        // SAFETY: the caller promises both ranges. Volatile, so that the loop stays a loop.
        let (x, y) = unsafe { (a.add(i).read_volatile(), b.add(i).read_volatile()) };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
    }
    0
}

/// Tells whether `n` bytes differ.
///
/// # Safety
/// As BSD's `bcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: same contract.
    unsafe { memcmp(a, b, n) }
}
