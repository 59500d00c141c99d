//! The wire: a cable from the port to itself. Reliable connections here, the others in [`unreliable`](super::unreliable).

use super::cqe::{CqeError, syndrome};
use super::fetch::{Body, Message};
use super::remote::{self, Refused};
use super::rq::{self, Arrival, Refusal};
use super::{sq, unreliable};
use crate::bytes::put_bits;
use crate::device::Device;
use crate::eq::{self, Event};
use crate::objects::{Qp, Service};

/// Packet sequence numbers have 24 bits.
const PSN: u32 = 0xff_ffff;

/// What the sender hears of a message.
pub(crate) enum Answer {
    /// Done, or sent where nothing comes back, with what the peer sent back: the bytes that were read, or what an atomic found.
    Ack(Vec<u8>),
    /// Refused for good: the sender's error, and the peer that goes to error too.
    Nak { error: CqeError, peer: Option<u32> },
    /// The peer has no receive work request; it asks to wait.
    NotReady { ns: u64 },
    /// Nothing comes back.
    Silence,
}

/// Sends a message to the peer of `qpn`. `under_way` reads and atomics of it wait for answers, this one included.
pub(crate) fn deliver(dev: &mut Device, qpn: u32, message: &Message, under_way: u32) -> Answer {
    let Some(sender) = dev.objects.qps.get(&qpn) else { return Answer::Silence };
    if sender.service() != Some(Service::Rc) {
        unreliable::deliver(dev, qpn, message);
        return Answer::Ack(Vec::new());
    }
    let peer = sender.remote_qpn;
    let Some(receiver) = dev.objects.qps.get(&peer) else { return Answer::Silence };
    if !connected(dev, qpn, sender, receiver) || sender.next_send_psn != receiver.next_rcv_psn {
        return Answer::Silence;
    }
    let length = message.body.len();
    let (mtu, expected) = (sender.packet_bytes(), receiver.packet_bytes());
    let rnr_ns = rnr_timer_ns(receiver.min_rnr_nak);
    let packets = length.div_ceil(mtu).max(1) as u32;
    // Packets that are neither the last nor exactly as long as the other side's path MTU.
    let strange = mtu != expected && length > mtu.min(expected);
    let refused = length > 1 << receiver.log_msg_max || strange && !matches!(message.body, Body::Read { .. });
    let response = if refused { Err(remote::LENGTH.into()) } else { respond(dev, (qpn, peer), message, under_way) };
    match response {
        Ok(answer) => {
            count_packets(dev, qpn, peer, packets);
            if strange {
                return Answer::Nak { error: CqeError::of(syndrome::BAD_RESPONSE), peer: None };
            }
            Answer::Ack(answer)
        }
        Err(Refusal::NotReady) => Answer::NotReady { ns: rnr_ns },
        Err(Refusal::Own { sender, .. }) => Answer::Nak { error: CqeError::of(sender), peer: Some(peer) },
        Err(Refusal::Request(Refused { sender, event })) => {
            eq::report(dev, Event::queue_pair(event, peer));
            Answer::Nak { error: CqeError::of(sender), peer: Some(peer) }
        }
        Err(Refusal::Acknowledged) => {
            count_packets(dev, qpn, peer, packets);
            sq::enter_error(dev, peer);
            Answer::Ack(Vec::new())
        }
    }
}

/// What queue pair `peer` makes of a message, and answers.
fn respond(dev: &mut Device, (qpn, peer): (u32, u32), message: &Message, under_way: u32) -> Result<Vec<u8>, Refusal> {
    match &message.body {
        Body::Nothing => Ok(Vec::new()),
        Body::Send(payload) => {
            rq::accept(dev, peer, &message.ctrl, &Arrival::message(qpn, payload)).map(|()| Vec::new())
        }
        Body::Write(to, payload) => {
            rq::accept_write(dev, (peer, qpn), &message.ctrl, *to, payload).map(|()| Vec::new())
        }
        Body::Datagram(..) => Ok(Vec::new()),
        Body::Read { from, len, .. } => Ok(remote::read(dev, peer, *from, *len, under_way)?),
        Body::Atomic { at, atomic, .. } => {
            let old = remote::atomic(dev, peer, *at, *atomic, under_way)?;
            let host_order = dev.hca.caps.atomic_results_in_host_order();
            Ok(if host_order { old.to_le_bytes() } else { old.to_be_bytes() }.to_vec())
        }
    }
}

/// Whether a packet of `sender`, whose number is `qpn`, arrives at `receiver`, and an answer finds back.
pub(super) fn connected(dev: &Device, qpn: u32, sender: &Qp, receiver: &Qp) -> bool {
    sender.service() == receiver.service()
        && receiver.receives()
        && receiver.remote_qpn == qpn
        && leads_home(dev, sender)
        && leads_home(dev, receiver)
}

/// Whether the address path of a queue pair leads from the function's port to itself. It does when it is forced to. Over RoCE, the
/// source is a RoCE address that is set, and the destination's GID and MAC address are those of one: such packets turn in the
/// function, with or without a link, since Linux's steering relies on them. Over InfiniBand, the destination is a LID of the
/// port, which it has only with a link.
fn leads_home(dev: &Device, qp: &Qp) -> bool {
    let path = &qp.path;
    if path.port != 1 || path.force_loopback {
        return path.port == 1;
    }
    if dev.hca.is_infiniband() {
        return dev.owns_lid(path.remote_lid) && (!path.global || path.remote_gid == dev.hca.vport.gid());
    }
    if dev.hca.caps.current("roce") == 0 {
        return true;
    }
    source_address(dev, path.source_index).is_some() && is_own(dev, path.remote_gid, path.remote_mac)
}

/// The RoCE address with this index, if it is set.
pub(super) fn source_address(dev: &Device, index: u8) -> Option<[u8; 32]> {
    dev.hca.roce_addresses.get(usize::from(index)).copied().filter(|address| address[..16] != [0; 16])
}

/// Whether a GID and a MAC address are those of the function.
pub(super) fn is_own(dev: &Device, gid: [u8; 16], mac: [u8; 6]) -> bool {
    gid != [0; 16] && dev.hca.roce_addresses.iter().any(|own| own[..16] == gid && own[18..24] == mac)
}

fn count_packets(dev: &mut Device, qpn: u32, peer: u32, packets: u32) {
    sent_packets(dev, qpn, packets);
    synchronize(dev, qpn, peer);
}

/// The next packet of `qpn` has a number that is higher by `packets`. The context too: a transition reads it again.
pub(super) fn sent_packets(dev: &mut Device, qpn: u32, packets: u32) {
    if let Some(sender) = dev.objects.qps.get_mut(&qpn) {
        sender.next_send_psn = sender.next_send_psn.wrapping_add(packets) & PSN;
        put_bits(&mut sender.context, 0x79 * 8, 24, sender.next_send_psn.into());
    }
}

/// The peer expects what `qpn` sends next.
pub(super) fn synchronize(dev: &mut Device, qpn: u32, peer: u32) {
    let Some(next) = dev.objects.qps.get(&qpn).map(|sender| sender.next_send_psn) else { return };
    if let Some(receiver) = dev.objects.qps.get_mut(&peer) {
        receiver.next_rcv_psn = next;
        put_bits(&mut receiver.context, 0x95 * 8, 24, next.into());
    }
}

/// The RNR NAK timer codes of the InfiniBand specification, in hundredths of a millisecond.
const RNR_TIMER: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

fn rnr_timer_ns(code: u8) -> u64 {
    u64::from(RNR_TIMER[usize::from(code & 31)]) * 10_000
}
