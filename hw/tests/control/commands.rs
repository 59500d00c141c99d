//! Commands and their answers, byte for byte.

use std::cell::Cell;

use mlx5_hw::be::Be32;
use mlx5_hw::caps::CapPage;
use mlx5_hw::cmd::*;
use mlx5_hw::cmd_entry::{CmdIfBox, CmdQueueEntry, ENTRY_TYPE, mailboxes, xor};
use mlx5_hw::cqc::Cqc;
use mlx5_hw::eqc::Eqc;
use mlx5_hw::mkc::Mkc;
use mlx5_hw::prm::Layout;
use serde_json::Value;

use super::{bytes, case, decoded, encoded, unhex, words};

/// The descriptor that hands over a command, with what only the trace knows: addresses and token.
fn descriptor<C: Command>(command: &C, before: &Value, in_len: usize) -> Vec<u8> {
    let number = |name: &str| before[name].as_u64().expect("a number");
    let mut entry = CmdQueueEntry::new()
        .with_type(ENTRY_TYPE)
        .with_input_length(in_len as u32)
        .with_output_length(number("out_len") as u32)
        .with_token(number("token") as u32)
        .with_ownership(true);
    entry.set_input_mailbox(number("in_mailbox"));
    entry.set_output_mailbox(number("out_mailbox"));
    for (i, byte) in encoded(command).into_iter().take(16).enumerate() {
        entry.set_command_input_inline_data(i, byte.into());
    }
    entry.sign();
    assert!(entry.signature_fits());
    assert_eq!(entry.signature(), number("signature") as u32);
    bytes(entry.words())
}

/// Checks the descriptor of a case and gives the bytes of its output: those inline, then those of the mailboxes.
fn check<C: Command>(id: &str, command: &C, in_len: usize) -> Vec<u8> {
    let case = case(id);
    let ours = descriptor(command, &case["expected"]["before"], in_len);
    assert_eq!(ours, unhex(&case["input"]["descriptor_before_hex"]), "{id}: descriptor");
    assert_eq!(u64::from(C::OPCODE.0), case["expected"]["opcode"].as_u64().expect("an opcode"), "{id}");
    assert_eq!(C::OPCODE.name(), case["expected"]["opcode_name"].as_str(), "{id}");

    let answer = unhex(&case["input"]["descriptor_after_hex"]);
    let entry = CmdQueueEntry::from_words(&words(&answer));
    assert!(!entry.ownership(), "{id}: handed back");
    assert_eq!(entry.delivery_status(), DeliveryStatus::OK, "{id}");
    let mut output = answer[32..48].to_vec();
    for block in case["input"]["out_mailbox_blocks_hex"].as_array().into_iter().flatten() {
        output.extend(&unhex(block)[..512]);
    }
    output
}

#[test]
fn enable_hca_is_the_trace_s() {
    let output = check("B-032", &EnableHca, EnableHca.in_len());
    assert_eq!(output, [0; 16]);
}

#[test]
fn query_issi_is_the_trace_s_and_reads_its_answer() {
    let output = check("B-033", &QueryIssi, QueryIssi.in_len());
    assert_eq!(QueryIssi.out_len() as u64, case("B-033")["expected"]["before"]["out_len"].as_u64().expect("a length"));
    assert_eq!(decoded(&QueryIssi, &output), IssiInfo { current: 0, supported: 2 });
}

#[test]
fn set_issi_is_the_trace_s() {
    let command = SetIssi { issi: 1 };
    check("B-034", &command, command.in_len());
}

#[test]
fn query_pages_is_the_trace_s_and_reads_a_signed_count() {
    let boot = QueryPages { stage: PagesStage::Boot };
    let output = check("B-035", &boot, boot.in_len());
    assert_eq!(decoded(&boot, &output), PagesWanted { func_id: 0, num_pages: 6 });

    let init = QueryPages { stage: PagesStage::Init };
    let mut output = check("B-037", &init, init.in_len());
    assert_eq!(decoded(&init, &output), PagesWanted { func_id: 0, num_pages: 12868 });

    output[12..16].copy_from_slice(&(-5_i32).to_be_bytes());
    assert_eq!(decoded(&init, &output).num_pages, -5);
}

