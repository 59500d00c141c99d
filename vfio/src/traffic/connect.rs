//! Making a queue pair ready, towards a peer on the same port.

use mlx5::{Ah, AhAttr, Device, Error, GlobalRoute, Mtu, Pd, Qp, QpAttr, QpAttrMask, QpState, UdAddress, ibv};

use super::plan::Transport;

/// What the datagrams carry.
const QKEY: u32 = 0x0bad_cafe;

/// The other end.
pub struct Peer {
    /// The number of its queue pair.
    pub qp_num: u32,
    /// The address of the port.
    pub gid: Option<[u8; 16]>,
    /// The way there; connections know theirs.
    ah: Option<Ah>,
}

impl Peer {
    /// The address of a datagram to it.
    pub fn address(&self) -> Option<UdAddress<'_>> {
        self.ah.as_ref().map(|ah| UdAddress { ah, remote_qpn: self.qp_num, remote_qkey: QKEY })
    }
}

/// Takes a queue pair to Rts, towards a peer that speaks the same transport.
pub fn connect_to(device: &Device, pd: &Pd, qp: &mut Qp, peer: u32, transport: Transport) -> Result<Peer, Error> {
    let attr = attributes(device, peer);
    connect(qp, &attr, transport)?;
    let ah = (transport == Transport::Ud).then(|| ibv::create_ah(pd, &attr.ah_attr)).transpose()?;
    Ok(Peer { qp_num: peer, gid: device.info().gid, ah })
}

/// The attributes of a connection to a queue pair of the same port.
pub fn attributes(device: &Device, peer: u32) -> QpAttr {
    let info = device.info();
    let grh = info.gid.map(|dgid| GlobalRoute { dgid, hop_limit: 64, ..GlobalRoute::default() });
    QpAttr {
        port_num: 1,
        qkey: QKEY,
        dest_qp_num: peer,
        path_mtu: Mtu::B1024,
        ah_attr: AhAttr { grh, port_num: 1, dmac: info.mac, ..AhAttr::default() },
        min_rnr_timer: 12,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        ..QpAttr::default()
    }
}

/// Takes a queue pair to Rts with these attributes.
pub fn connect(qp: &mut Qp, attr: &QpAttr, transport: Transport) -> Result<(), Error> {
    let mut steps = steps(transport).into_iter();
    steps.try_for_each(|(qp_state, mask)| ibv::modify_qp(qp, &QpAttr { qp_state, ..*attr }, mask))
}

/// The states on the way and the attributes that each needs (`ibv_modify_qp(3)`).
fn steps(transport: Transport) -> [(QpState, QpAttrMask); 3] {
    use QpAttrMask as M;
    let init = M::STATE | M::PKEY_INDEX | M::PORT;
    let rtr = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    let rts = M::STATE | M::SQ_PSN;
    let [init, rtr, rts] = match transport {
        Transport::Rc => [
            init | M::ACCESS_FLAGS,
            rtr | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER,
            rts | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC,
        ],
        Transport::Uc => [init | M::ACCESS_FLAGS, rtr, rts],
        Transport::Ud => [init | M::QKEY, M::STATE, rts],
    };
    [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)]
}
