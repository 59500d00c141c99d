//! The command interface: from the doorbell to the execution of a command, and to its completion.

mod complete;
pub(crate) mod entry;

use crate::bytes::be16;
use crate::command;
use crate::device::Device;
use crate::eq::{self, Event, event};
use crate::knobs::Effect;
use crate::record::CommandRecord;
use crate::time::Due;
use crate::trace::detail;
use crate::violation::ViolationKind;
use entry::{BLOCK_BYTES, BLOCK_DATA, ENTRY_BYTES, Entry, INLINE, delivery};

/// Log2 of command slots, and of bytes between them.
pub(crate) const LOG_SLOTS: u32 = 5;
pub(crate) const LOG_STRIDE: u32 = 6;
const SLOTS: u32 = 1 << LOG_SLOTS;
/// No command is longer: a page list of half a million pages.
const MAX_LENGTH: usize = 4 << 20;
/// The opcode of page commands.
const MANAGE_PAGES: u16 = 0x108;
/// The most commands kept in the trace.
const MAX_RECORDS: usize = 1 << 16;

/// State of the command interface.
#[derive(Default)]
pub(crate) struct CommandInterface {
    /// Device address of the queue; `None` until the driver has written it.
    pub(crate) queue: Option<u64>,
    slots: [Option<Pending>; SLOTS as usize],
    tickets: u64,
    /// Commands taken since the model was made.
    pub(crate) count: u64,
    /// The first of them.
    pub(crate) records: Vec<CommandRecord>,
    /// Who is told of each command at its end.
    pub(crate) listener: Option<Listener>,
}

/// Hears of a command.
pub(crate) type Listener = Box<dyn FnMut(&CommandRecord) + Send>;

/// Why a command that was taken does not complete in the ordinary way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// It does.
    None,
    /// It never completes.
    Forever,
    /// It waits for another command to complete.
    NextCommand,
    /// It is executed when firmware has this many pages.
    Pages(usize),
}

/// A command that was taken and has not completed.
struct Pending {
    ticket: u64,
    entry: Entry,
    input: Vec<u8>,
    /// Blocks of the output mailbox chain, by device address.
    out_blocks: Vec<u64>,
    /// Blocks of the input mailbox chain.
    in_blocks: Vec<u64>,
    output: Vec<u8>,
    delivery: u8,
    /// The event queue that commands were reported to when this one was taken.
    eqn: Option<u32>,
    /// The event comes this many nanoseconds after the completion.
    event_delay: Option<u64>,
    hold: Hold,
    /// More output is written than was asked for.
    overlong: bool,
    record: CommandRecord,
    /// Its place among the records, while there is room.
    place: Option<usize>,
}

/// Why a mailbox cannot be had.
const UNMAPPED: &str = "mailbox is not mapped";