#[test]
fn giving_pages_is_the_trace_s() {
    for (id, pages) in [("B-036", 6), ("B-038", 12868)] {
        let pages: Vec<u64> = (1..=pages).map(|i| i << 12).collect();
        let command = GivePages { func_id: 0, pages: &pages };
        check(id, &command, command.in_len());
        let input = encoded(&command);
        for (page, at) in pages.iter().zip((16..).step_by(8)) {
            assert_eq!(input[at..at + 8], page.to_be_bytes());
        }
        if let Some(blocks) = case(id)["expected"]["mailbox_blocks_needed"].as_u64() {
            assert_eq!(mailboxes(command.in_len()) as u64, blocks);
        }
    }
}

#[test]
fn init_hca_begins_as_the_trace_s() {
    // The trace's kernel did not know the owner number yet: its input ends before it.
    check("B-039", &InitHca::default(), 16);
    let owned = encoded(&InitHca { sw_owner_id: Some([1, 2, 3, 0xaabb_ccdd]) });
    assert_eq!(owned.len(), 32);
    assert_eq!(owned[28..], [0xaa, 0xbb, 0xcc, 0xdd]);
}

#[test]
fn alloc_uar_is_the_trace_s_and_reads_its_answer() {
    let output = check("B-043", &AllocUar, AllocUar.in_len());
    assert_eq!(u64::from(decoded(&AllocUar, &output)), case("B-043")["expected"]["uar"].as_u64().expect("an index"));
}

#[test]
fn create_eq_is_the_trace_s_mailbox_included() {
    let expected = case("B-047")["expected"].clone();
    let number = |name: &str| expected[name].as_u64().expect("a number");
    let eqc = Eqc::new()
        .with_log_eq_size(number("log_eq_size") as u32)
        .with_uar_page(number("uar_page") as u32)
        .with_intr(number("interrupt") as u32)
        .with_log_page_size(number("log_page_size") as u32);
    let command = CreateEq { eqc, event_bitmask: number("event_mask"), pas: &[number("pas0")] };
    let output = check("B-047", &command, command.in_len());
    assert_eq!(u64::from(decoded(&command, &output)), number("eqn"));

    let mut block = CmdIfBox::new().with_token(expected["before"]["token"].as_u64().expect("a token") as u32);
    for (i, byte) in encoded(&command)[16..].iter().enumerate() {
        block.set_mailbox_data(i, u32::from(*byte));
    }
    let theirs = unhex(&case("B-047")["input"]["in_mailbox_blocks_hex"][0]);
    assert_eq!(bytes(block.words()), theirs);
}

#[test]
fn the_event_mask_of_create_eq_counts_from_the_low_end_of_byte_0x58() {
    let command = CreateEq { eqc: Eqc::new(), event_bitmask: 1 << 0xa | 1 << 0x3f, pas: &[] };
    assert_eq!(encoded(&command)[0x58..0x60], [0x80, 0, 0, 0, 0, 0, 0x04, 0]);
}

/// A number of `tests/data/constants.csv`.
fn header_constant(group: &str, name: &str) -> u64 {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/constants.csv");
    let text = std::fs::read_to_string(path).expect("the constants are there");
    let row = text.lines().map(|l| l.split(',').collect::<Vec<_>>()).find(|r| r[0] == name && r[2] == group);
    let hex = row.unwrap_or_else(|| panic!("{name}"))[1].trim_start_matches("0x").to_owned();
    u64::from_str_radix(&hex, 16).expect("hexadecimal")
}

fn op_mod(input: &[u8]) -> u64 {
    u64::from(u16::from_be_bytes([input[6], input[7]]))
}

