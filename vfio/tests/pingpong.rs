//! `mlx5 pingpong`: latencies, and what waiting for completions counted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/pingpong.rs"]
mod tool;

use serde_json::Value;
use tool::{json, pingpong};

/// Both directions of each round trip are messages; what is told of them fits together.
#[track_caller]
fn check_latency(latency: &Value, messages: u64) {
    let ns = |name: &str| latency[name].as_u64().unwrap_or_else(|| panic!("{name}: {latency}"));
    assert_eq!(latency["messages"], messages);
    let told = ["min_ns", "p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "max_ns"].map(ns);
    assert!(told[0] > 0 && told.is_sorted(), "{latency}");
    assert!((told[0]..=told[5]).contains(&ns("mean_ns")), "{latency}");
    let rows = latency["histogram"].as_array().unwrap();
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap();
    assert_eq!(rows.iter().map(|row| number(row, "count")).sum::<u64>(), messages);
    assert!(rows.windows(2).all(|two| two[0]["to_ns"] == two[1]["from_ns"]), "{latency}");
    let (first, last) = (&rows[0], &rows[rows.len() - 1]);
    assert!(number(first, "from_ns") <= told[0] && told[0] < number(first, "to_ns"), "{latency}");
    assert!(number(last, "from_ns") <= told[5] && told[5] < number(last, "to_ns"), "{latency}");
}

#[test]
fn every_message_is_in_the_histogram_however_the_model_runs() {
    for options in ["--iters 100", "--iters 100 --depth 1", "--iters 100 --thread", "--iters 1 --thread"] {
        let got = json(0, options);
        check_latency(&got["latency"], 2 * got["iters"].as_u64().unwrap());
        assert_eq!(got["threaded"], options.contains("--thread"), "{got}");
    }
}

/// What a run that failed measured is told as well.
#[test]
fn only_messages_that_were_verified_are_in_the_histogram() {
    let got = json(1, "--iters 104 --fault corrupt --depth 1");
    check_latency(&got["latency"], 104);
    let got = json(1, "--iters 1 --fault corrupt");
    check_latency(&got["latency"], 1);
}

/// The rows of the histogram: where the counts end, and where the bars begin.
fn columns(text: &str) -> Vec<(usize, usize)> {
    let rows = text.lines().filter(|line| line.contains(" us  ") && line.contains(" - "));
    rows.map(|line| {
        let bar = line.find('#').unwrap_or_else(|| line.len() + 2);
        (line.find(" us  ").unwrap(), bar)
    })
    .collect()
}

#[test]
fn bars_line_up_in_the_output() {
    let (text, _) = pingpong(0, "--iters 300 --depth 1");
    assert!(text.contains("Latency of 600 messages, from posting the send to polling the receive, one in flight:\n"));
    let columns = columns(&text);
    assert!(!columns.is_empty() && columns.iter().all(|column| *column == columns[0]), "{columns:?}\n{text}");
    let longest = text.lines().map(|line| line.matches('#').count()).max();
    assert_eq!(longest, Some(40), "{text}");
    for name in ["min", "50%", "90%", "99%", "99.9%", "max"] {
        let line = text.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_else(|| panic!("{text}"));
        assert!(line.ends_with(" us"), "{line}");
    }
}

/// What the device and the program count fits together: one event for an arm at most, one interrupt for an event at most, and
/// a queue that is armed is not armed again.
#[test]
fn with_events_the_program_sleeps_and_every_event_was_asked_for() {
    for options in ["--depth 1 --event-delay 2000", "--event-delay 5000", "--event-delay 0", "--compress csum"] {
        let got = json(0, &format!("--iters 200 --events {options}"));
        let waiting = &got["waiting"];
        let n = |name: &str| waiting[name].as_u64().unwrap_or_else(|| panic!("{name}: {got}"));
        assert_eq!((&waiting["by"], got["threaded"].as_bool()), (&"events".into(), Some(true)), "{got}");
        assert_eq!((got["verified"].as_u64(), got["violations"].as_u64()), (Some(200), Some(0)), "{got}");
        assert!(n("events") > 0 && n("events") <= n("arms") && n("arms") <= n("events") + 2, "{options}: {got}");
        // Interrupts of events that nobody waited for any more count too.
        assert!(n("interrupts") > 0 && n("interrupts") <= n("arms"), "{options}: {got}");
        // What takes that long is slept for.
        assert!(n("sleeps") > 0 || !options.contains("000"), "{options}: {got}");
        assert!(n("empty_polls") < n("polls"), "{got}");
        check_latency(&got["latency"], 400);
    }
    let (text, _) = pingpong(0, "--events --iters 50");
    let line = text.lines().find(|line| line.contains("by events:")).unwrap_or_else(|| panic!("{text}"));
    for counted in [" arm", " event", " interrupt", " sleep", " polls", "found nothing"] {
        assert!(line.contains(counted), "{line}");
    }
}

#[test]
fn without_events_nothing_is_armed_and_nobody_sleeps() {
    let got = json(0, "--iters 100");
    for name in ["arms", "events", "interrupts", "sleeps"] {
        assert_eq!(got["waiting"][name], 0, "{name}: {got}");
    }
    assert_eq!(got["waiting"]["by"], "polling");
    assert!(pingpong(0, "--iters 100").0.contains("  waiting     by polling: "));
}

#[test]
fn faults_are_found_with_events_too() {
    for (fault, says) in [
        ("corrupt", "payload mismatch at iteration 56, byte 40: "),
        (
            "lost-cqe",
            "completion missing: B's receive with wr_id 56 did not complete within 5000 ms of wall-clock time, though",
        ),
        ("bad-order", "completion out of order at B's receive queue: expected wr_id 56, got 57"),
    ] {
        let (stdout, stderr) = pingpong(1, &format!("--iters 104 --events --fault {fault}"));
        assert!(stderr.contains(says), "{fault}: {stderr}");
        assert!(stdout.contains("result      FAILED") && stdout.contains("teardown    clean"), "{stdout}");
    }
}

/// The most vectors that may be asked for are more than the model has event queues for; a cure may propose any number up to it.
#[test]
fn every_number_of_vectors_that_can_be_asked_for_works() {
    for vectors in [1, 2, 29, 30, 32, 64] {
        let got = json(0, &format!("--iters 8 --events --vectors {vectors}"));
        assert_eq!(got["verified"], 8, "{got}");
    }
}
