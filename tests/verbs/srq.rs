//! Shared receive queues (`ibv_create_srq(3)`, `ibv_modify_srq(3)`, `ibv_post_srq_recv(3)`).

use mlx5::{
    AccessFlags, AsyncEvent, Cq, Device, DmaBuf, Element, Error, Pd, Qp, QpCap, QpInitAttr, RecvWr, SendFlags, SendWr,
    Sge, Srq, SrqAttr, SrqAttrMask, SrqInitAttr, Wc, WcOpcode, WcStatus, ibv,
};
use mlx5_model::{Effect, Fault, Match, ModelConfig};

use crate::support::{BUF, Port, REMOTE, SIZES, close, connect, create_qp, open, open_with, pattern, poll_n};

pub fn srq_of(pd: &Pd, max_wr: u32, max_sge: u32) -> Result<(Srq, SrqAttr), Error> {
    let mut init = SrqInitAttr { srq_context: 0x5e9, attr: SrqAttr { max_wr, max_sge, srq_limit: 7 } };
    let srq = ibv::create_srq(pd, &mut init)?;
    Ok((srq, init.attr))
}

/// A sender and a receiver a pair; the receivers take from one queue.
pub struct Shared {
    pub port: Port,
    pub dev: Device,
    pub pd: Pd,
    pub srq: Srq,
    /// Of all senders.
    pub sent: Cq,
    /// One a receiver.
    pub came: Vec<Cq>,
    pub senders: Vec<Qp>,
    pub receivers: Vec<Qp>,
    pub buf: DmaBuf,
}

/// The context of each receiver.
pub const RECEIVER: u64 = 0xfedc_ba98_7654_3210;

pub fn receiver(pd: &Pd, cq: &Cq, srq: &Srq) -> Qp {
    let mut attr = QpInitAttr { srq: Some(srq), qp_context: RECEIVER, ..QpInitAttr::new(cq, cq, SIZES) };
    pd.create_qp(&mut attr).expect("a queue pair")
}

impl Shared {
    pub fn new(pairs: usize, max_wr: u32) -> Self {
        Self::with(pairs, max_wr, |dev| dev.create_cq(255, 0, 0).unwrap())
    }

    pub fn with(pairs: usize, max_wr: u32, cq: impl Fn(&Device) -> Cq) -> Self {
        let (port, dev) = open();
        let pd = dev.alloc_pd().unwrap();
        let (srq, _) = srq_of(&pd, max_wr, 3).unwrap();
        let sent = dev.create_cq(255, 0, 0).unwrap();
        let buf = pd.alloc_buf(BUF, REMOTE | AccessFlags::LOCAL_WRITE).unwrap();
        let mut all = Self { port, dev, pd, srq, sent, came: vec![], senders: vec![], receivers: vec![], buf };
        for _ in 0..pairs {
            let cq = cq(&all.dev);
            all.add(cq);
        }
        all
    }

