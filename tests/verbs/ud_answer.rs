//! Answers to the senders of datagrams: `ibv_create_ah_from_wc(3)`.

use crate::support::{SIZES, close, open, open_with, poll_n};
use crate::ud::{Bench, GRH, QKEY, bench, bench_on, to};
use mlx5::{
    Ah, AhAttr, Device, Error, Gid, GlobalRoute, SendFlags, SendWr, UdAddress, Wc, WcOpcode, WcResultFlags, WcStatus,
    ibv,
};
use mlx5_model::{CapConfig, Effect, Fault, Match, ModelConfig};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;
const SET_ROCE_ADDRESS: u16 = 0x761;

const fn v4(a: u8, b: u8, c: u8, d: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

fn infiniband() -> ModelConfig {
    let caps = CapConfig { ethernet: false, roce: false, ..CapConfig::default() };
    ModelConfig { caps, ..ModelConfig::default() }
}

fn set_gid(dev: &Device, index: u16, gid: [u8; 16], mac: [u8; 6]) {
    dev.set_gid(index, Some(&Gid { gid, mac, vlan: None })).unwrap();
}

impl Bench {
    /// A datagram by `attr` from the first queue pair to the second: its completion, and what stands in front of it.
    fn ask(&mut self, attr: &AhAttr) -> (Wc, [u8; GRH]) {
        let ah = self.pd.create_ah(attr).unwrap();
        let ud = to(&ah, &self.qp[1]);
        self.carry(0, ud, b"ask")
    }

    fn carry(&mut self, from: usize, ud: Option<UdAddress<'_>>, bytes: &[u8]) -> (Wc, [u8; GRH]) {
        self.recv(1 - from, 7);
        let wr = SendWr { inline_data: bytes, ud, send_flags: SendFlags::INLINE, ..Default::default() };
        self.qp[from].post_send(&[wr]).unwrap();
        let wc = poll_n(&self.port, &mut self.cq[1], 1)[0];
        assert_eq!(self.bytes(0x2000 + GRH, bytes.len()), bytes);
        (wc, self.bytes(0x2000, GRH).try_into().unwrap())
    }

    fn answer(&mut self, ah: &Ah, asked: &Wc) -> (Wc, [u8; GRH]) {
        let ud = Some(UdAddress { ah, remote_qpn: asked.src_qp, remote_qkey: QKEY });
        let (wc, grh) = self.carry(1, ud, b"answer");
        assert_eq!((wc.qp_num, wc.src_qp), (asked.src_qp, asked.qp_num));
        (wc, grh)
    }
}

#[test]
fn a_datagram_over_ipv4_is_answered() {
    let mut b = bench();
    let (client, server) = (v4(10, 0, 0, 2), v4(10, 0, 0, 1));
    let (client_mac, server_mac) = ([2, 0, 0, 0, 0, 2], b.dev.info().mac);
    set_gid(&b.dev, 5, server, server_mac);
    set_gid(&b.dev, 6, client, client_mac);
    let route =
        GlobalRoute { dgid: server, sgid_index: 6, hop_limit: 9, traffic_class: 0x68, ..GlobalRoute::default() };
    let (wc, grh) = b.ask(&AhAttr { grh: Some(route), port_num: 1, dmac: server_mac, ..AhAttr::default() });
    let attr = ibv::init_ah_from_wc(&b.dev, 1, &wc, &grh).unwrap();
    let back = GlobalRoute { dgid: client, flow_label: 0, sgid_index: 5, hop_limit: 0xff, traffic_class: 0x68 };
    assert_eq!(attr, AhAttr { grh: Some(back), port_num: 1, dmac: client_mac, ..AhAttr::default() });
    // What lies where no header is does not matter.
    for old in [0x00, 0x45, 0x66, 0xff] {
        let mut stale = grh;
        stale[..20].fill(old);
        assert_eq!(b.dev.init_ah_from_wc(1, &wc, &stale), Ok(attr));
    }
    let ah = ibv::create_ah_from_wc(&b.pd, &wc, &grh, 1).unwrap();
    let (_, header) = b.answer(&ah, &wc);
    assert_eq!((&header[32..36], &header[36..40]), (&server[12..], &client[12..]), "source and destination");
    assert_eq!((header[20], header[21], header[28]), (0x45, 0x68, 0xff));
    drop(ah);
    b.end();
}

#[test]
fn a_datagram_over_ipv6_is_answered() {
    let mut b = bench();
    let info = *b.dev.info();
    let (local, global) = (info.gid.unwrap(), [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3]);
    set_gid(&b.dev, 3, global, info.mac);
    // A link-local address tells its MAC address; the other one is in the table.
    for (client, server, from, at) in [(local, global, 0, 3), (global, local, 3, 0)] {
        let route =
            GlobalRoute { dgid: server, flow_label: 0xabcde, sgid_index: from, hop_limit: 1, traffic_class: 0xa5 };
        let (wc, grh) = b.ask(&AhAttr { grh: Some(route), port_num: 1, dmac: info.mac, ..AhAttr::default() });
        let attr = ibv::init_ah_from_wc(&b.dev, 1, &wc, &grh).unwrap();
        assert_eq!(attr.grh, Some(GlobalRoute { dgid: client, sgid_index: at, hop_limit: 0xff, ..route }));
        assert_eq!((attr.dlid, attr.sl, attr.src_path_bits, attr.port_num), (0, 0, 0, 1));
        let ah = ibv::create_ah_from_wc(&b.pd, &wc, &grh, 1).unwrap();
        let (_, header) = b.answer(&ah, &wc);
        assert_eq!((&header[8..24], &header[24..40]), (&server[..], &client[..]), "source and destination");
        assert_eq!((&header[..4], header[7]), (&[0x6a, 0x5a, 0xbc, 0xde][..], 0xff), "class and label come back");
    }
    b.end();
}

#[test]
fn a_datagram_over_infiniband_is_answered() {
    let mut b = bench_on(open_with(infiniband()), SIZES);
    let route = GlobalRoute { dgid: [7; 16], flow_label: 0x12345, hop_limit: 3, traffic_class: 6, sgid_index: 0 };
    for grh in [None, Some(route)] {
        let asked = AhAttr { grh, dlid: 0x35, sl: 11, src_path_bits: 0x21, port_num: 1, ..AhAttr::default() };
        let (wc, header) = b.ask(&asked);
        let attr = ibv::init_ah_from_wc(&b.dev, 1, &wc, &header).unwrap();
        assert_eq!((attr.dlid, attr.sl, attr.src_path_bits, attr.port_num), (0x21, 11, 0x35, 1));
        let source: [u8; 16] = header[8..24].try_into().unwrap();
        assert_eq!(attr.grh, grh.map(|grh| GlobalRoute { dgid: source, hop_limit: 0xff, ..grh }));
        let ah = ibv::create_ah_from_wc(&b.pd, &wc, &header, 1).unwrap();
        let (back, answered) = b.answer(&ah, &wc);
        assert_eq!((back.slid, back.dlid_path_bits, back.sl), (0x35, 0x21, 11));
        assert_eq!(back.flags().contains(WcResultFlags::GRH), grh.is_some());
        if grh.is_some() {
            assert_eq!((&answered[..4], &answered[24..40]), (&[0x60, 0x61, 0x23, 0x45][..], &source[..]));
            assert_eq!(b.dev.init_ah_from_wc(1, &wc, &[0; GRH]).map_err(Error::errno), Err(EINVAL));
        }
    }
    b.end();
}

/// A completion that tells of a header of this kind in front of three bytes.
fn received(kind: u8) -> Wc {
    let wc_flags = WcResultFlags::GRH.bits();
    Wc { opcode: WcOpcode::RECV, byte_len: 43, sl: kind, wc_flags, ..Wc::default() }
}

/// The well-known worked example of an IPv4 header's checksum: UDP from 192.168.0.1 to 192.168.0.199, 115 bytes.
const EXAMPLE: [u8; 20] =
    [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 0x01, 0xc0, 0xa8, 0, 0xc7];

/// These bytes changed and the checksum mended as RFC 1624 says (equation 3).
fn example(at: usize, bytes: &[u8]) -> [u8; GRH] {
    let mut header = EXAMPLE;
    for (i, byte) in bytes.iter().enumerate() {
        let shift = |n: u8| u32::from(n) << if (at + i).is_multiple_of(2) { 8 } else { 0 };
        let checksum = u32::from(u16::from_be_bytes([header[10], header[11]]));
        let sum = (!checksum & 0xffff) + (!shift(header[at + i]) & 0xffff) + shift(*byte);
        let sum = (sum & 0xffff) + (sum >> 16);
        header[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        header[at + i] = *byte;
    }
    let mut grh = [0; GRH];
    grh[20..].copy_from_slice(&header);
    grh
}

#[test]
fn malformed_ipv4_headers_are_refused() {
    let (port, dev) = open();
    set_gid(&dev, 4, v4(192, 168, 0, 199), [2; 6]);
    let errno = |wc: &Wc, grh: &[u8; GRH]| dev.init_ah_from_wc(1, wc, grh).map_err(Error::errno);
    let good = errno(&received(2), &example(0, &[])).unwrap();
    let grh = good.grh.unwrap();
    assert_eq!((grh.dgid, grh.sgid_index, good.dmac), (v4(192, 168, 0, 1), 4, [0; 6]), "nobody tells its MAC address");
    assert_eq!(errno(&received(2), &example(8, &[1])), Ok(good), "few hops left");
    assert_eq!(errno(&received(2), &example(3, &[20 + 32 + 3])), Ok(good), "just long enough");
    for (what, at, bytes) in [
        ("version", 0, &[0x65][..]),
        ("options", 0, &[0x46]),
        ("length", 2, &[0, 20 + 32 + 2]),
        ("no length", 2, &[0, 0]),
        ("more fragments", 6, &[0x20]),
        ("a later fragment", 7, &[1]),
        ("protocol", 9, &[6]),
        ("source 0.0.0.0", 12, &[0, 0, 0, 0]),
        ("source 127.0.0.1", 12, &[127, 0, 0, 1]),
        ("a group as source", 12, &[224]),
        ("a broadcast source", 12, &[255, 255, 255, 255]),
        ("a group as destination", 16, &[239]),
        ("a stranger as destination", 19, &[0xc8]),
    ] {
        assert_eq!(errno(&received(2), &example(at, bytes)), Err(EINVAL), "{what}");
    }
    for bit in 0..160 {
        let mut grh = example(0, &[]);
        grh[20 + bit / 8] ^= 1 << (bit % 8);
        assert_eq!(errno(&received(2), &grh), Err(EINVAL), "the checksum finds bit {bit}");
    }
    dev.set_gid(4, None).unwrap();
    assert_eq!(errno(&received(2), &example(0, &[])), Err(EINVAL), "no longer in the table");
    close(&port, dev);
}

#[test]
fn malformed_ipv6_headers_are_refused() {
    let (port, dev) = open();
    let own = dev.info().gid.unwrap();
    set_gid(&dev, 1, v4(10, 0, 0, 1), [2; 6]);
    let errno = |grh: &[u8; GRH]| dev.init_ah_from_wc(1, &received(1), grh).map_err(Error::errno);
    let peer = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    let with = |at: usize, bytes: &[u8]| {
        let mut grh = [0; GRH];
        grh[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 8 + 12 + 8 + 3 + 4, 17, 64]);
        grh[8..24].copy_from_slice(&peer);
        grh[24..].copy_from_slice(&own);
        grh[at..at + bytes.len()].copy_from_slice(bytes);
        grh
    };
    let good = errno(&with(0, &[])).unwrap();
    assert_eq!((good.grh.unwrap().dgid, good.grh.unwrap().sgid_index), (peer, 0));
    for (what, at, bytes) in [
        ("version", 0, &[0x40][..]),
        ("version", 0, &[0x70]),
        ("length", 5, &[8 + 12 + 8 + 3 + 3]),
        ("next header of RoCE version 1", 6, &[0x1b]),
        ("next header", 6, &[6]),
        ("a group as source", 8, &[0xff]),
        ("no source", 8, &[0; 16]),
        ("an IPv4 source", 8, &v4(10, 0, 0, 2)),
        ("a group as destination", 24, &[0xff]),
        ("a stranger as destination", 39, &[own[15] ^ 1]),
        ("an IPv4 destination", 24, &v4(10, 0, 0, 1)),
    ] {
        assert_eq!(errno(&with(at, bytes)), Err(EINVAL), "{what}");
    }
    let pd = dev.alloc_pd().unwrap();
    let far = pd.create_ah_from_wc(&received(1), &with(0, &[]), 1);
    assert_eq!(far.map(drop).map_err(Error::errno), Err(EINVAL), "nobody tells the MAC address");
    assert!(pd.create_ah(&AhAttr { dmac: [2; 6], ..good }).is_ok());
    drop(pd);
    close(&port, dev);
}

#[test]
fn malformed_global_route_headers_are_refused() {
    let (port, dev) = open_with(infiniband());
    let errno = |at: usize, bytes: &[u8]| {
        let mut grh = [7; GRH];
        grh[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 12 + 8 + 3 + 4, 0x1b, 64]);
        grh[at..at + bytes.len()].copy_from_slice(bytes);
        dev.init_ah_from_wc(1, &received(0), &grh).map(drop).map_err(Error::errno)
    };
    assert_eq!(errno(0, &[]), Ok(()));
    for (what, at, bytes) in [
        ("version", 0, &[0x40][..]),
        ("length", 5, &[12 + 8 + 3 + 3]),
        ("next header", 6, &[17]),
        ("a group as source", 8, &[0xff]),
        ("a group as destination", 24, &[0xff]),
        ("no destination", 24, &[0; 16]),
    ] {
        assert_eq!(errno(at, bytes), Err(EINVAL), "{what}");
    }
    close(&port, dev);
}

