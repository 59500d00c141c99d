//! Creating completion queues: each wrong argument gets its error number, in the order of libmlx5 and then of the kernel, and
//! leaves nothing behind.

use crate::support::{Port, close, open, open_with};
use mlx5::dv::{CqInitAttrFlags, CqInitAttrMask as DvMask, CqeCompLayout, CqeCompResFormat as Format};
use mlx5::{Cq, CqInitAttrEx, CqInitAttrMask, CreateCqFlags, Device, Error, ParentDomainInitAttr, WcFlags, dv, ibv};
use mlx5_model::{CapConfig, ModelConfig};

pub const EINVAL: i32 = 22;
pub const EOPNOTSUPP: i32 = 95;

pub fn errno<T>(result: Result<T, Error>) -> Option<i32> {
    result.err().map(Error::errno)
}

pub fn with_caps(caps: CapConfig) -> (Port, Device) {
    open_with(ModelConfig { caps, ..Default::default() })
}

/// Both attributes of `mlx5dv_create_cq(3)`.
#[derive(Clone, Copy)]
pub struct Attr<'a> {
    pub ex: CqInitAttrEx<'a>,
    pub dv: dv::CqInitAttr,
}

impl Default for Attr<'_> {
    /// What nothing is wrong with.
    fn default() -> Self {
        let ex = CqInitAttrEx { cqe: 7, wc_flags: WcFlags::STANDARD, ..Default::default() };
        Self { ex, dv: dv::CqInitAttr::default() }
    }
}

impl Attr<'_> {
    pub fn create(&self, dev: &Device) -> Result<Cq, Error> {
        ibv::dv::create_cq(dev, &self.ex, &self.dv)
    }

    fn flags(&mut self, flags: u32) {
        self.ex.comp_mask |= CqInitAttrMask::FLAGS;
        self.ex.flags |= CreateCqFlags::from_bits_retain(flags);
    }

    pub fn size(&mut self, bytes: u16) {
        self.dv.comp_mask |= DvMask::CQE_SIZE;
        self.dv.cqe_size = bytes;
    }

    pub fn dv_flags(&mut self, flags: u32) {
        self.dv.comp_mask |= DvMask::FLAGS;
        self.dv.flags |= CqInitAttrFlags::from_bits_retain(flags);
    }

    pub fn compress(&mut self, format: u8) {
        self.dv.comp_mask |= DvMask::COMPRESSED_CQE;
        self.dv.cqe_comp_res_format = Format::from_bits_retain(format);
    }

    pub fn layout(&mut self, layout: CqeCompLayout) {
        self.dv.comp_mask |= DvMask::CQE_COMP_LAYOUT;
        self.dv.cqe_comp_layout = layout;
    }
}