    /// One pair more, whose receiver reports to `cq`.
    pub fn add(&mut self, cq: Cq) {
        let mut sender = create_qp(&self.pd, &self.sent, &self.sent, SIZES);
        let mut receiver = receiver(&self.pd, &cq, &self.srq);
        connect(&self.dev, &mut sender, receiver.qp_num());
        connect(&self.dev, &mut receiver, sender.qp_num());
        self.came.push(cq);
        self.senders.push(sender);
        self.receivers.push(receiver);
    }

    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge { addr: self.buf.addr() + offset as u64, length: length as u32, lkey: self.buf.lkey() }
    }

    /// Posts a request for up to 64 bytes at 64 times `wr_id`.
    pub fn post(&mut self, wr_id: u64) -> Result<(), mlx5::PostError> {
        let sge = self.sge(64 * wr_id as usize, 64);
        ibv::post_srq_recv(&mut self.srq, &[RecvWr { wr_id, sg_list: &[sge] }])
    }

    /// Sends bytes over pair `pair`, and waits until they are sent.
    pub fn send(&mut self, pair: usize, data: &[u8]) {
        let send_flags = SendFlags::INLINE | SendFlags::SIGNALED;
        self.senders[pair].post_send(&[SendWr { inline_data: data, send_flags, ..Default::default() }]).unwrap();
        assert_eq!(poll_n(&self.port, &mut self.sent, 1)[0].status, WcStatus::SUCCESS);
    }

    pub fn poll(&mut self, pair: usize, n: usize) -> Vec<Wc> {
        poll_n(&self.port, &mut self.came[pair], n)
    }

    /// Requests that can be posted until the queue is full.
    pub fn room(&mut self) -> usize {
        let mut room = 0;
        while self.post(0).is_ok() {
            room += 1;
        }
        room
    }

    pub fn end(self) {
        let Self { port, dev, pd, srq, sent, came, senders, receivers, buf } = self;
        for qp in senders.into_iter().chain(receivers) {
            qp.destroy().map_err(|e| e.error).unwrap();
        }
        for cq in came.into_iter().chain([sent]) {
            cq.destroy().map_err(|e| e.error).unwrap();
        }
        ibv::destroy_srq(srq).map_err(|e| e.error).unwrap();
        buf.dereg().map_err(|e| e.error).unwrap();
        pd.dealloc().map_err(|e| e.error).unwrap();
        close(&port, dev);
    }
}

/// As libmlx5 rounds: a place more than asked for, to a power of two, less that place; an entry of a next segment and the pieces, to
/// a power of two. The device's limits here are 2^15 entries of 512 bytes.
#[test]
fn sizes_are_rounded_up_and_those_beyond_the_device_are_invalid() {
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    for (max_wr, max_sge, given) in [
        (1, 1, (1, 1)),
        (2, 0, (3, 1)),
        (3, 2, (3, 3)),
        (100, 3, (127, 3)),
        (128, 4, (255, 7)),
        (32_767, 31, (32_767, 31)),
    ] {
        let (srq, attr) = srq_of(&pd, max_wr, max_sge).unwrap();
        assert_eq!((attr.max_wr, attr.max_sge, attr.srq_limit), (given.0, given.1, 0));
        assert_eq!(ibv::query_srq(&srq).unwrap(), attr);
        assert_eq!(srq.context(), 0x5e9);
        ibv::destroy_srq(srq).map_err(|back| back.error).unwrap();
    }
    for (max_wr, max_sge) in [(0, 1), (32_768, 1), (u32::MAX, 1), (1, 32), (1, u32::MAX)] {
        let error = srq_of(&pd, max_wr, max_sge).unwrap_err();
        assert_eq!(error.errno(), 22, "{max_wr} {max_sge}");
    }
    let attr = dev.query_device();
    assert_eq!((attr.max_srq, attr.max_srq_wr, attr.max_srq_sge), (1 << 16, 32_767, 31));
    drop(pd);
    close(&port, dev);
}

#[test]
fn a_device_without_and_interface_version_0_are_told_by_name() {
    let mut config = ModelConfig::default();
    config.caps.log_max_rmp = 0;
    let (port, dev) = open_with(config);
    let pd = dev.alloc_pd().unwrap();
    let error = srq_of(&pd, 1, 1).unwrap_err();
    assert_eq!((error.errno(), error.to_string().contains("shared receive queues")), (95, true));
    assert_eq!((dev.query_device().max_srq, dev.query_device().max_srq_wr), (0, 0));
    drop(pd);
    close(&port, dev);

    // Firmware that does not know QUERY_ISSI has version 0.
    let port = Port::new(ModelConfig::default());
    port.model.inject(Fault::Command { at: Match::Every(0x10a), effect: Effect::Status { status: 2, syndrome: 1 } });
    let config = mlx5::DeviceConfig::new(ModelConfig::default().device_id);
    let dev = Device::open(port.clone(), port.clone(), config).unwrap();
    assert_eq!(dev.info().issi, 0);
    let pd = dev.alloc_pd().unwrap();
    let error = srq_of(&pd, 1, 1).unwrap_err();
    assert_eq!((error.errno(), error.to_string().contains("ISSI")), (95, true), "{error}");
    drop(pd);
    close(&port, dev);
}

