//! The handle that users hold.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::bar;
use crate::calls::Calls;
use crate::config::ModelConfig;
use crate::data::CompletionCounts;
use crate::device::Device;
use crate::held::{Held, Release, ReleaseKind};
use crate::record::CommandRecord;
use crate::violation::Violation;

/// Longest jump of the virtual clock in one wait, in nanoseconds.
const LONGEST_WAIT: u64 = 1_000_000_000;
/// Longest step of `relax`, in nanoseconds.
const LONGEST_RELAX: u64 = 1_000_000;
/// How long the device's thread sleeps when nothing is due.
const IDLE: Duration = Duration::from_millis(1);
/// Register writes on their way, at most: who adds one more waits until the device has done them, as on a bus.
const MOST_POSTED: usize = 1024;

/// A software ConnectX function. Clones are handles to the same function.
///
/// It is a [`Platform`](mlx5_hw::platform::Platform) (memory, clock, interrupts) and a
/// [`Bar`](mlx5_hw::platform::Bar) (registers) in one. Time stands still but for [`step`](Self::step) and for the
/// driver's own waiting, unless [`spawn`](Self::spawn) ties it to the wall clock.
#[derive(Clone)]
pub struct Model {
    shared: Arc<Shared>,
}

struct Shared {
    device: Mutex<Device>,
    /// Register writes on their way to a device that runs on its own thread.
    posted: Mutex<VecDeque<Posted>>,
    /// Something was posted.
    doorbell: Condvar,
    /// An interrupt may have fired.
    interrupt: Condvar,
    /// The device runs on its own thread. Changes only under the locks of `device` and, with nothing in it, `posted`.
    threaded: AtomicBool,
    /// When it was tied to the wall clock, and the model time then.
    wall: Mutex<Option<(Instant, u64)>>,
    /// Arm doorbells of completion queues arrive before their write returns.
    arms_arrive_at_once: AtomicBool,
    write_combining: bool,
    /// Turns of wait loops while it ran on its own thread.
    relaxed: AtomicU64,
}

struct Posted {
    offset: usize,
    bytes: [u8; 64],
    len: usize,
}

