//! Running commands: the one place where the driver waits.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use mlx5_hw::cmd::{Command, Opcode};

use super::config::{CommandTrace, DeviceConfig};
use crate::cmdq::CommandQueue;
use crate::dma::Port;
use crate::error::{Error, WaitingFor};

/// Longest sleep for an interrupt, in nanoseconds: it may have gone to another thread, or be lost.
const NAP: u64 = 1_000_000;

/// What it takes to run commands on a function.
pub(crate) struct Control {
    pub(crate) port: Arc<Port>,
    pub(crate) config: DeviceConfig,
    pub(crate) queue: CommandQueue,
    /// No wait lasts beyond this time of the platform's clock.
    limit: AtomicU64,
}

impl Control {
    pub(crate) fn new(port: Arc<Port>, config: DeviceConfig, queue: CommandQueue) -> Self {
        Self { port, config, queue, limit: AtomicU64::new(u64::MAX) }
    }

    /// The time of the platform's clock that is `timeout` nanoseconds away.
    pub(crate) fn deadline(&self, timeout: u64) -> u64 {
        self.port.platform().now().saturating_add(timeout).min(self.limit.load(Ordering::Relaxed))
    }

    /// Lets no wait last longer than `timeout` nanoseconds from now, all together.
    pub(crate) fn hurry(&self, timeout: u64) {
        let limit = self.deadline(timeout);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Runs a command.
    ///
    /// # Errors
    /// `Command` and `Delivery` as the device answers, `Timeout` without an answer, `NoMemory` for its mailboxes, and
    /// what the health watch finds while it waits.
    pub(crate) fn exec<C: Command>(&self, command: &C) -> Result<C::Out, Error> {
        self.traced(command, false)
    }

    /// Runs a page command, on the slot kept for them and without serving page requests meanwhile.
    pub(crate) fn exec_pages<C: Command>(&self, command: &C) -> Result<C::Out, Error> {
        self.traced(command, true)
    }

    fn traced<C: Command>(&self, command: &C, pages: bool) -> Result<C::Out, Error> {
        let started = self.port.platform().now();
        let result = self.run(command, pages);
        if let Some(hook) = &self.config.trace {
            let duration = self.port.platform().now().saturating_sub(started);
            let result = result.as_ref().map(|_| ()).map_err(|e| *e);
            hook(&CommandTrace { opcode: C::OPCODE, result, started, duration });
        }
        result
    }

    fn run<C: Command>(&self, command: &C, pages: bool) -> Result<C::Out, Error> {
        let deadline = self.deadline(self.config.timeouts.command);
        let late = |waiting_for| Error::Timeout { opcode: C::OPCODE, waiting_for };
        let claim = |_| self.queue.claim(C::OPCODE, pages);
        let mut claim = self.wait(deadline, pages, claim)?.ok_or(late(WaitingFor::Slot))?;
        claim.post(command)?;
        let answered = |last| claim.answered(self.port.platform().now(), last).then_some(());
        self.wait(deadline, pages, answered)?.ok_or(late(WaitingFor::Completion))?;
        claim.finish(command)
    }

    /// Waits until `ready` gives something, serving events meanwhile; `None` when the deadline has passed. `ready` is
    /// told whether this is the last time it is asked.
    fn wait<T>(
        &self,
        deadline: u64,
        pages: bool,
        mut ready: impl FnMut(bool) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        loop {
            let now = self.port.platform().now();
            let last = now >= deadline;
            if let Some(value) = ready(last) {
                return Ok(Some(value));
            }
            if last {
                return Ok(None);
            }
            self.serve(pages);
            self.idle(deadline.min(now.saturating_add(NAP)));
        }
    }

    fn serve(&self, _pages: bool) {}

    fn idle(&self, _until: u64) {
        self.port.platform().relax();
    }

    /// What a failed command of this opcode would be reported as when its time is up.
    pub(crate) fn timeout(opcode: Opcode, waiting_for: WaitingFor) -> Error {
        Error::Timeout { opcode, waiting_for }
    }
}
