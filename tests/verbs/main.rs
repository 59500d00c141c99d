//! The verbs over the model: what the man pages promise, argument by argument and completion by completion.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod async_events;
mod clock;
mod cq_create;
mod cq_destroy;
mod cq_made;
mod cq_semantics;
mod errors;
mod events;
mod events_threads;
mod events_wait;
mod life;
mod no_alloc;
mod parent_domain;
mod poll_cases;
mod poll_checklist;
mod poll_entries;
mod poll_overrun;
mod poll_readers;
mod poll_sessions;
mod rc;
mod rc_table;
mod rdma;
mod rdma_mix;
mod resize;
mod resize_fail;
mod scatter;
mod srq;
mod srq_left;
mod srq_memory;
mod support;
mod threads;
mod uc;
mod ud;
mod ud_ah;
mod wqe_bytes;
