//! What the tests of the verbs share: a model behind a port that keeps books, and connected queue pairs.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use mlx5::hw::platform::{Bar, DmaMem, Platform, PlatformError};
use mlx5::{
    AccessFlags, AhAttr, Cq, Device, DeviceConfig, DmaBuf, GlobalRoute, Mtu, Pd, Qp, QpAttr, QpAttrMask, QpCap,
    QpInitAttr, QpState, RecvWr, Remote, SendFlags, SendWr, Sge, Wc,
};
use mlx5_model::{Model, ModelConfig};

/// What a test has done at a certain moment, once.
pub type Hook = Box<dyn FnOnce() + Send>;

/// The model as a port, with books of what the driver does to it.
#[derive(Clone)]
pub struct Port {
    pub model: Model,
    /// Memory handed out, by I/O address: where the CPU finds it, and its size.
    memory: Arc<Mutex<BTreeMap<u64, (usize, usize)>>>,
    /// 64-bit register writes: doorbells of queues.
    pub doorbells: Arc<AtomicU64>,
    /// Register writes are dropped.
    pub deaf: Arc<AtomicBool>,
    /// Alignments beyond 4096 bytes are refused.
    pub only_pages: Arc<AtomicBool>,
    /// There is no memory.
    pub dry: Arc<AtomicBool>,
    /// The function cannot be reset.
    pub no_reset: Arc<AtomicBool>,
    /// Resets that were asked for.
    pub resets: Arc<AtomicU64>,
    /// Mappings do not end.
    pub stuck: Arc<AtomicBool>,
    /// Memory ranges mapped and not unmapped.
    pub mapped: Arc<Mutex<Vec<(u64, usize)>>>,
    /// 32-bit register writes: doorbells of event queues and of the command queue.
    pub writes32: Arc<AtomicU64>,
    /// Waits for interrupts.
    pub waits: Arc<AtomicU64>,
    /// The interrupts that were waited for, a bit each.
    pub vectors: Arc<AtomicU64>,
    /// The platform has no interrupts.
    pub no_interrupts: Arc<AtomicBool>,
    /// Waits without an interrupt.
    pub pauses: Arc<AtomicU64>,
    /// What happens when the clock is read for the n-th time from now.
    pub at_now: Arc<Mutex<Option<(u32, Hook)>>>,
    /// What happens before the next 64-bit register write.
    pub at_doorbell: Arc<Mutex<Option<Hook>>>,
    /// What happens after the next 32-bit register write.
    pub after_write32: Arc<Mutex<Option<Hook>>>,
}

impl Port {
    pub fn new(config: ModelConfig) -> Self {
        Self {
            model: Model::new(config),
            memory: Arc::default(),
            doorbells: Arc::default(),
            deaf: Arc::default(),
            only_pages: Arc::default(),
            dry: Arc::default(),
            no_reset: Arc::default(),
            resets: Arc::default(),
            stuck: Arc::default(),
            mapped: Arc::default(),
            writes32: Arc::default(),
            waits: Arc::default(),
            vectors: Arc::default(),
            no_interrupts: Arc::default(),
            pauses: Arc::default(),
            at_now: Arc::default(),
            at_doorbell: Arc::default(),
            after_write32: Arc::default(),
        }
    }

    /// The dwords of DMA memory from I/O address `iova` on, `len` of them.
    pub fn words(&self, iova: u64, len: usize) -> &[AtomicU32] {
        let memory = self.memory.lock().unwrap();
        let (start, (ptr, size)) = memory.range(..=iova).next_back().expect("memory of the driver");
        let at = (iova - start) as usize;
        assert!(at + 4 * len <= *size, "within one allocation");
        // SAFETY: memory that the model handed out, aligned, and freed only by the driver, which outlives the test's use;
        // it is reached through atomics only.
        unsafe { std::slice::from_raw_parts((*ptr as *const AtomicU32).byte_add(at), len) }
    }

    /// I/O address of an address of the CPU's in DMA memory.
    pub fn iova(&self, addr: u64) -> u64 {
        let memory = self.memory.lock().unwrap();
        let holds = |(_, (ptr, size)): &(&u64, &(usize, usize))| (*ptr..*ptr + *size).contains(&(addr as usize));
        let (start, (ptr, _)) = memory.iter().find(holds).expect("memory of the driver");
        start + (addr as usize - ptr) as u64
    }

