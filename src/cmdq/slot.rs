//! One command on its way: claimed, posted, answered or abandoned.

use core::sync::atomic::Ordering;

use mlx5_hw::arch::{dma_rmb, dma_wmb};
use mlx5_hw::be::Be32;
use mlx5_hw::cmd::{Command, DeliveryStatus, Opcode, Sink, Source, Status};
use mlx5_hw::cmd_entry::{CmdQueueEntry, ENTRY_TYPE, INLINE_BYTES};
use mlx5_hw::prm::Layout;

use super::{Chain, CommandQueue, EVENT_GRACE, Message, OWNER, Slot};
use crate::error::Error;

/// First dword of the inline input and output in an entry.
const INPUT: usize = 4;
const OUTPUT: usize = 8;

/// A claimed slot. Dropping it frees the slot, or abandons the command if the device has it.
pub(crate) struct Claim<'a> {
    queue: &'a CommandQueue,
    index: usize,
    opcode: Opcode,
    message: Option<Message>,
}

impl<'a> Claim<'a> {
    pub(super) fn new(queue: &'a CommandQueue, index: usize, opcode: Opcode) -> Self {
        Self { queue, index, opcode, message: None }
    }

    /// Writes the command and hands it to the device.
    ///
    /// # Errors
    /// `NoMemory` for its mailboxes; the device has then seen nothing.
    pub(crate) fn post<C: Command>(&mut self, command: &C) -> Result<(), Error> {
        let queue = self.queue;
        let (in_len, out_len) = (command.in_len(), command.out_len());
        let input = queue.pool.chain(in_len)?;
        let output = queue.pool.chain(out_len)?;
        let mut message = Message { input, output };
        let by_event = queue.events.load(Ordering::Relaxed);
        let token = {
            let mut table = queue.table.lock();
            let token = CommandQueue::token(&mut table);
            table.counters.posted += 1;
            let before = table.progress;
            if let Some(slot) = table.slots.get_mut(self.index) {
                *slot = Slot::Running { token, before, by_event, event: false, answered_at: None };
            }
            token
        };
        message.input.link(token);
        message.output.link(token);
        let mut entry = CmdQueueEntry::new()
            .with_type(ENTRY_TYPE)
            .with_input_length(in_len as u32)
            .with_output_length(out_len as u32)
            .with_token(token.into())
            .with_ownership(true);
        entry.set_input_mailbox(message.input.iova());
        entry.set_output_mailbox(message.output.iova());
        command.encode(&mut Inbox { entry: &mut entry, chain: &message.input, len: in_len });
        entry.sign();
        if queue.signatures.load(Ordering::Relaxed) {
            message.input.sign();
            message.output.sign();
        }
        message.input.lend();
        message.output.lend();
        self.message = Some(message);
        self.hand_over(&entry);
        Ok(())
    }

    /// Writes the entry, its owner bit last, and rings.
    fn hand_over(&self, entry: &CmdQueueEntry) {
        let put = |(i, word): (usize, &Be32)| self.queue.store(self.index, i, *word);
        let words = entry.words().iter().enumerate();
        words.clone().filter(|(i, _)| *i != OWNER).for_each(put);
        dma_wmb();
        words.filter(|(i, _)| *i == OWNER).for_each(put);
        dma_wmb();
        self.queue.port.init_segment().ring_command_doorbell(1 << self.index);
    }

    /// Whether the answer is there. With events it is taken when its event has come, has not come for too long, or when
    /// this is the `last` time to ask.
    pub(crate) fn answered(&self, now: u64, last: bool) -> bool {
        let mut table = self.queue.table.lock();
        let lost = match table.slots.get_mut(self.index) {
            Some(Slot::Running { by_event, event, answered_at, .. }) => {
                if self.queue.device_owns(self.index) {
                    return false;
                }
                let since = *answered_at.get_or_insert(now);
                if !last && *by_event && !*event && now.saturating_sub(since) < EVENT_GRACE {
                    return false;
                }
                *by_event && !*event
            }
            _ => return false,
        };
        table.counters.lost_events += u64::from(lost);
        drop(table);
        dma_rmb();
        true
    }