#[test]
fn the_capability_type_is_shifted_and_the_mode_is_bit_0() {
    for (cap_type, name) in [
        (CapType::GENERAL, "MLX5_GET_HCA_CAP_OP_MOD_GENERAL_DEVICE"),
        (CapType::ROCE, "MLX5_GET_HCA_CAP_OP_MOD_ROCE"),
        (CapType::GENERAL_2, "MLX5_GET_HCA_CAP_OP_MOD_GENERAL_DEVICE_2"),
    ] {
        let shifted = header_constant("hca_cap_op_mod", name);
        for (mode, bit) in [(CapMode::Max, "HCA_CAP_OPMOD_GET_MAX"), (CapMode::Current, "HCA_CAP_OPMOD_GET_CUR")] {
            let expected = shifted | header_constant("hca_cap_mode", bit);
            assert_eq!(op_mod(&encoded(&QueryHcaCap { cap_type, mode })), expected, "{name} {bit}");
        }
        assert_eq!(op_mod(&encoded(&SetHcaCap { cap_type, page: &CapPage::new() })), shifted, "{name}");
    }
}

#[test]
fn set_hca_cap_sends_the_whole_page_back() {
    let mut page = CapPage::new();
    for (i, word) in page.words_mut().iter_mut().enumerate() {
        *word = Be32::new(i as u32 ^ 0x5a5a_a5a5);
    }
    let input = encoded(&SetHcaCap { cap_type: CapType::GENERAL, page: &page });
    assert_eq!(input[..2], 0x109_u16.to_be_bytes());
    assert_eq!(input[16..], bytes(page.words()));
    let mut output = vec![0; 16];
    output.extend(bytes(page.words()));
    let query = QueryHcaCap { cap_type: CapType::GENERAL, mode: CapMode::Current };
    assert!(decoded(&query, &output) == page);
}

/// As `mlx5_ib_resize_cq` and `mlx5_core_modify_cq_moderation` of Linux fill it in.
#[test]
fn modify_cq_selects_what_it_changes() {
    let select = |names: &[&str]| names.iter().map(|name| header_constant("cq_modify", name)).sum::<u64>() as u32;
    let cqc = Cqc::new().with_log_cq_size(9).with_log_page_size(3).with_cqe_sz(2);
    let resize = encoded(&ResizeCq { cqn: 0x12_3456, cqc, pas: &[0x1_2345_6789_a000] });
    assert_eq!(op_mod(&resize), header_constant("cmd_op_mod", "MLX5_CQ_OPMOD_RESIZE"));
    assert_eq!(resize[8..12], [0, 0x12, 0x34, 0x56]);
    let all = ["MLX5_MODIFY_CQ_MASK_LOG_SIZE", "MLX5_MODIFY_CQ_MASK_PG_OFFSET", "MLX5_MODIFY_CQ_MASK_PG_SIZE"];
    assert_eq!(resize[12..16], select(&all).to_be_bytes());
    assert_eq!(resize[16..80], bytes(cqc.words()));
    assert_eq!(resize[0x110..], 0x1_2345_6789_a000_u64.to_be_bytes());

    let moderate = encoded(&ModerateCq { cqn: 7, cq_max_count: 0xabcd, cq_period: 0xfff });
    assert_eq!((op_mod(&moderate), &moderate[8..12]), (0, &[0, 0, 0, 7][..]));
    assert_eq!(moderate[12..16], select(&["MLX5_CQ_MODIFY_PERIOD", "MLX5_CQ_MODIFY_COUNT"]).to_be_bytes());
    assert_eq!(moderate[32..36], [0x0f, 0xff, 0xab, 0xcd], "cq_period, cq_max_count");
    assert!(moderate[16..32].iter().chain(&moderate[36..]).all(|byte| *byte == 0));
}

#[test]
fn a_translation_list_is_padded_to_octwords() {
    for (translations, octwords) in [(0, 0), (1, 1), (2, 1), (3, 2), (512, 256), (513, 257)] {
        let list = vec![0x1234_5678_9abc_d003; translations];
        let command = CreateMkey { mkc: Mkc::new(), translations: &list };
        let input = encoded(&command);
        assert_eq!(input.len(), 0x110 + 16 * octwords);
        assert_eq!(input[0x60..0x64], (octwords as u32).to_be_bytes(), "{translations} translations");
        if translations % 2 == 1 {
            assert_eq!(input[input.len() - 8..], [0; 8], "the pad is zero");
        }
    }
}

