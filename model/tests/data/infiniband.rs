//! An InfiniBand port of the model, by raw bytes: what its queries say, and connections by LID and by force-loopback.
//!
//! Positions are those of Linux's `mlx5_ifc.h` (`hca_vport_context`, `query_hca_vport_gid_out`, `pkey`, `ads`); states of the port are
//! PortInfo's of the InfiniBand specification; a port without a link shows LID 0xffff, as `ibv_devinfo` prints of cards.

use mlx5_model::{CapConfig, Fault, ModelConfig, syndrome_text};

use crate::connections::CQ;
use crate::qp::{Qp, QpWish};
use crate::raw::{Raw, get, put};
use crate::rdma::{Cq, LR, LW, Mr, Rdma};
use crate::wqe::{data, signalled};

const LID: u16 = 0x15;
/// The GUIDs of the node and its port, from its address 02:15:b3:00:00:01.
const NODE_GUID: u64 = 0x0215_b3ff_fe00_0001;
const PORT_GUID: u64 = NODE_GUID + 1;

fn up() -> Rdma {
    Rdma::without_address(Raw::made(ModelConfig::infiniband(), true))
}

/// QUERY_HCA_VPORT_CONTEXT: the context.
fn context(rdma: &Rdma) -> Vec<u8> {
    rdma.raw.command(0x762, 0, &[0; 8], 0x210)[16..].to_vec()
}

/// A query of a table with its index; what comes behind the first 16 bytes, or the reason of the refusal.
fn table(rdma: &Rdma, opcode: u16, index: u16, bytes: usize) -> Result<Vec<u8>, &'static str> {
    let mut body = [0; 8];
    put(&mut body, 48, 16, index.into());
    let out = rdma.raw.try_command(opcode, 0, &body, 16 + bytes);
    let refused = || syndrome_text(get(&out, 32, 32) as u32).unwrap();
    if out[0] == 0 { Ok(out[12..].to_vec()) } else { Err(refused()) }
}

#[test]
fn the_port_says_its_lid_its_state_and_its_guids() {
    let rdma = up();
    let general = &rdma.raw.command(0x100, 1, &[0; 8], 4112)[16..];
    assert_eq!((get(general, 438, 2), get(general, 418, 1)), (0, 1), "port_type, ib_virt");
    let port = context(&rdma);
    assert_eq!((get(&port, 0x300, 16), get(&port, 0x318, 3)), (LID.into(), 0), "lid, lmc");
    // port_physical_state LinkUp; port_state and vport_state Active.
    assert_eq!((get(&port, 0x110, 4), get(&port, 0x118, 4), get(&port, 0x11c, 4)), (5, 4, 4));
    assert_eq!(
        (get(&port, 0x140, 64), get(&port, 0x180, 64), get(&port, 0x1c0, 64)),
        (NODE_GUID, PORT_GUID, NODE_GUID)
    );
    rdma.raw.model.inject(Fault::Link { up: false });
    let port = context(&rdma);
    // Polling, Down.
    assert_eq!((get(&port, 0x110, 4), get(&port, 0x118, 4), get(&port, 0x11c, 4)), (2, 1, 1));
    assert_eq!((get(&port, 0x300, 16), get(&port, 0x320, 16)), (0xffff, 0), "lid, sm_lid");
}

#[test]
fn a_port_can_be_without_a_link_from_the_start() {
    let config = ModelConfig { link_up: false, ..ModelConfig::infiniband() };
    let rdma = Rdma::without_address(Raw::made(config, true));
    assert_eq!(get(&context(&rdma), 0x11c, 4), 1);
    let out = rdma.raw.command(0x750, 0, &[0; 8], 16);
    assert_eq!(get(&out, 0xf * 8 + 4, 4), 0, "QUERY_VPORT_STATE: down");
    rdma.assert_clean();
}

