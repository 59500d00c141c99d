//! No command of the driver is left out where random bytes are given to its decoder.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

fn source(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The word at the head of a text.
fn word(text: &str) -> String {
    text.trim_start().chars().take_while(|c| c.is_ascii_alphanumeric()).collect()
}

#[test]
fn every_command_of_the_driver_is_fuzzed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
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
