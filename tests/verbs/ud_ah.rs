//! Address handles: what `ibv_create_ah(3)` refuses, and what they make of a datagram's request, byte for byte.

use std::sync::atomic::Ordering;

use crate::support::{SIZES, close, open, open_with};
use mlx5::hw::cmd::QueryQp;
use mlx5::{
    AhAttr, Error, GlobalRoute, QpAttr, QpAttrMask, QpInitAttr, QpState, QpType, SendFlags, SendWr, UdAddress, ibv,
};
use mlx5_model::{CapConfig, ModelConfig};

const ROUTE: GlobalRoute = GlobalRoute {
    dgid: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x15, 0xb3, 0xff, 0xfe, 0x11, 0x22, 0x33],
    flow_label: 0xabcde,
    sgid_index: 0,
    hop_limit: 0x40,
    traffic_class: 0x7c,
};
const ETHERNET: AhAttr = AhAttr {
    grh: Some(ROUTE),
    dlid: 0,
    sl: 5,
    src_path_bits: 0,
    static_rate: 3,
    port_num: 1,
    dmac: [0; 6],
    force_loopback: false,
};

fn infiniband() -> ModelConfig {
    let caps = CapConfig { ethernet: false, roce: false, ..CapConfig::default() };
    ModelConfig { caps, ..ModelConfig::default() }
}

#[test]
fn attributes_out_of_range_are_refused() {
    let global = |route| AhAttr { grh: Some(route), ..ETHERNET };
    let far = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let cases = [
        ("no port", AhAttr { port_num: 0, ..ETHERNET }),
        ("a port too many", AhAttr { port_num: 2, ..ETHERNET }),
        ("a priority", AhAttr { sl: 8, ..ETHERNET }),
        ("path bits", AhAttr { src_path_bits: 128, ..ETHERNET }),
        ("a rate", AhAttr { static_rate: 16, ..ETHERNET }),
        ("no global route", AhAttr { grh: None, ..ETHERNET }),
        ("a flow label", global(GlobalRoute { flow_label: 1 << 20, ..ROUTE })),
        ("a source address", global(GlobalRoute { sgid_index: 16, ..ROUTE })),
        ("a GID without a MAC address", global(GlobalRoute { dgid: far, ..ROUTE })),
    ];
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    for (what, attr) in cases {
        assert_eq!(pd.create_ah(&attr).map(drop).map_err(Error::errno), Err(22), "{what}");
    }
    let given = AhAttr { dmac: [2, 0, 0, 0, 0, 1], ..global(GlobalRoute { dgid: far, ..ROUTE }) };
    let ah = pd.create_ah(&given).unwrap();
    let forced = pd.create_ah(&AhAttr { force_loopback: true, ..ETHERNET }).map(drop);
    assert_eq!(forced.map_err(Error::errno), Err(95), "Ethernet does not force datagrams");
    drop((ah, pd));
    close(&port, dev);
    let (port, dev) = open_with(infiniband());
    let pd = dev.alloc_pd().unwrap();
    let local = AhAttr { grh: None, dlid: 1, sl: 15, ..ETHERNET };
    assert!(pd.create_ah(&local).is_ok(), "a local route is enough");
    assert_eq!(pd.create_ah(&AhAttr { sl: 16, ..local }).map(drop).map_err(Error::errno), Err(22));
    drop(pd);
    close(&port, dev);
}

/// The domain comes back as it was, as often as one likes, and goes when its last handle is gone.
#[test]
fn a_protection_domain_with_an_address_handle_is_busy_and_comes_back() {
    let (port, dev) = open();
    let mut pd = dev.alloc_pd().unwrap();
    let pdn = pd.pdn();
    let mut handles = vec![pd.create_ah(&ETHERNET).unwrap(), pd.create_ah(&ETHERNET).unwrap()];
    while let Some(ah) = handles.pop() {
        let back = pd.dealloc().expect_err("a handle is in it");
        assert_eq!((back.error, back.error.errno(), back.object.pdn()), (Error::Busy, 16, pdn));
        pd = back.object;
        ibv::destroy_ah(pd.create_ah(&ETHERNET).expect("it works on"));
        ah.destroy();
    }
    pd.dealloc().map_err(|e| e.error).unwrap();
    close(&port, dev);
}