/// A wrong argument: how to give it, its error number, what it is.
type Wrong = (fn(&mut Attr<'_>), i32, &'static str);

/// What is wrong on a device with the capabilities of [`poor`], in the order of case C-006 and, behind it, of what the
/// kernel checks.
const WRONG: [Wrong; 24] = [
    (|a| a.ex.cqe = 0, EINVAL, "cqe is 0"),
    (|a| a.ex.comp_mask |= CqInitAttrMask::from_bits_retain(1 << 2), EINVAL, "unknown comp_mask bit"),
    (|a| a.flags(1 << 2), EINVAL, "unknown creation flag"),
    (|a| a.ex.wc_flags |= WcFlags::from_bits_retain(1 << 12), EOPNOTSUPP, "unknown wc_flags bit"),
    (|a| a.dv.comp_mask |= DvMask::from_bits_retain(1 << 4), EINVAL, "unknown vendor comp_mask bit"),
    (|a| a.ex.comp_mask |= CqInitAttrMask::PD, EINVAL, "parent domain that is not one"),
    (|a| a.ex.wc_flags |= WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK, EOPNOTSUPP, "neither real time nor time of day"),
    (|a| a.ex.cqe = 1 << 24, EINVAL, "ring above 2^24"),
    (|a| a.size(63), EINVAL, "CQE size other than 64 or 128"),
    (|a| a.compress(0), EINVAL, "no format"),
    (|a| a.compress(3), EINVAL, "HASH|CSUM"),
    (|a| a.compress(1 << 5), EINVAL, "unknown format"),
    (
        |a| {
            a.compress(1);
            a.size(128);
        },
        EINVAL,
        "compression of 128 bytes without the capability",
    ),
    (
        |a| {
            a.layout(CqeCompLayout::Enhanced);
            a.dv.comp_mask.remove(DvMask::COMPRESSED_CQE);
        },
        EINVAL,
        "a layout without compression",
    ),
    (|a| a.dv_flags(1 << 1), EINVAL, "unknown vendor flag"),
    (|a| a.dv_flags(1), EINVAL, "padding without the capability"),
    (|a| a.ex.comp_vector = 1, EINVAL, "comp_vector is the number of vectors"),
    (|a| a.ex.comp_vector = u32::MAX, EINVAL, "comp_vector is no number at all"),
    (|a| a.ex.cqe = 1 << 16, EINVAL, "cqe above the device's"),
    (|a| a.flags(1 << 1), EOPNOTSUPP, "IGNORE_OVERRUN without the capability"),
    (|a| a.compress(1 << 2), EOPNOTSUPP, "CSUM_STRIDX without the capability"),
    (|a| a.compress(1 << 3), EOPNOTSUPP, "FTAG_STRIDX without the capability"),
    (|a| a.compress(1 << 4), EOPNOTSUPP, "L34H_STRIDX without the capability"),
    (
        |a| {
            a.compress(1);
            a.layout(CqeCompLayout::Enhanced);
        },
        EOPNOTSUPP,
        "the enhanced layout without the capability",
    ),
];

/// Compression of 64-byte entries in the two formats that come with it, and nothing else.
fn poor() -> CapConfig {
    let plain = CapConfig::default().plain_cqs();
    CapConfig { cq_oi: false, cqe_compression: true, cqe_compression_max_num: 64, ..plain }
}

/// Case C-006: the first wrong argument in the list decides, and (C-008) nothing was begun.
#[test]
fn create_cq_checks_its_arguments_in_order() {
    let (port, dev) = with_caps(poor());
    port.model.set_wall_clock(None);
    let (before, memory) = (dev.command_counters(), port.model.dma_outstanding());
    for (i, (break_it, right, what)) in WRONG.into_iter().enumerate() {
        let mut attr = Attr::default();
        break_it(&mut attr);
        let alone = attr.create(&dev).expect_err(what);
        assert_eq!(alone.errno(), right, "{what}: {alone}");
        for (also, _, later) in &WRONG[i + 1..] {
            let mut both = Attr::default();
            // What both of them set is the first one's.
            also(&mut both);
            break_it(&mut both);
            assert_eq!(both.create(&dev).err(), Some(alone), "{what}, and {later}");
        }
    }
    assert_eq!((dev.command_counters(), port.model.dma_outstanding()), (before, memory), "nothing was begun");
    drop(Attr::default().create(&dev).expect("without all that"));
    close(&port, dev);
}

/// Cases C-006 (compression asked, the device lacks it; padding) and C-049: each kind of entry against each capability.
#[test]
fn kinds_of_entries_need_their_capabilities() {
    let none = CapConfig::default().plain_cqs();
    let base = CapConfig { cqe_compression: true, cqe_compression_max_num: 8, ..none.clone() };
    type Ask = fn(&mut Attr<'_>);
    let asks: [(Ask, &str); 9] = [
        (|a| a.compress(1), "hash"),
        (|a| a.compress(2), "csum"),
        (|a| a.compress(4), "csum and stride index"),
        (|a| a.compress(8), "flow tag and stride index"),
        (|a| a.compress(16), "header types and stride index"),
        (
            |a| {
                a.compress(2);
                a.size(128);
            },
            "csum in 128 bytes",
        ),
        (
            |a| {
                a.compress(1);
                a.layout(CqeCompLayout::Enhanced);
            },
            "enhanced",
        ),
        (
            |a| {
                a.compress(1);
                a.layout(CqeCompLayout::Basic);
            },
            "basic",
        ),
        (
            |a| {
                a.dv_flags(1);
                a.size(128);
            },
            "padded",
        ),
    ];
    let (ok, inval, notsup) = (None, Some(EINVAL), Some(EOPNOTSUPP));
    for (caps, right, name) in [
        (none.clone(), [inval; 9], "nothing"),
        (CapConfig { cqe_compression: true, ..none.clone() }, [inval; 9], "sessions of 0"),
        (
            CapConfig { cqe_compression_max_num: 8, cqe_compression_128: true, ..none.clone() },
            [inval; 9],
            "only of 128",
        ),
        (base.clone(), [ok, ok, notsup, notsup, notsup, inval, notsup, ok, inval], "compression"),
        (
            CapConfig { mini_cqe_resp_stride_index: true, ..base.clone() },
            [ok, ok, ok, notsup, notsup, inval, notsup, ok, inval],
            "stride index",
        ),
        (
            CapConfig { mini_cqe_resp_flow_tag: true, ..base.clone() },
            [ok, ok, notsup, ok, notsup, inval, notsup, ok, inval],
            "flow tag",
        ),
        (
            CapConfig { mini_cqe_resp_l3_l4_tag: true, ..base.clone() },
            [ok, ok, notsup, notsup, ok, inval, notsup, ok, inval],
            "header types",
        ),
        (
            CapConfig { cqe_compression_128: true, ..base.clone() },
            [ok, ok, notsup, notsup, notsup, ok, notsup, ok, inval],
            "128 bytes",
        ),
        (
            CapConfig { enhanced_cqe_compression: true, ..base.clone() },
            [ok, ok, notsup, notsup, notsup, inval, ok, ok, inval],
            "enhanced",
        ),
        (
            CapConfig { cqe_128_always: true, ..none },
            [inval, inval, inval, inval, inval, inval, inval, inval, ok],
            "pad",
        ),
        (CapConfig::default(), [ok; 9], "everything"),
    ] {
        let (port, dev) = with_caps(caps);
        for ((ask, what), right) in asks.iter().zip(right) {
            let mut attr = Attr::default();
            ask(&mut attr);
            let before = dev.command_counters();
            let made = attr.create(&dev);
            assert!(made.is_ok() || dev.command_counters() == before, "{what}: it was left to a device with {name}");
            assert_eq!(errno(made), right, "{what}, of a device with {name}");
        }
        close(&port, dev);
    }
}

/// Case C-006; `test_mlx5_cq.py`: CQE_PAD with 64 is EINVAL, and so is size 100.
#[test]
fn entries_have_64_or_128_bytes_and_only_the_larger_are_padded() {
    let (port, dev) = open();
    for bytes in (0..=300).chain([1 << 6 | 1 << 7, 1024, u16::MAX - 127, u16::MAX]) {
        let mut attr = Attr::default();
        attr.size(bytes);
        let right = if [64, 128].contains(&bytes) { None } else { Some(EINVAL) };
        assert_eq!(errno(attr.create(&dev)), right, "{bytes} bytes");
        attr.dv_flags(1);
        let right = if bytes == 128 { None } else { Some(EINVAL) };
        assert_eq!(errno(attr.create(&dev)), right, "{bytes} bytes, padded");
    }
    // The default is 64 bytes.
    let mut attr = Attr::default();
    assert_eq!(attr.create(&dev).unwrap().cqe_size(), 64);
    attr.dv_flags(1);
    assert_eq!(errno(attr.create(&dev)), Some(EINVAL));
    for bit in 1..32 {
        let mut attr = Attr::default();
        attr.size(128);
        attr.dv_flags(1 << bit);
        assert_eq!(errno(attr.create(&dev)), Some(EINVAL), "vendor flag {bit}");
    }
    for bit in 4..64 {
        let mut attr = Attr::default();
        attr.dv.comp_mask = DvMask::from_bits_retain(1 << bit);
        assert_eq!(errno(attr.create(&dev)), Some(EINVAL), "vendor comp_mask bit {bit}");
    }
    close(&port, dev);
}

/// Exactly one format (`test_mlx5_cq.py`: HASH|CSUM is EINVAL): all 256 values.
#[test]
fn compression_has_exactly_one_format() {
    let (port, dev) = open();
    for bits in 0..=255_u8 {
        let mut attr = Attr::default();
        attr.compress(bits);
        let right = if [1, 2, 4, 8, 16].contains(&bits) { None } else { Some(EINVAL) };
        assert_eq!(errno(attr.create(&dev)), right, "format {bits:#x}");
    }
    close(&port, dev);
}

/// Fields without their mask bit may hold anything.
#[test]
fn fields_that_the_masks_leave_out_are_not_looked_at() {
    let (port, dev) = open();
    let mut attr = Attr::default();
    attr.ex.flags = CreateCqFlags::from_bits_retain(!0);
    attr.dv = dv::CqInitAttr {
        comp_mask: DvMask::empty(),
        cqe_comp_res_format: Format::from_bits_retain(0xff),
        flags: CqInitAttrFlags::from_bits_retain(!0),
        cqe_size: 63,
        cqe_comp_layout: CqeCompLayout::Enhanced,
    };
    let cq = attr.create(&dev).unwrap();
    let cqc = cq.query().unwrap();
    assert_eq!((cq.cqe_size(), cqc.oi(), cqc.cqe_comp_en(), cqc.cqe_comp_layout()), (64, false, false, 0));
    drop(cq);
    // A parent domain without its bit is not joined.
    let pd = dev.alloc_pd().unwrap();
    let domain = ibv::alloc_parent_domain(&dev, &ParentDomainInitAttr { pd: Some(&pd), allocator: None }).unwrap();
    let mut attr = Attr::default();
    attr.ex.parent_domain = Some(&domain);
    let cq = attr.create(&dev).unwrap();
    ibv::dealloc_parent_domain(domain).map_err(|e| e.error).unwrap();
    drop((cq, pd));
    close(&port, dev);
}

/// `test_cqex.py`: every single wc_flags bit, and every single creation flag. Cases C-005 and C-075: SINGLE_THREADED is
/// accepted, and EOPNOTSUPP is for what is unknown.
#[test]
fn every_known_field_and_flag_is_taken_and_every_unknown_one_refused() {
    let (port, dev) = open();
    for bit in 0..64 {
        let mut attr = Attr::default();
        attr.ex.wc_flags = WcFlags::from_bits_retain(1 << bit);
        let made = attr.create(&dev);
        assert_eq!(made.as_ref().map(|cq| cq.wc_flags()).ok(), (bit < 12).then_some(attr.ex.wc_flags), "bit {bit}");
        assert_eq!(errno(made), if bit < 12 { None } else { Some(EOPNOTSUPP) }, "wc_flags bit {bit}");
    }
    for bit in 0..32 {
        let mut attr = Attr::default();
        attr.flags(1 << bit);
        assert_eq!(errno(attr.create(&dev)), if bit < 2 { None } else { Some(EINVAL) }, "creation flag {bit}");
        let mut attr = Attr::default();
        attr.ex.comp_mask = CqInitAttrMask::from_bits_retain(1 << bit);
        assert_eq!(errno(attr.create(&dev)), if bit == 0 { None } else { Some(EINVAL) }, "comp_mask bit {bit}");
    }
    close(&port, dev);
}

/// All 4096 sets of known fields: only wall-clock time that is made of ticks needs a platform that knows the time of day.
#[test]
fn all_fields_go_together_where_the_time_of_day_is_known() {
    for (real_time_ts, known) in [(true, true), (true, false), (false, true), (false, false)] {
        let (port, dev) = with_caps(CapConfig { real_time_ts, ..Default::default() });
        if !known {
            port.model.set_wall_clock(None);
        }
        for bits in 0..1 << 12 {
            let mut attr = Attr::default();
            attr.ex.wc_flags = WcFlags::from_bits_retain(bits);
            let [raw, wall] = [7, 11].map(|bit| bits & 1 << bit != 0);
            let right = if wall && (raw || !real_time_ts) && !known { Some(EOPNOTSUPP) } else { None };
            assert_eq!(errno(attr.create(&dev)), right, "wc_flags {bits:#x}, real time {real_time_ts}, {known}");
        }
        close(&port, dev);
    }
}
