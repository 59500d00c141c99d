//! Calls that do not poll: posting, arming, a command. They run on the model; while they are timed it hears nothing of them, but for
//! commands, which it answers.

use mlx5::{
    AccessFlags, CompChannel, Cpu, Cq, Device, DeviceConfig, DmaBuf, Error, PostError, Qp, QpAttr, QpCap, QpInitAttr,
    RecvWr, Remote, SendFlags, SendWr, Sge, Wc, WrOpcode, ibv,
};
use mlx5_model::{Model, ModelConfig};

use super::port::Registers;
use super::subject::{CALLS, Subject};
use crate::traffic::{self, Transport};

/// Commands in one run: each takes as long as many calls.
const COMMANDS: u32 = 16;
/// Entries of a queue: what a run posts, twice.
const ROOM: u32 = 2 * CALLS;
/// Most requests of one call.
const MOST: usize = 16;
/// Looks at a CQ before a completion counts as lost; model time goes on by a microsecond between two of them.
const LOOKS: usize = 100_000;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `post_send` of so many RDMA writes of 64 bytes, up to 16; timed for each request.
    PostSend(u32),
    /// `post_recv` of so many requests, up to 16; timed for each request.
    PostRecv(u32),
    /// `req_notify_cq`.
    Arm,
    /// `Cq::query`: a command and its answer.
    Command,
}

impl Call {
    /// In words.
    pub fn name(self) -> String {
        match self {
            Self::PostSend(batch) => format!("post_send, {batch} a call"),
            Self::PostRecv(batch) => format!("post_recv, {batch} a call"),
            Self::Arm => "req_notify_cq".into(),
            Self::Command => "command round trip, model".into(),
        }
    }
}

/// Two connected queue pairs on a model.
pub struct Calls {
    call: Call,
    qps: [Qp; 2],
    cq: Cq,
    _channel: CompChannel,
    buf: DmaBuf,
    _device: Device,
    model: Model,
    registers: Registers,
    /// Requests that wait for the device to hear of them, or for messages.
    waiting: u32,
}

impl Calls {
    /// Brings a model up and connects.
    ///
    /// # Errors
    /// What the driver or the model refuses.
    pub fn new(call: Call, cpu: Cpu) -> Result<Self, Error> {
        let model = Model::new(ModelConfig::default());
        let registers = Registers::new(model.clone());
        let mut config = DeviceConfig::default();
        config.cpu = cpu;
        let device = ibv::open_device(model.clone(), registers.clone(), config)?;
        let channel = ibv::create_comp_channel(&device);
        let cq = ibv::create_cq(&device, 2 * ROOM, 0, Some(&channel), 0)?;
        let pd = ibv::alloc_pd(&device)?;
        let cap = QpCap { max_send_wr: ROOM, max_recv_wr: ROOM, max_send_sge: 1, max_recv_sge: 1, ..QpCap::default() };
        let create = || ibv::create_qp(&pd, &mut QpInitAttr::new(&cq, &cq, cap));
        let mut qps = [create()?, create()?];
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let numbers = [qps[1].qp_num(), qps[0].qp_num()];
        for (qp, peer) in qps.iter_mut().zip(numbers) {
            let attr = QpAttr { qp_access_flags: access, ..traffic::attributes(&device, peer) };
            traffic::connect(qp, &attr, Transport::Rc)?;
        }
        let buf = pd.alloc_buf(4096, access)?;
        Ok(Self { call, qps, cq, _channel: channel, buf, _device: device, model, registers, waiting: 0 })
    }

    fn sge(&self) -> [Sge; 1] {
        [Sge { addr: self.buf.addr(), length: 64, lkey: self.buf.lkey() }]
    }

    /// Posts RDMA writes in calls of `batch`; how many there were.
    #[inline(never)]
    fn write(&mut self, count: u32, batch: u32) -> Result<u32, PostError> {
        let remote = Remote { addr: self.buf.addr() + 64, rkey: self.buf.rkey() };
        let (sg_list, opcode) = (self.sge(), WrOpcode::RdmaWrite { remote });
        self.send(count, batch, &sg_list, opcode)
    }

    fn send(&mut self, count: u32, batch: u32, sg_list: &[Sge], opcode: WrOpcode) -> Result<u32, PostError> {
        let send_flags = SendFlags::SIGNALED;
        let wrs = [(); MOST].map(|()| SendWr { wr_id: 1, sg_list, opcode, send_flags, ..SendWr::default() });
        let wrs = wrs.get(..batch as usize).unwrap_or_default();
        for _ in 0..count / batch {
            ibv::post_send(&mut self.qps[0], wrs)?;
        }
        Ok(count)
    }

    /// Posts receives in calls of `batch`; how many there were.
    #[inline(never)]
    fn receive(&mut self, batch: u32) -> Result<u32, PostError> {
        let sg_list = self.sge();
        let wrs = [RecvWr { wr_id: 1, sg_list: &sg_list }; MOST];
        let wrs = wrs.get(..batch as usize).unwrap_or_default();
        for _ in 0..CALLS / batch {
            ibv::post_recv(&mut self.qps[1], wrs)?;
        }
        Ok(CALLS)
    }

    /// Lets the device do what was asked for, and polls so many completions.
    fn finish(&mut self, mut count: u32) {
        let mut wcs = [Wc::default(); MOST];
        for _ in 0..LOOKS {
            count = count.saturating_sub(self.cq.poll_cq(&mut wcs).unwrap_or(0) as u32);
            if count == 0 {
                break;
            }
            self.model.step(1_000);
        }
    }
}

impl Subject for Calls {
    fn items(&self) -> u32 {
        if self.call == Call::Command { COMMANDS } else { CALLS }
    }

    fn right(&self) -> u64 {
        u64::from(self.items())
    }

    fn prepare(&mut self) {
        self.registers.set_deaf(false);
        match self.call {
            // One more request has a doorbell for all.
            Call::PostSend(_) if self.waiting != 0 => {
                let more = self.write(1, 1).unwrap_or(0);
                self.finish(self.waiting + more);
            }
            Call::PostRecv(_) if self.waiting != 0 => {
                let sg_list = self.sge();
                let sent = self.send(self.waiting, 1, &sg_list, WrOpcode::Send).unwrap_or(0);
                self.finish(2 * sent);
            }
            _ => {}
        }
        self.registers.set_deaf(self.call != Call::Command);
        self.waiting = self.items();
    }

    fn run(&mut self) -> u64 {
        let done = match self.call {
            Call::PostSend(batch) => self.write(CALLS, batch).unwrap_or(0),
            Call::PostRecv(batch) => self.receive(batch).unwrap_or(0),
            Call::Arm => (0..CALLS).map(|_| u32::from(self.cq.req_notify(false).is_ok())).sum(),
            Call::Command => (0..COMMANDS).map(|_| u32::from(self.cq.query().is_ok())).sum(),
        };
        u64::from(done)
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.registers.set_deaf(false);
    }
}
