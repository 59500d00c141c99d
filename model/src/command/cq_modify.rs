//! MODIFY_CQ: another ring for a completion queue, or another moderation of its events.

use super::Reject;
use super::cq::{check_moderation, check_overrun_ignore, check_ring, watch_first_lap};
use crate::bytes::{be16, be24, be32, bits, put_bits};
use crate::data;
use crate::device::Device;
use crate::objects::Cq;

type Done = Result<(), Reject>;

/// A field of the context that can be selected: its bit in `field_select`, first bit in the context, bits.
type Field = (u32, usize, usize);

/// op_mod 0, `modify_field_select`.
const PERIOD: Field = (1, 0x10 * 8 + 4, 12);
const MAX_COUNT: Field = (1 << 1, 0x12 * 8, 16);
const OVERRUN_IGNORE: Field = (1 << 2, 14, 1);
const PERIOD_MODE: Field = (1 << 4, 15, 2);
/// op_mod 1, `resize_field_select`.
const LOG_SIZE: Field = (1, 0xc * 8 + 3, 5);
const PAGE_OFFSET: Field = (1 << 1, 0xa * 8 + 4, 6);
const LOG_PAGE_SIZE: Field = (1 << 2, 0x18 * 8 + 3, 5);

const RESIZE: u16 = 1;

pub(super) fn modify(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    let cqn = be24(input, 0x9);
    let cq = dev.objects.cqs.get(&cqn).ok_or(Reject::CqUnknown)?.clone();
    if cq.status != 0 {
        return Err(Reject::CqBroken);
    }
    if be16(input, 6) == RESIZE { resize(dev, cqn, &cq, input) } else { moderate(dev, cqn, &cq, input) }
}

/// The queue's context with the selected fields as the input has them. What is not selected may be left 0 or repeated.
fn selected(cq: &Cq, input: &[u8], fields: &[Field]) -> Result<Vec<u8>, Reject> {
    let (select, given) = (be32(input, 0xc), &input[0x10..0x50]);
    if fields.iter().fold(select, |rest, field| rest & !field.0) != 0 {
        return Err(Reject::CqSelect);
    }
    let (mut rest, mut context) = (given.to_vec(), cq.context.to_vec());
    for (_, first, width) in fields.iter().filter(|field| select & field.0 != 0) {
        put_bits(&mut rest, *first, *width, 0);
        put_bits(&mut context, *first, *width, bits(given, *first, *width));
    }
    let strange = rest.iter().zip(cq.context.iter()).any(|(given, now)| given & !now != 0);
    if strange { Err(Reject::CqUnselected) } else { Ok(context) }
}

fn moderate(dev: &mut Device, cqn: u32, cq: &Cq, input: &[u8]) -> Done {
    let context = selected(cq, input, &[PERIOD, MAX_COUNT, OVERRUN_IGNORE, PERIOD_MODE])?;
    if input.len() != 0x110 {
        return Err(Reject::InputTail);
    }
    let new = Cq { buffer: cq.buffer.clone(), ..cq.changed(&context, &[]) };
    check_overrun_ignore(dev, &new)?;
    check_moderation(dev, &new.moderation)?;
    if new.moderation.mode != cq.moderation.mode && dev.hca.caps.current("cq_period_mode_modify") == 0 {
        return Err(Reject::CqPeriodModeModify);
    }
    // Overruns may be watched for from now on: from the index of today.
    data::cq_outstanding(dev, cqn);
    dev.objects.cqs.insert(cqn, new);
    data::cq_moderated(dev, cqn);
    Ok(())
}

fn resize(dev: &mut Device, cqn: u32, cq: &Cq, input: &[u8]) -> Done {
    if dev.hca.caps.current("cq_resize") == 0 {
        return Err(Reject::CqResize);
    }
    if cq.collapsed {
        return Err(Reject::CqCollapsedResize);
    }
    let context = selected(cq, input, &[LOG_SIZE, PAGE_OFFSET, LOG_PAGE_SIZE])?;
    let new = cq.changed(&context, &input[0x110..]);
    check_ring(dev, &new, input.len() - 0x110)?;
    let waiting = data::cq_outstanding(dev, cqn);
    // The old ring's last entry says that the new one goes on.
    if waiting > new.entries() || !cq.overrun_ignore && waiting >= cq.entries() {
        return Err(Reject::CqOutstanding);
    }
    watch_first_lap(dev, cqn, &new);
    if data::cq_resized(dev, cqn, new) { Ok(()) } else { Err(Reject::CqBroken) }
}
