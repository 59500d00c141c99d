//! Objects: what creating checks, who keeps whom alive, states.

use mlx5_model::{ModelConfig, syndrome_text};

use crate::driver::{Driver, Refused, get, put};
use crate::queues::EqWish;

const BAD_PARAM: u8 = 3;
const BAD_RESOURCE: u8 = 5;
const BUSY: u8 = 6;
const LIMIT: u8 = 8;
const NO_RESOURCES: u8 = 0xf;
const BAD_QP_STATE: u8 = 0x10;

fn status<T>(result: Result<T, Refused>) -> u8 {
    result.err().expect("refused").0
}

struct All {
    d: Driver,
    pd: u32,
    eqn: u32,
    cqn: u32,
    qpn: u32,
    mkey: u32,
}

fn all() -> All {
    let mut d = Driver::up(ModelConfig::default());
    let pd = d.small(0x800, 0).unwrap();
    let eqn = d.eq(EqWish::default()).unwrap().number;
    let cqn = d.cq(eqn, 4).unwrap().number;
    let qpn = d.qp(pd, cqn).unwrap().number;
    let mkey = d.mkey(pd).unwrap();
    All { d, pd, eqn, cqn, qpn, mkey }
}

#[test]
fn what_others_use_is_busy_and_everything_can_be_given_back_in_order() {
    let All { d, pd, eqn, cqn, qpn, mkey } = all();
    for (opcode, number) in [(0x302, eqn), (0x401, cqn), (0x801, pd), (0x803, d.uar)] {
        assert_eq!(status(d.small(opcode, number)), BUSY, "{opcode:#x}");
    }
    d.small(0x501, qpn).unwrap();
    assert_eq!(status(d.small(0x801, pd)), BUSY, "the mkey keeps the PD");
    d.small(0x202, mkey).unwrap();
    d.small(0x801, pd).unwrap();
    assert_eq!(status(d.small(0x302, eqn)), BUSY, "the CQ keeps the EQ");
    d.small(0x401, cqn).unwrap();
    d.small(0x302, eqn).unwrap();
    let model = d.down();
    assert_eq!(model.violations(), []);
    assert_eq!(model.dma_outstanding(), (0, 0));
}

#[test]
fn what_is_gone_or_never_was_is_a_bad_resource() {
    let All { d, cqn, qpn, .. } = all();
    d.small(0x501, qpn).unwrap();
    for (opcode, number) in [(0x501, qpn), (0x401, cqn + 1), (0x302, 200), (0x801, 999), (0x803, 99), (0x50a, qpn)] {
        assert_eq!(status(d.small(opcode, number)), BAD_RESOURCE, "{opcode:#x}");
    }
    assert_eq!(status(d.small(0x202, 0x999)), 0xa, "an mkey is an index");
    assert_eq!(d.broken(), [], "a refusal is the answer, no violation");
}

#[test]
fn a_number_is_reused_at_once() {
    let All { mut d, pd, cqn, qpn, .. } = all();
    d.small(0x501, qpn).unwrap();
    assert_eq!(d.qp(pd, cqn).unwrap().number, qpn);
}

#[test]
fn tables_are_as_large_as_the_capabilities_say() {
    let mut config = ModelConfig::default();
    config.caps.log_max = [3, 2, 2, 2, 2];
    let mut d = Driver::up(config);
    for _ in 0..4 {
        d.small(0x800, 0).unwrap();
    }
    assert_eq!(status(d.small(0x800, 0)), NO_RESOURCES);
    let eqn = (0..8).map(|_| d.eq(EqWish::default()).unwrap().number).last().unwrap();
    assert_eq!(status(d.eq(EqWish::default())), NO_RESOURCES);
    let cqn = (0..4).map(|_| d.cq(eqn, 1).unwrap().number).last().unwrap();
    assert_eq!(status(d.cq(eqn, 1)), NO_RESOURCES);
    for _ in 0..4 {
        d.qp(1, cqn).unwrap();
        d.mkey(1).unwrap();
    }
    assert_eq!((status(d.qp(1, cqn)), status(d.mkey(1))), (NO_RESOURCES, NO_RESOURCES));
}

