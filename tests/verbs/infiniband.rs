//! InfiniBand ports, and paths back to the port itself on either link layer, with and without a link.

use crate::support::{INIT, Port, REMOTE, RTR, RTS, SIZES, close, open_with, path_to, poll_n};
use crate::uc::{UC_INIT, UC_RTR, UC_RTS};
use crate::ud::{bench_on, to};
use mlx5::device::PortState;
use mlx5::{
    AccessFlags, AhAttr, Device, Error, QpAttr, QpInitAttr, QpState, QpType, RecvWr, SendFlags, SendWr, Sge, WcStatus,
    ibv,
};
use mlx5_model::{CapConfig, Fault, ModelConfig};

const EOPNOTSUPP: i32 = 95;

/// PortInfo's numbers of the states, the link-local prefix and the default P_Key of the InfiniBand specification; the GUIDs
/// are the model's.
#[test]
fn an_infiniband_port_tells_lid_gid_and_state() {
    let (port, dev) = open_with(ModelConfig::infiniband());
    let info = *dev.info();
    assert_eq!((info.ethernet, info.port_up, info.port_state), (false, true, PortState::Active));
    assert_eq!((info.lid, info.sm_lid, info.pkey, info.grh_required), (0x15, 1, 0xffff, false));
    assert_eq!((info.mac, info.mtu), ([0; 6], 0), "nothing of Ethernet");
    assert_eq!((info.node_guid, info.port_guid), (0x0215_b3ff_fe00_0001, 0x0215_b3ff_fe00_0002));
    let gid = 0xfe80_0000_0000_0000_0215_b3ff_fe00_0002_u128;
    assert_eq!(info.gid, Some(gid.to_be_bytes()));
    let attr = ibv::query_port(&dev, 1).unwrap();
    assert_eq!((attr.active, attr.state, attr.ethernet), (true, PortState::Active, false));
    assert_eq!((attr.lid, attr.lmc, attr.sm_lid, attr.sm_sl), (0x15, 0, 1, 0));
    assert_eq!((attr.gid_tbl_len, attr.pkey_tbl_len), (8, 128));
    port.model.inject(Fault::Link { up: false });
    let attr = ibv::query_port(&dev, 1).unwrap();
    assert_eq!((attr.active, attr.state, attr.lid), (false, PortState::Down, 0xffff));
    close(&port, dev);
}

/// Without `ib_virt` management datagrams would have to be sent: nothing is asked, and nothing known.
#[test]
fn an_infiniband_port_without_ib_virt_is_opened_and_unknown() {
    let caps = CapConfig { ib_virt: false, ..ModelConfig::infiniband().caps };
    let (port, dev) = open_with(ModelConfig { caps, ..ModelConfig::infiniband() });
    let info = *dev.info();
    assert_eq!((info.port_up, info.lid, info.gid, info.node_guid), (false, 0, None, 0));
    assert_eq!(ibv::query_port(&dev, 1).map_err(Error::errno), Err(EOPNOTSUPP));
    close(&port, dev);
}

/// Connects two queue pairs of the port over `ah_attr` and sends a message; its sender's status, and whether it arrived.
fn over(opened: (Port, Device), qp_type: QpType, ah_attr: AhAttr) -> Result<(WcStatus, bool), Error> {
    let (port, dev) = opened;
    let pd = dev.alloc_pd()?;
    let mut cq = [dev.create_cq(15, 0, 0)?, dev.create_cq(15, 0, 0)?];
    let make = || pd.create_qp(&mut QpInitAttr { qp_type, ..QpInitAttr::new(&cq[0], &cq[1], SIZES) });
    let mut qp = [make()?, make()?];
    let steps = match qp_type {
        QpType::Uc => [(QpState::Init, UC_INIT), (QpState::Rtr, UC_RTR), (QpState::Rts, UC_RTS)],
        _ => [(QpState::Init, INIT), (QpState::Rtr, RTR), (QpState::Rts, RTS)],
    };
    let numbers = [qp[0].qp_num(), qp[1].qp_num()];
    let mut connected = Ok(());
    for (qp, peer) in qp.iter_mut().zip([numbers[1], numbers[0]]) {
        for (qp_state, mask) in steps {
            let attr = QpAttr { qp_state, ah_attr, timeout: 1, retry_cnt: 1, ..path_to(&dev, peer) };
            connected = connected.and_then(|()| qp.modify(&attr, mask));
        }
    }
    let sent = connected.map(|()| {
        let buf = pd.alloc_buf(4096, REMOTE | AccessFlags::LOCAL_WRITE).unwrap();
        buf.write(0, b"to myself").unwrap();
        let piece = |at| Sge { addr: buf.addr() + at, length: 9, lkey: buf.lkey() };
        qp[1].post_recv(&[RecvWr { wr_id: 1, sg_list: &[piece(2048)] }]).unwrap();
        let list = [piece(0)];
        let send_flags = SendFlags::SIGNALED;
        qp[0].post_send(&[SendWr { wr_id: 2, sg_list: &list, send_flags, ..Default::default() }]).unwrap();
        let status = poll_n(&port, &mut cq[0], 1)[0].status;
        port.model.step(1_000_000);
        let mut there = [0; 9];
        buf.read(2048, &mut there).unwrap();
        let arrived = cq[1].poll_cq(&mut [Default::default(); 1]).unwrap() == 1;
        assert_eq!(arrived, &there == b"to myself");
        (status, arrived)
    });
    drop((qp, cq, pd));
    close(&port, dev);
    sent
}

