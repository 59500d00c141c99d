//! Running commands: the one place where the driver waits.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mlx5_hw::be::Be32;
use mlx5_hw::cmd::Command;
use mlx5_hw::eqe::{Eqe, Event};
use mlx5_hw::prm::Layout;
use spin::Mutex;

use super::config::{CommandTrace, DeviceConfig};
use super::teardown::{Steps, tear_down};
use crate::cmdq::CommandQueue;
use crate::dma::{Leaked, Port};
use crate::eq::EventQueues;
use crate::error::{Error, Failure, WaitingFor};
use crate::events::{Events, Listeners, NAP};
use crate::health::Watch;
use crate::pages::Pages;

/// The interrupt vector of all event queues but those of completions, as a set of them.
pub(super) const INTERRUPT: u64 = 1 << 0;

/// How long a command may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// [`Timeouts::command`](super::Timeouts::command): somebody asked for it.
    Full,
    /// [`Timeouts::drop`](super::Timeouts::drop): an object is dropped, and nobody wants to wait.
    Short,
}

/// What it takes to run commands on a function. Dropping it tears the function down as well as it can be done in a
/// short time.
pub(crate) struct Control {
    pub(crate) port: Arc<Port>,
    pub(crate) config: DeviceConfig,
    pub(crate) queue: CommandQueue,
    pub(crate) eqs: EventQueues,
    pub(crate) pages: Pages,
    pub(crate) watch: Watch,
    pub(crate) events: Events,
    pub(crate) listeners: Listeners,
    steps: Mutex<Steps>,
    /// No wait lasts beyond this time of the platform's clock.
    limit: AtomicU64,
    closed: AtomicBool,
    /// The device may have something that nobody can end: a command ended without anybody knowing whether it was carried
    /// out, or an object was dropped and its end refused.
    doubt: AtomicBool,
    /// The device has failed: no command is sent any more.
    failed: Mutex<Option<Failure>>,
    /// The same, for those who ring doorbells and take no lock.
    lost: AtomicBool,
}

impl Control {
    pub(super) fn new(port: Arc<Port>, config: DeviceConfig, queue: CommandQueue) -> Self {
        Self {
            eqs: EventQueues::new(port.clone()),
            watch: Watch::new(&port),
            port,
            config,
            queue,
            pages: Pages::default(),
            events: Events::default(),
            listeners: Listeners::default(),
            steps: Mutex::default(),
            limit: AtomicU64::new(u64::MAX),
            closed: AtomicBool::new(false),
            doubt: AtomicBool::new(false),
            failed: Mutex::new(None),
            lost: AtomicBool::new(false),
        }
    }

    /// The time of the platform's clock that is `timeout` nanoseconds away.
    pub(crate) fn deadline(&self, timeout: u64) -> u64 {
        self.port.platform().now().saturating_add(timeout).min(self.limit.load(Ordering::Relaxed))
    }

    /// Changes what has to be undone.
    pub(super) fn note(&self, change: impl FnOnce(&mut Steps)) {
        change(&mut self.steps.lock());
    }

    /// Runs a command, and notes what has to be undone unless the device certainly refused it.
    pub(super) fn step<C: Command>(&self, command: &C, change: impl FnOnce(&mut Steps)) -> Result<C::Out, Error> {
        let result = self.exec(command);
        if !result.as_ref().is_err_and(|e| e.refused()) {
            self.note(change);
        }
        result
    }

    /// Whether the device may have something that nobody can end.
    pub(super) fn in_doubt(&self) -> bool {
        self.doubt.load(Ordering::Relaxed)
    }

    /// Why the device counts as failed.
    pub(crate) fn failure(&self) -> Option<Failure> {
        *self.failed.lock()
    }

    /// Whether the device counts as failed: nothing is told to it then. Takes no lock.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// From now on the device counts as failed; the first reason stands.
    pub(crate) fn fail(&self, why: Failure) {
        let mut failed = self.failed.lock();
        if failed.is_none() {
            *failed = Some(why);
            self.lost.store(true, Ordering::Release);
            self.events.on_failure(why);
        }
    }

    /// Tears the function down; the last thing that is done with it.
    pub(super) fn close(&self) -> Result<(), Error> {
        let result = tear_down(self);
        self.closed.store(true, Ordering::Relaxed);
        result
    }

    /// Memory that the device may still write to and that nothing else accounts for.
    pub(super) fn leaked(&self) -> Vec<Leaked> {
        let mut all = self.port.leaked();
        all.extend(self.queue.kept(self.closed.load(Ordering::Relaxed)));
        all
    }

    /// Runs a command.
    ///
    /// # Errors
    /// `Command` and `Delivery` as the device answers, `Timeout` without an answer, `NoMemory` for its mailboxes, `Failed`
    /// when the health watch finds while it waits that the device has failed, or it had before, and `Invalid` once the
    /// device has been closed.
    pub(crate) fn exec<C: Command>(&self, command: &C) -> Result<C::Out, Error> {
        self.exec_with(Patience::Full, command)
    }

