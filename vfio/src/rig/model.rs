//! The software model.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mlx5::{Device, DeviceConfig, ibv};
use mlx5_model::{Model, ModelConfig, ModelThread};

use super::{Patience, Rig, Waits, did_not_come_up, not_given_back};
use crate::cli::Failure;
use crate::cpu;

/// Longest wait for a completion while the model runs in the driver's calls: model time.
const PATIENCE: Duration = Duration::from_millis(200);
/// Longest wait while it runs on a thread of its own, where its time is that of the clock on the wall and others may have
/// the processor.
const PATIENCE_OF_THREAD: Duration = Duration::from_secs(5);

/// The software function, in this process.
pub(crate) struct ModelRig {
    model: Model,
    config: DeviceConfig,
    thread: Mutex<Option<ModelThread>>,
    patience_of_thread: Patience,
}

impl ModelRig {
    /// A function of this kind, to be opened with one completion vector.
    pub(crate) fn new(config: ModelConfig) -> Self {
        let mut device = DeviceConfig::new(config.device_id);
        device.cpu = cpu::detect();
        let patience_of_thread = Patience::new(PATIENCE_OF_THREAD);
        Self { model: Model::new(config), config: device, thread: Mutex::default(), patience_of_thread }
    }

    /// The same, opened as this says unless a command says otherwise.
    pub(crate) fn with(self, mut config: DeviceConfig) -> Self {
        config.cpu = self.config.cpu;
        Self { config, ..self }
    }

    fn thread(&self) -> MutexGuard<'_, Option<ModelThread>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rig for ModelRig {
    fn title(&self) -> String {
        "Software model of a ConnectX-5 function, no card".into()
    }

    fn name(&self) -> String {
        "software model".into()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let (ranges, bytes) = self.model.dma_outstanding();
        vec![("interrupts", self.model.interrupts()), ("mapped ranges", ranges as u64), ("mapped bytes", bytes as u64)]
    }

    fn default_config(&self) -> DeviceConfig {
        self.config.clone()
    }

    fn open(&self, config: DeviceConfig) -> Result<Device, Failure> {
        ibv::open_device(self.model.clone(), self.model.clone(), config).map_err(|e| did_not_come_up(self.name(), e))
    }

    fn run_by_itself(&self) -> Result<(), String> {
        let thread = self.model.spawn().map_err(|e| format!("no thread for the model: {e}"))?;
        *self.thread() = Some(thread);
        Ok(())
    }

    fn stand_still(&self) {
        *self.thread() = None;
    }

    fn own_time(&self) -> bool {
        self.thread().is_some()
    }

    fn step(&self, time: Duration) {
        if !self.own_time() {
            self.model.step(time.as_nanos() as u64);
        }
    }

    fn patience(&self) -> Duration {
        if self.own_time() { self.patience_of_thread.now() } else { PATIENCE }
    }

    fn hurry(&self) {
        if self.own_time() {
            self.patience_of_thread.hurry();
        }
    }

    fn waits(&self) -> Waits {
        let calls = self.model.calls();
        Waits { arms: Some(calls.cq_arms), interrupts: self.model.interrupts(), sleeps: calls.waits }
    }

    fn left(&self) -> Option<String> {
        let (ranges, bytes) = self.model.dma_outstanding();
        not_given_back(ranges as u64, bytes as u64)
    }

    fn model(&self) -> Option<&Model> {
        Some(&self.model)
    }
}
