//! What creating a completion queue makes: the context on the device, sizes, vectors, memory, and messages through it.

use std::sync::atomic::Ordering;

use mlx5::dv::{ContextFlags, CqeCompLayout, CqeCompResFormat};
use mlx5::hw::cqc::Cqc;
use mlx5::{Cq, CqInitAttrEx, Device, DeviceConfig, Error, QpInitAttr, RecvWr, SendFlags, SendWr, WcFlags, ibv};
use mlx5_model::{CapConfig, Effect, Fault, Match, ModelConfig};

use crate::cq_create::{Attr, EINVAL, errno, with_caps};
use crate::support::{Port, SIZES, close, open, pair_with, poll_n};

const CREATE_CQ: u16 = 0x400;

fn context(cq: &Cq) -> Cqc {
    cq.query().expect("an answer")
}

/// What the driver said of the CQ's form.
fn form(cq: &Cq) -> [u32; 5] {
    let c = context(cq);
    let format = c.mini_cqe_res_format() | c.mini_cqe_res_format_ext() << 2;
    [c.cqe_sz(), c.cqe_comp_en().into(), format, c.cqe_comp_layout(), c.cq_timestamp_format()]
}

/// Cases C-009 and C-010: the codes of the PRM for each kind of entry, and everything else zero.
#[test]
fn the_context_says_what_was_asked_for_and_nothing_else() {
    type Ask = fn(&mut Attr<'_>);
    let asks: [(Ask, [u32; 5]); 12] = [
        (|_| {}, [0, 0, 0, 0, 0]),
        (|a| a.size(64), [0, 0, 0, 0, 0]),
        (|a| a.size(128), [1, 0, 0, 0, 0]),
        (
            |a| {
                a.size(128);
                a.dv_flags(1);
            },
            [2, 0, 0, 0, 0],
        ),
        (|a| a.compress(1), [0, 1, 0, 0, 0]),
        (|a| a.compress(2), [0, 1, 1, 0, 0]),
        (|a| a.compress(4), [0, 1, 3, 0, 0]),
        (|a| a.compress(8), [0, 1, 2, 0, 0]),
        (|a| a.compress(16), [0, 1, 4, 0, 0]),
        (
            |a| {
                a.size(128);
                a.compress(2);
            },
            [1, 1, 1, 0, 0],
        ),
        (
            |a| {
                a.compress(1);
                a.layout(CqeCompLayout::Enhanced);
            },
            [0, 1, 0, 1, 0],
        ),
        (|a| a.ex.wc_flags |= WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK, [0, 0, 0, 0, 2]),
    ];
    let (port, dev) = open();
    for (i, (ask, right)) in asks.into_iter().enumerate() {
        let mut attr = Attr::default();
        ask(&mut attr);
        let cq = attr.create(&dev).unwrap();
        assert_eq!(form(&cq), right, "row {i}");
        assert_eq!(cq.cqe_size(), if right[0] == 0 { 64 } else { 128 });
    }
    let cq = Attr::default().create(&dev).unwrap();
    let c = context(&cq);
    let named = Cqc::new()
        .with_log_cq_size(3)
        .with_uar_page(c.uar_page())
        .with_c_eqn(c.c_eqn())
        .with_dbr_addr(c.dbr_addr())
        .with_st(c.st());
    assert_eq!(c, named, "nothing else is set");
    assert!(c.dbr_addr() != 0 && c.dbr_addr().is_multiple_of(8));
    drop(cq);
    close(&port, dev);
}

/// Case C-011: one page holds the ring, and its size follows from the ring's.
#[test]
fn the_page_size_in_the_context_follows_from_the_ring() {
    let (port, dev) = open();
    for (entries, log_page_size, large) in [(2, 0, 0), (64, 0, 1), (256, 2, 3), (1024, 4, 5), (4096, 6, 7)] {
        let mut attr = Attr::default();
        attr.ex.cqe = entries - 1;
        assert_eq!(context(&attr.create(&dev).unwrap()).log_page_size(), log_page_size, "{entries} entries");
        attr.size(128);
        assert_eq!(context(&attr.create(&dev).unwrap()).log_page_size(), large, "{entries} entries of 128 bytes");
    }
    close(&port, dev);
}

/// Case C-003: the ring has 128 slots though 100 were asked for, and polling goes on behind the 100th.
#[test]
fn polling_wraps_where_the_real_ring_does() {
    let mut p = pair_with(ModelConfig::default(), 100, SIZES, |dev, cqe| dev.create_cq(cqe, 0, 0).unwrap());
    assert_eq!((p.cq[0].cqe(), 1 << context(&p.cq[0]).log_cq_size()), (127, 128));
    for wr_id in 0..300 {
        let (sent, received) = p.send(wr_id, 8, SendFlags::empty());
        assert_eq!((sent.wr_id, received.wr_id), (wr_id, wr_id));
    }
    p.end();
}

fn with_vectors(completion_vectors: u32) -> (Port, Device) {
    let model = ModelConfig::default();
    let mut config = DeviceConfig::new(model.device_id);
    config.completion_vectors = completion_vectors;
    let port = Port::new(model);
    let dev = Device::open(port.clone(), port.clone(), config).expect("the model comes up");
    (port, dev)
}

/// The model has 2^5 event queues, three of which are for commands, asynchronous events and page requests. Linux's driver gives as
/// many vectors as there are event queues, too.
#[test]
fn a_device_with_fewer_event_queues_than_vectors_asked_for_has_as_many_as_it_can() {
    for (asked, has) in [(0, 0), (28, 28), (29, 29), (30, 29), (63, 29), (u32::MAX, 29)] {
        let (port, dev) = with_vectors(asked);
        assert_eq!(dev.query_device().num_comp_vectors, has, "{asked} asked for");
        if let Some(last) = has.checked_sub(1) {
            let cq = ibv::create_cq(&dev, 1, 0, None, last).expect("the last vector works");
            drop(cq);
        }
        close(&port, dev);
    }
}

/// `test_cq.py` and `test_cqex.py`: cqe of 1, half of the most and the most, with each vector; then one more of each, and (which
/// they leave out) exactly the number of vectors.
#[test]
fn every_size_and_vector_within_the_devices_limits_is_created_and_none_beyond() {
    let (port, dev) = with_vectors(3);
    let device = dev.query_device();
    assert_eq!(device.num_comp_vectors, 3);
    let make = |cqe, comp_vector| {
        let plain = ibv::create_cq(&dev, cqe, 0, None, comp_vector);
        let attr = CqInitAttrEx { cqe, comp_vector, wc_flags: WcFlags::STANDARD, ..Default::default() };
        let extended = ibv::create_cq_ex(&dev, &attr);
        assert_eq!(plain.as_ref().err(), extended.as_ref().err(), "both verbs agree");
        plain
    };
    let mut eqns = vec![];
    for comp_vector in 0..device.num_comp_vectors {
        for cqe in [1, device.num_comp_vectors, device.max_cqe / 2, device.max_cqe] {
            let cq = make(cqe, comp_vector).expect("within the limits");
            assert!(cq.cqe() >= cqe);
            eqns.push(context(&cq).c_eqn());
        }
    }
    eqns.dedup();
    assert_eq!(eqns.len(), 3, "each vector has an event queue of its own");
    for cqe in [device.max_cqe + 1, 1 << 23, 1 << 24, 1 << 30, (1 << 31) - 1, 1 << 31, u32::MAX - 1, u32::MAX] {
        assert_eq!(errno(make(cqe, 0)), Some(EINVAL), "cqe {cqe}");
    }
    for vector in [3, 4, 255, 256, 1 << 16, i32::MAX as u32, 1 << 31, u32::MAX] {
        assert_eq!(errno(make(7, vector)), Some(EINVAL), "comp_vector {vector}");
    }
    close(&port, dev);
}

/// Case C-012: no memory here, and no room in the device, have one errno and two messages.
#[test]
fn no_memory_here_and_no_room_in_the_device_are_told_apart() {
    const ENOMEM: i32 = 12;
    let (port, dev) = open();
    port.dry.store(true, Ordering::Relaxed);
    let here = dev.create_cq(4096, 0, 0).unwrap_err();
    port.dry.store(false, Ordering::Relaxed);
    port.model.inject(Fault::Command {
        at: Match::Opcode(CREATE_CQ),
        effect: Effect::Status { status: 0x8, syndrome: 0x1234 },
    });
    let there = dev.create_cq(4096, 0, 0).unwrap_err();
    assert_eq!((here.errno(), there.errno()), (ENOMEM, ENOMEM));
    assert_eq!(here, Error::NoMemory);
    assert_eq!(there.opcode().map(|o| o.0), Some(CREATE_CQ));
    assert!(here.to_string().contains("locked memory") && there.to_string().contains("0x1234"), "{here}; {there}");
    drop(dev.create_cq(4096, 0, 0).unwrap());
    close(&port, dev);
}

/// Case C-007: a page index has 24 bits in the answer that gives it, in the CQ's context and in the queue pair's.
#[test]
fn a_doorbell_pages_index_is_not_cut_down() {
    let index = 0xff_ffff;
    assert_eq!(Cqc::new().with_uar_page(index).uar_page(), index);
    assert_eq!(mlx5::hw::qpc::Qpc::new().with_uar_page(index).uar_page(), index);
    assert_eq!(mlx5::hw::cmd::AllocUarOut::new().with_uar(index).uar(), index);
    assert_eq!(mlx5::hw::cmd::AllocUarOut::new().with_uar(u32::MAX).uar(), index, "and never more");
}

/// `ibv_query_device_ex(3)` and `mlx5dv_query_device(3)`: what one needs to know before asking.
#[test]
fn query_device_tells_what_can_be_asked_for() {
    let (port, dev) = open();
    let device = dev.query_device();
    assert_eq!(device.completion_timestamp_mask, 0x7fff_ffff_ffff_ffff);
    assert_eq!(device.hca_core_clock, u64::from(dev.caps().general.device_frequency_khz()));
    let caps = device.cqe_comp_caps;
    assert_eq!((caps.max_num, caps.supported_format, caps.enhanced_layout), (64, CqeCompResFormat::all(), true));
    assert_eq!(device.flags, ContextFlags::all());
    assert_eq!(ContextFlags::all().bits(), 1 | 1 << 4 | 1 << 5 | 1 << 7);
    close(&port, dev);
    let (port, dev) = with_caps(CapConfig::default().plain_cqs());
    let device = dev.query_device();
    let caps = device.cqe_comp_caps;
    assert_eq!((caps.max_num, caps.supported_format.bits(), caps.enhanced_layout), (0, 0, false));
    assert_eq!(device.flags, ContextFlags::CQE_V1);
    close(&port, dev);
}

/// `test_mlx5_cq.py`: RC messages, polled through the extended calls, on every kind of CQ: cqe 100, no fields.
#[test]
fn messages_pass_through_every_kind_of_cq() {
    let kinds: [fn(&mut Attr<'_>); 12] = [
        |_| {},
        |a| a.size(64),
        |a| a.size(128),
        |a| {
            a.size(128);
            a.dv_flags(1);
        },
        |a| a.compress(1),
        |a| a.compress(2),
        |a| a.compress(4),
        |a| a.compress(8),
        |a| a.compress(16),
        |a| {
            a.size(128);
            a.compress(4);
        },
        |a| {
            a.compress(1);
            a.layout(CqeCompLayout::Enhanced);
        },
        |a| {
            a.size(128);
            a.compress(4);
            a.layout(CqeCompLayout::Enhanced);
        },
    ];
    for (i, kind) in kinds.into_iter().enumerate() {
        let mut p = pair_with(ModelConfig::default(), 100, SIZES, |dev, cqe| {
            let mut attr = Attr::default();
            (attr.ex.cqe, attr.ex.wc_flags) = (cqe, WcFlags::empty());
            kind(&mut attr);
            attr.create(dev).unwrap()
        });
        for round in 0..30 {
            let to = p.sge(1, 0, 64);
            let recv = [0, 1, 2, 3].map(|n| RecvWr { wr_id: 4 * round + n, sg_list: std::slice::from_ref(&to) });
            p.qp[1].post_recv(&recv).unwrap();
            let from = p.sge(0, 0, 16);
            let send = [0, 1, 2, 3].map(|n| SendWr {
                wr_id: 4 * round + n,
                sg_list: std::slice::from_ref(&from),
                send_flags: SendFlags::SIGNALED,
                ..Default::default()
            });
            p.qp[0].post_send(&send).unwrap();
            for cq in &mut p.cq {
                let ids: Vec<_> = poll_n(&p.port, cq, 4).iter().map(|wc| (wc.wr_id, wc.status.0)).collect();
                assert_eq!(ids, [0, 1, 2, 3].map(|n| (4 * round + n, 0)), "kind {i}, round {round}");
            }
        }
        p.end();
    }
}

/// `test_cqex.py`: a hundred RC messages on CQs of 2000 with the standard fields.
#[test]
fn a_hundred_messages_pass_through_cqs_of_two_thousand() {
    let mut p = pair_with(ModelConfig::default(), 2000, SIZES, |dev, cqe| {
        let attr = CqInitAttrEx { cqe, wc_flags: WcFlags::STANDARD, ..Default::default() };
        ibv::create_cq_ex(dev, &attr).unwrap()
    });
    assert_eq!(p.cq[0].cqe(), 2047);
    for wr_id in 0..100 {
        let (sent, received) = p.send(wr_id, 1024, SendFlags::empty());
        assert_eq!((sent.status.0, received.status.0, received.byte_len), (0, 0, 1024));
    }
    p.end();
}

/// Rule of mlx5_ib: a queue pair on a CQ with real-time stamps is created with real time; its two CQs agree or it is EINVAL.
#[test]
fn queue_pairs_stamp_with_the_clock_of_their_cqs() {
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    let cq = |flags| {
        let attr = CqInitAttrEx { cqe: 7, wc_flags: WcFlags::STANDARD | flags, ..Default::default() };
        dev.create_cq_ex(&attr).unwrap()
    };
    let plain = cq(WcFlags::empty());
    let ticks = cq(WcFlags::COMPLETION_TIMESTAMP);
    let wall = cq(WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK);
    let made = |send, recv| {
        let qp = pd.create_qp(&mut QpInitAttr::new(send, recv, SIZES))?;
        // SAFETY: the command only reads.
        let qpc = unsafe { dev.general_cmd(&mlx5::hw::cmd::QueryQp { qpn: qp.qp_num() }) }.expect("an answer");
        Ok(qpc.ts_format())
    };
    assert_eq!(made(&plain, &plain), Ok(0));
    assert_eq!(made(&plain, &ticks), Ok(0));
    assert_eq!(made(&wall, &wall), Ok(2));
    assert_eq!((made(&plain, &wall), made(&wall, &plain)), (Ok(2), Ok(2)));
    for (send, recv) in [(&wall, &ticks), (&ticks, &wall)] {
        assert_eq!(made(send, recv).map_err(Error::errno), Err(EINVAL));
    }
    let both = cq(WcFlags::COMPLETION_TIMESTAMP | WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK);
    assert_eq!(made(&both, &ticks), Ok(0), "wall-clock time is made of ticks");
    assert_eq!(made(&both, &wall).map_err(Error::errno), Err(EINVAL));
    drop((plain, ticks, wall, both, pd));
    close(&port, dev);
}
