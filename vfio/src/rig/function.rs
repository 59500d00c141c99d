//! A function of this machine, through VFIO.

use std::time::Duration;

use mlx5::{Device, DeviceConfig};

use super::{Patience, Rig, Waits, did_not_come_up, facts, not_given_back};
use crate::cli::Failure;
use crate::cpu;
use crate::host::{Bdf, Host, Obstacle};
use crate::port::{VfioFunction, VfioOptions};
use crate::progress::Busy;

/// Longest wait for a completion: by far longer than a message takes that has to be sent again and again, on a machine that is
/// busy with other things.
const PATIENCE: Duration = Duration::from_secs(20);

/// A function that VFIO has given to this process, until this is dropped.
pub(crate) struct VfioRig {
    function: VfioFunction,
    name: Option<&'static str>,
    firmware_start: Option<u64>,
    patience: Patience,
}

impl VfioRig {
    /// Opens it; the firmware may take `firmware_start` nanoseconds to start, if that is said.
    ///
    /// # Errors
    /// What stands in the way.
    pub(crate) fn open(bdf: Bdf, options: &VfioOptions, firmware_start: Option<u64>) -> Result<Self, Obstacle> {
        let _busy = Busy::new("opening the function");
        let host = Host::default();
        let function = VfioFunction::open(&host, bdf, options)?;
        let name = host.function(bdf).ok().and_then(|function| function.name);
        Ok(Self { function, name, firmware_start, patience: Patience::new(PATIENCE) })
    }
}

impl Rig for VfioRig {
    fn title(&self) -> String {
        let (bdf, name) = (self.function.bdf(), self.name.unwrap_or("unknown device"));
        let (vendor, device) = (self.function.vendor_id(), self.function.device_id());
        format!("{bdf}, {name} [{vendor:04x}:{device:04x}], through VFIO")
    }

    fn name(&self) -> String {
        self.function.bdf().to_string()
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let host = Host::default();
        let function = host.function(self.function.bdf());
        let mut facts = function.map_or_else(|_| Vec::new(), |function| facts::of(&host, &function));
        facts.push(("vectors", self.function.vectors().to_string()));
        facts
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let counters = self.function.counters();
        vec![
            ("interrupts", counters.interrupts),
            ("sleeps", counters.sleeps),
            ("mapped ranges", counters.maps),
            ("mapped bytes", counters.mapped_bytes),
            ("bytes in 2 MiB pages", counters.huge_bytes),
            ("bytes given out", counters.outstanding_bytes),
            ("resets", counters.resets),
        ]
    }

    fn default_config(&self) -> DeviceConfig {
        let mut config = self.function.device_config();
        config.cpu = cpu::detect();
        if let Some(ns) = self.firmware_start {
            config.timeouts.firmware_start = ns;
        }
        config
    }

    fn open(&self, config: DeviceConfig) -> Result<Device, Failure> {
        let _busy = Busy::new("bringing the device up");
        self.function.open_device(config).map_err(|e| did_not_come_up(self.name(), e))
    }

    fn own_time(&self) -> bool {
        true
    }

    fn step(&self, _time: Duration) {}

    fn patience(&self) -> Duration {
        self.patience.now()
    }

    fn hurry(&self) {
        self.patience.hurry();
    }

    fn waits(&self) -> Waits {
        let counters = self.function.counters();
        Waits { arms: None, interrupts: counters.interrupts, sleeps: counters.sleeps }
    }

    fn left(&self) -> Option<String> {
        let counters = self.function.counters();
        not_given_back(counters.outstanding, counters.outstanding_bytes)
    }
}
