//! Asynchronous events: what happens to objects and ports without being asked for.

use core::fmt;

use mlx5_hw::eqe::{CqErrorSyndrome, Event, EventType, PortChange, QueueType};

use super::Kind;
use super::registry::Registry;
use crate::error::Failure;

/// The object that an event concerns (`element` of `struct ibv_async_event`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// The device's number for it, 24 bits.
    pub number: u32,
    /// The context that it was created with.
    pub context: u64,
}

/// Something that happened to an object, a port or the device (`struct ibv_async_event`; `ibv_get_async_event(3)`). After the name
/// of each stands the event of the PRM that tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// `IBV_EVENT_CQ_ERR` (`CQ_ERROR`): a CQ is in error. Nothing more is written to it; its queue pairs fail as they complete.
    CqErr {
        /// The CQ.
        cq: Element,
        /// Why: it was full, or the device was refused access to it.
        syndrome: CqErrorSyndrome,
    },
    /// `IBV_EVENT_QP_FATAL` (`WQ_CATAS_ERROR`): a queue pair is in the error state, for a reason that no completion can tell.
    QpFatal(Element),
    /// `IBV_EVENT_QP_REQ_ERR` (`WQ_INVAL_REQ_ERROR`): a queue pair got a request that is not valid.
    QpReqErr(Element),
    /// `IBV_EVENT_QP_ACCESS_ERR` (`WQ_ACCESS_ERROR`): a queue pair got a request for memory that it may not reach.
    QpAccessErr(Element),
    /// `IBV_EVENT_COMM_EST` (`COMM_EST`): a queue pair in RTR got its first message.
    CommEst(Element),
    /// `IBV_EVENT_SQ_DRAINED` (`SQ_DRAINED`): the send queue of a queue pair is drained.
    SqDrained(Element),
    /// `IBV_EVENT_PATH_MIG` (`PATH_MIG`): a connection has moved to its alternate path.
    PathMig(Element),
    /// `IBV_EVENT_PATH_MIG_ERR` (`PATH_MIG_FAILED`): a connection could not move to its alternate path.
    PathMigErr(Element),
    /// `IBV_EVENT_QP_LAST_WQE_REACHED` (`SRQ_LAST_WQE`): a queue pair in error takes nothing more from its SRQ.
    QpLastWqeReached(Element),
    /// `IBV_EVENT_SRQ_ERR` (`SRQ_CATAS_ERROR`): an SRQ failed.
    SrqErr(Element),
    /// `IBV_EVENT_SRQ_LIMIT_REACHED` (`SRQ_RQ_LIMIT`): an SRQ has fewer requests than its limit, which is now 0.
    SrqLimitReached(Element),
    /// `IBV_EVENT_PORT_ACTIVE` (`PORT_CHANGE`, `ACTIVE`).
    PortActive {
        /// The port, 1 for the first.
        port_num: u8,
    },
    /// `IBV_EVENT_PORT_ERR` (`PORT_CHANGE`, `DOWN` or `INITIALIZED`): the port is not active.
    PortErr {
        /// The port, 1 for the first.
        port_num: u8,
    },
    /// `IBV_EVENT_LID_CHANGE` (`PORT_CHANGE`, `LID`).
    LidChange {
        /// The port, 1 for the first.
        port_num: u8,
    },
    /// `IBV_EVENT_PKEY_CHANGE` (`PORT_CHANGE`, `PKEY`).
    PkeyChange {
        /// The port, 1 for the first.
        port_num: u8,
    },
    /// `IBV_EVENT_GID_CHANGE` (`PORT_CHANGE`, `GUID`).
    GidChange {
        /// The port, 1 for the first.
        port_num: u8,
    },
    /// `IBV_EVENT_CLIENT_REREGISTER` (`PORT_CHANGE`, `CLIENT_REREG`).
    ClientReregister {
        /// The port, 1 for the first.
        port_num: u8,
    },
    /// `IBV_EVENT_DEVICE_FATAL` (the health buffer, or no answer): no command is sent any more. Comes once.
    DeviceFatal(Failure),
}

/// Makes an event of the object that it concerns.
type Naming = fn(Element) -> AsyncEvent;