/// A request with this handle as it lies in the queue: the device is kept from reading it.
fn request(config: ModelConfig, attr: AhAttr) -> Vec<u8> {
    let (port, dev) = open_with(config);
    let (pd, cq) = (dev.alloc_pd().unwrap(), dev.create_cq(15, 0, 0).unwrap());
    let mut qp = pd.create_qp(&mut QpInitAttr { qp_type: QpType::Ud, ..QpInitAttr::new(&cq, &cq, SIZES) }).unwrap();
    for (qp_state, mask) in [
        (QpState::Init, QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::QKEY),
        (QpState::Rtr, QpAttrMask::empty()),
        (QpState::Rts, QpAttrMask::SQ_PSN),
    ] {
        qp.modify(&QpAttr { qp_state, port_num: 1, ..Default::default() }, mask | QpAttrMask::STATE).unwrap();
    }
    let ah = pd.create_ah(&attr).unwrap();
    port.deaf.store(true, Ordering::Relaxed);
    let ud = Some(UdAddress { ah: &ah, remote_qpn: 0x12_3456, remote_qkey: 0xa1a2_a3a4 });
    let send_flags = SendFlags::INLINE | SendFlags::SIGNALED;
    qp.post_send(&[SendWr { ud, inline_data: b"abc", send_flags, ..Default::default() }]).unwrap();
    // SAFETY: a query names no memory and takes nothing away.
    let qpc = unsafe { dev.general_cmd(&QueryQp { qpn: qp.qp_num() }) };
    port.deaf.store(false, Ordering::Relaxed);
    let qpc = qpc.unwrap();
    let at = port.allocation(qpc.dbr_addr()) + (1 << qpc.log_rq_size()) * (16 << qpc.log_rq_stride());
    let bytes = port.words(at, 20).iter().flat_map(|w| w.load(Ordering::Relaxed).to_ne_bytes()).collect();
    drop((ah, qp, cq, pd));
    close(&port, dev);
    bytes
}

/// `mlx5_wqe_av` behind the control segment: Q_Key; number with MLX5_EXTENDED_UD_AV; rate and, in the upper three bits of a
/// nibble, priority; UDP source port of the flow label; MAC address of the GID; class, hops; source and label without the GRH bit.
#[test]
fn a_datagrams_request_on_ethernet_is_as_the_headers_say() {
    let raw = request(ModelConfig::default(), ETHERNET);
    assert_eq!((raw[3], raw[7]), (0x0a, 5), "SEND, five segments");
    let port = 0xc000_u16 | ((0xabcde ^ 0xabcde >> 14) & 0x3fff) as u16;
    let mut right = vec![0xa1, 0xa2, 0xa3, 0xa4, 0, 0, 0, 0, 0x80, 0x12, 0x34, 0x56, 0x3a, 0];
    right.extend(port.to_be_bytes());
    right.extend([0, 0, 0, 0, 0x00, 0x15, 0xb3, 0x11, 0x22, 0x33, 0x7c, 0x40, 0x00, 0x0a, 0xbc, 0xde]);
    right.extend(ROUTE.dgid);
    assert_eq!(raw[16..64], right);
    assert_eq!(raw[64..71], *b"\x80\0\0\x03abc", "inlined data");
}

/// The GRH bit; LID and path bits instead of port and MAC address.
#[test]
fn a_datagrams_request_on_infiniband_is_as_the_headers_say() {
    let attr = AhAttr { dlid: 0x1234, sl: 0xb, src_path_bits: 0x55, ..ETHERNET };
    let raw = request(infiniband(), attr);
    assert_eq!(raw[24..32], [0x80, 0x12, 0x34, 0x56, 0x3b, 0x55, 0x12, 0x34]);
    assert_eq!(raw[32..48], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x7c, 0x40, 0x40, 0x0a, 0xbc, 0xde]);
    let local = request(infiniband(), AhAttr { grh: None, ..attr });
    assert_eq!(local[32..64], [0; 32], "no global route");
}

/// Without a flow label: the lowest port that the device has for RoCE (`r_roce_min_src_udp_port`).
#[test]
fn without_a_flow_label_packets_leave_from_the_lowest_port() {
    let route = GlobalRoute { flow_label: 0, ..ROUTE };
    let raw = request(ModelConfig::default(), AhAttr { grh: Some(route), ..ETHERNET });
    assert_eq!(raw[30..32], [0xc0, 0x00]);
}
