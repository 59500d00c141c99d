//! The forms that a completion queue's entries may have: each with its capability, each refused without it.

use mlx5_model::{CapConfig, ModelConfig, ViolationKind, syndrome_text};

use crate::driver::{Driver, put, store};
use crate::queues::EqWish;

const BAD_PARAM: u8 = 3;

/// Fields of the context, as bits of it: `cqe_sz`, `cc`, `oi`, `cqe_comp_en`, `mini_cqe_res_format`, `cqe_comp_layout`,
/// `mini_cqe_res_format_ext`, `cq_timestamp_format`.
type Field = (usize, usize, u64);

const PAD: Field = (0x08, 3, 2);
const BYTES_128: Field = (0x08, 3, 1);
const COLLAPSED: Field = (0x0b, 1, 1);
const IGNORE: Field = (0x0e, 1, 1);
const COMPRESS: Field = (0x11, 1, 1);
const ENHANCED: Field = (0x1e, 2, 1);
const CSUM: Field = (0x12, 2, 1);
const FTAG: Field = (0x12, 2, 2);
const CSUM_STRIDX: Field = (0x12, 2, 3);
const HEADERS: Field = (0x5c, 2, 1);
const DEFAULT_CLOCK: Field = (0x5e, 2, 1);
const REAL_TIME: Field = (0x5e, 2, 2);

/// A function with these capabilities, and the input of a CREATE_CQ with these fields: 16 entries.
fn bench(caps: CapConfig, fields: &[Field]) -> (Driver, Vec<u8>, u64) {
    let mut d = Driver::up(ModelConfig { caps, ..ModelConfig::default() });
    let eqn = d.eq(EqWish::default()).unwrap().number;
    let (ring, record) = (d.cq_ring(4), d.alloc(64));
    let mut body = d.cq_body(eqn, 4, ring, record, 1);
    for (bit, width, value) in fields {
        put(&mut body, 8 * 8 + bit, *width, *value);
    }
    (d, body, ring)
}

/// Why a CREATE_CQ with these fields is refused; nothing when it is not.
fn refusal(caps: CapConfig, fields: &[Field]) -> Option<&'static str> {
    let (d, body, ring) = bench(caps, fields);
    for i in 0..64 {
        store(d.memory_at(ring), 64 * i + 62, &[0xff]);
    }
    let answer = d.run(0x400, 0, &body, 16);
    let refused = answer.err()?;
    assert_eq!(refused.0, BAD_PARAM);
    Some(syndrome_text(refused.1).unwrap())
}

#[test]
fn each_form_of_entries_is_taken_where_its_capability_is() {
    let forms: &[&[Field]] = &[
        &[],
        &[BYTES_128],
        &[PAD],
        &[IGNORE],
        &[COLLAPSED],
        &[DEFAULT_CLOCK],
        &[REAL_TIME],
        &[COMPRESS],
        &[COMPRESS, CSUM],
        &[COMPRESS, FTAG],
        &[COMPRESS, CSUM_STRIDX],
        &[COMPRESS, HEADERS],
        &[COMPRESS, BYTES_128],
        &[COMPRESS, PAD],
        &[COMPRESS, ENHANCED],
        &[COMPRESS, ENHANCED, BYTES_128, CSUM, IGNORE, REAL_TIME],
    ];
    for form in forms {
        assert_eq!(refusal(CapConfig::default(), form), None, "{form:?}");
    }
}

type Row = (&'static str, fn(&mut CapConfig), &'static [Field]);

