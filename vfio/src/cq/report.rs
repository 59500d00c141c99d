//! What a completion queue came to, for people and programs.

use std::io::Write;

use mlx5::hw::cqc::{Cqc, CqeSz};
use mlx5::hw::qpc::TsFormat;
use mlx5::{Cq, DeviceAttr, Error, WcFlags};
use serde_json::{Value, json};

use super::attr::why;
use super::{Attributes, with_errno};
use crate::cli::Failure;
use crate::decode::errno_name;
use crate::options::{Compress, Layout, word};

/// What every completion has.
const ALWAYS: [&str; 5] = ["wr_id", "status", "opcode", "vendor_err", "wc_flags"];

/// The readers that a field of `wc_flags` gives.
const READERS: [(WcFlags, &[&str]); 12] = [
    (WcFlags::BYTE_LEN, &["byte_len"]),
    (WcFlags::IMM, &["imm_data", "invalidated_rkey"]),
    (WcFlags::QP_NUM, &["qp_num"]),
    (WcFlags::SRC_QP, &["src_qp"]),
    (WcFlags::SLID, &["slid"]),
    (WcFlags::SL, &["sl"]),
    (WcFlags::DLID_PATH_BITS, &["dlid_path_bits"]),
    (WcFlags::COMPLETION_TIMESTAMP, &["completion_ts"]),
    (WcFlags::CVLAN, &["cvlan"]),
    (WcFlags::FLOW_TAG, &["flow_tag"]),
    (WcFlags::TM_INFO, &["tm_info"]),
    (WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK, &["completion_wallclock_ns"]),
];

/// What the device says of a queue: its own context, not what it was asked for.
pub(super) struct Created {
    pub(super) cqn: u32,
    pub(super) cqe: u32,
    pub(super) slots: u32,
    pub(super) kind: Kind,
    most_in_session: u32,
    ignores_overrun: bool,
    real_time: bool,
    /// Of the device's free-running clock, in kHz; 0 where the device does not say.
    clock_khz: u64,
    eqn: u32,
    fields: WcFlags,
}

/// What kind of entries a queue has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Bytes of an entry.
    pub(crate) cqe_size: u32,
    /// Entries are written whole.
    pub(crate) padded: bool,
    /// Format and layout of compressed entries.
    pub(crate) compressed: Option<(Compress, Layout)>,
}

impl Kind {
    /// As the device's context has it.
    pub(crate) fn of(context: &Cqc) -> Self {
        let size = CqeSz(context.cqe_sz() as u8);
        let format = match context.mini_cqe_res_format() | context.mini_cqe_res_format_ext() << 2 {
            0 => Compress::Hash,
            1 => Compress::Csum,
            2 => Compress::FtagStridx,
            3 => Compress::CsumStridx,
            _ => Compress::L34hStridx,
        };
        let layout = if context.cqe_comp_layout() == 0 { Layout::Basic } else { Layout::Enhanced };
        Self {
            cqe_size: if size == CqeSz::BYTES_64 { 64 } else { 128 },
            padded: size == CqeSz::PAD_128,
            compressed: context.cqe_comp_en().then_some((format, layout)),
        }
    }

    /// In words: `128 bytes, padded, compressed (csum, enhanced layout)`.
    pub(crate) fn words(self) -> String {
        let padded = if self.padded { ", padded" } else { "" };
        let compressed = self.compressed.map_or("not compressed".into(), |(format, layout)| {
            format!("compressed ({}, {} layout)", word(format), word(layout))
        });
        format!("{} bytes{padded}, {compressed}", self.cqe_size)
    }

    /// For programs.
    pub(crate) fn put(self, object: &mut Value) {
        object["cqe_size"] = self.cqe_size.into();
        object["padded"] = self.padded.into();
        object["format"] = self.compressed.map(|(format, _)| word(format)).into();
        object["layout"] = self.compressed.map(|(_, layout)| word(layout)).into();
    }
}

