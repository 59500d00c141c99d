//! What can go wrong, with the error number the verbs give for it and a sentence on what to do.

use core::fmt;

use mlx5_hw::cmd::{DeliveryStatus, Opcode, Status};
use mlx5_hw::eqe::CqErrorSyndrome;
use mlx5_hw::errno;
use mlx5_hw::health::HealthSyndrome;
use mlx5_hw::platform::PlatformError;

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The device executed a command and refused it.
    Command {
        /// The command.
        opcode: Opcode,
        /// Status of its output (PRM `status`).
        status: Status,
        /// The firmware's own number for the reason.
        syndrome: u32,
    },
    /// The device could not even read a command, or write its output.
    Delivery {
        /// The command.
        opcode: Opcode,
        /// Delivery status of the command queue entry.
        code: DeliveryStatus,
    },
    /// A command did not get its turn or its answer in time.
    Timeout {
        /// The command.
        opcode: Opcode,
        /// What did not happen.
        waiting_for: WaitingFor,
    },
    /// The firmware did not finish starting in time.
    FirmwareNotReady,
    /// The device has failed: it answers no command before a reset.
    Failed {
        /// What is known of it.
        why: Failure,
        /// The command that was waited for, or that is not sent to such a device; `None` before the first one.
        command: Option<Opcode>,
        /// The device may have taken the command: it had not failed yet when the command was sent.
        sent: bool,
    },
    /// No event came in time.
    NoEvent,
    /// The device has put a CQ in error: nothing more is written to it. Destroy it, with its queue pairs.
    CqInError {
        /// Why.
        syndrome: CqErrorSyndrome,
    },
    /// Other objects still use this one.
    Busy,
    /// The time of day cannot be told at the moment: another thread is at it, or the platform does not know it just now.
    ClockBusy,
    /// Events of the CQ were taken and not acknowledged.
    UnackedEvents {
        /// How many.
        count: u64,
    },
    /// An argument is wrong.
    Invalid {
        /// Which one, and what is wrong with it.
        what: &'static str,
    },
    /// The device, its firmware or this driver does not have what was asked for.
    Unsupported {
        /// What is missing.
        what: &'static str,
    },
    /// The device does not have what was asked for, and the verbs have the number ENOSYS for it.
    NotImplemented {
        /// What is missing.
        what: &'static str,
    },
    /// The platform has no more memory for the device.
    NoMemory,
    /// The platform has no memory for pages without which the firmware does not start.
    NoPages {
        /// How many it wants, of 4 KiB each.
        count: u32,
    },
    /// The device was closed, but it has memory that could not be taken from it.
    MemoryKept {
        /// How many pieces; [`Device::leaked`](crate::Device::leaked) names them.
        pieces: usize,
    },
    /// The platform refused.
    Platform(PlatformError),
    /// The device wrote something that makes no sense; it was not used.
    Protocol {
        /// What it wrote.
        what: &'static str,
    },
}

/// Why a device counts as failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The firmware reports a fatal condition: `synd` of its health buffer.
    Health(HealthSyndrome),
    /// The interface of the NIC is disabled: someone reset or shut it down.
    NicDisabled,
    /// Somebody has reset the function: it has forgotten the command queue, and all that was made.
    Reset,
    /// Registers read as all ones: the device has left the bus, or is being reset at this moment.
    Gone,
    /// Commands that waited at the same time, or as many as there are slots, came to their deadlines and none was answered; or
    /// one did, and the firmware's heartbeat has stopped.
    Silent,
    /// There never was one: the object is of [`raw`](crate::raw) parts.
    NoDevice,
}

impl Failure {
    const fn errno(self) -> i32 {
        match self {
            Self::Health(_) => errno::EIO,
            Self::NicDisabled | Self::Reset | Self::Gone | Self::NoDevice => errno::ENODEV,
            Self::Silent => errno::ETIMEDOUT,
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::Gone => "check the slot, its power and the PCIe link, and whether somebody resets it",
            Self::Reset => "open it again",
            Self::NoDevice => "make the object from a device",
            _ => "reset the device and open it again",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Health(syndrome) => write!(f, "the firmware reports a fatal error, health syndrome {syndrome}"),
            Self::NicDisabled => f.write_str("the device's interface is disabled"),
            Self::Reset => {
                f.write_str("the function was reset by somebody else, nothing of what was made is there any more")
            }
            Self::Gone => f.write_str("the device does not answer, its registers read as all ones"),
            Self::Silent => f.write_str("the firmware answers no command any more"),
            Self::NoDevice => f.write_str("there is no device, as the object was made from raw parts"),
        }
    }
}

