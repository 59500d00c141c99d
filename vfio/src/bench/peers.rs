//! What others take for the same work: medians measured on one machine (AMD EPYC Zen 5, gcc 12.2 -O3) over the same bytes, beside the
//! same floor. rdma-core 65.0, UCX 9466d104a3 (one completion a call, no `wr_id`), DPDK 26.11.0-rc0 (its descriptors, no `wr_id`).

/// A peer's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peer {
    /// Who, and by which function.
    pub name: &'static str,
    /// Nanoseconds for each completion.
    pub nanoseconds: f64,
}

const fn peer(name: &'static str, nanoseconds: f64) -> Peer {
    Peer { name, nanoseconds }
}

/// The peers of a row, and what the floor took in their run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peers {
    /// Nanoseconds for each entry.
    pub floor: f64,
    /// The fastest last.
    pub of: &'static [Peer],
}

macro_rules! peers {
    ($($(#[$doc:meta])* $name:ident, $floor:literal: $($of:literal $who:ident),*;)*) => {
        $($(#[$doc])* pub(super) const $name: Peers = Peers { floor: $floor, of: &[$(peer($who, $of)),*] };)*
    };
}

const LIBMLX5: &str = "libmlx5 poll_cq";
const ITERATOR: &str = "libmlx5 start/next/end";
const LOCKED: &str = "libmlx5 poll_cq, locked";
const UCX: &str = "UCX poll";
const UNZIP: &str = "UCX unzip";
const VECTOR: &str = "DPDK vector";
const BURST: &str = "DPDK vector burst";

peers! {
    POLL_1, 0.90: 21.3 LOCKED, 16.0 LIBMLX5, 2.2 UCX;
    POLL_16, 0.90: 12.2 LIBMLX5, 2.2 UCX;
    POLL_64, 0.90: 11.8 LIBMLX5, 2.2 UCX;
    ITERATOR_64, 0.90: 14.8 ITERATOR, 2.2 UCX;
    POLL_1_4096, 0.87: 21.9 LOCKED, 16.5 LIBMLX5, 2.1 UCX;
    POLL_16_4096, 0.87: 12.1 LIBMLX5, 2.1 UCX;
    POLL_64_4096, 0.87: 12.1 LIBMLX5, 2.1 UCX;
    ITERATOR_64_4096, 0.87: 15.3 ITERATOR, 2.1 UCX;
    IMM, 0.94: 12.8 LIBMLX5, 2.2 UCX;
    ITERATOR_IMM, 0.94: 17.0 ITERATOR, 2.2 UCX;
    REQUESTER, 0.94: 11.2 LIBMLX5, 2.3 UCX;
    ITERATOR_REQUESTER, 0.94: 15.6 ITERATOR, 2.3 UCX;
    SRQ, 0.98: 13.5 LIBMLX5, 2.3 UCX;
    ITERATOR_SRQ, 0.98: 16.7 ITERATOR, 2.3 UCX;
    MIX, 0.98: 14.3 LIBMLX5, 2.1 UCX;
    MIX_4096, 0.88: 19.6 LIBMLX5, 2.0 UCX;
    ITERATOR_MIX_4096, 0.88: 23.2 ITERATOR, 2.0 UCX;
    BYTES_128, 0.90: 12.7 LIBMLX5, 2.3 UCX;
    ITERATOR_128, 0.90: 15.5 ITERATOR, 2.3 UCX;
    REQUESTER_128, 0.90: 11.2 LIBMLX5, 2.3 UCX;
    HASH_7, 0.90: 5.44 VECTOR;
    HASH_8, 0.90: 4.42 VECTOR;
    HASH_16, 0.90: 2.78 VECTOR;
    HASH_32, 0.90: 1.92 VECTOR;
    HASH_63, 0.90: 1.56 VECTOR;
    CSUM_8, 0.90: 4.89 VECTOR;
    CSUM_63, 0.90: 2.03 VECTOR;
    ENHANCED, 0.90: 4.25 UNZIP, 1.45 VECTOR;
    ETHERNET, 1.02: 3.99 BURST, 3.09 VECTOR;
    L3_16, 1.21: 12.6 LIBMLX5, 2.3 UCX;
    L3_ITERATOR, 1.21: 15.4 ITERATOR, 2.3 UCX;
    L3_16_4096, 0.98: 12.5 LIBMLX5, 2.2 UCX;
    COLD_16, 6.1: 18.5 LIBMLX5, 8.6 UCX;
    COLD_ITERATOR, 6.1: 20.9 ITERATOR, 8.6 UCX;
    COLD_16_4096, 2.2: 12.6 LIBMLX5, 2.8 UCX;
    /// The floor here is reading byte 63.
    EMPTY, 0.3: 3.8 LIBMLX5, 3.3 UCX, 2.4 ITERATOR;
    NONE, 1.0: ;
}
