//! From a function that has been reset to a completion that was polled, on the software function.
//!
//! Run it with `cargo run --example first_completion`. On a card only the first two lines differ.

use std::error::Error;

use mlx5::{
    AccessFlags, AhAttr, Device, DeviceConfig, GlobalRoute, PollAttr, Qp, QpAttr, QpAttrMask, QpCap, QpInitAttr,
    QpState, RecvWr, SendFlags, SendWr, Sge, ibv,
};
use mlx5_model::{Model, ModelConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let model = Model::new(ModelConfig::default());
    let device = Device::open(model.clone(), model.clone(), DeviceConfig::default())?;

    let pd = ibv::alloc_pd(&device)?;
    let mut cq = ibv::create_cq(&device, 16, 0, None, 0)?;
    let cap = QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
    let mut a = ibv::create_qp(&pd, &mut QpInitAttr::new(&cq, &cq, cap))?;
    let mut b = ibv::create_qp(&pd, &mut QpInitAttr::new(&cq, &cq, cap))?;
    connect(&device, &mut a, b.qp_num())?;
    connect(&device, &mut b, a.qp_num())?;

    let hello = b"a message through the device";
    let from = pd.alloc_buf(4096, AccessFlags::empty())?;
    let to = pd.alloc_buf(4096, AccessFlags::LOCAL_WRITE)?;
    from.write(0, hello)?;
    let receive = [Sge { addr: to.addr(), length: 4096, lkey: to.lkey() }];
    let send = [Sge { addr: from.addr(), length: hello.len() as u32, lkey: from.lkey() }];
    ibv::post_recv(&mut b, &[RecvWr { wr_id: 1, sg_list: &receive }])?;
    let request = SendWr { wr_id: 2, sg_list: &send, send_flags: SendFlags::SIGNALED, ..SendWr::default() };
    ibv::post_send(&mut a, &[request])?;

    let mut seen = 0;
    while seen < 2 {
        model.step(1_000);
        let Ok(mut poller) = ibv::start_poll(&mut cq, &PollAttr::default()) else { continue };
        let mut completion = Ok(poller.completion());
        while let Ok(c) = completion {
            println!("wr_id {}: {:?}, {:?}, {:?} bytes", c.wr_id(), c.status(), c.opcode(), c.byte_len());
            seen += 1;
            completion = poller.next();
        }
    }
    let mut got = vec![0; hello.len()];
    to.read(0, &mut got)?;
    println!("received: {}", String::from_utf8_lossy(&got));

    ibv::destroy_qp(a)?;
    ibv::destroy_qp(b)?;
    ibv::destroy_cq(cq)?;
    from.dereg()?;
    to.dereg()?;
    ibv::dealloc_pd(pd)?;
    ibv::close_device(device)?;
    assert!(model.violations().is_empty(), "{:?}", model.violations());
    Ok(())
}

/// Takes a queue pair to Rts, towards queue pair `peer` on the same port.
fn connect(device: &Device, qp: &mut Qp, peer: u32) -> Result<(), mlx5::Error> {
    let info = device.info();
    let grh = info.gid.map(|dgid| GlobalRoute { dgid, hop_limit: 1, ..GlobalRoute::default() });
    let attr = QpAttr {
        port_num: 1,
        dest_qp_num: peer,
        ah_attr: AhAttr { grh, port_num: 1, dmac: info.mac, ..AhAttr::default() },
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ..QpAttr::default()
    };
    use QpAttrMask as M;
    let init = M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS;
    let rtr = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    let rts = M::STATE | M::SQ_PSN | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
    for (qp_state, mask) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
        ibv::modify_qp(qp, &QpAttr { qp_state, ..attr }, mask)?;
    }
    Ok(())
}
