//! Tag matching in completions: the overlay that says which tag a message carried, and what the device did with it.
//!
//! No queue has a tag list yet, so no device sends these; the readers are here so that completions say all that the man
//! page promises.

use mlx5_hw::cqe::{Cqe64Layout, CqeRef};

use super::WcOpcode;
use crate::flags::WcResultFlags;

/// The tag of a message (`struct ibv_wc_tm_info`; `ibv_create_cq_ex(3)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TmInfo {
    /// The tag in the message's header, in CPU byte order.
    pub tag: u64,
    /// What the sender put beside it, in CPU byte order.
    pub r#priv: u32,
}

/// What the device did with a message's tag (constants `MLX5_CQE_APP_OP_TM_*`).
mod app_op {
    pub(super) const CONSUMED: u32 = 1;
    pub(super) const EXPECTED: u32 = 2;
    pub(super) const UNEXPECTED: u32 = 3;
    pub(super) const NO_TAG: u32 = 4;
    pub(super) const CONSUMED_SW_RDNV: u32 = 9;
    pub(super) const CONSUMED_MSG: u32 = 10;
    pub(super) const CONSUMED_MSG_SW_RDNV: u32 = 11;
    pub(super) const MSG_COMPLETION_CANCELED: u32 = 12;
}

/// The application number of tag matching (`MLX5_CQE_APP_TAG_MATCHING`).
const TAG_MATCHING: u32 = 1;

/// What was done with the tag of a received message; `None` if tag matching has not seen it.
fn operation(cqe: CqeRef<'_>) -> Option<u32> {
    (cqe.field(Cqe64Layout::APP) == TAG_MATCHING).then(|| cqe.field(Cqe64Layout::APP_OP))
}

/// The completion opcode of a received message, if tag matching changes it.
pub(super) fn opcode(cqe: CqeRef<'_>) -> Option<WcOpcode> {
    match operation(cqe)? {
        app_op::EXPECTED
        | app_op::UNEXPECTED
        | app_op::CONSUMED_SW_RDNV
        | app_op::CONSUMED_MSG
        | app_op::CONSUMED_MSG_SW_RDNV => Some(WcOpcode::TM_RECV),
        app_op::NO_TAG => Some(WcOpcode::TM_NO_TAG),
        _ => None,
    }
}

/// What tag matching says of a received message.
pub(super) fn flags(cqe: CqeRef<'_>) -> WcResultFlags {
    match operation(cqe) {
        Some(app_op::CONSUMED_MSG | app_op::CONSUMED_MSG_SW_RDNV | app_op::MSG_COMPLETION_CANCELED) => {
            WcResultFlags::TM_MATCH | WcResultFlags::TM_DATA_VALID
        }
        Some(app_op::CONSUMED | app_op::CONSUMED_SW_RDNV) => WcResultFlags::TM_MATCH,
        Some(app_op::EXPECTED) => WcResultFlags::TM_DATA_VALID,
        _ => WcResultFlags::empty(),
    }
}

/// The tag of a received message: the header that the sender put before it (`struct ibv_tmh`: opcode, three bytes of
/// padding, `app_ctx`, `tag`, big-endian), which the device copies to the front of the entry.
pub(super) fn info(cqe: CqeRef<'_>) -> Option<TmInfo> {
    operation(cqe)?;
    let tag = u64::from(cqe.dword::<2>().get()) << 32 | u64::from(cqe.dword::<3>().get());
    Some(TmInfo { tag, r#priv: cqe.dword::<1>().get() })
}
