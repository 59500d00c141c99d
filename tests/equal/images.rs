//! All rings of `tests/data/rings`, on many laps, in batches of every size, with every set of instructions.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use mlx5::{Packet, Wc};

use crate::naive::{Layout, Mini, Naive, Next, Queue};
use crate::world::{Facade, Shape, levels};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rings")
}

struct Image {
    name: String,
    laps: [Vec<u8>; 2],
    shape: Shape,
}

impl Image {
    fn load(name: &str) -> Self {
        let text = std::fs::read_to_string(folder().join(format!("{name}.txt"))).unwrap();
        let number = |key: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
            value.strip_prefix("0x").map_or_else(|| value.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok())
        };
        let laps = [0, 1].map(|lap| {
            let file = std::fs::File::open(folder().join(format!("{name}.p{lap}.bin.gz"))).unwrap();
            let mut bytes = Vec::new();
            flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
            bytes
        });
        let mini = if name.contains("csum") { Mini::Csum } else { Mini::Hash };
        let layout = match name.split('_').next().unwrap() {
            "enh" => Layout::Enhanced(mini),
            "comp" => Layout::Basic(mini),
            _ => Layout::Plain,
        };
        let ids = |first: u64, n: Option<u32>| (first..first + u64::from(n.unwrap_or(256))).collect::<Vec<_>>();
        let send = ids(0x2000, number("sq_wqe_cnt"));
        let queue = if name.starts_with("srq") {
            Queue::Shared { srq: ids(0x3000, number("nent")), send }
        } else {
            Queue::Own { recv: ids(0x1000, number("rq_wqe_cnt")), send }
        };
        let first = number("uidx0").unwrap_or(0);
        let queues: HashMap<_, _> =
            (first..first + number("nqp").unwrap_or(1)).map(|index| (index, queue.clone())).collect();
        let (log, cqe_size) = (number("nent").unwrap().ilog2(), number("cqe_sz").unwrap() as usize);
        Self { name: name.into(), laps, shape: Shape { log, cqe_size, layout, queues } }
    }

    fn all() -> Vec<Self> {
        let mut names: Vec<_> = std::fs::read_dir(folder())
            .unwrap()
            .filter_map(|file| file.unwrap().file_name().into_string().unwrap().strip_suffix(".txt").map(String::from))
            .collect();
        names.sort();
        assert_eq!(names.len(), 19, "{names:?}");
        names.iter().map(|name| Self::load(name)).collect()
    }

    /// The bytes of a lap: the two images take turns, and the enhanced layout has the lap's number in byte 62 of each entry.
    fn lap(&self, lap: u32) -> Vec<u8> {
        let mut bytes = self.laps[lap as usize % 2].clone();
        if matches!(self.shape.layout, Layout::Enhanced(_)) {
            bytes.chunks_mut(64).filter(|slot| slot[63] < 0xf0).for_each(|slot| slot[62] = lap as u8);
        }
        bytes
    }
}

/// A way of polling; what it gives is compared.
#[derive(Clone, Copy)]
enum Way {
    PollCq,
    Iterator,
    Packets,
}

/// What a batch gave.
#[derive(Debug, PartialEq)]
enum Given {
    Completions(Vec<Wc>),
    Seen(Vec<Next>),
    Packets(Vec<Packet>),
}

impl Given {
    fn len(&self) -> usize {
        match self {
            Self::Completions(all) => all.len(),
            Self::Seen(all) => all.len(),
            Self::Packets(all) => all.len(),
        }
    }
}

impl Way {
    fn of_naive(self, naive: &mut Naive, batch: usize) -> Given {
        match self {
            Self::PollCq => Given::Completions(naive.poll_cq(batch).unwrap()),
            Self::Iterator => Given::Seen(there(naive.iterate(batch))),
            Self::Packets => Given::Packets(naive.poll_packets(batch).unwrap()),
        }
    }

    fn of_facade(self, facade: &mut Facade, batch: usize) -> Given {
        match self {
            Self::PollCq => Given::Completions(facade.poll_cq(batch).unwrap()),
            Self::Iterator => Given::Seen(there(facade.iterate(batch))),
            Self::Packets => Given::Packets(facade.poll_packets(batch).unwrap()),
        }
    }
}

fn there(seen: Vec<Next>) -> Vec<Next> {
    seen.into_iter().take_while(|next| *next != Next::Nothing).collect()
}

