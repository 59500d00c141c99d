//! The life of objects: who keeps whom, what becomes of entries of queues that are gone, what a failed command leaves.

use mlx5::hw::platform::Platform;
use mlx5::{Cq, CqInitAttrEx, Error, ExclusiveCqs, PollError, QpCap, RecvWr, SendFlags, SendWr, ibv};
use mlx5_model::{CapConfig, Effect, Fault, Match, ModelConfig};

use crate::cq_semantics::{POLL, Ring, ids};
use crate::support::{BUF, INIT, Pair, Port, SIZES, connect, create_qp, open, open_with, pair, path_to};

#[test]
fn a_cq_with_queues_is_busy_comes_back_and_works() {
    let mut p = pair();
    let spare = p.cq[1].cqn();
    let cq = std::mem::replace(&mut p.cq[0], p.dev.create_cq(1, 0, 0).unwrap());
    let back = ibv::destroy_cq(cq).unwrap_err();
    assert_eq!((back.error, back.error.errno()), (Error::Busy, 16));
    p.cq[0] = back.object;
    assert_ne!(p.cq[0].cqn(), spare);
    let (s, r) = p.send(4, 100, SendFlags::empty());
    assert_eq!((s.wr_id, r.wr_id), (4, 4));
    // The same goes for the domain and the device.
    let pd = std::mem::replace(&mut p.pd, p.dev.alloc_pd().unwrap());
    let back = ibv::dealloc_pd(pd).unwrap_err();
    assert_eq!(back.error, Error::Busy);
    p.pd = back.object;
    let Pair { port, dev, pd, cq, qp, buf } = p;
    let back = ibv::close_device(dev).unwrap_err();
    assert_eq!(back.error, Error::Busy);
    Pair { port, dev: back.object, pd, cq, qp, buf }.end();
}

/// A CQ, and queue pairs connected to themselves.
struct Loops {
    port: Port,
    dev: mlx5::Device,
    pd: mlx5::Pd,
    cq: Cq,
}

impl Loops {
    fn new(cqe: u32) -> Self {
        let (port, dev) = open();
        let (pd, cq) = (dev.alloc_pd().unwrap(), dev.create_cq(cqe, 0, 0).unwrap());
        Self { port, dev, pd, cq }
    }

    fn qp(&self) -> mlx5::Qp {
        let cap = QpCap { max_send_wr: 4, max_recv_wr: 4, ..SIZES };
        let mut qp = create_qp(&self.pd, &self.cq, &self.cq, cap);
        let me = qp.qp_num();
        connect(&self.dev, &mut qp, me);
        qp
    }

    /// One message of `qp` to itself: two completions with this wr_id.
    fn message(&self, qp: &mut mlx5::Qp, wr_id: u64) {
        qp.post_recv(&[RecvWr { wr_id, sg_list: &[] }]).unwrap();
        qp.post_send(&[SendWr { wr_id, send_flags: SendFlags::SIGNALED, ..Default::default() }]).unwrap();
        self.port.model.step(1_000_000);
    }

    fn end(self) {
        self.cq.destroy().map_err(|e| e.error).unwrap();
        self.pd.dealloc().map_err(|e| e.error).unwrap();
        crate::support::close(&self.port, self.dev);
    }
}

/// Cases C-025 and C-043.
#[test]
fn entries_of_a_destroyed_queue_are_not_delivered_but_given_back() {
    let mut l = Loops::new(15);
    let (mut gone, mut stays) = (l.qp(), l.qp());
    l.message(&mut gone, 1);
    l.message(&mut stays, 2);
    l.message(&mut gone, 3);
    gone.destroy().map_err(|e| e.error).unwrap();
    let ring = Ring::of(&l.port, &l.cq);
    assert_eq!(ids(&mut l.cq), [2, 2]);
    assert_eq!(ring.consumer(), 6);
    // Only entries of destroyed queues: nothing is delivered, the room is given back all the same.
    let mut gone = l.qp();
    l.message(&mut gone, 4);
    drop(gone);
    assert_eq!(l.cq.start_poll(&POLL).err(), Some(PollError::Empty));
    assert_eq!(ring.consumer(), 8);
    drop(stays);
    l.end();
}

