//! The data path of the model, driven by raw bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod batches;
mod blocks;
mod by_hand;
#[path = "../common/bytes.rs"]
mod bytes;
mod causes;
mod clocks;
mod completions;
mod connections;
mod datagrams;
mod depth;
mod errors;
mod events;
mod faults;
mod flame;
mod flame_errors;
mod infiniband;
mod inline;
mod kinds;
mod mix;
mod moderation;
mod one_sided;
mod qp;
mod raw;
mod rdma;
mod resize;
mod sessions;
mod squeeze;
mod srq;
mod srq_errors;
mod threads;
mod unreachable;
mod unreliable;
mod violations;
mod wqe;
