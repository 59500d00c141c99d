//! Rings with sessions of both layouts, mixed with everything else, read in batches of every size.

use mlx5_hw::cqe::CqeRef;
use mlx5_hw::mini_cqe::MiniFormat;
use mlx5_hw::ring::{Basic, Consumer, Cqe64, Cqe128, CqeFormat, Enhanced, Ring};
use proptest::prelude::*;

use super::device::memory;
use super::writer::{COMPRESSED, Entry, Expected, Noise, Writer};

/// The bytes of the full entry.
pub fn bytes(cqe: CqeRef<'_>) -> Entry {
    cqe.expand().map(|w| w.to_raw().to_ne_bytes()).concat().try_into().unwrap()
}

/// What the reader makes of an entry; with `lap_byte` the last but one byte of a session's completion is left out.
pub fn seen(cqe: CqeRef<'_>, slots: u32, lap_byte: bool) -> Expected {
    let mut bytes = bytes(cqe);
    if lap_byte && cqe.is_compressed() {
        bytes[62] = 0;
    }
    Expected {
        bytes,
        compressed: cqe.is_compressed(),
        hash: cqe.rss_hash_result(),
        checksum: cqe.check_sum(),
        stride: cqe.stride_index(),
        slots,
    }
}

/// What the device does next.
#[derive(Clone, Copy, Debug)]
enum Write {
    Full,
    Error,
    Session(u32),
    /// An entry that starts a session which no device writes.
    Malformed,
}

/// What is written, then how it is read.
#[derive(Clone, Copy, Debug)]
struct Step {
    write: Write,
    noise: u64,
    /// Entries to read.
    batch: u32,
    /// The batch is forgotten at first, and read again.
    forget: bool,
    /// The consumer index is published.
    publish: bool,
    /// What waits is rewritten as full entries before it is read.
    expand: bool,
}

fn step(longest: u32) -> impl Strategy<Value = Step> {
    let write = prop_oneof![
        3 => Just(Write::Full),
        1 => Just(Write::Error),
        6 => (1..=longest).prop_map(Write::Session),
        1 => Just(Write::Malformed),
    ];
    let batch = prop_oneof![4 => 0u32..=3, 4 => 0u32..=80, 1 => Just(u32::MAX)];
    (write, any::<u64>(), batch, prop::bool::weighted(0.2), prop::bool::weighted(0.8), prop::bool::weighted(0.1))
        .prop_map(|(write, noise, batch, forget, publish, expand)| Step {
            write,
            noise,
            batch,
            forget,
            publish,
            expand,
        })
}

/// Where a ring starts: anywhere, and about the wraps of the index on the wire, of the lap byte and of the number.
pub fn starts() -> impl Strategy<Value = u64> {
    let about = |n: u64| (0u64..80).prop_map(move |back| n - back);
    prop_oneof![Just(0), about(1 << 24), about(1 << 32), about(1 << 14), 0u64..1 << 32]
}

fn formats() -> impl Strategy<Value = MiniFormat> {
    prop::sample::select(MiniFormat::ALL.to_vec())
}

#[derive(Clone, Debug)]
struct Case {
    log: u32,
    start: u64,
    format: MiniFormat,
    max_num: u32,
    steps: Vec<Step>,
}

fn cases() -> impl Strategy<Value = Case> {
    let log = prop_oneof![8 => 1u32..=7, 1 => 8u32..=12];
    let max_num = prop_oneof![1 => 2u32..=20, 2 => Just(64), 1 => Just(4096)];
    let steps = max_num.prop_flat_map(|max| (Just(max), prop::collection::vec(step(max.min(100)), 1..40)));
    (log, starts(), formats(), steps).prop_map(|(log, start, format, (max_num, steps))| Case {
        log,
        start,
        format,
        max_num,
        steps,
    })
}

/// Reads up to `batch` entries, each of which must be the next one that waits; how many.
pub fn read<F: CqeFormat>(entries: &mut Consumer<'_, F>, writer: &Writer<'_>, batch: u32) -> usize {
    let mut waiting = writer.waiting.iter();
    for n in 0..batch as usize {
        let before = entries.ci();
        let cqe = entries.next();
        let taken = entries.ci().wrapping_sub(before);
        let next = waiting.next();
        assert_eq!(
            cqe.map(|cqe| seen(cqe, taken, writer.enhanced)).as_ref(),
            next,
            "number {n} of a batch from {}",
            entries.ci()
        );
        if next.is_none() {
            return n;
        }
    }
    batch as usize
}

