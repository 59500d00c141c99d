//! What a client's driver did, in a few lines.

use std::fmt;

use crate::model::Model;
use crate::violation::Violation;

/// What a driver has done to a [`Model`] and what it has left there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Commands that the device has taken.
    pub commands: u64,
    /// The rules that were broken.
    pub violations: Vec<Violation>,
    /// Objects that are alive, in words; `None` for none. Not a violation in itself: a reset drops them.
    pub objects: Option<String>,
    /// Pages that firmware has.
    pub pages: usize,
}

impl Report {
    /// The report on `model` as it is now.
    pub fn of(model: &Model) -> Self {
        let (violations, commands) = (model.violations(), model.command_count());
        Self { commands, violations, objects: model.objects_alive(), pages: model.firmware_pages() }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "commands    {}", self.commands)?;
        writeln!(f, "violations  {}", self.violations.len())?;
        writeln!(f, "objects     {}", self.objects.as_deref().unwrap_or("none"))?;
        writeln!(f, "pages       {}", self.pages)?;
        self.violations.iter().try_for_each(|violation| writeln!(f, "violation: {violation}"))
    }
}