#[test]
fn each_form_of_entries_is_refused_without_its_capability_and_for_a_reason_of_its_own() {
    let rows: &[Row] = &[
        ("cqe_sz 2 without the cqe_128_always capability", |c| c.cqe_128_always = false, &[PAD]),
        ("oi without the cq_oi capability", |c| c.cq_oi = false, &[IGNORE]),
        ("cq_timestamp_format real time without its capability", |c| c.real_time_ts = false, &[REAL_TIME]),
        ("compression of 64-byte entries without its capability", |c| c.cqe_compression = false, &[COMPRESS]),
        (
            "compression of 128-byte entries without its capability",
            |c| c.cqe_compression_128 = false,
            &[COMPRESS, BYTES_128],
        ),
        ("the enhanced layout without its capability", |c| c.enhanced_cqe_compression = false, &[COMPRESS, ENHANCED]),
        (
            "minis with checksum and stride index without their capability",
            |c| c.mini_cqe_resp_stride_index = false,
            &[COMPRESS, CSUM_STRIDX],
        ),
        ("minis with a flow tag without their capability", |c| c.mini_cqe_resp_flow_tag = false, &[COMPRESS, FTAG]),
        (
            "minis with header types without their capability",
            |c| c.mini_cqe_resp_l3_l4_tag = false,
            &[COMPRESS, HEADERS],
        ),
    ];
    for (reason, without, form) in rows {
        let mut caps = CapConfig::default();
        without(&mut caps);
        assert_eq!(refusal(caps, form), Some(*reason));
    }
}

#[test]
fn a_capability_for_one_entry_size_is_none_for_the_other() {
    let only_64 = CapConfig { cqe_compression_128: false, ..CapConfig::default() };
    assert_eq!(refusal(only_64, &[COMPRESS]), None);
    let only_128 = CapConfig { cqe_compression: false, ..CapConfig::default() };
    assert_eq!(refusal(only_128, &[COMPRESS, BYTES_128]), None);
}

#[test]
fn forms_that_do_not_exist_are_refused() {
    let rows: &[(&str, &[Field])] = &[
        ("cqe_sz is not a size", &[(0x08, 3, 3)]),
        ("cqe_sz is not a size", &[(0x08, 3, 7)]),
        ("cq_timestamp_format is not a format", &[(0x5e, 2, 3)]),
        ("cqe_comp_layout is not a layout", &[COMPRESS, (0x1e, 2, 2)]),
        ("mini_cqe_res_format and its extension are not a format", &[COMPRESS, CSUM, HEADERS]),
        ("mini_cqe_res_format and its extension are not a format", &[COMPRESS, (0x5c, 2, 2)]),
        ("a collapsed CQ cannot be compressed", &[COMPRESS, COLLAPSED]),
    ];
    for (reason, form) in rows {
        assert_eq!(refusal(CapConfig::default(), form), Some(*reason), "{form:?}");
    }
}

#[test]
fn a_form_of_minis_without_compression_is_refused_and_a_violation() {
    for form in [CSUM, HEADERS, ENHANCED] {
        let (d, body, _) = bench(CapConfig::default(), &[form]);
        let refused = d.run(0x400, 0, &body, 16).unwrap_err();
        assert_eq!(refused.0, BAD_PARAM);
        assert_eq!(syndrome_text(refused.1), Some("a mini format or layout without cqe_comp_en"));
        assert_eq!(d.broken(), [ViolationKind::ReservedBits]);
    }
}

#[test]
fn a_ring_that_counts_laps_starts_before_lap_0_in_each_entry() {
    let (d, body, ring) = bench(CapConfig::default(), &[COMPRESS, ENHANCED]);
    for i in 0..15 {
        store(d.memory_at(ring), 64 * i + 62, &[0xff]);
    }
    d.run(0x400, 0, &body, 16).unwrap();
    assert_eq!(d.broken(), [ViolationKind::CqNotInitialised], "the last entry says that it is of lap 0");
    store(d.memory_at(ring), 64 * 15 + 62, &[0xff, 0x00]);
    d.run(0x400, 0, &body, 16).unwrap();
    assert_eq!(d.broken(), [ViolationKind::CqNotInitialised], "opcode 0 is not that of an entry without content");
    store(d.memory_at(ring), 64 * 15 + 62, &[0xff, 0xf1]);
    d.run(0x400, 0, &body, 16).unwrap();
    assert_eq!(d.broken(), []);
}
