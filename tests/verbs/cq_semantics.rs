//! Completion queues: sizes, batches, the doorbell record, bad entries, and the life of queues behind their entries.
//!
//! The model's entries are changed in the ring before they are polled, to see what a device that misbehaves can do.

use std::sync::atomic::Ordering::Relaxed;

use mlx5::hw::be::Be32;
use mlx5::{
    Cq, CqInitAttrEx, Error, PollAttr, PollError, QpCap, RecvWr, SendFlags, SendWr, Wc, WcFlags, WcOpcode,
    WcResultFlags, WcStatus, ibv,
};
use mlx5_model::ModelConfig;

use crate::cq_create::Attr;
use crate::support::{Pair, Port, SIZES, connect, create_qp, open, pair, pair_with, poll_n};

/// A ring as the device sees it.
pub struct Ring {
    port: Port,
    base: u64,
    record: u64,
    slots: u64,
    entry: u64,
}

impl Ring {
    pub fn of(port: &Port, cq: &Cq) -> Self {
        let record = cq.query().unwrap().dbr_addr();
        Self {
            port: port.clone(),
            base: port.model.cq_ring(cq.cqn()).unwrap(),
            record,
            slots: u64::from(cq.cqe()) + 1,
            entry: cq.cqe_size().into(),
        }
    }

    /// Where dword `word` of the descriptor in slot `n` is: the last 64 bytes of the entry.
    fn at(&self, n: u64, word: u64) -> u64 {
        self.base + self.entry * (n % self.slots + 1) - 64 + 4 * word
    }

    /// Dword `word` of the entry in slot `n`.
    pub fn dword(&self, n: u64, word: u64) -> u32 {
        let at = self.at(n, word);
        Be32::from_raw(self.port.words(at, 1)[0].load(Relaxed)).get()
    }

    pub fn set_dword(&self, n: u64, word: u64, value: u32) {
        let at = self.at(n, word);
        self.port.words(at, 1)[0].store(Be32::new(value).to_raw(), Relaxed);
    }

    /// Changes bits of a dword.
    pub fn change(&self, n: u64, word: u64, mask: u32, value: u32) {
        self.set_dword(n, word, self.dword(n, word) & !mask | value & mask);
    }

    pub fn consumer(&self) -> u32 {
        Be32::from_raw(self.port.words(self.record, 1)[0].load(Relaxed)).get()
    }

    /// Puts a value into the record that no consumer index is, to see when it is written.
    pub fn mark(&self) {
        self.port.words(self.record, 1)[0].store(MARK, Relaxed);
    }

    /// Takes the mark away: the device looks at the record when something completes.
    fn unmark(&self) {
        self.port.words(self.record, 1)[0].store(0, Relaxed);
    }

    pub fn is_marked(&self) -> bool {
        self.port.words(self.record, 1)[0].load(Relaxed) == MARK
    }
}

const MARK: u32 = 0x5a5a_5a5a;
pub const POLL: PollAttr = PollAttr { comp_mask: 0 };

/// Completes `n` sends from side 0 to side 1, wr_ids from `first` on, and polls none of them.
pub fn complete(p: &mut Pair, first: u64, n: u64) {
    let to = p.sge(1, 0, 64);
    for wr_id in first..first + n {
        p.qp[1].post_recv(&[RecvWr { wr_id, sg_list: &[to] }]).unwrap();
        let send_flags = SendFlags::SIGNALED;
        p.qp[0].post_send(&[SendWr { wr_id, sg_list: &[p.sge(0, 0, 5)], send_flags, ..Default::default() }]).unwrap();
    }
    p.port.model.step(1_000_000);
}

pub fn ids(cq: &mut Cq) -> Vec<u64> {
    let mut wcs = [Wc::default(); 64];
    let n = cq.poll_cq(&mut wcs).unwrap();
    wcs[..n].iter().map(|wc| wc.wr_id).collect()
}

