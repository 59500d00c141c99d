//! Time stamps against the model's clocks: raw ones exactly, wall-clock time within what `docs/cq.md` states.

use std::sync::atomic::{AtomicBool, Ordering};

use mlx5::dv::{CqeCompLayout, CqeCompResFormat, ts_to_ns};
use mlx5::hw::cmd::QueryQp;
use mlx5::hw::platform::Platform;
use mlx5::{
    Completion, Cq, CqInitAttrEx, Device, Error, Failure, PollError, RecvWr, SendFlags, SendWr, ValuesMask, WcFlags,
    ibv,
};
use mlx5_model::{CapConfig, Fault, ModelConfig};

use crate::cq_create::Attr;
use crate::cq_semantics::POLL;
use crate::support::{Pair, SIZES, close, open_with, pair_with};

const SECOND: u64 = 1_000_000_000;
const YEAR: u64 = 365 * 86_400 * SECOND;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const ENODEV: i32 = 19;
const EOPNOTSUPP: i32 = 95;
const BOTH: WcFlags = WcFlags::COMPLETION_TIMESTAMP.union(WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK);

/// A device without real time, on which looking at the time takes none.
#[derive(Clone, Copy, Debug)]
struct World {
    start: u64,
    ppm: i32,
    khz: u32,
    read_ns: u64,
}

const PLAIN: World = World { start: 0, ppm: 0, khz: 156_250, read_ns: 0 };

impl World {
    fn config(self) -> ModelConfig {
        ModelConfig {
            timer_start: self.start,
            clock_drift_ppm: self.ppm,
            now_ns: 0,
            read_ns: self.read_ns,
            caps: CapConfig { real_time_ts: false, device_frequency_khz: self.khz, ..CapConfig::default() },
            ..ModelConfig::default()
        }
    }

    fn pair(self) -> Pair {
        pair_with(self.config(), 63, SIZES, |dev, cqe| wall(dev, cqe).unwrap())
    }

    /// What the counter shows at `ns` of model time.
    fn ticks(self, ns: u64) -> u64 {
        let own = u128::from(ns) * (1_000_000 + i128::from(self.ppm)) as u128 / 1_000_000;
        self.start.wrapping_add((own * u128::from(self.khz) / 1_000_000) as u64)
    }

    /// The most that the stated frequency is off in a second.
    fn off(self) -> u64 {
        u64::from(self.ppm.unsigned_abs()) * 1000
    }
}

fn wall(dev: &Device, cqe: u32) -> Result<Cq, Error> {
    dev.create_cq_ex(&CqInitAttrEx { cqe, wc_flags: BOTH, ..CqInitAttrEx::default() })
}

/// Sends a message from side 0 to side 1; the model time of its completions.
fn send(p: &mut Pair, wr_id: u64) -> u64 {
    p.qp[1].post_recv(&[RecvWr { wr_id, sg_list: &[] }]).unwrap();
    p.qp[0].post_send(&[SendWr { wr_id, send_flags: SendFlags::SIGNALED, ..SendWr::default() }]).unwrap();
    p.port.now()
}

