//! The model as a port: memory, clock, interrupts, configuration space, its own thread.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mlx5_hw::platform::{Bar, Platform, PlatformError};
use mlx5_model::{Effect, Fault, Match, Model, ModelConfig, ReleaseKind};

use crate::driver::{Driver, load};
use crate::queues::EqWish;

#[test]
fn memory_is_zeroed_aligned_and_never_at_the_cpus_address() {
    let model = Model::default();
    let mut seen = Vec::new();
    for (size, align) in [(64, 64), (100, 256), (4096, 4096), (1 << 20, 1 << 16)] {
        let mem = model.alloc(size, align).unwrap();
        assert!(mem.size() >= size && mem.iova().is_multiple_of(align as u64));
        assert_eq!(mem.ptr().as_ptr().align_offset(align), 0);
        assert_ne!(mem.iova(), mem.ptr().as_ptr() as u64);
        assert!(load(&mem, 0, mem.size()).iter().all(|byte| *byte == 0));
        seen.push(mem);
    }
    seen.sort_by_key(|mem| mem.iova());
    for pair in seen.windows(2) {
        assert!(pair[1].iova() - (pair[0].iova() + pair[0].size() as u64) >= 4096, "a guard lies between");
    }
    assert_eq!(model.dma_outstanding().0, 4);
    for mem in seen {
        // SAFETY: from this platform's `alloc`; the device knows nothing of it.
        unsafe { model.free(mem) };
    }
    assert_eq!(model.dma_outstanding(), (0, 0));
    assert_eq!(model.alloc(64, 3).err(), Some(PlatformError::NoMemory));
    assert_eq!(model.violations(), []);
}

#[test]
fn memory_of_the_callers_own_is_mapped_with_its_offset_in_the_page() {
    let model = Model::default();
    let words: Vec<AtomicU64> = (0..1024).map(AtomicU64::new).collect();
    let ptr = NonNull::from(&words[3]).cast::<u8>();
    // SAFETY: the vector outlives the mapping, and only atomics refer to it.
    let iova = unsafe { model.map(ptr, 1000) }.unwrap();
    assert_eq!(iova % 4096, ptr.as_ptr() as u64 % 4096);
    // SAFETY: the device does not use the range.
    unsafe {
        assert_eq!(model.unmap(iova, 999), Err(PlatformError::Os(22)));
        assert_eq!(model.unmap(iova, 1000), Ok(()));
        assert_eq!(model.unmap(iova, 1000), Err(PlatformError::Os(22)));
    }
    assert_eq!(words[3].load(Ordering::Relaxed), 3);
    assert_eq!(model.violations(), []);
}

#[test]
fn time_moves_only_when_it_is_asked_for() {
    let model = Model::default();
    let first = model.now();
    assert_eq!(model.now() - first, 50);
    model.step(1_000_000);
    assert_eq!(model.now() - first, 1_000_100);
}

#[test]
fn an_idle_wait_loop_reaches_a_minute_in_few_turns_and_misses_nothing() {
    let d = Driver::up(ModelConfig::default());
    let effect = Effect::Late(3_000_000_000);
    d.model.inject(Fault::Command { at: Match::Opcode(0x107), effect });
    d.post(0, &d.build(0, 0x107, 1, &[0; 8], 16));
    let start = d.model.now();
    while !d.done(0) {
        d.model.relax();
    }
    assert!(d.model.now() - start < 3_000_001_000, "not a step too far");
    let start = d.model.now();
    let turns = (0..)
        .take_while(|_| {
            d.model.relax();
            d.model.now() - start < 60_000_000_000
        })
        .count();
    assert!(turns < 70_000, "{turns} turns");
}

#[test]
fn waiting_jumps_to_the_interrupt_or_to_the_deadline() {
    let mut d = Driver::up(ModelConfig::default());
    let eq = d.eq(EqWish { mask: 1 << 0xa, vector: 2, log_size: 4 }).unwrap();
    d.arm_eq(eq, 0);
    let effect = Effect::Late(7_000_000);
    d.model.inject(Fault::Command { at: Match::Opcode(0x107), effect });
    d.post(0, &d.build(0, 0x107, 1, &[0; 8], 16));
    let start = d.model.now();
    d.model.wait(1, start + 1_000_000);
    assert_eq!(d.model.now(), start + 1_000_050, "vector 1 does not fire");
    d.model.wait(2, start + 900_000_000);
    assert!(d.done(0) && d.model.now() < start + 8_000_000);
    assert_eq!(d.model.interrupts(), 1);
}

