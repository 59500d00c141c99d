//! Asking for an event against the event's coming: what a CQ's owner does who sleeps (`src/events`, `mlx5_hw`'s rings, records and
//! barriers) against a device that completes one request at any moment. A wake-up that is lost is a thread that sleeps for ever,
//! which loom finds: here nobody looks again after a tenth of a second.

use alloc::sync::Arc;
use core::ptr::NonNull;

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use mlx5_hw::arch;
use mlx5_hw::dbrec::CqDbRec;
use mlx5_hw::eqe::{Eqe, Event};
use mlx5_hw::event_batch::EventBatch;
use mlx5_hw::platform::{DmaMem, Platform, PlatformError};
use mlx5_hw::prm::Layout;
use mlx5_hw::ring::{Cqe64, EqRing, Ring};
use mlx5_hw::sync::Ordering::{Acquire, Relaxed, Release};
use mlx5_hw::sync::{AtomicU32, granted};
use mlx5_hw::uar::CqArm;

use crate::lead::{Listeners, SLEEP};
use crate::line::{CqEvent, Line, Place};
use crate::proof::{Model, each_ordering_is_needed, fails};

/// The CQ's number.
const CQN: u32 = 5;
/// The arm doorbell has been rung; the word that it carries has this bit free.
const RUNG: u32 = 1 << 31;
/// The interrupt of all event queues.
const VECTORS: u64 = 1;

/// What the driver and the device share.
struct World {
    cq: Vec<AtomicU32>,
    /// Stands for the body of the CQ's entry.
    body: UnsafeCell<u32>,
    record: [AtomicU32; 2],
    /// The arm doorbell, on its way.
    doorbell: AtomicU32,
    /// The driver does not need an event any more.
    over: AtomicU32,
    /// What the device knows where doorbells are not on their way for long: armed.
    armed: Mutex<bool>,
    eq: Vec<AtomicU32>,
    events: Mutex<EqRing>,
    place: Option<Place>,
    listeners: Listeners,
    fired: Mutex<bool>,
    interrupt: Condvar,
}

// SAFETY: loom's cells panic when two threads use one without an order between them.
unsafe impl Sync for World {}

impl World {
    fn new() -> Arc<Self> {
        let words = || (0..16).map(|_| AtomicU32::new(0)).collect::<Vec<_>>();
        let (cq, eq) = (words(), words());
        Ring::<Cqe64>::init_memory(&cq);
        EqRing::init_memory(&eq);
        let line = crate::sync::Arc::new(Line::new());
        Arc::new(Self {
            cq,
            body: UnsafeCell::new(0),
            record: [AtomicU32::new(0), AtomicU32::new(u32::MAX)],
            doorbell: AtomicU32::new(0),
            over: AtomicU32::new(0),
            armed: Mutex::new(false),
            eq,
            events: Mutex::new(EqRing::new(0).unwrap()),
            place: Some(Line::join(&line, 0, CqEvent { cqn: CQN, context: 0 })),
            listeners: Listeners::default(),
            fired: Mutex::new(false),
            interrupt: Condvar::new(),
        })
    }

    fn place(&self) -> &Place {
        self.place.as_ref().unwrap()
    }

    /// The device completes a request.
    fn complete(&self) {
        // SAFETY: a number is there for as long as the cell.
        self.body.with_mut(|body| unsafe { *body = 7 });
        self.cq[15].store(0, granted(Release));
    }

    /// The device raises the CQ's event.
    fn raise(&self) {
        self.eq[14].store(CQN.to_be(), Relaxed);
        self.eq[15].store(0, granted(Release));
        *self.fired.lock().unwrap() = true;
        self.interrupt.notify_one();
    }

    /// The driver takes what the event queue has, under its lock.
    fn take_events(&self) {
        let mut ring = self.events.lock().unwrap();
        let mut batch = EventBatch::default();
        batch.fill(&mut ring.consume(&self.eq).unwrap());
        for event in batch.events() {
            assert_eq!(Eqe::from_words(event).event(), Event::Completion { cqn: CQN });
            self.place().raise();
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Where a model fails, loom has no locks any more, under which a place leaves its line.
        if std::thread::panicking() {
            core::mem::forget(self.place.take());
        }
    }
}

/// A port whose waits end with the interrupt, or one whose deadlines are over already.
struct Port<'a> {
    world: &'a World,
    patient: bool,
}

// SAFETY: it has no memory to give.
unsafe impl Platform for Port<'_> {
    fn alloc(&self, _: usize, _: usize) -> Result<DmaMem, PlatformError> {
        Err(PlatformError::NoMemory)
    }

    unsafe fn free(&self, _: DmaMem) {}

    fn now(&self) -> u64 {
        0
    }

    fn relax(&self) {
        thread::yield_now();
    }

    fn wait_any(&self, vectors: u64, _: u64) {
        assert_eq!(vectors, VECTORS);
        let mut fired = self.world.fired.lock().unwrap();
        while self.patient && !*fired {
            fired = self.world.interrupt.wait(fired).unwrap();
        }
        *fired = false;
    }

    fn pause(&self, _: u64) {
        thread::yield_now();
    }

    unsafe fn map(&self, _: NonNull<u8>, _: usize) -> Result<u64, PlatformError> {
        Err(PlatformError::Unsupported)
    }
}

