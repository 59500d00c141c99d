//! Event queues: what the device tells without being asked.
//!
//! A ring is stamped before CREATE_EQ and armed after it. Events are taken in small batches and handled under the same
//! lock, so that whoever has taken what is there knows that it has been handled too; the consumer index goes to the device
//! after each batch, long before the 128 spare entries are used up.
//! An event of a kind or about an object that the driver does not know is counted and otherwise ignored.
//!
//! No completion event queue overruns, though nobody may take its events for long. What lies there when it has been emptied comes
//! of requests: one for each CQ that had asked before, which are at most half of its entries, and one for each request
//! since, which are an eighth at most before it is emptied again. The rest is for requests on their way to the device.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use mlx5_hw::arch::dma_mb_before_ci;
use mlx5_hw::be::Be32;
use mlx5_hw::cmd::{CreateEq, DestroyEq};
use mlx5_hw::eqc::Eqc;
use mlx5_hw::event_batch::EventBatch;
use mlx5_hw::ring::EqRing;
use mlx5_hw::uar::{EQ_ARM, EQ_NO_ARM, EqDoorbell};
use spin::Mutex;

use crate::device::Control;
use crate::dma::{DmaRegion, Port};
use crate::error::Error;

/// Entries an EQ has beyond those it was asked for, so that the consumer index may lag.
const SPARE: u32 = 128;
/// Bytes of an entry.
const ENTRY: usize = 64;

/// What an event queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Completions of commands.
    Command,
    /// Errors and changes of objects and ports.
    Async,
    /// The firmware's page requests.
    Pages,
    /// Completion queues of a vector.
    Completion,
}

/// How an event queue is made.
pub(crate) struct Plan {
    pub(crate) role: Role,
    /// Entries needed; the queue has at least [`SPARE`] more.
    pub(crate) entries: u32,
    /// Bit n: events of type n come here.
    pub(crate) events: u64,
    /// Interrupt vector.
    pub(crate) vector: u32,
}

struct EventQueue {
    role: Role,
    eqn: u32,
    uar: u32,
    ring: EqRing,
    memory: DmaRegion,
    /// CQs that may ask for events here.
    askers: u32,
    armed: bool,
    /// DESTROY_EQ is on its way: events still count, but the doorbell may no longer be there.
    dying: bool,
}

impl EventQueue {
    /// Takes a batch of events, and tells the device unless it is not to be told anything.
    fn take(&mut self, port: &Port, tell: bool, batch: &mut EventBatch) {
        match self.ring.consume(self.memory.words()) {
            Ok(mut consumer) => batch.fill(&mut consumer),
            Err(_) => batch.clear(),
        }
        if self.dying || !tell {
            return;
        }
        if batch.is_full() {
            // There may be more: arming can wait.
            self.doorbell(port, EQ_NO_ARM);
        } else if !batch.events().is_empty() || !self.armed {
            self.doorbell(port, EQ_ARM);
        }
        self.armed = !batch.is_full();
    }

    fn doorbell(&self, port: &Port, register: usize) {
        dma_mb_before_ci();
        let value = EqDoorbell::update(self.eqn, self.ring.ci()).to_bar();
        port.bar().write32(self.uar as usize * mlx5_hw::uar::PAGE_SIZE + register, value);
    }
}

/// The event queues of a device, in the order in which they were made.
pub(crate) struct EventQueues {
    port: Arc<Port>,
    list: Mutex<Vec<EventQueue>>,
    /// Requests for completion events since the queues were emptied, and how many may be made until they are again.
    requests: AtomicU32,
    most_requests: AtomicU32,
}

impl EventQueues {
    pub(crate) fn new(port: Arc<Port>) -> Self {
        let (requests, most_requests) = (AtomicU32::new(0), AtomicU32::new(u32::MAX));
        Self { port, list: Mutex::new(Vec::new()), requests, most_requests }
    }

