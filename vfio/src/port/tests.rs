//! Memory for the device, against a fake of the kernel's map that is as strict as the real one, and a naive model of who has what.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use mlx5_hw::platform::DmaMem;
use proptest::prelude::*;
use rustix::io::Errno;

use super::arena::Arena;
use super::domain::{Domain, Iommu};
use super::function::Memory;
use super::iova::IovaSpace;
use super::memory::HUGE;
use super::user_memory::UserMemory;

const PAGE: usize = 4096;

/// What the kernel has mapped, and what it answers next.
#[derive(Default)]
struct Kernel {
    /// By I/O address: where in the process, and how long.
    maps: BTreeMap<u64, (usize, usize)>,
    /// Answers to the next maps, the last one first.
    map_answers: Vec<Result<(), Errno>>,
    refuse_unmap: Option<Errno>,
    /// The map that it does not end.
    keeps: Option<u64>,
}

impl Kernel {
    /// Where the device's access to `len` bytes at an I/O address ends up.
    fn translate(&self, iova: u64, len: usize) -> Option<usize> {
        let (start, (ptr, whole)) = self.maps.range(..=iova).next_back()?;
        let at = (iova - start) as usize;
        (at + len <= *whole).then_some(ptr + at)
    }
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Kernel>>);

impl Fake {
    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.0.lock().unwrap()
    }

    fn domain(&self) -> Domain {
        Domain::new(Box::new(self.clone()), IovaSpace::new(&[(0, (64 << 20) - 1)]), PAGE)
    }
}

impl Iommu for Fake {
    unsafe fn map(&self, iova: u64, ptr: NonNull<u8>, len: usize) -> Result<(), Errno> {
        let mut kernel = self.kernel();
        kernel.map_answers.pop().unwrap_or(Ok(()))?;
        let ptr = ptr.as_ptr() as usize;
        assert!(len > 0 && [iova as usize, ptr, len].iter().all(|n| n.is_multiple_of(PAGE)), "whole pages only");
        let free = kernel.maps.iter().all(|(&at, &(_, size))| at + size as u64 <= iova || iova + len as u64 <= at);
        assert!(free && iova > 0, "{iova:#x} is mapped already");
        kernel.maps.insert(iova, (ptr, len));
        Ok(())
    }

    fn unmap(&self, iova: u64, len: usize) -> Result<(), Errno> {
        let mut kernel = self.kernel();
        kernel.refuse_unmap.map_or(Ok(()), Err)?;
        if kernel.keeps == Some(iova) {
            return Err(Errno::IO);
        }
        assert_eq!(kernel.maps.remove(&iova).map(|(_, size)| size), Some(len), "not what was mapped at {iova:#x}");
        Ok(())
    }
}

/// Writes all over memory, as its owner and the device would.
fn scribble(mem: &DmaMem) {
    mem.words().iter().for_each(|word| word.store(0xdead_beef, Ordering::Relaxed));
}

fn is_zero(mem: &DmaMem) -> bool {
    mem.words().iter().all(|word| word.load(Ordering::Relaxed) == 0)
}

fn overlap(a: (u64, usize), b: (u64, usize)) -> bool {
    a.0 < b.0 + b.1 as u64 && b.0 < a.0 + a.1 as u64
}