#[test]
fn pages_taken_back_are_read_as_far_as_there_is_room() {
    let room: [Cell<u64>; 3] = std::array::from_fn(|_| Cell::new(u64::MAX));
    let command = TakePages { func_id: 7, pages: &room };
    assert_eq!(encoded(&command), [1, 8, 0, 0, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 3]);

    let mut output = vec![0; 16];
    output[8..12].copy_from_slice(&2_u32.to_be_bytes());
    output.extend(0x1000_u64.to_be_bytes());
    output.extend(0xffff_f000_2000_u64.to_be_bytes());
    output.extend(0xdead_0000_u64.to_be_bytes());
    assert_eq!(decoded(&command, &output), 2);
    assert_eq!(room.each_ref().map(Cell::get), [0x1000, 0xffff_f000_2000, 0], "nothing beyond the count");

    // A device that lies: more than asked for, and an output that ends early.
    output.truncate(24);
    output[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(decoded(&command, &output), u32::MAX, "the caller has to check");
    assert_eq!(room.each_ref().map(Cell::get), [0x1000, 0, 0]);
}

#[test]
fn a_long_driver_version_is_cut_before_its_closing_zero() {
    let input = encoded(&SetDriverVersion { version: &"v".repeat(200) });
    assert_eq!(input.len(), 80);
    assert_eq!(input[16..79], [b'v'; 63]);
    assert_eq!(input[79], 0);
}

#[test]
fn the_port_s_fields_are_selected_by_their_header_bits() {
    // `modify_nic_vport_field_select`: bit offsets 0x1e, 0x19 and 0x16 of one dword, counted from its top.
    assert_eq!(ModifyNicVportContext::ROCE_EN, 1 << (31 - 0x1e));
    assert_eq!(ModifyNicVportContext::MTU, 1 << (31 - 0x19));
    assert_eq!(ModifyNicVportContext::NODE_GUID, 1 << (31 - 0x16));
    let context = mlx5_hw::nic_vport::NicVportContext::new().with_roce_en(true);
    let input = encoded(&ModifyNicVportContext { field_select: ModifyNicVportContext::ROCE_EN, context });
    assert_eq!(input[0xc..0x10], [0, 0, 0, 2]);
    assert_eq!(input[0x103], 1);
}

#[test]
fn both_signatures_of_a_mailbox_fit() {
    let mut block = CmdIfBox::new().with_token(0x5a).with_block_number(3);
    block.set_next(0x1234_5678_9abc_dc00);
    assert_eq!(block.next(), 0x1234_5678_9abc_dc00);
    for i in 0..512 {
        block.set_mailbox_data(i, i as u32 * 7);
    }
    block.set_mailbox_data(511, 0x99); // the data must not cancel out
    block.sign();
    let all = bytes(block.words());
    assert_eq!(all.iter().fold(0, |sum, b| sum ^ b), 0xff, "the whole block");
    assert_eq!(all[512..575].iter().fold(0, |sum, b| sum ^ b), 0xff, "the control bytes");
    assert_eq!(xor(block.words()), 0xff);
    block.set_mailbox_data(100, 0);
    assert_ne!(xor(block.words()), 0xff);
}

#[test]
fn a_status_has_linux_s_error_number() {
    const EIO: i32 = 5;
    const EAGAIN: i32 = 11;
    const ENOMEM: i32 = 12;
    const EBUSY: i32 = 16;
    const EINVAL: i32 = 22;
    for (status, errno) in [
        (0x00, 0),
        (0x01, EIO),
        (0x02, EINVAL),
        (0x03, EINVAL),
        (0x04, EIO),
        (0x05, EINVAL),
        (0x06, EBUSY),
        (0x07, EAGAIN),
        (0x08, ENOMEM),
        (0x09, EINVAL),
        (0x0a, EINVAL),
        (0x0f, EAGAIN),
        (0x10, EINVAL),
        (0x30, EINVAL),
        (0x40, EINVAL),
        (0x50, EIO),
        (0x51, EIO),
        (0x77, EIO),
    ] {
        assert_eq!(Status(status).errno(), errno, "status {status:#x}");
        assert!(!Status(status).meaning().is_empty());
    }
}

#[test]
fn status_and_syndrome_are_the_head_of_every_output() {
    let head: &dyn Source = &super::Message(words(&[0x03, 0, 0, 0, 0x00, 0xab, 0xcd, 0xef]));
    assert_eq!(head.status(), (Status::BAD_PARAM_ERR, 0x00ab_cdef));
}

/// Case C-082: addresses keep all of their bits.
#[test]
fn addresses_are_written_with_all_64_bits() {
    let case = case("C-082");
    let address = u64::from_str_radix(case["input"]["address"].as_str().expect("text").trim_start_matches("0x"), 16);
    let address = address.expect("an address");
    let written = case["expected"]["written"].as_str().expect("text").replace(' ', "");
    let written = unhex(&Value::from(written));
    let cqc = mlx5_hw::cqc::Cqc::new().with_dbr_addr(address);
    let create = encoded(&CreateCq { cqc, pas: &[address, address] });
    // The context's doorbell record address, and the list of pages.
    for at in [0x10 + 0x38, 0x110, 0x118] {
        assert_eq!(create[at..at + 8], written, "at {at:#x}");
    }
    let mut entry = CmdQueueEntry::new();
    entry.set_input_mailbox(address & !0x1ff);
    entry.set_output_mailbox(address & !0x1ff);
    assert_eq!(bytes(entry.words())[0x8..0x10], (address & !0x1ff).to_be_bytes());
    assert_eq!(bytes(entry.words())[0x30..0x38], (address & !0x1ff).to_be_bytes());
}

/// Linux's `mlx5_query_hca_vport_context`, `_gid` and `_pkey`: the port is named where there are two, one entry is asked for and
/// lies behind the head of the output.
#[test]
fn an_infiniband_port_is_asked_as_linux_asks() {
    let context = QueryHcaVportContext { port_num: 2 };
    assert_eq!(encoded(&context), [0x07, 0x62, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(context.out_len(), 16 + 512);
    let mut output = vec![0; 528];
    // `mlx5_ifc_hca_vport_context_bits`, bytes from its start: states, GUIDs, LID and LMC, subnet manager.
    let fields: [(usize, &[u8]); 7] = [
        (0x20, &[0x10, 0, 0x5f, 0x24]),
        (0x28, &[1, 2, 3, 4, 5, 6, 7, 8]),
        (0x30, &[11, 12, 13, 14, 15, 16, 17, 18]),
        (0x38, &[21, 22, 23, 24, 25, 26, 27, 28]),
        (0x60, &[0xab, 0xcd, 0x00, 0x72]),
        (0x64, &[0x12, 0x34]),
        (0x66, &[0x90, 0]),
    ];
    for (at, bytes) in fields {
        output[16 + at..16 + at + bytes.len()].copy_from_slice(bytes);
    }
    let port = decoded(&context, &output);
    assert_eq!(
        (port.grh_required(), port.port_physical_state(), port.port_state(), port.vport_state()),
        (true, 5, 2, 4)
    );
    assert_eq!(port.system_image_guid(), 0x0102_0304_0506_0708);
    assert_eq!((port.port_guid(), port.node_guid()), (0x0b0c_0d0e_0f10_1112, 0x1516_1718_191a_1b1c));
    assert_eq!((port.lid(), port.lmc(), port.subnet_timeout()), (0xabcd, 3, 18));
    assert_eq!((port.sm_lid(), port.sm_sl()), (0x1234, 9));

    let gid = QueryHcaVportGid { port_num: 0, index: 0x102 };
    assert_eq!(encoded(&gid), [0x07, 0x64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    let address: [u8; 16] = core::array::from_fn(|i| 0xf0 + i as u8);
    let output = [&[0; 12], &[0, 1, 0, 0][..], &address].concat();
    assert_eq!((gid.out_len(), decoded(&gid, &output)), (output.len(), address));

    let pkey = QueryHcaVportPkey { port_num: 1, index: 3 };
    assert_eq!(encoded(&pkey), [0x07, 0x65, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 3]);
    let output = [&[0; 16][..], &[0x55, 0xaa, 0xff, 0xfe]].concat();
    assert_eq!((pkey.out_len(), decoded(&pkey, &output)), (output.len(), 0xfffe));
}
