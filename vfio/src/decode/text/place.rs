//! What stands before a message: the time, the device, the process.

use std::sync::OnceLock;

use regex::Regex;

use crate::decode::Record;

/// Where a line comes from, as far as it says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place {
    /// PCI address or name of the device.
    pub device: Option<String>,
    /// Seconds since boot, of a kernel's line.
    pub seconds: Option<f64>,
    /// Host and process, of a program's line.
    pub process: Option<String>,
}

/// The patterns, compiled once.
struct Patterns {
    device: Regex,
    seconds: Regex,
    process: Regex,
}

fn patterns() -> Option<&'static Patterns> {
    static PATTERNS: OnceLock<Option<Patterns>> = OnceLock::new();
    let compile = || {
        let device = "([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7])|(mlx5_[0-9]+)";
        let seconds = "^[>< \\t0-9]*\\[[ ]*([0-9]{1,9}\\.[0-9]{1,9})\\]|kernel: \\[[ ]*([0-9]{1,9}\\.[0-9]{1,9})\\]";
        let process = "\\[?([0-9A-Za-z_.-]+:[0-9]{1,9}):[0-9]";
        Some(Patterns {
            device: Regex::new(device).ok()?,
            seconds: Regex::new(seconds).ok()?,
            process: Regex::new(process).ok()?,
        })
    };
    PATTERNS.get_or_init(compile).as_ref()
}

impl Place {
    /// The place of a line; `before` is what stands before the message. A device may be named in the message as well.
    pub fn of(line: &str, before: &str) -> Self {
        let Some(patterns) = patterns() else { return Self::default() };
        let device = patterns.device.find(before).or_else(|| patterns.device.find(line));
        let seconds = patterns.seconds.captures(before).and_then(|c| c.get(1).or(c.get(2)));
        let process = patterns
            .process
            .captures(before)
            .and_then(|c| c.get(1))
            .filter(|_| device.is_none() || !before.contains("mlx5_core"));
        Self {
            device: device.map(|m| m.as_str().into()),
            seconds: seconds.and_then(|m| m.as_str().parse().ok()),
            process: process.map(|m| m.as_str().into()),
        }
    }

    /// Adds it to a record.
    pub fn put(&self, record: &mut Record) {
        if let Some(device) = &self.device {
            record.put("device", device.clone());
        }
        if let Some(seconds) = self.seconds {
            record.put("seconds", seconds);
        }
        if let Some(process) = &self.process {
            record.put("process", process.clone());
        }
    }
}