/// What a random program does with memory.
#[derive(Clone, Debug)]
enum Step {
    Alloc { size: usize, log_align: u32 },
    Free { nth: usize },
    Map { from: usize, len: usize },
    Unmap { nth: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![1..300usize, Just(PAGE), Just(64 << 10), (1 << 20)..(5usize << 20)];
    let step = prop_oneof![
        4 => (size, 6..22u32).prop_map(|(size, log_align)| Step::Alloc { size, log_align }),
        3 => any::<usize>().prop_map(|nth| Step::Free { nth }),
        1 => (0..20_000usize, 1..60_000usize).prop_map(|(from, len)| Step::Map { from, len }),
        1 => any::<usize>().prop_map(|nth| Step::Unmap { nth }),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Each piece is zeroed, aligned, reached by the device where it is said to be, and nobody else's; all of it comes back.
    #[test]
    fn pieces_are_zeroed_aligned_apart_reachable_and_come_back(steps in steps()) {
        let (fake, own) = (Fake::default(), vec![0u8; 80_000]);
        let (mut domain, mut arena, mut user) = (fake.domain(), Arena::new(false), UserMemory::default());
        let (mut pieces, mut lent): (Vec<DmaMem>, Vec<(u64, usize)>) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Alloc { size, log_align } => {
                    let Ok(mem) = arena.alloc(&mut domain, size, 1 << log_align) else { continue };
                    let place = (mem.iova(), size);
                    prop_assert!(mem.size() == size && is_zero(&mem));
                    let addresses = [mem.iova(), mem.ptr().as_ptr() as u64];
                    prop_assert!(addresses.iter().all(|address| address.is_multiple_of(1 << log_align)));
                    prop_assert_eq!(fake.kernel().translate(mem.iova(), size), Some(mem.ptr().as_ptr() as usize));
                    let others = pieces.iter().map(|other| (other.iova(), other.size())).chain(lent.iter().copied());
                    prop_assert!(others.into_iter().all(|other| !overlap(other, place)));
                    scribble(&mem);
                    pieces.push(mem);
                }
                Step::Free { nth } if !pieces.is_empty() => {
                    let mem = pieces.swap_remove(nth % pieces.len());
                    arena.free(&mut domain, &mem);
                }
                Step::Map { from, len } => {
                    let ptr = NonNull::from(&own[from]);
                    // SAFETY: the fake maps nothing, so nobody reaches it.
                    let Ok(iova) = (unsafe { user.map(&mut domain, ptr, len) }) else { continue };
                    prop_assert_eq!(fake.kernel().translate(iova, len), Some(ptr.as_ptr() as usize));
                    lent.push((iova, len));
                }
                Step::Unmap { nth } if !lent.is_empty() => {
                    let (iova, len) = lent.swap_remove(nth % lent.len());
                    prop_assert_eq!(user.unmap(&mut domain, iova, len), Ok(()));
                }
                Step::Free { .. } | Step::Unmap { .. } => {}
            }
            let bytes: usize = pieces.iter().map(DmaMem::size).sum();
            prop_assert_eq!((arena.outstanding, arena.outstanding_bytes), (pieces.len() as u64, bytes as u64));
            let kernel = fake.kernel();
            let mapped: usize = kernel.maps.values().map(|(_, len)| len).sum();
            prop_assert_eq!(domain.mapped(), (kernel.maps.len() as u64, mapped as u64));
        }
        pieces.iter().for_each(|mem| arena.free(&mut domain, mem));
        lent.iter().for_each(|(iova, len)| user.unmap(&mut domain, *iova, *len).unwrap());
        prop_assert!(fake.kernel().maps.len() <= 1, "of empty chunks one is kept");
        prop_assert_eq!(arena.withdraw(&mut domain), Ok(()));
        prop_assert_eq!((fake.kernel().maps.len(), domain.mapped()), (0, (0, 0)));
    }
}

#[test]
fn a_refused_map_costs_nothing_and_is_told_with_its_size() {
    let (fake, mut arena) = (Fake::default(), Arena::new(false));
    let mut domain = fake.domain();
    for errno in [Errno::NOMEM, Errno::NOSPC, Errno::INVAL] {
        fake.kernel().map_answers = vec![Err(errno)];
        assert_eq!(arena.alloc(&mut domain, 100, 64).err(), Some((HUGE, errno)));
    }
    assert_eq!((domain.mapped(), arena.outstanding), ((0, 0), 0));
    let whole = arena.alloc(&mut domain, 60 << 20, HUGE).unwrap();
    assert_eq!(arena.alloc(&mut domain, 8 << 20, HUGE).err(), Some((8 << 20, Errno::NOSPC)), "no addresses are left");
    arena.free(&mut domain, &whole);
}

/// A system whose huge pages cannot be mapped, or that has none, gives small ones.
#[test]
fn without_huge_pages_small_ones_are_taken() {
    let (fake, mut arena) = (Fake::default(), Arena::new(true));
    let mut domain = fake.domain();
    // What is asked for in the right order last: the small pages, and before them the huge ones, if there are any at all.
    fake.kernel().map_answers = vec![Ok(()), Err(Errno::FAULT)];
    arena.prepare(&mut domain).or_else(|_| arena.prepare(&mut domain)).unwrap();
    assert_eq!((domain.mapped(), arena.huge_bytes()), ((1, HUGE as u64), 0));
}

/// What the kernel does not unmap may be written to for ever: it is never given to anybody else, nor are its addresses.
#[test]
fn what_is_not_unmapped_is_never_used_again() {
    let (fake, mut arena) = (Fake::default(), Arena::new(false));
    let mut domain = fake.domain();
    let [first, second] = [(); 2].map(|()| arena.alloc(&mut domain, HUGE, 64).unwrap());
    fake.kernel().refuse_unmap = Some(Errno::IO);
    arena.free(&mut domain, &first);
    arena.free(&mut domain, &second);
    assert_eq!((domain.mapped().0, arena.outstanding), (2, 0));
    assert_eq!(arena.withdraw(&mut domain), Err(Errno::IO));
    fake.kernel().refuse_unmap = None;
    let mut again = Vec::new();
    while let Ok(mem) = arena.alloc(&mut domain, HUGE, 64) {
        assert_ne!(mem.iova(), second.iova(), "the second one's chunk was to be given back");
        assert!(mem.ptr().as_ptr().addr().abs_diff(second.ptr().as_ptr().addr()) >= HUGE, "nor is it mapped elsewhere");
        again.push(mem);
    }
    assert!(again.len() >= 28);
    scribble(&second);
}

