//! The round trips: bursts of messages from A to B and back, each compared byte for byte at both ends.

use std::time::Instant;

use mlx5::{Device, PostError, SendFlags, SendWr, Sge, WcFlags, WrOpcode, ibv};

use super::check::{Lack, Progress};
use super::connect::Peer;
use super::drain::{drain, drain_lazily};
use super::events::Events;
use super::failure::{Failure, Queue};
use super::link::{A, B, End, Link};
use super::payload::{Message, payload};
use super::plan::{INLINE, Plan};
use super::wait::Wait;
use super::{Lost, Ran};
use crate::rig::Rig;
use crate::stop;

/// Runs the round trips.
pub struct Rounds<'a> {
    link: &'a mut Link,
    device: &'a Device,
    rig: &'a dyn Rig,
    plan: Plan,
    progress: [Progress; 2],
    /// How to sleep, instead of polling all the time.
    events: Option<Events<'a>>,
    /// The receive that had waited in vain when a message was last taken for lost: of which [`Link::receives`], and its wr_id.
    in_vain: Option<(usize, u64)>,
    ran: &'a mut Ran,
}

impl<'a> Rounds<'a> {
    /// The round trips of a plan over a link; `ran` gets what they come to.
    pub fn new(
        link: &'a mut Link,
        device: &'a Device,
        rig: &'a dyn Rig,
        plan: &Plan,
        events: Option<Events<'a>>,
        ran: &'a mut Ran,
    ) -> Self {
        let [a, b] = &link.ends;
        // `ibv_poll_cq` gives all fields, whatever was asked for.
        let [at_a, at_b] = [a.qp.qp_num(), b.qp.qp_num()];
        let has_header = |end: &End| end.peer.as_ref().is_some_and(|peer| peer.gid.is_some());
        let headers = [a, b].map(has_header);
        let a = Progress::new(a.name, *plan, [at_a, at_b], WcFlags::all()).with_header(headers[0]);
        let b = Progress::new(b.name, *plan, [at_b, at_a], b.cq.wc_flags()).with_header(headers[1]);
        Self { device, rig, plan: *plan, progress: [a, b], link, events, in_vain: None, ran }
    }

    /// Runs them, telling `progress` how many are done.
    pub fn run(&mut self, mut progress: impl FnMut(u64)) -> Result<(), Failure> {
        let (mut first, iters) = (0, self.plan.iters);
        while first < iters {
            stop::check().map_err(Failure::Stopped)?;
            let next = iters.min(first + u64::from(self.link.depth));
            let burst = (first..next).map(|i| (i, payload(self.plan.seed, i, self.plan.len(i) as usize)));
            let there = self.transfer([A, B], burst.collect())?;
            let back = self.transfer([B, A], there)?;
            self.ran.verified += back.len() as u64;
            first = next;
            progress(first);
        }
        Ok(())
    }

    /// Sends messages, all in flight at once, and gives those that have arrived.
    fn transfer(&mut self, [from, to]: [usize; 2], messages: Vec<Message>) -> Result<Vec<Message>, Failure> {
        if messages.is_empty() {
            return Ok(messages);
        }
        let link = &mut *self.link;
        let receives = &mut link.receives[link.ends[to].receives];
        receives.post(&mut link.ends[to].qp, messages.len())?;
        receives.mark(&messages)?;
        let sender = &mut link.ends[from];
        for (slot, (_, payload)) in messages.iter().enumerate() {
            sender.outgoing.write(slot * self.plan.size as usize, payload)?;
        }
        let sent = Instant::now();
        post_sends(sender, &messages, &self.plan)?;
        messages.iter().for_each(|(iteration, _)| self.progress[from].sends.post(*iteration));
        self.ran.sent += messages.len() as u64;
        self.wait(from, to, &messages)?;
        self.arrived(from, to, messages, sent)
    }

    /// Waits and polls until all messages have arrived, and were sent. Of an unreliable transport those that have not come in
    /// time are lost.
    fn wait(&mut self, from: usize, to: usize, messages: &[Message]) -> Result<(), Failure> {
        let mut wait = Wait::new(self.rig);
        while let Some(lack) = self.lacks(from, to, messages.len()) {
            if let Some(events) = &mut self.events {
                events.next(&mut self.link.ends, wait.longest_sleep())?;
                (self.ran.waiting.arms, self.ran.waiting.events) = (events.arms, events.taken);
            }
            if self.drain()? != 0 {
                wait = Wait::new(self.rig);
            } else if wait.is_over(self.device)? {
                let missing = Failure::Missing { lack, waited: wait.longest(), clock: wait.clock() };
                if self.is_lost(to, &lack, messages)? {
                    return Ok(());
                }
                self.rig.hurry();
                return Err(missing);
            } else if self.events.is_none() {
                wait.pass();
            }
        }
        Ok(())
    }

