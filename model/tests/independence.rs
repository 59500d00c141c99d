//! The model shares no layout with the driver: its sources name nothing of `mlx5_hw` but `platform`, and the crate depends
//! on nothing else that could bring the driver's layouts in.

#![allow(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

use std::fs;
use std::path::{Path, PathBuf};

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

/// Places where `mlx5_hw` is named and `::platform` does not follow.
fn foreign_names(text: &str) -> Vec<&str> {
    let named = text.match_indices("mlx5_hw").map(|(at, name)| &text[at + name.len()..]);
    let foreign = named.filter(|rest| {
        let rest = rest.strip_prefix("::platform");
        // `platform` must be the whole name.
        rest.is_none_or(|rest| rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    });
    foreign.map(|rest| rest.lines().next().unwrap_or("")).collect()
}

#[test]
fn the_search_finds_a_foreign_name() {
    assert!(foreign_names("use mlx5_hw::platform::{Bar, Platform};").is_empty());
    assert_eq!(foreign_names("use mlx5_hw::cqe::Cqe64;"), ["::cqe::Cqe64;"]);
    assert_eq!(foreign_names("use mlx5_hw::{platform, be};"), ["::{platform, be};"]);
    assert_eq!(foreign_names("use mlx5_hw as hw;"), [" as hw;"]);
    assert_eq!(foreign_names("use mlx5_hw::platforms;"), ["::platforms;"]);
}

/// Ways to take in text from other places than `src`.
const BACK_DOORS: &[&str] = &["path = \"", "include!", "include_str!", "include_bytes!"];

#[test]
fn the_sources_name_nothing_of_mlx5_hw_but_platform() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 20, "only {} sources found", files.len());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        assert!(!BACK_DOORS.iter().any(|door| text.contains(door)), "{}", file.display());
        // The crate's own documentation may say the name in backquotes.
        let text = text.replace("`mlx5_hw`", "");
        assert_eq!(foreign_names(&text), Vec::<&str>::new(), "{}", file.display());
    }
}

/// The trait module of a port could hand a layout on.
#[test]
fn platform_passes_nothing_on() {
    let platform = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hw/src/platform.rs");
    let text = fs::read_to_string(platform).unwrap();
    assert!(!text.contains("pub use") && !text.contains("crate::"), "hw/src/platform.rs");
}

/// Names in the tables of a manifest that bring other crates into the library, and a mark for what else could bring code.
fn brought_in(manifest: &str) -> Vec<&str> {
    let (mut found, mut inside) = (Vec::new(), false);
    for line in manifest.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[').filter(|_| line.ends_with(']') && !line.contains('"')) {
            inside = table == "dependencies]";
            // Tables of one dependency, of one target, of the build.
            if !inside && table.contains("dependencies") && table != "dev-dependencies]" {
                found.push(line);
            }
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            found.push(line.split(['.', ' ', '=']).next().unwrap_or(line));
        } else if line.starts_with("build") {
            found.push(line);
        }
    }
    found
}

#[test]
fn the_search_finds_each_way_to_depend_on_a_crate() {
    assert_eq!(brought_in("[package]\nname = \"x\"\n[dev-dependencies]\nb = \"1\""), Vec::<&str>::new());
    assert_eq!(brought_in("[dependencies]\na = { features = [\"c\"] }\n# no\nb.workspace = true"), ["a", "b"]);
    for table in ["[dependencies.mlx5]", "[target.'cfg(unix)'.dependencies]", "[build-dependencies]"] {
        assert_eq!(brought_in(table), [table]);
    }
    assert_eq!(brought_in("[package]\nbuild = \"other.rs\""), ["build = \"other.rs\""]);
}

/// Crates of others that the program and the server need; none of them knows the device.
const OTHERS: &[&str] = &[
    "anstream",
    "anstyle",
    "clap",
    "memmap2",
    "rustix",
    "serde_json",
    "signal-hook",
    "tempfile",
    "vfio-bindings",
    "vfio_user",
];

#[test]
fn of_the_crates_that_know_the_device_it_depends_on_mlx5_hw_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let mut found = brought_in(&manifest);
    found.retain(|name| !OTHERS.contains(name));
    assert_eq!(found, ["mlx5-hw"]);
    assert!(!root.join("build.rs").exists());
}
