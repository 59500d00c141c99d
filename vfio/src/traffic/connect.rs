//! Making a queue pair ready, towards a peer on the same port.

use mlx5::{Ah, AhAttr, Device, Error, GlobalRoute, Mtu, Pd, Qp, QpAttr, QpAttrMask, QpState, UdAddress, ibv};

use super::plan::Transport;

/// What the datagrams carry.
const QKEY: u32 = 0x0bad_cafe;

/// The other end.
pub struct Peer {
    /// The number of its queue pair.
    pub qp_num: u32,
    /// The address of the port, where messages to it have it in a header.
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
    let ah_attr = path(device, transport);
    let attr = QpAttr { ah_attr, ..attributes(device, peer) };
    connect(qp, &attr, transport)?;
    let ah = (transport == Transport::Ud).then(|| ibv::create_ah(pd, &ah_attr)).transpose()?;
    Ok(Peer { qp_num: peer, gid: ah_attr.grh.map(|grh| grh.dgid), ah })
}

/// The attributes of a reliable connection to a queue pair of the same port.
pub fn attributes(device: &Device, peer: u32) -> QpAttr {
    QpAttr {
        port_num: 1,
        qkey: QKEY,
        dest_qp_num: peer,
        path_mtu: Mtu::B1024,
        ah_attr: path(device, Transport::Rc),
        min_rnr_timer: 12,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        ..QpAttr::default()
    }
}

/// The way back to the port: to its own address; forced back where it has none that can be reached and the device can do that.
fn path(device: &Device, transport: Transport) -> AhAttr {
    let (info, caps) = (device.info(), device.caps());
    let reached = info.ethernet && info.port_up && info.gid.is_some();
    let forced = match (transport, &caps.roce) {
        (Transport::Rc, Some(roce)) => roce.fl_rc_qp_when_roce_enabled(),
        (Transport::Rc, None) => caps.general.fl_rc_qp_when_roce_disabled(),
        (Transport::Uc | Transport::Ud, _) => !info.ethernet,
    };
    let at_port = AhAttr { port_num: 1, ..AhAttr::default() };
    if forced && !reached {
        return AhAttr { force_loopback: true, ..at_port };
    }
    let gid = info.gid.filter(|_| info.ethernet || info.grh_required);
    let grh = gid.map(|dgid| GlobalRoute { dgid, hop_limit: 64, ..GlobalRoute::default() });
    AhAttr { grh, dlid: info.lid, dmac: info.mac, ..at_port }
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
