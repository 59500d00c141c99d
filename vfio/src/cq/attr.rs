//! The attributes of a completion queue as options, one for one.

use clap::{Args, ValueEnum};
use mlx5::{
    CompChannel, Cq, CqInitAttrEx, CqInitAttrMask, CreateCqFlags, Device, Error, ParentDomain, WcFlags, dv, ibv,
};
use serde_json::{Value, json};

use super::report::Kind;
use crate::decode::errno_name;
use crate::options::{self, Compress, Layout};

/// What `ibv_create_cq_ex(3)` and `mlx5dv_create_cq(3)` take. Nothing is checked here: the library says what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[group(id = "attributes")]
pub(crate) struct Attributes {
    /// Smallest number of entries
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) cqe: u32,
    /// Completion vector for events
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) comp_vector: u32,
    /// Fields of completions: names as byte-len,imm,cvlan, or a number [default: standard]
    #[arg(long, value_name = "LIST|NUMBER", value_parser = options::wc_flags)]
    pub(crate) wc_flags: Option<u64>,
    /// Behaviour: single-threaded, ignore-overrun, or a number
    #[arg(long, value_name = "LIST|NUMBER", value_parser = options::create_flags)]
    pub(crate) flags: Option<u32>,
    /// Put its memory into a parent domain (with the platform's allocator)
    #[arg(long)]
    pub(crate) parent_domain: bool,
    /// Mask of the verbs' attributes [default: those that are given]
    #[arg(long, value_name = "NUMBER", value_parser = options::number)]
    pub(crate) comp_mask: Option<u32>,
    /// Bytes of an entry: 64 or 128
    #[arg(long, value_name = "BYTES")]
    pub(crate) cqe_size: Option<u16>,
    /// Write entries of 128 bytes whole (CQE_PAD)
    #[arg(long)]
    pub(crate) pad: bool,
    /// Compress: hash, csum, csum-stridx, ftag-stridx, l34h-stridx, or a number
    #[arg(long, value_name = "FORMAT|NUMBER", value_parser = options::formats)]
    pub(crate) compress: Option<u8>,
    /// Where compressed entries lie
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) layout: Option<Layout>,
    /// Mask of mlx5dv's attributes [default: those that are given]
    #[arg(long, value_name = "NUMBER", value_parser = options::number)]
    pub(crate) dv_comp_mask: Option<u32>,
}

impl Attributes {
    /// The fields that completions shall carry.
    pub(crate) fn fields(&self) -> WcFlags {
        self.wc_flags.map_or(WcFlags::STANDARD, WcFlags::from_bits_retain)
    }

