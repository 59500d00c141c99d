//! What a step needs of the device: capabilities, by the names that the PRM has for them.

use std::fmt;

use mlx5::device::Caps;
use mlx5::hw::prm::Layout;
use serde_json::{Value, json};

/// A page of capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    General,
    Atomic,
    Roce,
}

/// What a value has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// At least this.
    Least(u64),
    /// These bits, whatever else.
    Bits(u64),
    /// Anything but this.
    Not(u64),
}

/// A capability, and what its value has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    page: Page,
    field: &'static str,
    wants: Wants,
}

/// What the device does not offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// A capability has another value.
    Capability { page: &'static str, field: &'static str, value: u64, wants: Wants },
    /// No capability says so.
    Other(String),
}

impl Need {
    /// A general capability that is not 0.
    pub(super) const fn bit(field: &'static str) -> Self {
        Self::of(Page::General, field, Wants::Least(1))
    }

    /// A value; 0 where the device does not have the page.
    pub(super) const fn of(page: Page, field: &'static str, wants: Wants) -> Self {
        Self { page, field, wants }
    }

    /// What is missing of it, if anything is.
    pub(super) fn missing(&self, caps: &Caps) -> Option<Missing> {
        let Self { field, wants, .. } = *self;
        let found = match self.page {
            Page::General => value(&caps.general, field),
            Page::Atomic => value(caps.atomic.as_ref().unwrap_or(&Layout::ZERO), field),
            Page::Roce => value(caps.roce.as_ref().unwrap_or(&Layout::ZERO), field),
        };
        // What nobody knows of is not there.
        let Some((page, value)) = found else {
            return Some(Missing::Other(format!("no capability is called {field}")));
        };
        (!wants.holds(value)).then_some(Missing::Capability { page, field, value, wants })
    }
}

/// The name of a page and the value of its field.
fn value<L: Layout>(page: &L, field: &str) -> Option<(&'static str, u64)> {
    let field = L::FIELDS.iter().find(|f| f.name == field)?;
    Some((L::NAME, (field.get)(page.words(), 0)))
}

impl Wants {
    fn holds(self, value: u64) -> bool {
        match self {
            Self::Least(least) => value >= least,
            Self::Bits(bits) => value & bits == bits,
            Self::Not(not) => value != not,
        }
    }
}

impl fmt::Display for Wants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Least(least) => write!(f, "at least {least}"),
            Self::Bits(bits) => write!(f, "bits {bits:#x}"),
            Self::Not(not) => write!(f, "other than {not}"),
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wants {
            Wants::Least(1) => f.write_str(self.field),
            wants => write!(f, "{} {wants}", self.field),
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capability { page, field, value, wants: Wants::Least(1) } => write!(f, "{page}.{field} is {value}"),
            Self::Capability { page, field, value, wants } => {
                write!(f, "{page}.{field} is {value:#x}, and would have to be {wants}")
            }
            Self::Other(why) => f.write_str(why),
        }
    }
}

impl Missing {
    /// For programs.
    pub(super) fn object(&self) -> Value {
        match self {
            Self::Capability { page, field, value, wants } => {
                json!({ "page": page, "capability": field, "value": value, "wants": wants.to_string() })
            }
            Self::Other(why) => json!({ "why": why }),
        }
    }
}