type Delivered<T> = Result<T, (u8, &'static str)>;

impl CommandInterface {
    /// Forgets the queue and all commands: a reset.
    pub(crate) fn reset(&mut self) {
        self.queue = None;
        self.abandon();
    }

    /// Forgets the commands that have not completed: the function has lost the bus.
    pub(crate) fn abandon(&mut self) {
        self.tell_pending();
        self.slots = Default::default();
    }

    /// Tells of the commands that have not completed.
    pub(crate) fn tell_pending(&mut self) {
        let Some(listener) = &mut self.listener else { return };
        let mut pending: Vec<&Pending> = self.slots.iter().flatten().collect();
        pending.sort_by_key(|pending| pending.ticket);
        pending.into_iter().for_each(|pending| listener(&pending.record));
    }

    /// Notes a command that was taken; its place among the records, while there is room.
    fn keep(&mut self, record: &CommandRecord) -> Option<usize> {
        let place = self.records.len();
        if place >= MAX_RECORDS {
            return None;
        }
        self.records.push(record.clone());
        Some(place)
    }

    /// A command has ended.
    fn tell(&mut self, record: CommandRecord, place: Option<usize>) {
        if let Some(listener) = &mut self.listener {
            listener(&record);
        }
        if let Some(kept) = place.and_then(|place| self.records.get_mut(place)) {
            *kept = record;
        }
    }

    /// Commands that were taken and have not completed.
    pub(crate) fn pending(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Whether the interface may access any of `len` bytes at device address `start`.
    pub(crate) fn owns(&self, start: u64, len: u64, enabled: bool) -> bool {
        use crate::objects::overlap;
        let queue = (enabled || self.pending() > 0) && self.queue.is_some_and(|q| overlap(q, 4096, start, len));
        let blocks = self.slots.iter().flatten().flat_map(|p| p.in_blocks.iter().chain(&p.out_blocks));
        queue || blocks.copied().any(|block| overlap(block, BLOCK_BYTES as u64, start, len))
    }
}

/// The command doorbell: a bit for each slot.
pub(crate) fn doorbell(dev: &mut Device, vector: u32) {
    if dev.initializing() {
        dev.violate(ViolationKind::DoorbellWhileInitializing, format!("vector {vector:#x}"));
        return;
    }
    let Some(queue) = dev.cmdif.queue else {
        dev.violate(ViolationKind::DoorbellBeforeQueueAddress, format!("vector {vector:#x}"));
        return;
    };
    for slot in (0..SLOTS as u8).filter(|slot| vector >> slot & 1 == 1) {
        take(dev, queue, slot);
    }
}

/// Fetches the command of a slot and executes it.
fn take(dev: &mut Device, queue: u64, slot: u8) {
    if dev.cmdif.slots[usize::from(slot)].is_some() {
        dev.violate(ViolationKind::CommandSlotBusy, format!("slot {slot}"));
        return;
    }
    let mut entry = Entry { bytes: [0; ENTRY_BYTES] };
    let at = queue + (u64::from(slot) << LOG_STRIDE);
    if dev.dma_read("command entry", at, &mut entry.bytes).is_err() {
        return;
    }
    if !entry.device_owned() {
        dev.violate(ViolationKind::CommandNotOwned, format!("slot {slot}"));
        return;
    }
    dev.cmdif.tickets += 1;
    dev.cmdif.count += 1;
    let mut pending = Pending {
        record: unread(dev, slot, &entry),
        place: None,
        ticket: dev.cmdif.tickets,
        input: Vec::new(),
        in_blocks: Vec::new(),
        out_blocks: Vec::new(),
        output: Vec::new(),
        delivery: 0,
        eqn: eq::subscriber(dev, event::COMMAND),
        event_delay: None,
        hold: Hold::None,
        overlong: false,
        entry,
    };
    if let Err((status, words)) = fetch(dev, &mut pending) {
        pending.delivery = status;
        // The access itself has been recorded.
        if words != UNMAPPED {
            dev.violate(ViolationKind::CommandDelivery, format!("slot {slot}: {words} (delivery status {status:#x})"));
        }
    }
    pending.record.delivery = pending.delivery;
    if pending.delivery == 0 {
        pending.record.details = detail::of_input(dev, &pending.input);
    }
    pending.place = dev.cmdif.keep(&pending.record);
    begin(dev, slot, pending);
}

/// Checks the entry and gathers both mailbox chains.
fn fetch(dev: &mut Device, pending: &mut Pending) -> Delivered<()> {
    let signed = dev.hca.checksum_on();
    let entry = pending.entry.clone();
    entry.check(signed)?;
    let (in_len, out_len) = (entry.in_len(), entry.out_len());
    if !(8..=MAX_LENGTH).contains(&in_len) {
        return Err((delivery::INPUT_LENGTH, "input length"));
    }
    if !(8..=MAX_LENGTH).contains(&out_len) {
        return Err((delivery::OUTPUT_LENGTH, "output length"));
    }
    pending.input.extend_from_slice(&entry.inline_input()[..in_len.min(INLINE)]);
    let input = chain(dev, "input mailbox", entry.in_pointer(), in_len, entry.token(), signed, &mut pending.in_blocks);
    let data = input.map_err(|fault| fault.status(delivery::INPUT_POINTER, delivery::INPUT_LENGTH))?;
    pending.input.extend(data);
    let output =
        chain(dev, "output mailbox", entry.out_pointer(), out_len, entry.token(), signed, &mut pending.out_blocks);
    output.map_err(|fault| fault.status(delivery::OUTPUT_POINTER, delivery::OUTPUT_LENGTH))?;
    Ok(())
}

/// What is wrong with a chain of mailboxes.
enum ChainFault {
    Pointer(&'static str),
    Length,
    Block(u8, &'static str),
}

impl ChainFault {
    fn status(self, pointer: u8, length: u8) -> (u8, &'static str) {
        match self {
            Self::Pointer(words) => (pointer, words),
            Self::Length => (length, "the mailbox chain is shorter than the length"),
            Self::Block(status, words) => (status, words),
        }
    }
}

/// Walks a chain of mailboxes for what of `len` bytes is not inline; returns the data and notes the blocks.
fn chain(
    dev: &mut Device,
    what: &str,
    first: u64,
    len: usize,
    token: u8,
    signed: bool,
    blocks: &mut Vec<u64>,
) -> Result<Vec<u8>, ChainFault> {
    let mut left = len.saturating_sub(INLINE);
    let mut data = Vec::new();
    let mut next = first;
    let mut block = [0; BLOCK_BYTES];
    while left > 0 {
        if next == 0 {
            return Err(ChainFault::Length);
        }
        if !blocks.is_empty() && next & 0x3ff != 0 {
            return Err(ChainFault::Pointer("next mailbox is not aligned to 1 KiB"));
        }
        dev.dma_read(what, next, &mut block).map_err(|_| ChainFault::Pointer(UNMAPPED))?;
        entry::check_block(&block, blocks.len() as u32, token, signed).map_err(|(s, w)| ChainFault::Block(s, w))?;
        blocks.push(next);
        let here = left.min(BLOCK_DATA);
        data.extend_from_slice(&block[..here]);
        left -= here;
        next = entry::next_block(&block);
    }
    Ok(data)
}

/// What the entry says of its command.
fn unread(dev: &Device, slot: u8, entry: &Entry) -> CommandRecord {
    let input = entry.inline_input();
    let opcode = be16(input, 0);
    CommandRecord {
        slot,
        opcode,
        name: command::name(opcode).unwrap_or("UNKNOWN"),
        op_mod: be16(input, 6),
        uid: be16(input, 2),
        in_len: entry.in_len() as u32,
        out_len: entry.out_len() as u32,
        delivery: 0,
        status: 0,
        syndrome: 0,
        details: Vec::new(),
        taken: dev.clock.now(),
        done: None,
    }
}

/// Lets a fault act on the command, executes it, and arranges its completion.
fn begin(dev: &mut Device, slot: u8, mut pending: Pending) {
    let count = dev.cmdif.count;
    let opcode = be16(pending.entry.inline_input(), 0);
    let fault = dev.faults.take(opcode, count);
    if fault == Some(Effect::Removed) {
        dev.cmdif.slots[usize::from(slot)] = Some(pending);
        dev.remove();
        return;
    }
    let mut delay = dev.config.command_ns;
    if let Some(fault) = fault {
        act(dev, slot, &mut pending, fault, &mut delay);
    }
    if dev.iseg.asks_for_reset() {
        pending.hold = Hold::Forever;
    }
    // Before it is executed: it may be the one that makes the queue for such events, which the driver does not know yet.
    let heard = opcode != MANAGE_PAGES && eq::subscriber(dev, event::PAGE_REQUEST).is_some();
    let at_once = matches!(pending.hold, Hold::None | Hold::NextCommand);
    if at_once && pending.delivery == 0 && pending.output.is_empty() {
        pending.output = command::execute(dev, &pending.input, pending.entry.out_len());
    }
    match fault {
        Some(Effect::Output { at, dword }) => put_dword(&mut pending.output, at.into(), dword),
        Some(Effect::Overtaken(pages)) if heard && dev.request_pages(pages) => {
            pending.hold = Hold::NextCommand;
        }
        _ => (),
    }
    if pending.hold == Hold::None {
        dev.clock.after(delay, Due::CommandDone { slot, ticket: pending.ticket });
    }
    dev.cmdif.slots[usize::from(slot)] = Some(pending);
}

/// What a fault does to a command before it is executed.
fn act(dev: &mut Device, slot: u8, pending: &mut Pending, fault: Effect, delay: &mut u64) {
    match fault {
        Effect::Status { status, syndrome } => pending.output = command::refusal(status, syndrome),
        Effect::Delivery(status) => pending.delivery = status,
        Effect::Never => pending.hold = Hold::Forever,
        Effect::Late(ns) => *delay = ns,
        Effect::AfterNext => pending.hold = Hold::NextCommand,
        Effect::EventLost => pending.eqn = None,
        Effect::EventLate(ns) => pending.event_delay = Some(ns),
        Effect::EventForSlots(slots) => {
            if let Some(eqn) = pending.eqn.take() {
                eq::post(dev, eqn, Event::command(slots));
            }
        }
        Effect::StrayEvents { slots, cqn } => stray_events(dev, slots & !(1 << slot), cqn),
        Effect::PageRequest(pages) => {
            let heard = dev.request_pages(pages) && be16(pending.entry.inline_input(), 0) != MANAGE_PAGES;
            if let (true, Ok(pages)) = (heard, usize::try_from(pages)) {
                pending.hold = Hold::Pages(dev.pages.count() + pages);
            }
        }
        Effect::Overlong => pending.overlong = true,
        Effect::Health { syndrome, severity, request_reset } => {
            dev.iseg.health = (syndrome, severity, request_reset);
        }
        Effect::Overtaken(_) | Effect::Output { .. } | Effect::Removed => (),
    }
}

/// Events that nobody can have waited for.
fn stray_events(dev: &mut Device, slots: u32, cqn: u32) {
    let busy = (0..SLOTS).filter(|slot| dev.cmdif.slots[*slot as usize].is_some()).fold(0, |all, slot| all | 1 << slot);
    eq::report(dev, Event::command(slots & !busy));
    let eqns: Vec<u32> = dev.objects.eqs.keys().copied().collect();
    for eqn in eqns {
        eq::post(dev, eqn, Event::completion(cqn));
    }
}

fn put_dword(output: &mut [u8], at: usize, dword: u32) {
    if let Some(bytes) = output.get_mut(at..at + 4) {
        bytes.copy_from_slice(&dword.to_be_bytes());
    }
}

/// Pages have come, or the driver said that none will: commands that waited for them go on.
pub(crate) fn pages_changed(dev: &mut Device, refused: bool) {
    let have = dev.pages.count();
    for slot in 0..SLOTS as u8 {
        let Some(pending) = dev.cmdif.slots[usize::from(slot)].as_mut() else { continue };
        let Hold::Pages(want) = pending.hold else { continue };
        if have < want && !refused {
            continue;
        }
        pending.hold = Hold::None;
        let (ticket, input, out_len) = (pending.ticket, pending.input.clone(), pending.entry.out_len());
        let output = if refused {
            let reason = command::Reject::PagesRefused;
            command::refusal(reason.status(), reason.syndrome())
        } else {
            command::execute(dev, &input, out_len)
        };
        if let Some(pending) = dev.cmdif.slots[usize::from(slot)].as_mut() {
            pending.output = output;
        }
        dev.clock.after(dev.config.command_ns, Due::CommandDone { slot, ticket });
    }
}
