//! MPI libraries, and the forms that any program may print.

use crate::decode::text::format::{Format, Side, What};

const fn completion(source: &'static str, line: &'static str) -> Format {
    Format { source, what: What::Completion(Side::Unknown), line }
}

/// Open MPI's `openib`, then status and vendor code as most programs name them, then the texts of `ibv_wc_status_str` alone.
pub const FORMATS: &[Format] = &[
    completion(
        "openmpi",
        "error polling {cq:w} CQ with status {status_text:t} status number {wc_status:d} for wr_id {wr_id:X} opcode {printed_opcode:d} vendor error {vendor_err:d}",
    ),
    completion("program", "status {wc_status:d}~({status_text:t}), vendor_err {vendor_err:n}"),
    completion("program", "status[[:]] {wc_status:n},[[ op {operation:t},]] vendor_err {vendor_err:n}"),
    completion("program", "status {wc_status:d},[[ op {operation:t},]] vendor err[[or]] {vendor_err:d}"),
    completion("program", "status={wc_status:d}[[,]] [[{other:t} ]]vendor_err={vendor_err:n}"),
    completion("program", "{status_text:s}[[ ({wc_status:d})]][[, vendor_err {vendor_err:n}]]"),
];