/// Polls a completion of side `side`.
fn poll<T>(p: &mut Pair, side: usize, with: impl Fn(Completion<'_>) -> T) -> T {
    let poller = p.cq[side].start_poll(&POLL).unwrap();
    with(poller.completion())
}

fn times(c: Completion<'_>) -> (u64, u64) {
    (c.completion_ts().unwrap(), c.completion_wallclock_ns().unwrap())
}

/// The platform's time of day at `ns` of model time.
fn day(ns: u64) -> u64 {
    ModelConfig::default().epoch_s * SECOND + ns
}

/// Where the counter begins: at a wrap of its low half, of what is compared (2^63) and of all of it, half a year before.
fn worlds() -> impl Iterator<Item = World> {
    let starts = |khz: u32| {
        let half = (u128::from(YEAR / 2) * u128::from(khz) / 1_000_000) as u64;
        [0, (1 << 32) - 1000, (1 << 63) - half, 0_u64.wrapping_sub(half)]
    };
    let all = [(156_250, 0), (156_250, 100), (1_000_000, -100), (78_125, 17)];
    all.into_iter().flat_map(move |(khz, ppm)| starts(khz).map(|start| World { start, ppm, khz, read_ns: 0 }))
}

#[test]
fn raw_time_stamps_are_exact_over_a_year_and_each_wrap() {
    for world in worlds() {
        let mut p = world.pair();
        for i in 0..400 {
            let at = send(&mut p, i);
            for side in [0, 1] {
                assert_eq!(poll(&mut p, side, times).0, world.ticks(at), "{world:?}, {at} ns");
            }
            let values = ibv::query_rt_values_ex(&p.dev, ValuesMask::RAW_CLOCK).unwrap();
            assert_eq!((values.comp_mask, values.raw_clock), (ValuesMask::RAW_CLOCK, world.ticks(at)));
            p.port.model.jump(YEAR / 400);
        }
        p.end();
    }
}

/// Polls of a year: some in quick succession, some after days, some of entries that have waited.
#[test]
fn wall_clock_time_is_within_the_stated_error_over_a_year_and_each_wrap_and_never_goes_back() {
    for world in worlds() {
        let mut p = world.pair();
        let (mut last, mut random, mut written) = (0, world.start | 1, Vec::new());
        while p.port.now() < YEAR {
            written.push(send(&mut p, 7));
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let step = [SECOND / 20, SECOND / 3, 2 * SECOND, 40 * SECOND, YEAR / 1000][(random >> 60) as usize % 5];
            p.port.model.jump(step + (random >> 40));
            if written.len() < 8 && random >> 58 & 1 == 1 {
                continue;
            }
            for at in written.drain(..) {
                let times = [0, 1].map(|side| poll(&mut p, side, times).1);
                assert_eq!(times[0], times[1], "both ends of a message");
                let error = times[0].abs_diff(day(at));
                assert!(error <= world.off() + 10_000, "{world:?}: {error} ns at {at} ns");
                assert!(times[0] >= last, "{world:?}: {} after {last}", times[0]);
                last = times[0];
            }
        }
        p.end();
    }
}

#[test]
fn once_a_second_was_measured_the_error_is_that_of_measuring() {
    for read_ns in [0, 1000] {
        let world = World { start: u64::MAX - 1_000_000_000, ppm: 80, read_ns, ..PLAIN };
        let mut p = world.pair();
        let mut last = 0;
        for i in 0..500 {
            let at = send(&mut p, i);
            for side in [0, 1] {
                let time = poll(&mut p, side, times).1;
                // The counter is read by three reads: it is the second one's, half a read from the middle.
                let most = if i < 60 { world.off() } else { 0 } + read_ns + 60;
                assert!(time.abs_diff(day(at)) <= most && time >= last, "{i}: {time}, {}, after {last}", day(at));
                last = time;
            }
            p.port.model.step(SECOND / 20);
        }
        p.end();
    }
}

/// A session has one time stamp, its title's: it is every completion's, raw and as wall-clock time.
#[test]
fn completions_of_a_session_have_the_titles_time() {
    use CqeCompLayout::{Basic, Enhanced};
    for (layout, size) in [(Basic, 64), (Basic, 128), (Enhanced, 64), (Enhanced, 128)] {
        let mut p = pair_with(PLAIN.config(), 63, SIZES, |dev, cqe| {
            let mut attr = Attr::default();
            (attr.ex.cqe, attr.ex.wc_flags) = (cqe, BOTH);
            attr.compress(CqeCompResFormat::HASH.bits());
            attr.layout(layout);
            attr.size(size);
            attr.create(dev).unwrap()
        });
        // SAFETY: a query changes nothing.
        let qpc = unsafe { p.dev.general_cmd(&QueryQp { qpn: p.qp[1].qp_num() }) }.unwrap();
        for session in 0..10_u16 {
            p.qp[1].post_recv(&[RecvWr::default(); 6]).unwrap();
            // More than a second before it is polled.
            let at = p.port.now();
            let mut title = [0; 64];
            title[32..36].copy_from_slice(&qpc.user_index().to_be_bytes());
            title[48..56].copy_from_slice(&PLAIN.ticks(at).to_be_bytes());
            title[60..62].copy_from_slice(&(6 * session).to_be_bytes());
            title[63] = 0x20;
            // The enhanced layout's title is a completion itself.
            let minis = if layout == Enhanced { 5 } else { 6 };
            assert!(p.port.model.inject_session(p.cq[1].cqn(), Some(title), &vec![[0; 8]; minis]));
            p.port.model.jump(SECOND + SECOND / 3);
            let all: Vec<_> = (0..6).map(|_| poll(&mut p, 1, times)).collect();
            let (raw, time) = all[0];
            assert_eq!(all, [(raw, time); 6], "{layout:?}, {size} bytes, session {session}");
            assert_eq!(raw, PLAIN.ticks(at));
            assert!(time.abs_diff(day(at)) <= 60, "{time} at {at}");
        }
        p.end();
    }
}

/// Case C-070, and the whole kind: the clock is asked before an entry is taken, so that none is lost however often it is busy.
#[test]
fn a_clock_that_is_busy_takes_no_entry() {
    let mut p = PLAIN.pair();
    send(&mut p, 1);
    assert_eq!(poll(&mut p, 1, |c| c.wr_id()), 1);
    let record = p.cq[1].query().unwrap().dbr_addr();
    for wr_id in 2..5 {
        send(&mut p, wr_id);
    }
    let now = p.port.wall_clock();
    p.port.model.set_wall_clock(None);
    // What was measured a little more than a second ago will do.
    p.port.model.jump(SECOND + SECOND / 100);
    assert!(p.cq[0].start_poll(&POLL).is_ok());
    p.port.model.jump(SECOND - SECOND / 100);
    let index = |p: &Pair| p.port.words(record, 1)[0].load(Ordering::Relaxed).to_be();
    for _ in 0..20 {
        let error = p.cq[1].start_poll(&POLL).unwrap_err();
        assert_eq!((error, error.errno(), index(&p)), (PollError::ClockBusy, EBUSY, 1));
        assert_eq!(ibv::dv::get_clock_info(&p.dev), Err(Error::ClockBusy));
    }
    // Who needs no time gets the completions all the same.
    let mut wc = [mlx5::Wc::default()];
    assert_eq!((p.cq[1].poll_cq(&mut wc), wc[0].wr_id), (Ok(1), 2));
    p.port.model.set_wall_clock(now.map(|now| now + 2 * SECOND));
    assert_eq!([3, 4].map(|_| poll(&mut p, 1, |c| c.wr_id())), [3, 4]);
    assert_eq!(p.cq[1].start_poll(&POLL).unwrap_err(), PollError::Empty);
    assert_eq!(index(&p), 4);
    p.poll(0, 3);
    p.end();
}

/// Case C-074, and the whole kind: what the clock cannot give is EOPNOTSUPP, and no error number is negative.
#[test]
fn a_clock_that_is_not_there_is_a_positive_eopnotsupp() {
    let errno = |error: Error| error.errno();
    for (khz, known) in [(0, true), (156_250, false), (0, false)] {
        let (port, dev) = open_with(World { khz, ..PLAIN }.config());
        if !known {
            port.model.set_wall_clock(None);
        }
        assert_eq!(wall(&dev, 7).map(|_| ()).map_err(errno), Err(EOPNOTSUPP), "{khz} kHz, {known}");
        assert_eq!(ibv::dv::get_clock_info(&dev).map_err(errno), Err(EOPNOTSUPP));
        let raw = dev.query_rt_values_ex(ValuesMask::RAW_CLOCK).map(|_| ()).map_err(errno);
        assert_eq!(raw, if khz == 0 { Err(EOPNOTSUPP) } else { Ok(()) });
        close(&port, dev);
    }
}

#[test]
fn values_are_those_asked_for_and_unknown_ones_einval() {
    let (port, dev) = open_with(PLAIN.config());
    let none = dev.query_rt_values_ex(ValuesMask::empty()).unwrap();
    assert_eq!((none.comp_mask, none.raw_clock), (ValuesMask::empty(), 0));
    for bit in 1..32 {
        let unknown = dev.query_rt_values_ex(ValuesMask::from_bits_retain(1 << bit));
        assert_eq!(unknown.map_err(Error::errno), Err(EINVAL), "bit {bit}");
    }
    close(&port, dev);
}

#[test]
fn clock_info_turns_raw_time_into_the_time_of_day_from_a_second_before_to_a_second_behind() {
    let world = World { start: (1 << 63) - 400_000_000, ppm: 50, ..PLAIN };
    let (port, dev) = open_with(world.config());
    for s in 0..8 {
        let info = ibv::dv::get_clock_info(&dev).unwrap();
        assert_eq!((info.mask, info.frac), (u64::MAX >> 1, 0));
        let now = port.now();
        for ms in -1000..=1000_i64 {
            let Some(at) = now.checked_add_signed(ms * 1_000_000) else { continue };
            let error = ts_to_ns(&info, world.ticks(at)).abs_diff(day(at));
            assert!(error <= 2 * world.off() + 10, "{s} s {ms} ms: {error} ns");
        }
        port.model.step(SECOND);
    }
    close(&port, dev);
}

/// A device that has left has stamped its last: what it wrote is told all the same, as often as one likes.
#[test]
fn completions_of_a_device_that_is_gone_have_their_times() {
    let mut p = PLAIN.pair();
    let at = send(&mut p, 1);
    p.port.model.inject(Fault::Removed);
    p.port.model.jump(3600 * SECOND);
    assert_eq!(poll(&mut p, 0, times), (PLAIN.ticks(at), day(at)));
    let raw = p.dev.query_rt_values_ex(ValuesMask::RAW_CLOCK).unwrap_err();
    assert_eq!((raw, raw.errno()), (Error::Failed { why: Failure::Gone, command: None, sent: false }, ENODEV));
    assert_eq!(poll(&mut p, 1, times), (PLAIN.ticks(at), day(at)));
}

#[test]
fn a_time_of_day_that_is_set_is_followed_within_a_second() {
    let mut p = PLAIN.pair();
    for (i, hours) in [24, -48, 1].into_iter().enumerate() {
        let now = day(p.port.now()).saturating_add_signed(hours * 3600 * SECOND as i64);
        p.port.model.set_wall_clock(Some(now));
        p.port.model.step(SECOND);
        poll_until_told(&mut p, i as u64, now + SECOND);
    }
    p.end();
}

fn poll_until_told(p: &mut Pair, wr_id: u64, now: u64) {
    // The first poll measures, for what comes from now on.
    assert_eq!(p.cq[0].start_poll(&POLL).unwrap_err(), PollError::Empty);
    send(p, wr_id);
    for side in [0, 1] {
        assert_eq!(poll(p, side, times).1, now);
    }
}

/// Both modes: two CQs are polled on two threads, which both find that it is time to measure.
#[test]
fn threads_that_poll_their_cqs_find_time_going_on() {
    let mut p = PLAIN.pair();
    let thread = p.port.model.spawn().unwrap();
    let over = AtomicBool::new(false);
    let Pair { cq, qp, port, .. } = &mut p;
    let [first, second] = cq;
    let follow = |cq: &mut Cq| {
        let (mut last, mut got) = (0, 0);
        while got < 2000 {
            match cq.start_poll(&POLL) {
                Ok(poller) => {
                    let (ts, time) = times(poller.completion());
                    assert!(time >= last, "{ts}: {time} after {last}");
                    (last, got) = (time, got + 1);
                }
                Err(PollError::Empty | PollError::ClockBusy) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
            assert!(!over.load(Ordering::Relaxed), "{got} in time");
        }
    };
    std::thread::scope(|scope| {
        let pollers = [scope.spawn(|| follow(first)), scope.spawn(|| follow(second))];
        let (mut posted, mut tries) = (0, 0);
        while posted < 2000 {
            let wr = SendWr { wr_id: posted, send_flags: SendFlags::SIGNALED, ..SendWr::default() };
            let received = qp[1].post_recv(&[RecvWr { wr_id: posted, sg_list: &[] }]).is_ok();
            if received {
                while qp[0].post_send(&[wr]).is_err() {
                    std::thread::yield_now();
                }
                posted += 1;
            }
            if posted % 50 == 0 {
                // It is a second later for both.
                port.model.jump(SECOND / 2);
            }
            tries += 1;
            over.store(tries > 50_000_000, Ordering::Relaxed);
        }
        pollers.into_iter().for_each(|poller| poller.join().unwrap());
    });
    drop(thread);
    p.end();
}