#[test]
fn completions_that_lead_to_no_sender_are_refused() {
    let (port, dev) = open();
    set_gid(&dev, 4, v4(192, 168, 0, 199), [2; 6]);
    let (good, grh) = (received(2), example(0, &[]));
    let errno = |port_num, wc: Wc| dev.init_ah_from_wc(port_num, &wc, &grh).map(drop).map_err(Error::errno);
    assert_eq!(errno(1, good), Ok(()));
    assert_eq!((errno(0, good), errno(2, good)), (Err(EINVAL), Err(EINVAL)), "ports");
    for (what, wc, wanted) in [
        ("flushed", Wc { status: WcStatus::WR_FLUSH_ERR, ..good }, EINVAL),
        ("a send", Wc { opcode: WcOpcode::SEND, ..good }, EINVAL),
        ("a write's receive", Wc { opcode: WcOpcode::RECV_RDMA_WITH_IMM, ..good }, EINVAL),
        ("no room for a header", Wc { byte_len: 39, ..good }, EINVAL),
        ("more bytes than the packet has", Wc { byte_len: 40 + 115 - 52 + 1, ..good }, EINVAL),
        ("the most bytes there are", Wc { byte_len: u32::MAX, ..good }, EINVAL),
        ("no header", Wc { wc_flags: 0, ..good }, EINVAL),
        ("RoCE version 1", received(0), EOPNOTSUPP),
        ("IPv6, which it is not", received(1), EINVAL),
        ("no kind of header", received(3), EINVAL),
    ] {
        assert_eq!(errno(1, wc), Err(wanted), "{what}");
    }
    close(&port, dev);
}

