//! A CQ of raw parts and its queues, and the naive model beside it: they are given the same entries and polled in the same way.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use mlx5::dv::{CqeCompLayout, CqeCompResFormat};
use mlx5::raw::{RawCqAttr, RawQp, RawQpAttr, RawSrq};
use mlx5::{Cpu, Cq, Entries, Packet, PollAttr, PollError, Poller, Wc, WcFlags, WcOpcode, WcResultFlags, WcStatus};
use mlx5_hw::ring::{Basic, Cqe64, Cqe128, Enhanced};

use crate::naive::{Bad, Layout, Mini, Naive, Next, Queue, STAMP};

/// What this processor has for polling.
pub fn levels() -> Vec<Cpu> {
    let mut levels = vec![Cpu::PORTABLE];
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: the processor says so.
        levels.extend(is_x86_feature_detected!("sse4.1").then(|| unsafe { Cpu::sse41() }));
        // SAFETY: the same.
        levels.extend(is_x86_feature_detected!("avx2").then(|| unsafe { Cpu::avx2() }));
    }
    levels
}

#[repr(align(64))]
struct Line([AtomicU8; 64]);

/// What polls, with its memory.
pub struct Facade {
    queues: Vec<RawQp>,
    srq: RawSrq,
    cq: Cq,
    ring: Box<[Line]>,
    record: Box<AtomicU64>,
    iterations: u32,
}

/// A ring, and whose completions are in it.
#[derive(Clone, Debug)]
pub struct Shape {
    pub log: u32,
    pub cqe_size: usize,
    pub layout: Layout,
    pub queues: HashMap<u32, Queue>,
}

impl Shape {
    pub fn naive(&self) -> Naive {
        Naive::new(self.log, self.cqe_size, self.layout, self.queues.clone())
    }

    pub fn facade(&self, cpu: Cpu) -> Facade {
        let lines = (self.cqe_size << self.log) / 64;
        let ring: Box<[Line]> = (0..lines).map(|_| Line([const { AtomicU8::new(0) }; 64])).collect();
        let record = Box::new(AtomicU64::new(u64::MAX));
        let attr = RawCqAttr {
            ring: NonNull::from(&*ring).cast(),
            log_cq_size: self.log,
            cqe_size: self.cqe_size as u16,
            compression: match self.layout {
                Layout::Plain => None,
                Layout::Basic(mini) => Some((CqeCompLayout::Basic, format(mini))),
                Layout::Enhanced(mini) => Some((CqeCompLayout::Enhanced, format(mini))),
            },
            record: NonNull::from(&*record).cast(),
            wc_flags: WcFlags::STANDARD,
            ignore_overrun: false,
            cpu,
        };
        // SAFETY: both are on the heap, in a value that drops the CQ first, and written to by atomics only.
        let cq = unsafe { Cq::from_raw_parts(&attr) }.unwrap();
        let srq = self.queues.values().find_map(|queue| match queue {
            Queue::Shared { srq, .. } => Some(&**srq),
            _ => None,
        });
        let srq = RawSrq::new(srq.unwrap_or_default()).unwrap();
        let mut queues = Vec::new();
        let mut sorted: Vec<_> = self.queues.iter().collect();
        sorted.sort_by_key(|(index, _)| **index);
        for (index, queue) in sorted {
            let attr = RawQpAttr { user_index: *index, ..RawQpAttr::default() };
            let (attr, gone) = match queue {
                Queue::Own { recv, send } => (RawQpAttr { recv_wr_ids: recv, send_wr_ids: send, ..attr }, false),
                Queue::Shared { send, .. } => (RawQpAttr { srq: Some(&srq), send_wr_ids: send, ..attr }, false),
                // One in two of them leaves requests of a shared queue.
                Queue::Gone => (RawQpAttr { srq: (index % 2 == 0).then_some(&srq), ..attr }, true),
            };
            let qp = RawQp::attach(&cq, &attr).unwrap();
            if !gone {
                queues.push(qp);
            }
        }
        Facade { queues, srq, cq, ring, record, iterations: 0 }
    }
}

const fn format(mini: Mini) -> CqeCompResFormat {
    match mini {
        Mini::Hash => CqeCompResFormat::HASH,
        Mini::Csum => CqeCompResFormat::CSUM,
        Mini::CsumStridx => CqeCompResFormat::CSUM_STRIDX,
        Mini::FtagStridx => CqeCompResFormat::FTAG_STRIDX,
        Mini::L34hStridx => CqeCompResFormat::L34H_STRIDX,
    }
}

/// An error as the model names it.
fn bad(error: PollError) -> Bad {
    match error {
        PollError::UnknownQueue { user_index, qpn } => Bad::Queue { user_index, qpn },
        PollError::UnknownOpcode { opcode, send_opcode, user_index } => Bad::Opcode { opcode, send_opcode, user_index },
        PollError::UnexpectedFormat { format, user_index } => Bad::Format { format, user_index },
        PollError::BadSession { count } => Bad::Session { count },
        PollError::Signature(_) => Bad::Signature,
        PollError::NoTagList { app_op, user_index } => Bad::TagList { app_op, user_index },
        other => panic!("{other}"),
    }
}

