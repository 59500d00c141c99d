//! Asynchronous events: what happens to objects and ports without being asked for.

use core::fmt;

use mlx5_hw::eqe::{CqErrorSyndrome, Event, EventType, PortChange, QueueType};

use super::Kind;
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
    /// What an entry of an event queue says by itself, as a dump of it is read: the object need not exist, and its context is 0.
    /// `None` for what is not an asynchronous event of the verbs.
    pub fn of_entry(event: &Event) -> Option<Self> {
        Self::of(event, |_, number| Some(Element { number, context: 0 }))
    }

    /// What an entry of an event queue says, if it is about a port or an object that `find` knows.
    pub(super) fn of(event: &Event, find: impl FnOnce(Kind, u32) -> Option<Element>) -> Option<Self> {
        match *event {
            Event::CqError { cqn, syndrome } => find(Kind::Cq, cqn).map(|cq| Self::CqErr { cq, syndrome }),
            Event::Queue { event_type, queue_type, number } => {
                let (kind, name) = Self::of_queue(event_type)?;
                // The field tells the kinds of queue pairs apart; an SRQ is known by the event's type alone.
                let ours = kind == Kind::Srq || queue_type == QueueType::QP;
                find(kind, number).filter(|_| ours).map(name)
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

    /// The verbs' name for it, as in `enum ibv_event_type`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CqErr { .. } => "IBV_EVENT_CQ_ERR",
            Self::QpFatal(_) => "IBV_EVENT_QP_FATAL",
            Self::QpReqErr(_) => "IBV_EVENT_QP_REQ_ERR",
            Self::QpAccessErr(_) => "IBV_EVENT_QP_ACCESS_ERR",
            Self::CommEst(_) => "IBV_EVENT_COMM_EST",
            Self::SqDrained(_) => "IBV_EVENT_SQ_DRAINED",
            Self::PathMig(_) => "IBV_EVENT_PATH_MIG",
            Self::PathMigErr(_) => "IBV_EVENT_PATH_MIG_ERR",
            Self::QpLastWqeReached(_) => "IBV_EVENT_QP_LAST_WQE_REACHED",
            Self::SrqErr(_) => "IBV_EVENT_SRQ_ERR",
            Self::SrqLimitReached(_) => "IBV_EVENT_SRQ_LIMIT_REACHED",
            Self::PortActive { .. } => "IBV_EVENT_PORT_ACTIVE",
            Self::PortErr { .. } => "IBV_EVENT_PORT_ERR",
            Self::LidChange { .. } => "IBV_EVENT_LID_CHANGE",
            Self::PkeyChange { .. } => "IBV_EVENT_PKEY_CHANGE",
            Self::GidChange { .. } => "IBV_EVENT_GID_CHANGE",
            Self::ClientReregister { .. } => "IBV_EVENT_CLIENT_REREGISTER",
            Self::DeviceFatal(_) => "IBV_EVENT_DEVICE_FATAL",
        }
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
        let (what, element) = match *self {
            Self::CqErr { cq, syndrome } => return cq_error(f, cq.number, syndrome),
            Self::DeviceFatal(why) => return write!(f, "the device has failed: {why}"),
            Self::PortActive { port_num } => return write!(f, "port {port_num} is active"),
            Self::PortErr { port_num } => return write!(f, "port {port_num} is not active"),
            Self::LidChange { port_num } => return write!(f, "port {port_num} has another LID"),
            Self::PkeyChange { port_num } => return write!(f, "port {port_num} has other P_Keys"),
            Self::GidChange { port_num } => return write!(f, "port {port_num} has other GIDs"),
            Self::ClientReregister { port_num } => {
                return write!(f, "clients of port {port_num} are to register again with the subnet manager");
            }
            Self::QpFatal(qp) => ("is in the error state, and no completion tells why", qp),
            Self::QpReqErr(qp) => ("got a request that is not valid, and is in the error state", qp),
            Self::QpAccessErr(qp) => ("got a request for memory that it may not reach, and is in the error state", qp),
            Self::CommEst(qp) => ("got its first message", qp),
            Self::SqDrained(qp) => ("has drained its send queue", qp),
            Self::PathMig(qp) => ("has moved to its alternate path", qp),
            Self::PathMigErr(qp) => ("could not move to its alternate path", qp),
            Self::QpLastWqeReached(qp) => ("takes nothing more from its shared receive queue", qp),
            Self::SrqErr(srq) => ("failed", srq),
            Self::SrqLimitReached(srq) => ("has fewer requests than its limit", srq),
        };
        let kind = match self.object() {
            Some((Kind::Srq, _)) => "shared receive queue",
            _ => "queue pair",
        };
        write!(f, "{kind} {:#x} {what}", element.number)
    }
}

fn cq_error(f: &mut fmt::Formatter<'_>, cqn: u32, syndrome: CqErrorSyndrome) -> fmt::Result {
    write!(f, "CQ {cqn:#x} failed: ")?;
    match syndrome {
        CqErrorSyndrome::CQ_OVERRUN => f.write_str("CQ overrun")?,
        CqErrorSyndrome::CQ_ACCESS_VIOLATION_ERROR => f.write_str("CQ access violation")?,
        other => write!(f, "syndrome {other}")?,
    }
    f.write_str("; nothing more is written to it")
}
