//! Datagrams of the model, driven by raw bytes.
//!
//! The address vector is laid out as the headers of Linux and rdma-core say (`mlx5_wqe_av`); network headers as RFC 791 and
//! RFC 8200 have them, in front of the transport headers of the RoCE v2 annex.

use mlx5_model::{CapConfig, Fault, ViolationKind};

use crate::connections::CQ;
use crate::one_sided::{SEND, SEND_IMM, SEND_INV, WRITE};
use crate::qp::{Qp, QpWish};
use crate::raw::{Raw, get, put};
use crate::rdma::{Cq, LR, LW, MAC, Mr, Rdma};
use crate::unreliable::UC;
use crate::wqe::{Wqe, data, inline};

const Q_KEY: u32 = 0x1122_3344;
const UD: QpWish = QpWish { service: 2, q_key: Q_KEY, mtu: 5, log_msg_max: 12, ..UC };

/// Two queue pairs ready for datagrams, and memory for what comes in.
struct Bench {
    rdma: Rdma,
    a: Qp,
    b: Qp,
    cq_a: Cq,
    cq_b: Cq,
    from: Mr,
    to: Mr,
}

/// What a test puts into an address vector.
#[derive(Clone, Copy)]
struct Av {
    q_key: u32,
    qpn: u32,
    gid: [u8; 16],
    mac: [u8; 6],
    source_index: u64,
    flow_label: u64,
    hop_limit: u8,
    traffic_class: u8,
}

impl Av {
    /// The datagram segment.
    fn segment(&self) -> [u8; 48] {
        let mut raw = [0; 48];
        put(&mut raw, 0, 32, self.q_key.into());
        put(&mut raw, 64, 1, 1); // extended
        put(&mut raw, 72, 24, self.qpn.into());
        put(&mut raw, 112, 16, 0xc123); // udp_sport
        raw[20..26].copy_from_slice(&self.mac);
        (raw[26], raw[27]) = (self.traffic_class, self.hop_limit);
        put(&mut raw, 228, 8, self.source_index);
        put(&mut raw, 236, 20, self.flow_label);
        raw[32..].copy_from_slice(&self.gid);
        raw
    }
}

impl Bench {
    fn new() -> Self {
        Self::on(Rdma::up())
    }

    fn on(rdma: Rdma) -> Self {
        let (cq_a, cq_b) = (rdma.cq(CQ), rdma.cq(CQ));
        let (a, b) = (rdma.qp(UD, &cq_a, &cq_a), rdma.qp(QpWish { user_index: 0x77, stride: 64, ..UD }, &cq_b, &cq_b));
        ready(&rdma, &a);
        ready(&rdma, &b);
        let (from, to) = (rdma.register(8192, 0, LR), rdma.register(8192, 0, LR | LW));
        Self { rdma, a, b, cq_a, cq_b, from, to }
    }

    /// The way from `a` to `b`.
    fn av(&self) -> Av {
        let gid = self.rdma.gid;
        Av {
            q_key: Q_KEY,
            qpn: self.b.qpn,
            gid,
            mac: MAC,
            source_index: 0,
            flow_label: 0xabcde,
            hop_limit: 64,
            traffic_class: 0x42,
        }
    }

    fn post(&mut self, opcode: u8, imm: u32, segments: &[u8]) {
        self.rdma.send(&mut self.a, Wqe { opcode, flags: 8, imm, segments });
    }

    /// Sends, which always succeeds.
    fn send(&mut self, av: Av, payload: &[u8]) {
        self.post(SEND, 0, &[av.segment().to_vec(), inline(payload)].concat());
        let cqe = self.rdma.poll(&mut self.cq_a);
        assert_eq!((cqe[63] >> 4, get(&cqe, 352, 32)), (0, payload.len() as u64));
    }

    fn recv(&mut self, len: u32) {
        self.rdma.recv(&mut self.b, &[self.to.seg(0, len)]);
    }
}

/// From the reset state to ready to send.
fn ready(rdma: &Rdma, qp: &Qp) {
    rdma.init(qp);
    rdma.ready_to_receive(qp, 0x55);
    rdma.ready_to_send(qp);
}

fn ipv4_gid(address: [u8; 4]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..12].copy_from_slice(&[0xff; 2]);
    gid[12..].copy_from_slice(&address);
    gid
}

