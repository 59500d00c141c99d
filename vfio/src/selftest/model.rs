//! What only a model can do: lack capabilities, and do something wrong.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use mlx5_model::{CapConfig, DataFault, ModelConfig};

use crate::cli::Failure;
use crate::rig::Rig;

/// Nanoseconds by which a completion is late that comes too late.
const LATE: u64 = 60_000_000_000;

#[derive(Debug, Args)]
pub(super) struct ModelArgs {
    /// Capabilities that the model does not have
    #[arg(long, value_name = "CAP,...", value_delimiter = ',', value_parser = PossibleValuesParser::new(CapConfig::names()))]
    without: Vec<String>,
    /// The model's port is InfiniBand
    #[arg(long)]
    infiniband: bool,
    /// The model's port has no link
    #[arg(long)]
    port_down: bool,
    /// Let the model do something wrong once: a step must find it
    #[arg(long, value_name = "FAULT")]
    fault: Option<Fault>,
    /// Messages or completions that the fault lets pass
    #[arg(long, value_name = "N", default_value_t = 0, requires = "fault")]
    fault_after: u64,
}

/// What the model does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// A byte of a message changes on the wire
    Corrupt,
    /// A message is not sent, and its request fails
    FailSend,
    /// Nobody answers a message
    NoAnswer,
    /// A message of an unreliable transport gets lost on the wire
    LostMessage,
    /// A completion is never written
    LostCqe,
    /// Two completions change places
    BadOrder,
    /// A completion names another request
    WrongCounter,
    /// A completion comes a minute late
    LateCqe,
}

impl Fault {
    fn fault(self) -> DataFault {
        match self {
            Self::Corrupt => DataFault::CorruptPayload { offset: 0, xor: 0x40 },
            // A bad response (PRM `MLX5_CQE_SYNDROME_BAD_RESP_ERR`).
            Self::FailSend => DataFault::FailSend { syndrome: 0x10, vendor: 0x99 },
            // As with no peer (PRM `MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR`).
            Self::NoAnswer => DataFault::FailSend { syndrome: 0x15, vendor: 0x81 },
            Self::LostMessage => DataFault::LostMessage,
            Self::LostCqe => DataFault::LostCqe,
            Self::BadOrder => DataFault::SwappedCqe { ns: 1_000_000 },
            Self::WrongCounter => DataFault::WrongCounter { add: 1 },
            Self::LateCqe => DataFault::LateCqe { ns: LATE },
        }
    }
}

impl ModelArgs {
    /// The model to make.
    pub(super) fn config(&self) -> ModelConfig {
        let port = if self.infiniband { ModelConfig::infiniband() } else { ModelConfig::default() };
        let mut config = ModelConfig { link_up: !self.port_down, ..port };
        self.without.iter().for_each(|name| _ = config.caps.without(name));
        config
    }

    /// The options, and whether they were given.
    pub(super) fn given(&self) -> [(&'static str, bool); 4] {
        [
            ("--without", !self.without.is_empty()),
            ("--infiniband", self.infiniband),
            ("--port-down", self.port_down),
            ("--fault", self.fault.is_some()),
        ]
    }

    /// Has the model do what was asked for.
    pub(super) fn inject(&self, rig: &dyn Rig) -> Result<(), Failure> {
        let Some(fault) = self.fault else { return Ok(()) };
        let Some(model) = rig.model() else { return Err(Failure::Usage("--fault: only a model has faults".into())) };
        model.inject_data(fault.fault(), self.fault_after);
        Ok(())
    }
}
