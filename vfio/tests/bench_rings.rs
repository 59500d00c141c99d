//! The generator of rings against rings that others wrote (`tests/data/rings`).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Read;
use std::path::Path;

use mlx5_vfio::bench::rings::{Image, Kind};
use mlx5_vfio::decode::Compress;

fn foreign(name: &str, lap: u32) -> Vec<u8> {
    let path = format!("../tests/data/rings/{name}.p{lap}.bin.gz");
    let file = std::fs::File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn rings_of_256_entries_are_byte_for_byte_those_of_the_data() {
    let mut names = vec![
        ("resp_send_256x64".to_string(), Kind::Send, 64),
        ("resp_send_256x128".into(), Kind::Send, 128),
        ("resp_send_imm_256x64".into(), Kind::SendImm, 64),
        ("srq_send_256x64".into(), Kind::Srq, 64),
        ("req_send_256x64".into(), Kind::Requester, 64),
        ("req_send_256x128".into(), Kind::Requester, 128),
        ("mix8_256x64".into(), Kind::Mix, 64),
        ("eth_256x64".into(), Kind::Ethernet, 64),
        ("enh_hash_s7_256x64".into(), Kind::Enhanced, 64),
    ];
    for session in [7, 8, 16, 32, 63] {
        names.push((format!("comp_hash_s{session}_256x64"), Kind::Basic(Compress::Hash, session), 64));
        names.push((format!("comp_csum_s{session}_256x64"), Kind::Basic(Compress::Csum, session), 64));
    }
    for (name, kind, cqe_size) in names {
        let mut image = Image::new(kind, 8, cqe_size);
        for lap in [0, 1] {
            let (own, right) = (image.lap(lap), foreign(&name, lap));
            let differs = own.iter().zip(&right).position(|(a, b)| a != b);
            assert!(own.len() == right.len() && differs.is_none(), "{name} lap {lap} differs at {differs:?}");
        }
    }
}

#[test]
fn an_enhanced_ring_says_on_each_lap_which_lap_it_is_and_any_other_only_whether_it_is_odd() {
    let mut enhanced = Image::new(Kind::Enhanced, 8, 64);
    let even = enhanced.lap(0).to_vec();
    for lap in [2, 0x104, 0xfe] {
        let image = enhanced.lap(lap);
        for (slot, first) in image.chunks(64).zip(even.chunks(64)) {
            let owned = slot[63] & 0xf0 != 0xf0;
            assert_eq!(slot[62], if owned { lap as u8 } else { 0 });
            assert_eq!((&slot[..62], slot[63]), (&first[..62], first[63]));
        }
    }
    let mut plain = Image::new(Kind::Mix, 12, 64);
    let even = plain.lap(0).to_vec();
    assert_eq!(plain.lap(6), even);
    assert_ne!(plain.lap(7), even);
}
