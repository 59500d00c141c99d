//! When completions are compressed: those of a queue that come due in the same run are gathered, as long as each can follow
//! the one before in a session, and written when nothing more is due.

use super::cqe::Completion;
use super::session::{self, BLOCK, Mini};
use super::{cq, slot, sq};
use crate::device::Device;
use crate::dma::DmaFault;
use crate::model::Model;
use crate::objects::{Cq, MiniFormat};

/// What a compressed queue keeps between completions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gather {
    /// Completions that are not written yet.
    waiting: Vec<Completion>,
    /// The last entry that was written whole, if blocks of the enhanced layout may follow it.
    title: Option<Title>,
}

#[derive(Clone, Copy, Debug)]
struct Title {
    completion: Completion,
    /// Completions that it stands for so far, itself included.
    count: u32,
}

impl Gather {
    /// An entry was written that is no title for what follows.
    pub(super) fn forget_title(&mut self) {
        self.title = None;
    }

    pub(super) fn waiting(&self) -> u32 {
        self.waiting.len() as u32
    }
}

/// The most completions of a session of this queue; 1 when they are not compressed.
fn limit(dev: &Device, cq: &Cq) -> u32 {
    let most = dev.hca.caps.current("cqe_compression_max_num") as u32;
    let most = dev.data.session_limit.map_or(most, |knob| most.min(knob));
    if cq.compression.is_some() { most.min(cq.entries()).max(1) } else { 1 }
}

/// Takes in a completion of a queue that has room for it behind those that wait. False when it cannot be written.
pub(super) fn take(dev: &mut Device, cqn: u32, completion: Completion) -> bool {
    let Some(cq) = dev.objects.cqs.get(&cqn) else { return false };
    let limit = limit(dev, cq);
    let minis = cq.compression.map(|compression| compression.minis).filter(|_| limit > 1);
    let fits = minis.is_some_and(|minis| session::compressible(minis, &completion));
    let gather = &mut dev.data.cq(cqn).gather;
    gather.waiting.push(completion);
    if !fits || gather.waiting() >= limit {
        return flush(dev, cqn);
    }
    if !dev.data.gathering.contains(&cqn) {
        dev.data.gathering.push(cqn);
    }
    true
}

/// Whether a completion can be written together with those that wait.
pub(super) fn joins(dev: &mut Device, cqn: u32, completion: &Completion) -> bool {
    let Some(compression) = dev.objects.cqs.get(&cqn).and_then(|cq| cq.compression) else { return true };
    let waiting = &dev.data.cq(cqn).gather.waiting;
    let follows = |first: &Completion| session::continues(first, waiting.len() as u32, completion);
    waiting.first().is_none_or(|first| follows(first) && session::compressible(compression.minis, completion))
}

/// Nothing more is due at the present time. Returns whether anything was written.
pub(crate) fn settle(dev: &mut Device) -> bool {
    let queues = std::mem::take(&mut dev.data.gathering);
    for cqn in &queues {
        flush(dev, *cqn);
    }
    !queues.is_empty()
}

/// Writes what waits. Queue pairs whose completions could not be written break down.
pub(super) fn flush(dev: &mut Device, cqn: u32) -> bool {
    let Some(run) = dev.data.cqs.get_mut(&cqn) else { return true };
    let waiting = std::mem::take(&mut run.gather.waiting);
    if waiting.is_empty() {
        return true;
    }
    let Some(cq) = dev.objects.cqs.get(&cqn).filter(|cq| cq.status == 0) else { return false };
    let written = match cq.compression {
        Some(compression) if compression.enhanced => write_enhanced(dev, cqn, compression.minis, &waiting),
        Some(compression) if waiting.len() > 1 => write_basic(dev, cqn, compression.minis, &waiting),
        _ => waiting.iter().try_for_each(|completion| write_whole(dev, cqn, completion)),
    };
    if written.is_err() {
        cq::conclude(dev, cqn, written, 0, false);
        for completion in waiting {
            sq::broken(dev, completion.qpn);
        }
    }
    written.is_ok()
}