/// Cases C-002 and C-006: what is asked, what comes.
#[test]
fn cqe_is_rounded_up_to_a_ring_less_one_entry() {
    let (port, dev) = open();
    let most = dev.query_device().max_cqe;
    assert_eq!(most, (1 << ModelConfig::default().caps.log_max_cq_sz) - 1);
    for (asked, given) in
        [(1, 1), (2, 3), (3, 3), (63, 63), (64, 127), (127, 127), (128, 255), (4095, 4095), (4096, 8191), (most, most)]
    {
        let cq = ibv::create_cq(&dev, asked, 7, None, 0).unwrap();
        assert_eq!((cq.cqe(), cq.context()), (given, 7), "cqe {asked}");
        assert_eq!(1 << cq.query().unwrap().log_cq_size(), given + 1, "the device has the same ring");
        ibv::destroy_cq(cq).map_err(|e| e.error).unwrap();
    }
    for asked in [0, most + 1, 1 << 24, i32::MAX as u32, u32::MAX] {
        assert_eq!(dev.create_cq(asked, 0, 0).err().map(Error::errno), Some(22), "cqe {asked}");
    }
    crate::support::close(&port, dev);
}

#[test]
fn an_empty_cq_is_enoent_and_nothing_is_written() {
    let mut p = pair();
    let ring = Ring::of(&p.port, &p.cq[0]);
    ring.mark();
    assert_eq!(p.cq[0].start_poll(&POLL).err().map(PollError::errno), Some(2));
    assert_eq!(p.cq[0].poll_cq(&mut [Wc::default(); 4]), Ok(0));
    assert!(ring.is_marked());
    ring.unmark();
    complete(&mut p, 1, 1);
    ring.mark();
    assert_eq!(p.cq[0].poll_cq(&mut []), Ok(0));
    assert!(ring.is_marked(), "nothing was asked for and nothing taken");
    assert_eq!(ids(&mut p.cq[0]), [1]);
    p.end();
}

#[test]
fn unknown_poll_attributes_are_einval_before_anything_is_touched() {
    let mut p = pair();
    complete(&mut p, 1, 1);
    let ring = Ring::of(&p.port, &p.cq[0]);
    ring.mark();
    for comp_mask in [1, 1 << 31] {
        assert_eq!(p.cq[0].start_poll(&PollAttr { comp_mask }).err().map(PollError::errno), Some(22));
    }
    assert!(ring.is_marked());
    assert_eq!(ids(&mut p.cq[0]), [1], "the completion is still there");
    p.end();
}

#[test]
fn a_batch_writes_the_record_once_when_it_ends() {
    let mut p = pair();
    let ring = Ring::of(&p.port, &p.cq[0]);
    complete(&mut p, 0, 5);
    ring.mark();
    {
        let mut poller = ibv::start_poll(&mut p.cq[0], &POLL).unwrap();
        assert_eq!(poller.completion().wr_id(), 0);
        for wr_id in 1..5 {
            assert_eq!(ibv::next_poll(&mut poller).unwrap().wr_id(), wr_id);
        }
        assert_eq!(poller.next().err(), Some(PollError::Empty));
        assert_eq!(poller.completion().wr_id(), 4, "the last one stays readable");
        assert!(ring.is_marked(), "nothing is given back before the end");
        ibv::end_poll(poller);
    }
    assert_eq!(ring.consumer(), 5);
    // A batch that ends early gives back what it took, no more.
    complete(&mut p, 5, 4);
    drop(p.cq[0].start_poll(&POLL).unwrap());
    assert_eq!(ring.consumer(), 6);
    assert_eq!(p.cq[0].poll_cq(&mut [Wc::default(); 2]), Ok(2));
    assert_eq!(ring.consumer(), 8);
    assert_eq!(ids(&mut p.cq[0]), [8]);
    p.end();
}

/// Whoever posts a receive for each that ends need not wait for the batch.
#[test]
fn the_place_of_a_completion_is_free_before_its_batch_ends() {
    let mut p = pair();
    let n = u64::from(p.qp[1].cap().max_recv_wr);
    complete(&mut p, 0, n);
    let to = p.sge(1, 0, 64);
    let mut poller = p.cq[1].start_poll(&POLL).unwrap();
    for wr_id in 0..n {
        assert_eq!(poller.completion().wr_id(), wr_id);
        let wr = RecvWr { wr_id: n + wr_id, sg_list: &[to] };
        p.qp[1].post_recv(&[wr]).unwrap();
        assert_eq!(p.qp[1].post_recv(&[wr]).unwrap_err().error, Error::NoMemory, "completion {wr_id} frees one place");
        assert_eq!(poller.next().err(), (wr_id + 1 == n).then_some(PollError::Empty));
    }
    drop(poller);
    p.end();
}

