//! The library as a program in C uses it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../../../tests/equal/naive.rs"]
#[expect(dead_code, reason = "the tests of the driver use all of it")]
mod naive;

const LAPS: u32 = 5;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where cargo has put the library for this test.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_path_buf()
}

/// Compiles `drain.c` into the folder, against the library.
fn compile(folder: &Path) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join("drain");
    let status = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
        .args([here, &here.join("tests/drain.c")])
        .arg("-L")
        .args([&library()])
        .args(["-lmlx5_drain", "-o"])
        .arg(&program)
        .status()
        .unwrap();
    assert!(status.success());
    program
}

/// A ring as its description tells: the numbers behind `ring` in `struct drain_params`, and the two images.
struct Image {
    name: String,
    params: [u32; 10],
    laps: [Vec<u8>; 2],
}

impl Image {
    fn load(name: &str) -> Self {
        let folder = root().join("tests/data/rings");
        let text = std::fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap();
        let number = |key: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
            value.strip_prefix("0x").map_or_else(|| value.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok())
        };
        let laps = [0, 1].map(|lap| {
            let file = std::fs::File::open(folder.join(format!("{name}.p{lap}.bin.gz"))).unwrap();
            let mut bytes = Vec::new();
            flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
            bytes
        });
        // `enum drain_kind`, in the order of the header.
        let kinds = ["resp_send_2", "resp_send_imm", "req_", "srq_", "mix8", "comp_hash", "comp_csum", "enh_", "eth_"];
        let kind = kinds.iter().position(|kind| name.starts_with(kind)).unwrap() as u32;
        let or = |key, default| number(key).unwrap_or(default);
        let params = [
            or("nent", 0),
            or("cqe_sz", 0),
            kind,
            or("session", 0),
            or("uidx0", 0x21),
            or("qpn0", 0x1234),
            or("nqp", 1),
            or("rq_wqe_cnt", 256),
            or("sq_wqe_cnt", 256),
            u32::from(name.starts_with("srq")),
        ];
        Self { name: name.into(), params, laps }
    }

    /// `wr_id`, length and status of a lap, added up by the model that shares nothing with the driver.
    fn sum(&self, lap: u32) -> u64 {
        use naive::{Layout, Mini, Naive, Queue};
        let layout = match self.params[2] {
            5 => Layout::Basic(Mini::Hash),
            6 => Layout::Basic(Mini::Csum),
            7 => Layout::Enhanced(Mini::Hash),
            _ => Layout::Plain,
        };
        let ids = |first: u64| (first..first + 256).collect::<Vec<_>>();
        let queue = match self.params[9] {
            0 => Queue::Own { recv: ids(0x1000), send: ids(0x2000) },
            _ => Queue::Shared { srq: ids(0x3000), send: ids(0x2000) },
        };
        let first = if self.params[2] == 8 { 0 } else { self.params[4] };
        let queues = (first..first + self.params[6]).map(|index| (index, queue.clone())).collect();
        let mut model = Naive::new(8, self.params[1] as usize, layout, queues);
        // The model's own laps: the second image is that of an odd one.
        for image in self.laps.iter().take(1 + lap as usize % 2) {
            model.ring.copy_from_slice(image);
            if lap % 2 == 1 && std::ptr::eq(image, &self.laps[0]) {
                model.poll_cq(256).unwrap();
            }
        }
        let wcs = model.poll_cq(256).unwrap();
        assert_eq!(wcs.len(), 256, "{}", self.name);
        wcs.iter().map(|wc| wc.wr_id + u64::from(wc.byte_len) + u64::from(wc.status.0)).sum()
    }
}

#[test]
fn a_program_in_c_drains_every_ring_in_every_mode() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path());
    let names = std::fs::read_dir(root().join("tests/data/rings")).unwrap();
    let names = names.filter_map(|f| f.unwrap().file_name().to_str().unwrap().strip_suffix(".txt").map(String::from));
    let mut rings = 0;
    for image in names.map(|name| Image::load(&name)) {
        let files = [0, 1].map(|lap| folder.path().join(format!("lap{lap}")));
        files.iter().zip(&image.laps).for_each(|(file, bytes)| std::fs::write(file, bytes).unwrap());
        let output = Command::new(&program)
            .args(files)
            .args(std::iter::once(LAPS).chain(image.params).map(|n| n.to_string()))
            .env("LD_LIBRARY_PATH", library())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let modes: Vec<_> = mlx5_drain::Mode::ALL.iter().map(|mode| mode.name().to_str().unwrap()).collect();
        let sums = (0..LAPS).map(|lap| image.sum(lap));
        let lines: Vec<_> = sums.map(|sum| format!("100 156 0 {sum}")).collect();
        let expected: Vec<_> =
            modes.iter().flat_map(|mode| lines.iter().map(move |line| format!("{mode} {line}"))).collect();
        assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{}", image.name);
        assert!(output.status.success(), "{}", image.name);
        rings += 1;
    }
    assert_eq!(rings, 19);
}
