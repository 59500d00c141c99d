//! The table: what goes wrong with which operation, and what is right then. Nothing here was taken from a run of ours.
//!
//! Sources, by the letters in the rows:
//!
//! - `I`: InfiniBand specification 1.4, volume 1, 9.9: classes of errors, and what requester and responder do for each;
//!   the same classes are noted beside each case of Linux's software RoCE (`rxe_resp.c`).
//! - `V`: `ibv_poll_cq(3)` and `ibv_get_async_event(3)`: what each status and event means.
//! - `L`: the list of vendor codes seen on real devices in `tests/data/README.md`; a case (`A-002`) is one of them, in
//!   `tests/data/public-cases.jsonl`.
//! - `ucx N`, `spdk N`, `libevpl N`, `nvme-cli N`: an issue or pull request of that project on GitHub that shows it.

use mlx5::WcStatus as S;
use mlx5::hw::eqe::EventType;

/// What the other side sees.
#[derive(Clone, Copy)]
pub enum Peer {
    /// Nothing: its receives stay, its queue pair runs.
    Untouched,
    /// An asynchronous event; the queue pair is in error, its receives are flushed.
    Event(EventType),
    /// The receive that was used fails so; the queue pair is in error, its other receives are flushed.
    Completion(S, &'static [u8]),
    /// It fails the receive that was used, with a status that nobody has told of in public; the queue pair is in error.
    Breaks,
    /// Nothing that it would tell: it is gone, or in a state in which it does not listen.
    Silent,
}

/// What is right for a row.
#[derive(Clone, Copy)]
pub struct Right {
    /// Status of the request.
    pub status: S,
    /// Vendor codes that real devices have shown with it; a device uses several where it knows the cause more finely.
    pub vendor: &'static [u8],
    /// The other side.
    pub peer: Peer,
    /// Where it is written.
    pub source: &'static str,
}

const fn local(status: S, vendor: &'static [u8], source: &'static str) -> Right {
    Right { status, vendor, peer: Peer::Untouched, source }
}

const fn remote(status: S, vendor: &'static [u8], peer: Peer, source: &'static str) -> Right {
    Right { status, vendor, peer, source }
}

/// The memory key of a local buffer does not fit.
const PROT: Right = local(S::LOC_PROT_ERR, &[0x51, 0x52, 0x53, 0x56], "I class B, V; L, A-012, A-014, A-025, A-034");
/// The peer's memory key does not fit.
const ACCESS: Right = remote(
    S::REM_ACCESS_ERR,
    &[0x88],
    Peer::Event(EventType::WQ_ACCESS_ERROR),
    "I class C, V; L, A-002, A-003, spdk 1387, libevpl 89",
);
/// The peer refuses the request as such.
const INVALID: Right = remote(
    S::REM_INV_REQ_ERR,
    &[0x8a],
    Peer::Event(EventType::WQ_INVAL_REQ_ERROR),
    "I class C, V; L, A-032, A-033, ucx 1770",
);
/// Nobody answers.
const SILENCE: Right = remote(S::RETRY_EXC_ERR, &[0x81], Peer::Silent, "I 9.9.2, V; L, A-026, A-027, ucx 5732");

/// Vendor codes of flushes: `L`, `A-028`, `ucx 9209`.
pub const FLUSHED: &[u8] = &[0xf9, 0xf4];

macro_rules! rows {
    ($($cause:ident: $($op:ident)+ => $right:expr;)*) => {
        /// Cause, operation, what is right.
        pub const ROWS: &[(&str, &str, Right)] = &[$($((stringify!($cause), stringify!($op), $right),)+)*];
        $(mod $cause {
            $(#[test]
            fn $op() {
                crate::rc_table::check(stringify!($cause), stringify!($op));
            })+
        })*
    };
}

rows! {
    bad_lkey: send send_imm send_inv write write_imm read cmp_swap fetch_add => PROT;
    lkey_of_another_pd: send send_imm send_inv write write_imm read cmp_swap fetch_add => PROT;
    beyond_the_local_region: send send_imm send_inv write write_imm read cmp_swap fetch_add => PROT;
    no_local_write: read cmp_swap fetch_add => PROT;
    bad_rkey: write write_imm read cmp_swap fetch_add => ACCESS;
    rkey_of_another_pd: write write_imm read cmp_swap fetch_add => ACCESS;
    beyond_the_remote_region: write write_imm read cmp_swap fetch_add => ACCESS;
    no_remote_right: write write_imm read cmp_swap fetch_add => ACCESS;
    not_enabled_at_the_peer: write write_imm read cmp_swap fetch_add => INVALID;
    misaligned: cmp_swap fetch_add => INVALID;
    receive_too_small: send send_imm send_inv => remote(
        S::REM_INV_REQ_ERR, &[0x8a], Peer::Completion(S::LOC_LEN_ERR, &[0x68]), "I class C, V; L, A-032, A-033");
    receive_with_bad_lkey: send send_imm send_inv => remote(
        S::REM_OP_ERR, &[0x89], Peer::Completion(S::LOC_PROT_ERR, &[0x32]), "I class A, V; ucx 5472, ucx 10755; A-030, A-038");
    receive_without_local_write: send send_imm send_inv => remote(
        S::REM_OP_ERR, &[0x89], Peer::Completion(S::LOC_PROT_ERR, &[0x32]), "I class A, V; ucx 5472, ucx 10755; A-022");
    key_that_cannot_be_invalidated: send_inv => remote(S::SUCCESS, &[], Peer::Breaks, "I class J");
    no_receive: send send_imm send_inv write_imm => local(S::RNR_RETRY_EXC_ERR, &[0x87], "I 9.9.2, V; L");
    more_reads_than_the_peer_takes: read cmp_swap fetch_add => INVALID;
    wrong_qpn: send send_imm send_inv write write_imm read cmp_swap fetch_add => SILENCE;
    peer_destroyed: send send_imm send_inv write write_imm read cmp_swap fetch_add => SILENCE;
    peer_in_reset: send send_imm send_inv write write_imm read cmp_swap fetch_add => SILENCE;
    peer_in_error: send send_imm send_inv write write_imm read cmp_swap fetch_add => SILENCE;
    message_too_long: send send_imm send_inv write write_imm read => local(
        S::LOC_LEN_ERR, &[0x68], "I class B, V; L, A-019");
    unknown_opcode: send => local(S::LOC_QP_OP_ERR, &[0x68, 0x61], "I class B, V; L, A-018, A-020, ucx 3618");
    posted_in_error: send send_imm send_inv write write_imm read cmp_swap fetch_add => local(
        S::WR_FLUSH_ERR, FLUSHED, "I 10.3.1, V; L, A-028, nvme-cli 3268, ucx 9209");
}