    /// Makes an event queue and arms it; gives its number.
    ///
    /// # Errors
    /// Those of CREATE_EQ; `Protocol` if the device gives a number twice.
    pub(crate) fn create(&self, control: &Control, uar: u32, plan: &Plan) -> Result<u32, Error> {
        let log_size = self.log_size(control, plan.entries);
        let bad_size = |_| Error::Invalid { what: "size of an event queue" };
        let ring = EqRing::new(log_size).map_err(bad_size)?;
        let mut memory = self.port.alloc(ENTRY << log_size, 4096)?;
        EqRing::init_memory(memory.words());
        let pages = (ENTRY << log_size).div_ceil(4096) as u64;
        let pas: Vec<u64> = (0..pages).map(|i| memory.iova() + 4096 * i).collect();
        let eqc = Eqc::new().with_log_eq_size(log_size).with_uar_page(uar).with_intr(plan.vector);
        memory.lend("event queue");
        let eqn = match control.exec(&CreateEq { eqc, event_bitmask: plan.events, pas: &pas }) {
            Err(e) => {
                if e.refused() {
                    memory.reclaim();
                }
                return Err(e);
            }
            Ok(eqn) => eqn,
        };
        let mut list = self.list.lock();
        if list.iter().any(|eq| eq.eqn == eqn) {
            return Err(Error::Protocol { what: "CREATE_EQ gave the number of an event queue that exists" });
        }
        if plan.role == Role::Completion {
            self.most_requests.fetch_min(ring.entries() / 8, Ordering::Relaxed);
        }
        let eq = EventQueue { role: plan.role, eqn, uar, ring, memory, askers: 0, armed: true, dying: false };
        eq.doorbell(&self.port, EQ_ARM);
        list.push(eq);
        Ok(eqn)
    }

    /// log2 of the number of entries: what is needed and the spare ones, as far as the platform's memory goes.
    fn log_size(&self, control: &Control, entries: u32) -> u32 {
        let wanted = entries.saturating_add(SPARE).next_power_of_two().trailing_zeros();
        let most = (control.port.platform().max_contiguous() / ENTRY).max(1).ilog2();
        wanted.min(most)
    }

    /// Destroys the event queue made last; `None` when there is none.
    ///
    /// # Errors
    /// Those of DESTROY_EQ. The queue is gone all the same, and its memory kept.
    pub(crate) fn destroy_last(&self, control: &Control) -> Option<Result<(), Error>> {
        let (eqn, role) = self.list.lock().last_mut().map(|eq| {
            eq.dying = true;
            (eq.eqn, eq.role)
        })?;
        if role == Role::Command {
            control.queue.set_events(false);
        }
        let result = control.exec(&DestroyEq { eqn });
        let last = self.list.lock().pop();
        if let Some(mut eq) = last
            && result.is_ok()
        {
            eq.memory.reclaim();
        }
        Some(result)
    }

    /// Forgets the event queues that were not destroyed. Their memory goes to the ledger unless the device was reset.
    pub(crate) fn clear(&self) {
        let left = core::mem::take(&mut *self.list.lock());
        drop(left);
    }

    /// Room for the event of one more CQ in event queue `eqn`; false without.
    pub(crate) fn admit(&self, eqn: u32) -> bool {
        let mut list = self.list.lock();
        let eq = list.iter_mut().find(|eq| eq.eqn == eqn && eq.askers < eq.ring.entries() / 2);
        eq.map(|eq| eq.askers += 1).is_some()
    }

    /// Gives such room back: the CQ is gone, and its events have been taken.
    pub(crate) fn leave(&self, eqn: u32) {
        let mut list = self.list.lock();
        if let Some(eq) = list.iter_mut().find(|eq| eq.eqn == eqn) {
            eq.askers = eq.askers.saturating_sub(1);
        }
    }

    /// A CQ is about to ask for an event; whether the queues have to be emptied before.
    pub(crate) fn on_request(&self) -> bool {
        self.requests.fetch_add(1, Ordering::Relaxed) >= self.most_requests.load(Ordering::Relaxed)
    }

    /// Takes the events that are there and hands each to `handle`, under the lock: it may take short locks, but call nothing
    /// here. A device that never stops writing events is left for the next time, once a whole ring has been taken. Without `tell`
    /// no doorbell is rung: the device has failed, and may be somebody else's by now.
    pub(crate) fn drain(&self, tell: bool, mut handle: impl FnMut(&[Be32; 16])) {
        self.requests.store(0, Ordering::Relaxed);
        let mut batch = EventBatch::default();
        for index in 0.. {
            let mut taken = 0;
            loop {
                let mut list = self.list.lock();
                let Some(eq) = list.get_mut(index) else { return };
                eq.take(&self.port, tell, &mut batch);
                batch.events().iter().for_each(&mut handle);
                taken += batch.events().len();
                if !batch.is_full() || taken >= eq.ring.entries() as usize {
                    break;
                }
            }
        }
    }
}
