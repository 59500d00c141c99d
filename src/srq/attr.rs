//! Attributes of shared receive queues, as the verbs name them.

/// Sizes and limit of a shared receive queue (`struct ibv_srq_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrqAttr {
    /// Requests that may be outstanding.
    pub max_wr: u32,
    /// Pieces of memory in one request.
    pub max_sge: u32,
    /// Fewer requests than this raise an event, once; 0 for none. Not looked at when the queue is created.
    pub srq_limit: u32,
}

/// How to create a shared receive queue (`struct ibv_srq_init_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrqInitAttr {
    /// The caller's own; [`Srq::context`](crate::Srq::context) gives it back.
    pub srq_context: u64,
    /// Sizes wanted; creation writes back what it gave.
    pub attr: SrqAttr,
}
