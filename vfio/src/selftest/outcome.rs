//! How a step ended.

use std::fmt;

use mlx5::{Error, PollError, PostError};

use super::need::Missing;

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All that it looks at was right; what there is to tell.
    Pass(String),
    /// Something was wrong.
    Fail(String),
    /// The device does not have what it needs.
    NotOffered(Missing),
    /// It was its turn and could not be: nothing is known of what it would have shown.
    NotRun(String),
}

/// Why a step ended before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The device does not have what it needs.
    NotOffered(Missing),
    /// The library or the device refused something.
    Driver(&'static str, Error),
    /// A work request was not accepted.
    Post(PostError),
    /// An entry of a completion queue could not be read.
    Poll(PollError),
    /// What came is not what is right.
    Wrong(String),
}

pub(super) type Done = Result<String, Trouble>;

impl Outcome {
    /// Its name in text and JSON.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Pass(_) => "pass",
            Self::Fail(_) => "FAIL",
            Self::NotOffered(_) => "not offered",
            Self::NotRun(_) => "not run",
        }
    }

    /// What a step of this outcome did.
    pub(super) fn verb(&self) -> &'static str {
        match self {
            Self::Pass(_) => "passed",
            Self::Fail(_) => "failed",
            Self::NotOffered(_) => "is not offered",
            Self::NotRun(_) => "was not run",
        }
    }

    /// What there is to tell.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Pass(words) | Self::Fail(words) | Self::NotRun(words) => words.clone(),
            Self::NotOffered(missing) => missing.to_string(),
        }
    }

    /// Whether it is what a good device shows.
    pub(super) fn is_good(&self) -> bool {
        matches!(self, Self::Pass(_) | Self::NotOffered(_))
    }
}

impl From<Done> for Outcome {
    fn from(done: Done) -> Self {
        match done {
            Ok(words) => Self::Pass(words),
            Err(Trouble::NotOffered(missing)) => Self::NotOffered(missing),
            Err(trouble) => Self::Fail(trouble.to_string()),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered(missing) => missing.fmt(f),
            Self::Driver(what, error) => write!(f, "{what}: {error}"),
            Self::Post(error) => write!(f, "posting: {error}"),
            Self::Poll(error) => write!(f, "polling: {error}"),
            Self::Wrong(what) => f.write_str(what),
        }
    }
}

impl From<PostError> for Trouble {
    fn from(error: PostError) -> Self {
        Self::Post(error)
    }
}

impl From<PollError> for Trouble {
    fn from(error: PollError) -> Self {
        Self::Poll(error)
    }
}

/// Says what was tried when the library or the device refused it.
pub(super) trait Doing<T> {
    fn doing(self, what: &'static str) -> Result<T, Trouble>;
}

impl<T> Doing<T> for Result<T, Error> {
    fn doing(self, what: &'static str) -> Result<T, Trouble> {
        self.map_err(|error| Trouble::Driver(what, error))
    }
}

impl<T, O> Doing<T> for Result<T, mlx5::Returned<O>> {
    fn doing(self, what: &'static str) -> Result<T, Trouble> {
        self.map_err(|back| Trouble::Driver(what, back.error))
    }
}

/// What came is not what is right.
pub(super) fn wrong<T>(what: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Wrong(what.into()))
}

/// Fails unless it holds.
pub(super) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), Trouble> {
    if holds { Ok(()) } else { Err(Trouble::Wrong(what())) }
}
