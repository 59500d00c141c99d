//! Completion of a command: output into the mailboxes, then the entry, its owner byte last, then the event.

use super::entry::{BLOCK_BYTES, BLOCK_DATA, INLINE, delivery, sign_block};
use super::{Hold, LOG_STRIDE, Pending};
use crate::bytes::{be32, u8_at, xor};
use crate::device::Device;
use crate::dma::DmaFault;
use crate::eq::{self, Event, Late};
use crate::hca::AnswerSignature;
use crate::time::Due;
use crate::trace::detail;

/// Bytes from one mailbox block to where the next may lie.
const BLOCK_STRIDE: usize = 1024;

impl Device {
    /// A command's time has come. A ticket of before a reset is stale.
    pub(crate) fn command_done(&mut self, slot: u8, ticket: u64) {
        let place = self.cmdif.slots.get_mut(usize::from(slot));
        let Some(mut pending) = place.and_then(|p| p.take_if(|p| p.ticket == ticket)) else { return };
        let Some(queue) = self.cmdif.queue else { return };
        if write_output(self, &pending).is_err() {
            pending.delivery = delivery::FIRMWARE;
        }
        let at = queue + (u64::from(slot) << LOG_STRIDE);
        let entry = finish_entry(&pending, self.hca.answer_signature());
        let from = if pending.overlong { 0 } else { 0x20 };
        if self.dma_write("command entry", at + from as u64, &entry[from..]).is_err() {
            self.cmdif.tell(pending.record, pending.place);
            return;
        }
        let (eqn, event_delay) = (pending.eqn, pending.event_delay);
        self.note_done(pending);
        let event = Event::command(1 << slot);
        match (eqn, event_delay) {
            (Some(eqn), None) => eq::post(self, eqn, event),
            (Some(eqn), Some(ns)) => self.clock.after(ns, Due::Event(Late { eqn, event })),
            (None, _) => (),
        }
        release_held(self);
    }

    fn note_done(&mut self, pending: Pending) {
        let now = self.clock.now();
        let succeeded = pending.delivery == 0 && u8_at(&pending.output, 0) == 0;
        let answer = if succeeded { detail::of_output(self, &pending.input, &pending.output) } else { Vec::new() };
        let mut record = pending.record;
        record.done = Some(now);
        record.delivery = pending.delivery;
        record.status = u8_at(&pending.output, 0);
        record.syndrome = be32(&pending.output, 4);
        record.details.extend(answer);
        self.cmdif.tell(record, pending.place);
    }
}

/// Writes what of the output does not fit the entry into the blocks that the driver prepared.
fn write_output(dev: &mut Device, pending: &Pending) -> Result<(), DmaFault> {
    if pending.delivery != 0 {
        return Ok(());
    }
    let end = pending.entry.out_len().min(pending.output.len());
    let rest = pending.output.get(INLINE..end).unwrap_or(&[]);
    let signed = dev.hca.checksum_on();
    for (block, data) in pending.out_blocks.iter().zip(rest.chunks(BLOCK_DATA)) {
        dev.dma_write("output mailbox", *block, data)?;
        if pending.overlong {
            let surplus = vec![0xff; BLOCK_STRIDE - data.len()];
            dev.dma_write("output mailbox", *block + data.len() as u64, &surplus)?;
            continue;
        }
        if signed {
            let mut whole = [0; BLOCK_BYTES];
            dev.dma_read("output mailbox", *block, &mut whole)?;
            sign_block(&mut whole);
            dev.dma_write("output mailbox", *block + 0x23c, &whole[0x23c..])?;
        }
    }
    Ok(())
}

/// The entry as it is written back: output inline, delivery status, signed, software's again.
fn finish_entry(pending: &Pending, signature: AnswerSignature) -> [u8; 64] {
    let mut entry = pending.entry.bytes;
    entry[0x20..0x30].fill(0);
    if pending.delivery == 0 {
        let inline = pending.entry.out_len().min(pending.output.len()).min(INLINE);
        entry[0x20..0x20 + inline].copy_from_slice(&pending.output[..inline]);
        if pending.overlong {
            // Lengths, pointers, the input, and what the output does not fill.
            entry[0x4..0x20].fill(0xff);
            entry[0x20 + inline..0x3c].fill(0xff);
        }
    }
    entry[0x3f] = pending.delivery << 1;
    if signature != AnswerSignature::Drivers {
        let owner = u8::from(signature == AnswerSignature::WhileOwned);
        entry[0x3d] = 0;
        entry[0x3d] = !xor(&entry) ^ owner;
    }
    entry
}

/// Lets commands complete that waited for another one to do so first.
fn release_held(dev: &mut Device) {
    let mut due = Vec::new();
    for (slot, pending) in dev.cmdif.slots.iter_mut().enumerate() {
        if let Some(pending) = pending.as_mut().filter(|p| p.hold == Hold::NextCommand) {
            pending.hold = Hold::None;
            due.push(Due::CommandDone { slot: slot as u8, ticket: pending.ticket });
        }
    }
    for done in due {
        dev.clock.after(0, done);
    }
}
