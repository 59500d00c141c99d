//! Taking completions: by array, and field by field.

use std::time::Instant;

use mlx5::{Completion, Cq, PollAttr, PollError, Wc, WcFlags, WcResultFlags, ibv};

use super::check::{Done, Outstanding, Progress};
use super::failure::Failure;

/// Polls with `ibv_poll_cq`; how many came.
pub fn drain(cq: &mut Cq, progress: &mut Progress, receives: &mut Outstanding) -> Result<usize, Failure> {
    let mut wcs = [Wc::default(); 16];
    let n = ibv::poll_cq(cq, &mut wcs)?;
    let at = Instant::now();
    for wc in wcs.iter().take(n) {
        let done = Done {
            wr_id: wc.wr_id,
            status: wc.status,
            vendor_err: wc.vendor_err,
            opcode: Some(wc.opcode),
            qp_num: Some(wc.qp_num),
            has: None,
            byte_len: Some(wc.byte_len),
            src_qp: Some(wc.src_qp),
            grh: wc.flags().contains(WcResultFlags::GRH),
            number: wc.flags().contains(WcResultFlags::WITH_IMM).then(|| u32::from_be(wc.imm_data)),
            at,
        };
        progress.take(&done, receives)?;
    }
    Ok(n)
}

/// Polls with `ibv_start_poll`, `ibv_next_poll` and `ibv_end_poll`; how many came.
pub fn drain_lazily(cq: &mut Cq, progress: &mut Progress, receives: &mut Outstanding) -> Result<usize, Failure> {
    let mut poller = match ibv::start_poll(cq, &PollAttr::default()) {
        Err(PollError::Empty) => return Ok(0),
        other => other?,
    };
    let mut n = 0;
    loop {
        let entry = poller.completion();
        let done = Done {
            wr_id: entry.wr_id(),
            status: entry.status(),
            vendor_err: entry.vendor_err().unwrap_or(0),
            opcode: entry.opcode(),
            qp_num: entry.qp_num(),
            has: Some(fields(&entry)),
            byte_len: entry.byte_len(),
            src_qp: entry.src_qp(),
            grh: entry.wc_flags().contains(WcResultFlags::GRH),
            number: entry.imm_data().map(u32::from_be),
            at: Instant::now(),
        };
        progress.take(&done, receives)?;
        n += 1;
        match ibv::next_poll(&mut poller) {
            Ok(_) => {}
            Err(PollError::Empty) => break,
            Err(e) => return Err(e.into()),
        }
    }
    ibv::end_poll(poller);
    Ok(n)
}

/// The fields of a completion that can be read.
fn fields(entry: &Completion<'_>) -> WcFlags {
    let readers = [
        (WcFlags::BYTE_LEN, entry.byte_len().is_some()),
        (WcFlags::IMM, entry.imm_data().is_some() || entry.invalidated_rkey().is_some()),
        (WcFlags::QP_NUM, entry.qp_num().is_some()),
        (WcFlags::SRC_QP, entry.src_qp().is_some()),
        (WcFlags::SLID, entry.slid().is_some()),
        (WcFlags::SL, entry.sl().is_some()),
        (WcFlags::DLID_PATH_BITS, entry.dlid_path_bits().is_some()),
        (WcFlags::COMPLETION_TIMESTAMP, entry.completion_ts().is_some()),
        (WcFlags::CVLAN, entry.cvlan().is_some()),
        (WcFlags::FLOW_TAG, entry.flow_tag().is_some()),
        (WcFlags::TM_INFO, entry.tm_info().is_some()),
        (WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK, entry.completion_wallclock_ns().is_some()),
    ];
    readers.into_iter().filter(|(_, has)| *has).map(|(field, _)| field).collect()
}
