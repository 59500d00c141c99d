//! Memory of the program's own, registered as it is.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use mlx5::{AccessFlags, Mr, Pd, Remote, Sge, WcOpcode, WrOpcode, ibv};

use super::{Step, step};
use crate::cq::Attributes;
use crate::selftest::bench::{Bench, Pair, REMOTE, Setup, pattern, same};
use crate::selftest::outcome::{Doing, Done, Trouble, ensure, wrong};

/// Bytes of a region: it ends in the middle of a page.
const LENGTH: usize = 3 * 4096 + 100;
/// Where it begins in its first page.
const OFFSET: usize = 24;

pub(super) fn steps() -> Vec<Step> {
    let shows = "memory of the program's own is registered, read and written by the device";
    vec![step("user-memory", shows, &[], user_memory)]
}

/// Heap memory that the device may reach, and so never behind a reference.
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

impl Memory {
    fn new() -> Result<Self, Trouble> {
        let Ok(layout) = Layout::from_size_align(OFFSET + LENGTH, 4096) else { return wrong("no such layout") };
        // SAFETY: the layout's size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        start.map_or_else(|| wrong("no memory"), |start| Ok(Self { start, layout }))
    }

    /// The first of `LENGTH` bytes.
    fn region(&self) -> NonNull<u8> {
        // SAFETY: within the allocation.
        unsafe { self.start.add(OFFSET) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated so, once; the device does not reach it any more, or it would have been forgotten.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Registered memory. It is freed once the registration has ended, and kept for good if that fails.
struct Region {
    mr: Option<Mr>,
    memory: Option<Memory>,
}

impl Region {
    fn new(pd: &Pd) -> Result<Self, Trouble> {
        let memory = Memory::new()?;
        // SAFETY: `end` sees to it that the memory is freed after the registration only; nothing refers to it, and it is
        // copied to and from through raw pointers while no request names it.
        match unsafe { ibv::reg_mr(pd, memory.region(), LENGTH, REMOTE | AccessFlags::LOCAL_WRITE) } {
            Ok(mr) => Ok(Self { mr: Some(mr), memory: Some(memory) }),
            Err(error) => {
                if !error.refused() {
                    std::mem::forget(memory);
                }
                Err(error).doing("registering memory of the program's own")
            }
        }
    }

    fn write(&self, data: &[u8]) {
        let Some(memory) = &self.memory else { return };
        let length = data.len().min(LENGTH);
        // SAFETY: within the region, which `data` is no part of.
        unsafe { memory.region().as_ptr().copy_from_nonoverlapping(data.as_ptr(), length) }
    }

    fn read(&self) -> Vec<u8> {
        let mut out = vec![0; LENGTH];
        if let Some(memory) = &self.memory {
            // SAFETY: the whole region, which `out` is no part of.
            unsafe { memory.region().as_ptr().copy_to_nonoverlapping(out.as_mut_ptr(), LENGTH) }
        }
        out
    }

    fn address(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.region().addr().get() as u64)
    }

    fn key(&self) -> u32 {
        self.mr.as_ref().map_or(0, Mr::lkey)
    }

    fn sge(&self) -> Sge {
        Sge { addr: self.address(), length: LENGTH as u32, lkey: self.key() }
    }

    fn remote(&self) -> Remote {
        Remote { addr: self.address(), rkey: self.key() }
    }

    /// Ends the registration.
    fn end(&mut self) -> Result<(), Trouble> {
        let ended = self.mr.take().map_or(Ok(()), ibv::dereg_mr);
        if ended.is_err() {
            // It is still the device's.
            std::mem::forget(self.memory.take());
        }
        ended.doing("deregistering memory of the program's own")
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // A step that failed has told why already.
        let _ = self.end();
    }
}

fn user_memory(bench: &Bench<'_>) -> Done {
    let cqs = bench.cqs(&Attributes { cqe: 31, ..Attributes::default() })?;
    bench.in_pd(|pd| bench.with_pair(pd, cqs, &Setup::default(), |pair| there_and_back(bench, pd, pair)))
}

fn there_and_back(bench: &Bench<'_>, pd: &Pd, pair: &mut Pair) -> Done {
    let mut regions = [Region::new(pd)?, Region::new(pd)?];
    let [from, to] = &regions;
    let data = pattern(7, LENGTH);
    from.write(&data);
    pair.receive(0, &[to.sge()])?;
    pair.post(0, WrOpcode::Send, &[from.sge()])?;
    bench.succeed(&mut pair.cq[0], 0..1)?;
    bench.succeed(&mut pair.cq[1], 0..1)?;
    same(&data, &to.read())?;
    let data = pattern(8, LENGTH);
    to.write(&data);
    pair.post(1, WrOpcode::RdmaRead { remote: to.remote() }, &[from.sge()])?;
    let wcs = bench.succeed(&mut pair.cq[0], 1..2)?;
    ensure(wcs.iter().all(|wc| wc.opcode == WcOpcode::RDMA_READ), || "a read completes as something else".into())?;
    same(&data, &from.read())?;
    regions.iter_mut().try_for_each(Region::end)?;
    Ok(format!("2 regions of {LENGTH} bytes, {OFFSET} bytes into a page"))
}