/// Case C-036.
#[test]
fn a_queue_destroyed_in_the_middle_of_a_batch_is_skipped_in_the_rest_of_it() {
    let mut l = Loops::new(15);
    let (mut a, mut b) = (l.qp(), l.qp());
    l.message(&mut a, 1);
    l.message(&mut b, 2);
    l.message(&mut a, 3);
    let mut poller = l.cq.start_poll(&POLL).unwrap();
    assert_eq!(poller.completion().wr_id(), 1);
    a.destroy().map_err(|e| e.error).unwrap();
    assert_eq!(poller.completion().wr_id(), 1);
    assert_eq!((poller.next().unwrap().wr_id(), poller.next().unwrap().wr_id()), (2, 2));
    assert_eq!(poller.next().err(), Some(PollError::Empty));
    drop(poller);
    drop(b);
    l.end();
}

#[test]
fn queues_come_and_go_with_entries_left_behind_and_nothing_is_mixed_up() {
    let mut l = Loops::new(4095);
    let mut stays = l.qp();
    for round in 0..500 {
        let mut gone = l.qp();
        l.message(&mut gone, 0xbad);
        drop(gone);
        if round % 7 == 0 {
            l.message(&mut stays, round);
            assert_eq!(ids(&mut l.cq), [round, round], "round {round}");
        }
        if round % 100 == 99 {
            assert!(ids(&mut l.cq).is_empty());
        }
    }
    drop(stays);
    l.end();
}

#[test]
fn reset_drops_entries_from_two_cqs() {
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    let (mut send, mut recv) = (dev.create_cq(7, 0, 0).unwrap(), dev.create_cq(7, 0, 0).unwrap());
    let mut qp = create_qp(&pd, &send, &recv, SIZES);
    let me = qp.qp_num();
    for round in 0..5 {
        connect(&dev, &mut qp, me);
        qp.post_recv(&[RecvWr { wr_id: round, sg_list: &[] }; 3]).unwrap();
        qp.post_send(&[SendWr { wr_id: round, send_flags: SendFlags::SIGNALED, ..Default::default() }; 3]).unwrap();
        port.model.step(1_000_000);
        assert_eq!(send.start_poll(&POLL).unwrap().completion().wr_id(), round);
        qp.reset(ExclusiveCqs::Two { send: &mut send, recv: &mut recv }).unwrap();
        assert!(ids(&mut send).is_empty() && ids(&mut recv).is_empty());
        let full = qp.post_recv(&[RecvWr::default()]).unwrap_err();
        assert_eq!(full.errno(), 22, "nothing can be posted in Reset");
    }
    qp.destroy().map_err(|e| e.error).unwrap();
    drop((send, recv, pd));
    crate::support::close(&port, dev);
}

const CREATE_CQ: u16 = 0x400;
const DESTROY_CQ: u16 = 0x401;
const CREATE_QP: u16 = 0x500;
const CREATE_MKEY: u16 = 0x200;

fn fail(port: &Port, opcode: u16) {
    let effect = Effect::Status { status: 0x8, syndrome: 0xabcd };
    port.model.inject(Fault::Command { at: Match::Opcode(opcode), effect });
}

#[test]
fn what_the_device_refuses_is_told_and_leaks_nothing() {
    let p = pair();
    let before = p.port.model.dma_outstanding();
    let is_told = |e: Option<Error>| {
        matches!(e, Some(Error::Command { syndrome: 0xabcd, .. })) && e.map(Error::errno) == Some(12)
    };
    fail(&p.port, CREATE_CQ);
    assert!(is_told(p.dev.create_cq(100, 0, 0).err()));
    fail(&p.port, CREATE_QP);
    assert!(is_told(p.pd.create_qp(&mut mlx5::QpInitAttr::new(&p.cq[0], &p.cq[1], SIZES)).err()));
    fail(&p.port, CREATE_MKEY);
    assert!(is_told(p.pd.alloc_buf(100, mlx5::AccessFlags::empty()).err()));
    fail(&p.port, CREATE_MKEY);
    let mut own = [0_u8; 8];
    // SAFETY: `own` outlives the call, which fails.
    let mr = unsafe { p.pd.reg_mr(std::ptr::NonNull::from(&mut own).cast(), 8, mlx5::AccessFlags::empty()) };
    assert!(is_told(mr.err()));
    assert_eq!(p.port.model.dma_outstanding(), before);
    assert!(p.dev.leaked().is_empty());
    p.end();
}

