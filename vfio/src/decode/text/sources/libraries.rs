//! Libraries and tools on top of verbs: libmlx5, perftest, UCX, DPDK.

use crate::decode::text::format::{Format, Side, What};
use crate::decode::text::notice as n;

const fn of(source: &'static str, what: What, line: &'static str) -> Format {
    Format { source, what, line }
}

const ANY: What = What::Completion(Side::Unknown);

/// Messages of each, those that say most first.
pub const FORMATS: &[Format] = &[
    of("libmlx5", What::DumpHead, "mlx5: {host:w} got completion with error:"),
    of("libmlx5", ANY, "got bad completion with status: {wc_status:x}, vendor syndrome: {vendor_err:x}"),
    // perftest; the code is in hex, and called syndrom
    of("perftest", What::Lead, "Completion with error at {side:w}"),
    of("perftest", What::Lead, "Completion wth error at {side:w}"),
    of("perftest", ANY, "Failed status {wc_status:d}: wr_id {wr_id:d} syndrom {vendor_err:x}"),
    of("perftest", What::Tail, "scnt={scnt:d}, ccnt={ccnt:d}"),
    of("perftest", What::Notice(&n::POLL_FAILED), "poll CQ failed {returned:d}"),
    of("verbs", ANY, "Failed status {status_text:t} ({wc_status:d}) for wr_id {wr_id:d}"),
    // UCX: two lines since 1.6, one before; the verbs transport
    of("ucx", ANY, " on {port:w} (synd {syndrome:x} vend {vendor_err:x} hw_synd {hw_synd_type:d}/{hw_err_synd:d})"),
    of(
        "ucx",
        ANY,
        "Error on QP {qpn:x} wqe[{wqe_index:d}]: {status_text:t} (synd {syndrome:n} vend {vendor_err:n})[[ opcode {wqe:w}]]",
    ),
    of("ucx", What::Tail, "{qp_type:w} QP {qpn:x} wqe[{wqe_index:d}]: opcode {wqe:w}"),
    of("ucx", What::Tail, "{qp_type:w} QP {qpn:x} wqe[{wqe_index:d}]: {wqe:w}"),
    of(
        "ucx",
        What::Completion(Side::Requester),
        "send completion with error: {status_text:t} [[qpn {qpn:x} ]][[wrid {wr_id:x} ]]vendor_err {vendor_err:x}",
    ),
    // DPDK; queues in decimal. Aerial's copy prints the syndrome in decimal as well.
    of(
        "dpdk",
        What::Completion(Side::Requester),
        "Unexpected CQE error syndrome {syndrome:n} CQN = {cqn:d} SQN = {qpn:d} wqe_counter = {wqe_counter:d}[[ wq_ci = {wq_ci:d}]] cq_ci = {cq_ci:d}",
    ),
    of(
        "dpdk",
        What::Completion(Side::Responder),
        "Unexpected CQE error syndrome {syndrome:n} CQN = {cqn:d} RQN = {qpn:d} wqe_counter = {wqe_counter:d}[[ rq_ci = {wq_ci:d}]] cq_ci = {cq_ci:d}",
    ),
    of("dpdk", What::DumpHead, "MLX5 Error CQ:"),
];