#[test]
fn waiting_for_several_interrupts_ends_with_any_of_them_and_takes_those_that_fired() {
    let mut d = Driver::up(ModelConfig::default());
    let eqs = [2, 5].map(|vector| d.eq(EqWish { mask: 1 << (16 + vector), vector, log_size: 4 }).unwrap());
    let stray = |kind| d.model.inject(Fault::Event { eqn: None, kind, sub: 0, data: [0; 28] });
    let start = d.model.now();
    d.model.wait_any(1 << 2 | 1 << 5, start + 1_000_000);
    assert_eq!(d.model.now(), start + 1_000_050, "nothing fires: until the deadline");
    eqs.iter().for_each(|eq| d.arm_eq(*eq, 0));
    let passes = |vectors: u64| {
        let start = d.model.now();
        d.model.wait_any(vectors, start + 1_000_000);
        d.model.now() - start - 50
    };
    stray(21);
    assert_eq!(passes(1 << 2 | 1 << 63), 1_000_000, "vector 5 is not meant, and stays");
    assert_eq!((passes(1 << 5 | 1 << 2), passes(1 << 5 | 1 << 2)), (0, 1_000_000), "taken once");
    eqs.iter().for_each(|eq| d.arm_eq(*eq, u32::from(eq.number == eqs[1].number)));
    stray(18);
    stray(21);
    assert_eq!((passes(1 << 5 | 1 << 2), passes(1 << 5), passes(1 << 2)), (0, 1_000_000, 1_000_000), "both at once");
    assert_eq!(passes(0), 1_000_000);
    assert_eq!([0, 2, 5, 99].map(|vector| d.model.interrupts_of(vector)), [0, 1, 2, 0]);
    assert_eq!(d.broken(), []);
}

#[test]
fn a_pause_lets_time_pass_and_leaves_the_interrupts() {
    let mut d = Driver::up(ModelConfig::default());
    let eq = d.eq(EqWish { mask: 1 << 0xa, vector: 2, log_size: 4 }).unwrap();
    d.arm_eq(eq, 0);
    d.model.inject(Fault::Command { at: Match::Opcode(0x107), effect: Effect::Late(7_000_000) });
    d.post(0, &d.build(0, 0x107, 1, &[0; 8], 16));
    let start = d.model.now();
    d.model.pause(start + 9_000_000);
    assert_eq!(d.model.now(), start + 9_000_050, "the interrupt that came at 7 ms ended nothing");
    assert!(d.done(0));
    let start = d.model.now();
    d.model.wait(2, start + 1_000_000);
    assert_eq!(d.model.now(), start + 50, "and is still there");
    d.model.pause(0);
    assert_eq!(d.model.now(), start + 100, "what is over does not wait");
}

#[test]
fn the_time_of_day_goes_on_with_the_clock() {
    let model = Model::new(ModelConfig { epoch_s: 1_234_567_890, ..ModelConfig::default() });
    let first = model.wall_clock().unwrap();
    assert!((1_234_567_890_000_000_000..1_234_567_890_001_000_000).contains(&first));
    assert_eq!(model.wall_clock(), Some(first), "asking for it lets no time pass");
    model.step(123_456);
    assert_eq!(model.wall_clock(), Some(first + 123_456));
}

