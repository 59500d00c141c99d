//! The rules of the data path: their table of violations breaks each of them; the control side's table breaks all others.

use mlx5_model::ViolationKind::{self, *};

/// Rules that only work requests, doorbell records and completions can break.
pub const DATA_RULES: &[ViolationKind] = &[
    SendDoorbellState,
    SendRecordStale,
    SendQueueOverrun,
    ReceiveQueueOverrun,
    DoorbellRecordReserved,
    WqeMalformed,
    CqConsumerIndex,
    CqArmWord,
];