/// What was refused is as before, what may have been done or not is nobody's address.
#[test]
fn answers_come_from_addresses_that_are_in_the_table() {
    let (port, dev) = open();
    let (address, grh) = (v4(192, 168, 0, 199), example(0, &[]));
    let found = || dev.init_ah_from_wc(1, &received(2), &grh).map(|attr| attr.grh.unwrap().sgid_index);
    set_gid(&dev, 4, address, [2; 6]);
    set_gid(&dev, 2, address, [2; 6]);
    assert_eq!(found(), Ok(2), "the first one");
    dev.set_gid(2, None).unwrap();
    assert_eq!(found(), Ok(4));
    for (effect, wanted) in [(Effect::Status { status: 0x9, syndrome: 0 }, Ok(4)), (Effect::Delivery(0x1), Err(EINVAL))]
    {
        port.model.inject(Fault::Command { at: Match::Opcode(SET_ROCE_ADDRESS), effect });
        dev.set_gid(4, None).unwrap_err();
        assert_eq!(found().map_err(Error::errno), wanted, "refused, then perhaps not carried out");
    }
    close(&port, dev);
}

/// Any bytes, and headers in which only some bytes are wrong.
fn headers() -> impl Strategy<Value = [u8; GRH]> {
    let whole = any::<[u8; 32]>().prop_flat_map(|most| {
        any::<[u8; 8]>().prop_map(move |rest| core::array::from_fn(|i| if i < 32 { most[i] } else { rest[i - 32] }))
    });
    let near = (0..20_usize, any::<u8>()).prop_map(|(at, byte)| example(at, &[byte]));
    prop_oneof![whole, near]
}