/// Drains `laps` laps with each level, in batches of `batch`; the number of completions.
fn drain(image: &Image, laps: u32, batch: usize, way: Way) -> usize {
    let mut naive = image.shape.naive();
    let mut facades: Vec<_> = levels().into_iter().map(|cpu| (cpu, image.shape.facade(cpu))).collect();
    let mut drained = 0;
    for lap in 0..laps {
        naive.ring = image.lap(lap);
        facades.iter().for_each(|(_, facade)| facade.lay(&naive.ring));
        loop {
            let expected = way.of_naive(&mut naive, batch);
            for (cpu, facade) in &mut facades {
                let what = || format!("{}, {}, batch {batch}, lap {lap}", image.name, cpu.name());
                assert_eq!(way.of_facade(facade, batch), expected, "{}", what());
                assert_eq!(facade.record(), naive.record, "{}", what());
                facade.post_again();
            }
            if expected.len() == 0 {
                break;
            }
            drained += expected.len();
        }
        for (cpu, facade) in &facades {
            assert!(facade.ring_is(&naive), "{}, {}, batch {batch}, lap {lap}", image.name, cpu.name());
        }
        naive.may_be_stamped.clear();
    }
    drained
}

#[test]
fn every_ring_gives_the_same_completions_in_batches_of_every_size() {
    for image in Image::all() {
        for batch in 1..=65 {
            assert_eq!(drain(&image, 2, batch, Way::PollCq), 2 * 256, "{}", image.name);
        }
    }
}

#[test]
fn every_ring_gives_the_same_completions_one_by_one() {
    for image in Image::all() {
        for batch in [1, 2, 3, 5, 8, 13, 16, 31, 64, 65] {
            assert_eq!(drain(&image, 2, batch, Way::Iterator), 2 * 256, "{}", image.name);
        }
    }
}

#[test]
fn every_ring_gives_the_same_packets_in_batches_of_every_size() {
    for image in Image::all() {
        for batch in (1..=9).chain([15, 16, 17, 31, 32, 63, 64, 65]) {
            assert_eq!(drain(&image, 2, batch, Way::Packets), 2 * 256, "{}", image.name);
        }
    }
}

/// The first entries of the ring of packets, with a checksum and a VLAN tag where the PRM's `cqe64` has them.
#[test]
fn a_packet_says_what_its_entry_does() {
    let image = Image::load("eth_256x64");
    for cpu in levels() {
        let mut facade = image.shape.facade(cpu);
        let mut ring = image.lap(0);
        for entry in ring.chunks_mut(64) {
            entry[20..22].copy_from_slice(&[0xbe, 0xef]);
            (entry[29], entry[30], entry[31]) = (entry[29] | 1, 0x60, 0x07);
        }
        facade.lay(&ring);
        let packets = facade.poll_packets(64).unwrap();
        let seen = |packet: &Packet| (packet.wr_id, packet.byte_len, packet.rss_hash);
        assert_eq!(packets.len(), 64);
        assert_eq!(seen(&packets[0]), (0x1000, 0x40, 0x1bad_cafe));
        assert_eq!(seen(&packets[1]), (0x1001, 0x65, 0x1bad_caff));
        for packet in &packets {
            assert_eq!((packet.check_sum, packet.flow_tag, packet.vlan), (0xbeef, 0xff_ffff, 0x6007), "{}", cpu.name());
            assert_eq!((packet.l3_type(), packet.l4_type(), packet.status().0), (1, 1, 0));
            assert_eq!((packet.stride_index, packet.vendor_err), (0, 0));
            // Layers 3 and 4 are good, a VLAN tag was there; everything but a stride is told.
            assert_eq!(packet.flags.bits(), 0b110 | 1 << 8 | 1 << 10 | 1 << 12 | 0b1111 << 24);
        }
    }
}

/// More laps than byte 62 of the enhanced layout can tell apart.
#[test]
fn every_ring_gives_the_same_completions_on_many_laps() {
    for image in Image::all() {
        let laps = if matches!(image.shape.layout, Layout::Enhanced(_)) { 300 } else { 9 };
        assert_eq!(drain(&image, laps, 64, Way::PollCq), laps as usize * 256, "{}", image.name);
    }
}

/// The sum that `README.md` beside the rings makes computable without looking at any completion: `wr_id`s of whole laps in
/// order. It shows that the naive model itself is right.
#[test]
fn the_naive_model_names_the_requests_that_the_rings_description_does() {
    for image in Image::all().iter().filter(|image| !image.name.starts_with("mix8")) {
        let mut naive = image.shape.naive();
        naive.ring = image.lap(0);
        let wcs = naive.poll_cq(256).unwrap();
        let first = match image.name.split('_').next().unwrap() {
            "req" => 0x2000,
            "srq" => 0x3000,
            _ => 0x1000,
        };
        assert!(wcs.iter().map(|wc| wc.wr_id).eq(first..first + 256), "{}", image.name);
    }
}
