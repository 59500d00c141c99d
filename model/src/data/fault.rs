//! Faults of the data path on demand: what cables, firmware and memory do to real traffic.

use std::collections::VecDeque;

use super::cqe::{Completion, CqeError};
use crate::model::Model;

/// Something that goes wrong once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataFault {
    /// Byte `offset` (modulo its length) of a message is XORed with `xor` on the wire, also of what a read or an atomic brings
    /// back. Empty messages do not count.
    CorruptPayload {
        /// Position of the byte in the message.
        offset: u64,
        /// What it is XORed with; 0 changes nothing.
        xor: u8,
    },
    /// A message is not sent: it completes in error, and its queue pair goes to error.
    FailSend {
        /// Syndrome of the error completion.
        syndrome: u8,
        /// Vendor syndrome of the error completion.
        vendor: u8,
    },
    /// A message of an unreliable transport gets lost on the wire: its request completes, and nothing arrives. Only such messages
    /// count.
    LostMessage,
    /// A completion is never written.
    LostCqe,
    /// A completion changes places with the next one of its queue, or is written after `ns` nanoseconds when none comes.
    SwappedCqe {
        /// Nanoseconds of model time.
        ns: u64,
    },
    /// The WQE counter of a completion is off by `add`.
    WrongCounter {
        /// Added modulo 2^16.
        add: u16,
    },
    /// A completion, and with it all later ones of its queue, is written `ns` nanoseconds late.
    LateCqe {
        /// Nanoseconds of model time.
        ns: u64,
    },
}

impl DataFault {
    fn hits_messages(&self) -> bool {
        matches!(self, DataFault::CorruptPayload { .. } | DataFault::FailSend { .. })
    }

    fn hits_completions(&self) -> bool {
        !self.hits_messages() && *self != DataFault::LostMessage
    }
}

/// Which byte of a message is XORed on the wire, and with what.
pub(crate) type Corruption = Option<(usize, u8)>;

/// Faults that wait for their turn.
#[derive(Default)]
pub(crate) struct Faults {
    /// The fault, and how many messages or completions it still lets pass.
    waiting: VecDeque<(DataFault, u64)>,
}

impl Faults {
    /// Counts one message (or completion) for every waiting fault of that sort, and takes the first whose turn it is.
    fn next(&mut self, counts: impl Fn(&DataFault) -> bool) -> Option<DataFault> {
        let mut hit = None;
        for (i, (fault, skip)) in self.waiting.iter_mut().enumerate() {
            if counts(fault) {
                if *skip > 0 {
                    *skip -= 1;
                } else if hit.is_none() {
                    hit = Some(i);
                }
            }
        }
        self.waiting.remove(hit?).map(|(fault, _)| fault)
    }

    /// A message of `len` bytes is about to go on the wire for the first time. An error is what it completes with instead.
    pub(crate) fn message(&mut self, len: u64) -> Result<Corruption, CqeError> {
        if self.waiting.is_empty() {
            return Ok(None);
        }
        let empty = len == 0;
        let counts =
            |fault: &DataFault| fault.hits_messages() && !(empty && matches!(fault, DataFault::CorruptPayload { .. }));
        match self.next(counts) {
            Some(DataFault::CorruptPayload { offset, xor }) => Ok(Some(((offset % len) as usize, xor))),
            Some(DataFault::FailSend { syndrome, vendor }) => Err(CqeError { syndrome, vendor }),
            _ => Ok(None),
        }
    }

    /// Whether a message of an unreliable transport that is on the wire gets lost.
    pub(crate) fn loses(&mut self) -> bool {
        !self.waiting.is_empty() && self.next(|fault| *fault == DataFault::LostMessage).is_some()
    }

    /// A completion is about to be written.
    pub(crate) fn completion(&mut self, completion: &mut Completion) -> Option<DataFault> {
        if self.waiting.is_empty() {
            return None;
        }
        let fault = self.next(DataFault::hits_completions)?;
        if let DataFault::WrongCounter { add } = fault {
            completion.wqe_counter = completion.wqe_counter.wrapping_add(add);
        }
        Some(fault)
    }
}

impl Model {
    /// Lets `fault` happen once, after `skip` messages or completions (whichever it hits) have passed unharmed. Faults
    /// that are waiting at a reset of the function stay.
    pub fn inject_data(&self, fault: DataFault, skip: u64) {
        self.lock().data.faults.waiting.push_back((fault, skip));
    }
}
