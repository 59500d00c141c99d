//! Status of a command that was delivered.

use crate::errno::{EAGAIN, EBUSY, EINVAL, EIO, ENOMEM};

crate::prm_values! {
    /// Status of a command (PRM `status`, first byte of every output; constants `MLX5_CMD_STAT_*`).
    pub struct Status(u8) {
        /// Done.
        OK = 0x0;
        /// Internal error of the firmware.
        INT_ERR = 0x1;
        /// Unknown opcode, or one that this function may not use.
        BAD_OP_ERR = 0x2;
        /// A parameter is out of range or not supported.
        BAD_PARAM_ERR = 0x3;
        /// The device is not in a state for this command.
        BAD_SYS_STATE_ERR = 0x4;
        /// An object that the command names does not exist.
        BAD_RES_ERR = 0x5;
        /// An object that the command names is in use.
        RES_BUSY = 0x6;
        /// Not ready yet: try again.
        NOT_READY = 0x7;
        /// A limit of the device is exceeded.
        LIM_ERR = 0x8;
        /// An object that the command names is in the wrong state.
        BAD_RES_STATE_ERR = 0x9;
        /// An index is out of range.
        IX_ERR = 0xa;
        /// The device has no resources left.
        NO_RES_ERR = 0xf;
        /// The QP is not in a state for this transition.
        BAD_QP_STATE_ERR = 0x10;
        /// A packet handed to the firmware is malformed.
        BAD_PKT_ERR = 0x30;
        /// The CQ holds more completions than the new size has room for.
        BAD_SIZE_OUTS_CQES_ERR = 0x40;
        /// The input's length is wrong for this command.
        BAD_INP_LEN_ERR = 0x50;
        /// The output's length is wrong for this command.
        BAD_OUTP_LEN_ERR = 0x51;
    }
}

impl Status {
    /// The error number, positive; 0 for [`OK`](Self::OK), EIO for a status without a name.
    pub const fn errno(self) -> i32 {
        match self {
            Self::OK => 0,
            Self::BAD_OP_ERR
            | Self::BAD_PARAM_ERR
            | Self::BAD_RES_ERR
            | Self::BAD_RES_STATE_ERR
            | Self::IX_ERR
            | Self::BAD_QP_STATE_ERR
            | Self::BAD_PKT_ERR
            | Self::BAD_SIZE_OUTS_CQES_ERR => EINVAL,
            Self::RES_BUSY => EBUSY,
            Self::NOT_READY | Self::NO_RES_ERR => EAGAIN,
            Self::LIM_ERR => ENOMEM,
            _ => EIO,
        }
    }

    /// What it means, in plain words.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::OK => "done",
            Self::INT_ERR => "the firmware failed internally; look at the health buffer",
            Self::BAD_OP_ERR => "the firmware does not know this command, or this function may not use it",
            Self::BAD_PARAM_ERR => "a parameter is out of range or not supported; the syndrome tells which",
            Self::BAD_SYS_STATE_ERR => "the device is not in a state for this command, e.g. not yet initialised",
            Self::BAD_RES_ERR => "an object that the command names does not exist",
            Self::RES_BUSY => "an object that the command names is still in use by another",
            Self::NOT_READY => "the device is not ready yet; try again",
            Self::LIM_ERR => "a limit of the device is exceeded",
            Self::BAD_RES_STATE_ERR => "an object that the command names is in the wrong state",
            Self::IX_ERR => "an index is out of range",
            Self::NO_RES_ERR => "the device has no resources left; free some or try again",
            Self::BAD_QP_STATE_ERR => "the QP is not in a state for this transition",
            Self::BAD_PKT_ERR => "a packet handed to the firmware is malformed",
            Self::BAD_SIZE_OUTS_CQES_ERR => "the CQ holds more completions than the new size has room for",
            Self::BAD_INP_LEN_ERR => "the length of the input does not fit the command or the firmware's version",
            Self::BAD_OUTP_LEN_ERR => "the length of the output does not fit the command or the firmware's version",
            _ => "a status without a name",
        }
    }
}
