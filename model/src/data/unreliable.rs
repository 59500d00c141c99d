//! Unreliable connections and datagrams: the sender is done when the message is on the wire, and hears of nothing.
//!
//! What the receiver cannot use is dropped without a trace, as the InfiniBand specification wants it (responder faults of class
//! D): no receive work request, one that is too small, a Q_Key that differs, memory that may not be written. A fault
//! of the receiver itself (a work request that is not well formed, a local key that does not fit) breaks it down all the same.

use super::av::Address;
use super::cqe::syndrome;
use super::fetch::{Body, Message};
use super::grh::{self, Network};
use super::rq::{self, Arrival, Refusal};
use super::wire;
use super::{sq, wqe::Ctrl};
use crate::device::Device;
use crate::eq::{self, Event, event};
use crate::objects::Service;

/// The bit of a work request's Q_Key that asks for the sender's own instead.
const OWN_Q_KEY: u32 = 1 << 31;

/// Puts a message of `qpn` on the wire.
pub(super) fn deliver(dev: &mut Device, qpn: u32, message: &Message) {
    match &message.body {
        Body::Datagram(to, payload) => datagram(dev, qpn, &message.ctrl, to, payload),
        _ => connection(dev, qpn, message),
    }
}

/// A message on an unreliable connection. Its first packet sets the receiver's sequence number, whatever it was.
fn connection(dev: &mut Device, qpn: u32, message: &Message) {
    let Some(sender) = dev.objects.qps.get(&qpn) else { return };
    let (peer, length, mtu) = (sender.remote_qpn, message.body.len(), sender.packet_bytes());
    let packets = length.div_ceil(mtu).max(1) as u32;
    let arrives = dev.objects.qps.get(&peer).is_some_and(|receiver| {
        let expected = receiver.packet_bytes();
        let packets_fit = mtu == expected || length <= mtu.min(expected);
        wire::connected(dev, qpn, sender, receiver) && packets_fit && length <= 1 << receiver.log_msg_max
    });
    wire::sent_packets(dev, qpn, packets);
    if dev.data.faults.loses() || !arrives {
        return;
    }
    wire::synchronize(dev, qpn, peer);
    let taken = match &message.body {
        Body::Send(payload) => rq::accept(dev, peer, &message.ctrl, &Arrival::message(qpn, payload)),
        Body::Write(to, payload) => rq::accept_write(dev, (peer, qpn), &message.ctrl, *to, payload),
        _ => Ok(()),
    };
    digest(dev, peer, taken);
}

/// A datagram: to any queue pair that has its Q_Key.
fn datagram(dev: &mut Device, qpn: u32, ctrl: &Ctrl, to: &Address, payload: &[u8]) {
    wire::sent_packets(dev, qpn, 1);
    if dev.data.faults.loses() {
        return;
    }
    let Some(own_key) = dev.objects.qps.get(&qpn).map(|sender| sender.q_key) else { return };
    let q_key = if to.q_key & OWN_Q_KEY != 0 { own_key } else { to.q_key };
    let Some(network) = route(dev, ctrl, to, payload.len()) else { return };
    let arrives = dev.objects.qps.get(&to.qpn).is_some_and(|receiver| {
        receiver.service() == Some(Service::Ud) && receiver.receives() && receiver.q_key == q_key
    });
    if arrives {
        let taken = rq::accept(dev, to.qpn, ctrl, &Arrival { from: qpn, network: Some(network), payload });
        digest(dev, to.qpn, taken);
    }
}

/// The network header with which a datagram comes in at this function; `None` when it goes elsewhere.
fn route(dev: &Device, ctrl: &Ctrl, to: &Address, len: usize) -> Option<Network> {
    if dev.hca.caps.current("roce") == 0 {
        return grh::infiniband(dev, to, ctrl, len);
    }
    let source = wire::source_address(dev, to.source_index)?;
    wire::is_own(dev, to.gid, to.mac).then(|| grh::roce(&source, to, ctrl, len))
}

/// What becomes of the receiver.
fn digest(dev: &mut Device, peer: u32, taken: Result<(), Refusal>) {
    match taken {
        Err(Refusal::Own { own, .. }) if own.syndrome != syndrome::LOCAL_LENGTH => sq::enter_error(dev, peer),
        Err(Refusal::Request(refused)) if refused.event == event::WQ_CATASTROPHIC => {
            eq::report(dev, Event::queue_pair(refused.event, peer));
            sq::enter_error(dev, peer);
        }
        _ => (),
    }
}