#[test]
fn a_forgotten_poller_makes_its_completions_come_again() {
    for size in [64, 128] {
        let mut attr = Attr::default();
        attr.size(size);
        attr.ex.cqe = 15;
        let mut p = pair_with(ModelConfig::default(), 15, SIZES, |dev, _| attr.create(dev).unwrap());
        for round in 0..30 {
            complete(&mut p, 10 * round, 6);
            let mut poller = p.cq[0].start_poll(&POLL).unwrap();
            while poller.next().is_ok() {}
            std::mem::forget(poller);
            let mut poller = p.cq[0].start_poll(&POLL).unwrap();
            assert_eq!(poller.completion().wr_id(), 10 * round);
            poller.next().unwrap();
            std::mem::forget(poller);
            let sent: Vec<_> = (10 * round..10 * round + 6).collect();
            assert_eq!(ids(&mut p.cq[0]), sent);
            assert_eq!(ids(&mut p.cq[1]), sent);
        }
        p.end();
    }
}

/// So does what it was told of bad entries.
#[test]
fn a_forgotten_poller_makes_its_errors_come_again() {
    let mut p = pair();
    let ring = Ring::of(&p.port, &p.cq[0]);
    let mut at = 0;
    for (word, mask, value, is_right) in bad_entries() {
        complete(&mut p, 0, 3);
        ring.change(at + 1, word, mask, value);
        for _ in 0..3 {
            let mut poller = p.cq[0].start_poll(&POLL).unwrap();
            assert_eq!(poller.completion().wr_id(), 0);
            assert!(is_right(poller.next().unwrap_err()), "dword {word} = {value:#x}");
            assert_eq!(poller.next().unwrap().wr_id(), 2);
            assert_eq!(poller.next().err(), Some(PollError::Empty));
            std::mem::forget(poller);
            assert_eq!(u64::from(ring.consumer()), at);
        }
        assert_eq!(ids(&mut p.cq[0]), [0]);
        assert!(is_right(p.cq[0].poll_cq(&mut [Wc::default()]).unwrap_err()));
        assert_eq!(ids(&mut p.cq[0]), [2]);
        ids(&mut p.cq[1]);
        at += 3;
    }
    p.end();
}

#[test]
fn receives_that_come_again_make_room_once() {
    let mut p = pair();
    let (from, to) = (p.sge(0, 0, 8), p.sge(1, 0, 64));
    let recv = |wr_id| RecvWr { wr_id, sg_list: std::slice::from_ref(&to) };
    (0..16).for_each(|i| p.qp[1].post_recv(&[recv(i)]).unwrap());
    let send_flags = SendFlags::SIGNALED;
    (0..6).for_each(|wr_id| {
        p.qp[0].post_send(&[SendWr { wr_id, sg_list: &[from], send_flags, ..Default::default() }]).unwrap();
    });
    p.poll(0, 6);
    let mut poller = p.cq[1].start_poll(&POLL).unwrap();
    while poller.next().is_ok() {}
    std::mem::forget(poller);
    assert_eq!(ids(&mut p.cq[1]), [0, 1, 2, 3, 4, 5]);
    let posted = (16..40).take_while(|i| p.qp[1].post_recv(&[recv(*i)]).is_ok()).count();
    assert_eq!(posted, 6, "ten of sixteen are still outstanding");
    p.end();
}

/// A way in which an entry can be bad: what is changed (dword, mask, value), and what polling says.
pub type BadEntry = (u64, u32, u32, fn(PollError) -> bool);

pub fn bad_entries() -> Vec<BadEntry> {
    vec![
        (8, 0xff_ffff, 0x123, |e| matches!(e, PollError::UnknownQueue { user_index: 0x123, .. })),
        (8, 0xff_ffff, 0xff_fffe, |e| matches!(e, PollError::UnknownQueue { user_index: 0xff_fffe, .. })),
        (15, 0xf0, 0x70, |e| matches!(e, PollError::UnknownOpcode { opcode: 7, .. })),
        (15, 0xf0, 0xb0, |e| matches!(e, PollError::UnknownOpcode { opcode: 0xb, .. })),
        (15, 0xf0, 0x60, |e| matches!(e, PollError::NoTagList { .. })),
        (15, 0xf0, 0xc0, |e| matches!(e, PollError::Signature(_))),
        (15, 0x0c, 0x0c, |e| matches!(e, PollError::BadSession { count: 5, .. })),
        (15, 0x0c, 0x04, |e| matches!(e, PollError::UnexpectedFormat { format: 1, .. })),
        (14, 0xff << 24, 0x25 << 24, |e| matches!(e, PollError::UnknownOpcode { opcode: 0, send_opcode: 0x25, .. })),
    ]
}

