//! Commands: which exist, when each is allowed, how long it is, and what it does.

mod cq;
mod cq_form;
mod cq_modify;
mod eq;
mod hca;
mod hca_vport;
mod mkey;
mod pages;
mod qp;
mod qp_fields;
mod reject;
mod reserved;
mod ring;
mod rmp;
mod small;
mod table;
mod vport;

use crate::bytes::{be16, bit_at, put_bits, put32, u8_at};
use crate::data;
use crate::device::Device;
use crate::hca::HcaState;
pub(crate) use reject::Reject;
pub use reject::syndrome_text;
use table::{Length, Spec, When};

/// The name of an opcode; `None` for one that the model does not have.
pub(crate) fn name(opcode: u16) -> Option<&'static str> {
    table::find(opcode).map(|spec| spec.name)
}

/// The opcode of the command with this name, as the PRM spells it (`CREATE_EQ`); `None` for one that the model does not have.
pub fn opcode_named(name: &str) -> Option<u16> {
    table::named(name).map(|spec| spec.opcode)
}

/// The output of a command that was refused.
pub(crate) fn refusal(status: u8, syndrome: u32) -> Vec<u8> {
    let mut output = vec![0; 16];
    put_bits(&mut output, 0, 8, status.into());
    put32(&mut output, 4, syndrome);
    output
}

/// Executes a command and returns its output.
pub(crate) fn execute(dev: &mut Device, input: &[u8], out_len: usize) -> Vec<u8> {
    // What was done before the command is told before it.
    data::settle(dev);
    let opcode = be16(input, 0);
    let mut output = vec![0; out_len.max(16)];
    let done = match table::find(opcode) {
        Some(spec) => check(dev, spec, input, out_len).and_then(|()| (spec.run)(dev, input, &mut output)),
        None => Err(Reject::UnknownOpcode),
    };
    dev.gained();
    let Err(reason) = done else { return output };
    if let Some(kind) = reason.violation() {
        let name = name(opcode).unwrap_or("UNKNOWN");
        dev.violate(kind, format!("{name}({opcode:#x}): {}", reason.text()));
    }
    refusal(reason.status(), reason.syndrome())
}

/// What can be checked without knowing what the command does.
fn check(dev: &Device, spec: &Spec, input: &[u8], out_len: usize) -> Result<(), Reject> {
    check_state(dev, spec.when)?;
    if !spec.op_mods.contains(&be16(input, 6)) {
        return Err(Reject::UnknownOpMod);
    }
    if !spec.input.fits(input.len()) {
        return Err(Reject::InputLength);
    }
    if !spec.output.fits(out_len) {
        return Err(Reject::OutputLength);
    }
    let set = |(first, width): &(u16, u16)| (*first..*first + *width).any(|bit| bit_at(input, bit.into()));
    if spec.reserved.iter().any(set) {
        return Err(Reject::Reserved);
    }
    Ok(())
}

fn check_state(dev: &Device, when: When) -> Result<(), Reject> {
    let state = dev.hca.state;
    match when {
        When::Disabled if state != HcaState::Disabled => Err(Reject::AlreadyEnabled),
        When::Disabled => Ok(()),
        _ if state == HcaState::Disabled => Err(Reject::Disabled),
        When::Enabled => Ok(()),
        When::NotInitialized | When::BootedNotInitialized if state == HcaState::Initialized => {
            Err(Reject::AlreadyInitialized)
        }
        When::NotInitialized => Ok(()),
        _ if dev.pages.missing(dev.config.boot_pages) > 0 => Err(Reject::NoBootPages),
        When::Booted | When::BootedNotInitialized => Ok(()),
        When::Initialized if state != HcaState::Initialized => Err(Reject::NotInitialized),
        When::Initialized => Ok(()),
    }
}

/// Whether the command means this function: no other is known here.
fn own_function(input: &[u8]) -> Result<(), Reject> {
    if u8_at(input, 0x8) == 0 && be16(input, 0xa) == 0 { Ok(()) } else { Err(Reject::OtherFunction) }
}

impl Length {
    fn fits(self, len: usize) -> bool {
        match self {
            Length::Exactly(bytes) => len == bytes,
            Length::Either(a, b) => len == a || len == b,
            Length::AtLeast(bytes) => len >= bytes,
        }
    }
}