impl AsyncEvent {
    /// What an entry of an event queue says, if it says something about an object that is there or about a port.
    pub(super) fn of(event: &Event, registry: &Registry) -> Option<Self> {
        match *event {
            Event::CqError { cqn, syndrome } => registry.element(Kind::Cq, cqn).map(|cq| Self::CqErr { cq, syndrome }),
            Event::Queue { event_type, queue_type, number } => {
                let (kind, name) = Self::of_queue(event_type)?;
                // The field tells the kinds of queue pairs apart; an SRQ is known by the event's type alone.
                let ours = kind == Kind::Srq || queue_type == QueueType::QP;
                registry.element(kind, number).filter(|_| ours).map(name)
            }
            Event::Port { port, change } => Self::of_port(port, change),
            _ => None,
        }
    }

    fn of_queue(event_type: EventType) -> Option<(Kind, Naming)> {
        Some(match event_type {
            EventType::WQ_CATAS_ERROR => (Kind::Qp, Self::QpFatal),
            EventType::WQ_INVAL_REQ_ERROR => (Kind::Qp, Self::QpReqErr),
            EventType::WQ_ACCESS_ERROR => (Kind::Qp, Self::QpAccessErr),
            EventType::COMM_EST => (Kind::Qp, Self::CommEst),
            EventType::SQ_DRAINED => (Kind::Qp, Self::SqDrained),
            EventType::PATH_MIG => (Kind::Qp, Self::PathMig),
            EventType::PATH_MIG_FAILED => (Kind::Qp, Self::PathMigErr),
            EventType::SRQ_LAST_WQE => (Kind::Qp, Self::QpLastWqeReached),
            EventType::SRQ_CATAS_ERROR => (Kind::Srq, Self::SrqErr),
            EventType::SRQ_RQ_LIMIT => (Kind::Srq, Self::SrqLimitReached),
            _ => return None,
        })
    }

    fn of_port(port_num: u8, change: PortChange) -> Option<Self> {
        Some(match change {
            PortChange::ACTIVE => Self::PortActive { port_num },
            PortChange::DOWN | PortChange::INITIALIZED => Self::PortErr { port_num },
            PortChange::LID => Self::LidChange { port_num },
            PortChange::PKEY => Self::PkeyChange { port_num },
            PortChange::GUID => Self::GidChange { port_num },
            PortChange::CLIENT_REREG => Self::ClientReregister { port_num },
            _ => return None,
        })
    }

    /// The object that it concerns, by kind and number.
    pub(super) fn object(&self) -> Option<(Kind, u32)> {
        match *self {
            Self::CqErr { cq, .. } => Some((Kind::Cq, cq.number)),
            Self::QpFatal(qp)
            | Self::QpReqErr(qp)
            | Self::QpAccessErr(qp)
            | Self::CommEst(qp)
            | Self::SqDrained(qp)
            | Self::PathMig(qp)
            | Self::PathMigErr(qp)
            | Self::QpLastWqeReached(qp) => Some((Kind::Qp, qp.number)),
            Self::SrqErr(srq) | Self::SrqLimitReached(srq) => Some((Kind::Srq, srq.number)),
            _ => None,
        }
    }
}

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, element) = match self {
            Self::CqErr { cq, syndrome } => return write!(f, "CQ {:#x} is in error: {syndrome}", cq.number),
            Self::DeviceFatal(why) => return write!(f, "the device has failed: {why}"),
            Self::PortActive { port_num } => return write!(f, "port {port_num} is active"),
            Self::PortErr { port_num } => return write!(f, "port {port_num} is not active"),
            Self::LidChange { port_num } => return write!(f, "port {port_num} has another LID"),
            Self::PkeyChange { port_num } => return write!(f, "port {port_num} has other P_Keys"),
            Self::GidChange { port_num } => return write!(f, "port {port_num} has other GIDs"),
            Self::ClientReregister { port_num } => {
                return write!(f, "clients at port {port_num} have to register again");
            }
            Self::QpFatal(qp) => ("queue pair failed", qp),
            Self::QpReqErr(qp) => ("queue pair got an invalid request", qp),
            Self::QpAccessErr(qp) => ("queue pair got a request for memory that it may not reach", qp),
            Self::CommEst(qp) => ("queue pair got its first message", qp),
            Self::SqDrained(qp) => ("send queue of a queue pair is drained", qp),
            Self::PathMig(qp) => ("path of a queue pair migrated", qp),
            Self::PathMigErr(qp) => ("path of a queue pair did not migrate", qp),
            Self::QpLastWqeReached(qp) => ("queue pair takes nothing more from its SRQ", qp),
            Self::SrqErr(srq) => ("SRQ failed", srq),
            Self::SrqLimitReached(srq) => ("SRQ ran low", srq),
        };
        write!(f, "{:#x}: {what}", element.number)
    }
}