#[test]
fn poll_cq_returns_what_lies_before_a_bad_entry_then_the_error_once_then_the_rest() {
    let mut p = pair();
    let ring = Ring::of(&p.port, &p.cq[0]);
    let mut at = 0;
    for (word, mask, value, is_right) in bad_entries() {
        complete(&mut p, 0, 5);
        ring.change(at + 2, word, mask, value);
        assert_eq!(ids(&mut p.cq[0]), [0, 1], "dword {word} = {value:#x}");
        let error = p.cq[0].poll_cq(&mut [Wc::default(); 8]).unwrap_err();
        assert!(is_right(error), "{error:?}");
        assert_eq!(error.errno(), 5);
        assert_eq!(ids(&mut p.cq[0]), [3, 4]);
        assert_eq!(ring.consumer(), at as u32 + 5, "the bad entry counts");
        assert_eq!(ids(&mut p.cq[1]).len(), 5);
        at += 5;
    }
    p.end();
}

#[test]
fn a_poller_steps_over_a_bad_entry() {
    let mut p = pair();
    let ring = Ring::of(&p.port, &p.cq[0]);
    let mut at = 0;
    for (word, mask, value, is_right) in bad_entries() {
        complete(&mut p, 0, 3);
        ring.change(at + 1, word, mask, value);
        let mut poller = p.cq[0].start_poll(&POLL).unwrap();
        assert!(poller.next().is_err_and(is_right));
        assert_eq!(poller.next().unwrap().wr_id(), 2);
        drop(poller);
        // As the first of a batch: no poller is left, the entry is behind, the error came once.
        complete(&mut p, 3, 2);
        ring.change(at + 3, word, mask, value);
        assert!(p.cq[0].start_poll(&POLL).is_err_and(is_right));
        assert_eq!(ring.consumer(), at as u32 + 4);
        assert_eq!(p.cq[0].start_poll(&POLL).unwrap().completion().wr_id(), 4);
        at += 5;
        assert_eq!(ids(&mut p.cq[1]).len(), 5);
    }
    p.end();
}

#[test]
fn an_entry_for_a_queue_that_this_cq_does_not_report_is_an_error() {
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    let (mut sends, mut recvs) = (dev.create_cq(15, 0, 0).unwrap(), dev.create_cq(15, 0, 0).unwrap());
    let mut qp = create_qp(&pd, &sends, &recvs, SIZES);
    let me = qp.qp_num();
    connect(&dev, &mut qp, me);
    qp.post_recv(&[RecvWr { wr_id: 1, sg_list: &[] }]).unwrap();
    qp.post_send(&[SendWr { wr_id: 2, send_flags: SendFlags::SIGNALED, ..Default::default() }]).unwrap();
    port.model.step(1_000_000);
    // The send's completion claims to be a receive's, in the CQ of sends.
    Ring::of(&port, &sends).change(0, 15, 0xf0, 0x20);
    assert!(matches!(sends.poll_cq(&mut [Wc::default()]), Err(PollError::UnknownQueue { .. })));
    assert_eq!(poll_n(&port, &mut recvs, 1)[0].wr_id, 1);
    qp.destroy().map_err(|e| e.error).unwrap();
    drop((sends, recvs, pd));
    crate::support::close(&port, dev);
}

/// Cases C-032 and C-034: the counter names the request, masked to the queue.
#[test]
fn receives_are_named_by_their_counter() {
    let cap = QpCap { max_recv_wr: 4, max_recv_sge: 1, ..SIZES };
    let mut p = pair_with(ModelConfig::default(), 63, cap, |d, n| d.create_cq(n, 0, 0).unwrap());
    assert_eq!(p.qp[1].cap().max_recv_wr, 4);
    let ring = Ring::of(&p.port, &p.cq[1]);
    complete(&mut p, 10, 4);
    for (n, counter) in [2, 0, 1, 3].into_iter().enumerate() {
        ring.change(n as u64, 15, 0xffff << 16, counter << 16);
    }
    assert_eq!(ids(&mut p.cq[1]), [12, 10, 11, 13]);
    complete(&mut p, 20, 4);
    for (n, counter) in [0x1001, 0xfffe, 4103, 0].into_iter().enumerate() {
        ring.change(4 + n as u64, 15, 0xffff << 16, counter << 16);
    }
    assert_eq!(ids(&mut p.cq[1]), [21, 22, 23, 20]);
    ids(&mut p.cq[0]);
    p.end();
}

