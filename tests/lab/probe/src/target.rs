//! What is measured: a function of this machine through VFIO, or the software function in this process.

use std::fs;

use mlx5::hw::platform::Platform;
use mlx5::{Device, DeviceConfig};
use mlx5_model::{Effect, Fault, Match, Model, ModelConfig, ModelThread};
use mlx5_vfio::host::{Bdf, Host};
use mlx5_vfio::port::{VfioFunction, VfioOptions};

use crate::{Result, accounts};

/// How to open it.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Interrupt vectors, the first for all that is no completion
    #[arg(long, default_value_t = 4)]
    vectors: u32,
    /// Memory for the device in pages of 4 KiB only
    #[arg(long)]
    no_huge_pages: bool,
}

/// A device.
pub enum Target {
    /// The software function, on a thread of its own.
    Model {
        /// The function.
        model: Model,
        /// Its vectors.
        vectors: u32,
        /// Keeps it running.
        _thread: ModelThread,
    },
    /// A function that is bound to vfio-pci.
    Function(VfioFunction),
}

/// Where the model has PCI's device control register, and the bit in it that resets a function.
const DEVICE_CONTROL: usize = 0x68;
const INITIATE_RESET: u32 = 1 << 15;
/// PCI's command register, and the bits in it for memory space and bus mastering.
const COMMAND: usize = 4;
const MEMORY_AND_MASTER: u32 = 0b110;

impl Target {
    /// Opens it.
    pub fn open(name: &str, options: &Options) -> Result<Self> {
        let vectors = options.vectors;
        if name == "model" {
            let model = Model::new(ModelConfig { vectors, ..ModelConfig::default() });
            let _thread = model.spawn()?;
            return Ok(Self::Model { model, vectors, _thread });
        }
        let mut vfio = VfioOptions::default();
        (vfio.vectors, vfio.huge_pages) = (Some(vectors), !options.no_huge_pages);
        Ok(Self::Function(VfioFunction::open(&Host::default(), name.parse::<Bdf>()?, &vfio)?))
    }

    /// What to call it in a result.
    pub fn name(&self) -> String {
        match self {
            Self::Model { .. } => "model".into(),
            Self::Function(function) => function.bdf().to_string(),
        }
    }

    /// The driver's configuration with as many vectors as there are.
    pub fn config(&self) -> DeviceConfig {
        match self {
            Self::Model { vectors, .. } => {
                let mut config = DeviceConfig::default();
                (config.interrupts, config.completion_vectors) = (*vectors, vectors.saturating_sub(1).max(1));
                config
            }
            Self::Function(function) => function.device_config(),
        }
    }

    /// Brings the device up.
    pub fn device(&self) -> Result<Device, mlx5::Error> {
        match self {
            Self::Model { model, .. } => Device::open(model.clone(), model.clone(), self.config()),
            Self::Function(function) => function.open_device(self.config()),
        }
    }

    /// Interrupts that came so far, by vector: as the kernel counts them.
    pub fn interrupts(&self) -> Result<Vec<u64>> {
        match self {
            Self::Model { model, vectors, .. } => Ok((0..*vectors).map(|vector| model.interrupts_of(vector)).collect()),
            Self::Function(_) => accounts::interrupts(&self.name()),
        }
    }

    /// Lets the next command `name` have no answer. In the lab the served model was told so when it was started.
    pub fn stall(&self, name: &str) -> Result<()> {
        match self {
            Self::Model { model, .. } => {
                let opcode = mlx5_model::opcode_named(name).ok_or_else(|| format!("no command {name}"))?;
                model.inject(Fault::Command { at: Match::Opcode(opcode), effect: Effect::Never });
            }
            Self::Function(_) => {}
        }
        Ok(())
    }

    /// Takes the function from the bus. In the lab somebody else does, who kills the served model.
    pub fn remove(&self) {
        match self {
            Self::Model { model, .. } => model.inject(Fault::Removed),
            Self::Function(_) => {}
        }
    }

    /// Resets the function behind the driver's back, as another user of the machine can.
    pub fn reset_by_another(&self) -> Result<()> {
        match self {
            Self::Model { model, .. } => {
                model.config_write(DEVICE_CONTROL, 2, INITIATE_RESET);
                // Linux puts the configuration space back as it was.
                model.config_write(COMMAND, 2, MEMORY_AND_MASTER);
            }
            Self::Function(_) => fs::write(format!("/sys/bus/pci/devices/{}/reset", self.name()), "1")?,
        }
        Ok(())
    }

    /// Resets the function as a port does before it hands it over.
    pub fn reset(&self) -> Result<(), mlx5::Error> {
        match self {
            Self::Model { model, .. } => Ok(model.reset()?),
            Self::Function(function) => Ok(function.reset()?),
        }
    }
}