/// Whichever queue pair takes it, on whichever CQ it is reported, each request ends once and has its message.
#[test]
fn queue_pairs_take_from_one_queue_in_the_order_of_posting() {
    let mut s = Shared::new(3, 30);
    let mut posted = std::collections::VecDeque::new();
    let mut free: Vec<u64> = (0..40).collect();
    for round in 0..600_u64 {
        // Come and go in waves, so that the list is cut and joined everywhere.
        for _ in 0..1 + round % 7 {
            if let Some(id) = free.pop() {
                match s.post(id) {
                    Ok(()) => posted.push_back(id),
                    Err(full) => {
                        assert_eq!((full.errno(), posted.len()), (12, 31));
                        free.push(id);
                    }
                }
            }
        }
        for n in 0..(round % 5).min(posted.len() as u64) {
            let pair = ((round + n) % 3) as usize;
            let data = pattern(round << 8 | n, 1 + (round % 60) as usize);
            s.send(pair, &data);
            let (wc, id) = (s.poll(pair, 1)[0], posted.pop_front().unwrap());
            assert_eq!((wc.wr_id, wc.status, wc.opcode), (id, WcStatus::SUCCESS, WcOpcode::RECV));
            assert_eq!((wc.qp_num, wc.byte_len as usize), (s.receivers[pair].qp_num(), data.len()));
            let mut got = vec![0; data.len()];
            s.buf.read(64 * id as usize, &mut got).unwrap();
            assert_eq!(got, data, "round {round}");
            free.insert((round as usize * 7) % (free.len() + 1), id);
        }
    }
    s.end();
}

/// Completions are polled long after, from several CQs in any order: places come free in that order, and the list follows it.
#[test]
fn places_come_free_in_the_order_of_polling() {
    let mut s = Shared::new(2, 7);
    for lap in 0..50_u64 {
        for id in 0..7 {
            s.post(id).unwrap();
        }
        let full = s.post(99).unwrap_err();
        assert_eq!((full.index, full.error), (0, Error::NoMemory));
        for id in 0..7_usize {
            s.send(id % 2, &[id as u8 + 1; 10]);
        }
        let first = (lap % 2) as usize;
        let mut ids: Vec<u64> = s.poll(first, if first == 0 { 4 } else { 3 }).iter().map(|wc| wc.wr_id).collect();
        ids.extend(s.poll(1 - first, if first == 0 { 3 } else { 4 }).iter().map(|wc| wc.wr_id));
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6]);
    }
    s.end();
}

#[test]
fn the_first_request_that_cannot_be_posted_is_told_and_those_before_it_are_posted() {
    let mut s = Shared::new(1, 7);
    let piece = s.sge(0, 64);
    let good = RecvWr { wr_id: 1, sg_list: &[piece] };
    let (four, huge) = ([piece; 4], [Sge { length: 1 << 31, ..piece }]);
    for (bad, errno) in [(&four[..], 22), (&huge[..], 22)] {
        let refused = s.srq.post_recv(&[good, RecvWr { wr_id: 2, sg_list: bad }, good]).unwrap_err();
        assert_eq!((refused.index, refused.errno()), (1, errno));
    }
    let refused = s.srq.post_recv(&[good; 9]).unwrap_err();
    assert_eq!((refused.index, refused.errno()), (5, 12), "seven are posted");
    assert_eq!(s.srq.post_recv(&[good]).unwrap_err().errno(), 12);
    assert_eq!(s.srq.post_recv(&[]), Ok(()));
    for _ in 0..7 {
        s.send(0, b"x");
    }
    assert_eq!(s.poll(0, 7).iter().filter(|wc| wc.wr_id == 1).count(), 7);
    s.end();
}

