//! Which function, as options.

use clap::Args;
use mlx5::DeviceConfig;
use mlx5_model::ModelConfig;

use super::{ModelRig, Rig};
use crate::cli::Failure;
use crate::host::Bdf;
use crate::stop;

const SECOND: u64 = 1_000_000_000;
/// Longest time that firmware may be waited for, in seconds: a day.
const LONGEST_WAIT: u64 = 86_400;

/// Which function, and how to open it.
#[derive(Debug, Default, Args)]
#[group(id = "device")]
pub(crate) struct DeviceArgs {
    /// PCI address of the function, such as 0000:03:00.0 or 03:00.0 (`mlx5 list` prints them); it has to be bound to vfio-pci
    /// (`mlx5 bind`)
    #[arg(value_name = "BDF", conflicts_with = "model")]
    bdf: Option<Bdf>,
    /// Use the software model of a ConnectX-5 function instead
    #[arg(long)]
    model: bool,
    /// Interrupt vectors to use: one for commands and other events, the rest for completions [default: as many as the function
    /// has, at most 8; of the model as many as are needed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    vectors: Option<u32>,
    /// Take memory for the device in pages of 4 KiB even where there are some of 2 MiB
    #[arg(long)]
    no_huge_pages: bool,
    /// How long the firmware may take to start [default: 120]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=LONGEST_WAIT))]
    firmware_wait: Option<u64>,
}

impl DeviceArgs {
    /// The function that is asked for; a model is made with `config`. `only_models` are options that only a model has, and
    /// whether they were given.
    ///
    /// # Errors
    /// `Usage` when none is named, or options do not fit it; `NoDevice` for what stands in the way of opening it.
    pub(crate) fn rig(&self, config: ModelConfig, only_models: &[(&str, bool)]) -> Result<Box<dyn Rig>, Failure> {
        stop::listen().map_err(|e| Failure::Job(format!("signals cannot be heard: {e}")))?;
        let Some(bdf) = self.bdf else { return self.model_rig(config) };
        if let Some((option, _)) = only_models.iter().find(|(_, given)| *given) {
            return Err(Failure::Usage(format!(
                "{option}: only the software model can do that; pass --model instead of {bdf}"
            )));
        }
        self.function(bdf)
    }

    fn model_rig(&self, config: ModelConfig) -> Result<Box<dyn Rig>, Failure> {
        if !self.model {
            let why = "no device: pass the PCI address of a function (BDF, `mlx5 list` shows them) or --model";
            return Err(Failure::Usage(why.into()));
        }
        if self.no_huge_pages {
            return Err(Failure::Usage(
                "--no-huge-pages: the software model has no pages of the system's; leave it out".into(),
            ));
        }
        let mut how = DeviceConfig::new(config.device_id);
        if let Some(vectors) = self.vectors {
            (how.interrupts, how.completion_vectors) = (vectors, vectors.saturating_sub(1).max(1));
        }
        how.timeouts.firmware_start = self.firmware_start().unwrap_or(how.timeouts.firmware_start);
        let vectors = config.vectors.max(how.interrupts);
        Ok(Box::new(ModelRig::new(ModelConfig { vectors, ..config }).with(how)))
    }

    /// Whether the number of interrupt vectors was left open.
    pub(crate) fn any_vectors(&self) -> bool {
        self.vectors.is_none()
    }

    /// How long the firmware may take to start, in nanoseconds, if that is said.
    fn firmware_start(&self) -> Option<u64> {
        self.firmware_wait.map(|seconds| seconds * SECOND)
    }
}

#[cfg(target_os = "linux")]
impl DeviceArgs {
    fn function(&self, bdf: Bdf) -> Result<Box<dyn Rig>, Failure> {
        use super::function::VfioRig;
        use crate::port::VfioOptions;

        let mut options = VfioOptions::default();
        (options.vectors, options.huge_pages) = (self.vectors, !self.no_huge_pages);
        match VfioRig::open(bdf, &options, self.firmware_start()) {
            Ok(rig) => Ok(Box::new(rig)),
            Err(obstacle) => {
                let (why, kind) = (obstacle.to_string(), obstacle.kind());
                Err(Failure::NoDevice { device: bdf.to_string(), why, kind })
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl DeviceArgs {
    fn function(&self, bdf: Bdf) -> Result<Box<dyn Rig>, Failure> {
        let why = "functions are driven through VFIO, which only Linux has; use --model".into();
        Err(Failure::NoDevice { device: bdf.to_string(), why, kind: "no-vfio" })
    }
}
