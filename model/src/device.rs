//! The device: all state behind the PCI function, and what every part of it needs — time, memory access, interrupts, and
//! a place to record violations.

use crate::calls::Calls;
use crate::clocks::WallClock;
use crate::cmdif::CommandInterface;
use crate::config::ModelConfig;
use crate::data;
use crate::dma::{DmaFault, DmaSpace};
use crate::eq;
use crate::flame::Flames;
use crate::hca::{Hca, HcaState};
use crate::held::{Account, ReleaseKind};
use crate::irqs::Irqs;
use crate::iseg::InitSegment;
use crate::knobs::Faults;
use crate::objects::{Buffer, Objects};
use crate::pace;
use crate::pages::Pages;
use crate::pci::{ConfigAction, ConfigSpace};
use crate::time::{Clock, Due};
use crate::violation::{Violation, ViolationKind};

/// Where device addresses start: not where any host has its memory.
const IOVA_BASE: u64 = 0x0b00_0000_0000;
/// The most violations kept.
const MAX_VIOLATIONS: usize = 10_000;

/// The whole function. One lock guards it.
pub(crate) struct Device {
    pub(crate) config: ModelConfig,
    pub(crate) clock: Clock,
    pub(crate) wall_clock: WallClock,
    pub(crate) dma: DmaSpace,
    pub(crate) pci: ConfigSpace,
    pub(crate) iseg: InitSegment,
    pub(crate) cmdif: CommandInterface,
    pub(crate) hca: Hca,
    pub(crate) pages: Pages,
    pub(crate) faults: Faults,
    pub(crate) objects: Objects,
    pub(crate) data: data::DataPath,
    pub(crate) irqs: Irqs,
    pub(crate) violations: Vec<Violation>,
    pub(crate) account: Account,
    /// The function answers; false after a surprise removal.
    pub(crate) present: bool,
    /// The port's link is up: a cable, which no reset touches.
    pub(crate) link_up: bool,
    /// An arm raises an event for entries that are there already.
    pub(crate) arm_sees_waiting: bool,
    /// An arm whose sequence number is that of one which was answered is that one, and raises nothing.
    pub(crate) arm_needs_new_number: bool,
    /// What the driver has asked of registers and of the port.
    pub(crate) calls: Calls,
    /// First half of an 8-byte doorbell that came as two writes: UAR page, offset, value.
    pub(crate) half_doorbell: Option<(u32, usize, u32)>,
    /// What the BlueFlame buffers hold.
    pub(crate) flames: Flames,
    /// Register writes reach the device later than they were made, and find memory as it is by then.
    pub(crate) writes_are_posted: bool,
    /// Turns of a wait loop in which nothing happened.
    idle: u32,
    rng: u64,
}

impl Device {
    pub(crate) fn new(config: ModelConfig) -> Self {
        let irqs = Irqs::new(config.vectors);
        let mut pci = ConfigSpace::new(&config);
        pci.turn_on();
        Self {
            pci,
            iseg: InitSegment::new(config.boot_ns),
            cmdif: CommandInterface::default(),
            hca: Hca::new(&config),
            pages: Pages::default(),
            faults: Faults::default(),
            rng: config.seed ^ 0x9e37_79b9_7f4a_7c15,
            dma: DmaSpace::new(IOVA_BASE),
            clock: Clock::default(),
            wall_clock: WallClock::Ahead(0),
            objects: Objects::default(),
            data: data::DataPath::default(),
            irqs,
            violations: Vec::new(),
            account: Account::default(),
            present: true,
            link_up: config.link_up,
            arm_sees_waiting: true,
            arm_needs_new_number: false,
            calls: Calls::default(),
            half_doorbell: None,
            flames: Flames::default(),
            writes_are_posted: false,
            idle: 0,
            config,
        }
    }

    /// Records a violation.
    pub(crate) fn violate(&mut self, kind: ViolationKind, detail: impl Into<String>) {
        if self.violations.len() < MAX_VIOLATIONS {
            let at = self.clock.now();
            self.violations.push(Violation { kind, at, detail: detail.into() });
        }
    }

