//! NCCL and the libraries that took its InfiniBand transport over. All numbers are decimal.

use crate::decode::text::format::{Format, Side, What};
use crate::decode::text::notice as n;

const fn completion(line: &'static str) -> Format {
    Format { source: "nccl", what: What::Completion(Side::Unknown), line }
}

/// Messages of `net_ib`, newest first.
pub const FORMATS: &[Format] = &[
    completion(
        "Got completion from peer {peer:w} with status={status_name:w}({wc_status:d}) opcode={opcode_name:w}({printed_opcode:d}) [[reqSize={request_size:d} ]]vendor_err={vendor_err:d}[[ req_type={direction:w}]][[{gids:t} hca {hca:w}]]",
    ),
    completion(
        "Got completion from peer {peer:w} with status={wc_status:d} opcode={printed_opcode:d} len={printed_len:d} vendor err {vendor_err:d}[[ ({direction:w})]][[{gids:t} hca {hca:w}]]",
    ),
    completion(
        "Got completion [[from peer {peer:w} ]]with error {wc_status:d}, opcode {printed_opcode:d}, len {printed_len:d}, vendor err {vendor_err:d}[[ ({direction:w})]]",
    ),
    Format {
        source: "nccl",
        what: What::Notice(&n::ASYNC_EVENT),
        line: "NET/IB : {hca:w} Got async event : {event:t}$",
    },
];
