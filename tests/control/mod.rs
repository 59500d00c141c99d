//! What the tests of the control path share.

use mlx5::{Device, DeviceConfig, Error};
use mlx5_model::{Model, ModelConfig};

/// A model, and a device on it that was opened with what `config` says.
pub fn open(model: &Model, config: DeviceConfig) -> Result<Device, Error> {
    Device::open(model.clone(), model.clone(), config)
}

/// The default virtual function.
pub fn model() -> Model {
    Model::new(ModelConfig::default())
}

/// Asserts that the device has nothing of the host's and broke no rule.
pub fn assert_clean(model: &Model, when: &str) {
    let violations = model.violations();
    assert!(violations.is_empty(), "{when}: {violations:#?}");
    assert_eq!(model.dma_outstanding(), (0, 0), "{when}: memory not given back");
    assert_eq!(model.firmware_pages(), 0, "{when}: pages not given back");
}