#[test]
fn a_cq_that_could_not_be_destroyed_comes_back() {
    let (port, dev) = open();
    let cq = dev.create_cq(3, 0, 0).unwrap();
    let effect = Effect::Status { status: 0x5, syndrome: 1 };
    port.model.inject(Fault::Command { at: Match::Opcode(DESTROY_CQ), effect });
    let back = cq.destroy().unwrap_err();
    assert!(matches!(back.error, Error::Command { .. }));
    back.object.destroy().map_err(|e| e.error).unwrap();
    crate::support::close(&port, dev);
}

#[test]
fn memory_of_a_command_without_answer_stays_with_the_device() {
    let (port, dev) = open();
    port.model.inject(Fault::Command { at: Match::Opcode(CREATE_CQ), effect: Effect::Never });
    let error = dev.create_cq(100, 0, 0).unwrap_err();
    assert_eq!((error.errno(), error.refused()), (110, false), "{error}");
    let leaked = dev.leaked();
    assert!(leaked.iter().any(|l| l.what == "completion queue" && l.size >= 128 * 64), "{leaked:?}");
    drop(dev);
    assert_eq!(port.model.violations(), []);
}

/// Dropping is best effort with a short deadline: `Timeouts::drop` for each command, not the minute of `Timeouts::command`.
#[test]
fn dropping_objects_of_a_firmware_that_hangs_does_not_take_long() {
    const OPCODES: [u16; 5] = [DESTROY_CQ, 0x501, 0x50a, 0x202, 0x801];
    let Pair { port, dev, pd, cq, qp, buf } = pair();
    for opcode in OPCODES {
        port.model.inject(Fault::Command { at: Match::Every(opcode), effect: Effect::Never });
    }
    let started = port.now();
    drop((buf, qp, cq, pd));
    // Two buffers, two queue pairs (which get no further than 2RST_QP), two CQs, one PD.
    let took = port.now() - started;
    assert!((7_000_000_000..8_000_000_000).contains(&took), "{took} ns");
    let leaked = dev.leaked();
    for (what, n) in [("registered buffer", 2), ("queue pair", 2), ("completion queue", 2)] {
        assert_eq!(leaked.iter().filter(|l| l.what == what).count(), n, "{what}: {leaked:?}");
    }
    drop(dev);
    assert_eq!((port.model.violations(), port.model.dma_outstanding()), (vec![], (0, 0)));
}

/// As the port of `docs/porting.md`: queues are then lists of small pages.
#[test]
fn a_platform_that_aligns_to_pages_only_is_enough() {
    let (port, dev) = open();
    port.only_pages.store(true, std::sync::atomic::Ordering::Relaxed);
    let pd = dev.alloc_pd().unwrap();
    let cq = [4095, 1023].map(|cqe| dev.create_cq(cqe, 0, 0).unwrap());
    let cap = QpCap { max_send_wr: 1024, max_recv_wr: 1024, ..SIZES };
    let mut qp = [0, 1].map(|i: usize| create_qp(&pd, &cq[i], &cq[i], cap));
    let numbers = [qp[0].qp_num(), qp[1].qp_num()];
    connect(&dev, &mut qp[0], numbers[1]);
    connect(&dev, &mut qp[1], numbers[0]);
    let buf = [(); 2].map(|()| pd.alloc_buf(BUF, mlx5::AccessFlags::LOCAL_WRITE).unwrap());
    let mut p = Pair { port, dev, pd, cq, qp, buf };
    for wr_id in 0..3000 {
        let (sent, received) = p.send(wr_id, 64, SendFlags::empty());
        assert_eq!((sent.wr_id, received.wr_id, received.byte_len), (wr_id, wr_id, 64));
    }
    p.end();
}

#[test]
fn ignoring_overrun_needs_the_capability() {
    let attr = CqInitAttrEx {
        cqe: 3,
        comp_mask: mlx5::CqInitAttrMask::FLAGS,
        flags: mlx5::CreateCqFlags::IGNORE_OVERRUN | mlx5::CreateCqFlags::SINGLE_THREADED,
        ..Default::default()
    };
    for (cq_oi, errno) in [(true, None), (false, Some(95))] {
        let (port, dev) =
            open_with(ModelConfig { caps: CapConfig { cq_oi, ..Default::default() }, ..Default::default() });
        let made = dev.create_cq_ex(&attr);
        assert_eq!(made.as_ref().err().map(|e| e.errno()), errno);
        if let Ok(cq) = made {
            assert!(cq.query().unwrap().oi());
        }
        crate::support::close(&port, dev);
    }
}