/// What a command was waiting for when its time was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitingFor {
    /// A free slot of the command queue.
    Slot,
    /// Its completion.
    Completion,
    /// The firmware's pages.
    Pages,
    /// The entry by which the device says that it is done with a CQ's old ring. The command was answered.
    LastEntry,
}

impl Error {
    /// The error number of the verbs: Linux's, on every platform; positive.
    pub const fn errno(self) -> i32 {
        match self {
            Self::Command { status, .. } => status.errno(),
            Self::Delivery { .. } | Self::MemoryKept { .. } | Self::CqInError { .. } => errno::EIO,
            Self::Failed { why, .. } => why.errno(),
            Self::Timeout { .. } | Self::FirmwareNotReady | Self::NoEvent | Self::Platform(PlatformError::TimedOut) => {
                errno::ETIMEDOUT
            }
            Self::Busy | Self::ClockBusy | Self::UnackedEvents { .. } => errno::EBUSY,
            Self::Invalid { .. } => errno::EINVAL,
            Self::Unsupported { .. } | Self::Platform(PlatformError::Unsupported) => errno::EOPNOTSUPP,
            Self::NotImplemented { .. } => errno::ENOSYS,
            Self::NoMemory
            | Self::NoPages { .. }
            | Self::Platform(PlatformError::NoMemory | PlatformError::LockedMemory { .. }) => errno::ENOMEM,
            Self::Platform(PlatformError::Os(number)) => number,
            Self::Platform(_) => errno::EIO,
            Self::Protocol { .. } => errno::EPROTO,
        }
    }

    /// The command this is about, if it is about one.
    pub const fn opcode(self) -> Option<Opcode> {
        match self {
            Self::Command { opcode, .. } | Self::Delivery { opcode, .. } | Self::Timeout { opcode, .. } => Some(opcode),
            Self::Failed { command, .. } => command,
            Self::NoPages { .. } => Some(Opcode::MANAGE_PAGES),
            _ => None,
        }
    }

    /// Whether it is the platform's refusal of memory, for whatever reason: of what [`alloc`](mlx5_hw::platform::Platform::alloc)
    /// answers.
    pub(crate) const fn of_memory(self) -> bool {
        matches!(self, Self::NoMemory | Self::Platform(_))
    }

    /// Whether the device certainly did not carry the command out. Memory named in a command is the caller's again only
    /// then: after every other error the device may still use it.
    pub const fn refused(self) -> bool {
        let waited = matches!(self, Self::Timeout { waiting_for: WaitingFor::Completion | WaitingFor::LastEntry, .. });
        !waited
            && !matches!(self, Self::Delivery { .. })
            && !matches!(self, Self::Failed { sent: true, .. } | Self::Protocol { .. })
    }
}

impl From<PlatformError> for Error {
    fn from(e: PlatformError) -> Self {
        match e {
            PlatformError::NoMemory => Self::NoMemory,
            other => Self::Platform(other),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Command { opcode, status, syndrome } => write!(
                f,
                "{opcode} failed: {} (status {status}, syndrome {syndrome:#x}); {}, or quote the syndrome to the vendor's support",
                status.meaning(),
                advice(status)
            ),
            Self::Delivery { opcode, code } => write!(
                f,
                "{opcode} could not be delivered: {code}; the device did not accept the command queue entry or its \
                 mailboxes: check that they are mapped for the device, then reset it"
            ),
            // The first command: it is the way to the device that does not work.
            Self::Timeout { opcode: opcode @ Opcode::ENABLE_HCA, waiting_for } => write!(
                f,
                "{opcode}: {waiting_for}; check that the function is a bus master and that the command queue's memory is \
                 mapped for it, then reset the device and open it again"
            ),
            Self::Timeout { opcode, waiting_for } => {
                write!(f, "{opcode}: {waiting_for}; reset the device and open it again")
            }
            Self::FirmwareNotReady => {
                f.write_str("the firmware did not become ready in time; wait, or reset the device and open it again")
            }
            Self::Failed { why, command: None, .. } => write!(f, "{why}; {}", why.advice()),
            Self::Failed { why, command: Some(opcode), sent } => {
                let fate = if sent { "has no answer" } else { "was not sent" };
                write!(f, "{opcode} {fate}: {why}; {}", why.advice())
            }
            Self::NoEvent => f.write_str("no event came in time"),
            Self::ClockBusy => f.write_str("the time of day cannot be told at the moment; try again"),
            Self::CqInError { syndrome } => write!(
                f,
                "the completion queue is in error ({syndrome}), nothing more is written to it; destroy it and its queue \
                 pairs and make new ones"
            ),
            Self::Busy => f.write_str("still in use; destroy the objects made from it first"),
            Self::UnackedEvents { count } => {
                write!(f, "{count} events of the CQ were taken and not acknowledged; acknowledge them first")
            }
            Self::Invalid { what } => write!(f, "invalid argument: {what}"),
            Self::Unsupported { what } | Self::NotImplemented { what } => {
                write!(f, "not supported: {what}; update the firmware or do without")
            }
            Self::NoMemory => f.write_str("no memory for the device; free some, or raise the limit on locked memory"),
            Self::NoPages { count } => write!(
                f,
                "MANAGE_PAGES could not be sent: no memory for the {count} pages that the firmware asks for; free some, or \
                 raise the limit on locked memory"
            ),
            Self::MemoryKept { pieces } => write!(
                f,
                "closed, but the device may still write to {pieces} pieces of memory, which are kept: reset it"
            ),
            Self::Platform(e) => platform(e, f),
            Self::Protocol { what } => write!(f, "the device wrote nonsense: {what}; reset it and open it again"),
        }
    }
}

