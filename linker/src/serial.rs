//! The first serial line, a 16550 at 0x3f8: where the program says what it does.

use core::fmt::{self, Write};

use crate::io::{inb, outb};

const PORT: u16 = 0x3f8;
/// Most looks at a transmitter that stays full: without a serial line the program goes on in silence.
const PATIENCE: u32 = 100_000;

/// Sets the line to 115200 bits a second, 8 data bits, no parity.
pub fn init() {
    const DIVISOR_OPEN: u8 = 0x80;
    const EIGHT_BITS: u8 = 0x03;
    let settings = [(1, 0), (3, DIVISOR_OPEN), (0, 1), (1, 0), (3, EIGHT_BITS), (2, 0x07)];
    for (register, value) in settings {
        outb(PORT + register, value);
    }
}

/// The serial line as a writer of text.
pub struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                send(b'\r');
            }
            send(byte);
        }
        Ok(())
    }
}

fn send(byte: u8) {
    const TRANSMITTER_EMPTY: u8 = 0x20;
    for _ in 0..PATIENCE {
        if inb(PORT + 5) & TRANSMITTER_EMPTY != 0 {
            return outb(PORT, byte);
        }
    }
}

/// Writes a line to the serial line.
macro_rules! say {
    ($($text:tt)*) => {{
        use core::fmt::Write;
        // The serial line takes everything.
        let _ = writeln!($crate::serial::Serial, $($text)*);
    }};
}
pub(crate) use say;
