//! Readers of a completion that no queue of ours fills yet, on entries that the model writes as it is told, in whole ones and in
//! sessions.

use mlx5::hw::cmd::QueryQp;
use mlx5::{Completion, SigErr, TmInfo, WcFlags, WcOpcode, WcResultFlags, WcStatus};
use mlx5::{Cq, PollError, QpAttr, QpState, RecvWr};

use crate::cq_create::Attr;
use crate::cq_semantics::POLL;
use crate::support::{INIT, Port, SIZES, close, create_qp, open, path_to};
use mlx5::dv::{CqeCompLayout, CqeCompResFormat};

/// All fields but the wall clock, which excludes the other one.
const ALL: WcFlags = WcFlags::all().difference(WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK);

/// A queue pair on a CQ of this kind with receives posted, its user index, and what `check` finds in the CQ.
fn with_queue(attr: &Attr<'_>, check: impl FnOnce(&Port, &mut Cq, u32)) {
    let (port, dev) = open();
    let (pd, mut cq) = (dev.alloc_pd().unwrap(), attr.create(&dev).unwrap());
    let mut qp = create_qp(&pd, &cq, &cq, SIZES);
    qp.modify(&QpAttr { qp_state: QpState::Init, ..path_to(&dev, 1) }, INIT).unwrap();
    qp.post_recv(&[RecvWr::default(); 4]).unwrap();
    // SAFETY: a query changes nothing.
    let qpc = unsafe { dev.general_cmd(&QueryQp { qpn: qp.qp_num() }) }.unwrap();
    check(&port, &mut cq, qpc.user_index());
    drop((qp, cq, pd));
    close(&port, dev);
}

fn asking(wc_flags: WcFlags) -> Attr<'static> {
    let mut attr = Attr::default();
    attr.ex.wc_flags = wc_flags;
    attr
}

/// A receive's entry (RESP_SEND) of queue `index` with these bytes in it.
fn receive(index: u32, parts: &[(usize, &[u8])]) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[32..36].copy_from_slice(&index.to_be_bytes());
    bytes[63] = 0x20;
    for (at, part) in parts {
        bytes[*at..at + part.len()].copy_from_slice(part);
    }
    bytes
}