#[test]
fn a_datagram_comes_behind_its_ipv6_header() {
    let mut b = Bench::new();
    b.recv(200);
    b.send(b.av(), b"datagram!");
    let cqe = b.rdma.poll(&mut b.cq_b);
    assert_eq!((cqe[63] >> 4, get(&cqe, 352, 32), get(&cqe, 33 * 8, 24)), (2, 49, 0x77));
    // flags_rqpn: bit 28, the header is in the data; bits 25:24, IPv6; the source.
    assert_eq!(get(&cqe, 192, 32), 0x1100_0000 | u64::from(b.a.qpn));
    assert_eq!((cqe[17], get(&cqe, 176, 16)), (0, 0), "ml_path, slid");
    // Version, traffic class, flow label; UDP 8, BTH 12, DETH 8, payload in words 12, ICRC 4; UDP; hop limit.
    let head = [0x64, 0x2a, 0xbc, 0xde, 0, 44, 17, 64];
    assert_eq!(b.to.bytes(0, 8), head);
    assert_eq!((b.to.bytes(8, 16), b.to.bytes(24, 16)), (b.rdma.gid.to_vec(), b.rdma.gid.to_vec()));
    assert_eq!(b.to.bytes(40, 9), b"datagram!");
    assert_eq!(b.to.bytes(49, 3), [0; 3], "nothing behind");
    b.rdma.assert_clean();
}

/// The header of a well-known example of the checksum (total length 115, checksum 0xb861), with one byte more of total length.
#[test]
fn an_ipv4_header_has_the_last_20_bytes_and_the_first_stay_as_they_were() {
    let mut b = Bench::new();
    b.rdma.set_address(1, ipv4_gid([192, 168, 0, 1]), 0);
    b.rdma.set_address(2, ipv4_gid([192, 168, 0, 199]), 0);
    b.to.fill(0, &[0x55; 60]);
    b.recv(200);
    let av = Av { gid: ipv4_gid([192, 168, 0, 199]), source_index: 1, traffic_class: 0, ..b.av() };
    let payload = [7; 64];
    b.from.fill(0, &payload);
    b.post(SEND, 0, &[av.segment().to_vec(), data(b.from.seg(0, 64)).to_vec()].concat());
    assert_eq!(b.rdma.poll(&mut b.cq_a)[63] >> 4, 0);
    let cqe = b.rdma.poll(&mut b.cq_b);
    assert_eq!((get(&cqe, 352, 32), get(&cqe, 192, 32)), (104, 0x1200_0000 | u64::from(b.a.qpn)));
    assert_eq!(b.to.bytes(0, 20), [0x55; 20]);
    let header = [
        0x45, 0x00, 0x00, 0x74, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x60, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8,
        0x00, 0xc7,
    ];
    assert_eq!((b.to.bytes(20, 20), b.to.bytes(40, 64)), (header.to_vec(), payload.to_vec()));
    b.rdma.assert_clean();
}

#[test]
fn immediate_data_counts_in_the_header_and_the_request_may_be_in_pieces() {
    let mut b = Bench::new();
    b.rdma.recv(&mut b.b, &[b.to.seg(100, 10), b.to.seg(200, 32), b.to.seg(300, 100)]);
    let av = b.av();
    b.post(SEND_IMM, 0xfeed_beef, &[av.segment().to_vec(), inline(b"abcd")].concat());
    let cqe = b.rdma.poll(&mut b.cq_b);
    assert_eq!((cqe[63] >> 4, get(&cqe, 288, 32), get(&cqe, 352, 32)), (3, 0xfeed_beef, 44));
    assert_eq!(b.to.bytes(104, 2), [0, 8 + 12 + 8 + 4 + 4 + 4]);
    assert_eq!([b.to.bytes(100, 2), b.to.bytes(230, 2), b.to.bytes(300, 2)].concat(), *b"\x64\x2aabcd");
    b.rdma.assert_clean();
}

