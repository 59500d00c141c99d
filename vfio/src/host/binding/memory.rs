//! What a function was before it was given to vfio-pci, in a file in `/run/mlx5`.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::super::{Bdf, Function, Host, Obstacle};
use super::refusal;

/// What a function was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// The driver that held it.
    pub(super) driver: Option<String>,
    /// The driver that alone was to have it.
    pub(super) driver_override: Option<String>,
}

/// A file that was written.
pub(super) struct Kept {
    path: PathBuf,
    older: Option<Vec<u8>>,
}

impl Kept {
    /// As it was before.
    pub(super) fn undo(self) {
        let _ = match self.older {
            Some(older) => fs::write(&self.path, older),
            None => fs::remove_file(&self.path),
        };
    }
}

impl Memory {
    /// Writes down what a function is. One without a driver that something is known of was left so half-way, and what is known
    /// stays.
    pub(super) fn keep(host: &Host, function: &Function) -> Result<Kept, Obstacle> {
        let path = file(host, function.bdf);
        let older = fs::read(&path).ok();
        if function.driver.is_some() || Self::of(host, function.bdf).is_none() {
            let text = json!({ "driver": function.driver, "driver_override": function.driver_override });
            // First all of it elsewhere: half of it would be worse than none.
            let draft = path.with_extension("draft");
            let folder = path.parent().unwrap_or(&path);
            let written = fs::create_dir_all(folder).and_then(|()| fs::write(&draft, format!("{text}\n")));
            written.and_then(|()| fs::rename(&draft, &path)).map_err(|error| refusal(&path, &error))?;
        }
        Ok(Kept { path, older })
    }

    /// What a function was; `None`: nobody wrote that down, or nobody can read it.
    pub(super) fn of(host: &Host, bdf: Bdf) -> Option<Self> {
        let value: Value = serde_json::from_slice(&fs::read(file(host, bdf)).ok()?).ok()?;
        // A name becomes part of a path.
        let name = |key| match value.get(key)? {
            Value::Null => Some(None),
            Value::String(name) if !name.is_empty() && !name.contains(['/', '\n', '\0']) => Some(Some(name.clone())),
            _ => None,
        };
        Some(Self { driver: name("driver")?, driver_override: name("driver_override")? })
    }

    /// It is as it was.
    pub(super) fn forget(host: &Host, bdf: Bdf) {
        // One that stays does no harm: it says what the function is now.
        let _ = fs::remove_file(file(host, bdf));
    }
}

fn file(host: &Host, bdf: Bdf) -> PathBuf {
    host.path(format!("run/mlx5/{bdf}.json"))
}
