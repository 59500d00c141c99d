//! What the documents show is what the sources say.
#![allow(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

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
    for doc in [
        "README.md",
        "docs/ARCHITECTURE.md",
        "docs/cq.md",
        "docs/fidelity.md",
        "docs/performance.md",
        "docs/porting.md",
        "docs/qp.md",
        "docs/safety.md",
        "docs/testing.md",
        "docs/vfio.md",
    ] {
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

/// Source files below `dir` that contain unsafe code outside of tests.
fn unsafe_files(dir: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(dir)).unwrap() {
        let path = format!("{dir}/{}", entry.unwrap().file_name().to_string_lossy());
        if Path::new(env!("CARGO_MANIFEST_DIR")).join(&path).is_dir() {
            unsafe_files(&path, found);
        } else {
            let source = read(&path);
            let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
            let has =
                |line: &str| ["unsafe {", "unsafe impl", "unsafe fn", "unsafe trait"].iter().any(|u| line.contains(u));
            let only_tests = path.ends_with("fake.rs") || path.ends_with("tests.rs");
            if !only_tests && code.take_while(|line| *line != "mod tests {").any(has) {
                found.push(path);
            }
        }
    }
}

#[test]
fn unsafe_code_stands_where_the_safety_page_says() {
    let mut found = Vec::new();
    for dir in ["benches/drain/src", "hw/src", "src", "linker/src", "model/src", "tests/lab/probe/src", "vfio/src"] {
        unsafe_files(dir, &mut found);
    }
    let page = read("docs/safety.md");
    let table = page.lines().filter(|line| line.starts_with("| `"));
    let mut listed: Vec<_> = table
        .flat_map(|row| row.split('|').nth(1).unwrap().split(','))
        .map(|f| f.trim().trim_matches('`').to_owned())
        .collect();
    found.sort();
    listed.sort();
    assert_eq!(found, listed);
}

/// Rust sources below a directory, one behind the other.
fn sources(dir: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            all += &sources(&path);
        } else if path.extension().is_some_and(|e| e == "rs") {
            all += &std::fs::read_to_string(&path).unwrap();
        }
    }
    all
}

/// A name in backticks with three underscores or more, and nothing else in it, is a test's, unless it is a verb or a
/// field.
#[test]
fn every_test_that_the_pages_about_queues_name_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let code: String =
        ["hw", "src", "model", "vfio", "tests", "fuzz"].iter().map(|dir| sources(&root.join(dir))).collect();
    let is_test = |word: &&str| {
        let letters = word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        letters && word.matches('_').count() > 2 && !word.starts_with("ibv_") && !word.starts_with("mlx5dv_")
    };
    for file in ["docs/cq.md", "docs/qp.md"] {
        for name in read(file).split('`').skip(1).step_by(2).filter(is_test) {
            let known = code.contains(&format!("fn {name}(")) || code.contains(&format!(" {name}: 0x"));
            assert!(known, "{file} names the test {name}");
        }
    }
}

/// Each report about completion queues is named on their page, in a row or paragraph that names a test which exists; each about
/// VFIO is on the page about tests.
#[test]
fn every_case_of_class_c_names_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let code: String = ["hw", "src", "model", "vfio", "tests"].iter().map(|dir| sources(&root.join(dir))).collect();
    let [queues, vfio] = ["docs/cq.md", "docs/testing.md"].map(read);
    let blocks = |page: String| {
        page.split("\n\n")
            .flat_map(|part| {
                part.split(if part.starts_with('|') { "\n" } else { "\n\n" }).map(String::from).collect::<Vec<_>>()
            })
            .collect::<Vec<_>>()
    };
    let [queues, vfio] = [queues, vfio].map(blocks);
    // Rows of the lab's table, as `lab: NAME`.
    let scripts = std::fs::read_dir(root.join("tests/lab")).unwrap().map(|entry| entry.unwrap().path());
    let scripts = scripts.filter(|path| path.extension().is_some_and(|ext| ext == "py"));
    let rows: String = scripts.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    for row in vfio.iter().flat_map(|block| block.split('`')).filter_map(|name| name.strip_prefix("lab: ")) {
        assert!(rows.contains(&format!("    \"{row}\": ")), "docs/testing.md names the row {row}");
    }
    let has_row = |block: &str| block.contains("`lab: ");
    let has_test = |block: &str| block.split('`').skip(1).step_by(2).any(|name| code.contains(&format!("fn {name}(")));
    let mut seen = (0, 0);
    for line in read("tests/data/public-cases.jsonl").lines() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        let (id, kind) = (case["id"].as_str().unwrap(), case["kind"].as_str().unwrap());
        if id.starts_with("C-") {
            let (page, count) = if kind == "vfio" { (&vfio, &mut seen.1) } else { (&queues, &mut seen.0) };
            assert!(page.iter().any(|block| block.contains(id) && (has_test(block) || has_row(block))), "{id}, {kind}");
            *count += 1;
        }
    }
    assert_eq!(seen, (49, 14));
}