    /// The whole allocation that holds `iova`: its start.
    pub fn allocation(&self, iova: u64) -> u64 {
        *self.memory.lock().unwrap().range(..=iova).next_back().expect("memory of the driver").0
    }
}

// SAFETY: all calls go to the model.
unsafe impl Platform for Port {
    fn alloc(&self, size: usize, align: usize) -> Result<DmaMem, PlatformError> {
        let too_much = align > 4096 && self.only_pages.load(Ordering::Relaxed);
        if too_much || self.dry.load(Ordering::Relaxed) {
            return Err(PlatformError::NoMemory);
        }
        let mem = self.model.alloc(size, align)?;
        self.memory.lock().unwrap().insert(mem.iova(), (mem.ptr().as_ptr() as usize, mem.size()));
        Ok(mem)
    }

    unsafe fn free(&self, mem: DmaMem) {
        self.memory.lock().unwrap().remove(&mem.iova());
        // SAFETY: the caller's promise.
        unsafe { self.model.free(mem) }
    }

    fn now(&self) -> u64 {
        let mut waiting = self.at_now.lock().unwrap();
        match waiting.take() {
            Some((1, hook)) => {
                drop(waiting);
                hook();
            }
            other => *waiting = other.map(|(n, hook)| (n - 1, hook)),
        }
        self.model.now()
    }

    fn relax(&self) {
        self.model.relax();
    }

    fn wait(&self, vector: u32, deadline: u64) {
        self.wait_any(1 << vector, deadline);
    }

    fn wait_any(&self, vectors: u64, deadline: u64) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.vectors.fetch_or(vectors, Ordering::Relaxed);
        match self.no_interrupts.load(Ordering::Relaxed) {
            true => self.model.relax(),
            false => self.model.wait_any(vectors, deadline),
        }
    }

    fn pause(&self, until: u64) {
        self.pauses.fetch_add(1, Ordering::Relaxed);
        self.model.pause(until);
    }

    fn wall_clock(&self) -> Option<u64> {
        self.model.wall_clock()
    }

    unsafe fn map(&self, ptr: NonNull<u8>, len: usize) -> Result<u64, PlatformError> {
        // SAFETY: the caller's promise.
        let iova = unsafe { self.model.map(ptr, len) }?;
        self.mapped.lock().unwrap().push((iova, len));
        Ok(iova)
    }

    unsafe fn unmap(&self, iova: u64, len: usize) -> Result<(), PlatformError> {
        if self.stuck.load(Ordering::Relaxed) {
            return Err(PlatformError::Os(16));
        }
        // SAFETY: the caller's promise.
        unsafe { self.model.unmap(iova, len) }?;
        self.mapped.lock().unwrap().retain(|m| *m != (iova, len));
        Ok(())
    }

    fn reset(&self) -> Result<(), PlatformError> {
        self.resets.fetch_add(1, Ordering::Relaxed);
        if self.no_reset.load(Ordering::Relaxed) {
            return Err(PlatformError::Unsupported);
        }
        Platform::reset(&self.model)
    }
}

// SAFETY: all calls go to the model.
unsafe impl Bar for Port {
    fn size(&self) -> usize {
        Bar::size(&self.model)
    }

    fn read32(&self, offset: usize) -> u32 {
        self.model.read32(offset)
    }

    fn write32(&self, offset: usize, value: u32) {
        self.writes32.fetch_add(1, Ordering::Relaxed);
        self.model.write32(offset, value);
        let hook = self.after_write32.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
    }

    fn write64(&self, offset: usize, value: u64) {
        self.doorbells.fetch_add(1, Ordering::Relaxed);
        let hook = self.at_doorbell.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
        if !self.deaf.load(Ordering::Relaxed) {
            self.model.write64(offset, value);
        }
    }
}

pub fn open() -> (Port, Device) {
    open_with(ModelConfig::default())
}

pub fn open_with(config: ModelConfig) -> (Port, Device) {
    let device = DeviceConfig::new(config.device_id);
    open_config(config, device)
}

