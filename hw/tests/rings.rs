//! Full rings of 256 entries, written by other software from public layouts (`tests/data/rings`), read to the end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use mlx5_hw::cqe::{CqeOpcode, CqeRef};
use mlx5_hw::dbrec::CqDbRec;
use mlx5_hw::mini_cqe::MiniFormat;
use mlx5_hw::ring::{Basic, Cqe64, Cqe128, CqeFormat, Enhanced, Ring};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/rings")
}

/// One ring, as its description tells.
struct Image {
    name: String,
    description: HashMap<String, String>,
    /// The even lap and the odd one.
    laps: [Vec<u8>; 2],
}

impl Image {
    fn load(name: &str) -> Self {
        let text = std::fs::read_to_string(folder().join(format!("{name}.txt"))).expect("the description");
        let description =
            text.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect();
        let laps = [0, 1].map(|lap| {
            let file = std::fs::File::open(folder().join(format!("{name}.p{lap}.bin.gz"))).expect("the image");
            let mut bytes = Vec::new();
            flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).expect("gzip");
            bytes
        });
        Self { name: name.into(), description, laps }
    }

    fn number(&self, key: &str) -> Option<u32> {
        let text = self.description.get(key)?;
        let number = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u32::from_str_radix(hex, 16));
        Some(number.expect("a number"))
    }

    /// The work queue that a completion is of, as the description calls it.
    fn side(&self, requester: bool) -> &'static str {
        match (requester, self.name.starts_with("srq")) {
            (true, _) => "sq",
            (false, true) => "srq",
            (false, false) => "rq",
        }
    }

    fn wr_id(&self, queue: &str, index: u32) -> u64 {
        let base =
            self.description[&format!("{queue}_wrid[i]")].strip_suffix("+i").unwrap().strip_prefix("0x").unwrap();
        u64::from_str_radix(base, 16).unwrap() + u64::from(index)
    }
}

