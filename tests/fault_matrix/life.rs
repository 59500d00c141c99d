//! The life of objects: every verb that sends a command, in an order in which each can succeed.

use std::sync::atomic::{AtomicU32, Ordering};

use mlx5::{
    AccessFlags, AhAttr, Cq, CqAttrMask, Device, DmaBuf, Error, ExclusiveCqs, Gid, GlobalRoute, ModerateCq,
    ModifyCqAttr, Mr, Mtu, Pd, Qp, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState, Returned, Srq, SrqAttr, SrqAttrMask,
    SrqInitAttr,
};
use mlx5_hw::cmd::{Command, QueryAdapter, QueryEq, QueryMkey, QuerySpecialContexts};
use mlx5_model::Fault;

use crate::port::Port;

/// Memory of the caller's own, for all cells: no device writes to it here.
static OWN: [AtomicU32; 1024] = [const { AtomicU32::new(0) }; 1024];

/// The objects that are alive.
pub struct World<'a> {
    pub dev: &'a Device,
    pub port: &'a Port,
    qp: Option<Qp>,
    cq: Option<Cq>,
    srq: Option<Srq>,
    mr: Option<Mr>,
    buf: Option<DmaBuf>,
    pd: Option<Pd>,
}

/// A verb: its name, and the call.
pub type Step = (&'static str, fn(&mut World<'_>) -> Result<(), Error>);

pub const STEPS: &[Step] = &[
    ("query_port", |w| {
        assert!(w.dev.query_port(1)?.active);
        Ok(())
    }),
    ("alloc_pd", |w| keep(w.dev.alloc_pd(), &mut w.pd)),
    ("alloc_buf", |w| keep(pd(&w.pd).alloc_buf(10_000, AccessFlags::LOCAL_WRITE), &mut w.buf)),
    ("reg_mr", |w| {
        let start = std::ptr::NonNull::from(&OWN).cast();
        // SAFETY: a static of atomics: it stays, and nobody has a reference to it that the device could disturb.
        let made = unsafe { pd(&w.pd).reg_mr(start, 4096, AccessFlags::empty()) };
        keep(made, &mut w.mr)
    }),
    ("create_cq", |w| keep(w.dev.create_cq(100, 0, 0), &mut w.cq)),
    ("create_srq", |w| {
        let attr = SrqAttr { max_wr: 8, max_sge: 1, srq_limit: 0 };
        keep(pd(&w.pd).create_srq(&mut SrqInitAttr { srq_context: 0, attr }), &mut w.srq)
    }),
    ("modify_srq", |w| {
        let attr = SrqAttr { srq_limit: 1, ..Default::default() };
        w.srq.as_ref().expect("an SRQ").modify(&attr, SrqAttrMask::LIMIT)
    }),
    ("query_srq", |w| {
        assert_eq!(w.srq.as_ref().expect("an SRQ").query()?.max_wr, 15);
        Ok(())
    }),
    ("create_qp", |w| {
        let cq = w.cq.as_ref().expect("a CQ");
        let cap = QpCap { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
        keep(pd(&w.pd).create_qp(&mut QpInitAttr::new(cq, cq, cap)), &mut w.qp)
    }),
    ("modify_qp to Init", |w| modify(w, QpState::Init, INIT)),
    ("modify_qp to Rtr", |w| modify(w, QpState::Rtr, RTR)),
    ("modify_qp to Rts", |w| modify(w, QpState::Rts, RTS)),
    ("query_qp", |w| {
        let state = w.qp.as_ref().expect("a QP").query()?.qp_state;
        assert_eq!(state, QpState::Rts);
        Ok(())
    }),
    ("query_cq", |w| {
        let cqc = w.cq.as_ref().expect("a CQ").query()?;
        assert_eq!(cqc.log_cq_size(), 7);
        Ok(())
    }),
    ("resize_cq", |w| {
        let cq = w.cq.as_mut().expect("a CQ");
        cq.resize(200)?;
        assert_eq!(cq.cqe(), 255);
        Ok(())
    }),
    ("modify_cq", |w| {
        let moderate = ModerateCq { cq_count: 8, cq_period: 16 };
        w.cq.as_ref().expect("a CQ").modify(&ModifyCqAttr { attr_mask: CqAttrMask::MODERATE, moderate })
    }),
    ("set_gid", |w| {
        let info = *w.dev.info();
        if !info.ethernet {
            // The subnet manager's affair.
            return Ok(());
        }
        let gid = Gid { gid: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], mac: info.mac, vlan: None };
        w.dev.set_gid(1, Some(&gid))
    }),
    ("general_cmd", |w| {
        let adapter = run(w, &QueryAdapter)?;
        assert_eq!(&adapter.psid[..5], b"MODEL");
        Ok(())
    }),
    ("general_cmd", |w| {
        let mkey_index = w.buf.as_ref().expect("a buffer").lkey() >> 8;
        run(w, &QueryMkey { mkey_index }).map(|_| ())
    }),
    ("general_cmd", |w| run(w, &QueryEq { eqn: 1 }).map(|_| ())),
    ("general_cmd", |w| run(w, &QuerySpecialContexts).map(|_| ())),
    ("service: pages wanted", |w| service(w, 5)),
    ("service: pages offered", |w| service(w, -5)),
    ("service: no memory", |w| {
        w.port.hunger.now.store(true, Ordering::Relaxed);
        let done = service(w, 4);
        w.port.hunger.now.store(false, Ordering::Relaxed);
        done
    }),
    ("modify_qp to Err", |w| modify(w, QpState::Err, QpAttrMask::STATE)),
    ("reset", |w| {
        let (qp, cq) = (w.qp.as_mut().expect("a QP"), w.cq.as_mut().expect("a CQ"));
        qp.reset(ExclusiveCqs::Same(cq))
    }),
    ("modify_qp to Init", |w| modify(w, QpState::Init, INIT)),
    ("destroy_qp", |w| end(&mut w.qp, Qp::destroy)),
    ("destroy_cq", |w| end(&mut w.cq, Cq::destroy)),
    ("destroy_srq", |w| end(&mut w.srq, Srq::destroy)),
    ("dereg_mr", |w| end(&mut w.mr, Mr::dereg)),
    ("dereg", |w| end(&mut w.buf, DmaBuf::dereg)),
    ("dealloc_pd", |w| end(&mut w.pd, Pd::dealloc)),
];

