//! BlueFlame: work requests that are stored to a UAR page whole, in place of a doorbell.
//!
//! A UAR page has registers from 0x800 on, each of two buffers that are used in turn. The processor combines the stores of 64
//! aligned bytes into one and sends it when it likes: blocks of one request may come in any order, and one that was evicted
//! early comes as pieces of 8 bytes. The device takes a request from the buffer when all of its blocks came whole. Else the 8
//! bytes at the start are the doorbell that they also are, and the request is read from memory. Linux's test of write
//! combining (`mlx5_core_test_wc`) tells the two apart so.

use std::collections::BTreeMap;

use crate::bar::{self, UAR_BYTES};
use crate::bytes::be64;
use crate::data;
use crate::device::Device;
use crate::model::Model;
use crate::violation::ViolationKind;

/// Bytes that a processor combines.
pub(crate) const BLOCK: usize = 64;
/// Where the registers begin in a UAR page.
const REGISTERS: usize = 0x800;

/// How stores of 64 bytes to BlueFlame buffers reach the device, where the processor combines them. Each is drawn by the model's
/// seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorePace {
    /// Of so many stores one was evicted early and comes in pieces of 8 bytes, in any order: 1 tears all, 0 none.
    pub tear_one_in: u32,
    /// Of so many stores that begin a work request of several one comes after the next: 1 all, 0 none.
    pub swap_one_in: u32,
}

impl Model {
    /// Sets how combined stores reach the device.
    pub fn set_store_pace(&self, pace: StorePace) {
        self.lock().flames.pace = pace;
    }
}

/// What is in the buffer of a register that was written last.
enum Content {
    /// A doorbell alone; what comes behind it belongs to it.
    Doorbell,
    /// Pieces of a request whose doorbell is still to come.
    Pieces,
    /// A request that was taken.
    Taken,
    /// Blocks of a request, by their place in the buffer; others are still to come.
    Blocks(BTreeMap<usize, [u8; BLOCK]>),
}

/// A register: which of its buffers was written last, by its offset in the page, and what is in it.
struct Register {
    buffer: usize,
    content: Content,
}

/// A register by its UAR page and the offset of its first buffer.
type Place = (u32, usize);

/// All BlueFlame registers that were written.
#[derive(Default)]
pub(crate) struct Flames {
    registers: BTreeMap<Place, Register>,
    /// A store that comes after the next: offset in the BAR, bytes.
    held: Option<(usize, [u8; BLOCK])>,
    pace: StorePace,
}

impl Flames {
    /// Empties the buffers of a page that is given back.
    pub(crate) fn forget(&mut self, page: u32) {
        self.registers.retain(|(of, _), _| *of != page);
    }

    /// Empties all buffers.
    pub(crate) fn clear(&mut self) {
        self.registers.clear();
        self.held = None;
    }
}

/// Bytes of a buffer.
pub(crate) fn buffer_bytes(dev: &Device) -> usize {
    1 << dev.config.caps.log_bf_reg_size.clamp(4, 11) >> 1
}

/// The register and the buffer that `offset` of a UAR page lies in.
fn place(dev: &Device, page: u32, offset: usize) -> (Place, usize) {
    let size = buffer_bytes(dev);
    let buffer = offset - offset % size;
    ((page, buffer - (buffer - REGISTERS) % (2 * size)), buffer)
}

fn drawn(dev: &mut Device, one_in: u32) -> bool {
    one_in > 0 && (dev.random() >> 1).is_multiple_of(one_in.into())
}

/// A store of 64 bytes at `offset` of the BAR leaves the processor.
pub(crate) fn store(dev: &mut Device, offset: usize, block: &[u8; BLOCK]) {
    if let Some((first, held)) = dev.flames.held.take() {
        let size = buffer_bytes(dev);
        let together = first / size == offset / size;
        if together {
            arrive(dev, offset, block);
        }
        arrive(dev, first, &held);
        if together {
            return;
        }
    }
    let begins_one_of_several = offset.is_multiple_of(buffer_bytes(dev)) && data::request_shape(block).0 > BLOCK;
    if begins_one_of_several && drawn(dev, dev.flames.pace.swap_one_in) {
        dev.flames.held = Some((offset, *block));
    } else {
        arrive(dev, offset, block);
    }
}