    /// A pseudo-random number; the sequence depends on the seed alone (xorshift64*).
    pub(crate) fn random(&mut self) -> u64 {
        self.rng |= u64::from(self.rng == 0);
        self.rng ^= self.rng >> 12;
        self.rng ^= self.rng << 25;
        self.rng ^= self.rng >> 27;
        self.rng.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Runs what is due by now, and writes what waited for more to come due.
    pub(crate) fn run(&mut self) {
        self.run_due();
        while data::settle(self) {
            self.run_due();
        }
    }

    /// Runs what is due by now.
    pub(crate) fn run_due(&mut self) {
        while let Some(due) = self.clock.pop_due() {
            self.stir();
            match due {
                Due::CommandDone { slot, ticket } => self.command_done(slot, ticket),
                Due::Event(late) => eq::deliver(self, late),
                Due::Completion { eqn, cqn } => pace::arrives(self, eqn, cqn),
                Due::Interrupt { eqn } => pace::interrupt_arrives(self, eqn),
                Due::Data(timer) => data::timer(self, timer),
            }
        }
    }

    /// Moves the clock to `until` and runs what becomes due on the way, each at its own time.
    pub(crate) fn advance(&mut self, until: u64) {
        self.run();
        while let Some(due) = self.clock.next_due().filter(|due| *due <= until) {
            self.clock.advance_to(due);
            self.run();
        }
        self.clock.advance_to(until);
    }

    /// Raises MSI-X interrupt `vector`.
    pub(crate) fn interrupt(&mut self, vector: u32) {
        if self.on_bus() {
            self.irqs.raise(vector);
        }
    }

    fn check(&mut self, what: &str, iova: u64, len: usize, done: Result<(), DmaFault>) -> Result<(), DmaFault> {
        let kind = match done {
            Ok(()) | Err(DmaFault::Blocked) => return done,
            Err(DmaFault::Unmapped) => ViolationKind::DmaUnmapped,
            Err(DmaFault::Denied) => ViolationKind::DmaUnmapped,
            Err(DmaFault::Freed) => ViolationKind::DmaAfterFree,
        };
        let why = if done == Err(DmaFault::Denied) { ", which is read only or not memory" } else { "" };
        self.violate(kind, format!("{what}: {len} bytes at {iova:#x}{why}"));
        done
    }

    /// The device reads `buf.len()` bytes. A range that is not mapped is a violation; `what` names the purpose in it.
    pub(crate) fn dma_read(&mut self, what: &str, iova: u64, buf: &mut [u8]) -> Result<(), DmaFault> {
        if !self.on_bus() {
            return Err(DmaFault::Blocked);
        }
        let done = self.dma.read(iova, buf);
        self.check(what, iova, buf.len(), done)
    }

    /// The device writes `buf`, lowest address first, the last word with release ordering. A range that is not mapped is a
    /// violation; `what` names the purpose in it.
    pub(crate) fn dma_write(&mut self, what: &str, iova: u64, buf: &[u8]) -> Result<(), DmaFault> {
        if !self.on_bus() {
            return Err(DmaFault::Blocked);
        }
        let done = self.dma.write(iova, buf);
        self.check(what, iova, buf.len(), done)
    }

    /// Reads a big-endian 32-bit word, such as a doorbell record.
    pub(crate) fn dma_read_be32(&mut self, what: &str, iova: u64) -> Result<u32, DmaFault> {
        let mut word = [0; 4];
        self.dma_read(what, iova, &mut word)?;
        Ok(u32::from_be_bytes(word))
    }

    /// Reads from byte `at` of a queue's buffer, across its pages.
    pub(crate) fn buffer_read(&mut self, what: &str, from: &Buffer, at: u64, buf: &mut [u8]) -> Result<(), DmaFault> {
        let mut done = 0;
        while done < buf.len() {
            let (iova, together) = from.at(at + done as u64).ok_or(DmaFault::Unmapped)?;
            let len = (buf.len() - done).min(together as usize);
            self.dma_read(what, iova, &mut buf[done..done + len])?;
            done += len;
        }
        Ok(())
    }

    /// Writes an entry at byte `at` of a queue's buffer. Entries do not straddle pages.
    pub(crate) fn buffer_write(&mut self, what: &str, to: &Buffer, at: u64, buf: &[u8]) -> Result<(), DmaFault> {
        let (iova, _) = to.at(at).ok_or(DmaFault::Unmapped)?;
        self.dma_write(what, iova, buf)
    }

    /// The port's LID; that of no port while there is no link, as cards show it.
    pub(crate) fn lid(&self) -> u16 {
        if self.link_up { self.config.lid } else { 0xffff }
    }

    /// Whether a LID is one of the port's: 2^`lmc` from its own on.
    pub(crate) fn owns_lid(&self, lid: u16) -> bool {
        self.link_up && lid.checked_sub(self.config.lid).is_some_and(|path| path >> self.config.lmc.min(7) == 0)
    }

    /// Whether the function is there and may access memory.
    pub(crate) fn on_bus(&self) -> bool {
        self.present && self.pci.bus_master()
    }

    /// Whether the function answers to register accesses.
    pub(crate) fn reachable(&self) -> bool {
        self.present && self.pci.memory_space()
    }

    /// What the device may still access at any of `len` bytes from `iova` on, in words.
    pub(crate) fn owner_of(&self, iova: u64, len: u64) -> Option<String> {
        if !self.on_bus() {
            return None;
        }
        if self.pages.owns(iova, len) {
            return Some("firmware's pages".into());
        }
        if self.cmdif.owns(iova, len, self.hca.state != HcaState::Disabled) {
            return Some("the command interface".into());
        }
        self.objects.owner_of(iova, len)
    }

    /// Memory is given back to the host: the device must not own it.
    pub(crate) fn check_not_owned(&mut self, iova: u64, len: usize) {
        if let Some(owner) = self.owner_of(iova, len as u64) {
            self.violate(ViolationKind::FreedWhileOwned, format!("{len} bytes at {iova:#x}, in use by {owner}"));
        }
    }

    /// A client takes memory away from the device, all of it when `range` is `None`: it must not own any of it.
    #[cfg(feature = "serve")]
    pub(crate) fn client_unmaps(&mut self, range: Option<(u64, u64)>) -> Result<(), crate::dma::UnmapError> {
        for (start, len) in self.dma.foreign_in(range)? {
            self.check_not_owned(start, usize::try_from(len).unwrap_or(usize::MAX));
            self.dma.unmap_foreign(start);
        }
        Ok(())
    }

    /// The function is pulled out: nothing is reached any more in either direction.
    pub(crate) fn remove(&mut self) {
        self.note_release(ReleaseKind::Removed);
        self.stop();
        self.cmdif.reset();
        self.present = false;
    }

    /// Something happens: a wait loop that starts now is not an idle one.
    pub(crate) fn stir(&mut self) {
        self.idle = 0;
    }

    /// How far the clock moves in the next turn of a wait loop: doubled while nothing happens, up to `most`.
    pub(crate) fn relax_step(&mut self, most: u64) -> u64 {
        let step = self.config.relax_ns.checked_shl(self.idle).unwrap_or(most).min(most);
        self.idle = (self.idle + 1).min(32);
        step.max(1)
    }

    /// Forgets all objects, as a teardown does.
    pub(crate) fn drop_objects(&mut self) {
        self.objects = Objects::default();
        self.flames.clear();
        data::reset(self);
    }

    /// Stops all that goes on and drops all objects and pages: what a reset does, and losing the bus.
    fn stop(&mut self) {
        self.clock.clear();
        self.pages.reset();
        self.drop_objects();
        self.half_doorbell = None;
        self.irqs.clear();
        self.hca = Hca::new(&self.config);
    }

    /// A function-level reset: everything is as after power-on, and firmware boots.
    pub(crate) fn reset(&mut self) {
        self.stop();
        self.cmdif.reset();
        self.pci = ConfigSpace::new(&self.config);
        let booted_at = self.clock.now().saturating_add(self.config.boot_ns);
        self.iseg = InitSegment::new(booted_at);
    }

    /// A write to configuration space.
    pub(crate) fn config_write(&mut self, offset: usize, width: usize, value: u32) {
        if !self.present {
            return;
        }
        match self.pci.write(offset, width, value) {
            ConfigAction::Reset => {
                self.note_release(ReleaseKind::FunctionReset);
                self.reset();
            }
            ConfigAction::BusMaster(false) => {
                self.note_release(ReleaseKind::BusMasterOff);
                self.stop();
                self.cmdif.abandon();
            }
            ConfigAction::BusMaster(true) | ConfigAction::Nothing => (),
        }
    }
}
