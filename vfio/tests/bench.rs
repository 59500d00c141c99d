//! `mlx5 bench`: what it prints, and how it refuses. Nothing here looks at a time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::tool;
use serde_json::Value;

fn run(code: i32, args: &[&str]) -> (String, String) {
    let out = tool(&[&["bench"], args].concat(), b"");
    let (stdout, stderr) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    assert_eq!(out.status.code(), Some(code), "{args:?}: {stdout}{stderr}");
    (stdout, stderr)
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&run(0, &[args, &["--json"]].concat()).0).unwrap()
}

/// Each run's sums are compared with what the ring says, so a row that is told has read every completion.
#[test]
fn every_path_with_a_mark_is_measured_beside_its_floor_with_every_level() {
    for level in ["portable", "best"] {
        let got = json(&["cq", "--quick", "--cpu", level]);
        let rows = got["rows"].as_array().unwrap();
        let marked: Vec<_> = rows.iter().filter(|row| row["must"].is_number()).collect();
        assert!(marked.len() >= 14, "{got}");
        for row in marked {
            let positive = |key: &str| row[key].as_f64().is_some_and(|n| n > 0.0);
            assert!(positive("nanoseconds") && positive("ratio") && positive("ratio_lower_quartile"), "{row}");
            assert!(row["peers"].as_array().is_some_and(|peers| !peers.is_empty()), "{row}");
            assert_eq!(row["met"].as_bool().map(|_| ()), Some(()), "{row}");
        }
        let floors: Vec<_> = rows.iter().filter(|row| row["path"].as_str().unwrap().starts_with("floor")).collect();
        assert!(floors.len() >= 3 && floors.iter().all(|floor| floor["ratio"] == 1.0), "{floors:?}");
    }
}

#[test]
fn calls_that_do_not_poll_are_timed_without_a_floor() {
    for call in ["post_send", "post_recv", "req_notify", "command"] {
        let got = json(&["cq", "--quick", "--only", call]);
        let rows = got["rows"].as_array().unwrap();
        let own: Vec<_> = rows.iter().filter(|row| row["path"].as_str().unwrap().contains(call)).collect();
        assert!(!own.is_empty());
        assert!(own.iter().all(|row| row["nanoseconds"].as_f64().unwrap() > 0.0 && row["ratio"].is_null()), "{own:?}");
    }
}

#[test]
fn the_chart_is_an_svg_with_a_bar_for_each_peer() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench.svg");
    let (table, _) = run(0, &["cq", "--quick", "--only", "poll_cq 16, mix", "--svg", file.to_str().unwrap()]);
    assert!(table.contains("poll_cq 16, mix of 8 QPs") && table.contains("libmlx5 poll_cq 22.3"), "{table}");
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("22.3 libmlx5 poll_cq"), "{svg}");
    let (_, told) = run(1, &["cq", "--quick", "--only", "poll_cq 16, mix", "--svg", "/no/such/folder/bench.svg"]);
    assert!(told.contains("/no/such/folder/bench.svg"), "{told}");
}

#[test]
fn a_level_that_the_processor_does_not_have_and_words_that_fit_nothing_are_wrong_arguments() {
    let (_, told) = run(2, &["cq", "--cpu", "mmx"]);
    assert!(told.contains("mmx") && told.contains("portable"), "{told}");
    let (_, told) = run(2, &["cq", "--only", "poll_cq 17"]);
    assert!(told.contains("poll_cq 17"), "{told}");
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn instructions_are_counted_exactly_so_the_count_is_the_same_each_time() {
    let count = || json(&["instructions", "--cpu", "portable", "--only", "floor"])["rows"][0]["counts"][0].clone();
    let first = count();
    assert!(first["instructions"].as_f64().unwrap() >= 5.0, "a loop with two loads, a test and a sum: {first}");
    assert_eq!(count(), first);
}