#[test]
fn an_ipv4_header_leaves_pieces_before_it_alone() {
    let mut b = Bench::new();
    b.rdma.set_address(1, ipv4_gid([10, 0, 0, 1]), 0);
    b.rdma.recv(&mut b.b, &[b.to.seg(100, 10), b.to.seg(200, 20), b.to.seg(300, 100)]);
    b.send(Av { gid: ipv4_gid([10, 0, 0, 1]), source_index: 1, ..b.av() }, b"abcd");
    b.rdma.poll(&mut b.cq_b);
    assert_eq!(
        (b.to.bytes(100, 10), b.to.bytes(200, 12)),
        (vec![0; 10], [[0; 10].to_vec(), vec![0x45, 0x42]].concat())
    );
    assert_eq!((b.to.bytes(308, 2), b.to.bytes(310, 4)), (vec![0, 1], b"abcd".to_vec()));
    b.rdma.assert_clean();
}

/// Why a datagram gets lost: how the bench is spoiled, and the way it takes.
type Loss = (&'static str, u32, fn(&Bench, Av) -> Av);

const LOSSES: &[Loss] = &[
    ("another Q_Key", 200, |_, av| Av { q_key: Q_KEY + 1, ..av }),
    ("no such queue pair", 200, |_, av| Av { qpn: 0xabc, ..av }),
    ("a multicast queue pair", 200, |_, av| Av { qpn: 0xff_ffff, ..av }),
    ("another GID", 200, |_, av| Av { gid: [9; 16], ..av }),
    ("another MAC address", 200, |_, av| Av { mac: [2; 6], ..av }),
    ("a source address that is not set", 200, |_, av| Av { source_index: 3, ..av }),
    ("a source address beyond the table", 200, |_, av| Av { source_index: 200, ..av }),
    ("a receive request without room for the header", 43, |_, av| av),
];

#[test]
fn a_datagram_that_does_not_fit_its_receiver_is_lost_without_a_trace() {
    for (name, room, change) in LOSSES {
        let mut b = Bench::new();
        b.recv(*room);
        let lost = change(&b, b.av());
        b.send(lost, b"lost");
        assert!(b.rdma.take(&mut b.cq_b).is_none(), "{name}");
        assert_eq!((b.rdma.state(&b.a), b.rdma.state(&b.b)), (3, 3), "{name}");
        // The request waits for the next datagram.
        b.send(b.av(), b"x".get(..usize::from(*room > 43)).unwrap());
        assert_eq!(get(&b.rdma.poll(&mut b.cq_b), 480, 16), 0, "{name}");
        b.rdma.assert_clean();
    }
}

#[test]
fn queue_pairs_that_take_no_datagrams_lose_them() {
    let mut b = Bench::new();
    b.send(b.av(), b"nobody waits");
    let (early, connected) =
        (b.rdma.qp(UD, &b.cq_b, &b.cq_b), b.rdma.qp(QpWish { q_key: Q_KEY, ..UC }, &b.cq_b, &b.cq_b));
    b.rdma.init(&early);
    b.rdma.init(&connected);
    b.rdma.ready_to_receive(&connected, b.a.qpn);
    for mut qp in [early, connected] {
        b.rdma.recv(&mut qp, &[b.to.seg(0, 200)]);
        b.send(Av { qpn: qp.qpn, ..b.av() }, b"no");
        assert!(b.rdma.take(&mut b.cq_b).is_none());
    }
    b.rdma.assert_clean();
}

/// "Controlled" Q_Keys of the InfiniBand specification: the top bit asks for the sender's own.
#[test]
fn the_top_bit_of_a_q_key_stands_for_the_senders_own() {
    let mut b = Bench::new();
    b.recv(200);
    b.send(Av { q_key: 0x8000_0000, ..b.av() }, b"own");
    assert_eq!(get(&b.rdma.poll(&mut b.cq_b), 352, 32), 43);
    b.rdma.assert_clean();
}

#[test]
fn a_queue_pair_hears_from_many_and_from_itself() {
    let mut b = Bench::new();
    let mut third = b.rdma.qp(UD, &b.cq_a, &b.cq_a);
    ready(&b.rdma, &third);
    for _ in 0..3 {
        b.recv(200);
    }
    let segments = [b.av().segment().to_vec(), inline(b"3")].concat();
    b.rdma.send(&mut third, Wqe { opcode: SEND, flags: 0, imm: 0, segments: &segments });
    b.rdma.send(&mut b.b, Wqe { opcode: SEND, flags: 0, imm: 0, segments: &segments });
    b.send(b.av(), b"a");
    let sources: Vec<u64> = (0..3).map(|_| get(&b.rdma.poll(&mut b.cq_b), 200, 24)).collect();
    assert_eq!(sources, [third.qpn, b.b.qpn, b.a.qpn].map(u64::from));
    b.rdma.assert_clean();
}

/// Bytes of a datagram, `mtu` and `log_msg_max` of its sender, and whether it may go.
#[test]
fn a_datagram_is_one_packet_or_a_local_length_error() {
    for (len, mtu, log_msg_max, fits) in
        [(4096, 5, 12, true), (4097, 5, 30, false), (1024, 3, 12, true), (1025, 3, 12, false), (1025, 5, 10, false)]
    {
        let mut b = Bench::new();
        let mut a = b.rdma.qp(QpWish { mtu, log_msg_max, ..UD }, &b.cq_a, &b.cq_a);
        ready(&b.rdma, &a);
        b.recv(4136);
        let segments = [b.av().segment().to_vec(), data(b.from.seg(0, len)).to_vec()].concat();
        b.rdma.send(&mut a, Wqe { opcode: SEND, flags: 8, imm: 0, segments: &segments });
        let cqe = b.rdma.poll(&mut b.cq_a);
        if fits {
            assert_eq!((cqe[63] >> 4, get(&b.rdma.poll(&mut b.cq_b), 352, 32)), (0, u64::from(len) + 40));
        } else {
            assert_eq!((cqe[63] >> 4, cqe[55], b.rdma.state(&a)), (13, 1, 6), "{len} {mtu} {log_msg_max}");
            assert!(b.rdma.take(&mut b.cq_b).is_none());
        }
        b.rdma.assert_clean();
    }
}

#[test]
fn datagrams_have_sends_alone() {
    for opcode in [WRITE, SEND_INV] {
        let mut b = Bench::new();
        let av = b.av();
        b.post(opcode, 0, &av.segment());
        let cqe = b.rdma.poll(&mut b.cq_a);
        assert_eq!((cqe[63] >> 4, cqe[55], cqe[56]), (13, 2, opcode));
        b.rdma.assert_clean();
    }
}

#[test]
fn a_broken_receive_request_breaks_the_receiver_down() {
    let mut b = Bench::new();
    b.rdma.recv(&mut b.b, &[b.from.seg(0, 200)]);
    b.send(b.av(), b"x");
    let cqe = b.rdma.poll(&mut b.cq_b);
    assert_eq!((cqe[63] >> 4, cqe[55], cqe[54]), (14, 4, 0x32));
    assert_eq!((b.rdma.state(&b.a), b.rdma.state(&b.b)), (3, 6));
    b.rdma.assert_clean();
}

#[test]
fn transitions_take_what_datagrams_have() {
    let b = Bench::new();
    let context = b.rdma.context(&b.a);
    assert_eq!((get(&context, 8, 8), get(&context, 1344, 32)), (2, Q_KEY.into()), "st, q_key");
    assert_eq!((get(&context, 64, 3), get(&context, 67, 5)), (5, 12), "mtu, log_msg_max");
    // One packet of the numbers that RTR2RTS gave.
    assert_eq!(get(&context, 968, 24), 0xff_fffe);
    for (name, at, width) in [
        ("remote_qpn", 168, 24),
        ("rights", 1168, 3),
        ("next_rcv_psn", 1192, 24),
        ("rmac", 496, 16),
        ("retry_count", 909, 3),
    ] {
        assert_eq!(get(&context, at, width), 0, "{name}");
    }
}

/// A reserved bit of the address vector, or a vector that is cut off or compact: (name, change of the segments).
type Breach = (&'static str, fn(&mut Vec<u8>));

#[test]
fn an_address_vector_that_is_not_well_formed_is_a_violation() {
    let breaches: [Breach; 11] = [
        ("behind the Q_Key", |raw| raw[4] = 1),
        ("behind the Q_Key, last bit", |raw| raw[7] = 1),
        ("beside the queue number", |raw| raw[8] |= 0x40),
        ("beside the queue number, last bit", |raw| raw[8] |= 1),
        ("force loopback", |raw| raw[13] |= 0x80),
        ("behind the port", |raw| raw[16] = 1),
        ("before the MAC address", |raw| raw[19] = 1),
        ("above the GRH bit", |raw| raw[28] |= 0x80),
        ("below the GRH bit", |raw| raw[28] |= 0x10),
        ("cut off", |raw| raw.truncate(32)),
        ("compact on Ethernet", |raw| put(raw, 64, 1, 0)),
    ];
    for (name, spoil) in breaches {
        let mut b = Bench::new();
        b.recv(200);
        let mut segments = b.av().segment().to_vec();
        spoil(&mut segments);
        b.post(SEND, 0, &segments);
        let cqe = b.rdma.poll(&mut b.cq_a);
        assert_eq!((cqe[63] >> 4, cqe[55]), (13, 2), "{name}");
        let found: Vec<ViolationKind> = b.rdma.raw.model.violations().iter().map(|found| found.kind).collect();
        assert_eq!(found, [ViolationKind::WqeMalformed], "{name}");
        assert!(b.rdma.take(&mut b.cq_b).is_none(), "{name}");
    }
    let mut b = Bench::new();
    b.post(SEND, 0, &[]);
    b.rdma.poll(&mut b.cq_a);
    assert_eq!(b.rdma.raw.model.violations().len(), 1, "no address vector at all");
}

/// A compact or whole address vector of InfiniBand: LID, service level, path bits.
fn infiniband(b: &Bench, extended: bool, lid: u64) -> Vec<u8> {
    let mut raw = vec![0; if extended { 48 } else { 16 }];
    put(&mut raw, 0, 32, Q_KEY.into());
    put(&mut raw, 64, 1, extended.into());
    put(&mut raw, 72, 24, b.b.qpn.into());
    put(&mut raw, 100, 4, 9); // sl
    put(&mut raw, 105, 7, 0x15); // path bits
    put(&mut raw, 112, 16, lid);
    raw
}

#[test]
fn on_infiniband_completions_tell_service_level_and_paths() {
    let caps = CapConfig { ethernet: false, roce: false, ..CapConfig::default() };
    let mut b = Bench::on(Rdma::without_address(Raw::up_with(caps, true)));
    b.to.fill(0, &[0x55; 60]);
    for extended in [false, true] {
        b.recv(200);
        let av = infiniband(&b, extended, 0x4a);
        b.post(SEND, 0, &[av, inline(b"abcd")].concat());
        let cqe = b.rdma.poll(&mut b.cq_b);
        assert_eq!((get(&cqe, 192, 32), get(&cqe, 352, 32)), (0x0900_0000 | u64::from(b.a.qpn), 44));
        assert_eq!((cqe[17], get(&cqe, 176, 16)), (0x4a, 0x15), "ml_path, slid");
        assert_eq!((b.to.bytes(0, 40), b.to.bytes(40, 4)), (vec![0x55; 40], b"abcd".to_vec()), "no header: untouched");
    }
    b.recv(200);
    let mut av = infiniband(&b, true, 0x4a);
    put(&mut av, 225, 1, 1); // grh
    av[27] = 3;
    av[32..].copy_from_slice(&[0xd1; 16]);
    b.post(SEND, 0, &[av, inline(b"abcd")].concat());
    assert_eq!(get(&b.rdma.poll(&mut b.cq_b), 192, 32), 0x1900_0000 | u64::from(b.a.qpn));
    // BTH 12, DETH 8, payload 4, ICRC 4; IBA; hop limit; the GID of the port's GUID.
    assert_eq!(b.to.bytes(0, 8), [0x60, 0, 0, 0, 0, 28, 0x1b, 3]);
    assert_eq!((b.to.bytes(8, 2), b.to.bytes(24, 16)), (vec![0xfe, 0x80], vec![0xd1; 16]));
    b.recv(200);
    let av = infiniband(&b, true, 0x80);
    b.post(SEND, 0, &av);
    assert!(b.rdma.take(&mut b.cq_b).is_none(), "another port's LID");
    // The force-loopback bit, in both forms; then without a link as well.
    for (extended, up) in [(false, true), (true, true), (true, false)] {
        b.rdma.raw.model.inject(Fault::Link { up });
        let mut av = infiniband(&b, extended, 0x80);
        put(&mut av, 104, 1, 1);
        b.recv(200);
        b.post(SEND, 0, &[av, inline(b"abcd")].concat());
        assert_eq!(get(&b.rdma.poll(&mut b.cq_b), 352, 32), 44);
        b.rdma.drain_async_events();
    }
    let av = infiniband(&b, true, 0x4a);
    b.post(SEND, 0, &av);
    assert!(b.rdma.take(&mut b.cq_b).is_none(), "no LID without a link");
    b.rdma.assert_clean();
}