impl Posted {
    fn arrive(&self, dev: &mut Device) {
        bar::write(dev, self.offset, &self.bytes[..self.len]);
        dev.run_due();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Model {
    /// A function as a port hands it over: reset, memory space and bus mastering on.
    pub fn new(config: ModelConfig) -> Self {
        let shared = Shared {
            write_combining: config.write_combining,
            device: Mutex::new(Device::new(config)),
            posted: Mutex::default(),
            doorbell: Condvar::new(),
            interrupt: Condvar::new(),
            threaded: AtomicBool::new(false),
            wall: Mutex::default(),
            arms_arrive_at_once: AtomicBool::new(false),
            relaxed: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The device, locked, with all register writes that were posted done and the wall clock caught up with.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Device> {
        let mut dev = lock(&self.shared.device);
        if self.is_threaded() {
            self.catch_up(&mut dev);
        }
        dev
    }

    fn catch_up(&self, dev: &mut Device) {
        dev.advance(self.wall_now());
        loop {
            let Some(write) = lock(&self.shared.posted).pop_front() else { break };
            write.arrive(dev);
        }
        // Only now: register writes that came together are one occasion.
        dev.run();
        self.interrupts_may_have_fired(dev);
    }

    pub(crate) fn is_threaded(&self) -> bool {
        self.shared.threaded.load(Ordering::Acquire)
    }

    pub(crate) fn combines_stores(&self) -> bool {
        self.shared.write_combining
    }

    /// A register write of 1, 2, 4 or 8 bytes, or a combined store of 64.
    pub(crate) fn register_write(&self, offset: usize, data: &[u8]) {
        let mut posted = lock(&self.shared.posted);
        if self.is_threaded() {
            let mut bytes = [0; 64];
            bytes[..data.len()].copy_from_slice(data);
            posted.push_back(Posted { offset, bytes, len: data.len() });
            let full = posted.len() >= MOST_POSTED;
            drop(posted);
            self.shared.doorbell.notify_one();
            let arm = bar::is_cq_arm(offset) && self.shared.arms_arrive_at_once.load(Ordering::Acquire);
            if full || arm {
                drop(self.lock());
            }
            return;
        }
        drop(posted);
        let mut dev = self.lock();
        dev.stir();
        bar::write(&mut dev, offset, data);
        dev.run();
    }

    /// The wall clock that model time is tied to, if it is, is ahead by `ns` more.
    pub(crate) fn wall_jumps(&self, ns: u64) {
        if let Some((_, base)) = &mut *lock(&self.shared.wall) {
            *base = base.saturating_add(ns);
        }
    }

    /// The model time by the wall clock.
    fn wall_now(&self) -> u64 {
        let wall = *lock(&self.shared.wall);
        wall.map_or(0, |(start, base)| base.saturating_add(start.elapsed().as_nanos() as u64))
    }

    /// A turn of a wait loop: time moves on, further with each turn in which nothing happens, but never past what is due.
    pub(crate) fn relax_once(&self) {
        if self.is_threaded() {
            self.shared.relaxed.fetch_add(1, Ordering::Relaxed);
            std::thread::yield_now();
            return;
        }
        let mut dev = self.lock();
        dev.calls.relaxes += 1;
        let step = dev.relax_step(LONGEST_RELAX);
        let until = dev.clock.now().saturating_add(step);
        let until = dev.clock.next_due().map_or(until, |due| due.min(until));
        dev.advance(until);
    }

    /// Waits for one of the interrupts `vectors`, which it takes, until `deadline`: the virtual clock jumps from one due thing to
    /// the next.
    pub(crate) fn wait_for(&self, vectors: &[u32], deadline: u64) {
        if self.is_threaded() {
            return self.wait_on_thread(vectors, deadline);
        }
        let mut dev = self.lock();
        dev.calls.wait(vectors);
        let end = deadline.min(dev.clock.now().saturating_add(LONGEST_WAIT));
        loop {
            dev.run();
            if dev.irqs.take_any(vectors) || dev.clock.now() >= end {
                return;
            }
            let next = dev.clock.next_due().map_or(end, |due| due.min(end));
            dev.clock.advance_to(next);
        }
    }

    fn wait_on_thread(&self, vectors: &[u32], deadline: u64) {
        let started = Instant::now();
        let mut dev = self.lock();
        dev.calls.wait(vectors);
        let end = deadline.min(dev.clock.now().saturating_add(LONGEST_WAIT));
        let most = Duration::from_nanos(end.saturating_sub(dev.clock.now()));
        while !dev.irqs.take_any(vectors) {
            let Some(left) = most.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) else { return };
            let waited = self.shared.interrupt.wait_timeout(dev, left.min(IDLE));
            dev = waited.unwrap_or_else(PoisonError::into_inner).0;
            self.catch_up(&mut dev);
        }
    }

    /// Runs the device on a thread of its own and by the wall clock, until the guard is dropped. Register writes are handed
    /// over to it. Once at a time: a second call while a guard lives gives a guard that does nothing.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn spawn(&self) -> std::io::Result<ModelThread> {
        let mut dev = self.lock();
        if self.is_threaded() {
            return Ok(ModelThread { model: self.clone(), running: None });
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (model, stopped) = (self.clone(), stop.clone());
        // It begins with waiting for the device, which is locked here.
        let handle = std::thread::Builder::new().name("mlx5-model".into()).spawn(move || model.run_thread(&stopped))?;
        *lock(&self.shared.wall) = Some((Instant::now(), dev.clock.now()));
        dev.writes_are_posted = true;
        let posted = lock(&self.shared.posted);
        self.shared.threaded.store(true, Ordering::Release);
        drop((posted, dev));
        Ok(ModelThread { model: self.clone(), running: Some(Running { stop, handle }) })
    }

    /// Ends the mode that [`spawn`](Self::spawn) began; what was posted is done before.
    fn stand_still(&self) {
        let mut dev = self.lock();
        let mut posted = lock(&self.shared.posted);
        for write in posted.drain(..) {
            write.arrive(&mut dev);
        }
        dev.run();
        dev.writes_are_posted = false;
        self.shared.threaded.store(false, Ordering::Release);
    }

    fn run_thread(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            let due = {
                let dev = self.lock();
                dev.clock.next_due().map(|due| due.saturating_sub(dev.clock.now()))
            };
            let sleep = due.map_or(IDLE, |ns| Duration::from_nanos(ns).min(IDLE));
            let posted = lock(&self.shared.posted);
            if posted.is_empty() && !sleep.is_zero() {
                drop(self.shared.doorbell.wait_timeout(posted, sleep));
            }
        }
    }

    /// How many completions were written so far, and how.
    pub fn completions(&self) -> CompletionCounts {
        self.lock().data.counts()
    }

    /// The rules that the driver has broken so far: the first 10,000 breaches.
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().violations.clone()
    }

    /// The violations so far, which are forgotten: for tests that commit them on purpose.
    pub fn take_violations(&self) -> Vec<Violation> {
        std::mem::take(&mut self.lock().violations)
    }

    /// The commands that the device has taken so far, in order: the first 65,536 of them.
    pub fn commands(&self) -> Vec<CommandRecord> {
        self.lock().cmdif.records.clone()
    }

    /// Calls `hear` with each command from now on, all of them, when it completes, and with one that does not when a reset
    /// drops it. The device stands still meanwhile: `hear` must not use this model.
    pub fn trace(&self, hear: impl FnMut(&CommandRecord) + Send + 'static) {
        self.lock().cmdif.listener = Some(Box::new(hear));
    }

    /// Ends [`trace`](Self::trace): it is told of the commands that have not completed, and is dropped.
    pub fn end_trace(&self) {
        let mut dev = self.lock();
        dev.cmdif.tell_pending();
        dev.cmdif.listener = None;
    }

    /// Memory that the driver has allocated and not freed: ranges and bytes.
    pub fn dma_outstanding(&self) -> (usize, usize) {
        self.lock().dma.outstanding()
    }

    /// Pages that firmware has.
    pub fn firmware_pages(&self) -> usize {
        self.lock().pages.count()
    }

    /// What the driver holds now.
    pub fn held(&self) -> Held {
        self.lock().held()
    }

    /// The most of each that the driver has held at one time.
    pub fn peak(&self) -> Held {
        self.lock().account.peak
    }

    /// Each time that the function was released, with what was left there: the first 1000 of them.
    pub fn releases(&self) -> Vec<Release> {
        self.lock().account.releases.clone()
    }

    /// How often the function was reset, by itself or with the whole device.
    pub fn resets(&self) -> u64 {
        self.lock().account.resets
    }

    /// Interrupts raised so far.
    pub fn interrupts(&self) -> u64 {
        self.lock().irqs.raised.iter().sum()
    }

    /// Interrupts raised so far on `vector`.
    pub fn interrupts_of(&self, vector: u32) -> u64 {
        self.lock().irqs.raised.get(vector as usize).copied().unwrap_or(0)
    }

    /// What the driver has asked of registers and of the port so far, by kind.
    pub fn calls(&self) -> Calls {
        let mut calls = self.lock().calls;
        calls.relaxes += self.shared.relaxed.load(Ordering::Relaxed);
        calls
    }

    /// Whether arm doorbells reach the device before their write returns, also when it runs on its own thread.
    pub(crate) fn let_arms_arrive_at_once(&self, at_once: bool) {
        self.shared.arms_arrive_at_once.store(at_once, Ordering::Release);
    }

    /// Reads `width` bytes (1, 2 or 4) of PCI configuration space, as a little-endian number.
    pub fn config_read(&self, offset: usize, width: usize) -> u32 {
        let dev = self.lock();
        if dev.present { dev.pci.read(offset, width) } else { u32::MAX }
    }

    /// Writes `width` bytes (1, 2 or 4) of PCI configuration space. Bit 15 of the device control register (0x68) resets the
    /// function; without the bus-master bit (command register, 0x04) it stops and drops what it has.
    pub fn config_write(&self, offset: usize, width: usize, value: u32) {
        self.lock().config_write(offset, width, value);
    }

    /// Resets the function and hands it over as a port does. Returns false when it is gone.
    pub(crate) fn reset_function(&self) -> bool {
        let mut dev = self.lock();
        if !dev.present {
            return false;
        }
        dev.note_release(ReleaseKind::FunctionReset);
        dev.reset();
        dev.pci.turn_on();
        true
    }

    /// As after power-on: memory space and bus mastering are off, until the client turns them on. What was left before is
    /// noted, when there was a client already.
    #[cfg(feature = "serve")]
    pub(crate) fn power_on(&self, after: Option<ReleaseKind>) {
        let mut dev = self.lock();
        if let Some(kind) = after {
            dev.note_release(kind);
        }
        if dev.present {
            dev.reset();
        }
    }

    /// The client is gone: the function is off the bus, and what it could reach is no longer there.
    #[cfg(feature = "serve")]
    pub(crate) fn power_off(&self) {
        let mut dev = self.lock();
        dev.reset();
        dev.irqs.silence();
        // Only a part of a range could be refused.
        let _ = dev.client_unmaps(None);
    }

    /// Size of BAR 0 in bytes, and MSI-X vectors.
    #[cfg(feature = "serve")]
    pub(crate) fn shape(&self) -> (usize, u32) {
        let dev = self.lock();
        (dev.config.bar_size, dev.config.vectors)
    }

    /// Commands taken.
    #[cfg(feature = "serve")]
    pub(crate) fn command_count(&self) -> u64 {
        self.lock().cmdif.count
    }

    /// Objects that are alive, in words.
    #[cfg(feature = "serve")]
    pub(crate) fn objects_alive(&self) -> Option<String> {
        self.lock().objects.alive()
    }

    /// Wakes who waits for an interrupt.
    pub(crate) fn interrupts_may_have_fired(&self, dev: &Device) {
        if dev.irqs.any() {
            self.shared.interrupt.notify_all();
        }
    }
}

impl Default for Model {
    fn default() -> Self {
        Self::new(ModelConfig::default())
    }
}

/// Guard of a model that runs on its own thread; dropping it stops the thread, and time stands still again.
pub struct ModelThread {
    model: Model,
    running: Option<Running>,
}

struct Running {
    /// Tells this thread, not one that is spawned while it ends.
    stop: Arc<AtomicBool>,
    handle: JoinHandle<()>,
}

impl Drop for ModelThread {
    fn drop(&mut self) {
        let Some(Running { stop, handle }) = self.running.take() else { return };
        self.model.stand_still();
        stop.store(true, Ordering::Release);
        self.model.shared.doorbell.notify_all();
        // A thread that panicked has nothing more to say here.
        let _ = handle.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn register_writes_on_their_way_are_bounded_and_all_arrive() {
        const WRITES: usize = 4 * MOST_POSTED;
        let model = Model::default();
        let _thread = model.spawn().unwrap();
        let dev = model.lock();
        std::thread::scope(|scope| {
            // A read-only register: each write that arrives is a violation.
            let writer = scope.spawn(|| (0..WRITES).for_each(|_| model.register_write(0, &[0; 4])));
            let start = Instant::now();
            while lock(&model.shared.posted).len() < MOST_POSTED && start.elapsed() < Duration::from_secs(20) {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(lock(&model.shared.posted).len(), MOST_POSTED);
            drop(dev);
            writer.join().unwrap();
        });
        assert_eq!(model.violations().len(), WRITES);
    }

    #[test]
    fn no_register_write_is_lost_and_time_does_not_go_back_when_the_mode_changes() {
        use mlx5_hw::platform::Platform;
        for round in 1..=600 {
            let model = Model::default();
            let over = AtomicBool::new(false);
            let written = std::thread::scope(|scope| {
                let thread = model.spawn().unwrap();
                let writer = scope.spawn(|| {
                    let (mut written, mut before) = (0, 0);
                    while !over.load(Ordering::Acquire) && written < 5000 {
                        model.register_write(0, &[0; 4]);
                        written += 1;
                        if round % 10 == 0 {
                            let now = model.now();
                            assert!(now >= before);
                            before = now;
                        }
                    }
                    written
                });
                drop(thread);
                over.store(true, Ordering::Release);
                writer.join().unwrap()
            });
            assert_eq!(model.violations().len(), written, "round {round}");
        }
    }

    #[test]
    fn a_guard_ends_its_own_thread_while_others_spawn_theirs() {
        let model = Model::default();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..200).for_each(|_| drop(model.spawn().unwrap())));
            }
        });
        assert!(!model.is_threaded());
    }
}
