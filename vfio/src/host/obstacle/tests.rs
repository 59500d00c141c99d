//! That each obstacle has its words, and that docs/vfio.md has the same.

use std::path::PathBuf;

use mlx5::hw::platform::PlatformError;
use mlx5::{Error, Failure};

use super::*;

/// One of each kind, in the order of the document.
fn all() -> Vec<Obstacle> {
    let bdf = "0000:03:00.0".parse().unwrap();
    let path = |path: &str| PathBuf::from(path);
    let driver = |name: &str| Some(name.to_string());
    let member = |device: &str, name| Member { device: device.into(), driver: driver(name), harmless: false };
    let process = |own| Process { pid: 4242, name: "testpmd".into(), own };
    let (bind, unbind) = (
        Obstacle::DriverRefused { bdf, driver: "vfio-pci".into(), errno: 22 },
        Obstacle::DriverRefused { bdf, driver: "mlx5_core".into(), errno: 16 },
    );
    vec![
        Obstacle::NoSuchFunction { bdf },
        Obstacle::WrongId { bdf, vendor: 0x1234, device: 0x11e8 },
        Obstacle::NoIommu { bdf },
        Obstacle::NoIommuMode { bdf },
        Obstacle::NoVfio { path: path("/sys/bus/pci/drivers/vfio-pci") },
        Obstacle::NoVfio { path: path("/sys/module/vfio_iommu_type1") },
        Obstacle::NotBound { bdf, driver: driver("mlx5_core") },
        Obstacle::NotBound { bdf, driver: None },
        Obstacle::NetworkUp { bdf, netdevs: vec!["ens1f0np0".into()] },
        Obstacle::NetworkUp { bdf, netdevs: vec!["eth0".into(), "eth1".into()] },
        Obstacle::HasVirtualFunctions { bdf, vfs: 4 },
        bind.clone(),
        Obstacle::NotRestored { bdf, first: Box::new(bind), then: Box::new(unbind) },
        Obstacle::GroupNotViable { group: 12, culprits: vec![member("0000:03:00.1", "mlx5_core")] },
        Obstacle::GroupNotViable { group: 12, culprits: vec![member("0000:04:00.0", "nvme")] },
        Obstacle::NoNode { path: path("/dev/vfio/12") },
        Obstacle::Permission { path: path("/dev/vfio/12") },
        Obstacle::Permission { path: path("/dev/vfio/vfio") },
        Obstacle::Permission { path: path("/sys/bus/pci/devices/0000:03:00.0/driver_override") },
        Obstacle::Busy { bdf, group: 12, holders: vec![process(false)] },
        Obstacle::Busy { bdf, group: 12, holders: vec![process(true)] },
        Obstacle::Busy { bdf, group: 12, holders: vec![] },
        Obstacle::NoInterruptRemapping { bdf },
        Obstacle::Dead { bdf },
        Obstacle::NoReset { bdf },
        Obstacle::ResetFailed { bdf, errno: 25 },
        Obstacle::BarNotMappable { bdf, why: "it has no BAR 0" },
        Obstacle::TooFewVectors { bdf, has: 8, wanted: 16 },
        Obstacle::TooFewVectors { bdf, has: 0, wanted: 1 },
        Obstacle::LockedMemory { limit: 8 << 20, wanted: 10 << 20 },
        Obstacle::System { what: "opening /dev/vfio/12".into(), errno: 23 },
    ]
}

/// What the driver says later on, and what to do.
fn later() -> Vec<(String, String)> {
    let failed = |why| Error::Failed { why, command: None, sent: false };
    let locked = Error::Platform(PlatformError::LockedMemory { limit: 8 << 20, wanted: 10 << 20 });
    let errors = [Error::FirmwareNotReady, failed(Failure::Gone), failed(Failure::Reset), locked];
    let halves = |text: String| text.split_once("; ").map(|(what, cure)| (what.to_string(), cure.to_string())).unwrap();
    errors.map(|error| halves(error.to_string())).to_vec()
}

fn document() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/vfio.md")).unwrap()
}

#[test]
fn every_kind_is_looked_at_here() {
    let source = include_str!("text.rs");
    let names = source.split("pub fn what").next().unwrap().split("} => \"").skip(1);
    let mut kinds: Vec<&str> = names.map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(kinds.len() > 20, "is the pattern still right?");
    kinds.retain(|kind| !all().iter().any(|obstacle| obstacle.kind() == *kind));
    assert!(kinds.is_empty(), "add {kinds:?} to the samples");
}

#[test]
fn texts_are_one_line_with_a_cure_and_nothing_of_rust() {
    for obstacle in all() {
        let (what, cure, text) = (obstacle.what(), obstacle.cure(), obstacle.to_string());
        assert_eq!(text, format!("{what}: {cure}"));
        assert!(
            !what.is_empty() && !cure.is_empty() && !text.contains(['\n', '{', '|']) && !text.contains("Some("),
            "{text}"
        );
        assert!(text.len() < 300, "{} bytes: {text}", text.len());
    }
}

#[test]
fn the_table_of_messages_in_the_document_is_what_is_said() {
    let document = document();
    let rows = all().into_iter().map(|o| format!("| {} | {} | `{}` |", o.what(), o.cure(), o.kind()));
    let later = later().into_iter().map(|(what, cure)| format!("| {what} | {cure} |"));
    let missing: Vec<String> = rows.chain(later).filter(|row| !document.lines().any(|line| line == row)).collect();
    assert!(missing.is_empty(), "docs/vfio.md lacks\n{}", missing.join("\n"));
    let told =
        document.lines().filter(|line| line.starts_with("| ") && line.ends_with('|') && !line.starts_with("| message"));
    assert_eq!(told.count(), all().len() + self::later().len(), "the document has rows that nothing says");
}
