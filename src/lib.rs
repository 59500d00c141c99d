//! A kernel-bypass driver for NVIDIA ConnectX (mlx5) with a verbs-compatible API.
#![no_std]
extern crate alloc;

mod ah;
mod clock;
mod cmdq;
mod cq;
pub mod device;
mod dma;
pub mod dv;
mod eq;
pub mod error;
mod events;
#[cfg(test)]
mod fake;
pub mod flags;
mod gate;
mod gid;
mod grh;
mod health;
pub mod ibv;
mod keys;
mod limits;
mod mr;
mod numbers;
mod pages;
mod pages_of;
mod parent_domain;
mod pd;
mod qp;
pub mod raw;
mod srq;
mod sync;

pub use ah::{Ah, AhAttr, GlobalRoute};
pub use clock::{ValuesEx, ValuesMask};
pub use cmdq::CommandCounters;
pub use cq::{
    AnyEntries, Completion, Cq, CqInitAttrEx, Entries, ModerateCq, ModifyCqAttr, Packet, PacketFlags, PollAttr,
    PollError, Poller, RingCq, RingEntries, SigErr, TmInfo, Wc, WcOpcode, WcStatus,
};
pub use device::{Device, DeviceConfig};
pub use dma::Leaked;
pub use error::{Error, Failure, Returned};
pub use events::{AsyncEvent, CompChannel, CqEvent, Element};
pub use flags::{
    AccessFlags, CqAttrMask, CqInitAttrMask, CreateCqFlags, QpAttrMask, SendFlags, SrqAttrMask, WcFlags, WcResultFlags,
};
pub use gid::Gid;
pub use health::Health;
pub use limits::{AtomicCap, DeviceAttr, PortAttr};
pub use mlx5_hw as hw;
pub use mlx5_hw::simd::Cpu;
pub use mr::{DmaBuf, Mr};
pub use pages::PageCounters;
pub use parent_domain::{ParentDomain, ParentDomainInitAttr, QueueAllocator};
pub use pd::Pd;
pub use qp::{
    ExclusiveCqs, Mtu, PostError, Qp, QpAttr, QpCap, QpInitAttr, QpState, QpType, RecvWr, Remote, SendBatch, SendWr,
    Sge, UdAddress, WrOpcode,
};
pub use srq::{Srq, SrqAttr, SrqInitAttr};
