//! Bring-up and teardown in the order of Linux's driver, and what is refused out of order.

use mlx5_hw::platform::Platform;
use mlx5_model::{DEVICE_ID_CX5_PF, ModelConfig, ViolationKind, syndrome_text};

use crate::driver::{Driver, get, put};
use crate::queues::EqWish;

const BAD_OP: u8 = 2;
const BAD_PARAM: u8 = 3;
const BAD_SYS_STATE: u8 = 4;

/// Name, op_mod, input and output length of the 24 commands that Linux 6.12's mlx5_core sends to a function without
/// Ethernet and RoCE from probe to unbind, as a foreign model of the hardware logged them.
const LINUX: [(&str, u16, u32, u32); 24] = [
    ("ENABLE_HCA", 0, 16, 12),
    ("QUERY_ISSI", 0, 16, 112),
    ("SET_ISSI", 0, 16, 16),
    ("QUERY_PAGES", 1, 16, 16),
    ("MANAGE_PAGES", 1, 144, 16),
    ("QUERY_HCA_CAP", 1, 16, 4112),
    ("QUERY_HCA_CAP", 0, 16, 4112),
    ("SET_HCA_CAP", 0, 4112, 16),
    ("QUERY_PAGES", 2, 16, 16),
    ("MANAGE_PAGES", 1, 528, 16),
    ("INIT_HCA", 0, 32, 16),
    ("QUERY_HCA_CAP", 1, 16, 4112),
    ("QUERY_ADAPTER", 0, 16, 272),
    ("ALLOC_UAR", 0, 16, 16),
    ("CREATE_EQ", 0, 304, 16),
    ("CREATE_EQ", 0, 1296, 16),
    ("CREATE_EQ", 0, 304, 16),
    ("DESTROY_EQ", 0, 16, 16),
    ("DESTROY_EQ", 0, 16, 16),
    ("DESTROY_EQ", 0, 16, 16),
    ("DEALLOC_UAR", 0, 16, 16),
    ("TEARDOWN_HCA", 0, 16, 16),
    ("MANAGE_PAGES", 2, 16, 6160),
    ("DISABLE_HCA", 0, 16, 12),
];

#[test]
fn the_commands_of_linux_from_probe_to_unbind_all_succeed() {
    // 768 pages are asked for at the end: more mailboxes than this driver has otherwise.
    let mut d = Driver::new(ModelConfig::default());
    d.boot();
    let page = d.caps(1);
    d.caps(0);
    let mut set = page.clone();
    put(&mut set, 528, 2, 0);
    d.set_caps(&set).unwrap();
    assert_eq!(d.pages_wanted(2), 64);
    d.give(64).unwrap();
    d.run(0x102, 0, &[0; 24], 16).unwrap();
    assert_eq!(d.caps(1), set, "what was set is in force");
    d.run(0x101, 0, &[0; 8], 272).unwrap();
    d.uar = d.small(0x802, 0).unwrap();
    assert_eq!(d.uar, 8);
    let masks = [(8, 1 << 0xa), (13, 0x1f_02be), (8, 1 << 0xb)];
    let eqs = masks.map(|(log_size, mask)| d.eq(EqWish { log_size, mask, vector: 0 }).unwrap());
    assert_eq!(eqs.map(|eq| eq.number), [1, 2, 3]);
    for eq in eqs.iter().rev() {
        d.small(0x302, eq.number).unwrap();
    }
    d.small(0x803, d.uar).unwrap();
    d.run(0x103, 0, &[0; 8], 16).unwrap();
    assert_eq!(d.take(768).unwrap().len(), 80);
    d.run(0x105, 0, &[0; 8], 12).unwrap();
    let seen: Vec<_> = d.model.commands().iter().map(|c| (c.name, c.op_mod, c.in_len, c.out_len)).collect();
    assert_eq!(seen, LINUX);
    assert!(d.model.commands().iter().all(|c| c.status == 0 && c.delivery == 0 && c.done.is_some()));
    d.finish();
    assert_eq!(d.model.violations(), []);
    assert_eq!(d.model.dma_outstanding(), (0, 0));
}