pub fn open_config(config: ModelConfig, device: DeviceConfig) -> (Port, Device) {
    let port = Port::new(config);
    let dev = Device::open(port.clone(), port.clone(), device).expect("the model comes up");
    (port, dev)
}

/// Closes the device and checks that everything was given back and no rule of the hardware broken.
pub fn close(port: &Port, dev: Device) {
    dev.close().map_err(|e| e.error).expect("nothing is left to destroy");
    assert_eq!(port.model.violations(), [], "rules broken");
    assert_eq!(port.model.dma_outstanding(), (0, 0), "memory not given back");
    assert_eq!(*port.mapped.lock().unwrap(), [], "mappings not given back");
}

pub const SIZES: QpCap =
    QpCap { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 4, max_recv_sge: 4, max_inline_data: 64 };

/// Queues for bursts.
pub const QP_CAP_64: QpCap = QpCap { max_send_wr: 64, max_recv_wr: 64, ..SIZES };

pub fn create_qp(pd: &Pd, send: &Cq, recv: &Cq, cap: QpCap) -> Qp {
    pd.create_qp(&mut QpInitAttr::new(send, recv, cap)).expect("a queue pair")
}

/// Attributes of a connection to `peer` on the port itself.
pub fn path_to(dev: &Device, peer: u32) -> QpAttr {
    let info = dev.info();
    let route = GlobalRoute { dgid: info.gid.unwrap_or_default(), sgid_index: 0, hop_limit: 64, ..Default::default() };
    let ah_attr = AhAttr { grh: Some(route), port_num: 1, dmac: info.mac, ..Default::default() };
    QpAttr {
        path_mtu: Mtu::B1024,
        dest_qp_num: peer,
        rq_psn: 0x12_3456,
        sq_psn: 0x12_3456,
        qp_access_flags: REMOTE,
        ah_attr,
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        min_rnr_timer: 1,
        port_num: 1,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ..Default::default()
    }
}

/// Everything that a peer can be allowed.
pub const REMOTE: AccessFlags =
    AccessFlags::REMOTE_WRITE.union(AccessFlags::REMOTE_READ).union(AccessFlags::REMOTE_ATOMIC);
pub const INIT: QpAttrMask =
    QpAttrMask::STATE.union(QpAttrMask::PKEY_INDEX).union(QpAttrMask::PORT).union(QpAttrMask::ACCESS_FLAGS);
pub const RTR: QpAttrMask = QpAttrMask::STATE
    .union(QpAttrMask::AV)
    .union(QpAttrMask::PATH_MTU)
    .union(QpAttrMask::DEST_QPN)
    .union(QpAttrMask::RQ_PSN)
    .union(QpAttrMask::MAX_DEST_RD_ATOMIC)
    .union(QpAttrMask::MIN_RNR_TIMER);
pub const RTS: QpAttrMask = QpAttrMask::STATE
    .union(QpAttrMask::TIMEOUT)
    .union(QpAttrMask::RETRY_CNT)
    .union(QpAttrMask::RNR_RETRY)
    .union(QpAttrMask::SQ_PSN)
    .union(QpAttrMask::MAX_QP_RD_ATOMIC);

/// Moves a queue pair to ready-to-send, connected to `peer`.
pub fn connect(dev: &Device, qp: &mut Qp, peer: u32) {
    let attr = path_to(dev, peer);
    for (qp_state, mask) in [(QpState::Init, INIT), (QpState::Rtr, RTR), (QpState::Rts, RTS)] {
        qp.modify(&QpAttr { qp_state, ..attr }, mask).expect("the transition");
    }
}

/// Two connected queue pairs with one CQ for each, and a buffer for each.
pub struct Pair {
    pub port: Port,
    pub dev: Device,
    pub pd: Pd,
    pub cq: [Cq; 2],
    pub qp: [Qp; 2],
    pub buf: [DmaBuf; 2],
}

pub const BUF: usize = 1 << 16;

pub fn pair() -> Pair {
    pair_with(ModelConfig::default(), 63, SIZES, |dev, cqe| dev.create_cq(cqe, 0, 0).expect("a CQ"))
}

pub fn pair_with(config: ModelConfig, cqe: u32, cap: QpCap, make: impl Fn(&Device, u32) -> Cq) -> Pair {
    pair_on(open_with(config), cqe, cap, make)
}

