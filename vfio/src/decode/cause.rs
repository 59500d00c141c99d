//! What to look at after an error completion, beyond the one sentence that `mlx5_hw` has for each syndrome.

use mlx5_hw::cqe::CqeSyndrome;
use mlx5_hw::wqe::WqeOpcode;

use super::Record;

/// Vendor codes seen with a syndrome in public reports. What a code means alone is not published.
const VENDOR: &[(CqeSyndrome, &[u8])] = &[
    (CqeSyndrome::LOCAL_LENGTH_ERR, &[0x68]),
    (CqeSyndrome::LOCAL_QP_OP_ERR, &[0x61, 0x68]),
    (CqeSyndrome::LOCAL_PROT_ERR, &[0x32, 0x33, 0x51, 0x52, 0x53, 0x56]),
    (CqeSyndrome::WR_FLUSH_ERR, &[0xf9]),
    (CqeSyndrome::MW_BIND_ERR, &[0x78]),
    (CqeSyndrome::REMOTE_INVAL_REQ_ERR, &[0x8a]),
    (CqeSyndrome::REMOTE_ACCESS_ERR, &[0x88]),
    (CqeSyndrome::TRANSPORT_RETRY_EXC_ERR, &[0x81]),
    (CqeSyndrome::RNR_RETRY_EXC_ERR, &[0x87]),
];

/// What is known about a vendor code under a syndrome.
pub fn vendor(syndrome: CqeSyndrome, code: u8) -> String {
    let known = VENDOR.iter().find(|(s, _)| *s == syndrome).map_or(&[][..], |(_, codes)| codes);
    let place = if known.contains(&code) {
        "Seen with this syndrome in public reports"
    } else if known.is_empty() {
        "Nothing is published about codes with this syndrome"
    } else {
        "Not among those publicly seen with this syndrome"
    };
    format!("The vendor's finer code, vendor_err in verbs; some programs print it in decimal ({code}). {place}.")
}

/// Who failed where, as far as it changes what to look at.
pub struct Failed {
    /// Why.
    pub syndrome: CqeSyndrome,
    /// A send work request, as opposed to a receive.
    pub requester: bool,
    /// Opcode of the send work request.
    pub opcode: WqeOpcode,
    /// The vendor's code.
    pub vendor: u8,
}

/// Adds to a record what usually causes the error and what to do about it.
pub fn explain(record: &mut Record, failed: &Failed) {
    let hints = hints(failed).into_iter();
    record.causes.extend(std::iter::once(failed.syndrome.usual_cause()).chain(hints).map(String::from));
    record.next.extend(next(failed.syndrome).iter().map(|s| s.to_string()));
    if failed.syndrome != CqeSyndrome::WR_FLUSH_ERR {
        record.notes.push(
            "The first error entry of a queue names the cause; entries with syndrome 0x5 that follow are flushes. Of the \
             work completion only wr_id, status, vendor_err and the queue number hold something."
                .into(),
        );
    }
}

/// What to do next.
fn next(syndrome: CqeSyndrome) -> &'static [&'static str] {
    match syndrome {
        CqeSyndrome::LOCAL_LENGTH_ERR => {
            &["Compare the message's length with the sum of the receive's buffers, and with what the transport allows."]
        }
        CqeSyndrome::LOCAL_QP_OP_ERR => &[
            "Find the work request by wr_id: its opcode, its flags and its number of buffers against the queue's limits.",
        ],
        CqeSyndrome::LOCAL_PROT_ERR => &[
            "Find the work request by wr_id: each buffer must lie in the region of its lkey, of the same protection domain, alive.",
        ],
        CqeSyndrome::WR_FLUSH_ERR => &[
            "Look for the first error of this queue that is no flush, at this end and at the other; none: who moved it to the error state?",
        ],
        CqeSyndrome::REMOTE_INVAL_REQ_ERR | CqeSyndrome::REMOTE_ACCESS_ERR | CqeSyndrome::REMOTE_OP_ERR => {
            &["Look at the other end of the same second: its own completions, events and refused commands say more."]
        }
        CqeSyndrome::TRANSPORT_RETRY_EXC_ERR => &[
            "Is the other end's queue pair alive and in RTR or RTS? If its program ended first, this is a result, look there.",
            "Try both hosts with a small test (ib_write_bw, ibv_rc_pingpong) and the same device, port and GID index.",
        ],
        CqeSyndrome::RNR_RETRY_EXC_ERR => {
            &["Look at why the other end posts no receives; or set rnr_retry to 7, which waits without limit."]
        }
        _ => &["Keep the whole entry (a dump of the CQE, not only the printed numbers) for the vendor's support."],
    }
}

/// Things to check, likely ones first.
fn hints(failed: &Failed) -> Vec<&'static str> {
    let umr = failed.requester && failed.opcode == WqeOpcode::UMR;
    match failed.syndrome {
        CqeSyndrome::LOCAL_LENGTH_ERR if failed.requester => vec![
            "Raw Ethernet: too few header bytes were given inline for a device that wants them (wqe_inline_mode).",
            "The message is longer than the transport allows; a datagram: than the path MTU.",
        ],
        CqeSyndrome::LOCAL_QP_OP_ERR if umr => {
            vec!["The registration's list is not padded to the multiple of entries that the device wants."]
        }
        CqeSyndrome::LOCAL_QP_OP_ERR => vec![
            "Two threads wrote the queue at once, or it was overrun: then the WQE opcode shown here is not the one posted.",
        ],
        CqeSyndrome::LOCAL_PROT_ERR => vec![
            "The key belongs to another function: on adapters with several, each has keys of its own.",
            "Receiving: one of the buffers of the posted receive, headers apart from data included, was never mapped.",
        ],
        CqeSyndrome::WR_FLUSH_ERR => vec![
            "Vendor code 0xf9 goes with a plain flush; the program may have moved the queue to the error state itself, to drain it.",
        ],
        CqeSyndrome::MW_BIND_ERR if umr => vec![
            "The name speaks of memory windows, the work request is a registration (UMR): its list of pages is too short for the range, or the key is not free.",
        ],
        CqeSyndrome::REMOTE_INVAL_REQ_ERR => vec![
            "RDMA reads or atomics while the other side takes none: its max_dest_rd_atomic, its access flags.",
            "A command that was refused when the connection was set up; look at both sides' logs before this entry.",
        ],
        CqeSyndrome::REMOTE_ACCESS_ERR => vec![
            "The other side deregistered or invalidated the region while the request was under way, for example after a timeout of its own.",
        ],
        CqeSyndrome::TRANSPORT_RETRY_EXC_ERR => vec![
            "RoCE: GID index, RoCE version, VLAN, MTU, flow control (PFC, ECN), a firewall on UDP port 4791.",
            "timeout and retry_cnt of the queue pair are too small for the path.",
        ],
        CqeSyndrome::REMOTE_ABORTED_ERR if failed.vendor == 0x93 => vec![
            "Vendor code 0x93 on a shared receive queue: an on-demand-paging fault; the receive is posted again, no error is reported.",
        ],
        _ => vec![],
    }
}
