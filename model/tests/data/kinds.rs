//! The rules whose breach the tests of the data path commit; those of the control side commit all others.

use mlx5_model::ViolationKind::{self, *};

/// In no particular order.
pub const COMMITTED_HERE: &[ViolationKind] = &[
    SendDoorbellState,
    SendRecordStale,
    BlueFlameDiffers,
    BlueFlameIncomplete,
    BlueFlameLength,
    BlueFlameBuffer,
    BlueFlameMissing,
    SendQueueOverrun,
    ReceiveQueueOverrun,
    ReceiveLink,
    DoorbellRecordReserved,
    WqeMalformed,
    CqConsumerIndex,
    CqArmWord,
    DoorbellUnknownObject,
    DoorbellWrongUar,
];