fn batch<F: CqeFormat>(ring: &mut Ring<F>, mem: &[std::sync::atomic::AtomicU32], writer: &mut Writer<'_>, step: Step) {
    if step.expand {
        ring.expand(mem).unwrap();
        writer.expanded();
    }
    if step.forget {
        let mut entries = ring.consume(mem).unwrap();
        read(&mut entries, writer, step.batch);
        entries.abandon();
    }
    let mut entries = ring.consume(mem).unwrap();
    let taken = read(&mut entries, writer, step.batch);
    let slots: u32 = writer.waiting.drain(..taken).map(|e| e.slots).sum();
    assert_eq!(entries.taken(), slots);
    drop(entries);
    if step.publish {
        writer.given_back = writer.produced - writer.waiting.iter().map(|e| u64::from(e.slots)).sum::<u64>();
        assert_eq!(ring.ci(), writer.given_back as u32);
    }
}

/// Writes what the step says, as far as there is room.
fn write(writer: &mut Writer<'_>, step: Step, enhanced: bool, max_num: u32, entries: u64) {
    let mut noise = Noise(step.noise);
    let opcode = noise.below(5) as u8;
    let room = writer.room().min(u64::from(u32::MAX)) as u32;
    match step.write {
        _ if room == 0 => {}
        Write::Full => writer.full(noise.entry(opcode)),
        Write::Error => {
            let error = [5, 6, 12, 13, 14][noise.below(5) as usize];
            writer.full(noise.entry(error));
        }
        Write::Session(n) if enhanced => {
            let minis = noise.minis(n.min(room).min(7));
            writer.block(&minis);
        }
        Write::Session(n) => match n.min(room) {
            1 => writer.full(noise.entry(opcode)),
            n => writer.session(noise.entry(opcode), &noise.minis(n)),
        },
        Write::Malformed if enhanced => {
            let n = 8 + noise.below(8) as u32;
            if n <= room {
                writer.itself(with_count(noise.entry(n as u8 - 1), 7), n);
            }
        }
        Write::Malformed => {
            let wrong_opcode = [5, 6, 12, 13, 14][noise.below(5) as usize];
            let beyond = u64::from(max_num).min(entries) as u32 + 1 + noise.below(100) as u32;
            let (opcode, count) = [(opcode, 0), (opcode, 1), (opcode, beyond), (opcode, u32::MAX), (wrong_opcode, 2)]
                [noise.below(5) as usize];
            writer.itself(with_count(noise.entry(opcode), count), 1);
        }
    }
}

/// The entry as one that starts a session of `count`.
pub fn with_count(mut entry: Entry, count: u32) -> Entry {
    entry[44..48].copy_from_slice(&count.to_be_bytes());
    entry[63] |= COMPRESSED;
    entry
}

fn run<F: CqeFormat>(case: &Case, enhanced: bool, sessions: impl Fn(Ring<F>) -> Ring<F>) {
    let mut ring = sessions(Ring::<F>::with_ci(case.log, case.start as u32).unwrap());
    let mem = memory(ring.bytes());
    Ring::<F>::init_memory(&mem);
    let mut writer = Writer::new(&mem, F::SIZE, enhanced, case.format, case.start);
    for step in &case.steps {
        write(&mut writer, *step, enhanced, case.max_num, 1 << case.log);
        batch(&mut ring, &mem, &mut writer, *step);
    }
    let rest = Step { write: Write::Full, noise: 0, batch: u32::MAX, forget: true, publish: true, expand: false };
    batch(&mut ring, &mem, &mut writer, rest);
    assert_eq!((ring.ci(), writer.waiting.len()), (writer.produced as u32, 0));
}

proptest! {
    #[test]
    fn basic_sessions_of_64_bytes_expand_to_what_was_compressed(case in cases()) {
        run::<Basic<Cqe64>>(&case, false, |ring| ring.with_sessions(case.format, case.max_num));
    }

    #[test]
    fn basic_sessions_of_128_bytes_expand_to_what_was_compressed(case in cases()) {
        run::<Basic<Cqe128>>(&case, false, |ring| ring.with_sessions(case.format, case.max_num));
    }

    #[test]
    fn enhanced_blocks_of_64_bytes_expand_to_what_was_compressed(case in cases()) {
        run::<Enhanced<Cqe64>>(&case, true, |ring| ring.with_sessions(case.format, case.max_num));
    }

    #[test]
    fn enhanced_blocks_of_128_bytes_expand_to_what_was_compressed(case in cases()) {
        run::<Enhanced<Cqe128>>(&case, true, |ring| ring.with_sessions(case.format, case.max_num));
    }
}