/// Pieces up to the last are filled in order; empty ones are left out; a list of none takes an empty message.
#[test]
fn a_request_has_as_many_pieces_as_it_was_created_for() {
    let mut s = Shared::new(1, 3);
    let lists =
        [vec![s.sge(0, 3), s.sge(100, 0), s.sge(200, 9)], vec![s.sge(0, 1), s.sge(300, 1), s.sge(400, 30)], vec![]];
    for (list, data) in lists.iter().zip([&b"abcdefgh"[..], b"0123456789", b""]) {
        s.srq.post_recv(&[RecvWr { wr_id: 5, sg_list: list }]).unwrap();
        s.send(0, data);
        assert_eq!(s.poll(0, 1)[0].byte_len as usize, data.len());
        let mut got = vec![];
        for sge in list.iter().filter(|sge| sge.length != 0) {
            let mut piece = vec![0; (sge.length as usize).min(data.len() - got.len())];
            s.buf.read((sge.addr - s.buf.addr()) as usize, &mut piece).unwrap();
            got.extend(piece);
        }
        assert_eq!(got, data);
    }
    s.end();
}

/// An empty queue makes senders wait, as any receive queue does.
#[test]
fn a_sender_waits_until_something_is_posted() {
    let mut s = Shared::new(1, 3);
    let send_flags = SendFlags::INLINE | SendFlags::SIGNALED;
    s.senders[0].post_send(&[SendWr { inline_data: b"wait", send_flags, ..Default::default() }]).unwrap();
    s.port.model.step(5_000_000);
    assert_eq!(s.came[0].poll_cq(&mut [Wc::default()]), Ok(0));
    s.post(3).unwrap();
    assert_eq!(s.poll(0, 1)[0].wr_id, 3);
    assert_eq!(poll_n(&s.port, &mut s.sent, 1)[0].status, WcStatus::SUCCESS);
    s.end();
}

pub fn event(dev: &Device) -> Option<AsyncEvent> {
    dev.service();
    dev.try_get_async_event()
}

#[test]
fn the_limit_is_told_once_and_has_to_be_armed_again() {
    let mut s = Shared::new(1, 7);
    let limit = |srq: &Srq, srq_limit| {
        ibv::modify_srq(srq, &SrqAttr { srq_limit, ..Default::default() }, SrqAttrMask::LIMIT).unwrap();
    };
    let reached = AsyncEvent::SrqLimitReached(Element { number: ibv::get_srq_num(&s.srq), context: 0x5e9 });
    for _ in 0..3 {
        (0..5).for_each(|id| s.post(id).unwrap());
        limit(&s.srq, 3);
        assert_eq!(s.srq.query().unwrap().srq_limit, 3);
        for left in (0..5).rev() {
            s.send(0, b"x");
            s.poll(0, 1);
            let told = event(&s.dev);
            assert_eq!(told, (left == 2).then_some(reached), "{left} left");
        }
        assert_eq!(s.srq.query().unwrap().srq_limit, 0);
    }
    limit(&s.srq, 1);
    assert_eq!(event(&s.dev), Some(reached), "so already when it is armed");
    (0..3).for_each(|id| s.post(id).unwrap());
    limit(&s.srq, 2);
    limit(&s.srq, 0);
    for _ in 0..3 {
        s.send(0, b"x");
    }
    s.poll(0, 3);
    assert_eq!(event(&s.dev), None, "taken back");
    s.end();
}