#[test]
fn gids_and_partition_keys_come_one_by_one_or_all_together() {
    let rdma = up();
    let first = [&0xfe80_0000_0000_0000_u64.to_be_bytes()[..], &PORT_GUID.to_be_bytes()].concat();
    let one = table(&rdma, 0x764, 0, 16).unwrap();
    assert_eq!((get(&one, 0, 16), &one[4..]), (1, &first[..]), "gids_num, gid");
    assert_eq!(table(&rdma, 0x764, 3, 16).unwrap()[4..], [0; 16]);
    // gid_table_size 0 stands for 8, pkey_table_size 0 for 128.
    let all = table(&rdma, 0x764, 0xffff, 128).unwrap();
    assert_eq!((get(&all, 0, 16), &all[4..20], &all[20..]), (8, &first[..], &[0; 112][..]));
    assert_eq!(table(&rdma, 0x765, 0, 4).unwrap()[4..], [0, 0, 0xff, 0xff]);
    assert_eq!(table(&rdma, 0x765, 127, 4).unwrap()[4..], [0; 4]);
    let all = table(&rdma, 0x765, 0xffff, 512).unwrap();
    assert_eq!((&all[4..8], &all[8..]), (&[0, 0, 0xff, 0xff][..], &[0; 508][..]));
    for (opcode, index, bytes) in [(0x764, 8, 16), (0x765, 128, 4)] {
        assert_eq!(table(&rdma, opcode, index, bytes), Err("the index exceeds the table"));
    }
    rdma.assert_clean();
    assert_eq!(table(&rdma, 0x764, 0, 32), Err("output length differs from the command's"));
}

#[test]
fn each_kind_of_port_has_its_own_commands() {
    let rdma = up();
    let out = rdma.raw.try_command(0x754, 0, &[0; 8], 0x110);
    assert_eq!((out[0], syndrome_text(get(&out, 32, 32) as u32)), (2, Some("the port is not Ethernet")));
    let out = rdma.raw.try_command(0x755, 0, &[0; 0x1f8], 16);
    assert_eq!((out[0], syndrome_text(get(&out, 32, 32) as u32)), (2, Some("the port is not Ethernet")));
    let plain = CapConfig { ethernet: false, roce: false, ..CapConfig::default() };
    for other in [Rdma::up(), Rdma::without_address(Raw::up_with(plain, true))] {
        for (opcode, bytes) in [(0x762, 0x210), (0x764, 0x20), (0x765, 0x14)] {
            let out = other.raw.try_command(opcode, 0, &[0; 8], bytes);
            let words = "the port is not InfiniBand, or ib_virt is off";
            assert_eq!((out[0], syndrome_text(get(&out, 32, 32) as u32)), (2, Some(words)), "{opcode:#x}");
        }
    }
    for (body, words) in [
        ([0x80, 0, 0, 0, 0, 0, 0, 0], "another vport is named"),
        ([0, 0, 0, 1, 0, 0, 0, 0], "another vport is named"),
        ([0, 2, 0, 0, 0, 0, 0, 0], "port_num is not a port of this function"),
    ] {
        let out = rdma.raw.try_command(0x762, 0, &body, 0x210);
        assert_eq!(syndrome_text(get(&out, 32, 32) as u32), Some(words));
    }
    rdma.raw.command(0x762, 0, &[0, 1, 0, 0, 0, 0, 0, 0], 0x210);
}

/// A pair that is connected by an address path.
struct Pair {
    rdma: Rdma,
    a: Qp,
    b: Qp,
    cq_a: Cq,
    cq_b: Cq,
    from: Mr,
    to: Mr,
}

impl Pair {
    fn by(rdma: Rdma, path: impl Fn(&mut [u8])) -> Self {
        let (cq_a, cq_b) = (rdma.cq(CQ), rdma.cq(CQ));
        let (a, b) = (rdma.qp(QpWish::RC, &cq_a, &cq_a), rdma.qp(QpWish::RC, &cq_b, &cq_b));
        for (qp, peer) in [(&a, &b), (&b, &a)] {
            rdma.init(qp);
            rdma.ready_to_receive_by(qp, peer.qpn, &path);
            rdma.ready_to_send(qp);
        }
        let (from, to) = (rdma.register(4096, 0, LR), rdma.register(4096, 0, LR | LW));
        Self { rdma, a, b, cq_a, cq_b, from, to }
    }

    /// The syndrome of a send of 64 bytes: 0 when it arrives.
    fn send(&mut self) -> u8 {
        self.rdma.recv(&mut self.b, &[self.to.seg(0, 64)]);
        self.rdma.send(&mut self.a, signalled(&data(self.from.seg(0, 64))));
        let sent = self.rdma.poll(&mut self.cq_a);
        if sent[63] >> 4 != 0 {
            return sent[55];
        }
        assert_eq!(get(&self.rdma.poll(&mut self.cq_b), 352, 32), 64);
        0
    }
}

/// Retries exceeded: nobody answers.
const NO_ANSWER: u8 = 0x15;

fn lid(ads: &mut [u8], lid: u16) {
    put(ads, 48, 16, lid.into());
}