#[test]
fn a_queue_pair_goes_through_its_states_and_no_other_way() {
    let All { d, qpn, .. } = all();
    let init = |d: &Driver| d.transition(0x502, qpn, |c| put(c, 19, 2, 3));
    let rtr = |d: &Driver, mtu| {
        d.transition(0x503, qpn, |c| {
            put(c, 0x8 * 8, 3, mtu);
            put(c, 0x8 * 8 + 3, 5, 30);
            put(c, 0x15 * 8, 24, qpn.into());
            put(c, 0x95 * 8, 24, 0x77);
        })
    };
    let rts = |d: &Driver| d.transition(0x504, qpn, |c| put(c, 0x79 * 8, 24, 0x55));
    assert_eq!(
        (status(rtr(&d, 3)), status(rts(&d)), status(d.small(0x507, qpn))),
        (BAD_QP_STATE, BAD_QP_STATE, BAD_QP_STATE)
    );
    init(&d).unwrap();
    assert_eq!((d.qp_state(qpn), status(init(&d))), (1, BAD_QP_STATE));
    assert_eq!(syndrome_text(rtr(&d, 3).unwrap_err().1), Some("src_addr_index has no RoCE address"));
    d.roce_address(0).unwrap();
    assert_eq!(status(rtr(&d, 6)), BAD_PARAM);
    assert_eq!(d.qp_state(qpn), 1, "a refused transition changes nothing");
    rtr(&d, 3).unwrap();
    assert_eq!((d.qp_state(qpn), status(init(&d))), (2, BAD_QP_STATE));
    rts(&d).unwrap();
    assert_eq!(d.qp_state(qpn), 3);
    let mut body = [0; 8];
    put(&mut body, 0, 32, qpn.into());
    let context = d.run(0x50b, 0, &body, 0x118).unwrap();
    let field = |bit, width| get(&context[0x18..], bit, width);
    assert_eq!((field(0x79 * 8, 24), field(0x95 * 8, 24), field(0x11 * 8, 24)), (0x55, 0x77, 7));
    assert_eq!((field(0x15 * 8, 24), field(0x8 * 8, 3)), (qpn.into(), 3));
    assert_ne!(get(&context, 0x110 * 8, 64), 0, "the page list, where there is room");
    d.small(0x507, qpn).unwrap();
    assert_eq!(d.qp_state(qpn), 6);
    d.small(0x50a, qpn).unwrap();
    assert_eq!(d.qp_state(qpn), 0);
    init(&d).unwrap();
    assert_eq!(d.broken(), []);
}

