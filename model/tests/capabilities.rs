//! Each capability lies where the public headers (`tests/data/layouts.csv`) say: pages are read as raw bytes, by the
//! names in those headers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/bytes.rs"]
mod bytes;
#[path = "control/driver.rs"]
#[allow(dead_code, reason = "shared with the tests of the control side, which use all of it")]
mod driver;

use std::collections::BTreeMap;

use driver::{Driver, get, put};
use mlx5_model::{CapConfig, ModelConfig};

/// Fields of a structure: name, first bit, bits.
fn fields(structure: &str) -> Vec<(&'static str, usize, usize)> {
    let rows = include_str!("../../tests/data/layouts.csv").lines();
    let parts = rows.map(|row| row.split(',').collect::<Vec<_>>()).filter(|row| row[0] == structure);
    // A single number of at most 64 bits; not a structure within.
    let numbers = parts.filter(|row| row[1] != "__size" && row[4] == "1").map(|row| {
        let number = |i: usize| row[i].parse::<usize>().unwrap();
        (row[1], number(2), number(3))
    });
    numbers.filter(|(_, _, width)| *width <= 64).collect()
}

/// The fields of a page that are not zero, by name. Every bit that is set must belong to one.
fn named(structure: &str, page: &[u8]) -> BTreeMap<&'static str, u64> {
    let mut rest = page.to_vec();
    let mut found = BTreeMap::new();
    for (name, first, width) in fields(structure) {
        let value = get(page, first, width);
        if value != 0 {
            found.insert(name, value);
            put(&mut rest, first, width, 0);
        }
    }
    let strange = rest.iter().position(|byte| *byte != 0);
    assert_eq!(strange, None, "a byte of {structure} with bits that no header names");
    found
}

/// A page as QUERY_HCA_CAP returns it: `mode` 1 in force, 0 at most.
fn page(config: &CapConfig, cap_type: u16, mode: u16) -> Vec<u8> {
    let mut driver = Driver::new(ModelConfig { caps: config.clone(), ..ModelConfig::default() });
    driver.boot();
    let page = driver.caps(cap_type << 1 | mode);
    driver.finish();
    page
}

fn general(config: &CapConfig) -> BTreeMap<&'static str, u64> {
    named("cmd_hca_cap", &page(config, 0, 1))
}

/// A change to the configuration, and the fields that it changes: name and new value.
type Change = (fn(&mut CapConfig), &'static [(&'static str, u64)]);

