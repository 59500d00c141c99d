//! Lengths of inputs and outputs: those that Linux 6.12's driver uses, as its commands were recorded on a software device.

use std::cell::Cell;

use mlx5_hw::caps::CapPage;
use mlx5_hw::cmd::*;
use mlx5_hw::cqc::Cqc;
use mlx5_hw::eqc::Eqc;
use mlx5_hw::mkc::Mkc;
use mlx5_hw::nic_vport::NicVportContext;
use mlx5_hw::qpc::Qpc;
use mlx5_hw::rmpc::Rmpc;
use mlx5_hw::roce_address::RoceAddrLayout;

use super::encoded;

/// Opcode, input and output length, and the opcode that the input begins with.
fn shape<C: Command>(command: &C) -> (u16, usize, usize) {
    let input = encoded(command);
    assert_eq!(input.len(), command.in_len());
    assert_eq!(input[..2], C::OPCODE.0.to_be_bytes(), "{}: opcode", C::OPCODE);
    (C::OPCODE.0, command.in_len(), command.out_len())
}

#[test]
fn commands_of_the_function_have_linux_s_lengths() {
    assert_eq!(shape(&EnableHca), (0x104, 16, 12));
    assert_eq!(shape(&QueryIssi), (0x10a, 16, 112));
    assert_eq!(shape(&SetIssi { issi: 1 }), (0x10b, 16, 16));
    assert_eq!(shape(&QueryPages { stage: PagesStage::Boot }), (0x107, 16, 16));
    assert_eq!(shape(&QueryHcaCap { cap_type: CapType::GENERAL, mode: CapMode::Max }), (0x100, 16, 4112));
    assert_eq!(shape(&SetHcaCap { cap_type: CapType::GENERAL, page: &CapPage::new() }), (0x109, 4112, 16));
    assert_eq!(shape(&InitHca::default()), (0x102, 32, 16));
    assert_eq!(shape(&QueryAdapter), (0x101, 16, 272));
    assert_eq!(shape(&WriteHostEndianness), (0x805, 32, 32));
    assert_eq!(shape(&TeardownHca { profile: TeardownProfile::Graceful }), (0x103, 16, 16));
    assert_eq!(shape(&DisableHca), (0x105, 16, 12));
    let room = vec![Cell::new(0); 768];
    assert_eq!(shape(&TakePages { func_id: 0, pages: &room }), (0x108, 16, 6160));
}

#[test]
fn commands_of_objects_have_linux_s_lengths() {
    assert_eq!(shape(&AllocUar), (0x802, 16, 16));
    assert_eq!(shape(&DeallocUar { uar: 8 }), (0x803, 16, 16));
    assert_eq!(shape(&AllocPd), (0x800, 16, 16));
    assert_eq!(shape(&DeallocPd { pd: 1 }), (0x801, 16, 16));
    assert_eq!(shape(&DestroyEq { eqn: 1 }), (0x302, 16, 16));
    assert_eq!(shape(&DestroyCq { cqn: 1 }), (0x401, 16, 16));
    assert_eq!(shape(&DestroyMkey { mkey_index: 1 }), (0x202, 16, 16));
    assert_eq!(shape(&DestroyQp { qpn: 1 }), (0x501, 16, 16));
    let pas = [1 << 12; 8];
    assert_eq!(shape(&CreateEq { eqc: Eqc::new(), event_bitmask: 0, pas: &pas[..1] }), (0x301, 280, 16));
    assert_eq!(shape(&CreateCq { cqc: Cqc::new(), pas: &pas[..4] }), (0x400, 304, 16));
    assert_eq!(shape(&ResizeCq { cqn: 1, cqc: Cqc::new(), pas: &pas[..4] }), (0x403, 304, 16));
    assert_eq!(shape(&ModerateCq { cqn: 1, cq_max_count: 1, cq_period: 1 }), (0x403, 272, 16));
    assert_eq!(shape(&CreateMkey { mkc: Mkc::new(), translations: &pas[..1] }), (0x200, 288, 16));
    assert_eq!(shape(&CreateQp { qpc: Qpc::new(), pas: &pas }), (0x500, 336, 16));
    assert_eq!(shape(&CreateRmp { rmpc: Rmpc::new(), pas: &pas[..2] }), (0x90c, 288, 16));
    assert_eq!(shape(&ModifyRmp { rmpn: 1, lwm: 1 }), (0x90d, 272, 16));
    assert_eq!(shape(&DestroyRmp { rmpn: 1 }), (0x90e, 16, 16));
    assert_eq!(shape(&QueryRmp { rmpn: 1 }), (0x90f, 16, 272));
}

#[test]
fn commands_of_queue_pairs_and_ports_have_linux_s_lengths() {
    let qpc = Qpc::new();
    assert_eq!(shape(&QueryQp { qpn: 1 }), (0x50b, 16, 464));
    assert_eq!(shape(&Rst2Init { qpn: 1, opt_param_mask: 0, qpc }), (0x502, 272, 16));
    assert_eq!(shape(&Init2Rtr { qpn: 1, opt_param_mask: 0, qpc }), (0x503, 272, 16));
    assert_eq!(shape(&Rtr2Rts { qpn: 1, opt_param_mask: 0, qpc }), (0x504, 272, 16));
    assert_eq!(shape(&Qp2Rst { qpn: 1 }), (0x50a, 16, 16));
    assert_eq!(shape(&QueryNicVportContext), (0x754, 16, 272));
    let modify = ModifyNicVportContext { field_select: 0, context: NicVportContext::new() };
    assert_eq!(shape(&modify), (0x755, 512, 16));
    assert_eq!(shape(&QueryHcaVportContext { port_num: 0 }), (0x762, 16, 528));
    assert_eq!(shape(&QueryHcaVportGid { port_num: 0, index: 0 }), (0x764, 16, 32));
    assert_eq!(shape(&QueryHcaVportPkey { port_num: 0, index: 0 }), (0x765, 16, 20));
    assert_eq!(shape(&SetRoceAddress { index: 0, address: RoceAddrLayout::new() }), (0x761, 48, 16));
}
