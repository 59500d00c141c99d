//! Memory that the IOMMU no longer lets the device reach, as after a wrong unmap or behind the driver's back: the device's
//! outcome comes as the typed error that the InfiniBand specification has for it, and nothing is lost of what goes on.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use mlx5::hw::eqe::CqErrorSyndrome;
use mlx5::hw::platform::{DmaMem, Platform, PlatformError};
use mlx5::{
    AsyncEvent, Cq, Device, DeviceConfig, DmaBuf, Error, Pd, Qp, RecvWr, Remote, SendFlags, SendWr, Sge, Wc, WcStatus,
    WrOpcode,
};
use mlx5_model::{Model, ModelConfig, ViolationKind};

use crate::events::cq_on;
use crate::support::{REMOTE, SIZES, connect, create_qp};

/// Where the CPU has a piece of memory, and whether the device reaches it.
type Piece = (usize, Layout, bool);

/// A platform whose memory is mapped for the device piece by piece, as behind an IOMMU.
#[derive(Clone)]
struct Mapped {
    model: Model,
    /// Pieces by I/O address.
    live: Arc<Mutex<BTreeMap<u64, Piece>>>,
}

impl Mapped {
    /// I/O addresses of all pieces.
    fn pieces(&self) -> Vec<u64> {
        self.live.lock().unwrap().keys().copied().collect()
    }

    /// From now on the device does not reach the piece at `iova`.
    fn take(&self, iova: u64) {
        let mut live = self.live.lock().unwrap();
        let (_, layout, reached) = live.get_mut(&iova).expect("a piece");
        assert!(std::mem::take(reached));
        // SAFETY: mapped by `alloc`; that the device still uses it is the point.
        unsafe { self.model.unmap(iova, layout.size()) }.expect("mapped");
    }
}

// SAFETY: zeroed memory of the heap, of the asked-for size and alignment, valid until it is freed.
unsafe impl Platform for Mapped {
    fn alloc(&self, size: usize, align: usize) -> Result<DmaMem, PlatformError> {
        if align > 4096 {
            return Err(PlatformError::NoMemory);
        }
        let layout = Layout::from_size_align(size.next_multiple_of(4096), 4096).unwrap();
        // SAFETY: the size is not zero.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        // SAFETY: it stays until `free`, and is reached through atomics only.
        let iova = unsafe { self.model.map(ptr, layout.size()) }?;
        self.live.lock().unwrap().insert(iova, (ptr.as_ptr() as usize, layout, true));
        // SAFETY: just allocated and mapped.
        Ok(unsafe { DmaMem::new(ptr, iova, size) })
    }

    unsafe fn free(&self, mem: DmaMem) {
        let (ptr, layout, reached) = self.live.lock().unwrap().remove(&mem.iova()).expect("a piece");
        if reached {
            // SAFETY: the caller's promise.
            unsafe { self.model.unmap(mem.iova(), layout.size()) }.expect("mapped");
        }
        // SAFETY: allocated by `alloc` with this layout.
        unsafe { dealloc(ptr as *mut u8, layout) };
    }

    fn now(&self) -> u64 {
        self.model.now()
    }

    fn relax(&self) {
        self.model.relax();
    }

    fn wait_any(&self, vectors: u64, deadline: u64) {
        self.model.wait_any(vectors, deadline);
    }

    fn reset(&self) -> Result<(), PlatformError> {
        Platform::reset(&self.model)
    }
}

/// Two connected queue pairs, a CQ and a buffer for each.
struct World {
    platform: Mapped,
    dev: Device,
    pd: Pd,
    cq: [Cq; 2],
    qp: [Qp; 2],
    buf: [DmaBuf; 2],
    /// Pieces that came with the CQ of side 0, and with its queue pair.
    ring: Vec<u64>,
    queue: Vec<u64>,
    /// The piece of each buffer.
    memory: [u64; 2],
}

fn world() -> World {
    let model = Model::new(ModelConfig::default());
    let platform = Mapped { model: model.clone(), live: Arc::default() };
    let dev = Device::open(platform.clone(), model, DeviceConfig::default()).unwrap();
    let fresh = |before: &[u64]| platform.pieces().into_iter().filter(|p| !before.contains(p)).collect::<Vec<_>>();
    let (pd, channel) = (dev.alloc_pd().unwrap(), dev.create_comp_channel());
    let mark = platform.pieces();
    let first = cq_on(&dev, &channel, 63, 0, 0);
    let ring = fresh(&mark);
    let cq = [first, cq_on(&dev, &channel, 63, 1, 0)];
    let mark = platform.pieces();
    let first = create_qp(&pd, &cq[0], &cq[0], SIZES);
    let queue = fresh(&mark);
    let mut qp = [first, create_qp(&pd, &cq[1], &cq[1], SIZES)];
    let numbers = [qp[0].qp_num(), qp[1].qp_num()];
    connect(&dev, &mut qp[0], numbers[1]);
    connect(&dev, &mut qp[1], numbers[0]);
    let mut memory = [0; 2];
    let buf = [0, 1].map(|side| {
        let mark = platform.pieces();
        let buf = pd.alloc_buf(4096, REMOTE | mlx5::AccessFlags::LOCAL_WRITE).unwrap();
        memory[side] = *fresh(&mark).last().expect("the buffer's");
        buf
    });
    World { platform, dev, pd, cq, ring, qp, queue, buf, memory }
}

