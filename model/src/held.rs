//! What a driver holds of the function: how much at most, and what of it was left when the function was released.

use std::fmt;

use crate::device::Device;

/// The most releases that are kept.
const MOST_RELEASES: usize = 1000;

/// What a driver holds at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// Objects of all kinds that it has created.
    pub objects: usize,
    /// Pages that firmware has from it.
    pub pages: usize,
    /// Ranges of memory that are mapped for the device.
    pub maps: usize,
    /// Bytes in them.
    pub bytes: u64,
    /// Interrupt vectors that somebody listens to, in another process.
    pub vectors: usize,
}

impl Held {
    /// The larger of each number.
    fn or_more(self, other: Self) -> Self {
        Self {
            objects: self.objects.max(other.objects),
            pages: self.pages.max(other.pages),
            maps: self.maps.max(other.maps),
            bytes: self.bytes.max(other.bytes),
            vectors: self.vectors.max(other.vectors),
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { objects, pages, maps, bytes, vectors } = self;
        write!(f, "objects {objects}, pages {pages}, maps {maps} ({bytes} bytes), vectors {vectors}")
    }
}

/// How a driver loses what it has of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseKind {
    /// The function was reset by itself: its own reset bit, or the port's `reset`.
    FunctionReset,
    /// The whole device was reset, as when the machine is.
    DeviceReset,
    /// Bus mastering was turned off.
    BusMasterOff,
    /// The function left the bus.
    Removed,
}

impl fmt::Display for ReleaseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FunctionReset => "function reset",
            Self::DeviceReset => "device reset",
            Self::BusMasterOff => "bus master off",
            Self::Removed => "removed",
        })
    }
}

/// One time that the function was released, with what was left there until then. That is no violation: a reset drops objects and
/// pages. Maps and vectors are the client's, and stay.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Release {
    /// What happened.
    pub kind: ReleaseKind,
    /// Commands that the device had taken by then.
    pub commands: u64,
    /// Those of them that had not completed.
    pub pending: usize,
    /// What was left.
    pub left: Held,
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, commands, pending, left } = self;
        write!(f, "{kind} after {commands} commands, {pending} pending: {left}")
    }
}

/// The account of a function since it was made.
#[derive(Default)]
pub(crate) struct Account {
    pub(crate) peak: Held,
    /// The first of them.
    pub(crate) releases: Vec<Release>,
    /// Resets of either kind.
    pub(crate) resets: u64,
}

impl Device {
    /// What a driver holds now.
    pub(crate) fn held(&self) -> Held {
        let (maps, bytes) = self.dma.outstanding();
        Held {
            objects: self.objects.count(),
            pages: self.pages.count(),
            maps,
            bytes: bytes as u64,
            vectors: self.irqs.listening(),
        }
    }

    /// Something has been added to what a driver holds.
    pub(crate) fn gained(&mut self) {
        self.account.peak = self.account.peak.or_more(self.held());
    }

    /// The function is about to be released.
    pub(crate) fn note_release(&mut self, kind: ReleaseKind) {
        let reset = matches!(kind, ReleaseKind::FunctionReset | ReleaseKind::DeviceReset);
        self.account.resets += u64::from(reset);
        if self.account.releases.len() < MOST_RELEASES {
            let (commands, pending) = (self.cmdif.count, self.cmdif.pending());
            let release = Release { kind, commands, pending, left: self.held() };
            self.account.releases.push(release);
        }
    }
}