impl Facade {
    /// Writes the ring.
    pub fn lay(&self, bytes: &[u8]) {
        for (line, bytes) in self.ring.iter().zip(bytes.chunks(64)) {
            line.0.iter().zip(bytes).for_each(|(to, byte)| to.store(*byte, Relaxed));
        }
    }

    /// Compares with the model's ring, byte by byte, and makes them equal where both are right.
    pub fn ring_is(&self, naive: &Naive) -> bool {
        let lines_a_slot = naive.cqe_size / 64;
        let alike = self.ring.iter().zip(naive.ring.chunks(64)).enumerate().all(|(at, (line, bytes))| {
            let mut seen = line.0.each_ref().map(|byte| byte.load(Relaxed));
            if seen[60..] == STAMP && naive.may_be_stamped.contains(&((at / lines_a_slot) as u32)) {
                seen[60..].copy_from_slice(&bytes[60..]);
            }
            seen == bytes
        });
        self.lay(&naive.ring);
        alike
    }

    /// The consumer index in the doorbell record; `None` if nothing was ever written there. The arm word never is.
    pub fn record(&self) -> Option<u32> {
        let bytes = self.record.load(Relaxed).to_ne_bytes();
        assert_eq!(bytes[4..], [0xff; 4]);
        Some(u32::from_be_bytes(bytes[..4].try_into().unwrap())).filter(|ci| *ci != u32::MAX)
    }

    /// `poll_cq`.
    pub fn poll_cq(&mut self, most: usize) -> Result<Vec<Wc>, Bad> {
        let mut wcs = vec![Wc::default(); most];
        let n = self.cq.poll_cq(&mut wcs).map_err(bad)?;
        wcs.truncate(n);
        Ok(wcs)
    }

    /// `poll_packets`.
    pub fn poll_packets(&mut self, most: usize) -> Result<Vec<Packet>, Bad> {
        let mut packets = vec![Packet::default(); most];
        let n = self.cq.poll_packets(&mut packets).map_err(bad)?;
        packets.truncate(n);
        Ok(packets)
    }

    /// `start_poll` and `next`, as [`Naive::iterate`] does it: every other time by the poller for the ring's format alone.
    pub fn iterate(&mut self, most: usize) -> Vec<Next> {
        self.iterations += 1;
        if self.iterations.is_multiple_of(2) { self.iterate_any(most) } else { self.iterate_format(most) }
    }

    /// By the poller for any ring.
    pub fn iterate_any(&mut self, most: usize) -> Vec<Next> {
        iterate(self.cq.start_poll(&PollAttr::default()), most)
    }

    /// By the poller for the ring's format.
    pub fn iterate_format(&mut self, most: usize) -> Vec<Next> {
        macro_rules! if_it_has {
            ($($format:ty),*) => {$(
                if let Some(mut ring) = self.cq.as_ring::<$format>() {
                    return iterate(ring.start_poll(&PollAttr::default()), most);
                }
            )*};
        }
        if_it_has!(Cqe64, Cqe128, Basic<Cqe64>, Basic<Cqe128>, Enhanced<Cqe64>, Enhanced<Cqe128>);
        unreachable!("a ring has one of the formats");
    }

    /// What has ended is posted again.
    pub fn post_again(&self) {
        for queue in &self.queues {
            queue.announce_receives(u32::MAX);
            queue.announce_sends(u32::MAX);
        }
        self.srq.post_again();
    }
}

/// All that the iterator tells is compared with the whole.
fn iterate<F: Entries>(poller: Result<Poller<'_, F>, PollError>, most: usize) -> Vec<Next> {
    let answer = |result: Result<mlx5::Completion<'_>, PollError>| match result {
        Ok(completion) => {
            let wc = completion.to_wc();
            assert_eq!((completion.wr_id(), completion.status()), (wc.wr_id, wc.status));
            // Tag matching shows to the iterator only.
            let opcode = completion.opcode().unwrap_or_default();
            let tagged = matches!(opcode, WcOpcode::TM_RECV | WcOpcode::TM_NO_TAG);
            assert!(opcode == wc.opcode || tagged && wc.opcode == WcOpcode::RECV, "{opcode}, {}", wc.opcode);
            let tags = WcResultFlags::TM_MATCH | WcResultFlags::TM_DATA_VALID;
            if wc.status == WcStatus::SUCCESS {
                assert_eq!(completion.wc_flags() - tags, wc.flags());
            }
            assert_eq!(completion.byte_len().unwrap_or_default(), wc.byte_len);
            assert_eq!(completion.qp_num(), Some(wc.qp_num));
            assert_eq!(completion.imm_data().or(completion.invalidated_rkey()).unwrap_or_default(), wc.imm_data);
            Next::Completion(wc)
        }
        Err(PollError::Empty) => Next::Nothing,
        Err(error) => Next::Bad(bad(error)),
    };
    let mut poller = match poller {
        Ok(poller) => poller,
        Err(error) => return vec![answer(Err(error))],
    };
    let mut seen = vec![answer(Ok(poller.completion()))];
    while seen.len() < most {
        seen.push(answer(poller.next()));
    }
    seen
}