#[test]
fn queues_of_a_cq_that_was_dropped_first_keep_it_on_the_device() {
    let Loops { port, dev, pd, cq } = Loops::new(7);
    let mut qp = create_qp(&pd, &cq, &cq, SIZES);
    drop(cq);
    qp.modify(&mlx5::QpAttr { qp_state: mlx5::QpState::Init, ..path_to(&dev, 1) }, INIT).unwrap();
    qp.post_recv(&[RecvWr::default()]).unwrap();
    qp.destroy().map_err(|e| e.error).unwrap();
    drop(pd);
    crate::support::close(&port, dev);
}

const RST_QP: u16 = 0x50a;
const DESTROY_QP: u16 = 0x501;
const DESTROY_MKEY: u16 = 0x202;

/// What an object's memory becomes when the device does not answer the command that would end or make it.
#[test]
fn memory_that_the_device_may_hold_is_kept_and_named() {
    type Step = fn(&mut Pair) -> Error;
    let steps: [(u16, &str, Step); 6] = [
        (CREATE_QP, "queue pair", |p| {
            p.pd.create_qp(&mut mlx5::QpInitAttr::new(&p.cq[0], &p.cq[1], SIZES)).unwrap_err()
        }),
        (CREATE_MKEY, "registered buffer", |p| p.pd.alloc_buf(100, mlx5::AccessFlags::empty()).unwrap_err()),
        (DESTROY_MKEY, "registered buffer", |p| {
            let buf = p.pd.alloc_buf(100, mlx5::AccessFlags::empty()).unwrap();
            buf.dereg().unwrap_err().error
        }),
        (RST_QP, "queue pair", |p| {
            let mut qp = create_qp(&p.pd, &p.cq[0], &p.cq[0], SIZES);
            qp.modify(&mlx5::QpAttr { qp_state: mlx5::QpState::Init, ..path_to(&p.dev, 1) }, INIT).unwrap();
            qp.destroy().unwrap_err().error
        }),
        (DESTROY_QP, "queue pair", |p| create_qp(&p.pd, &p.cq[0], &p.cq[0], SIZES).destroy().unwrap_err().error),
        (DESTROY_CQ, "completion queue", |p| p.dev.create_cq(3, 0, 0).unwrap().destroy().unwrap_err().error),
    ];
    for (opcode, what, step) in steps {
        let mut p = pair();
        p.port.model.inject(Fault::Command { at: Match::Every(opcode), effect: Effect::Never });
        let error = step(&mut p);
        assert_eq!((error.errno(), error.opcode().map(|o| o.0)), (110, Some(opcode)), "{error}");
        let leaked = p.dev.leaked();
        assert!(leaked.iter().any(|l| l.what == what), "{opcode:#x}: {leaked:?}");
        let model = p.port.model.clone();
        drop(p);
        assert_eq!(model.violations(), [], "{opcode:#x}: nothing is freed under the device");
    }
}

/// What a drop could not end is still there, and nobody can end it any more: a teardown around it would be wrong.
#[test]
fn a_device_with_objects_that_outlived_their_drop_is_closed_by_a_reset() {
    const DEALLOC_PD: u16 = 0x801;
    for opcode in [DESTROY_QP, DESTROY_CQ, DESTROY_MKEY, DEALLOC_PD] {
        let Pair { port, dev, pd, cq, qp, buf } = pair();
        fail(&port, opcode);
        drop((qp, cq, buf, pd));
        assert_eq!(dev.close().map_err(|back| back.error), Ok(()), "{opcode:#x}");
        assert_eq!((port.model.violations(), port.model.dma_outstanding()), (vec![], (0, 0)), "{opcode:#x}");
    }
}

/// A queue pair that the device may have made goes on writing its user index into CQEs: no other may have that.
#[test]
fn the_user_index_of_a_queue_pair_that_may_exist_is_not_used_again() {
    let index_after = |effect: Option<Effect>| {
        let (port, dev) = open();
        let (pd, cq) = (dev.alloc_pd().unwrap(), dev.create_cq(7, 0, 0).unwrap());
        if let Some(effect) = effect {
            port.model.inject(Fault::Command { at: Match::Opcode(CREATE_QP), effect });
            pd.create_qp(&mut mlx5::QpInitAttr::new(&cq, &cq, SIZES)).unwrap_err();
        }
        let qp = create_qp(&pd, &cq, &cq, SIZES);
        // SAFETY: the command only reads.
        let qpc = unsafe { dev.general_cmd(&mlx5::hw::cmd::QueryQp { qpn: qp.qp_num() }) }.unwrap();
        qpc.user_index()
    };
    let first = index_after(None);
    assert_ne!(index_after(Some(Effect::Never)), first, "nobody knows");
    assert_eq!(index_after(Some(Effect::Status { status: 0x3, syndrome: 1 })), first, "there is none");
}

