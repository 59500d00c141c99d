//! Parent domains (`ibv_alloc_parent_domain(3)`): queue memory from an allocator of the caller's own, which gets each piece
//! back once, after the device is done with it.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use mlx5::dv::{CqeCompLayout, ResourceType};
use mlx5::hw::platform::{DmaMem, Platform, PlatformError};
use mlx5::{
    Cq, CqInitAttrMask, Device, Error, ParentDomain, ParentDomainInitAttr, Pd, QueueAllocator, RecvWr, SendFlags,
    SendWr, ibv,
};
use mlx5_model::{Effect, Fault, Match, ViolationKind};

use crate::cq_create::{Attr, EINVAL, errno};
use crate::support::{Port, SIZES, close, connect, create_qp, open, poll_n};

const CREATE_CQ: u16 = 0x400;
const DESTROY_CQ: u16 = 0x401;

/// How an allocator answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Give {
    Memory,
    Default,
    Nothing,
    Short,
    IovaZero,
    IovaOdd,
    PointerOdd,
    IovaWraps,
}

/// An allocator that keeps books, and fills what it gives with `fill`.
pub struct Books {
    port: Port,
    ring: Give,
    record: Give,
    fill: u32,
    asked: Mutex<Vec<(usize, usize, ResourceType)>>,
    /// What it has given, by address: what lies behind it, and for what it was asked.
    live: Mutex<HashMap<usize, (DmaMem, ResourceType)>>,
}

impl Books {
    fn new(port: &Port, ring: Give, record: Give) -> Arc<Self> {
        let (asked, live) = (Mutex::default(), Mutex::default());
        Arc::new(Self { port: port.clone(), ring, record, fill: !0, asked, live })
    }

    fn live(&self) -> usize {
        self.live.lock().unwrap().len()
    }
}

// SAFETY: memory comes from the model, stays until it is freed, and is refused where it is not what it says.
unsafe impl QueueAllocator for Books {
    fn alloc(&self, size: usize, align: usize, resource: ResourceType) -> Result<Option<DmaMem>, PlatformError> {
        self.asked.lock().unwrap().push((size, align, resource));
        let give = if resource == ResourceType::CQ { self.ring } else { self.record };
        match give {
            Give::Default => return Ok(None),
            Give::Nothing => return Err(PlatformError::NoMemory),
            _ => {}
        }
        let whole = self.port.alloc(2 * size.max(4096), 4096)?;
        whole.words().iter().for_each(|word| word.store(self.fill, std::sync::atomic::Ordering::Relaxed));
        let at = |bytes| NonNull::new(whole.ptr().as_ptr().wrapping_add(bytes)).unwrap();
        let half = align / 2;
        let (ptr, iova, len) = match give {
            Give::Short => (at(0), whole.iova(), size - 1),
            Give::IovaZero => (at(0), 0, size),
            Give::IovaOdd => (at(0), whole.iova() + half as u64, size),
            Give::PointerOdd => (at(half), whole.iova(), size),
            Give::IovaWraps => (at(0), u64::MAX - 4095, 2 * size.max(4096)),
            _ => (at(0), whole.iova(), size),
        };
        assert!(self.live.lock().unwrap().insert(ptr.as_ptr() as usize, (whole, resource)).is_none());
        // SAFETY: within `whole`; where the I/O address is a lie the driver must not use it.
        Ok(Some(unsafe { DmaMem::new(ptr, iova, len) }))
    }

    unsafe fn free(&self, mem: DmaMem, resource: ResourceType) {
        let entry = self.live.lock().unwrap().remove(&(mem.ptr().as_ptr() as usize));
        let (whole, asked) = entry.expect("given, and not yet back");
        assert_eq!(asked, resource);
        // SAFETY: the caller's promise.
        unsafe { self.port.free(whole) };
    }
}

fn domain(dev: &Device, pd: &Pd, allocator: Option<Arc<dyn QueueAllocator>>) -> ParentDomain {
    ibv::alloc_parent_domain(dev, &ParentDomainInitAttr { pd: Some(pd), allocator }).expect("a parent domain")
}

fn attr(cqe: u32, domain: &ParentDomain) -> Attr<'_> {
    let mut attr = Attr::default();
    (attr.ex.cqe, attr.ex.parent_domain) = (cqe, Some(domain));
    attr.ex.comp_mask |= CqInitAttrMask::PD;
    attr
}

