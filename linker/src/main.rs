//! The driver on a bare machine: an image that boots without an operating system, finds the function, resets it, brings it
//! up, sends messages between two queue pairs and gives everything back.
//!
//! What it finds it says on the serial line; the last line begins with PASS or FAIL. Under QEMU with
//! `-device isa-debug-exit,iobase=0xf4,iosize=4` the exit code tells the same, see [`Verdict`].
#![no_std]
#![no_main]

extern crate alloc;

mod clock;
mod entry;
mod heap;
mod io;
mod job;
mod mem;
mod paging;
mod pci;
mod port;
mod serial;
mod trap;

use clock::Clock;
use io::Verdict;
use job::Reason;
use mlx5::{Device, DeviceConfig};
use mlx5_hw::mmio::MmioBar;
use pci::Function;
use port::Machine;
use serial::say;

/// How long firmware may take for a command: 5 s. Most take microseconds, and a run that fails should soon say so.
const COMMAND_TIMEOUT: u64 = 5_000_000_000;

/// What `entry` calls, once.
extern "C" fn main() -> ! {
    serial::init();
    trap::init();
    heap::init();
    say!("mlx5 {} on a bare machine", env!("CARGO_PKG_VERSION"));
    let mut result = drive();
    let (pages, bytes) = (port::pages_taken(), heap::used());
    say!("still taken: {pages} pages for the device, {bytes} bytes of the heap");
    if result.is_ok() && (pages, bytes) != (0, 0) {
        result = Err(Reason::Wrong("memory was not given back"));
    }
    match result {
        Ok(()) => {
            say!("PASS");
            io::exit(Verdict::Pass)
        }
        Err(reason) => {
            say!("FAIL {reason}");
            io::exit(reason.verdict())
        }
    }
}

/// From the bare machine to the end of the job.
fn drive() -> Result<(), Reason> {
    let clock = Clock::measure().ok_or(Reason::Machine("there is no timer to measure the clock with"))?;
    let function = Function::find().ok_or(Reason::NoFunction)?;
    let machine = Machine { clock, function };
    function.reset(&clock).map_err(|_| Reason::Machine("the function cannot be reset"))?;
    let at = function.registers().ok_or(Reason::Machine("BAR 0 of the function has no address"))?;
    say!("function {function}, device {:04x}, BAR 0 at {:#x}, {:#x} bytes", function.device_id(), at.address, at.size);
    let mapped = paging::map_registers(at.address, at.size).ok_or(Reason::Machine("BAR 0 cannot be mapped"))?;
    function.turn_on();
    // SAFETY: page-aligned, mapped uncached for the whole size, for ever, and only this value refers to it.
    let bar = unsafe { MmioBar::new(mapped, at.size as usize) };
    let mut config = DeviceConfig::new(function.device_id());
    config.timeouts.command = COMMAND_TIMEOUT;
    let device = Device::open(machine, bar, config)?;
    let (major, minor, sub) = device.info().firmware;
    say!("up: firmware {major}.{minor}.{sub}, {} pages given", device.page_counters().given);
    let result = job::round_trips(&device, &clock);
    let closed = device.close().map_err(|e| Reason::Driver(e.error));
    result.and(closed)
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say!("FAIL {info}");
    io::exit(Verdict::Panic)
}