#[test]
fn the_callers_memory_stays_mapped_while_the_device_may_hold_it() {
    for (opcode, making) in [(CREATE_MKEY, true), (DESTROY_MKEY, false)] {
        let (port, dev) = open();
        let pd = dev.alloc_pd().unwrap();
        // It outlives the device, as the contract asks when deregistration fails.
        let memory: &'static mut [u8] = Box::leak(vec![0; 5000].into_boxed_slice());
        let ptr = std::ptr::NonNull::from(memory).cast();
        port.model.inject(Fault::Command { at: Match::Every(opcode), effect: Effect::Never });
        // SAFETY: the memory is never freed and no reference to it is used again.
        let made = unsafe { pd.reg_mr(ptr, 5000, mlx5::AccessFlags::LOCAL_WRITE) };
        let error = if making { made.unwrap_err() } else { made.unwrap().dereg().unwrap_err().error };
        assert_eq!(error.errno(), 110);
        let leaked: Vec<_> = dev.leaked().iter().map(|l| (l.what, l.size)).collect();
        assert!(leaked.contains(&("the caller's registered memory", 5000)), "{leaked:?}");
        assert_eq!(port.mapped.lock().unwrap().len(), 1);
        drop(pd);
        drop(dev);
        assert_eq!(port.model.violations(), []);
    }
}

/// The device is done with the memory, the platform is not: that a mapping did not end is made good at the close.
#[test]
fn a_mapping_that_does_not_end_stays_on_the_list_until_the_reset() {
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    let memory: &'static mut [u8] = Box::leak(vec![0; 5000].into_boxed_slice());
    // SAFETY: the memory is never freed and no reference to it is used again.
    let mr = unsafe { pd.reg_mr(std::ptr::NonNull::from(memory).cast(), 5000, mlx5::AccessFlags::empty()) }.unwrap();
    port.stuck.store(true, std::sync::atomic::Ordering::Relaxed);
    let back = mr.dereg().unwrap_err();
    assert_eq!(back.error.errno(), 16);
    drop(back.object);
    assert_eq!(dev.leaked().iter().map(|piece| piece.size).collect::<Vec<_>>(), [5000]);
    port.stuck.store(false, std::sync::atomic::Ordering::Relaxed);
    drop(pd);
    assert_eq!(dev.close().map_err(|back| back.error), Ok(()));
    assert_eq!((port.mapped.lock().unwrap().len(), port.model.violations()), (0, vec![]));
}

#[test]
fn a_queue_pair_whose_destruction_failed_can_only_be_destroyed_again() {
    let mut p = pair();
    let mut qp = create_qp(&p.pd, &p.cq[0], &p.cq[0], SIZES);
    let me = qp.qp_num();
    connect(&p.dev, &mut qp, me);
    fail(&p.port, DESTROY_QP);
    let back = qp.destroy().unwrap_err();
    assert!(matches!(back.error, Error::Command { .. }));
    let mut qp = back.object;
    let attr = path_to(&p.dev, me);
    assert_eq!(
        qp.modify(&mlx5::QpAttr { qp_state: mlx5::QpState::Init, ..attr }, INIT).err().map(Error::errno),
        Some(22)
    );
    assert_eq!(qp.reset(ExclusiveCqs::Same(&mut p.cq[0])).err().map(Error::errno), Some(22));
    assert_eq!(qp.post_recv(&[RecvWr::default()]).unwrap_err().errno(), 22);
    qp.destroy().map_err(|e| e.error).unwrap();
    p.end();
}

#[test]
fn objects_move_between_threads_and_a_device_is_shared() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Cq>();
    send::<mlx5::Qp>();
    send::<mlx5::Pd>();
    send::<mlx5::Mr>();
    send::<mlx5::DmaBuf>();
    send::<mlx5::Device>();
    sync::<mlx5::Device>();
    sync::<mlx5::DmaBuf>();
}