/// A store that was to come after the next comes now.
pub(crate) fn release(dev: &mut Device) {
    if let Some((offset, block)) = dev.flames.held.take() {
        arrive(dev, offset, &block);
    }
}

/// A store arrives, whole or in pieces.
fn arrive(dev: &mut Device, offset: usize, block: &[u8; BLOCK]) {
    if drawn(dev, dev.flames.pace.tear_one_in) {
        let mut left: Vec<usize> = (0..BLOCK).step_by(8).collect();
        while !left.is_empty() {
            let pick = (dev.random() >> 1) as usize % left.len();
            let at = left.swap_remove(pick);
            bar::single(dev, offset + at, &block[at..at + 8]);
        }
    } else if dev.reachable() && bar::in_range(dev, offset, BLOCK) {
        whole(dev, (offset / UAR_BYTES) as u32, offset % UAR_BYTES, block);
    }
}

/// A store of 64 bytes has come whole.
fn whole(dev: &mut Device, page: u32, offset: usize, block: &[u8; BLOCK]) {
    if !dev.objects.uars.contains(&page) {
        return dev.violate(ViolationKind::UarUnknownPage, format!("page {page:#x}, 64 bytes at {offset:#x}"));
    }
    let size = buffer_bytes(dev);
    if offset < REGISTERS || size < BLOCK || dev.hca.caps.current("bf") == 0 {
        dev.violate(ViolationKind::BlueFlameMissing, format!("UAR {page:#x}, 64 bytes at {offset:#x}"));
        if offset >= REGISTERS && offset.is_multiple_of(size) {
            doorbell(dev, (page, offset), be64(block, 0));
        }
        return;
    }
    let (register, buffer) = place(dev, page, offset);
    let at = (offset - buffer) / BLOCK;
    dev.calls.flames += u64::from(at == 0);
    if let Some(blocks) = collect(dev, register, buffer, (at, block)) {
        judge(dev, register, buffer, blocks);
    }
}

/// Puts a block to those that it belongs to. `None` when it belongs to a request that is taken by its doorbell, or was.
fn collect(
    dev: &mut Device,
    place: Place,
    buffer: usize,
    (at, block): (usize, &[u8; BLOCK]),
) -> Option<BTreeMap<usize, [u8; BLOCK]>> {
    let detail = format!("UAR {:#x}, block {at} of the buffer at {buffer:#x}", place.0);
    let first = BTreeMap::from([(at, *block)]);
    let before = dev.flames.registers.remove(&place);
    let Some(Register { content, .. }) = before.as_ref().filter(|before| before.buffer == buffer) else {
        before.into_iter().for_each(|before| leave(dev, place.0, before.content));
        return Some(first);
    };
    match content {
        Content::Pieces if at == 0 => {
            doorbell(dev, (place.0, buffer), be64(block, 0));
            return None;
        }
        Content::Doorbell if at == 0 => return Some(first),
        Content::Taken if at > 0 => dev.violate(ViolationKind::BlueFlameLength, detail),
        Content::Pieces | Content::Doorbell => (),
        Content::Blocks(blocks) if !blocks.contains_key(&at) => {
            return Some(blocks.iter().map(|(at, block)| (*at, *block)).chain(first).collect());
        }
        Content::Taken | Content::Blocks(_) => {
            dev.violate(ViolationKind::BlueFlameBuffer, detail);
            before.into_iter().for_each(|before| leave(dev, place.0, before.content));
            return Some(first);
        }
    }
    dev.flames.registers.extend(before.map(|before| (place, before)));
    None
}