#[test]
fn what_cannot_be_modified_is_invalid() {
    let s = Shared::new(0, 7);
    let modify = |attr: SrqAttr, mask| s.srq.modify(&attr, mask).map_err(Error::errno);
    assert_eq!(modify(SrqAttr { max_wr: 15, ..Default::default() }, SrqAttrMask::MAX_WR), Err(22));
    assert_eq!(modify(SrqAttr { srq_limit: 8, ..Default::default() }, SrqAttrMask::LIMIT), Err(22));
    assert_eq!(modify(SrqAttr { srq_limit: 0x1_0001, ..Default::default() }, SrqAttrMask::LIMIT), Err(22));
    assert_eq!(modify(SrqAttr::default(), SrqAttrMask::from_bits_retain(4)), Err(22));
    assert_eq!(modify(SrqAttr { srq_limit: 99, ..Default::default() }, SrqAttrMask::empty()), Ok(()));
    assert_eq!(modify(SrqAttr { srq_limit: 7, ..Default::default() }, SrqAttrMask::LIMIT), Ok(()));
    s.end();
}

/// Sizes of a receive queue are not looked at, and nothing is posted to the queue pair itself.
#[test]
fn a_queue_pair_with_a_shared_queue_has_none_of_its_own() {
    let mut s = Shared::new(1, 7);
    let cap = QpCap { max_recv_wr: u32::MAX, max_recv_sge: u32::MAX, ..SIZES };
    let mut attr = QpInitAttr { srq: Some(&s.srq), ..QpInitAttr::new(&s.sent, &s.sent, cap) };
    let qp = s.pd.create_qp(&mut attr).unwrap();
    assert_eq!((attr.cap.max_recv_wr, attr.cap.max_recv_sge, qp.cap()), (0, 0, attr.cap));
    drop(qp);
    for wr in [RecvWr::default(), RecvWr { wr_id: 1, sg_list: &[s.sge(0, 8)] }] {
        let refused = s.receivers[0].post_recv(&[wr]).unwrap_err();
        assert_eq!((refused.index, refused.errno()), (0, 22));
        assert!(refused.to_string().contains("Srq::post_recv"));
    }
    s.end();
}

#[test]
fn a_queue_of_another_device_is_invalid() {
    let (other_port, other) = open();
    let other_pd = other.alloc_pd().unwrap();
    let (srq, _) = srq_of(&other_pd, 1, 1).unwrap();
    let s = Shared::new(0, 1);
    let mut attr = QpInitAttr { srq: Some(&srq), ..QpInitAttr::new(&s.sent, &s.sent, SIZES) };
    assert_eq!(s.pd.create_qp(&mut attr).map(drop).map_err(Error::errno), Err(22));
    s.end();
    drop((srq, other_pd));
    close(&other_port, other);
}

#[test]
fn a_queue_is_busy_while_queue_pairs_take_from_it_and_works_on() {
    let mut s = Shared::new(2, 7);
    s.post(1).unwrap();
    for _ in 0..2 {
        let back = ibv::destroy_srq(s.srq).unwrap_err();
        assert_eq!((back.error, back.error.errno()), (Error::Busy, 16));
        s.srq = back.object;
        let last = s.receivers.len() - 1;
        s.send(last, b"works");
        assert_eq!(s.poll(last, 1)[0].wr_id, 1);
        s.post(1).unwrap();
        s.receivers.pop().unwrap().destroy().map_err(|e| e.error).unwrap();
        s.senders.pop().unwrap().destroy().map_err(|e| e.error).unwrap();
    }
    let Shared { port, dev, pd, srq, sent, came, buf, .. } = s;
    let back = pd.dealloc().unwrap_err();
    assert_eq!(back.error, Error::Busy, "it is in the protection domain");
    srq.destroy().map_err(|back| back.error).unwrap();
    drop((sent, came, buf, back.object));
    close(&port, dev);
}

/// Dropping in any order: queue pairs keep what they need.
#[test]
fn a_queue_that_is_dropped_lives_until_its_queue_pairs_are_gone() {
    let Shared { port, dev, pd, srq, sent, came, senders, receivers, buf } = Shared::new(1, 7);
    drop(srq);
    drop((pd, sent, came, buf));
    drop((senders, receivers));
    close(&port, dev);
}
