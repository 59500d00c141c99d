//! A device: brought up, queried, torn down.

mod attr;
mod blue_flame;
mod bringup;
mod config;
mod control;
mod detached;
pub(crate) mod port;
mod teardown;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use mlx5_hw::cmd::Command;
use mlx5_hw::hca_vport::HcaVportContext;
use mlx5_hw::platform::{Bar, Platform};
use mlx5_hw::simd::Cpu;
use mlx5_hw::uar::PAGE_SIZE;

pub use attr::{Caps, DeviceInfo, PortState};
pub(crate) use blue_flame::BlueFlame;
pub use config::{CommandTrace, DeviceConfig, LeakHook, Timeouts, TraceHook};
pub(crate) use control::{Control, Patience};

use blue_flame::Registers;

use crate::clock::Clock;
use crate::cmdq::CommandCounters;
use crate::dma::{DmaRegion, Leaked, Port};
use crate::error::{Error, Failure, Returned};
pub use crate::events::EventCounters;
use crate::events::{AsyncEvent, CqNotice, Kind, Ticket};
use crate::gid::{Gid, Gids};
use crate::health::Health;
use crate::keys::Keys;
use crate::numbers::Numbers;
use crate::pages::PageCounters;
use crate::pages_of;

/// An open device.
///
/// [`close`](Self::close) gives everything back and tells what went wrong. Dropping it does the same as well as it can
/// within [`Timeouts::drop`]; while objects made from it are alive, the last of them does.
pub struct Device {
    inner: Arc<DeviceInner>,
}

