//! What the documents show is what the sources say.

use std::path::Path;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn the_port_in_the_porting_guide_is_the_one_that_is_built() {
    let (guide, port) = (read("docs/porting.md"), read("linker/src/port.rs"));
    assert!(guide.contains(&format!("```rust,ignore\n{port}```\n")), "copy linker/src/port.rs into docs/porting.md");
}

#[test]
fn every_file_that_a_document_names_exists() {
    let mut named = 0;
    for doc in ["README.md", "docs/ARCHITECTURE.md", "docs/porting.md", "docs/safety.md", "docs/testing.md"] {
        for word in read(doc).split(|c: char| c.is_whitespace() || "`()[],;".contains(c)) {
            let word = word.trim_end_matches(['.', ':']);
            let of_project = ["hw/", "src/", "model/", "vfio/", "tests/", "linker/", "docs/", "benches/", "examples/"];
            if of_project.iter().any(|room| word.starts_with(room)) && !word.contains(['*', '{', '<']) {
                assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(word).exists(), "{doc} names {word}");
                named += 1;
            }
        }
    }
    assert!(named > 20, "only {named} names found: is the pattern still right?");
}