    /// The completion whose turn it is, until `want` messages have arrived and were sent.
    fn lacks(&self, from: usize, to: usize, want: usize) -> Option<Lack> {
        let receives = &self.link.receives[self.link.ends[to].receives].outstanding;
        let [sender, receiver] = [&self.progress[from], &self.progress[to]];
        let still = (receiver.arrived.len() + receives.len()).saturating_sub(want);
        let lack = receives.lacks(receiver.end, Queue::Receive, still);
        lack.or_else(|| sender.sends.lacks(sender.end, Queue::Send, 0))
    }

    /// Whether it is the message that did not come, and not its completion alone: then the receive has nothing in its memory, and
    /// takes the next message that comes.
    fn is_lost(&mut self, to: usize, lack: &Lack, messages: &[Message]) -> Result<bool, Failure> {
        let was_sent = self.progress.iter().all(|end| end.sends.len() == 0);
        if self.plan.transport.is_reliable() || !was_sent || lack.later.is_some() {
            return Ok(false);
        }
        let index = self.link.ends[to].receives;
        let again = self.in_vain.replace((index, lack.wr_id)) == Some((index, lack.wr_id));
        Ok(!again && !self.link.receives[index].holds(lack.wr_id, messages)?)
    }

    /// Takes what has completed at both ends; how many did.
    fn drain(&mut self) -> Result<usize, Failure> {
        let Link { ends: [a, b], receives, .. } = &mut *self.link;
        let [at_a, at_b] = &mut self.progress;
        let at_a = drain(&mut a.cq, at_a, &mut receives[a.receives].outstanding)?;
        let at_b = drain_lazily(&mut b.cq, at_b, &mut receives[b.receives].outstanding)?;
        self.ran.completions += (at_a + at_b) as u64;
        self.ran.waiting.polls += 2;
        self.ran.waiting.empty_polls += u64::from(at_a == 0) + u64::from(at_b == 0);
        Ok(at_a + at_b)
    }

    /// Compares what has arrived with what was sent, and gives it back.
    fn arrived(
        &mut self,
        from: usize,
        to: usize,
        messages: Vec<Message>,
        sent: Instant,
    ) -> Result<Vec<Message>, Failure> {
        let [sender, end] = [&self.link.ends[from], &self.link.ends[to]];
        let receives = &self.link.receives[end.receives];
        let mut arrived = Vec::with_capacity(messages.len());
        let (mut messages, lossy) = (messages.into_iter(), !self.plan.transport.is_reliable());
        let mut lost = |iteration| self.ran.lost.push(Lost { iteration, from: sender.name, to: end.name });
        for arrival in self.progress[to].arrived.drain(..) {
            let Some(message) = messages.next() else { break };
            let (mut iteration, mut payload) = message;
            let mut got = vec![0; payload.len()];
            let header = receives.read(arrival.wr_id, &mut got)?;
            if !is_to(end.peer.as_ref().and_then(|peer| peer.gid), &header) {
                return Err(Failure::Header { end: end.name, iteration });
            }
            // Those in front of the one that has come are lost. What has no number is known by what it says.
            let another = |iteration, payload: &Vec<u8>, later: &[Message]| match arrival.number {
                Some(number) => number != iteration,
                None => lossy && *payload != got && later.iter().any(|(_, payload)| *payload == got),
            };
            while another(iteration, &payload, messages.as_slice()) {
                lost(iteration);
                let Some(next) = messages.next() else { break };
                (iteration, payload) = next;
            }
            compare(end.name, iteration, &payload, &got)?;
            self.ran.latency.record(arrival.at.duration_since(sent));
            arrived.push((iteration, got));
        }
        messages.for_each(|(iteration, _)| lost(iteration));
        Ok(arrived)
    }
}

/// Whether a network header is that of a packet to this address: it ends with it, as IPv6 or IPv4. Packets without an address
/// have none.
fn is_to(gid: Option<[u8; 16]>, header: &[u8]) -> bool {
    let Some(gid) = gid else { return true };
    header.is_empty() || header.ends_with(&gid) || header.ends_with(&gid[12..]) && header.get(20) == Some(&0x45)
}