#[test]
fn on_its_own_thread_waits_for_several_interrupts_and_pauses_end_in_time() {
    let mut d = Driver::up(ModelConfig::default());
    let eq = d.eq(EqWish { mask: 1 << 0xa, vector: 2, log_size: 4 }).unwrap();
    d.arm_eq(eq, 0);
    let _thread = d.model.spawn().unwrap();
    let wall = d.model.wall_clock().unwrap();
    let start = Instant::now();
    d.model.pause(d.model.now() + 5_000_000);
    assert!(start.elapsed() >= Duration::from_micros(4_900));
    d.model.wait_any(1 << 1 | 1 << 3, d.model.now() + 5_000_000);
    assert!(start.elapsed() >= Duration::from_micros(9_800), "no interrupt of these");
    d.model.inject(Fault::Command { at: Match::Opcode(0x107), effect: Effect::Late(2_000_000) });
    d.post(0, &d.build(0, 0x107, 1, &[0; 8], 16));
    let start = d.model.now();
    d.model.pause(start + 4_000_000);
    d.model.wait_any(1 << 1 | 1 << 2, start + 900_000_000);
    assert!(d.done(0) && d.model.now() < start + 800_000_000, "the pause took no interrupt");
    assert!(d.model.wall_clock().unwrap() - wall >= 14_000_000);
    assert_eq!(d.broken(), []);
}