const CHANGES: [Change; 40] = [
    (|c| c.cqe_version = 2, &[("cqe_version", 2)]),
    (|c| c.log_max[0] = 7, &[("log_max_eq", 7)]),
    (|c| c.log_max[1] = 9, &[("log_max_cq", 9)]),
    (|c| c.log_max[2] = 22, &[("log_max_qp", 22)]),
    (|c| c.log_max[3] = 24, &[("log_max_mkey", 24)]),
    (|c| c.log_max[4] = 11, &[("log_max_pd", 11)]),
    (|c| c.log_max_cq_sz = 22, &[("log_max_cq_sz", 22)]),
    (|c| c.log_max_qp_sz = 15, &[("log_max_qp_sz", 15)]),
    (|c| c.log_max_rmp = 7, &[("log_max_rmp", 7), ("log_max_srq", 7)]),
    (|c| c.log_max_srq_sz = 9, &[("log_max_srq_sz", 9)]),
    (|c| c.log_max_eq_sz = 22, &[("log_max_eq_sz", 22)]),
    (|c| c.cq_oi = false, &[("cq_oi", 0)]),
    (|c| c.cq_resize = false, &[("cq_resize", 0)]),
    (|c| c.cq_moderation = false, &[("cq_moderation", 0)]),
    (|c| c.cq_period_mode_modify = false, &[("cq_period_mode_modify", 0)]),
    (|c| c.cq_period_start_from_cqe = false, &[("cq_period_start_from_cqe", 0)]),
    (|c| c.scqe_break_moderation = false, &[("scqe_break_moderation", 0)]),
    (|c| c.ethernet = false, &[("eth_virt", 0), ("port_type", 0)]),
    (|c| c.bf = false, &[("bf", 0)]),
    (|c| c.log_bf_reg_size = 7, &[("log_bf_reg_size", 7)]),
    (|c| c.roce = false, &[("roce", 0)]),
    (|c| c.ib_virt = true, &[("ib_virt", 1)]),
    (|c| c.fl_rc_qp_when_roce_disabled = false, &[("fl_rc_qp_when_roce_disabled", 0)]),
    (|c| c.fl_rc_qp_when_roce_enabled = false, &[]),
    (|c| c.atomic = false, &[("atomic", 0)]),
    (|c| c.driver_version = false, &[("driver_version", 0)]),
    (|c| c.page_request_disable = true, &[("page_request_disable", 1)]),
    (|c| c.num_ports = 2, &[("num_ports", 2)]),
    (|c| c.cqe_compression = false, &[("cqe_compression", 0)]),
    (|c| c.cqe_compression_128 = false, &[("cqe_compression_128", 0), ("cqe_compression_128b", 0)]),
    (|c| c.cqe_compression_max_num = 0x1234, &[("cqe_compression_max_num", 0x1234)]),
    (|c| c.cqe_compression_timeout = 0x4321, &[("cqe_compression_timeout", 0x4321)]),
    (|c| c.mini_cqe_resp_stride_index = false, &[("mini_cqe_resp_stride_index", 0)]),
    (|c| c.mini_cqe_resp_flow_tag = false, &[("mini_cqe_resp_flow_tag", 0)]),
    (|c| c.mini_cqe_resp_l3_l4_tag = false, &[("mini_cqe_resp_l3_l4_tag", 0)]),
    (|c| c.enhanced_cqe_compression = false, &[("enhanced_cqe_compression", 0)]),
    (|c| c.cqe_128_always = false, &[("cqe_128_always", 0)]),
    (|c| c.sctr_data_cqe = false, &[("sctr_data_cqe", 0)]),
    (|c| c.real_time_ts = false, &[("rq_ts_format", 0), ("sq_ts_format", 0)]),
    (|_| (), &[]),
];

#[test]
fn each_setting_changes_the_field_of_its_name_and_no_other() {
    let usual = general(&CapConfig::default());
    for (change, expected) in CHANGES {
        let mut config = CapConfig::default();
        change(&mut config);
        let now = general(&config);
        let names = usual.keys().chain(now.keys()).collect::<std::collections::BTreeSet<_>>();
        let value = |of: &BTreeMap<&str, u64>, name: &str| of.get(name).copied().unwrap_or(0);
        let changed: Vec<_> = names.into_iter().filter(|name| value(&usual, name) != value(&now, name)).collect();
        let changed: Vec<_> = changed.into_iter().map(|name| (*name, value(&now, name))).collect();
        assert_eq!(changed, expected);
    }
}