/// Posts the sends of a burst with one doorbell. Short payloads travel in the work request, longer ones in memory.
fn post_sends(end: &mut End, messages: &[Message], plan: &Plan) -> Result<(), PostError> {
    let piece = |(slot, (_, payload)): (u64, &Message)| {
        let addr = end.outgoing.addr() + slot * u64::from(plan.size);
        [Sge { addr, length: payload.len() as u32, lkey: end.outgoing.lkey() }]
    };
    let pieces: Vec<[Sge; 1]> = (0..).zip(messages).map(piece).collect();
    let ud = end.peer.as_ref().and_then(Peer::address);
    let requests: Vec<SendWr<'_>> = messages
        .iter()
        .zip(&pieces)
        .map(|((iteration, payload), sg_list)| {
            let inline = payload.len() <= INLINE as usize;
            SendWr {
                wr_id: *iteration,
                sg_list: if inline { &[] } else { sg_list },
                inline_data: if inline { payload } else { &[] },
                opcode: if plan.numbered {
                    WrOpcode::SendWithImm { imm_data: (*iteration as u32).to_be() }
                } else {
                    WrOpcode::Send
                },
                ud,
                send_flags: if inline { SendFlags::SIGNALED | SendFlags::INLINE } else { SendFlags::SIGNALED },
            }
        })
        .collect();
    ibv::post_send(&mut end.qp, &requests)
}

/// Compares a payload.
fn compare(end: &'static str, iteration: u64, sent: &[u8], got: &[u8]) -> Result<(), Failure> {
    let different = sent.iter().zip(got).enumerate().find(|(_, (sent, got))| sent != got);
    different.map_or(Ok(()), |(byte, (&sent, &got))| Err(Failure::Mismatch { end, iteration, byte, sent, got }))
}

#[cfg(test)]
mod tests {
    use mlx5_model::{Fault, ModelConfig};

    use super::*;
    use crate::rig::ModelRig;

    /// An IPv6 header ends with the whole address, an IPv4 header has 20 bytes, begins with 0x45 and ends with its last four.
    #[test]
    fn a_header_to_another_address_is_found() {
        let gid: [u8; 16] = *b"\xfe\x80\0\0\0\0\0\0\x02\x15\xb3\xff\xfe\0\0\x01";
        let (mut v6, mut v4) = ([0; 40], [0; 40]);
        (v6[0], v4[20]) = (0x60, 0x45);
        v6[24..].copy_from_slice(&gid);
        v4[36..].copy_from_slice(&gid[12..]);
        assert!(is_to(Some(gid), &v6) && is_to(Some(gid), &v4) && is_to(Some(gid), &[]));
        v6[24] = 0xfd;
        v4[39] = 2;
        assert!(!is_to(Some(gid), &v6) && !is_to(Some(gid), &v4) && !is_to(Some(gid), &[0; 40]));
    }

    /// A function that is pulled out in the middle: what it was is told, not what did not come.
    #[test]
    fn a_device_that_is_lost_in_the_middle_ends_the_round_trips_by_name() {
        for events in [false, true] {
            let rig = ModelRig::new(ModelConfig::default());
            let mut config = rig.default_config();
            (config.completion_vectors, config.interrupts) = (2, 3);
            let device = rig.open(config).unwrap();
            let channel = events.then(|| ibv::create_comp_channel(&device));
            let cqs = [0, 1].map(|vector| ibv::create_cq(&device, 64, 0, channel.as_ref(), vector).unwrap());
            let plan = Plan { iters: 1000, size: 64, ..Plan::default() };
            let (mut link, mut ran) = (Link::new(&device, cqs, &plan).unwrap(), Ran::default());
            rig.run_by_itself().unwrap();
            let sleep = channel.as_ref().map(|channel| Events::new(&device, channel));
            let model = rig.model().unwrap();
            let result = Rounds::new(&mut link, &device, &rig, &plan, sleep, &mut ran).run(|done| {
                if done >= 100 {
                    model.inject(Fault::Removed);
                }
            });
            let error = result.unwrap_err().to_string();
            assert!(error.contains("its registers read as all ones"), "{events}: {error}");
            assert!((100..1000).contains(&ran.verified), "{}", ran.verified);
        }
    }
}
