//! Back from an open device to one that has nothing of the host's.
//!
//! The reverse of the bring-up. After a step that fails the function is reset, if the platform can do that; else the
//! remaining steps follow where they still make sense, and what could not be ended stays in the ledger of leaked
//! memory. The first error is reported.

use mlx5_hw::cmd::{
    Command, DeallocUar, DisableHca, ModifyNicVportContext, SetRoceAddress, TeardownHca, TeardownProfile, TeardownState,
};
use mlx5_hw::nic_vport::NicVportContext;
use mlx5_hw::roce_address::RoceAddrLayout;

use super::control::Control;
use crate::error::Error;

/// What the device has taken, or may have.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// ENABLE_HCA.
    pub(super) enabled: bool,
    /// INIT_HCA.
    pub(super) initialised: bool,
    /// ALLOC_UAR.
    pub(super) uar: Option<u32>,
    /// RoCE is on.
    pub(super) roce: bool,
    /// The first GID is set.
    pub(super) gid: bool,
}

/// Undoes the bring-up as far as it went; doing it again does nothing.
///
/// # Errors
/// The first error of a step. There is nothing left to be undone then either.
pub(super) fn tear_down(control: &Control) -> Result<(), Error> {
    let mut steps = Steps::default();
    control.note(|s| core::mem::swap(s, &mut steps));
    let mut undoing = Undoing { control, first: Ok(()), tried: false, reset: false };
    if control.in_doubt() {
        undoing.reset();
    }
    undoing.port(&steps);
    undoing.event_queues();
    undoing.function(&steps);
    control.pages.abandon();
    if !control.leaked().is_empty() {
        undoing.reset();
    }
    undoing.first
}

/// A teardown on its way.
///
/// After a failure nobody knows what the device still has, and the commands that follow may be wrong. A reset settles
/// that; where the platform has none, the remaining steps are tried all the same, as Linux does.
struct Undoing<'a> {
    control: &'a Control,
    first: Result<(), Error>,
    /// A reset was tried: one that fails may take long, and does no better the next time.
    tried: bool,
    /// The function was reset: there is nothing more to undo.
    reset: bool,
}

impl Undoing<'_> {
    fn reset(&mut self) {
        if !core::mem::replace(&mut self.tried, true) && self.control.port.reset().is_ok() {
            self.reset = true;
            self.control.queue.set_enabled(false);
        }
    }

    /// Notes how a step ended; tells whether it went well.
    fn note(&mut self, result: Result<(), Error>) -> bool {
        let good = result.is_ok();
        if !good {
            self.first = self.first.and(result);
            self.reset();
        }
        good
    }

    /// Runs a command, unless there is nothing left to undo; tells whether that went well.
    fn run<C: Command<Out = ()>>(&mut self, command: &C) -> bool {
        !self.reset && self.note(self.control.exec(command))
    }

    fn port(&mut self, steps: &Steps) {
        if steps.gid {
            self.run(&SetRoceAddress { index: 0, address: RoceAddrLayout::new() });
        }
        if steps.roce {
            let context = NicVportContext::new();
            self.run(&ModifyNicVportContext { field_select: ModifyNicVportContext::ROCE_EN, context });
        }
    }

    fn event_queues(&mut self) {
        while !self.reset
            && let Some(result) = self.control.eqs.destroy_last(self.control)
        {
            self.note(result);
        }
        self.control.queue.set_events(false);
        self.control.eqs.clear();
    }

    fn function(&mut self, steps: &Steps) {
        if let Some(uar) = steps.uar {
            self.run(&DeallocUar { uar });
        }
        if steps.initialised && !self.reset && !self.note(stop(self.control)) {
            return;
        }
        if !self.reset {
            self.note(self.control.pages.reclaim(self.control));
        }
        if steps.enabled && self.run(&DisableHca) {
            self.control.queue.set_enabled(false);
        }
    }
}

fn stop(control: &Control) -> Result<(), Error> {
    match control.exec(&TeardownHca { profile: TeardownProfile::Graceful })? {
        TeardownState::SUCCESS => Ok(()),
        _ => Err(Error::Protocol { what: "TEARDOWN_HCA answered that it had failed" }),
    }
}
