//! The command queue against the model: deadlines, lost and stray events, order, page requests, threads.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../control/mod.rs"]
mod control;
#[path = "../control/poor.rs"]
mod poor;

mod failed;
mod pages;
mod waiting;

use control::open;
use mlx5::{Device, DeviceConfig, Error};
use mlx5_hw::cmd::{AdapterInfo, Command, QueryAdapter};
use mlx5_model::{Effect, Fault, Match, Model};

const MS: u64 = 1_000_000;
const QUERY_ADAPTER: u16 = 0x101;
const ALLOC_PD: u16 = 0x800;
const DEALLOC_PD: u16 = 0x801;
const MANAGE_PAGES: u16 = 0x108;

fn config() -> DeviceConfig {
    let mut config = DeviceConfig::new(0x1018);
    config.timeouts.command = 10 * MS;
    config
}

fn device(model: &Model) -> Device {
    open(model, config()).unwrap()
}

/// Runs a command that names no memory.
fn run<C: Command>(device: &Device, command: &C) -> Result<C::Out, Error> {
    // SAFETY: the commands here only read, or allocate and free protection domains of their own.
    unsafe { device.general_cmd(command) }
}

fn adapter(device: &Device) -> Result<AdapterInfo, Error> {
    run(device, &QueryAdapter)
}

fn inject(model: &Model, opcode: u16, effect: Effect) {
    model.inject(Fault::Command { at: Match::Opcode(opcode), effect });
}

fn last_slot(model: &Model) -> u8 {
    model.commands().last().unwrap().slot
}
