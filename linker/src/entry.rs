//! From what a boot loader leaves to `main`: 32-bit protected mode without paging becomes 64-bit mode with it.
//!
//! The ELF note names the entry of the PVH boot protocol, which QEMU, Xen, Cloud Hypervisor and Firecracker speak: flat
//! 32-bit segments, paging and interrupts off, bss zeroed, `ebx` the physical address of `hvm_start_info`. With QEMU on a
//! PC machine the firmware has run before, so PCI bridges and BARs have their numbers and addresses.
//!
//! The first 4 GiB are mapped where they are, in pages of 2 MiB. SSE is turned on, since compiled Rust uses it, and
//! interrupts stay off: the stack has a red zone that a handler would overwrite.

use core::arch::global_asm;

use crate::paging;

const STACK: usize = 256 << 10;

global_asm!(
    r#"
    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 4, 18              // lengths of name and value; XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .long pvh_start

    .section .text.boot, "ax"
    .code32
    .globl pvh_start
pvh_start:
    cli
    cld
    mov esp, offset boot_stack_end

    // One entry of the top table, four of the second, 2048 of the third: present, writable, the last ones 2 MiB pages.
    mov eax, offset {directories}
    or eax, 3
    mov dword ptr [{top}], offset {second} + 3
    xor ecx, ecx
1:  mov dword ptr [{second} + ecx * 8], eax
    add eax, 4096
    inc ecx
    cmp ecx, 4
    jne 1b
    xor ecx, ecx
    mov eax, 0x83
2:  mov dword ptr [{directories} + ecx * 8], eax
    add eax, 0x200000
    inc ecx
    cmp ecx, 2048
    jne 2b
    mov eax, offset {top}
    mov cr3, eax

    mov eax, cr4
    or eax, 0x620               // PAE; SSE: OSFXSR, OSXMMEXCPT
    mov cr4, eax
    mov ecx, 0xc0000080         // EFER
    rdmsr
    or eax, 0x100               // LME: long mode
    wrmsr
    mov eax, cr0
    and eax, 0x9ffffffb         // caches on (CD, NW), no emulation of the FPU (EM)
    or eax, 0x80010003          // paging, write protection, MP, protected mode
    mov cr0, eax
    lgdt [boot_gdt_pointer]
    .byte 0xea                  // a far jump into the 64-bit segment
    .long 3f
    .word 8

    .code64
3:  mov eax, 16
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    mov rsp, offset boot_stack_end
    xor ebp, ebp
    fninit
    call {main}
    ud2

    .section .rodata.boot, "a"
    .balign 8
boot_gdt:
    .quad 0, 0x00af9a000000ffff, 0x00cf92000000ffff     // none; 64-bit code; data
boot_gdt_pointer:
    .word 23
    .long boot_gdt

    .section .bss.boot, "aw", @nobits
    .balign 16
    .skip {stack}
boot_stack_end:

    .text
    "#,
    top = sym paging::TOP,
    second = sym paging::SECOND,
    directories = sym paging::DIRECTORIES,
    main = sym crate::main,
    stack = const STACK,
);
