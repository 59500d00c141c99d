//! What traffic is like.

use clap::ValueEnum;
use mlx5::QpType;

/// Bytes up to which a payload travels inside the work request.
pub const INLINE: u32 = 64;
/// Messages in flight unless another number is asked for.
const IN_FLIGHT: u32 = 16;
/// Bytes of network header that a datagram has in front.
const GRH: u32 = 40;
/// Most memory of one buffer in bytes, unless a single message is longer.
const BUFFER: u32 = 1 << 20;

/// What the traffic is like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// Round trips.
    pub iters: u64,
    /// Bytes of a message.
    pub size: u32,
    /// Messages are of different lengths, from `size` down to 1 byte: one completion cannot pass for another.
    pub varied: bool,
    /// Where the payloads come from.
    pub seed: u64,
    /// Most messages in flight; as many as suit the queues if `None`.
    pub depth: Option<u32>,
    /// Each message carries its number as immediate data. Entries that differ in it cannot be compressed.
    pub numbered: bool,
    /// Short messages may come in the completion itself.
    pub scatter_to_cqe: bool,
    /// How they travel.
    pub transport: Transport,
    /// Both ends take their receives from one shared receive queue.
    pub shared: bool,
}

impl Plan {
    /// Bytes of an iteration's message.
    pub fn len(&self, iteration: u64) -> u32 {
        let less = if self.varied { iteration % u64::from(self.size) } else { 0 };
        self.size - less as u32
    }

    /// Messages in flight over completion queues of `cqe` entries: each end has a send and a receive outstanding for
    /// every one of them.
    pub fn in_flight(&self, cqe: u32) -> u32 {
        let fits = (cqe / 2).min(BUFFER / self.size);
        self.depth.unwrap_or(fits.min(IN_FLIGHT)).max(1)
    }
}

/// How messages travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// Reliable connection
    #[default]
    Rc,
    /// Unreliable connection: what gets lost stays lost
    Uc,
    /// Unreliable datagrams: one packet each, addressed one by one
    Ud,
}

impl Transport {
    /// The queue pairs' type.
    pub fn qp_type(self) -> QpType {
        match self {
            Self::Rc => QpType::Rc,
            Self::Uc => QpType::Uc,
            Self::Ud => QpType::Ud,
        }
    }

    /// Name in text and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        }
    }

    /// Whether a message that was sent arrives or its request fails.
    pub fn is_reliable(self) -> bool {
        self == Self::Rc
    }

    /// Bytes of network header in front of each message.
    pub fn header(self) -> u32 {
        if self == Self::Ud { GRH } else { 0 }
    }
}