/// What is spoiled in the input of a create command, behind its first 8 bytes; the status; words of the reason.
type Row = (u8, &'static str, fn(&mut Vec<u8>));

fn refuses(d: &Driver, opcode: u16, good: &[u8], rows: &[Row]) {
    for (status, reason, spoil) in rows {
        let mut body = good.to_vec();
        spoil(&mut body);
        let refused = d.run(opcode, 0, &body, 16).expect_err(reason);
        assert_eq!((refused.0, syndrome_text(refused.1)), (*status, Some(*reason)));
    }
    d.run(opcode, 0, good, 16).unwrap();
}

#[test]
fn create_eq_checks_its_context() {
    let mut d = Driver::up(ModelConfig::default());
    let ring = d.eq_ring(4);
    let good = d.eq_body(&EqWish::default(), ring, 1);
    refuses(
        &d,
        0x301,
        &good,
        &[
            (LIMIT, "log_eq_size exceeds log_max_eq_sz", |b| put(b, 0x14 * 8 + 3, 5, 17)),
            (BAD_PARAM, "intr is not an MSI-X vector of this function", |b| put(b, 0x1e * 8 + 4, 12, 32)),
            (BAD_PARAM, "event_bitmask has an event type that does not exist", |b| put(b, 0x50 * 8, 64, 1 << 50)),
            (BAD_RESOURCE, "the EQ's UAR does not exist", |b| put(b, 0x15 * 8, 24, 9)),
            (0x50, "length of the list differs from what the context says", |b| put(b, 0x14 * 8 + 3, 5, 7)),
            (0x50, "length of the list differs from what the context says", |b| b.extend_from_slice(&[0; 8])),
            (BAD_PARAM, "a page of the queue is not aligned to its log_page_size", |b| b[0x10f] = 0x40),
            (BAD_PARAM, "a page of the queue is not mapped for the device", |b| b[0x108] = 1),
            (BAD_PARAM, "a reserved bit is set", |b| b[0] = 1),
            (BAD_PARAM, "a reserved bit is set", |b| b[0x100] = 1),
        ],
    );
}

#[test]
fn create_cq_checks_its_context() {
    let All { mut d, eqn, .. } = all();
    let (ring, record) = (d.cq_ring(4), d.alloc(64));
    let good = d.cq_body(eqn, 4, ring, record, 1);
    refuses(
        &d,
        0x400,
        &good,
        &[
            (LIMIT, "log_cq_size exceeds log_max_cq_sz", |b| put(b, 0x14 * 8 + 3, 5, 17)),
            (BAD_PARAM, "cqe_sz is not a size", |b| put(b, 0x9 * 8, 3, 5)),
            (BAD_RESOURCE, "the CQ's EQ does not exist", |b| put(b, 0x1f * 8, 8, 77)),
            (BAD_RESOURCE, "the CQ's UAR does not exist", |b| put(b, 0x15 * 8, 24, 9)),
            (BAD_PARAM, "the doorbell record is not aligned to 8 bytes", |b| b[0x47] |= 4),
            (BAD_PARAM, "the doorbell record is not mapped for the device", |b| b[0x40] = 1),
            (0x50, "length of the list differs from what the context says", |b| {
                put(b, 0x9 * 8, 3, 1); // 128-byte entries, and 64 of them
                put(b, 0x14 * 8 + 3, 5, 6);
            }),
            (BAD_PARAM, "a reserved bit is set", |b| b[0x18] = 0x80),
        ],
    );
}

#[test]
fn create_qp_checks_its_context() {
    let All { mut d, pd, cqn, .. } = all();
    let (ring, record) = (d.alloc(4096), d.alloc(64));
    let good = d.qp_body(pd, cqn, ring, record);
    refuses(
        &d,
        0x500,
        &good,
        &[
            (BAD_PARAM, "service type is not supported", |b| b[0x11] = 3),
            (BAD_RESOURCE, "the QP's PD does not exist", |b| put(b, 0x15 * 8, 24, 99)),
            (BAD_RESOURCE, "cqn_snd does not exist", |b| put(b, 0x8d * 8, 24, 99)),
            (BAD_RESOURCE, "cqn_rcv does not exist", |b| put(b, 0xad * 8, 24, 99)),
            (BAD_RESOURCE, "the QP's UAR does not exist", |b| put(b, 0x1d * 8, 24, 99)),
            (LIMIT, "a work queue exceeds log_max_qp_sz", |b| put(b, 0x1a * 8 + 1, 4, 14)),
            (BAD_PARAM, "receive stride is out of range", |b| put(b, 0x19 * 8 + 5, 3, 6)),
            (BAD_PARAM, "user_index 0xffffff under cqe_version 1", |b| put(b, 0x21 * 8, 24, 0xff_ffff)),
            (BAD_PARAM, "pm_state is not 'migrated'", |b| put(b, 0x12 * 8 + 3, 2, 0)),
            (BAD_PARAM, "rq_type is not supported", |b| put(b, 0xbc * 8 + 5, 3, 2)),
            (BAD_RESOURCE, "srqn_rmpn does not exist", |b| put(b, 0xbc * 8 + 5, 3, 1)),
            (0x50, "length of the list differs from what the context says", |b| put(b, 0x1a * 8 + 1, 4, 7)),
            (BAD_PARAM, "the doorbell record is not aligned to 8 bytes", |b| b[0xb7] |= 4),
            (BAD_PARAM, "a reserved bit is set", |b| b[0x12] |= 0x80),
        ],
    );
}

#[test]
fn reads_and_atomics_under_way_are_held_against_the_capabilities() {
    let All { d, qpn, .. } = all();
    d.roce_address(0).unwrap();
    let rtr = |log_rra: u64| {
        d.transition(0x503, qpn, |c| {
            put(c, 0x8 * 8, 3, 3);
            put(c, 1160, 3, log_rra);
        })
    };
    let rts = |log_sra: u64| d.transition(0x504, qpn, |c| put(c, 904, 3, log_sra));
    let reason = |refused: Result<(), Refused>| syndrome_text(refused.unwrap_err().1).unwrap();
    d.transition(0x502, qpn, |c| put(c, 19, 2, 3)).unwrap();
    assert_eq!(reason(rtr(5)), "log_rra_max exceeds log_max_ra_res_qp");
    rtr(4).unwrap();
    assert_eq!(reason(rts(5)), "log_sra_max exceeds log_max_ra_req_qp");
    rts(4).unwrap();
    assert_eq!(d.broken(), []);
}

#[test]
fn create_mkey_checks_its_context() {
    let All { mut d, pd, .. } = all();
    let page = d.alloc(4096);
    let good = d.mkey_body(pd, page, 4096);
    refuses(
        &d,
        0x200,
        &good,
        &[
            (BAD_RESOURCE, "the mkey's PD does not exist", |b| put(b, 0x15 * 8, 24, 99)),
            (BAD_PARAM, "access mode is not supported", |b| put(b, 0xa * 8 + 6, 2, 2)),
            (BAD_PARAM, "log_page_size is out of range", |b| put(b, 0x43 * 8 + 2, 6, 11)),
            (BAD_PARAM, "the translations do not cover the range", |b| put(b, 0x20 * 8, 64, 3 * 4096)),
            (BAD_PARAM, "the translations do not cover the range", |b| put(b, 0x3c * 8, 32, 0)),
            (BAD_PARAM, "start_addr and len wrap", |b| put(b, 0x20 * 8, 64, u64::MAX)),
            (BAD_PARAM, "a page of the mkey is not aligned to its log_page_size", |b| b[0x10e] ^= 8),
            (BAD_PARAM, "remote write or atomics without local write", |b| put(b, 8 * 8 + 17, 5, 0b01001)),
            (BAD_PARAM, "remote write or atomics without local write", |b| put(b, 8 * 8 + 17, 5, 0b10001)),
            (BAD_PARAM, "pg_access without the pg capability", |b| b[4] = 0x80),
            (0x50, "length of the list differs from what the context says", |b| put(b, 0x58 * 8, 32, 2)),
            (BAD_PARAM, "a reserved bit is set", |b| put(b, 2 * 16 + 1, 1, 1)),
        ],
    );
}

#[test]
fn queries_return_the_contexts() {
    let All { d, eqn, cqn, mkey, .. } = all();
    let query = |opcode, number: u32| {
        let mut body = [0; 8];
        put(&mut body, 0, 32, number.into());
        d.run(opcode, 0, &body, 0x118).unwrap()
    };
    let eq = query(0x303, eqn);
    assert_eq!((get(&eq, 0x1c * 8 + 3, 5), get(&eq, 0x1d * 8, 24)), (4, d.uar.into()));
    let cq = query(0x402, cqn);
    assert_eq!((get(&cq, 0x1c * 8 + 3, 5), get(&cq, 0x27 * 8, 8)), (4, eqn.into()));
    assert_ne!((get(&cq, 0x110 * 8, 64), get(&eq, 0x110 * 8, 64)), (0, 0));
    let key = query(0x201, mkey);
    assert_eq!(get(&key, 0x28 * 8, 64), 4096);
    let special = d.run(0x203, 0, &[0; 8], 32).unwrap();
    assert_eq!((get(&special, 0xc * 8, 32), get(&special, 0x14 * 8, 32)), (0x800, 0x100));
}

#[test]
fn the_vport_is_up_and_its_context_can_be_changed() {
    let d = Driver::up(ModelConfig::default());
    assert_eq!(d.run(0x750, 0, &[0; 8], 16).unwrap()[0xf], 0x11);
    let context = d.run(0x754, 0, &[0; 8], 0x110).unwrap();
    assert_eq!(context[0x10 + 0xf6..0x10 + 0xfc], [0x02, 0x15, 0xb3, 0, 0, 1]);
    let mut body = vec![0; 0x1f8];
    put(&mut body, 32, 32, 1 << 1 | 1 << 6); // roce_en, mtu
    put(&mut body, 0xf8 * 8 + 31, 1, 1);
    put(&mut body, (0xf8 + 0x26) * 8, 16, 4200);
    d.run(0x755, 0, &body, 16).unwrap();
    let after = d.run(0x754, 0, &[0; 8], 0x110).unwrap();
    assert_eq!((get(&after, 0x10 * 8 + 31, 1), get(&after, 0x36 * 8, 16)), (1, 4200));
    assert_eq!(after[0x10 + 0x28..], context[0x10 + 0x28..], "nothing else has changed");
    put(&mut body, 32, 32, 1 << 3);
    assert_eq!(status(d.run(0x755, 0, &body, 16)), BAD_PARAM, "the permanent address stays");
    put(&mut body, 32, 32, 1 << 6);
    put(&mut body, (0xf8 + 0x26) * 8, 16, 20_000);
    assert_eq!(status(d.run(0x755, 0, &body, 16)), BAD_PARAM);
    assert_eq!(status(d.roce_address(16)), 0xa);
    let mut version = vec![0; 72];
    version[8..16].copy_from_slice(b"ours,1.0");
    d.run(0x10d, 0, &version, 16).unwrap();
    assert_eq!(d.broken(), []);
}