#[test]
fn a_connection_by_lid_needs_the_ports_own_and_a_link() {
    assert_eq!(Pair::by(up(), |ads| lid(ads, LID)).send(), 0);
    for other in [0, LID - 1, LID + 1, 0xffff] {
        assert_eq!(Pair::by(up(), |ads| lid(ads, other)).send(), NO_ANSWER, "LID {other:#x}");
    }
    let paths = ModelConfig { lid: 0x20, lmc: 2, ..ModelConfig::infiniband() };
    let with = |other| Pair::by(Rdma::without_address(Raw::made(paths.clone(), true)), |ads| lid(ads, other)).send();
    assert_eq!([0x1f, 0x20, 0x23, 0x24].map(with), [NO_ANSWER, 0, 0, NO_ANSWER], "four LIDs with lmc 2");
    let mut pair = Pair::by(up(), |ads| lid(ads, LID));
    pair.rdma.raw.model.inject(Fault::Link { up: false });
    assert_eq!(pair.send(), NO_ANSWER);
}

#[test]
fn a_global_route_leads_to_the_port_by_its_own_gid_only() {
    let global = |guid: u64| {
        move |ads: &mut [u8]| {
            lid(ads, LID);
            put(ads, 40, 1, 1);
            put(ads, 128, 64, 0xfe80_0000_0000_0000);
            put(ads, 192, 64, guid);
        }
    };
    assert_eq!(Pair::by(up(), global(PORT_GUID)).send(), 0);
    assert_eq!(Pair::by(up(), global(NODE_GUID)).send(), NO_ANSWER);
}

#[test]
fn a_connection_that_is_forced_to_loop_back_needs_neither_lid_nor_link() {
    let config = ModelConfig { link_up: false, ..ModelConfig::infiniband() };
    let mut pair = Pair::by(Rdma::without_address(Raw::made(config, true)), |ads| put(ads, 0, 1, 1));
    assert_eq!(pair.send(), 0);
    pair.rdma.assert_clean();
}

#[test]
fn over_roce_it_needs_no_address_and_its_capability_and_the_own_address_no_link() {
    let on = |caps: CapConfig, roce: bool| {
        let rdma = Rdma::without_address(Raw::up_with(caps, true));
        if roce {
            let mut context = vec![0; 0x200 - 8];
            put(&mut context, 126 - 64, 1, 1);
            put(&mut context[0x100 - 8..], 31, 1, 1);
            rdma.raw.command(0x755, 0, &context, 16);
        }
        rdma
    };
    for roce in [false, true] {
        let rdma = on(CapConfig::default(), roce);
        rdma.raw.model.inject(Fault::Link { up: false });
        let mut pair = Pair::by(rdma, |ads| put(ads, 0, 1, 1));
        assert_eq!(pair.send(), 0, "roce_en {roce}");
        let other =
            CapConfig { fl_rc_qp_when_roce_disabled: roce, fl_rc_qp_when_roce_enabled: !roce, ..CapConfig::default() };
        let rdma = on(other, roce);
        let cq = rdma.cq(CQ);
        for service in [0, 1] {
            let qp = rdma.qp(QpWish { service, ..QpWish::RC }, &cq, &cq);
            rdma.init(&qp);
            let (status, syndrome) = rdma.try_ready_to_receive(&qp, 0x55, |ads| put(ads, 0, 1, 1));
            assert_eq!((status, syndrome_text(syndrome as u32)), (3, Some("fl without its capability")));
        }
        rdma.assert_clean();
    }
    let mut pair = crate::connections::pair();
    pair.rdma.raw.model.inject(Fault::Link { up: false });
    pair.recv(64);
    pair.send(64);
    assert_eq!(pair.rdma.poll(&mut pair.cq_a)[63] >> 4, 0);
}

#[test]
fn a_partition_key_index_beyond_the_table_is_refused() {
    let rdma = up();
    let cq = rdma.cq(CQ);
    let qp = rdma.qp(QpWish::RC, &cq, &cq);
    let mut body = vec![0; 264];
    put(&mut body, 8, 24, qp.qpn.into());
    put(&mut body[16..], 19, 2, 3);
    put(&mut body[16..], 192 + 16, 16, 128);
    put(&mut body[16..], 192 + 296, 8, 1);
    let out = rdma.raw.try_command(0x502, 0, &body, 16);
    assert_eq!(syndrome_text(get(&out, 32, 32) as u32), Some("pkey_index exceeds the table"));
}