#[test]
fn no_header_and_no_completion_makes_it_panic() {
    let ethernet = open();
    set_gid(&ethernet.1, 4, v4(192, 168, 0, 199), [2; 6]);
    for (port, dev) in [ethernet, open_with(infiniband())] {
        let pd = dev.alloc_pd().unwrap();
        let lengths = prop_oneof![40..130_u32, any::<u32>()];
        let completions =
            (lengths, any::<[u8; 2]>(), any::<u16>(), 0..3_u32).prop_map(|(len, [sl, path], slid, grh)| {
                let wc_flags = if grh == 0 { 0 } else { WcResultFlags::GRH.bits() };
                Wc { byte_len: len, slid, dlid_path_bits: path & 127, wc_flags, ..received(sl & 15) }
            });
        let check = |(grh, wc): ([u8; GRH], Wc)| {
            match dev.init_ah_from_wc(1, &wc, &grh) {
                Ok(attr) => prop_assert!(pd.create_ah(&AhAttr { dmac: [2; 6], ..attr }).is_ok(), "{attr:?}"),
                Err(e) => prop_assert!([EINVAL, EOPNOTSUPP].contains(&e.errno()), "{e}"),
            }
            Ok(())
        };
        TestRunner::default().run(&(headers(), completions), check).unwrap();
        drop(pd);
        close(&port, dev);
    }
}