/// What `Control::await_event` does. `look`: once more after it leads.
fn await_event(world: &World, look: bool) {
    let port = Port { world, patient: true };
    loop {
        world.take_events();
        let lead = world.listeners.lead(VECTORS);
        if look {
            world.take_events();
        }
        if world.place().take() {
            return;
        }
        lead.sleep(&port, u64::MAX, SLEEP);
    }
}

/// Whether the completion is there. Then it is whole.
fn poll(world: &World) -> bool {
    let mut ring = Ring::<Cqe64>::new(0).unwrap();
    let mut batch = ring.consume(&world.cq).unwrap();
    let found = batch.next().is_some();
    if found {
        // SAFETY: a number is there for as long as the cell.
        world.body.with(|body| assert_eq!(unsafe { *body }, 7));
    }
    found
}

/// What `Cq::wait` does: ask, look again if `look`, sleep. An event of this device always has its entry.
fn sleep_until_there_is_something(world: &World, ask: fn(&World), look: bool) {
    if poll(world) {
        return;
    }
    ask(world);
    if look && poll(world) {
        return;
    }
    await_event(world, true);
    assert!(poll(world), "an event without its entry");
}

/// Asks as `Cq::req_notify` does; the doorbell arrives later.
fn ask(world: &World) {
    let arm = CqArm::request(world.place().taken(), false, 0);
    CqDbRec::new(&world.record).set_arm(arm);
    arch::dma_wmb();
    world.doorbell.store(RUNG | arm.into_bits(), Relaxed);
}

/// Asks a device that tells of what comes later, and of nothing that it has.
fn ask_at_once(world: &World) {
    *world.armed.lock().unwrap() = true;
}

/// The doorbell, if it has arrived; its record says the same then.
fn rung(world: &World) -> bool {
    let word = world.doorbell.load(granted(Acquire));
    if word & RUNG != 0 {
        assert_eq!(u32::from_be(world.record[1].load(Relaxed)), word & !RUNG, "the doorbell came before its record");
    }
    word & RUNG != 0
}

/// A doorbell that is on its way tells how far the CQ was read, so that the device knows what nobody has seen.
fn an_arm_that_crosses_a_completion_wakes(look: bool) {
    let world = World::new();
    let device = thread::spawn({
        let world = world.clone();
        move || {
            let before = rung(&world);
            world.complete();
            while !before && !rung(&world) {
                if world.over.load(Relaxed) == 1 {
                    return;
                }
                thread::yield_now();
            }
            world.raise();
        }
    });
    sleep_until_there_is_something(&world, ask, look);
    world.over.store(1, Relaxed);
    device.join().unwrap();
}

/// A device that raises nothing for entries that it has when it is asked, which is all that the verbs promise.
fn an_arm_that_sees_nothing_of_before_wakes(look: bool) {
    let world = World::new();
    let device = thread::spawn({
        let world = world.clone();
        move || {
            world.complete();
            let armed = core::mem::take(&mut *world.armed.lock().unwrap());
            if armed {
                world.raise();
            }
        }
    });
    sleep_until_there_is_something(&world, ask_at_once, look);
    device.join().unwrap();
}

/// Another thread listens to the interrupt before this one, for something else, and goes when its time is over, with the interrupt.
fn a_leader_that_goes_wakes_the_next(look: bool) {
    let world = World::new();
    let device = thread::spawn({
        let world = world.clone();
        move || world.raise()
    });
    let other = thread::spawn({
        let world = world.clone();
        move || {
            let lead = world.listeners.lead(VECTORS);
            lead.sleep(&Port { world: &world, patient: false }, 0, 0);
            drop(lead);
            world.take_events();
        }
    });
    await_event(&world, look);
    device.join().unwrap();
    other.join().unwrap();
}

const MODELS: [Model; 4] = [
    ("an_arm_that_crosses_a_completion_wakes", || an_arm_that_crosses_a_completion_wakes(true)),
    ("an_arm_that_crosses_a_completion_wakes, without a second look", || an_arm_that_crosses_a_completion_wakes(false)),
    ("an_arm_that_sees_nothing_of_before_wakes", || an_arm_that_sees_nothing_of_before_wakes(true)),
    ("a_leader_that_goes_wakes_the_next", || a_leader_that_goes_wakes_the_next(true)),
];

/// Ours are the read and the write barrier and the two of who leads; the device's are its stores of `op_own` and of an event's owner,
/// and its load of the doorbell.
#[test]
fn arming_against_an_event_needs_each_ordering() {
    each_ordering_is_needed(&MODELS, &["hw/src/arch.rs", "src/events/lead.rs", "loom/src/events.rs"], 7);
}

#[test]
fn without_a_second_look_after_arming_a_wake_up_is_lost() {
    assert!(fails(|| an_arm_that_sees_nothing_of_before_wakes(false)));
}

#[test]
fn without_a_look_after_it_leads_a_waiter_loses_its_wake_up() {
    assert!(fails(|| a_leader_that_goes_wakes_the_next(false)));
}