    /// Notes that the command's deadline has passed. Tells whether another one's did while it waited and nothing was answered
    /// meanwhile: firmware that forgets a command now and then answers others, firmware that has stopped does not.
    pub(crate) fn overdue(&self) -> bool {
        self.queue.reap();
        let mut table = self.queue.table.lock();
        let now = table.progress;
        table.progress.overdue += 1;
        let Some(Slot::Running { before, .. }) = table.slots.get(self.index) else { return false };
        let lies_there = |(i, slot): (usize, &Slot)| {
            matches!(slot, Slot::Running { .. } | Slot::Abandoned { .. }) && !self.queue.device_owns(i)
        };
        before.overdue < now.overdue
            && before.answered == now.answered
            && !table.slots.iter().enumerate().any(lies_there)
    }

    /// Reads the answer of a command that [`answered`](Self::answered).
    ///
    /// # Errors
    /// `Delivery` or `Command`, as the device says.
    pub(crate) fn finish<C: Command>(mut self, command: &C) -> Result<C::Out, Error> {
        let Some(message) = self.message.take() else {
            return Err(Error::Invalid { what: "a command that was not posted" });
        };
        let outbox = Outbox { claim: &self, chain: &message.output, len: command.out_len() };
        let result = outbox.check().map(|()| command.decode(&outbox));
        {
            let mut table = self.queue.table.lock();
            table.progress.answered += 1;
            if let Some(slot) = table.slots.get_mut(self.index) {
                *slot = Slot::Claimed;
            }
        }
        self.queue.recycle(message);
        result
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut table = self.queue.table.lock();
        let Some(slot) = table.slots.get_mut(self.index) else { return };
        match (self.message.take(), slot.token()) {
            (Some(message), Some(token)) => {
                *slot = Slot::Abandoned { message, token };
                table.counters.timed_out += 1;
            }
            _ => *slot = Slot::Free,
        }
    }
}

struct Inbox<'a> {
    entry: &'a mut CmdQueueEntry,
    chain: &'a Chain,
    len: usize,
}

impl Sink for Inbox<'_> {
    fn put(&mut self, at: usize, words: &[Be32]) {
        for (i, word) in words.iter().enumerate() {
            match at + 4 * i {
                byte if byte >= self.len => return,
                byte if byte >= INLINE_BYTES => self.chain.put((byte - INLINE_BYTES) / 4, *word),
                byte => {
                    if let Some(to) = self.entry.words_mut().get_mut(INPUT + byte / 4) {
                        *to = *word;
                    }
                }
            }
        }
    }
}

struct Outbox<'a> {
    claim: &'a Claim<'a>,
    chain: &'a Chain,
    len: usize,
}

impl Outbox<'_> {
    fn word(&self, byte: usize) -> Be32 {
        match byte {
            byte if byte >= self.len => Be32::ZERO,
            byte if byte < INLINE_BYTES => self.claim.queue.load(self.claim.index, OUTPUT + byte / 4),
            byte => self.chain.get((byte - INLINE_BYTES) / 4),
        }
    }

    /// The one place where delivery status, status and syndrome are checked.
    fn check(&self) -> Result<(), Error> {
        let opcode = self.claim.opcode;
        let code = DeliveryStatus(CmdQueueEntry::STATUS.of(self.claim.queue.load(self.claim.index, OWNER)) as u8);
        if code != DeliveryStatus::OK {
            return Err(Error::Delivery { opcode, code });
        }
        let outbox: &dyn Source = self;
        match outbox.status() {
            (Status::OK, _) => Ok(()),
            (status, syndrome) => Err(Error::Command { opcode, status, syndrome }),
        }
    }
}

impl Source for Outbox<'_> {
    fn get(&self, at: usize, words: &mut [Be32]) {
        for (i, word) in words.iter_mut().enumerate() {
            *word = self.word(at.saturating_add(4 * i));
        }
    }
}
