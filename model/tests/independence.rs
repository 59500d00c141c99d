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

#[test]
fn the_sources_name_nothing_of_mlx5_hw_but_platform() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 20, "only {} sources found", files.len());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        // The crate's own documentation may say the name in backquotes.
        let text = text.replace("`mlx5_hw`", "");
        assert_eq!(foreign_names(&text), Vec::<&str>::new(), "{}", file.display());
    }
}

#[test]
fn the_crate_depends_on_mlx5_hw_alone() {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let section = manifest.split("[dependencies]").nth(1).unwrap().split('[').next().unwrap();
    let names: Vec<&str> = section.lines().filter_map(|line| line.split(['.', ' ', '=']).next()).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    assert_eq!(names, ["mlx5-hw"]);
}