#[test]
fn fields_that_were_not_asked_for_are_none() {
    let mut p = pair_with(ModelConfig::default(), 15, SIZES, |d, cqe| {
        d.create_cq_ex(&CqInitAttrEx { cqe, ..Default::default() }).unwrap()
    });
    complete(&mut p, 3, 1);
    let poller = p.cq[1].start_poll(&POLL).unwrap();
    let c = poller.completion();
    assert_eq!((c.wr_id(), c.status(), c.opcode()), (3, WcStatus::SUCCESS, Some(WcOpcode::RECV)));
    assert_eq!((c.byte_len(), c.imm_data(), c.qp_num(), c.src_qp()), (None, None, None, None));
    assert_eq!((c.slid(), c.sl(), c.dlid_path_bits(), c.completion_ts()), (None, None, None, None));
    drop(poller);
    ids(&mut p.cq[0]);
    p.end();
}

#[test]
fn each_field_is_there_when_it_alone_is_asked_for() {
    for (flag, name) in WcFlags::all().iter_names().take(12).map(|(name, flag)| (flag, name)) {
        let mut p = pair_with(ModelConfig::default(), 15, SIZES, |d, cqe| {
            d.create_cq_ex(&CqInitAttrEx { cqe, wc_flags: flag, ..Default::default() }).unwrap()
        });
        complete(&mut p, 3, 1);
        // Make it a receive with immediate data, a VLAN tag and a tag to match.
        let ring = Ring::of(&p.port, &p.cq[1]);
        ring.change(0, 15, 0xf0, 0x30);
        ring.set_dword(0, 9, 0x0a0b_0c0d);
        ring.set_dword(0, 6, 0x1700_0bcd);
        ring.change(0, 5, 0xffff, 0x1234);
        ring.change(0, 4, 0x7f << 16, 0x55 << 16);
        ring.set_dword(0, 7, 0x0001_0123);
        ring.set_dword(0, 10, 0x0103_0000);
        ring.set_dword(0, 3, 0x0000_4567);
        let poller = p.cq[1].start_poll(&POLL).unwrap();
        let c = poller.completion();
        let there = [
            c.byte_len() == Some(5),
            c.imm_data().map(u32::from_be) == Some(0x0a0b_0c0d),
            c.qp_num() == Some(p.qp[1].qp_num()),
            c.src_qp() == Some(0xbcd),
            c.slid() == Some(0x1234),
            c.sl() == Some(7),
            c.dlid_path_bits() == Some(0x55),
            c.completion_ts().is_some(),
            c.cvlan() == Some(0x0123),
            c.flow_tag() == Some(p.qp[1].qp_num()),
            c.tm_info() == Some(mlx5::TmInfo { tag: 0x4567, r#priv: 0 }),
            c.completion_wallclock_ns().is_some(),
        ];
        let asked = std::array::from_fn(|bit| flag.bits() == 1 << bit);
        assert_eq!(there, asked, "{name}");
        assert_eq!(c.wc_flags(), WcResultFlags::WITH_IMM | WcResultFlags::GRH);
        drop(poller);
        ids(&mut p.cq[0]);
        p.end();
    }
}

#[test]
fn failed_requests_carry_status_vendor_error_and_queue_only() {
    let mut p = pair_with(ModelConfig::default(), 15, SIZES, |d, cqe| {
        let wc_flags = WcFlags::STANDARD | WcFlags::COMPLETION_TIMESTAMP;
        d.create_cq_ex(&CqInitAttrEx { cqe, wc_flags, ..Default::default() }).unwrap()
    });
    let bad = mlx5::Sge { lkey: 0xdead_be00, ..p.sge(0, 0, 8) };
    p.qp[1].post_recv(&[RecvWr { wr_id: 1, sg_list: &[] }]).unwrap();
    p.qp[0].post_send(&[SendWr { wr_id: 9, sg_list: &[bad], ..Default::default() }]).unwrap();
    p.port.model.step(1_000_000);
    let poller = p.cq[0].start_poll(&POLL).unwrap();
    let c = poller.completion();
    assert_eq!((c.wr_id(), c.status(), c.opcode()), (9, WcStatus::LOC_PROT_ERR, None));
    assert!(c.vendor_err().is_some_and(|v| v != 0));
    assert_eq!((c.qp_num(), c.wc_flags()), (Some(p.qp[0].qp_num()), WcResultFlags::empty()));
    assert_eq!((c.byte_len(), c.imm_data(), c.completion_ts(), c.src_qp()), (None, None, None, None));
    drop(poller);
    p.end();
}
