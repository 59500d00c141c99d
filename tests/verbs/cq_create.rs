//! Creating completion queues: each wrong argument gets its error number, in the order of libmlx5 and then of the kernel, and
//! leaves nothing behind.

use crate::support::{close, open};
use mlx5::dv::{CqInitAttrFlags, CqInitAttrMask as DvMask};
use mlx5::{Cq, CqInitAttrEx, CqInitAttrMask, CreateCqFlags, Device, Error, WcFlags, dv, ibv};

const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

fn errno<T>(result: Result<T, Error>) -> Option<i32> {
    result.err().map(Error::errno)
}

/// Both attributes of `mlx5dv_create_cq(3)`.
#[derive(Clone, Copy, Default)]
struct Attr<'a> {
    ex: CqInitAttrEx<'a>,
    dv: dv::CqInitAttr,
}

impl Attr<'_> {
    fn good() -> Self {
        let ex = CqInitAttrEx { cqe: 7, wc_flags: WcFlags::STANDARD, ..Default::default() };
        Self { ex, ..Default::default() }
    }

    fn create(&self, dev: &Device) -> Result<Cq, Error> {
        ibv::dv::create_cq(dev, &self.ex, &self.dv)
    }

    fn size(&mut self, bytes: u16) {
        self.dv.comp_mask |= DvMask::CQE_SIZE;
        self.dv.cqe_size = bytes;
    }

    fn dv_flags(&mut self, flags: u32) {
        self.dv.comp_mask |= DvMask::FLAGS;
        self.dv.flags |= CqInitAttrFlags::from_bits_retain(flags);
    }

    fn flags(&mut self, flags: u32) {
        self.ex.comp_mask |= CqInitAttrMask::FLAGS;
        self.ex.flags |= CreateCqFlags::from_bits_retain(flags);
    }
}

/// A wrong argument: how to give it, its error number, what it is. Those that say so can't be given together with others.
type Wrong = (fn(&mut Attr<'_>), i32, &'static str);

/// Case C-006, and what the kernel checks behind it.
const WRONG: [Wrong; 11] = [
    (|a| a.ex.cqe = 0, EINVAL, "cqe is 0"),
    (|a| a.ex.comp_mask |= CqInitAttrMask::from_bits_retain(1 << 2), EINVAL, "unknown comp_mask bit"),
    (|a| a.flags(1 << 2), EINVAL, "unknown creation flag"),
    (|a| a.ex.wc_flags |= WcFlags::from_bits_retain(1 << 12), EOPNOTSUPP, "unknown wc_flags bit"),
    (|a| a.dv.comp_mask |= DvMask::from_bits_retain(1 << 4), EINVAL, "unknown vendor comp_mask bit"),
    (|a| a.ex.comp_mask |= CqInitAttrMask::PD, EINVAL, "parent domain that is not one"),
    (
        |a| a.ex.wc_flags |= WcFlags::COMPLETION_TIMESTAMP | WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK,
        EOPNOTSUPP,
        "two kinds of time stamps",
    ),
    (|a| a.ex.cqe = 1 << 24, EINVAL, "ring above 2^24"),
    (|a| a.size(63), EINVAL, "CQE size other than 64 or 128"),
    (|a| a.dv_flags(1 << 1), EINVAL, "unknown vendor flag"),
    (|a| a.ex.comp_vector = 1, EINVAL, "comp_vector is the number of vectors"),
];

/// Case C-006: the first wrong argument in this order decides.
#[test]
fn create_cq_checks_its_arguments_in_order() {
    let (port, dev) = open();
    assert_eq!(dev.query_device().num_comp_vectors, 1);
    for (i, (break_it, right, what)) in WRONG.into_iter().enumerate() {
        let mut attr = Attr::good();
        break_it(&mut attr);
        assert_eq!(errno(attr.create(&dev)), Some(right), "{what}");
        for (also, _, later) in &WRONG[i + 1..] {
            let mut both = attr;
            also(&mut both);
            if (what, *later) != ("cqe is 0", "ring above 2^24") {
                assert_eq!(errno(both.create(&dev)), Some(right), "{what}, and {later}");
            }
        }
    }
    close(&port, dev);
}
