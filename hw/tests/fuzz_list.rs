//! Nothing of the driver that reads a device's bytes is left out where random bytes are given to it: no command, no accessor of
//! a completion, no format of a ring.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

fn source(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The word at the head of a text.
fn word(text: &str) -> String {
    text.trim_start().chars().take_while(|c| c.is_ascii_alphanumeric()).collect()
}

/// The name at the head of a text, underscores and all.
fn name(text: &str) -> String {
    text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}

#[test]
fn every_command_of_the_driver_is_fuzzed() {
    let root = root();
    let mut commands = BTreeSet::new();
    for file in std::fs::read_dir(root.join("src/cmd")).expect("the commands' sources") {
        let text = source(&file.expect("a file").path());
        for head in ["impl Plain for ", "impl Command for "] {
            commands.extend(text.split(head).skip(1).map(word));
        }
        for declared in text.split("transition!(").skip(1) {
            let line = declared.lines().find(|l| l.contains("Opcode::")).expect("a transition's name");
            commands.insert(word(line));
        }
    }
    commands.remove("");
    assert!(commands.len() > 35, "{commands:?}");
    let target = source(&root.join("../fuzz/src/commands.rs"));
    let fuzzed: BTreeSet<String> = target.split("one(&").skip(1).map(word).collect();
    assert_eq!(commands, fuzzed);
}

#[test]
fn every_accessor_of_a_completion_is_fuzzed() {
    let text = source(&root().join("src/cqe.rs"));
    let (_, accessors) = text.split_once("impl<'a> CqeRef<'a> {").expect("the entry in a ring");
    let (accessors, _) = accessors.split_once("\n}\n").expect("its end");
    let heads = ["\n    pub fn ", "\n    pub const fn "];
    let mut names: BTreeSet<String> = heads.iter().flat_map(|head| accessors.split(head).skip(1).map(name)).collect();
    // None of them: they make an entry.
    assert!(names.remove("new") && names.remove("of_slot") && names.len() > 30, "{names:?}");
    let target = source(&root().join("../fuzz/src/cqe.rs"));
    let fuzzed: BTreeSet<String> = target.split("cqe.").skip(1).map(name).collect();
    assert_eq!(names.difference(&fuzzed).collect::<Vec<_>>(), Vec::<&String>::new());
}

/// Plain formats, and each as the entries of a ring with sessions.
#[test]
fn every_format_of_a_completion_ring_is_fuzzed() {
    let ring = |file: &str| source(&root().join("src/ring").join(file));
    let (formats, aliases) = (ring("formats.rs"), ring("mod.rs"));
    let plain: Vec<String> = formats.split("\ncqe_format!(").skip(1).map(word).collect();
    let layouts: Vec<String> = aliases
        .lines()
        .filter(|l| l.contains("= Compressed<"))
        .filter_map(|l| Some(word(l.strip_prefix("pub type ")?)))
        .collect();
    assert!(plain.len() > 1 && layouts.len() > 1, "{plain:?} {layouts:?}");
    let target = source(&root().join("../fuzz/src/sessions.rs"));
    for entry in &plain {
        assert!(target.contains(&format!("ring::<{entry}>")), "{entry}");
        for layout in &layouts {
            assert!(target.contains(&format!("ring::<{layout}<{entry}>>")), "{layout} of {entry}");
        }
    }
}
