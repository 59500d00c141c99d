//! The table of commands.

use super::reserved::{self, Bits};
use super::{Reject, cq, cq_modify, eq, hca, hca_vport, mkey, pages, qp, rmp, small, vport};
use crate::device::Device;

/// When a command is allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Only before ENABLE_HCA.
    Disabled,
    /// After ENABLE_HCA.
    Enabled,
    /// After ENABLE_HCA and before INIT_HCA.
    NotInitialized,
    /// Once firmware has its boot pages.
    Booted,
    /// Once firmware has its boot pages, and before INIT_HCA.
    BootedNotInitialized,
    /// After INIT_HCA.
    Initialized,
}

/// How long input or output is.
#[derive(Clone, Copy)]
pub(super) enum Length {
    Exactly(usize),
    Either(usize, usize),
    /// A list follows, whose length the command itself checks.
    AtLeast(usize),
}

type Run = fn(&mut Device, &[u8], &mut [u8]) -> Result<(), Reject>;

/// One command.
pub(super) struct Spec {
    pub(super) opcode: u16,
    pub(super) name: &'static str,
    pub(super) when: When,
    pub(super) op_mods: &'static [u16],
    pub(super) input: Length,
    pub(super) output: Length,
    pub(super) reserved: Bits,
    pub(super) run: Run,
}

/// The command with this opcode.
pub(super) fn find(opcode: u16) -> Option<&'static Spec> {
    TABLE.iter().find(|spec| spec.opcode == opcode)
}

/// The command with this name.
pub(super) fn named(name: &str) -> Option<&'static Spec> {
    TABLE.iter().find(|spec| spec.name == name)
}

const fn spec(
    opcode: u16,
    name: &'static str,
    when: When,
    lengths: (Length, Length),
    reserved: Bits,
    run: Run,
) -> Spec {
    Spec { opcode, name, when, op_mods: &[0], input: lengths.0, output: lengths.1, reserved, run }
}

const fn with_op_mods(spec: Spec, op_mods: &'static [u16]) -> Spec {
    Spec { op_mods, ..spec }
}

use Length::{AtLeast, Either, Exactly};
use When::{Booted, BootedNotInitialized, Disabled, Enabled, Initialized, NotInitialized};

/// Header and 8 bytes both ways.
const SMALL: (Length, Length) = (Exactly(16), Exactly(16));
/// A context and a list in, a number out.
const CREATE: (Length, Length) = (AtLeast(0x110), Exactly(16));
/// A number in; a context out, and a list where there is room for it.
const QUERY: (Length, Length) = (Exactly(16), AtLeast(0x110));
/// A queue pair's context in.
const MODIFY_QP: (Length, Length) = (Exactly(0x110), Exactly(16));