#[test]
fn calls_are_counted_by_kind() {
    let mut d = Driver::up(ModelConfig::default());
    let eq = d.eq(EqWish { mask: 1 << 0xa, ..EqWish::default() }).unwrap();
    for threaded in [false, true] {
        let _thread = threaded.then(|| d.model.spawn().unwrap());
        let (before, page) = (d.model.calls(), d.uar as usize * 4096);
        assert_eq!(d.model.calls(), before, "counting does not count");
        let count = |call: &dyn Fn()| {
            let before = d.model.calls();
            call();
            let calls = d.model.calls().since(&before);
            [
                calls.reads,
                calls.init_segment,
                calls.sends,
                calls.cq_arms,
                calls.eq_arms,
                calls.eq_updates,
                calls.other_writes,
            ]
        };
        assert_eq!(count(&|| _ = d.read(4)), [1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(count(&|| d.write(0x18, 0)), [0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(count(&|| d.write64(page + 0x800, 0)), [0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(count(&|| [0x904, 0x900].iter().for_each(|at| d.write(page + at, 0))), [0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(count(&|| d.write64(page + 0x20, 0)), [0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(count(&|| [0x20, 0x24].iter().for_each(|at| d.write(page + at, 0))), [0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(count(&|| d.arm_eq(eq, 0)), [0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(count(&|| d.write(page + 0x48, eq.number << 24)), [0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(count(&|| d.write(page + 0x60, 0)), [0, 0, 0, 0, 0, 0, 1]);
        d.model.wait(1, 0);
        d.model.wait_any(1 << 1 | 1 << 2, 0);
        d.model.pause(0);
        (0..3).for_each(|_| d.model.relax());
        (0..4).for_each(|_| _ = d.model.now());
        let calls = d.model.calls().since(&before);
        assert_eq!((calls.waits, calls.pauses, calls.relaxes, calls.nows), (2, 1, 3, 4));
        assert_eq!(calls.doorbells(), 8);
    }
    d.model.take_violations();
}

#[test]
fn an_interrupt_fires_once_for_each_arming() {
    let mut d = Driver::up(ModelConfig::default());
    let eq = d.eq(EqWish { mask: 1 << 0xa, ..EqWish::default() }).unwrap();
    d.pages_wanted(1);
    assert_eq!(d.model.interrupts(), 0, "a queue starts disarmed");
    d.arm_eq(eq, 0);
    assert_eq!(d.model.interrupts(), 1, "an event was there");
    d.arm_eq(eq, 1);
    d.pages_wanted(1);
    d.pages_wanted(1);
    assert_eq!(d.model.interrupts(), 2, "the second finds it disarmed");
    d.write(d.uar as usize * 4096 + 0x48, eq.number << 24 | 3);
    d.pages_wanted(1);
    assert_eq!(d.model.interrupts(), 2, "0x48 does not arm");
    assert_eq!(d.broken(), []);
}

#[test]
fn events_go_round_the_ring_with_the_owner_bit_of_the_lap() {
    let mut d = Driver::up(ModelConfig::default());
    let eq = d.eq(EqWish { mask: 1 << 0xa, log_size: 2, vector: 0 }).unwrap();
    for at in 0..40 {
        assert!(d.eqe(eq, 2, at).is_none());
        d.pages_wanted(1);
        assert_eq!(d.eqe(eq, 2, at).unwrap()[1], 0xa);
        d.arm_eq(eq, at + 1);
    }
    assert_eq!(d.broken(), []);
}

#[test]
fn configuration_space_has_what_a_bus_driver_looks_for() {
    let model = Model::new(ModelConfig { bar_size: 1 << 20, vectors: 5, ..ModelConfig::default() });
    assert_eq!(model.config_read(0, 4), 0x1018_15b3);
    assert_eq!(model.config_read(4, 2) & 6, 6, "memory space and bus mastering are on");
    let mut caps = Vec::new();
    let mut at = model.config_read(0x34, 1) as usize;
    while at != 0 {
        caps.push((model.config_read(at, 1), at));
        at = model.config_read(at + 1, 1) as usize;
    }
    assert_eq!(caps, [(0x10, 0x60), (0x11, 0x9c)]);
    assert_eq!(model.config_read(0x64, 4) >> 28 & 1, 1, "function-level reset");
    assert_eq!(model.config_read(0x9e, 2) & 0x7ff, 4, "vectors less one");
    model.config_write(0x10, 4, u32::MAX);
    model.config_write(0x14, 4, u32::MAX);
    let size = u64::from(model.config_read(0x14, 4)) << 32 | u64::from(model.config_read(0x10, 4) & !0xf);
    assert_eq!(!size + 1, 1 << 20);
    assert_eq!(model.config_read(0x10, 4) & 0xf, 0xc, "64 bits, prefetchable");
    model.config_write(0, 4, 0);
    assert_eq!(model.config_read(0, 4), 0x1018_15b3, "ids are read only");
    assert_eq!(model.config_read(0x1000, 4), u32::MAX);
}

#[test]
fn a_reset_drops_everything_and_the_function_comes_up_again() {
    for by_config in [false, true] {
        let mut d = Driver::up(ModelConfig::default());
        d.eq(EqWish { mask: 1 << 0xa, ..EqWish::default() }).unwrap();
        if by_config {
            d.model.config_write(0x68, 2, 0x8000);
            assert_eq!(d.read(0x4), u32::MAX, "memory space is off after a reset");
            d.model.config_write(4, 2, 6);
        } else {
            d.model.reset().unwrap();
        }
        assert_eq!((d.model.firmware_pages(), d.read(0x14)), (0, 5 << 4 | 6));
        d.finish();
        assert_eq!(d.broken(), [], "left objects and pages are no violation");
        assert_eq!(d.model.dma_outstanding().0, 0);
    }
}

#[test]
fn without_bus_mastering_no_memory_is_touched() {
    let mut d = Driver::up(ModelConfig::default());
    d.model.config_write(4, 2, 2);
    d.post(0, &d.build(0, 0x107, 1, &[0; 8], 16));
    d.model.step(1_000_000);
    assert!(!d.done(0));
    d.finish();
    assert_eq!(d.broken(), []);
}

#[test]
fn on_its_own_thread_the_device_serves_a_driver_that_only_polls() {
    let mut d = Driver::new(ModelConfig { command_ns: 20_000, boot_ns: 1_000_000, ..ModelConfig::default() });
    let thread = d.model.spawn().unwrap();
    while d.read(0x1fc) >> 31 == 1 {
        std::thread::yield_now();
    }
    d.write(0x10, (d.queue().iova() >> 32) as u32);
    d.write(0x14, d.queue().iova() as u32);
    let poll = |d: &Driver| {
        let start = Instant::now();
        while !d.done(0) {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::hint::spin_loop();
        }
    };
    for _ in 0..20 {
        d.post(0, &d.build(0, 0x104, 0, &[0; 8], 12));
        poll(&d);
        d.post(0, &d.build(0, 0x105, 0, &[0; 8], 12));
        poll(&d);
    }
    drop(thread);
    assert!(d.model.commands().iter().all(|c| c.status == 0));
    assert_eq!(d.model.commands().len(), 40);
    d.finish();
    assert_eq!((d.broken(), d.model.dma_outstanding().0), (vec![], 0));
}

#[test]
fn on_its_own_thread_an_interrupt_wakes_the_driver() {
    let mut d = Driver::up(ModelConfig::default());
    let eq = d.eq(EqWish { mask: 1 << 0xa, ..EqWish::default() }).unwrap();
    let _thread = d.model.spawn().unwrap();
    for round in 0..10 {
        d.arm_eq(eq, round);
        d.model.inject(Fault::Command { at: Match::Opcode(0x107), effect: Effect::Late(2_000_000) });
        d.post(0, &d.build(0, 0x107, 1, &[0; 8], 16));
        let start = Instant::now();
        while d.eqe(eq, 4, round).is_none() {
            d.model.wait(0, d.model.now() + 500_000_000);
            assert!(start.elapsed() < Duration::from_secs(20));
        }
        assert!(d.done(0), "the command completes before its event");
    }
    assert_eq!(d.broken(), []);
    assert_eq!(d.model.size(), 1 << 20);
}

#[test]
fn no_access_to_registers_or_configuration_space_makes_the_device_panic() {
    let d = Driver::up(ModelConfig::default());
    let mut state = 0x9e37_79b9_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    const OFFSETS: [usize; 8] = [0x10, 0x14, 0x18, 0x8020, 0x8040, 0x8048, 0x8800, 0x8900];
    for round in 0..20_000 {
        let offset = if round % 2 == 0 { OFFSETS[random() as usize % 8] } else { random() as usize % (1 << 17) };
        match random() % 4 {
            0 => d.write64(offset, random()),
            1 => drop(d.read(offset)),
            _ => d.write(offset, random() as u32 >> (random() % 32)),
        }
    }
    for offset in [0, 0x68, 253, 255, 256, usize::MAX - 2, usize::MAX] {
        for width in [0, 1, 2, 4, usize::MAX] {
            d.model.config_read(offset, width);
            d.model.config_write(offset, width, 0);
            d.write(offset, 0);
            d.write64(offset, 0);
            d.read(offset);
        }
    }
}

/// A reset of the function in the middle of a command: nothing of it is heard of again, whatever it waited for, and the function
/// comes back as after power-on.
#[test]
fn a_reset_in_mid_command_drops_it_without_a_word_and_the_function_comes_back() {
    for effect in [Effect::Never, Effect::Late(1_000_000_000), Effect::AfterNext, Effect::PageRequest(4)] {
        let mut d = Driver::up(ModelConfig { boot_ns: 5_000_000, ..ModelConfig::default() });
        d.eq(EqWish { mask: 1 << 0xa | 1 << 0xb, ..EqWish::default() }).unwrap();
        d.model.inject(Fault::Command { at: Match::Opcode(0x10a), effect });
        d.post(0, &d.build(0, 0x10a, 0, &[0; 8], 112));
        assert!(!d.done(0), "{effect:?}");
        let before = (d.entry(0), d.model.interrupts());
        d.model.config_write(0x68, 2, 0x8000);
        let release = d.model.releases().pop().unwrap();
        assert_eq!((release.kind, release.pending, d.model.resets()), (ReleaseKind::FunctionReset, 1, 1), "{effect:?}");
        assert!(release.left.objects >= 2 && release.left.pages > 0, "{release}");
        let now = d.model.held();
        assert_eq!((now.objects, now.pages), (0, 0), "{effect:?}");
        assert_eq!(d.read(0x0), u32::MAX, "memory space is off");
        d.model.config_write(4, 2, 6);
        assert_eq!(d.read(0x1fc) >> 31, 1, "firmware boots");
        assert_eq!((d.read(0x10), d.read(0x14) & 0xffff_f000), (0, 0), "the queue's address is forgotten");
        d.model.step(2_000_000_000);
        assert_eq!((d.entry(0), d.model.interrupts()), before, "{effect:?}");
        d.boot();
        d.model.config_write(0x68, 2, 0x8000);
        d.finish();
        assert_eq!(d.model.violations(), [], "{effect:?}");
    }
}
