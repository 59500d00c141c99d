//! A driver at work on a device with odd answers.

use mlx5::{
    AccessFlags, AhAttr, Device, DeviceConfig, Error, Pd, Qp, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState, ibv,
};
use mlx5_model::{Model, ModelConfig};

use crate::port::{Change, Place, Port};

/// Bytes that describe one change.
const CHANGE: usize = 5;
/// Most changes of one session.
const MOST: usize = 64;

/// Brings a device up, uses it and takes it down, with the changes that the bytes describe. Nothing may panic, hang or reach
/// out of its memory; which errors come does not matter.
pub fn run(bytes: &[u8]) {
    let changes = bytes.chunks_exact(CHANGE).take(MOST).map(|c| {
        let place = match c[1] % 4 {
            0 => Place::Inline,
            1 => Place::Entry,
            2 => Place::Mailbox,
            _ => Place::Block,
        };
        Change { command: c[0], place, at: u16::from_be_bytes([c[2], c[3]]), value: c[4] }
    });
    // As fast as it goes: a short boot, few pages, a clock that moves by longer steps while the driver waits.
    let mut quick = ModelConfig::default();
    (quick.boot_ns, quick.boot_pages, quick.init_pages, quick.relax_ns) = (1_000, 2, 3, 20_000);
    let model = Model::new(quick);
    let port = Port::new(model, changes);
    let mut config = DeviceConfig::default();
    // An odd answer may ask for any number: the driver stops here, and the model reads each page through.
    config.max_pages = 64;
    // The clock is the model's and moves by little steps: long waits would only cost time.
    let waits = &mut config.timeouts;
    for wait in
        [&mut waits.firmware_start, &mut waits.firmware_init, &mut waits.command, &mut waits.pages, &mut waits.drop]
    {
        *wait = 2_000_000;
    }
    let Ok(device) = Device::open(port.clone(), port, config) else { return };
    let _ = work(&device);
    device.service();
    while device.try_get_async_event().is_some() {}
    let _ = (device.health(), device.leaked(), device.failure());
    let _ = device.close();
}

/// Makes objects of each kind, queries them and lets them go; the first error ends it.
fn work(device: &Device) -> Result<(), Error> {
    let pd = ibv::alloc_pd(device)?;
    let cq = ibv::create_cq(device, 16, 0, None, 0)?;
    let buffer = pd.alloc_buf(8192, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
    let cap = QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 16 };
    let mut qp = ibv::create_qp(&pd, &mut QpInitAttr::new(&cq, &cq, cap))?;
    let connected = connect(device, &mut qp);
    let _ = (qp.query(), cq.query());
    let gone = ibv::destroy_qp(qp).map_err(|e| e.error);
    let _ = ibv::destroy_cq(cq);
    let _ = buffer.dereg();
    end(pd);
    connected.and(gone)
}

fn end(pd: Pd) {
    let _ = ibv::dealloc_pd(pd);
}

fn connect(device: &Device, qp: &mut Qp) -> Result<(), Error> {
    let attr = QpAttr {
        port_num: 1,
        dest_qp_num: qp.qp_num(),
        ah_attr: AhAttr { port_num: 1, dmac: device.info().mac, ..AhAttr::default() },
        timeout: 14,
        ..QpAttr::default()
    };
    use QpAttrMask as M;
    let init = M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS;
    let rtr = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    let rts = M::STATE | M::SQ_PSN | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
    for (qp_state, mask) in [
        (QpState::Init, init),
        (QpState::Rtr, rtr),
        (QpState::Rts, rts),
        (QpState::Err, M::STATE),
        (QpState::Reset, M::STATE),
    ] {
        ibv::modify_qp(qp, &QpAttr { qp_state, ..attr }, mask)?;
    }
    Ok(())
}
