//! Any bytes as the output of every command of the driver.

use std::cell::Cell;
use std::hint::black_box;

use mlx5_hw::be::Be32;
use mlx5_hw::cmd::*;
use mlx5_hw::cqc::Cqc;
use mlx5_hw::eqc::Eqc;
use mlx5_hw::mkc::Mkc;
use mlx5_hw::nic_vport::NicVportContext;
use mlx5_hw::qpc::Qpc;
use mlx5_hw::rmpc::Rmpc;
use mlx5_hw::roce_address::RoceAddrLayout;

/// An output that is not what the command asked for: of any length, and zero behind its end.
struct Outbox<'a>(&'a [u8]);

impl Source for Outbox<'_> {
    fn get(&self, at: usize, words: &mut [Be32]) {
        for (i, word) in words.iter_mut().enumerate() {
            let bytes = self.0.get(at + 4 * i..).and_then(|rest| rest.first_chunk());
            *word = Be32::new(bytes.map_or(0, |b| u32::from_be_bytes(*b)));
        }
    }
}

/// An input that takes every write where it says that it goes.
struct Inbox(usize);

impl Sink for Inbox {
    fn put(&mut self, at: usize, words: &[Be32]) {
        assert!(at + 4 * words.len() <= self.0, "{} bytes at {at} of an input of {}", 4 * words.len(), self.0);
    }
}

fn one<C: Command>(command: &C, outbox: &dyn Source) -> C::Out {
    assert!(command.in_len() >= 8 && command.out_len() >= 8);
    command.encode(&mut Inbox(command.in_len()));
    let _ = black_box(outbox.status());
    black_box(command.decode(outbox))
}

/// Decodes an output as that of each command.
pub fn decode_all(bytes: &[u8]) {
    let number = bytes.first_chunk().map_or(0, |b| u32::from_be_bytes(*b));
    let out: &dyn Source = &Outbox(bytes);
    let list = [u64::from(number), u64::MAX];
    let page = one(&QueryHcaCap { cap_type: CapType(number as u16), mode: CapMode::Current }, out);
    let _ = black_box((page.general(), page.roce(), page.atomic()));
    one(&SetHcaCap { cap_type: CapType(number as u16), page: &page }, out);
    one(&EnableHca, out);
    one(&DisableHca, out);
    one(&QueryIssi, out);
    one(&SetIssi { issi: number as u16 }, out);
    one(&InitHca { sw_owner_id: Some([number; 4]) }, out);
    for profile in [TeardownProfile::Graceful, TeardownProfile::Force, TeardownProfile::PrepareFast] {
        one(&TeardownHca { profile }, out);
    }
    one(&QueryAdapter, out);
    one(&SetDriverVersion { version: &String::from_utf8_lossy(bytes) }, out);
    for stage in [PagesStage::Boot, PagesStage::Init, PagesStage::Regular] {
        one(&QueryPages { stage }, out);
    }
    one(&GivePages { func_id: number as u16, pages: &list }, out);
    one(&CannotGivePages { func_id: number as u16 }, out);
    let taken = [const { Cell::new(0) }; 65];
    one(&TakePages { func_id: number as u16, pages: &taken }, out);
    one(&WriteHostEndianness, out);
    one(&AllocUar, out);
    one(&DeallocUar { uar: number }, out);
    one(&AllocPd, out);
    one(&DeallocPd { pd: number }, out);
    one(&QueryNicVportContext, out);
    one(&ModifyNicVportContext { field_select: number, context: NicVportContext::new() }, out);
    one(&QueryVportState, out);
    let (port_num, index) = (number as u8, number as u16);
    let context = one(&QueryHcaVportContext { port_num }, out);
    let _ = black_box((context.vport_state(), context.lid(), context.node_guid()));
    one(&QueryHcaVportGid { port_num, index }, out);
    one(&QueryHcaVportPkey { port_num, index }, out);
    one(&SetRoceAddress { index: number as u16, address: RoceAddrLayout::new() }, out);
    queues(number, &list, out);
}

/// The commands of queues and memory keys.
fn queues(number: u32, list: &[u64], out: &dyn Source) {
    one(&CreateEq { eqc: Eqc::new(), event_bitmask: u64::MAX, pas: list }, out);
    one(&DestroyEq { eqn: number }, out);
    one(&QueryEq { eqn: number }, out);
    one(&CreateCq { cqc: Cqc::new(), pas: list }, out);
    one(&DestroyCq { cqn: number }, out);
    one(&QueryCq { cqn: number }, out);
    one(&ResizeCq { cqn: number, cqc: Cqc::new(), pas: list }, out);
    one(&ModerateCq { cqn: number, cq_max_count: number, cq_period: number }, out);
    one(&CreateRmp { rmpc: Rmpc::new(), pas: list }, out);
    one(&ModifyRmp { rmpn: number, lwm: number as u16 }, out);
    one(&DestroyRmp { rmpn: number }, out);
    one(&QueryRmp { rmpn: number }, out);
    one(&CreateMkey { mkc: Mkc::new(), translations: list }, out);
    one(&DestroyMkey { mkey_index: number }, out);
    one(&QueryMkey { mkey_index: number }, out);
    one(&QuerySpecialContexts, out);
    one(&CreateQp { qpc: Qpc::new(), pas: list }, out);
    one(&QueryQp { qpn: number }, out);
    one(&DestroyQp { qpn: number }, out);
    let (qpn, opt_param_mask, qpc) = (number, number, Qpc::new());
    one(&Rst2Init { qpn, opt_param_mask, qpc }, out);
    one(&Init2Rtr { qpn, opt_param_mask, qpc }, out);
    one(&Rtr2Rts { qpn, opt_param_mask, qpc }, out);
    one(&Qp2Err { qpn: number }, out);
    one(&Qp2Rst { qpn: number }, out);
}