const GOOD: Result<(WcStatus, bool), Error> = Ok((WcStatus::SUCCESS, true));
const FORCED: AhAttr = AhAttr {
    grh: None,
    dlid: 0,
    sl: 0,
    src_path_bits: 0,
    static_rate: 0,
    port_num: 1,
    dmac: [0; 6],
    force_loopback: true,
};

/// A port reaches itself with nobody else there: by its addresses, and forced to; with a link and without.
#[test]
fn a_port_reaches_itself_with_and_without_a_link() {
    for link_up in [true, false] {
        let ethernet = || open_with(ModelConfig { link_up, ..ModelConfig::default() });
        let infiniband = || open_with(ModelConfig { link_up, ..ModelConfig::infiniband() });
        let own_gid = |dev: &Device| path_to(dev, 0).ah_attr;
        let own_lid = |dev: &Device| AhAttr { dlid: dev.info().lid, port_num: 1, ..AhAttr::default() };
        let opened = ethernet();
        let path = own_gid(&opened.1);
        assert_eq!(over(opened, QpType::Rc, path), GOOD, "RoCE, link {link_up}");
        let opened = infiniband();
        let path = own_lid(&opened.1);
        // A port without a link has no LID to be reached by.
        let by_lid = if link_up { GOOD } else { Ok((WcStatus::RETRY_EXC_ERR, false)) };
        assert_eq!(over(opened, QpType::Rc, path), by_lid, "LID, link {link_up}");
        for (opened, qp_type) in [(ethernet(), QpType::Rc), (infiniband(), QpType::Rc), (infiniband(), QpType::Uc)] {
            let ethernet = opened.1.info().ethernet;
            assert_eq!(over(opened, qp_type, FORCED), GOOD, "{qp_type:?}, Ethernet {ethernet}, link {link_up}");
        }
    }
}

#[test]
fn datagrams_are_forced_back_on_infiniband_with_and_without_a_link() {
    for link_up in [true, false] {
        let mut b = bench_on(open_with(ModelConfig { link_up, ..ModelConfig::infiniband() }), SIZES);
        let ah = b.pd.create_ah(&FORCED).unwrap();
        b.recv(1, 1);
        let ud = to(&ah, &b.qp[1]);
        b.qp[0]
            .post_send(&[SendWr { inline_data: b"back", send_flags: SendFlags::INLINE, ud, ..Default::default() }])
            .unwrap();
        assert_eq!(poll_n(&b.port, &mut b.cq[1], 1)[0].status, WcStatus::SUCCESS);
        assert_eq!(b.bytes(0x2000 + 40, 4), b"back");
        drop(ah);
        b.end();
    }
}

/// What the port or the transport does not have is refused by name, before any command.
#[test]
fn forced_loopback_that_is_not_there_is_refused() {
    let ethernet = |caps| open_with(ModelConfig { caps, ..ModelConfig::default() });
    let caps = CapConfig::default;
    let infiniband = || {
        let caps = CapConfig { fl_rc_qp_when_roce_disabled: false, ..ModelConfig::infiniband().caps };
        open_with(ModelConfig { caps, ..ModelConfig::infiniband() })
    };
    for (opened, qp_type, name) in [
        (ethernet(CapConfig { fl_rc_qp_when_roce_enabled: false, ..caps() }), QpType::Rc, "fl_rc_qp_when_roce_enabled"),
        (
            ethernet(CapConfig { roce: false, fl_rc_qp_when_roce_disabled: false, ..caps() }),
            QpType::Rc,
            "fl_rc_qp_when_roce_disabled",
        ),
        (infiniband(), QpType::Rc, "fl_rc_qp_when_roce_disabled"),
        (ethernet(caps()), QpType::Uc, "unreliable"),
    ] {
        let error = over(opened, qp_type, FORCED).unwrap_err();
        assert_eq!(error.errno(), EOPNOTSUPP, "{name}");
        assert!(error.to_string().contains(name), "{error}");
    }
    // Without RoCE the other capability counts.
    let opened = ethernet(CapConfig { roce: false, fl_rc_qp_when_roce_enabled: false, ..caps() });
    assert_eq!(over(opened, QpType::Rc, FORCED), GOOD);
}