/// Takes the request when it is complete, or its doorbell alone when it cannot become so.
fn judge(dev: &mut Device, place: Place, buffer: usize, blocks: BTreeMap<usize, [u8; BLOCK]>) {
    let page = place.0;
    let Some(first) = blocks.get(&0) else {
        dev.flames.registers.insert(place, Register { buffer, content: Content::Blocks(blocks) });
        return;
    };
    let (bytes, qpn) = data::request_shape(first);
    let needed = bytes.div_ceil(BLOCK);
    if bytes > buffer_bytes(dev) || blocks.keys().any(|at| *at >= needed) {
        let detail = format!("QP {qpn:#x}: {bytes} bytes in the buffer at {buffer:#x} of UAR {page:#x}");
        dev.violate(ViolationKind::BlueFlameLength, detail);
        doorbell(dev, (page, buffer), be64(first, 0));
    } else if blocks.len() < needed {
        dev.flames.registers.insert(place, Register { buffer, content: Content::Blocks(blocks) });
    } else {
        let mut request: Vec<u8> = blocks.into_values().flatten().collect();
        request.truncate(bytes);
        dev.flames.registers.insert(place, Register { buffer, content: Content::Taken });
        data::sq_flame(dev, page, request);
    }
}

/// Something else comes to a register while blocks of a request are missing: the device takes its doorbell alone.
fn leave(dev: &mut Device, page: u32, content: Content) {
    let Content::Blocks(blocks) = content else { return };
    let found: Vec<usize> = blocks.keys().copied().collect();
    dev.violate(ViolationKind::BlueFlameIncomplete, format!("UAR {page:#x}: blocks {found:?} and no others"));
    if let Some(first) = blocks.get(&0) {
        data::sq_doorbell(dev, page, be64(first, 0));
    }
}

/// A doorbell of 8 bytes at the start of a buffer: UAR page and offset.
pub(crate) fn doorbell(dev: &mut Device, (page, offset): (u32, usize), value: u64) {
    enter(dev, page, offset, Content::Doorbell);
    data::sq_doorbell(dev, page, value);
}

/// Eight bytes behind the start of a buffer: they belong to a request that comes in pieces, whose doorbell counts alone.
pub(crate) fn piece(dev: &mut Device, page: u32, offset: usize) {
    let (place, buffer) = place(dev, page, offset);
    let before = dev.flames.registers.get(&place).filter(|before| before.buffer == buffer);
    let first = match before.map(|before| &before.content) {
        Some(Content::Doorbell | Content::Pieces) => return,
        Some(Content::Blocks(blocks)) => blocks.get(&0).map(|first| be64(first, 0)),
        Some(Content::Taken) | None => None,
    };
    match first {
        Some(value) => {
            dev.flames.registers.remove(&place);
            doorbell(dev, (page, buffer), value);
        }
        None => enter(dev, page, offset, Content::Pieces),
    }
}

/// What comes in pieces takes the place of what a register had. Whole blocks of the same request may have come before.
fn enter(dev: &mut Device, page: u32, offset: usize, content: Content) {
    let (place, buffer) = place(dev, page, offset);
    let Some(before) = dev.flames.registers.insert(place, Register { buffer, content }) else { return };
    let same =
        matches!(&before.content, Content::Blocks(blocks) if before.buffer == buffer && !blocks.contains_key(&0));
    if !same {
        leave(dev, page, before.content);
    }
}

/// A queue pair begins anew or ends: a part of a request of it does not become whole any more.
pub(crate) fn abandon(dev: &mut Device, qpn: u32) {
    let part_of = |register: &Register| match &register.content {
        Content::Blocks(blocks) => blocks.get(&0).is_some_and(|first| data::request_shape(first).1 == qpn),
        Content::Doorbell | Content::Pieces | Content::Taken => false,
    };
    let flames = &mut dev.flames.registers;
    let before = flames.len();
    flames.retain(|_, register| !part_of(register));
    if flames.len() < before {
        dev.violate(ViolationKind::BlueFlameIncomplete, format!("QP {qpn:#x}: the rest of a work request never came"));
    }
}