static TABLE: &[Spec] = &[
    with_op_mods(
        spec(0x100, "QUERY_HCA_CAP", Booted, (Exactly(16), Exactly(4112)), reserved::FUNCTION, hca::query_cap),
        hca::QUERY_CAP_OP_MODS,
    ),
    spec(0x101, "QUERY_ADAPTER", Booted, (Exactly(16), Exactly(272)), reserved::HEADER_ONLY, hca::query_adapter),
    spec(0x102, "INIT_HCA", BootedNotInitialized, (Either(16, 32), Exactly(16)), reserved::INIT_HCA, hca::init),
    spec(0x103, "TEARDOWN_HCA", Initialized, SMALL, reserved::VALUE_16, hca::teardown),
    spec(0x104, "ENABLE_HCA", Disabled, (Exactly(16), Either(12, 16)), reserved::FUNCTION, hca::enable),
    spec(0x105, "DISABLE_HCA", NotInitialized, (Exactly(16), Either(12, 16)), reserved::FUNCTION, hca::disable),
    with_op_mods(spec(0x107, "QUERY_PAGES", Enabled, SMALL, reserved::VPORT, pages::query), &[1, 2, 3]),
    with_op_mods(
        spec(0x108, "MANAGE_PAGES", Enabled, (AtLeast(16), AtLeast(16)), reserved::MANAGE_PAGES, pages::manage),
        &[0, 1, 2],
    ),
    with_op_mods(
        spec(
            0x109,
            "SET_HCA_CAP",
            BootedNotInitialized,
            (Exactly(4112), Exactly(16)),
            reserved::FUNCTION_EC,
            hca::set_cap,
        ),
        hca::SET_CAP_OP_MODS,
    ),
    spec(0x10a, "QUERY_ISSI", Enabled, (Exactly(16), Exactly(112)), reserved::HEADER_ONLY, hca::query_issi),
    spec(0x10b, "SET_ISSI", NotInitialized, SMALL, reserved::VALUE_16, hca::set_issi),
    spec(
        0x10d,
        "SET_DRIVER_VERSION",
        Initialized,
        (Exactly(80), Exactly(16)),
        reserved::HEADER_ONLY,
        hca::driver_version,
    ),
    spec(0x200, "CREATE_MKEY", Initialized, CREATE, reserved::CREATE_MKEY, mkey::create),
    spec(0x201, "QUERY_MKEY", Initialized, QUERY, reserved::QUERY_MKEY, mkey::query),
    spec(0x202, "DESTROY_MKEY", Initialized, SMALL, reserved::VALUE_24, mkey::destroy),
    spec(
        0x203,
        "QUERY_SPECIAL_CONTEXTS",
        Initialized,
        (Exactly(16), Exactly(32)),
        reserved::HEADER_ONLY,
        mkey::special,
    ),
    spec(0x301, "CREATE_EQ", Initialized, CREATE, reserved::CREATE_EQ, eq::create),
    spec(0x302, "DESTROY_EQ", Initialized, SMALL, reserved::VALUE_8, eq::destroy),
    spec(0x303, "QUERY_EQ", Initialized, QUERY, reserved::VALUE_8, eq::query),
    spec(0x400, "CREATE_CQ", Initialized, CREATE, reserved::CREATE_CQ, cq::create),
    spec(0x401, "DESTROY_CQ", Initialized, SMALL, reserved::VALUE_24, cq::destroy),
    spec(0x402, "QUERY_CQ", Initialized, QUERY, reserved::VALUE_24, cq::query),
    with_op_mods(
        spec(0x403, "MODIFY_CQ", Initialized, (AtLeast(0x110), Exactly(16)), reserved::MODIFY_CQ, cq_modify::modify),
        &[0, 1],
    ),
    spec(0x500, "CREATE_QP", Initialized, CREATE, reserved::QP, qp::create),
    spec(0x501, "DESTROY_QP", Initialized, SMALL, reserved::VALUE_24, qp::destroy),
    spec(0x502, "RST2INIT_QP", Initialized, MODIFY_QP, reserved::QP, qp::rst2init),
    spec(0x503, "INIT2RTR_QP", Initialized, MODIFY_QP, reserved::QP, qp::init2rtr),
    spec(0x504, "RTR2RTS_QP", Initialized, MODIFY_QP, reserved::QP, qp::rtr2rts),
    spec(0x507, "2ERR_QP", Initialized, SMALL, reserved::VALUE_24, qp::to_error),
    spec(0x50a, "2RST_QP", Initialized, SMALL, reserved::VALUE_24, qp::to_reset),
    spec(0x50b, "QUERY_QP", Initialized, QUERY, reserved::VALUE_24, qp::query),
    with_op_mods(spec(0x750, "QUERY_VPORT_STATE", Initialized, SMALL, reserved::VPORT, vport::state), &[0, 1]),
    spec(
        0x754,
        "QUERY_NIC_VPORT_CONTEXT",
        Initialized,
        (Exactly(16), AtLeast(0x110)),
        reserved::QUERY_NIC_VPORT,
        vport::query,
    ),
    spec(
        0x755,
        "MODIFY_NIC_VPORT_CONTEXT",
        Initialized,
        (AtLeast(0x200), Exactly(16)),
        reserved::MODIFY_NIC_VPORT,
        vport::modify,
    ),
    spec(
        0x761,
        "SET_ROCE_ADDRESS",
        Initialized,
        (Exactly(0x30), Exactly(16)),
        reserved::SET_ROCE_ADDRESS,
        vport::set_roce_address,
    ),
    spec(
        0x762,
        "QUERY_HCA_VPORT_CONTEXT",
        Initialized,
        (Exactly(16), Exactly(0x210)),
        reserved::HCA_VPORT,
        hca_vport::query,
    ),
    spec(
        0x764,
        "QUERY_HCA_VPORT_GID",
        Initialized,
        (Exactly(16), AtLeast(0x20)),
        reserved::HCA_VPORT_INDEX,
        hca_vport::gids,
    ),
    spec(
        0x765,
        "QUERY_HCA_VPORT_PKEY",
        Initialized,
        (Exactly(16), AtLeast(0x14)),
        reserved::HCA_VPORT_INDEX,
        hca_vport::pkeys,
    ),
    spec(0x800, "ALLOC_PD", Initialized, SMALL, reserved::HEADER_ONLY, small::alloc_pd),
    spec(0x801, "DEALLOC_PD", Initialized, SMALL, reserved::VALUE_24, small::dealloc_pd),
    spec(0x802, "ALLOC_UAR", Initialized, SMALL, reserved::HEADER_ONLY, small::alloc_uar),
    spec(0x803, "DEALLOC_UAR", Initialized, SMALL, reserved::VALUE_24, small::dealloc_uar),
    with_op_mods(
        spec(0x805, "ACCESS_REG", Booted, (AtLeast(16), AtLeast(16)), reserved::ACCESS_REG, hca::access_register),
        &[0, 1],
    ),
    spec(0x816, "ALLOC_TRANSPORT_DOMAIN", Initialized, SMALL, reserved::HEADER_ONLY, small::alloc_transport_domain),
    spec(0x817, "DEALLOC_TRANSPORT_DOMAIN", Initialized, SMALL, reserved::VALUE_24, small::dealloc_transport_domain),
    spec(0x90c, "CREATE_RMP", Initialized, CREATE, reserved::CREATE_RMP, rmp::create),
    spec(0x90d, "MODIFY_RMP", Initialized, (Exactly(0x110), Exactly(16)), reserved::MODIFY_RMP, rmp::modify),
    spec(0x90e, "DESTROY_RMP", Initialized, SMALL, reserved::VALUE_24, rmp::destroy),
    spec(0x90f, "QUERY_RMP", Initialized, QUERY, reserved::VALUE_24, rmp::query),
];