#[test]
fn a_function_that_is_down_comes_up_again() {
    let model = Driver::up(ModelConfig::default()).down();
    assert_eq!(model.violations(), []);
    assert_eq!((model.dma_outstanding(), model.firmware_pages()), ((0, 0), 0));
    let mut d = Driver::up(ModelConfig { boot_pages: 0, init_pages: 0, ..ModelConfig::default() });
    d.small(0x803, d.uar).unwrap();
    d.run(0x103, 0, &[0; 8], 16).unwrap();
    d.run(0x105, 0, &[0; 8], 12).unwrap();
    d.run(0x104, 0, &[0; 8], 16).unwrap();
    d.run(0x105, 0, &[0; 8], 16).unwrap();
    d.finish();
    assert_eq!(d.model.violations(), []);
}

#[test]
fn nothing_but_enable_is_taken_before_enable() {
    let d = Driver::new(ModelConfig::default());
    d.start();
    for opcode in [0x105, 0x107, 0x10a, 0x102, 0x100, 0x802, 0x103] {
        let refused = d.run(opcode, u16::from(opcode == 0x107), &[0; 8], 16).unwrap_err();
        assert_eq!(refused.0, BAD_SYS_STATE, "{opcode:#x}");
        assert_eq!(syndrome_text(refused.1), Some("the function is not enabled"));
    }
    assert!(d.broken().iter().all(|kind| *kind == ViolationKind::CommandOrder));
}

#[test]
fn each_step_waits_for_the_one_before() {
    let text = |refused: Result<Vec<u8>, (u8, u32)>| syndrome_text(refused.unwrap_err().1).unwrap();
    let mut d = Driver::new(ModelConfig::default());
    d.start();
    d.run(0x104, 0, &[0; 8], 12).unwrap();
    assert_eq!(text(d.run(0x104, 0, &[0; 8], 12)), "the function is enabled already");
    assert_eq!(text(d.run(0x100, 1, &[0; 8], 4112)), "firmware waits for its boot pages");
    assert_eq!(text(d.run(0x102, 0, &[0; 8], 16)), "firmware waits for its boot pages");
    d.give(15).unwrap();
    assert_eq!(d.pages_wanted(1), 1);
    assert_eq!(text(d.run(0x100, 1, &[0; 8], 4112)), "firmware waits for its boot pages");
    d.give(1).unwrap();
    let page = d.caps(1);
    assert_eq!(text(d.run(0x102, 0, &[0; 8], 16)), "firmware waits for its init pages");
    assert_eq!(text(d.run(0x802, 0, &[0; 8], 16)), "INIT_HCA has not been done");
    d.give(64).unwrap();
    d.run(0x102, 0, &[0; 8], 16).unwrap();
    assert_eq!(d.set_caps(&page).unwrap_err().0, BAD_SYS_STATE);
    assert_eq!(text(d.run(0x102, 0, &[0; 8], 16)), "INIT_HCA has been done already");
    assert_eq!(text(d.run(0x10b, 0, &[0, 0, 0, 1, 0, 0, 0, 0], 16)), "INIT_HCA has been done already");
    assert_eq!(text(d.run(0x105, 0, &[0; 8], 12)), "INIT_HCA has been done already");
    assert_eq!(d.broken().len(), 10);
}

#[test]
fn an_unknown_opcode_is_a_bad_operation() {
    let d = Driver::new(ModelConfig::default());
    d.start();
    assert_eq!(d.run(0x7ff, 0, &[0; 8], 16).unwrap_err().0, BAD_OP);
    assert_eq!(d.model.commands()[0].name, "UNKNOWN");
    assert_eq!(d.broken(), [ViolationKind::UnknownCommand]);
}

