//! A software ConnectX function.
//!
//! [`Model`] stands in for a card: a driver gets memory, a clock and interrupts from it as from a platform, and registers
//! as from a BAR. It is strict: what no driver may do is recorded as a [`Violation`]. It is deterministic: time moves
//! only when the driver asks for the time or waits.
//!
//! It is a reading of the hardware of its own and shares no layout with the driver: of `mlx5_hw` it uses the two traits
//! of a port, nothing else.

mod bar;
mod bytes;
mod calls;
mod caps;
mod clocks;
mod cmdif;
mod command;
mod config;
mod data;
mod device;
mod dma;
mod eq;
mod flame;
mod hca;
mod held;
mod irqs;
mod iseg;
mod knobs;
mod model;
mod objects;
mod pace;
mod pages;
mod pci;
mod port;
mod record;
#[cfg(feature = "serve")]
pub mod serve;
mod time;
pub mod trace;
mod violation;
mod vport;

pub use calls::Calls;
pub use command::{opcode_named, syndrome_text};
pub use config::{CapConfig, DEVICE_ID_CX5_PF, DEVICE_ID_CX5_VF, DEVICE_ID_GENERIC_VF, ModelConfig};
pub use data::{CompletionCounts, CqeBytes, DataFault};
pub use flame::StorePace;
pub use held::{Held, Release, ReleaseKind};
pub use knobs::{Effect, Fault, Match};
pub use model::{Model, ModelThread};
pub use pace::{EventPace, EventQueueInfo};
pub use record::CommandRecord;
pub use violation::{Violation, ViolationKind};
