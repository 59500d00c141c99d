//! What a client's driver did, in a few lines.

use std::fmt;

use crate::data::CompletionCounts;
use crate::held::{Held, Release};
use crate::model::Model;
use crate::violation::Violation;

/// What a driver has done to a [`Model`] and what it has left there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Commands that the device has taken.
    pub commands: u64,
    /// Completions that it wrote, in each form, over all resets.
    pub completions: CompletionCounts,
    /// The rules that were broken.
    pub violations: Vec<Violation>,
    /// Objects that are alive, in words; `None` for none. Not a violation in itself: a reset drops them.
    pub objects: Option<String>,
    /// Pages that firmware has.
    pub pages: usize,
    /// Ranges of memory that the client has mapped for the device.
    pub maps: usize,
    /// Interrupt vectors that the client listens to.
    pub vectors: usize,
    /// The most of each that there was at one time.
    pub peak: Held,
    /// How often the function was reset.
    pub resets: u64,
    /// Each time that it was released before, and what was left then.
    pub releases: Vec<Release>,
}

impl Report {
    /// The report on `model` as it is now.
    pub fn of(model: &Model) -> Self {
        let (violations, commands, completions) = (model.violations(), model.command_count(), model.completions());
        let Held { pages, maps, vectors, .. } = model.held();
        let (objects, peak) = (model.objects_alive(), model.peak());
        let (resets, releases) = (model.resets(), model.releases());
        Self { commands, completions, violations, objects, pages, maps, vectors, peak, resets, releases }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "commands    {}", self.commands)?;
        let CompletionCounts { written, compressed, inlined, .. } = self.completions;
        writeln!(f, "completions {written} ({compressed} compressed, {inlined} with data in them)")?;
        writeln!(f, "violations  {}", self.violations.len())?;
        writeln!(f, "objects     {}", self.objects.as_deref().unwrap_or("none"))?;
        writeln!(f, "pages       {}", self.pages)?;
        writeln!(f, "maps        {}", self.maps)?;
        writeln!(f, "vectors     {}", self.vectors)?;
        writeln!(f, "peak        {}", self.peak)?;
        writeln!(f, "resets      {}", self.resets)?;
        self.releases.iter().try_for_each(|release| writeln!(f, "release: {release}"))?;
        self.violations.iter().try_for_each(|violation| writeln!(f, "violation: {violation}"))
    }
}
