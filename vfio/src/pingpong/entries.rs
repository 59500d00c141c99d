//! What the completion queues of the round trips are like.

use clap::Args;
use mlx5::{CompChannel, Cq, Device, Error, WcFlags, ibv};
use mlx5_model::ModelConfig;

use crate::cli::Failure;
use crate::cq::Attributes;
use crate::options::{self, Compress, CqeSize, Layout};
use crate::traffic::Transport;

#[derive(Debug, Default, Args)]
pub(super) struct EntryArgs {
    /// Bytes of a completion queue entry [default: 64]
    #[arg(long, value_name = "BYTES")]
    cqe_size: Option<CqeSize>,
    /// Let the device write entries of 128 bytes whole; needs --cqe-size 128
    #[arg(long)]
    pad: bool,
    /// Let the device compress completions; the messages then carry no numbers, which could not be compressed
    #[arg(long, value_name = "FORMAT")]
    pub(super) compress: Option<Compress>,
    /// Where compressed entries lie [default: basic]
    #[arg(long, value_name = "LAYOUT", requires = "compress")]
    layout: Option<Layout>,
    /// Let the device put messages of up to 32 bytes, 64 in entries of 128, into the completion (scatter to CQE)
    #[arg(long)]
    pub(super) inline_cqe: bool,
    /// Capabilities that the model does not have
    #[arg(long, value_name = "CAP,...", value_delimiter = ',', value_parser = options::capabilities())]
    without: Vec<String>,
}

impl EntryArgs {
    /// What no single option can know to be wrong.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.pad && self.cqe_size != Some(CqeSize::B128) {
            return Err(Failure::Usage("--pad: only entries of 128 bytes can be padded, pass --cqe-size 128".into()));
        }
        Ok(())
    }

    /// Whether capabilities are to be missing, which only a model's can.
    pub(super) fn without_any(&self) -> bool {
        !self.without.is_empty()
    }

    /// The model that the queues are created on.
    pub(super) fn config(&self, seed: u64) -> ModelConfig {
        options::model_without(&self.without, seed)
    }

    /// A queue for each end: one that gives all fields to `ibv_poll_cq`, one for polling field by field.
    /// Each has a completion vector of its own, if the device has several.
    pub(super) fn create(
        &self,
        device: &Device,
        channel: Option<&CompChannel>,
        cqe: u32,
        transport: Transport,
    ) -> Result<[Cq; 2], Error> {
        let mut fields = WcFlags::BYTE_LEN | WcFlags::IMM | WcFlags::QP_NUM;
        // Only a datagram can come from anywhere.
        fields.set(WcFlags::SRC_QP, transport == Transport::Ud);
        let lazily = Attributes {
            cqe,
            wc_flags: Some(fields.bits()),
            cqe_size: self.cqe_size.map(CqeSize::bytes),
            pad: self.pad,
            compress: self.compress.map(|format| format.bit().bits()),
            layout: self.layout,
            ..Attributes::default()
        };
        let whole = Attributes { wc_flags: None, ..lazily.clone() };
        let plain = Attributes { cqe, ..Attributes::default() };
        // The older call has no attributes.
        let first = if whole == plain {
            ibv::create_cq(device, cqe, 0, channel, 0)?
        } else {
            whole.create(device, None, channel)?
        };
        let comp_vector = 1 % ibv::query_device(device).num_comp_vectors;
        Ok([first, Attributes { comp_vector, ..lazily }.create(device, None, channel)?])
    }
}