    /// The attributes of the verbs.
    pub(crate) fn verbs<'a>(&self, parent_domain: Option<&'a ParentDomain>) -> CqInitAttrEx<'a> {
        let mut comp_mask = CqInitAttrMask::empty();
        comp_mask.set(CqInitAttrMask::FLAGS, self.flags.is_some());
        comp_mask.set(CqInitAttrMask::PD, self.parent_domain);
        CqInitAttrEx {
            cqe: self.cqe,
            comp_vector: self.comp_vector,
            wc_flags: self.fields(),
            comp_mask: self.comp_mask.map_or(comp_mask, CqInitAttrMask::from_bits_retain),
            flags: CreateCqFlags::from_bits_retain(self.flags.unwrap_or(0)),
            parent_domain,
            ..CqInitAttrEx::default()
        }
    }

    /// The attributes of mlx5dv.
    pub(crate) fn dv(&self) -> dv::CqInitAttr {
        let mut comp_mask = dv::CqInitAttrMask::empty();
        comp_mask.set(dv::CqInitAttrMask::COMPRESSED_CQE, self.compress.is_some());
        comp_mask.set(dv::CqInitAttrMask::FLAGS, self.pad);
        comp_mask.set(dv::CqInitAttrMask::CQE_SIZE, self.cqe_size.is_some());
        comp_mask.set(dv::CqInitAttrMask::CQE_COMP_LAYOUT, self.layout.is_some());
        dv::CqInitAttr {
            comp_mask: self.dv_comp_mask.map_or(comp_mask, |n| dv::CqInitAttrMask::from_bits_retain(n.into())),
            cqe_comp_res_format: dv::CqeCompResFormat::from_bits_retain(self.compress.unwrap_or(0)),
            flags: if self.pad { dv::CqInitAttrFlags::CQE_PAD } else { dv::CqInitAttrFlags::empty() },
            cqe_size: self.cqe_size.unwrap_or(0),
            cqe_comp_layout: match self.layout {
                Some(Layout::Enhanced) => dv::CqeCompLayout::Enhanced,
                Some(Layout::Basic) | None => dv::CqeCompLayout::Basic,
            },
        }
    }

    /// Creates the CQ: with `mlx5dv_create_cq` if anything of its is asked for.
    pub(crate) fn create(
        &self,
        device: &Device,
        parent_domain: Option<&ParentDomain>,
        channel: Option<&CompChannel>,
    ) -> Result<Cq, Error> {
        let (attr, dv) = (CqInitAttrEx { channel, ..self.verbs(parent_domain) }, self.dv());
        if dv.comp_mask.is_empty() { ibv::create_cq_ex(device, &attr) } else { ibv::dv::create_cq(device, &attr, &dv) }
    }

    /// The kind of entries that is asked for.
    pub(crate) fn kind(&self) -> Kind {
        let format = |bits| Compress::value_variants().iter().copied().find(|format| format.bit().bits() == bits);
        let layout = self.layout.unwrap_or(Layout::Basic);
        Kind {
            cqe_size: self.cqe_size.unwrap_or(64).into(),
            padded: self.pad,
            compressed: self.compress.and_then(format).map(|format| (format, layout)),
        }
    }

    /// The calls and their arguments.
    pub(crate) fn words(&self) -> String {
        let attr = self.verbs(None);
        let mut words = format!(
            "cqe {}, comp_vector {}, wc_flags {:#x}, comp_mask {:#x}",
            attr.cqe, attr.comp_vector, attr.wc_flags, attr.comp_mask
        );
        if let Some(flags) = self.flags {
            words += &format!(", flags {flags:#x}");
        }
        let dv = self.dv();
        if !dv.comp_mask.is_empty() {
            words += &format!("; mlx5dv: comp_mask {:#x}", dv.comp_mask);
            if let Some(size) = self.cqe_size {
                words += &format!(", cqe_size {size}");
            }
            words += if self.pad { ", flags CQE_PAD" } else { "" };
            if let Some(format) = self.compress {
                words += &format!(", cqe_comp_res_format {format:#x}");
            }
            if let Some(layout) = self.layout {
                words += &format!(", cqe_comp_layout {}", options::word(layout));
            }
        }
        words
    }

    /// The arguments, for programs.
    pub(crate) fn object(&self) -> Value {
        let (attr, dv) = (self.verbs(None), self.dv());
        json!({
            "cqe": attr.cqe,
            "comp_vector": attr.comp_vector,
            "wc_flags": attr.wc_flags.bits(),
            "comp_mask": attr.comp_mask.bits(),
            "flags": self.flags,
            "parent_domain": self.parent_domain,
            "dv_comp_mask": dv.comp_mask.bits(),
            "cqe_size": self.cqe_size,
            "pad": self.pad,
            "cqe_comp_res_format": self.compress,
            "layout": self.layout.map(options::word),
        })
    }
}

/// An error with its number and name: `EINVAL (22): cqe is 0`.
pub(crate) fn with_errno(error: Error) -> String {
    let (number, why) = (error.errno(), why(error));
    format!("{} ({number}): {why}", errno_name(number).unwrap_or("errno"))
}

/// Why a call failed, without the advice: here people try things out.
pub(crate) fn why(error: Error) -> String {
    match error {
        Error::Invalid { what } | Error::Unsupported { what } => what.into(),
        other => other.to_string(),
    }
}
