//! When the event of an armed completion queue is raised: at once, or after so many entries or so long a time as its
//! moderation says, whichever is first.

use super::{Timer, cq};
use crate::device::Device;
use crate::objects::CqArm;
use crate::pace;
use crate::time::Due;

/// What a queue keeps for its next event.
#[derive(Clone, Debug, Default)]
pub(super) struct Moderator {
    /// The queue is armed and has an entry to tell of: the event is held back.
    owed: bool,
    /// Entries since the last event.
    count: u64,
    /// When the last event was raised and the last entry written, in nanoseconds.
    last_event: u64,
    last_entry: u64,
    ticket: u64,
}

/// `count` entries were written.
pub(super) fn wrote(dev: &mut Device, cqn: u32, count: u32, solicited: bool) {
    let now = dev.clock.now();
    let moderator = &mut dev.data.cq(cqn).moderator;
    moderator.count += u64::from(count);
    moderator.last_entry = now;
    let armed = dev.objects.cqs.get(&cqn).and_then(|cq| cq.armed);
    if armed.is_some_and(|arm| solicited || !arm.solicited_only) {
        owe(dev, cqn, solicited);
    }
}

/// The queue is armed anew. `unseen`: an entry is there already that raises the event; and whether it is solicited.
pub(super) fn arm(dev: &mut Device, cqn: u32, arm: CqArm, unseen: Option<bool>) {
    let Some(cq) = dev.objects.cqs.get_mut(&cqn) else { return };
    cq.armed = Some(arm);
    dev.data.cq(cqn).moderator.owed = false;
    if let Some(solicited) = unseen {
        owe(dev, cqn, solicited);
    }
}

/// The moderation is another one.
pub(super) fn changed(dev: &mut Device, cqn: u32) {
    if dev.data.cq(cqn).moderator.owed {
        owe(dev, cqn, false);
    }
}

/// A period is over.
pub(super) fn expired(dev: &mut Device, cqn: u32, ticket: u64) {
    if dev.data.cqs.get(&cqn).is_some_and(|run| run.moderator.owed && run.moderator.ticket == ticket) {
        raise(dev, cqn);
    }
}

/// There is an event to raise: now, or when its time has come.
fn owe(dev: &mut Device, cqn: u32, solicited: bool) {
    let Some(moderation) = dev.objects.cqs.get(&cqn).map(|cq| cq.moderation) else { return };
    let (now, ticket) = (dev.clock.now(), dev.data.ticket());
    let moderator = &mut dev.data.cq(cqn).moderator;
    let start = if moderation.counts_from_entries() { moderator.last_entry } else { moderator.last_event };
    let due = start.saturating_add(1000 * moderation.period_us);
    let breaks = solicited && moderation.solicited_breaks;
    if !moderation.holds() || breaks || moderator.count >= moderation.max_count || due <= now {
        return raise(dev, cqn);
    }
    (moderator.owed, moderator.ticket) = (true, ticket);
    dev.clock.after(due - now, Due::Data(Timer::Moderation { cqn, ticket }));
}

fn raise(dev: &mut Device, cqn: u32) {
    let now = dev.clock.now();
    let moderator = &mut dev.data.cq(cqn).moderator;
    (moderator.owed, moderator.count, moderator.last_event) = (false, 0, now);
    let Some(cq) = dev.objects.cqs.get_mut(&cqn) else { return };
    cq.armed = None;
    let eqn = cq.eqn;
    cq::answered(dev, cqn);
    pace::completion(dev, eqn, cqn);
}