#[test]
fn capabilities_are_checked_against_their_maximum_and_reflected() {
    let mut d = Driver::new(ModelConfig::default());
    d.boot();
    let (current, max) = (d.caps(1), d.caps(0));
    assert_eq!((get(&current, 528, 2), get(&max, 528, 2)), (1, 3));
    let log_max_qp = 0x13 * 8 + 3;
    let mut set = current.clone();
    put(&mut set, log_max_qp, 5, 18);
    let refused = d.set_caps(&set).unwrap_err();
    assert_eq!((refused.0, syndrome_text(refused.1)), (BAD_PARAM, Some("a capability exceeds its maximum")));
    assert_eq!(d.caps(1), current, "a refused page changes nothing");
    put(&mut set, log_max_qp, 5, 4);
    d.set_caps(&set).unwrap();
    assert_eq!(d.caps(1), set);
    assert_eq!(d.caps(0), max, "the maximum stays");
    assert_eq!(d.run(0x100, 4 << 1, &[0; 8], 4112).map(|out| get(&out[16..], 0x13 * 8, 8)), Ok(4), "RoCE v2");
    assert_eq!(d.run(0x100, 1 << 1, &[0; 8], 4112).unwrap_err().0, BAD_PARAM, "no Ethernet offloads here");
    assert_eq!(d.broken(), []);
}

#[test]
fn firmware_pages_come_back_before_init_and_not_while_they_are_needed() {
    let mut d = Driver::new(ModelConfig::default());
    d.boot();
    assert_eq!(d.take(400).unwrap().len(), 16, "a bring-up that is given up gets its pages back");
    d.give(80).unwrap();
    d.run(0x102, 0, &[0; 8], 16).unwrap();
    assert_eq!(d.take(10).unwrap(), Vec::<u64>::new(), "none is spare");
    d.run(0x103, 0, &[0; 8], 16).unwrap();
    let mut first = d.take(30).unwrap();
    assert_eq!(first.len(), 30, "not more than asked for");
    first.extend(d.take(400).unwrap());
    first.sort_unstable();
    first.dedup();
    assert_eq!(first.len(), 80, "each page once");
    d.run(0x105, 0, &[0; 8], 12).unwrap();
    assert_eq!(d.broken(), []);
}

#[test]
fn a_booting_function_says_so() {
    let d = Driver::new(ModelConfig { boot_ns: 5_000_000, ..ModelConfig::default() });
    assert_eq!(d.read(0x1fc) >> 31, 1);
    d.model.step(4_999_999);
    assert_eq!(d.read(0x1fc) >> 31, 1);
    d.model.step(1);
    assert_eq!(d.read(0x1fc), 0);
    assert_eq!(d.read(0x4) >> 16, 5, "cmdif_rev");
    assert_eq!(d.read(0x14), 5 << 4 | 6, "log sizes of the command queue");
    d.write(0x10, 0x12);
    d.write(0x14, 0x3456_7700);
    assert_eq!((d.read(0x10), d.read(0x14)), (0x12, 0x3456_7700 | 5 << 4 | 6), "nic_interface is latched");
    assert_eq!(d.broken(), []);
}

#[test]
fn the_health_counter_and_the_timer_tick_with_the_clock() {
    let d = Driver::new(ModelConfig::default());
    let (counter, timer) = (d.read(0x1010), d.read(0x1004));
    d.model.step(1_000_000_000);
    assert_eq!(d.read(0x1010) - counter, 100);
    assert_eq!(d.read(0x1004) - timer, 156_250_000, "device_frequency_khz");
    assert_eq!(d.read(0x230) >> 24, 16, "firmware's major version in the health buffer");
}

#[test]
fn the_host_endianness_register_is_written_and_no_other_exists() {
    let mut d = Driver::new(ModelConfig { device_id: DEVICE_ID_CX5_PF, ..ModelConfig::default() });
    d.boot();
    let mut body = vec![0; 24];
    put(&mut body, 16, 16, 0x7004);
    d.run(0x805, 0, &body, 32).unwrap();
    put(&mut body, 16, 16, 0xc00e);
    assert_eq!(d.run(0x805, 0, &body, 32).unwrap_err().0, BAD_PARAM);
    assert_eq!(d.broken(), []);
    assert_eq!(d.model.config_read(0, 4), 0x1017_15b3);
    assert!(d.model.now() > 0);
}