impl Device {
    /// Brings a function up that the port has reset: firmware, pages, capabilities, event queues, port.
    ///
    /// # Errors
    /// `FirmwareNotReady` and `Unsupported` before the first command; then those of the commands. What was done is
    /// undone within [`Timeouts::drop`]; memory that the device may still write to and that no reset takes from it is kept
    /// for good and told to [`DeviceConfig::on_leak`].
    pub fn open(
        platform: impl Platform + 'static,
        bar: impl Bar + 'static,
        config: DeviceConfig,
    ) -> Result<Self, Error> {
        let port = Arc::new(Port::new(Arc::new(platform), Box::new(bar), config.on_leak.clone()));
        let control = bringup::connect(port, config)?;
        let made = bringup::bring_up(&control)?;
        let clock = Clock::new(control.port.clone(), &made.caps.general);
        let own = made.info.gid.filter(|_| made.info.ethernet);
        let gids = Gids::new(own.map(|gid| Gid { gid, mac: made.info.mac, vlan: None }));
        let blue_flames = Registers::new(&made.caps, control.port.bar().has_wc());
        let inner = DeviceInner {
            control,
            made,
            objects: AtomicUsize::new(0),
            numbers: Numbers::default(),
            keys: Keys::default(),
            clock,
            gids,
            blue_flames,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Tears the function down and gives everything back.
    ///
    /// # Errors
    /// `Busy` while objects made from the device are alive: it is as before. The first error of a step of the teardown;
    /// `MemoryKept` if all went well but memory of before stays with the device. After any error but `Busy` the device is closed
    /// all the same; it is handed back so that [`leaked`](Self::leaked) can be asked.
    pub fn close(self) -> Result<(), Returned<Self>> {
        let error = match self.inner.objects.load(Ordering::Acquire) {
            0 => match (self.inner.control.close(), self.leaked().len()) {
                (Ok(()), 0) => return Ok(()),
                (Ok(()), pieces) => Error::MemoryKept { pieces },
                (Err(e), _) => e,
            },
            _ => Error::Busy,
        };
        Err(Returned::new(self, error))
    }

    /// What the objects made from this device share.
    pub(crate) fn inner(&self) -> &Arc<DeviceInner> {
        &self.inner
    }

    /// Runs any command, as `mlx5dv_devx_general_cmd` does; what it makes is the caller's to undo.
    ///
    /// # Errors
    /// `Command` and `Delivery` as the device answers, `Timeout` without an answer, `NoMemory` for its mailboxes, `Failed`
    /// for a device that has [failed](Self::failure), and `Invalid` once the device has been closed.
    ///
    /// # Safety
    /// The command names no memory that the device must not reach, and takes nothing away that the driver still uses.
    pub unsafe fn general_cmd<C: Command>(&self, command: &C) -> Result<C::Out, Error> {
        self.inner.exec(command)
    }

    /// The reserved local key (`resd_lkey` of QUERY_SPECIAL_CONTEXTS), where the device offers one.
    ///
    /// # Safety
    /// A work request with this key reaches all memory that the platform has ever mapped for the device: addresses are I/O
    /// addresses and nothing checks them. The caller sees to it that only memory of its own is named.
    pub unsafe fn reserved_lkey(&self) -> Option<u32> {
        self.inner.made.resd_lkey
    }

    /// Identity of the function and its port.
    pub fn info(&self) -> &DeviceInfo {
        &self.inner.made.info
    }

    /// Capabilities in force.
    pub fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    /// Looks at the firmware's health now. A condition in which nothing is answered makes the device count as
    /// [failed](Self::failure).
    pub fn health(&self) -> Health {
        let control = &self.inner.control;
        let health = control.watch.look(&control.port, control.config.timeouts.health_poll);
        if let Some(why) = health.fatal() {
            control.fail(why);
        }
        health
    }

    /// Why the device counts as failed, if it does: it has been found to answer no command any more, so none is sent to it
    /// until it has been reset and opened again. Close it; destroying objects ends at once and keeps their memory till then.
    pub fn failure(&self) -> Option<Failure> {
        self.inner.control.failure()
    }

    /// The time of the platform's clock, in nanoseconds: what deadlines are times of. It never goes back.
    pub fn now(&self) -> u64 {
        self.inner.port().platform().now()
    }

    /// Serves the firmware's page requests and takes events. Commands do that while they wait; a program that runs none
    /// for long calls this now and then, or when interrupt vector 0 has fired.
    pub fn service(&self) {
        self.inner.control.service();
    }

    /// The oldest asynchronous event that nobody has taken yet (`ibv_get_async_event(3)`), waiting for one until the time
    /// `deadline` of the platform's clock. Nothing has to be acknowledged: taking it is all. Of more than 64 the oldest are
    /// dropped ([`EventCounters::dropped`]); when an object is destroyed, what nobody took of it goes with it.
    ///
    /// # Errors
    /// `NoEvent` (ETIMEDOUT) when none came in time; `Failed` for a device that has [failed](Self::failure), once its
    /// [`DeviceFatal`](AsyncEvent::DeviceFatal) has been taken: nothing more comes.
    pub fn get_async_event(&self, deadline: u64) -> Result<AsyncEvent, Error> {
        let control = &self.inner.control;
        let event = control.await_event(deadline, || control::INTERRUPT, || control.events.next());
        // A failure that the wait itself found has left an event.
        event.or_else(|error| control.events.next().ok_or(error))
    }

    /// The oldest asynchronous event that nobody has taken yet, without waiting (`ibv_get_async_event(3)` on a descriptor that
    /// does not block); `None` is its EAGAIN. Looks at the firmware's health too, at most every millisecond. Page requests are
    /// left to [`service`](Self::service), as serving them takes commands.
    pub fn try_get_async_event(&self) -> Option<AsyncEvent> {
        let control = &self.inner.control;
        control.take_events();
        control.look();
        control.events.next()
    }

    /// Memory that the device may still write to although its object is gone: kept until a reset, with its name.
    pub fn leaked(&self) -> Vec<Leaked> {
        self.inner.control.leaked()
    }

    /// What the command queue has seen.
    pub fn command_counters(&self) -> CommandCounters {
        self.inner.control.queue.counters()
    }

    /// What became of the firmware's page requests.
    pub fn page_counters(&self) -> PageCounters {
        self.inner.control.pages.counters()
    }

    /// Events that have come.
    pub fn event_counters(&self) -> EventCounters {
        self.inner.control.events.counters()
    }
}

impl core::fmt::Debug for Device {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Device").field("info", self.info()).finish_non_exhaustive()
    }
}

/// What all objects of a device share.
pub(crate) struct DeviceInner {
    control: Control,
    made: bringup::Brought,
    objects: AtomicUsize,
    numbers: Numbers,
    keys: Keys,
    clock: Clock,
    gids: Gids,
    blue_flames: Registers,
}

impl DeviceInner {
    /// Runs a command, see [`Control::exec`].
    pub(crate) fn exec<C: Command>(&self, command: &C) -> Result<C::Out, Error> {
        self.control.exec(command)
    }

