//! Queues that are made and destroyed a million times, with completions that nobody polled: no index and no memory is lost,
//! and no completion goes to the next queue.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use mlx5::dv::{CqeCompLayout, CqeCompResFormat};
use mlx5::hw::cmd::QueryQp;
use mlx5::{Cq, Device, Pd, Qp, QpAttr, QpCap, QpState, RecvWr, SendWr, Wc, WcStatus};

use crate::cases;
use crate::plan::Plan;
use crate::support::{INIT, close, create_qp, open, path_to};

/// Counts the bytes that a thread has taken and not given back.
struct Counting;

thread_local!(static LIVE: Cell<isize> = const { Cell::new(0) });

fn count(bytes: isize) {
    // A thread that ends has no counter any more; nobody asks.
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// 2^20 where the properties are tried at length, else 2^11.
fn cycles() -> u64 {
    if cases() >= 10_000 { 1 << 20 } else { 1 << 11 }
}

/// Watches that neither the process's memory nor the device's grows from the first eighth on.
#[derive(Default)]
struct Memory {
    first: Option<(isize, (usize, usize))>,
}

impl Memory {
    fn look(&mut self, cycle: u64, outstanding: (usize, usize)) {
        if !(cycle + 1).is_multiple_of(cycles() / 8) {
            return;
        }
        let now = LIVE.get();
        let (live, dma) = *self.first.get_or_insert((now, outstanding));
        assert_eq!(outstanding, dma, "memory of the device, cycle {cycle}");
        // In a short run the model still notes its first 65,536 commands.
        let room = if cycles() > 1 << 16 { 1 << 20 } else { 64 << 20 };
        assert!(now < live + room, "cycle {cycle}: {live} bytes became {now}");
    }
}

const SHAPE: QpCap = QpCap { max_send_wr: 2, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };

/// A queue pair in error, with two receives and one send that the device has flushed.
fn flushed(dev: &Device, pd: &Pd, send: &Cq, recv: &Cq, wr_id: u64) -> Qp {
    let mut qp = create_qp(pd, send, recv, SHAPE);
    qp.modify(&QpAttr { qp_state: QpState::Init, ..path_to(dev, 0) }, INIT).unwrap();
    let recv = |wr_id| RecvWr { wr_id, sg_list: &[] };
    qp.post_recv(&[recv(wr_id), recv(wr_id + 1)]).unwrap();
    qp.modify(&QpAttr { qp_state: QpState::Err, ..QpAttr::default() }, mlx5::QpAttrMask::STATE).unwrap();
    qp.post_send(&[SendWr { wr_id: wr_id + 2, ..SendWr::default() }]).unwrap();
    qp
}

fn plan(cqe: u32, layout: Option<CqeCompLayout>) -> Plan {
    let compressed = layout.map(|layout| (CqeCompResFormat::HASH, layout));
    Plan { cqe, wide: None, compressed, ignore_overrun: false }
}

/// All completions that are there are those of `qp`, in order.
fn expect(cq: &mut Cq, qp: &Qp, names: &[u64]) {
    let mut wcs = [Wc::default(); 16];
    let n = cq.poll_cq(&mut wcs).unwrap();
    let got: Vec<_> = wcs[..n].iter().map(|wc| (wc.wr_id, wc.qp_num, wc.status)).collect();
    let right: Vec<_> = names.iter().map(|name| (*name, qp.qp_num(), WcStatus::WR_FLUSH_ERR)).collect();
    assert_eq!(got, right);
}

#[test]
fn queues_that_come_and_go_leave_nothing_and_mix_nothing_up() {
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    let mut sends = plan(1000, None).make(&dev).unwrap();
    let mut recvs = plan(63, Some(CqeCompLayout::Enhanced)).make(&dev).unwrap();
    let mut memory = Memory::default();
    for cycle in 0..cycles() {
        let name = 4 * cycle;
        let qp = flushed(&dev, &pd, &sends, &recvs, name);
        if cycle % 23 == 0 {
            expect(&mut recvs, &qp, &[name, name + 1]);
        }
        if cycle % 701 == 0 {
            expect(&mut sends, &qp, &[name + 2]);
            // SAFETY: a query names no memory and takes nothing away.
            let qpc = unsafe { dev.general_cmd(&QueryQp { qpn: qp.qp_num() }) }.unwrap();
            // Until both CQs have been seen empty an index is not used again.
            assert!(qpc.user_index() <= 702, "index {}", qpc.user_index());
        }
        qp.destroy().map_err(|e| e.error).unwrap();
        memory.look(cycle, port.model.dma_outstanding());
    }
    let mut wcs = [Wc::default(); 16];
    assert_eq!((sends.poll_cq(&mut wcs), recvs.poll_cq(&mut wcs)), (Ok(0), Ok(0)));
    sends.destroy().map_err(|e| e.error).unwrap();
    recvs.destroy().map_err(|e| e.error).unwrap();
    pd.dealloc().map_err(|e| e.error).unwrap();
    close(&port, dev);
}

#[test]
fn completion_queues_that_come_and_go_leave_nothing() {
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    let mut memory = Memory::default();
    let layouts = [None, Some(CqeCompLayout::Basic), Some(CqeCompLayout::Enhanced)];
    for cycle in 0..cycles() {
        let plan = plan(3 + cycle as u32 % 29, layouts[cycle as usize % 3]);
        let cq = plan.make(&dev).unwrap();
        if cycle % 16 == 0 {
            let qp = flushed(&dev, &pd, &cq, &cq, cycle);
            qp.destroy().map_err(|e| e.error).unwrap();
        } else {
            assert!(port.model.inject_cqe(cq.cqn(), [cycle as u8; 64]));
        }
        cq.destroy().map_err(|e| e.error).unwrap();
        memory.look(cycle, port.model.dma_outstanding());
    }
    pd.dealloc().map_err(|e| e.error).unwrap();
    close(&port, dev);
}