/// The end of a function does not take memory from those who have not given it back; the device does not reach it any more.
#[test]
fn memory_that_is_still_held_outlives_the_arena_but_not_for_the_device() {
    let (fake, mut arena) = (Fake::default(), Arena::new(false));
    let mut domain = fake.domain();
    let held = arena.alloc(&mut domain, PAGE, PAGE).unwrap();
    arena.withdraw(&mut domain).unwrap();
    assert!(fake.kernel().maps.is_empty());
    let given_back = arena.alloc(&mut domain, HUGE, 64).unwrap();
    arena.free(&mut domain, &given_back);
    arena.withdraw(&mut domain).unwrap();
    drop(arena);
    scribble(&held);
    assert!(!is_zero(&held));
}

#[test]
fn the_callers_memory_is_mapped_in_whole_pages_and_unmapped_exactly() {
    let (fake, mut user) = (Fake::default(), UserMemory::default());
    let mut domain = fake.domain();
    let own = vec![0u8; 4 * HUGE];
    let inside = own.as_ptr() as usize;
    let page = NonNull::from(&own[PAGE - inside % PAGE + 7]);
    // SAFETY: the fake maps nothing, so nobody reaches it.
    let [small, twice] = [(); 2].map(|()| unsafe { user.map(&mut domain, page, PAGE) }.unwrap());
    assert_eq!((small % PAGE as u64, domain.mapped()), (7, (2, 4 * PAGE as u64)), "two pages, and the same ones again");
    // SAFETY: as above.
    let large = unsafe { user.map(&mut domain, page, 3 * HUGE) }.unwrap();
    assert_eq!(large % HUGE as u64, page.as_ptr() as u64 % HUGE as u64, "large pages stay large");
    assert_eq!(user.unmap(&mut domain, small, PAGE - 1), Err(Errno::INVAL));
    assert_eq!(user.unmap(&mut domain, small + 1, PAGE), Err(Errno::INVAL));
    fake.kernel().refuse_unmap = Some(Errno::IO);
    assert_eq!(user.unmap(&mut domain, small, PAGE), Err(Errno::IO));
    assert_eq!(user.withdraw(&mut domain), Err(Errno::IO));
    assert!(user.holds(small) && user.holds(large), "they can be tried again");
    fake.kernel().refuse_unmap = None;
    assert_eq!(user.unmap(&mut domain, small, PAGE), Ok(()));
    assert_eq!(user.unmap(&mut domain, small, PAGE), Err(Errno::INVAL), "once only");
    assert_eq!((user.withdraw(&mut domain), fake.kernel().maps.len()), (Ok(()), 0));
    assert!(!user.holds(twice));
    for _ in 0..20 {
        // SAFETY: as above.
        let iova =
            unsafe { user.map(&mut domain, page, 3 * HUGE) }.expect("addresses come back with what lay before them");
        user.unmap(&mut domain, iova, 3 * HUGE).unwrap();
    }
    // SAFETY: as above.
    assert_eq!(unsafe { user.map(&mut domain, page, 0) }, Err((0, Errno::INVAL)));
}

/// A function that does not answer counts as reset once nothing is mapped for it, and not before.
#[test]
fn a_function_is_cut_off_only_when_the_kernel_has_ended_every_map() {
    for kept in 0..3 {
        let fake = Fake::default();
        let (domain, arena, user) = (fake.domain(), Arena::new(false), UserMemory::default());
        let mut memory = Memory { domain, arena, user, cut_off: false };
        let own = vec![0u8; PAGE];
        let pieces = [(); 2].map(|()| memory.arena.alloc(&mut memory.domain, HUGE, 64).unwrap());
        // SAFETY: the fake maps nothing, so nobody reaches it.
        let lent = unsafe { memory.user.map(&mut memory.domain, NonNull::from(&own[0]), PAGE) }.unwrap();
        let iovas = [pieces[0].iova(), pieces[1].iova(), lent - lent % PAGE as u64];
        fake.kernel().keeps = Some(iovas[kept]);
        assert_eq!((memory.cut_off(), memory.cut_off), (Err(Errno::IO), true), "map {kept} is left");
        assert_eq!(fake.kernel().maps.keys().copied().collect::<Vec<_>>(), [iovas[kept]], "the rest has gone");
        fake.kernel().keeps = None;
        assert_eq!((memory.cut_off(), memory.domain.mapped()), (Ok(()), (0, 0)));
        assert!(fake.kernel().maps.is_empty() && memory.cut_off() == Ok(()), "once is enough");
    }
}