    /// Runs a command, see [`Control::exec_with`].
    pub(crate) fn exec_with<C: Command>(&self, patience: Patience, command: &C) -> Result<C::Out, Error> {
        self.control.exec_with(patience, command)
    }

    /// State of a port now, and on InfiniBand its context.
    ///
    /// # Errors
    /// What the device answers.
    pub(crate) fn port_now(&self, port_num: u8) -> Result<(PortState, Option<HcaVportContext>), Error> {
        if port::is_ethernet(&self.caps().general) {
            return Ok((port::ethernet_state(&self.control)?, None));
        }
        let context = port::infiniband_context(&self.control, &self.caps().general, port_num)?;
        Ok((PortState::from_device(context.vport_state()), Some(context)))
    }

    /// Looks at the firmware's health, if it is time to.
    ///
    /// # Errors
    /// Why the device has failed, now or before.
    pub(crate) fn look(&self) -> Result<(), Failure> {
        self.control.look();
        self.control.failure().map_or(Ok(()), Err)
    }

    /// Memory for the device: `bytes` bytes that it is told of as pages, and `extra` bytes behind them. Aligned so that few
    /// pages cover it, or to one page where the platform has nothing better. [Lend](DmaRegion::lend) it before the
    /// command that names it.
    pub(crate) fn alloc_dma(&self, bytes: usize, extra: usize) -> Result<DmaRegion, Error> {
        let (port, size) = (&self.control.port, bytes.saturating_add(extra));
        match port.alloc(size, pages_of::alignment(bytes)) {
            Err(error) if error.of_memory() => port.alloc(size, 1 << pages_of::LOG_4K),
            other => other,
        }
    }

    /// The port's two traits.
    pub(crate) fn port(&self) -> &Arc<Port> {
        &self.control.port
    }

    /// Capabilities in force.
    pub(crate) fn caps(&self) -> &Caps {
        &self.made.caps
    }

    /// Instructions that polling may use.
    pub(crate) fn cpu(&self) -> Cpu {
        self.control.config.cpu
    }

    /// Version of the command interface (ISSI) in force.
    pub(crate) fn issi(&self) -> u16 {
        self.made.info.issi
    }

    /// Index of the UAR page that queues name in their contexts.
    pub(crate) fn uar_page(&self) -> u32 {
        self.made.uar
    }

    /// Fails if the device was found to have failed. Does not look, and takes no lock while it has not.
    ///
    /// # Errors
    /// `Failed`.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let why = if self.control.is_lost() { self.control.failure() } else { None };
        why.map_or(Ok(()), |why| Err(Error::Failed { why, command: None, sent: false }))
    }

    /// Writes a 64-bit doorbell, in the order of the bus, at `offset` of the UAR page. A device that has failed may be somebody
    /// else's by now: it is not told anything.
    pub(crate) fn ring_uar64(&self, offset: usize, value: u64) {
        if !self.control.is_lost() {
            self.control.port.bar().write64(self.made.uar as usize * PAGE_SIZE + offset, value);
        }
    }