fn present(dev: &Device, cqn: u32) -> Result<Cq, DmaFault> {
    dev.objects.cqs.get(&cqn).cloned().ok_or(DmaFault::Blocked)
}

fn timestamp(dev: &Device, completion: &Completion) -> u64 {
    if completion.real_time { dev.real_time(completion.at) } else { dev.free_running(completion.at) }
}

fn write_whole(dev: &mut Device, cqn: u32, completion: &Completion) -> Result<(), DmaFault> {
    let cq = present(dev, cqn)?;
    let mut entry = completion.encode(timestamp(dev, completion));
    slot::own_and_sign(&cq, cq.producer, &mut entry.descriptor);
    slot::put(dev, &cq, cq.producer, &entry)?;
    cq::wrote(dev, cqn, 1, completion.counts_as_solicited());
    dev.data.counts.written += 1;
    dev.data.counts.inlined += u64::from(completion.data().is_some());
    Ok(())
}

fn write_basic(dev: &mut Device, cqn: u32, minis: MiniFormat, all: &[Completion]) -> Result<(), DmaFault> {
    let cq = present(dev, cqn)?;
    let Some(first) = all.first() else { return Ok(()) };
    let title = first.encode(timestamp(dev, first));
    let minis: Vec<Mini> = all.iter().map(|completion| session::mini(minis, completion)).collect();
    session::put_basic(dev, &cq, title, &minis, slot::own_and_sign)?;
    cq::wrote(dev, cqn, all.len() as u32, first.solicited);
    count(dev, all.len());
    Ok(())
}

/// Counts a session of `completions` minis.
fn count(dev: &mut Device, completions: usize) {
    let counts = &mut dev.data.counts;
    counts.written += completions as u64;
    counts.compressed += completions as u64;
    counts.sessions += 1;
}

/// A title, which is an entry of its own, unless the last one still holds; then blocks.
fn write_enhanced(dev: &mut Device, cqn: u32, minis: MiniFormat, all: &[Completion]) -> Result<(), DmaFault> {
    let mut rest = all;
    while let Some(first) = rest.first() {
        let cq = present(dev, cqn)?;
        let limit = limit(dev, &cq);
        let Some(mut title) = dev.data.cq(cqn).gather.title.filter(|title| holds(dev, title, limit, minis, first))
        else {
            write_whole(dev, cqn, first)?;
            dev.data.cq(cqn).gather.title = Some(Title { completion: *first, count: 1 });
            rest = &rest[1..];
            continue;
        };
        let (block, later) = rest.split_at(rest.len().min(BLOCK).min((limit - title.count) as usize));
        let block: Vec<Mini> = block.iter().map(|completion| session::mini(minis, completion)).collect();
        session::put_block(dev, &cq, &block)?;
        cq::wrote(dev, cqn, block.len() as u32, first.solicited);
        count(dev, block.len());
        title.count += block.len() as u32;
        dev.data.cq(cqn).gather.title = Some(title);
        rest = later;
    }
    Ok(())
}

/// Whether `next` can be told by a title that was written before.
fn holds(dev: &Device, title: &Title, limit: u32, minis: MiniFormat, next: &Completion) -> bool {
    let age = dev.clock.now().saturating_sub(title.completion.at);
    let fresh = age <= 1000 * dev.hca.caps.current("cqe_compression_timeout");
    let able = |completion| session::compressible(minis, completion);
    let follows = session::continues(&title.completion, title.count, next);
    fresh && title.count < limit && able(&title.completion) && able(next) && follows
}

impl Model {
    /// The most completions that one session of compressed completions has from now on, whatever `cqe_compression_max_num`
    /// allows; 0 and 1 turn compression off.
    pub fn set_session_limit(&self, completions: u32) {
        self.lock().data.session_limit = Some(completions);
    }
}