fn names() -> Vec<String> {
    let files = std::fs::read_dir(folder()).expect("the images").map(|f| f.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = files.filter_map(|f| f.strip_suffix(".txt").map(String::from)).collect();
    names.sort();
    names
}

/// What one completion must be.
#[derive(Debug, PartialEq)]
struct Seen {
    requester: bool,
    user_index: u32,
    qpn: u32,
    byte_cnt: u32,
    wr_id: Option<u64>,
}

/// What number `n` of a ring must be: its queues take turns as each entry says, and complete in order.
fn expected(image: &Image, n: u32, cqe: CqeRef<'_>, turns: &mut HashMap<(u32, bool), u32>) -> Seen {
    let requester = cqe.opcode() == CqeOpcode::REQ;
    let (uidx0, qpn0, queues) = (image.number("uidx0"), image.number("qpn0"), image.number("nqp").unwrap_or(1));
    let queue = cqe.srqn_or_uidx().wrapping_sub(uidx0.unwrap_or(0));
    assert!(queue < queues, "{}: entry {n} is of queue {queue}", image.name);
    let turn = turns.entry((queue, requester)).or_default();
    let side = image.side(requester);
    let wr_id = uidx0.is_some().then(|| image.wr_id(side, *turn % 256));
    *turn += 1;
    Seen {
        requester,
        user_index: uidx0.unwrap_or(0) + queue,
        // An Ethernet queue's entries have the default flow tag there.
        qpn: qpn0.map_or(0xff_ffff, |qpn0| qpn0 + queue),
        // The description leaves the lengths out. They are in steps of 37, from 60 in minis and from 64 in full entries.
        byte_cnt: if cqe.is_compressed() { 60 } else { 64 } + 37 * n % 1400,
        wr_id,
    }
}

fn seen(image: &Image, cqe: CqeRef<'_>) -> Seen {
    let requester = cqe.opcode() == CqeOpcode::REQ;
    let side = image.side(requester);
    let slots = if side == "srq" { image.number("nent") } else { image.number(&format!("{side}_wqe_cnt")) };
    Seen {
        requester,
        user_index: cqe.srqn_or_uidx(),
        qpn: cqe.qpn(),
        byte_cnt: cqe.byte_cnt(),
        wr_id: slots.map(|slots| image.wr_id(side, u32::from(cqe.wqe_counter()) % slots)),
    }
}

/// Hash and checksum of number `n`: the hash goes by the completion, the checksum by its place in the session.
fn check_minis(image: &Image, n: u32, cqe: CqeRef<'_>) {
    if cqe.is_compressed() {
        let hash = image.name.contains("hash").then_some(0x1bad_cafe ^ n);
        let place = n % image.number("session").unwrap();
        let checksum = image.name.contains("csum").then_some(0x1234 + place as u16);
        assert_eq!((cqe.rss_hash_result(), cqe.check_sum()), (hash, checksum), "{}: entry {n}", image.name);
    }
}

/// Drains one lap, in batches; the consumer index is published after each.
fn drain<F: CqeFormat>(image: &Image, ring: &mut Ring<F>, mem: &[AtomicU32], batch: u32) {
    let record = [AtomicU32::new(0), AtomicU32::new(0)];
    let record = CqDbRec::first_of(&record).unwrap();
    let mut turns = HashMap::new();
    let (mut n, start) = (0, ring.ci());
    loop {
        let mut entries = ring.consume(mem).unwrap();
        for _ in 0..batch {
            let Some(cqe) = entries.next() else { break };
            assert_eq!(seen(image, cqe), expected(image, n, cqe, &mut turns), "{}: entry {n}", image.name);
            check_minis(image, n, cqe);
            n += 1;
        }
        let taken = entries.taken();
        drop(entries);
        record.set_consumer(ring.ci());
        if taken == 0 {
            break;
        }
    }
    assert_eq!(n, image.number("completions_per_lap").unwrap(), "{}", image.name);
    assert_eq!(ring.ci(), start.wrapping_add(image.number("nent").unwrap()), "{}", image.name);
}

fn lay(mem: &[AtomicU32], bytes: &[u8]) {
    assert_eq!(bytes.len(), 4 * mem.len());
    for (word, bytes) in mem.iter().zip(bytes.chunks_exact(4)) {
        word.store(u32::from_ne_bytes(bytes.try_into().unwrap()), Ordering::Relaxed);
    }
}

/// An even lap, then the odd one over what the first drain left.
fn both_laps<F: CqeFormat>(image: &Image, make: impl Fn(Ring<F>) -> Ring<F>) {
    assert_eq!(image.number("nent"), Some(256));
    assert_eq!(image.number("cqe_sz"), Some(F::SIZE as u32));
    for batch in [1, 3, 16, 64, 256] {
        let mut ring = make(Ring::<F>::new(8).unwrap());
        let mem: Vec<AtomicU32> = (0..ring.bytes() / 4).map(|_| AtomicU32::new(0)).collect();
        lay(&mem, &image.laps[0]);
        drain(image, &mut ring, &mem, batch);
        lay(&mem, &image.laps[1]);
        drain(image, &mut ring, &mem, batch);
    }
}

/// Reads the ring as its name tells; a plain one as a ring with sessions too, in which there happens to be none.
fn read(name: &str) {
    let image = Image::load(name);
    let mini = if name.contains("csum") { MiniFormat::Csum } else { MiniFormat::Hash };
    if name.starts_with("enh") {
        both_laps::<Enhanced<Cqe64>>(&image, |ring| ring.with_sessions(mini, 7));
    } else if name.starts_with("comp") {
        let session = image.number("session").unwrap();
        both_laps::<Basic<Cqe64>>(&image, |ring| ring.with_sessions(mini, session));
    } else if name.ends_with("x128") {
        both_laps::<Cqe128>(&image, |ring| ring);
        both_laps::<Basic<Cqe128>>(&image, |ring| ring);
    } else {
        both_laps::<Cqe64>(&image, |ring| ring);
        both_laps::<Basic<Cqe64>>(&image, |ring| ring);
    }
}

#[test]
fn every_ring_image_decodes_on_both_laps_in_batches_of_every_size() {
    let names = names();
    assert_eq!(names.len(), 19, "{names:?}");
    for name in names {
        read(&name);
    }
}