    /// Writes a block of a work request to a BlueFlame buffer, `offset` bytes from the start of the UAR page. Between
    /// [flushes](mlx5_hw::arch::wc_flush); else as [`ring_uar64`](Self::ring_uar64).
    pub(crate) fn write_uar(&self, offset: usize, block: &[u64; 8]) {
        if !self.control.is_lost() {
            self.control.port.bar().write_combined(self.made.uar as usize * PAGE_SIZE + offset, block);
        }
    }

    /// The BlueFlame registers of its UAR page.
    pub(crate) fn blue_flames(&self) -> &Registers {
        &self.blue_flames
    }

    /// Number of the completion event queue of a vector.
    pub(crate) fn comp_eqn(&self, vector: u32) -> Option<u32> {
        self.made.completion_eqns.get(vector as usize).copied()
    }

    /// Keeps room in completion event queue `eqn` for the events of one more CQ; gives `eqn` back.
    ///
    /// # Errors
    /// `Invalid` if there is none.
    pub(crate) fn admit_events(&self, eqn: u32) -> Result<u32, Error> {
        let what = "one more CQ with a channel than the event queue of the completion vector has room for";
        if self.control.eqs.admit(eqn) { Ok(eqn) } else { Err(Error::Invalid { what }) }
    }

    /// Gives that room back, once the CQ is gone and its events have been taken.
    pub(crate) fn leave_events(&self, eqn: u32) {
        self.control.eqs.leave(eqn);
    }

    /// A CQ is about to ask for an event: the event queues must have room for it.
    pub(crate) fn before_request(&self) {
        if self.control.eqs.on_request() {
            self.control.take_events();
        }
    }

    /// The interrupt that the completion event queue of a vector raises.
    pub(crate) fn comp_interrupt(&self, vector: u32) -> u32 {
        self.control.config.interrupt_of(vector)
    }

    /// Takes the events that are there, and does nothing else.
    pub(crate) fn take_events(&self) {
        self.control.take_events();
    }

    /// Waits for an event, see [`Control::await_event`].
    pub(crate) fn await_event<T>(
        &self,
        deadline: u64,
        vectors: impl Fn() -> u64,
        ready: impl FnMut() -> Option<T>,
    ) -> Result<T, Error> {
        self.control.await_event(deadline, vectors, ready)
    }

    /// Number of completion vectors.
    pub(crate) fn num_comp_vectors(&self) -> u32 {
        self.made.completion_eqns.len() as u32
    }

    /// Numbers that the driver gives out.
    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Makes a CQ known to the event queues.
    pub(crate) fn register_cq(&self, notice: &Arc<CqNotice>) {
        self.control.take_events();
        self.control.events.insert_cq(notice.clone());
    }

    /// Takes a CQ out of the event queues' knowledge, with the events about it. DESTROY_CQ has returned.
    pub(crate) fn forget_cq(&self, notice: &Arc<CqNotice>) {
        self.control.take_events();
        self.control.events.remove_cq(notice);
    }

    /// Makes another object known to the event queues.
    pub(crate) fn register(&self, kind: Kind, number: u32, context: u64) -> Ticket {
        self.control.take_events();
        self.control.events.insert(kind, number, context)
    }

    /// Takes another object out of the event queues' knowledge, with the events about it. Its DESTROY has returned.
    pub(crate) fn forget(&self, ticket: Ticket) {
        self.control.take_events();
        self.control.events.remove(ticket);
    }

    /// The free-running counter, and what time of day it stands for.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// What is in the port's GID table.
    pub(crate) fn gids(&self) -> &Gids {
        &self.gids
    }

    /// Memory keys that are alive.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Counts an object that needs the device; it then cannot be closed.
    pub(crate) fn track(&self) {
        self.objects.fetch_add(1, Ordering::Relaxed);
    }

    /// An object is gone.
    pub(crate) fn untrack(&self) {
        self.objects.fetch_sub(1, Ordering::Release);
    }
}