impl World {
    fn sge(&self, side: usize) -> Sge {
        Sge { addr: self.buf[side].addr(), length: 100, lkey: self.buf[side].lkey() }
    }

    /// Side 0 asks side 1 for something; how each side's requests end.
    fn ask(&mut self, opcode: WrOpcode) -> [Vec<WcStatus>; 2] {
        let (from, to) = (self.sge(0), self.sge(1));
        self.qp[1].post_recv(&[RecvWr { wr_id: 1, sg_list: &[to] }]).unwrap();
        let send_flags = SendFlags::SIGNALED;
        self.qp[0]
            .post_send(&[SendWr { wr_id: 2, sg_list: &[from], opcode, send_flags, ..Default::default() }])
            .unwrap();
        self.platform.model.step(1_000_000);
        [0, 1].map(|side| {
            let mut wcs = [Wc::default(); 4];
            let n = self.cq[side].poll_cq(&mut wcs).unwrap();
            wcs[..n].iter().map(|wc| wc.status).collect()
        })
    }

    fn remote(&self) -> Remote {
        Remote { addr: self.buf[1].addr(), rkey: self.buf[1].rkey() }
    }

    /// Everything comes back, and the device has told of what it could not reach.
    fn end(self) {
        let Self { platform, dev, pd, cq, qp, buf, .. } = self;
        drop((qp, cq, buf, pd));
        dev.close().map_err(|back| back.error).unwrap();
        assert!(platform.pieces().is_empty(), "memory not given back");
        let kinds: Vec<_> = platform.model.take_violations().iter().map(|v| v.kind).collect();
        let expected = [ViolationKind::FreedWhileOwned, ViolationKind::DmaAfterFree, ViolationKind::DmaUnmapped];
        assert!(!kinds.is_empty() && kinds.iter().all(|kind| expected.contains(kind)), "{kinds:?}");
    }
}

/// A requester's own memory is a local protection error; a responder's is one for its receive, and a remote operation error for
/// the requester (InfiniBand specification, 9.9.3 and 10.10.2), whose sides are both in error afterwards.
#[test]
fn data_that_is_not_mapped_is_an_error_of_the_request() {
    use WcStatus as S;
    type Opcode = fn(&World) -> WrOpcode;
    let (send, write, read): (Opcode, Opcode, Opcode) = (
        |_| WrOpcode::Send,
        |w| WrOpcode::RdmaWrite { remote: w.remote() },
        |w| WrOpcode::RdmaRead { remote: w.remote() },
    );
    let cases: [(usize, Opcode, S, &[S]); 5] = [
        (0, send, S::LOC_PROT_ERR, &[]),
        (1, send, S::REM_OP_ERR, &[S::LOC_PROT_ERR]),
        (0, read, S::LOC_PROT_ERR, &[]),
        (1, write, S::REM_OP_ERR, &[S::WR_FLUSH_ERR]),
        (1, read, S::REM_OP_ERR, &[S::WR_FLUSH_ERR]),
    ];
    for (n, (gone, opcode, sender, receiver)) in cases.into_iter().enumerate() {
        let mut w = world();
        assert_eq!(w.ask(WrOpcode::Send), [[S::SUCCESS], [S::SUCCESS]], "while it is mapped");
        w.platform.take(w.memory[gone]);
        let opcode = opcode(&w);
        let [sent, received] = w.ask(opcode);
        assert_eq!(sent, [sender], "case {n}");
        assert_eq!(received, receiver, "case {n}");
        assert_eq!(w.dev.failure(), None);
        w.end();
    }
}

/// The events that have come.
fn events(dev: &Device) -> Vec<AsyncEvent> {
    core::iter::from_fn(|| dev.try_get_async_event()).collect()
}

#[test]
fn a_cq_whose_ring_is_not_mapped_is_in_error_and_says_so() {
    let mut w = world();
    w.ring.clone().into_iter().for_each(|piece| w.platform.take(piece));
    assert!(w.ask(WrOpcode::Send)[0].is_empty(), "nobody can be told");
    let syndrome = CqErrorSyndrome::CQ_ACCESS_VIOLATION_ERROR;
    let (told, cqn) = (events(&w.dev), w.cq[0].cqn());
    let of_cq =
        |e: &AsyncEvent| matches!(e, AsyncEvent::CqErr { cq, syndrome: s } if (cq.number, *s) == (cqn, syndrome));
    assert!(told.iter().any(of_cq), "{told:?}");
    assert_eq!(w.cq[0].wait(u64::MAX), Err(Error::CqInError { syndrome }));
    assert_eq!(w.dev.failure(), None, "the others work on");
    w.end();
}

#[test]
fn a_queue_pair_whose_queue_is_not_mapped_says_so_by_an_event() {
    let mut w = world();
    w.queue.clone().into_iter().for_each(|piece| w.platform.take(piece));
    w.ask(WrOpcode::Send);
    let (told, qpn) = (events(&w.dev), w.qp[0].qp_num());
    assert!(told.iter().any(|event| matches!(event, AsyncEvent::QpFatal(qp) if qp.number == qpn)), "{told:?}");
    assert_eq!(w.dev.failure(), None, "the others work on");
    w.end();
}