impl<'a> World<'a> {
    pub fn new(dev: &'a Device, port: &'a Port) -> Self {
        Self { dev, port, qp: None, cq: None, srq: None, mr: None, buf: None, pd: None }
    }
}

fn pd(pd: &Option<Pd>) -> &Pd {
    pd.as_ref().expect("a PD")
}

fn keep<T>(made: Result<T, Error>, place: &mut Option<T>) -> Result<(), Error> {
    *place = Some(made?);
    Ok(())
}

/// Ends an object; one that comes back is there again.
fn end<T>(place: &mut Option<T>, call: fn(T) -> Result<(), Returned<T>>) -> Result<(), Error> {
    let Err(back) = call(place.take().expect("the object")) else { return Ok(()) };
    *place = Some(back.object);
    Err(back.error)
}

fn run<C: Command>(w: &World<'_>, command: &C) -> Result<C::Out, Error> {
    // SAFETY: the commands here only read.
    unsafe { w.dev.general_cmd(command) }
}

/// Firmware asks for pages, or offers some, while no command waits.
fn service(w: &World<'_>, pages: i32) -> Result<(), Error> {
    w.port.model.inject(Fault::PageRequest(pages));
    w.dev.service();
    Ok(())
}

const INIT: QpAttrMask =
    QpAttrMask::STATE.union(QpAttrMask::PKEY_INDEX).union(QpAttrMask::PORT).union(QpAttrMask::ACCESS_FLAGS);
const RTR: QpAttrMask = QpAttrMask::STATE
    .union(QpAttrMask::AV)
    .union(QpAttrMask::PATH_MTU)
    .union(QpAttrMask::DEST_QPN)
    .union(QpAttrMask::RQ_PSN)
    .union(QpAttrMask::MAX_DEST_RD_ATOMIC)
    .union(QpAttrMask::MIN_RNR_TIMER);
const RTS: QpAttrMask = QpAttrMask::STATE
    .union(QpAttrMask::TIMEOUT)
    .union(QpAttrMask::RETRY_CNT)
    .union(QpAttrMask::RNR_RETRY)
    .union(QpAttrMask::SQ_PSN)
    .union(QpAttrMask::MAX_QP_RD_ATOMIC);

fn modify(w: &mut World<'_>, qp_state: QpState, mask: QpAttrMask) -> Result<(), Error> {
    let info = *w.dev.info();
    let qp = w.qp.as_mut().expect("a QP");
    let route = GlobalRoute { dgid: info.gid.unwrap_or_default(), hop_limit: 64, ..Default::default() };
    let ah_attr = AhAttr { grh: Some(route), port_num: 1, dmac: info.mac, ..Default::default() };
    let attr = QpAttr {
        qp_state,
        path_mtu: Mtu::B1024,
        dest_qp_num: qp.qp_num(),
        ah_attr,
        port_num: 1,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 1,
        ..Default::default()
    };
    qp.modify(&attr, mask)
}