impl Created {
    pub(super) fn of(cq: &Cq, context: &Cqc, limits: &DeviceAttr) -> Self {
        Self {
            cqn: cq.cqn(),
            cqe: cq.cqe(),
            slots: 1 << context.log_cq_size(),
            kind: Kind::of(context),
            most_in_session: limits.cqe_comp_caps.max_num,
            ignores_overrun: context.oi(),
            real_time: context.cq_timestamp_format() == u32::from(TsFormat::REAL_TIME.0),
            clock_khz: limits.hca_core_clock,
            eqn: context.c_eqn(),
            fields: cq.wc_flags(),
        }
    }

    fn bytes(&self) -> u64 {
        u64::from(self.slots) * u64::from(self.kind.cqe_size)
    }

    fn readers(&self) -> Vec<&'static str> {
        let asked = READERS.iter().filter(|(field, _)| self.fields.contains(*field));
        ALWAYS.into_iter().chain(asked.flat_map(|(_, readers)| readers.iter().copied())).collect()
    }

    /// What polling does with compressed entries.
    fn polling(&self) -> String {
        let own = match self.kind.compressed.map(|(format, _)| format) {
            None => return "each entry is one completion".into(),
            Some(Compress::Hash) => "the hash",
            Some(Compress::Csum) => "the checksum",
            Some(Compress::CsumStridx) => "checksum and stride index",
            Some(Compress::FtagStridx) => "flow tag and stride index",
            Some(Compress::L34hStridx) => "header types and stride index",
        };
        format!(
            "compressed entries come one by one, up to {} in a session; receives have their own length and {own}, sends \
             their own opcode, all else is the title's",
            self.most_in_session
        )
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let overrun =
            if self.ignores_overrun { "ignored: entries are lost" } else { "moves the queue to the error state" };
        let clock = match (self.real_time, self.clock_khz) {
            (true, _) => "real time".into(),
            (false, 0) => "the device's free-running clock".into(),
            (false, khz) => format!("the device's free-running clock, {} MHz", khz as f64 / 1e3),
        };
        vec![
            ("cqn", format!("{:#x}", self.cqn)),
            ("cqe", self.cqe.to_string()),
            ("ring", format!("{} slots of {} bytes, {} bytes", self.slots, self.kind.cqe_size, self.bytes())),
            ("entries", self.kind.words()),
            ("overrun", overrun.into()),
            ("time stamps", clock),
            ("events", format!("event queue {:#x}", self.eqn)),
            ("completions", self.readers().join(", ")),
            ("polling", self.polling()),
        ]
    }
}

/// A queue, or why there is none.
pub(super) struct Report(pub(super) Result<Created, Error>);

impl Report {
    /// Why the queue was not created, with number and name.
    pub(super) fn refusal(&self) -> Option<String> {
        self.0.as_ref().err().map(|error| with_errno(*error))
    }

    /// For programs.
    pub(super) fn object(&self, device: &str, asked: &Attributes) -> Value {
        let error = self.0.as_ref().err();
        let mut object = json!({
            "device": device,
            "asked": asked.object(),
            "errno": error.map_or(0, |e| e.errno()),
            "errno_name": error.and_then(|e| errno_name(e.errno())),
            "error": error.map(|e| why(*e)),
        });
        if let Ok(created) = &self.0 {
            object["cqn"] = created.cqn.into();
            object["cqe"] = created.cqe.into();
            object["slots"] = created.slots.into();
            object["bytes"] = created.bytes().into();
            created.kind.put(&mut object);
            object["most_in_session"] = created.kind.compressed.map(|_| created.most_in_session).into();
            object["ignores_overrun"] = created.ignores_overrun.into();
            object["real_time"] = created.real_time.into();
            object["clock_khz"] = created.clock_khz.into();
            object["eqn"] = created.eqn.into();
            object["fields"] = created.readers().into();
        }
        object
    }

    /// For people.
    pub(super) fn text(&self, asked: &Attributes, out: &mut dyn Write) -> Result<(), Failure> {
        let mut rows = vec![("asked for", asked.words())];
        match &self.0 {
            Ok(created) => rows.extend(created.rows()),
            Err(error) => rows.push(("errno", with_errno(*error))),
        }
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in rows {
            writeln!(out, "  {name:width$}  {value}")?;
        }
        Ok(())
    }
}