#[test]
fn what_the_function_can_do_has_the_names_of_the_headers() {
    let expected = BTreeMap::from([
        ("atomic", 1),
        ("bf", 1),
        ("cmdif_checksum", 1),
        ("compact_address_vector", 1),
        ("cq_moderation", 1),
        ("cq_oi", 1),
        ("cq_period_mode_modify", 1),
        ("cq_period_start_from_cqe", 1),
        ("cq_resize", 1),
        ("cqe_128_always", 1),
        ("cqe_compression", 1),
        ("cqe_compression_128", 1),
        ("cqe_compression_128b", 1),
        ("cqe_compression_max_num", 64),
        ("cqe_compression_timeout", 16),
        ("cqe_version", 1),
        ("device_frequency_khz", 156250),
        ("driver_version", 1),
        ("enhanced_cqe_compression", 1),
        ("eth_virt", 1),
        ("fl_rc_qp_when_roce_disabled", 1),
        ("imaicl", 1),
        ("local_ca_ack_delay", 16),
        ("log_bf_reg_size", 9),
        ("log_max_cq", 16),
        ("log_max_cq_sz", 16),
        ("log_max_current_mc_list", 4),
        ("log_max_current_uc_list", 4),
        ("log_max_eq", 5),
        ("log_max_eq_sz", 16),
        ("log_max_mkey", 18),
        ("log_max_mrw_sz", 64),
        ("log_max_msg", 30),
        ("log_max_pd", 16),
        ("log_max_qp", 17),
        ("log_max_qp_sz", 13),
        ("log_max_ra_req_qp", 4),
        ("log_max_ra_res_qp", 4),
        ("log_max_rmp", 16),
        ("log_max_srq", 16),
        ("log_max_srq_sz", 15),
        ("log_max_transport_domain", 12),
        ("log_pg_sz", 12),
        ("max_indirection", 4),
        ("max_tc", 8),
        ("max_wqe_sz_rq", 512),
        ("max_wqe_sz_sq", 1024),
        ("mini_cqe_resp_flow_tag", 1),
        ("mini_cqe_resp_l3_l4_tag", 1),
        ("mini_cqe_resp_stride_index", 1),
        ("num_of_uars_per_page", 1),
        ("num_ports", 1),
        ("port_type", 1),
        ("roce", 1),
        ("rq_ts_format", 2),
        ("scqe_break_moderation", 1),
        ("sctr_data_cqe", 1),
        ("sq_ts_format", 2),
        ("uar_4k", 1),
        ("umr_modify_entity_size_disabled", 1),
        ("vhca_id", 1),
    ]);
    assert_eq!(general(&CapConfig::default()), expected);
}

#[test]
fn what_a_driver_may_raise_is_more_at_most_than_in_force() {
    let config = CapConfig::default();
    let (now, most) = (general(&config), named("cmd_hca_cap", &page(&config, 0, 0)));
    let more: Vec<_> = most.iter().filter(|(name, value)| now.get(*name) != Some(value)).collect();
    assert_eq!(more, [(&"cmdif_checksum", &3), (&"pkey_table_size", &5)]);
}

#[test]
fn the_pages_of_roce_and_atomics_have_the_names_of_the_headers() {
    let config = CapConfig::default();
    let roce = named("roce_cap", &page(&config, 4, 1));
    let expected = BTreeMap::from([
        ("fl_rc_qp_when_roce_disabled", 1),
        ("fl_rc_qp_when_roce_enabled", 1),
        ("l3_type", 6),
        ("qp_ts_format", 2),
        ("r_roce_dest_udp_port", 4791),
        ("r_roce_max_src_udp_port", 0xffff),
        ("r_roce_min_src_udp_port", 0xc000),
        ("roce_address_table_size", 16),
        ("roce_version", 4),
    ]);
    assert_eq!(roce, expected);
    let atomic = named("atomic_caps", &page(&config, 3, 0));
    let expected = BTreeMap::from([
        ("atomic_operations", 3),
        ("atomic_req_8B_endianness_mode", 1),
        ("atomic_size_qp", 8),
        ("supported_atomic_req_8B_endianness_mode_1", 1),
    ]);
    assert_eq!(atomic, expected);
}

#[test]
fn a_capability_that_is_taken_away_by_name_is_gone_and_nothing_else() {
    let all = general(&CapConfig::default());
    for name in CapConfig::names() {
        let mut config = CapConfig::default();
        assert!(config.without(name), "{name}");
        let left = general(&config);
        let gone: Vec<&str> = all.keys().filter(|key| left.get(*key) != all.get(*key)).copied().collect();
        let wanted = match name {
            // Is not there, or lies in RoCE's own page.
            "ib_virt" | "fl_rc_qp_when_roce_enabled" => vec![],
            "real_time_ts" => vec!["rq_ts_format", "sq_ts_format"],
            // Two headers have two names for it.
            "cqe_compression_128" => vec![name, "cqe_compression_128b"],
            "log_max_rmp" => vec!["log_max_rmp", "log_max_srq"],
            name => vec![name],
        };
        assert_eq!(gone, wanted);
    }
    assert!(!CapConfig::default().without("colour"));
}