pub fn pair_on(opened: (Port, Device), cqe: u32, cap: QpCap, mut make: impl FnMut(&Device, u32) -> Cq) -> Pair {
    let (port, dev) = opened;
    let pd = dev.alloc_pd().expect("a PD");
    let cq = [make(&dev, cqe), make(&dev, cqe)];
    let mut qp = [create_qp(&pd, &cq[0], &cq[0], cap), create_qp(&pd, &cq[1], &cq[1], cap)];
    let numbers = [qp[0].qp_num(), qp[1].qp_num()];
    connect(&dev, &mut qp[0], numbers[1]);
    connect(&dev, &mut qp[1], numbers[0]);
    let buf = [(); 2].map(|()| pd.alloc_buf(BUF, REMOTE | AccessFlags::LOCAL_WRITE).expect("a buffer"));
    Pair { port, dev, pd, cq, qp, buf }
}

impl Pair {
    pub fn sge(&self, side: usize, offset: usize, length: usize) -> Sge {
        Sge { addr: self.buf[side].addr() + offset as u64, length: length as u32, lkey: self.buf[side].lkey() }
    }

    /// A place in the buffer of side `side`, as its peer names it.
    pub fn remote(&self, side: usize, offset: usize) -> Remote {
        Remote { addr: self.buf[side].addr() + offset as u64, rkey: self.buf[side].rkey() }
    }

    /// `length` bytes of the buffer of side `side`.
    pub fn bytes(&self, side: usize, offset: usize, length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        self.buf[side].read(offset, &mut out).expect("within the buffer");
        out
    }

    /// The first dwords of side 0's send queue, `len` of them.
    pub fn send_queue(&self, len: usize) -> &[AtomicU32] {
        // SAFETY: a query names no memory and takes nothing away.
        let qpc =
            unsafe { self.dev.general_cmd(&mlx5::hw::cmd::QueryQp { qpn: self.qp[0].qp_num() }) }.expect("an answer");
        let rq_bytes = (1 << qpc.log_rq_size()) * (16 << qpc.log_rq_stride());
        self.port.words(self.port.allocation(qpc.dbr_addr()) + rq_bytes, len)
    }

    /// Polls side `side` until `n` completions have come.
    pub fn poll(&mut self, side: usize, n: usize) -> Vec<Wc> {
        poll_n(&self.port, &mut self.cq[side], n)
    }

    /// Sends `length` bytes from side 0 to side 1, both at the start of their buffers; both completions.
    pub fn send(&mut self, wr_id: u64, length: usize, flags: SendFlags) -> (Wc, Wc) {
        let (from, to) = (self.sge(0, 0, length), self.sge(1, 0, BUF));
        self.qp[1].post_recv(&[RecvWr { wr_id, sg_list: &[to] }]).unwrap();
        let send_flags = flags | SendFlags::SIGNALED;
        self.qp[0].post_send(&[SendWr { wr_id, sg_list: &[from], send_flags, ..Default::default() }]).unwrap();
        (self.poll(0, 1)[0], self.poll(1, 1)[0])
    }

    /// Destroys everything in order, and checks the model's books.
    pub fn end(self) {
        let Pair { port, dev, pd, cq, qp, buf } = self;
        for qp in qp {
            qp.destroy().map_err(|e| e.error).unwrap();
        }
        for cq in cq {
            cq.destroy().map_err(|e| e.error).unwrap();
        }
        for buf in buf {
            buf.dereg().map_err(|e| e.error).unwrap();
        }
        pd.dealloc().map_err(|e| e.error).unwrap();
        close(&port, dev);
    }
}

/// Polls until `n` completions have come; gives up when the model's clock has moved by ten seconds.
pub fn poll_n(port: &Port, cq: &mut Cq, n: usize) -> Vec<Wc> {
    let deadline = port.now() + 10_000_000_000;
    let mut out = vec![Wc::default(); n];
    let mut have = 0;
    while have < n {
        have += cq.poll_cq(&mut out[have..]).expect("good entries");
        if have < n {
            assert!(port.now() < deadline, "{have} of {n} completions came");
            port.relax();
        }
    }
    out
}

/// Bytes that differ from message to message.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 24) as u8
    };
    (0..length).map(step).collect()
}