fn inject_and_read(port: &Port, cq: &mut Cq, entry: [u8; 64], read: impl FnOnce(Completion<'_>)) {
    assert!(port.model.inject_cqe(cq.cqn(), entry));
    read(cq.start_poll(&POLL).unwrap().completion());
}

#[test]
fn a_packets_vlan_flow_tag_and_checksum_are_read() {
    with_queue(&asking(ALL), |port, cq, index| {
        // Header types: VLAN stripped, IPv4. Checksums of layers 3 and 4 are good.
        let packet = receive(index, &[(28, &[0x06, 0x09, 0x6f, 0xa0]), (56, &[0, 0x12, 0x34, 0x56])]);
        inject_and_read(port, cq, packet, |c| {
            assert_eq!((c.cvlan(), c.flow_tag()), (Some(0x6fa0), Some(0x12_3456)));
            assert_eq!((c.status(), c.wc_flags()), (WcStatus::SUCCESS, WcResultFlags::IP_CSUM_OK));
        });
        let untagged = receive(index, &[(28, &[0x02, 0x08, 0x6f, 0xa0])]);
        inject_and_read(port, cq, untagged, |c| {
            assert_eq!((c.cvlan(), c.wc_flags()), (None, WcResultFlags::empty()));
        });
    });
}

#[test]
fn a_messages_tag_is_read() {
    with_queue(&asking(ALL), |port, cq, index| {
        let header = [1, 0, 0, 0, 0, 0, 0xab, 0xcd, 0, 0, 0, 0, 0, 0, 0x12, 0x34];
        let expected = receive(index, &[(0, &header), (40, &[1, 2])]);
        inject_and_read(port, cq, expected, |c| {
            assert_eq!(c.tm_info(), Some(TmInfo { tag: 0x1234, r#priv: 0xabcd }));
            assert_eq!((c.opcode(), c.wc_flags()), (Some(WcOpcode::TM_RECV), WcResultFlags::TM_DATA_VALID));
        });
    });
}

#[test]
fn datagram_fields_are_read() {
    with_queue(&asking(ALL), |port, cq, index| {
        let datagram =
            receive(index, &[(17, &[0xff]), (22, &[0x12, 0x34]), (24, &[0x2a, 0x11, 0x22, 0x33]), (36, &[0, 0, 0, 5])]);
        inject_and_read(port, cq, datagram, |c| {
            assert_eq!((c.slid(), c.sl(), c.dlid_path_bits()), (Some(0x1234), Some(10), Some(0x7f)));
            assert_eq!((c.src_qp(), c.pkey_index(), c.wc_flags()), (Some(0x11_2233), Some(5), WcResultFlags::GRH));
        });
    });
}

/// Case C-056: what a mini does not say is the title's; a flow tag it says itself.
#[test]
fn completions_of_a_session_have_the_titles_fields_and_their_own() {
    use CqeCompLayout::{Basic, Enhanced};
    for (layout, size) in [(Basic, 64), (Basic, 128), (Enhanced, 64), (Enhanced, 128)] {
        for format in [CqeCompResFormat::HASH, CqeCompResFormat::FTAG_STRIDX] {
            let mut attr = asking(ALL);
            attr.compress(format.bits());
            attr.layout(layout);
            attr.size(size);
            with_queue(&attr, |port, cq, index| {
                let title = receive(
                    index,
                    &[
                        (22, &[0x12, 0x34]),
                        (24, &[0x0a, 0x11, 0x22, 0x33]),
                        (28, &[0x06, 0x09, 0x6f, 0xa0]),
                        (36, &[0, 0, 0x12, 0x34]),
                        (48, &[0, 0, 0, 0, 0, 0, 0x10, 0x01]),
                        (56, &[0, 0, 0, 9]),
                    ],
                );
                // Flow tag 0x05c0de where there is one: its upper byte beside the byte count.
                let minis = [
                    [0xc0, 0xde, 0, 0, 5, 0, 0, 100],
                    [0xc0, 0xde, 0, 0, 5, 0, 0, 101],
                    [0xc0, 0xde, 0, 0, 5, 0, 0, 102],
                ];
                assert!(port.model.inject_session(cq.cqn(), Some(title), &minis));
                let mut poller = cq.start_poll(&POLL).unwrap();
                if layout == CqeCompLayout::Enhanced {
                    poller.next().unwrap();
                }
                for n in 0..3 {
                    let c = if n == 0 { poller.completion() } else { poller.next().unwrap() };
                    assert_eq!((c.slid(), c.sl(), c.src_qp()), (Some(0x1234), Some(10), Some(0x11_2233)), "{layout:?}");
                    assert_eq!(
                        (c.pkey_index(), c.cvlan(), c.completion_ts()),
                        (Some(0x1234), Some(0x6fa0), Some(0x1001))
                    );
                    let (tag, length) = if format == CqeCompResFormat::HASH {
                        (9, (5 << 24) | (100 + n))
                    } else {
                        (0x05_c0de, 100 + n)
                    };
                    assert_eq!((c.flow_tag(), c.byte_len()), (Some(tag), Some(length)), "{format:?}");
                }
                assert_eq!(poller.next().err(), Some(PollError::Empty));
            });
        }
    }
}

/// An error and a signature error as devices write them, in the middle of nothing else.
#[test]
fn injected_errors_carry_their_codes() {
    with_queue(&asking(ALL), |port, cq, index| {
        let error = receive(index, &[(52, &[0x9c, 0x70, 0x88, 0x13]), (63, &[0xe0])]);
        inject_and_read(port, cq, error, |c| {
            assert_eq!((c.status(), c.vendor_err()), (WcStatus::REM_ACCESS_ERR, Some(0x88)));
            assert_eq!((c.hw_err_synd(), c.hw_synd_type()), (Some(0x9c), Some(7)));
        });
        let signature = receive(
            0,
            &[
                (16, &[0, 0, 0, 1]),
                (20, &[0, 0, 0, 2]),
                (32, &[0x08, 0, 9, 0xff]),
                (36, &[0, 0, 0x7b, 0]),
                (63, &[0xc0]),
            ],
        );
        assert!(port.model.inject_cqe(cq.cqn(), signature));
        let told = SigErr {
            sig_type: 1,
            domain: 7,
            syndrome: 0x800,
            expected: 1 << 32,
            actual: 2 << 32,
            offset: 0,
            mkey: 0x7b00,
        };
        assert_eq!(cq.start_poll(&POLL).err(), Some(PollError::Signature(told)));
    });
}