/// What a platform's refusal is called.
fn platform(error: PlatformError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        PlatformError::Unsupported => f.write_str("the platform cannot do that; use another port"),
        PlatformError::Os(number) => {
            write!(f, "the operating system refused, error number {number}; check permissions and limits")
        }
        PlatformError::LockedMemory { limit, wanted } => write!(
            f,
            "the process may lock {limit} bytes of memory, and {wanted} are needed; raise RLIMIT_MEMLOCK (ulimit -l, in KiB)"
        ),
        PlatformError::TimedOut => {
            f.write_str("the platform's hardware did not answer in time; check the slot, its power and the PCIe link")
        }
        other => write!(f, "the platform refused ({other:?}); check permissions and limits"),
    }
}

/// What to do about a command that the device has refused.
const fn advice(status: Status) -> &'static str {
    match status {
        Status::INT_ERR => "reset the device and open it again",
        Status::BAD_OP_ERR => "update the firmware or do without",
        Status::NOT_READY => "wait and try again",
        Status::RES_BUSY => "destroy the objects that use it first",
        Status::LIM_ERR | Status::NO_RES_ERR => {
            "destroy objects that are not needed, or let the firmware have more memory (max_pages)"
        }
        _ => "check its arguments and the state of the objects it names",
    }
}

impl fmt::Display for WaitingFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Slot => "no slot of the command queue became free in time",
            Self::Completion => "no answer in time",
            Self::LastEntry => "the old ring's last entry did not come in time",
            Self::Pages => "the firmware did not return all pages in time",
        })
    }
}

impl core::error::Error for Error {}

/// An object handed back together with the reason why the call did not take it.
#[derive(Debug)]
pub struct Returned<T> {
    /// The object, as it was.
    pub object: T,
    /// Why.
    pub error: Error,
}

impl<T> Returned<T> {
    /// Hands `object` back because of `error`.
    pub const fn new(object: T, error: Error) -> Self {
        Self { object, error }
    }
}

impl<T> fmt::Display for Returned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T: fmt::Debug> core::error::Error for Returned<T> {}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    /// Statuses by their numbers in Linux's `device.h` (`MLX5_CMD_STAT_*`).
    #[test]
    fn what_to_do_fits_the_status() {
        for (status, advice) in [
            (0x1, "reset the device"),
            (0x2, "update the firmware"),
            (0x3, "check its arguments"),
            (0x6, "destroy the objects that use it"),
            (0x7, "try again"),
            (0x8, "max_pages"),
            (0x9, "the state of the objects"),
            (0xf, "max_pages"),
            (0xee, "check its arguments"),
        ] {
            let error = Error::Command { opcode: Opcode::CREATE_QP, status: Status(status), syndrome: 0x1234 };
            let words = error.to_string();
            let after = words.split("0x1234); ").nth(1).unwrap_or_default();
            assert!(words.starts_with("CREATE_QP") && after.contains(advice), "{status:#x}: {words}");
        }
    }
}
