//! Completion queues of every form.

use mlx5::dv::{CqInitAttr, CqInitAttrFlags, CqInitAttrMask as Dv, CqeCompLayout, CqeCompResFormat};
use mlx5::{Cq, CqInitAttrEx, CqInitAttrMask, CreateCqFlags, Device, Error, WcFlags};
use proptest::prelude::*;

/// How to make a CQ.
#[derive(Clone, Debug)]
pub struct Plan {
    pub cqe: u32,
    /// Entries of 128 bytes, and whether they are padded.
    pub wide: Option<bool>,
    pub compressed: Option<(CqeCompResFormat, CqeCompLayout)>,
    pub ignore_overrun: bool,
}

impl Plan {
    pub fn make(&self, dev: &Device) -> Result<Cq, Error> {
        self.make_on(dev, |_| ())
    }

    /// As [`make`](Self::make), with what `change` adds.
    pub fn make_on<'a>(&self, dev: &Device, change: impl FnOnce(&mut CqInitAttrEx<'a>)) -> Result<Cq, Error> {
        let flags = if self.ignore_overrun { CreateCqFlags::IGNORE_OVERRUN } else { CreateCqFlags::empty() };
        let comp_mask = CqInitAttrMask::FLAGS;
        let mut attr =
            CqInitAttrEx { cqe: self.cqe, wc_flags: WcFlags::STANDARD, comp_mask, flags, ..CqInitAttrEx::default() };
        change(&mut attr);
        let mut dv = CqInitAttr { comp_mask: Dv::CQE_SIZE, cqe_size: 64, ..CqInitAttr::default() };
        if let Some(padded) = self.wide {
            dv.cqe_size = 128;
            if padded {
                dv.comp_mask |= Dv::FLAGS;
                dv.flags = CqInitAttrFlags::CQE_PAD;
            }
        }
        if let Some((format, layout)) = self.compressed {
            dv.comp_mask |= Dv::COMPRESSED_CQE | Dv::CQE_COMP_LAYOUT;
            (dv.cqe_comp_res_format, dv.cqe_comp_layout) = (format, layout);
        }
        dev.dv_create_cq(&attr, &dv)
    }
}

fn plan(compressed: impl Strategy<Value = Option<(CqeCompResFormat, CqeCompLayout)>>) -> impl Strategy<Value = Plan> {
    (prop_oneof![3u32..8, 8u32..40], prop::option::of(any::<bool>()), compressed, prop::bool::weighted(0.2))
        .prop_map(|(cqe, wide, compressed, ignore_overrun)| Plan { cqe, wide, compressed, ignore_overrun })
}

/// A CQ whose entries are full ones.
pub fn full() -> impl Strategy<Value = Plan> {
    plan(Just(None))
}

/// A CQ whose entries may be compressed.
pub fn compressed() -> impl Strategy<Value = Plan> {
    use CqeCompResFormat as F;
    let format = prop::sample::select(vec![F::HASH, F::CSUM, F::CSUM_STRIDX, F::FTAG_STRIDX, F::L34H_STRIDX]);
    let layout = prop::sample::select(vec![CqeCompLayout::Basic, CqeCompLayout::Enhanced]);
    plan((format, layout).prop_map(Some))
}
