//! Texts of completion statuses, as libraries print them.

use mlx5::WcStatus;
use mlx5_hw::cqe::CqeSyndrome;

/// Texts of `ibv_wc_status_str` (verbs) and `ib_wc_status_msg` (Linux). Those that many programs print about anything else
/// ("success", "fatal error", "general error") are left out.
const TEXTS: &[(&str, WcStatus)] = &[
    ("local length error", WcStatus::LOC_LEN_ERR),
    ("local QP operation error", WcStatus::LOC_QP_OP_ERR),
    ("local EE context operation error", WcStatus::LOC_EEC_OP_ERR),
    ("local EE-context operation error", WcStatus::LOC_EEC_OP_ERR),
    ("local protection error", WcStatus::LOC_PROT_ERR),
    ("Work Request Flushed Error", WcStatus::WR_FLUSH_ERR),
    ("WR flushed", WcStatus::WR_FLUSH_ERR),
    ("memory management operation error", WcStatus::MW_BIND_ERR),
    ("memory bind operation error", WcStatus::MW_BIND_ERR),
    ("bad response error", WcStatus::BAD_RESP_ERR),
    ("local access error", WcStatus::LOC_ACCESS_ERR),
    ("remote invalid request error", WcStatus::REM_INV_REQ_ERR),
    ("remote access error", WcStatus::REM_ACCESS_ERR),
    ("remote operation error", WcStatus::REM_OP_ERR),
    ("transport retry counter exceeded", WcStatus::RETRY_EXC_ERR),
    ("RNR retry counter exceeded", WcStatus::RNR_RETRY_EXC_ERR),
    ("local RDD violation error", WcStatus::LOC_RDD_VIOL_ERR),
    ("remote invalid RD request", WcStatus::REM_INV_RD_REQ_ERR),
    ("aborted error", WcStatus::REM_ABORT_ERR),
    ("operation aborted", WcStatus::REM_ABORT_ERR),
    ("invalid EE context number", WcStatus::INV_EECN_ERR),
    ("invalid EE-context number", WcStatus::INV_EECN_ERR),
    ("invalid EE context state", WcStatus::INV_EEC_STATE_ERR),
    ("invalid EE-context state", WcStatus::INV_EEC_STATE_ERR),
    ("response timeout error", WcStatus::RESP_TIMEOUT_ERR),
];

/// What Linux says for numbers that the table leaves out.
const SHORT: &[(&str, WcStatus)] =
    &[("success", WcStatus::SUCCESS), ("fatal error", WcStatus::FATAL_ERR), ("general error", WcStatus::GENERAL_ERR)];

/// Every text that stands for a status wherever it is found.
pub fn texts() -> impl Iterator<Item = &'static str> {
    TEXTS.iter().map(|(text, _)| *text)
}

/// Texts that programs print about anything else as well.
const EVERYDAY: &[&str] = &[
    "local length error",
    "local access error",
    "bad response error",
    "remote access error",
    "remote operation error",
    "aborted error",
    "operation aborted",
    "response timeout error",
];

/// Words of lines that are about verbs.
const VERBS: &[&str] =
    &["wc", "wr", "cq", "cqe", "qp", "ib", "ibv", "rdma", "verbs", "completion", "infiniband", "mlx5", "ucx", "vendor"];

/// Whether a text needs other words around it to be a status.
pub fn is_everyday(text: &str) -> bool {
    EVERYDAY.contains(&text)
}

/// Whether a line has words of verbs.
pub fn speaks_of_verbs(line: &str) -> bool {
    let mut words = line.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| VERBS.iter().any(|known| known.eq_ignore_ascii_case(word)))
}

/// The status that a text names.
pub fn of_text(text: &str) -> Option<WcStatus> {
    let known = TEXTS.iter().chain(SHORT).find(|(known, _)| known.eq_ignore_ascii_case(text));
    known.map(|(_, status)| *status)
}

/// The syndrome of the hardware that turns into a status; `None` if none does, or the general error, which many do.
pub fn syndrome_of(status: WcStatus) -> Option<CqeSyndrome> {
    let all = CqeSyndrome::VALUES.iter().map(|(_, number, _)| CqeSyndrome(*number as u8));
    all.into_iter().find(|syndrome| syndrome.wc_status() == status.0)
}
