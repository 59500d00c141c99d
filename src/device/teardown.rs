//! Back from an open device to one that has nothing of the host's.
//!
//! The reverse of the bring-up. A step that fails does not stop the following ones where they still make sense; the
//! first error is reported. What could not be ended is freed if the platform can reset the function, else it is kept
//! in the ledger of leaked memory.

use mlx5_hw::cmd::{
    DeallocUar, DisableHca, ModifyNicVportContext, SetRoceAddress, TeardownHca, TeardownProfile, TeardownState,
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

/// Remembers the first error of several steps.
struct First(Result<(), Error>);

impl First {
    fn note(&mut self, result: Result<(), Error>) -> bool {
        let good = result.is_ok();
        if self.0.is_ok() {
            self.0 = result;
        }
        good
    }
}

/// Undoes the bring-up as far as it went; doing it again does nothing.
///
/// # Errors
/// The first error of a step. There is nothing left to be undone then either.
pub(super) fn tear_down(control: &Control) -> Result<(), Error> {
    let mut steps = Steps::default();
    control.note(|s| core::mem::swap(s, &mut steps));
    let mut first = First(Ok(()));
    port(control, &steps, &mut first);
    while let Some(result) = control.eqs.destroy_last(control) {
        first.note(result);
    }
    control.queue.set_events(false);
    if let Some(uar) = steps.uar {
        first.note(control.exec(&DeallocUar { uar }));
    }
    let mut stopped = true;
    if steps.initialised {
        stopped = first.note(stop(control));
    }
    if stopped {
        first.note(control.pages.reclaim(control));
    }
    if steps.enabled && stopped {
        first.note(control.exec(&DisableHca));
    }
    control.pages.abandon();
    if first.0.is_err() || control.queue.in_flight() > 0 || !control.port.leaked().is_empty() {
        // Where the platform cannot reset, what is left stays in the ledger.
        let _ = control.port.reset();
    }
    first.0
}

fn port(control: &Control, steps: &Steps, first: &mut First) {
    if steps.gid {
        first.note(control.exec(&SetRoceAddress { index: 0, address: RoceAddrLayout::new() }));
    }
    if steps.roce {
        let context = NicVportContext::new();
        let off = ModifyNicVportContext { field_select: ModifyNicVportContext::ROCE_EN, context };
        first.note(control.exec(&off));
    }
}

fn stop(control: &Control) -> Result<(), Error> {
    match control.exec(&TeardownHca { profile: TeardownProfile::Graceful })? {
        TeardownState::SUCCESS => Ok(()),
        _ => Err(Error::Protocol { what: "TEARDOWN_HCA answered that it had failed" }),
    }
}