    /// Runs a command as [`exec`](Self::exec) does, with as much patience as given.
    pub(crate) fn exec_with<C: Command>(&self, patience: Patience, command: &C) -> Result<C::Out, Error> {
        let timeouts = &self.config.timeouts;
        let timeout = match patience {
            Patience::Full => timeouts.command,
            Patience::Short => timeouts.command.min(timeouts.drop),
        };
        let deadline = self.deadline(timeout);
        let result = self.traced(command, false, deadline, timeout == timeouts.command);
        if patience == Patience::Short && result.is_err() {
            // What a drop could not end is still there, and nobody can end it any more.
            self.doubt.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Runs a page command, on the slot kept for them and without serving page requests meanwhile, for no longer than the
    /// time `until`: that of the command which waits for it.
    pub(crate) fn exec_pages<C: Command>(&self, until: u64, command: &C) -> Result<C::Out, Error> {
        let deadline = self.deadline(self.config.timeouts.command).min(until);
        self.traced(command, true, deadline, false)
    }

    fn traced<C: Command>(&self, command: &C, pages: bool, deadline: u64, patient: bool) -> Result<C::Out, Error> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::Invalid { what: "the device has been closed" });
        }
        let started = self.port.platform().now();
        let result = self.run(command, pages, deadline, patient);
        if result.as_ref().is_err_and(|e| !e.refused()) {
            self.doubt.store(true, Ordering::Relaxed);
        }
        if let Some(hook) = &self.config.trace {
            let duration = self.port.platform().now().saturating_sub(started);
            let result = result.as_ref().map(|_| ()).map_err(|e| *e);
            hook(&CommandTrace { opcode: C::OPCODE, result, started, duration });
        }
        result
    }

    /// `patient` says that a command which comes to its deadline has had all the time that commands have.
    fn run<C: Command>(&self, command: &C, pages: bool, deadline: u64, patient: bool) -> Result<C::Out, Error> {
        let failed = |sent| move |why| Error::Failed { why, command: Some(C::OPCODE), sent };
        let late = |waiting_for| Error::Timeout { opcode: C::OPCODE, waiting_for };
        // Before it rings at the door of a function that somebody else may have by now.
        self.look();
        if let Some(why) = self.failure() {
            return Err(failed(false)(why));
        }
        let free = |_| self.queue.claim(C::OPCODE, pages);
        let Some(mut claim) = self.wait(deadline, pages, free).map_err(failed(false))? else {
            self.overdue(patient && (self.queue.all_abandoned() || self.watch.counter_stopped()));
            return Err(late(WaitingFor::Slot));
        };
        claim.post(command)?;
        let answered = |last| claim.answered(self.port.platform().now(), last).then_some(());
        if self.wait(deadline, pages, answered).map_err(failed(true))?.is_none() {
            self.overdue(patient && (claim.overdue() || self.watch.counter_stopped()));
            return Err(late(WaitingFor::Completion));
        }
        claim.finish(command)
    }

    /// A command has come to its deadline; if all do, or the firmware's heartbeat has stopped, the device has failed.
    fn overdue(&self, all: bool) {
        if all {
            self.fail(self.watch.silence(&self.port));
        }
    }

    /// Waits until `ready` gives something, serving events meanwhile; `None` when the deadline has passed. `ready` is
    /// told whether this is the last time it is asked.
    fn wait<T>(&self, deadline: u64, pages: bool, ready: impl Fn(bool) -> Option<T>) -> Result<Option<T>, Failure> {
        loop {
            let now = self.port.platform().now();
            let last = now >= deadline;
            self.serve(pages, deadline);
            if let Some(value) = ready(last) {
                return Ok(Some(value));
            }
            if last {
                return Ok(None);
            }
            self.look();
            if let Some(why) = self.failure() {
                return Err(why);
            }
            self.idle(deadline.min(now.saturating_add(NAP)));
        }
    }

    /// Looks at the firmware's health, if it is time to.
    pub(crate) fn look(&self) {
        let (now, poll) = (self.port.platform().now(), self.config.timeouts.health_poll);
        if let Err(why) = self.watch.check(&self.port, now, poll) {
            self.fail(why);
        }
    }

    /// Lets a moment pass, so that a firmware that needs time is not asked without a break.
    pub(crate) fn pause(&self) {
        let until = self.deadline(NAP);
        while self.port.platform().now() < until {
            self.idle(until);
        }
    }

    fn idle(&self, until: u64) {
        if self.queue.events() {
            self.listeners.lead(INTERRUPT).sleep(self.port.platform(), until, NAP);
        } else {
            self.port.platform().relax();
        }
    }

    /// Takes the events that have come and serves page requests, for no longer than a command may take.
    pub(crate) fn service(&self) {
        self.serve(false, self.deadline(self.config.timeouts.command));
    }

    /// Takes the events that are there, and does nothing else.
    pub(crate) fn take_events(&self) {
        self.eqs.drain(!self.is_lost(), |entry| self.on_event(entry));
    }

    /// Takes the events that have come and, unless this is for a page command, serves page requests until `deadline`.
    fn serve(&self, pages: bool, deadline: u64) {
        self.take_events();
        if !pages {
            self.pages.serve(self, deadline);
        }
    }

    fn on_event(&self, entry: &[Be32; 16]) {
        let event = Eqe::from_words(entry).event();
        self.events.on_event(&event);
        match event {
            Event::Command { vector } => self.queue.on_event(vector),
            Event::PageRequest { func_id, num_pages, ec_function: false, release_all: false } => {
                self.pages.request(func_id, num_pages);
            }
            _ => {}
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if !self.closed.load(Ordering::Relaxed) {
            let limit = self.deadline(self.config.timeouts.drop);
            self.limit.store(limit, Ordering::Relaxed);
            // Whoever drops instead of closing does not want to know.
            let _ = self.close();
        }
    }
}
