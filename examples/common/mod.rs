//! What the examples share.

use mlx5::{AhAttr, Device, GlobalRoute, Qp, QpAttr, QpAttrMask, QpState, ibv};

/// Takes a queue pair to Rts, towards queue pair `peer` on the same port.
pub fn connect(device: &Device, qp: &mut Qp, peer: u32) -> Result<(), mlx5::Error> {
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