/// Messages of a queue pair to itself, through all of the ring and on.
pub fn traffic(port: &Port, dev: &Device, pd: &Pd, cq: &mut Cq) {
    let mut qp = create_qp(pd, cq, cq, SIZES);
    let me = qp.qp_num();
    connect(dev, &mut qp, me);
    for wr_id in 0..2 * u64::from(cq.cqe() + 1) {
        qp.post_recv(&[RecvWr { wr_id, sg_list: &[] }]).unwrap();
        qp.post_send(&[SendWr { wr_id, send_flags: SendFlags::SIGNALED, ..Default::default() }]).unwrap();
        let wcs = poll_n(port, cq, 2);
        assert!(wcs.iter().all(|wc| (wc.wr_id, wc.status) == (wr_id, mlx5::WcStatus::SUCCESS)), "{wcs:?}");
    }
    qp.destroy().map_err(|e| e.error).unwrap();
}

/// Test `parent_domain` of rdma-core: no allocator, the default, memory of its own, for ring and record each; extended CQs; what
/// was given comes back once. The memory is dirty: ring and record are initialised all the same.
#[test]
fn rings_and_records_lie_where_the_allocator_says() {
    use Give::{Default, Memory};
    for (ring, record) in [(Default, Default), (Memory, Default), (Default, Memory), (Memory, Memory)] {
        let plain = |_: &mut Attr<'_>| {};
        let enhanced: fn(&mut Attr<'_>) = |a| {
            a.compress(1);
            a.layout(CqeCompLayout::Enhanced);
        };
        for (fill, size, cqe, bytes, kind) in [
            (0, 64, 15, 4096, plain as fn(&mut Attr<'_>)),
            (!0, 128, 63, 8192, plain),
            (0x0101_0101, 64, 1, 4096, plain),
            (0, 64, 15, 4096, |a| a.compress(1)),
            (0, 64, 15, 4096, enhanced),
            (0x0100_0000, 128, 15, 4096, enhanced),
        ] {
            let (port, dev) = open();
            let mut books = Books::new(&port, ring, record);
            Arc::get_mut(&mut books).unwrap().fill = fill;
            let pd = dev.alloc_pd().unwrap();
            let parent = domain(&dev, &pd, Some(books.clone()));
            let mut attr = attr(cqe, &parent);
            attr.size(size);
            kind(&mut attr);
            let mut cq = attr.create(&dev).unwrap();
            let asked = vec![(bytes, 4096, ResourceType(1 << 32 | 5)), (8, 8, ResourceType(1 << 32 | 3))];
            assert_eq!(*books.asked.lock().unwrap(), asked);
            let own = [ring, record].into_iter().filter(|give| *give == Memory).count();
            assert_eq!(books.live(), own);
            traffic(&port, &dev, &pd, &mut cq);
            assert_eq!(books.live(), own);
            cq.destroy().map_err(|e| e.error).unwrap();
            assert_eq!((books.live(), books.asked.lock().unwrap().len()), (0, 2), "{ring:?} {record:?}");
            // Dropped instead of destroyed.
            drop(attr.create(&dev).unwrap());
            assert_eq!(books.live(), 0);
            ibv::dealloc_parent_domain(parent).map_err(|e| e.error).unwrap();
            pd.dealloc().map_err(|e| e.error).unwrap();
            close(&port, dev);
        }
    }
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    let parent = domain(&dev, &pd, None);
    traffic(&port, &dev, &pd, &mut attr(7, &parent).create(&dev).unwrap());
    drop((parent, pd));
    close(&port, dev);
}

/// A resize asks for a ring, not for a record; the old ring comes back when the new one is in use, a new one that is not used too.
#[test]
fn rings_of_resizes_are_the_allocators() {
    use Give::{Default, Memory};
    let refused = Effect::Status { status: 0x8, syndrome: 0 };
    for (ring, record) in [(Default, Default), (Memory, Default), (Memory, Memory)] {
        let (port, dev) = open();
        let books = Books::new(&port, ring, record);
        let pd = dev.alloc_pd().unwrap();
        let parent = domain(&dev, &pd, Some(books.clone()));
        let mut cq = attr(15, &parent).create(&dev).unwrap();
        let live = books.live();
        for (cqe, bytes) in [(127, 128 * 64), (3, 4096), (1000, 1024 * 64)] {
            cq.resize(cqe).unwrap();
            assert_eq!(books.asked.lock().unwrap().last(), Some(&(bytes, 4096, ResourceType::CQ)));
            assert_eq!(books.live(), live);
            traffic(&port, &dev, &pd, &mut cq);
        }
        assert_eq!(books.asked.lock().unwrap().len(), 2 + 3);
        port.model.inject(Fault::Command { at: Match::Opcode(0x403), effect: refused });
        assert!(cq.resize(15).is_err());
        port.dry.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(errno(cq.resize(15)), Some(12));
        port.dry.store(false, std::sync::atomic::Ordering::Relaxed);
        assert_eq!((books.live(), cq.cqe()), (live, 1023));
        cq.destroy().map_err(|e| e.error).unwrap();
        assert_eq!(books.live(), 0);
        drop((parent, pd));
        close(&port, dev);
    }
}

/// Case C-008: nothing of a CQ stays when its memory can't be had, or is not what was asked for.
#[test]
fn an_allocator_that_fails_or_gives_the_wrong_memory_gets_all_of_it_back() {
    use Give::{Default, IovaOdd, IovaWraps, IovaZero, Memory, Nothing, PointerOdd, Short};
    const ENOMEM: i32 = 12;
    for (ring, record, right) in [
        (Nothing, Memory, ENOMEM),
        (Memory, Nothing, ENOMEM),
        (Default, Nothing, ENOMEM),
        (Short, Memory, EINVAL),
        (IovaZero, Memory, EINVAL),
        (IovaOdd, Memory, EINVAL),
        (PointerOdd, Memory, EINVAL),
        (IovaWraps, Memory, EINVAL),
        (Memory, Short, EINVAL),
        (Memory, IovaZero, EINVAL),
        (Memory, IovaOdd, EINVAL),
        (Memory, PointerOdd, EINVAL),
    ] {
        let (port, dev) = open();
        let pd = dev.alloc_pd().unwrap();
        let books = Books::new(&port, ring, record);
        let parent = domain(&dev, &pd, Some(books.clone()));
        let before = (dev.command_counters(), port.model.dma_outstanding());
        let error = attr(7, &parent).create(&dev).expect_err("memory that is not there");
        assert_eq!(error.errno(), right, "{ring:?} {record:?}: {error}");
        assert_eq!((dev.command_counters(), port.model.dma_outstanding()), before, "{ring:?} {record:?}");
        assert_eq!(books.live(), 0);
        parent.dealloc().map_err(|e| e.error).expect("no CQ is in it");
        drop(pd);
        close(&port, dev);
    }
}

/// Case C-008, the device's part: it refuses the CQ.
#[test]
fn memory_of_a_cq_that_the_device_refuses_goes_back_to_the_allocator() {
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    let books = Books::new(&port, Give::Memory, Give::Memory);
    let parent = domain(&dev, &pd, Some(books.clone()));
    port.model
        .inject(Fault::Command { at: Match::Opcode(CREATE_CQ), effect: Effect::Status { status: 0x3, syndrome: 1 } });
    assert_eq!(errno(attr(7, &parent).create(&dev)), Some(EINVAL));
    assert_eq!((books.live(), dev.leaked().len()), (0, 0));
    parent.dealloc().map_err(|e| e.error).expect("no CQ is in it");
    drop(pd);
    close(&port, dev);
}

/// `ibv_alloc_parent_domain(3)`: the domain must be given; and case C-006: a parent domain that is not one of this device.
#[test]
fn domains_of_another_device_or_none_are_einval() {
    let ((port, dev), (other_port, other)) = (open(), open());
    let (pd, foreign) = (dev.alloc_pd().unwrap(), other.alloc_pd().unwrap());
    for pd in [None, Some(&foreign)] {
        let made = ibv::alloc_parent_domain(&dev, &ParentDomainInitAttr { pd, allocator: None });
        assert_eq!(errno(made), Some(EINVAL), "{pd:?}");
    }
    let books = Books::new(&other_port, Give::Memory, Give::Memory);
    let parent = domain(&other, &foreign, Some(books.clone()));
    assert_eq!(errno(attr(7, &parent).create(&dev)), Some(EINVAL));
    assert_eq!(books.asked.lock().unwrap().len(), 0, "refused before anything is allocated");
    // Without the mask bit it is not looked at.
    let mut unseen = attr(7, &parent);
    unseen.ex.comp_mask = CqInitAttrMask::empty();
    drop(unseen.create(&dev).unwrap());
    drop((parent, foreign, pd));
    close(&port, dev);
    close(&other_port, other);
}

#[test]
fn domains_with_cqs_in_them_are_busy_and_come_back() {
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    let books = Books::new(&port, Give::Memory, Give::Memory);
    let parent = domain(&dev, &pd, Some(books.clone()));
    let back = ibv::dealloc_pd(pd).unwrap_err();
    assert_eq!((back.error, back.error.errno()), (Error::Busy, 16), "a parent domain is in it");
    let pd = back.object;
    let cqs = [7, 15].map(|cqe| attr(cqe, &parent).create(&dev).unwrap());
    let mut parent = parent;
    for cq in cqs {
        let back = ibv::dealloc_parent_domain(parent).unwrap_err();
        assert_eq!(back.error, Error::Busy);
        parent = back.object;
        // It is as it was.
        drop(attr(3, &parent).create(&dev).unwrap());
        cq.destroy().map_err(|e| e.error).unwrap();
    }
    parent.dealloc().map_err(|e| e.error).unwrap();
    let parent = domain(&dev, &pd, Some(books.clone()));
    // A CQ keeps what it needs of a parent domain that was dropped.
    let mut cq = attr(7, &parent).create(&dev).unwrap();
    drop(parent);
    traffic(&port, &dev, &pd, &mut cq);
    let back = pd.dealloc().unwrap_err();
    assert_eq!(back.error, Error::Busy);
    cq.destroy().map_err(|e| e.error).unwrap();
    back.object.dealloc().map_err(|e| e.error).unwrap();
    assert_eq!((books.live(), Arc::strong_count(&books)), (0, 1));
    close(&port, dev);
}

/// Rule 5 of `docs/safety.md` for the caller's memory: it is kept, named, and given back once, when a reset has ended the
/// device's use of it.
#[test]
fn an_allocators_memory_that_the_device_may_hold_is_kept_until_a_reset() {
    for opcode in [CREATE_CQ, DESTROY_CQ] {
        let (port, dev) = open();
        let pd = dev.alloc_pd().unwrap();
        let books = Books::new(&port, Give::Memory, Give::Memory);
        let parent = domain(&dev, &pd, Some(books.clone()));
        port.model.inject(Fault::Command { at: Match::Every(opcode), effect: Effect::Never });
        let made = attr(7, &parent).create(&dev);
        let error = if opcode == CREATE_CQ {
            made.unwrap_err()
        } else {
            let back = made.unwrap().destroy().unwrap_err();
            assert!(dev.leaked().iter().all(|piece| piece.what != "completion queue"), "the CQ is still there");
            back.error
        };
        assert_eq!(error.errno(), 110);
        assert_eq!(books.live(), 2, "{opcode:#x}");
        let names: Vec<_> = dev.leaked().iter().map(|piece| (piece.what, piece.size)).collect();
        assert!(names.contains(&("completion queue", 4096)), "{names:?}");
        assert!(names.contains(&("doorbell record of a completion queue", 8)), "{names:?}");
        // Nobody else may know the allocator any more.
        let stays = Arc::downgrade(&books);
        drop((books, parent, pd));
        assert_eq!(stays.upgrade().map(|books| books.live()), Some(2));
        assert_eq!(dev.close().map_err(|back| back.error), Ok(()));
        assert!(stays.upgrade().is_none(), "{opcode:#x}: given back, and let go");
        assert_eq!((port.model.violations(), port.model.dma_outstanding()), (vec![], (0, 0)));
    }
}

/// And if no reset ever comes, never: the allocator stays for good.
#[test]
fn an_allocators_memory_that_stays_with_the_device_is_never_given_back() {
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    let books = Books::new(&port, Give::Memory, Give::Memory);
    let stays = Arc::downgrade(&books);
    let parent = domain(&dev, &pd, Some(books));
    port.no_reset.store(true, std::sync::atomic::Ordering::Relaxed);
    let cq = attr(7, &parent).create(&dev).unwrap();
    port.model.inject(Fault::Command { at: Match::Every(DESTROY_CQ), effect: Effect::Never });
    drop((cq, parent, pd, dev));
    assert_eq!(stays.upgrade().map(|books| books.live()), Some(2));
    let freed = |kind| kind != ViolationKind::ObjectsAtTeardown;
    assert!(!port.model.violations().iter().any(|v| freed(v.kind)), "nothing is freed under the device");
}
