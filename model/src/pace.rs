//! When completion events and interrupts come: at once, unless a test wants them late, together, or not at all.

use crate::device::Device;
use crate::eq::{self, Event};
use crate::model::Model;
use crate::time::Due;

/// When the completion events and the interrupts of an event queue come. Times are nanoseconds of model time, least and most;
/// each is drawn anew by the model's seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventPace {
    /// From a completion event to its entry. A second event of the same completion queue that is raised meanwhile is one with
    /// the first; those of several queues may change places.
    pub event_ns: (u64, u64),
    /// From an entry to its interrupt. What else the queue raises an interrupt for meanwhile is one with it.
    pub interrupt_ns: (u64, u64),
    /// Of so many interrupts one is lost, drawn by the model's seed: 1 loses all, 0 none. The queue is not armed any more, as if
    /// the interrupt had come.
    pub lose_one_in: u32,
}

/// An event queue, as its creator described it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventQueueInfo {
    /// Its number.
    pub eqn: u32,
    /// Its interrupt vector.
    pub vector: u32,
    /// Bit n: it reports events of type n. Completion events go to the queue that a completion queue names.
    pub event_mask: u64,
}

impl Model {
    /// The event queues that there are, by number.
    pub fn event_queues(&self) -> Vec<EventQueueInfo> {
        let dev = self.lock();
        let info = |(eqn, eq): (&u32, &crate::objects::Eq)| EventQueueInfo {
            eqn: *eqn,
            vector: eq.vector,
            event_mask: eq.event_mask,
        };
        dev.objects.eqs.iter().map(info).collect()
    }

    /// Sets the pace of an event queue, until it is destroyed; what is on its way keeps its time. False when there is no such
    /// queue.
    pub fn set_event_pace(&self, eqn: u32, pace: EventPace) -> bool {
        self.lock().objects.eqs.get_mut(&eqn).map(|eq| eq.pace = pace).is_some()
    }

    /// Whether an arm of a completion queue raises the event for entries behind the index in its doorbell, as cards do (true,
    /// the default), or only for those that come later, which is all that verbs promise. In the second case an arm doorbell
    /// has reached the device when its write returns: nothing could otherwise tell what came before it.
    pub fn set_arm_sees_waiting(&self, sees: bool) {
        let mut dev = self.lock();
        dev.arm_sees_waiting = sees;
        self.let_arms_arrive_at_once(!sees);
    }

    /// Whether an arm of a completion queue with the sequence number of one that has raised its event is taken for that one, which
    /// came twice, and raises nothing. False, the default: the number is not looked at.
    pub fn set_arm_needs_new_number(&self, needs: bool) {
        self.lock().arm_needs_new_number = needs;
    }
}

/// A number from `least` to `most`.
fn draw(dev: &mut Device, (least, most): (u64, u64)) -> u64 {
    if most <= least { least } else { least + (dev.random() >> 1) % (most - least).saturating_add(1) }
}

/// A completion queue has something to tell.
pub(crate) fn completion(dev: &mut Device, eqn: u32, cqn: u32) {
    let Some(eq) = dev.objects.eqs.get(&eqn).filter(|eq| !eq.held.contains_key(&cqn)) else { return };
    let delay = eq.pace.event_ns;
    let ns = draw(dev, delay);
    if ns == 0 {
        return eq::post(dev, eqn, Event::completion(cqn));
    }
    let at = dev.clock.now().saturating_add(ns);
    if let Some(eq) = dev.objects.eqs.get_mut(&eqn) {
        eq.held.insert(cqn, at);
    }
    dev.clock.after(ns, Due::Completion { eqn, cqn });
}

/// The time of a completion event has come; not if it belongs to a queue that had these numbers before.
pub(crate) fn arrives(dev: &mut Device, eqn: u32, cqn: u32) {
    let now = dev.clock.now();
    let Some(eq) = dev.objects.eqs.get_mut(&eqn) else { return };
    if eq.held.get(&cqn).is_some_and(|at| *at <= now) {
        eq.held.remove(&cqn);
        eq::post(dev, eqn, Event::completion(cqn));
    }
}

/// The event of a completion queue that is on its way arrives now.
pub(crate) fn release(dev: &mut Device, cqn: u32) {
    let Some(eqn) = dev.objects.cqs.get(&cqn).map(|cq| cq.eqn) else { return };
    if dev.objects.eqs.get_mut(&eqn).is_some_and(|eq| eq.held.remove(&cqn).is_some()) {
        eq::post(dev, eqn, Event::completion(cqn));
    }
}

/// An event queue raises its interrupt.
pub(crate) fn interrupt(dev: &mut Device, eqn: u32) {
    let Some(eq) = dev.objects.eqs.get(&eqn).filter(|eq| eq.interrupt_at.is_none()) else { return };
    let (EventPace { interrupt_ns, lose_one_in, .. }, vector) = (eq.pace, eq.vector);
    if lose_one_in > 0 && (dev.random() >> 1).is_multiple_of(lose_one_in.into()) {
        return;
    }
    let ns = draw(dev, interrupt_ns);
    if ns == 0 {
        return dev.interrupt(vector);
    }
    let at = dev.clock.now().saturating_add(ns);
    if let Some(eq) = dev.objects.eqs.get_mut(&eqn) {
        eq.interrupt_at = Some(at);
    }
    dev.clock.after(ns, Due::Interrupt { eqn });
}

/// The time of an interrupt has come; not if it belongs to a queue that had this number before.
pub(crate) fn interrupt_arrives(dev: &mut Device, eqn: u32) {
    let now = dev.clock.now();
    let Some(eq) = dev.objects.eqs.get_mut(&eqn) else { return };
    if eq.interrupt_at.is_some_and(|at| at <= now) {
        eq.interrupt_at = None;
        let vector = eq.vector;
        dev.interrupt(vector);
    }
}
