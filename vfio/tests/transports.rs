//! `mlx5 pingpong` over every kind of queue that completes: transports, shared receive queues, and what makes no sense.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/pingpong.rs"]
mod tool;

use serde_json::Value;
use tool::{json, pingpong};

const TRANSPORTS: [&str; 3] = ["rc", "uc", "ud"];

/// A complete clean run.
#[track_caller]
fn check(got: &Value, options: &str, iters: u64) {
    assert_eq!(got["verified"], iters, "{options}: {got}");
    assert_eq!((&got["violations"], &got["lost"], &got["error"]), (&0.into(), &0.into(), &Value::Null), "{options}");
    assert_eq!((&got["messages"], &got["teardown"]), (&(2 * iters).into(), &"clean".into()), "{options}");
    assert_eq!(got["latency"]["messages"], 2 * iters, "{options}: {got}");
}

#[test]
fn every_transport_runs_with_every_kind_of_receives_entries_and_waiting() {
    for transport in TRANSPORTS {
        for receives in ["", "--srq"] {
            for entries in ["", "--cqe-size 128 --pad", "--compress csum", "--compress hash --layout enhanced"] {
                for waiting in ["", "--thread", "--events --event-delay 0"] {
                    let options = format!("--iters 40 --transport {transport} {receives} {entries} {waiting}");
                    let got = json(0, &options);
                    check(&got, &options, 40);
                    assert_eq!(got["transport"], transport.to_uppercase(), "{got}");
                    assert_eq!(got["srq"], !receives.is_empty(), "{got}");
                    assert_eq!(got["waiting"]["by"] == "events", waiting.contains("--events"), "{got}");
                    let compressed = got["compressed"].as_u64() > Some(0);
                    assert_eq!(compressed, entries.contains("--compress"), "{options}: {got}");
                }
            }
        }
    }
}

#[test]
fn every_transport_carries_messages_of_all_sizes() {
    for transport in TRANSPORTS {
        let most = if transport == "ud" { 4096 } else { 1 << 20 };
        for (size, more) in [(1, "--depth 1"), (63, "--cqe 2"), (64, "--srq"), (65, ""), (1025, "--srq"), (most, "")] {
            let options = format!("--iters 10 --transport {transport} --size {size} {more}");
            check(&json(0, &options), &options, 10);
        }
    }
}

/// What a shared receive queue of a small ring gives to both ends in turns.
#[test]
fn a_shared_receive_queue_goes_around_many_times() {
    for transport in TRANSPORTS {
        let options = format!("--iters 500 --transport {transport} --srq --depth 3");
        check(&json(0, &options), &options, 500);
    }
    let (text, _) = pingpong(0, "--iters 10 --srq --transport ud");
    assert!(text.contains("  queues      2 UD queue pairs with one shared receive queue, 2 CQs of"), "{text}");
    assert!(text.contains("  lost        none of 20 messages\n"), "{text}");
    let (text, _) = pingpong(0, "--iters 10");
    assert!(text.contains("  queues      2 RC queue pairs, 2 CQs of") && !text.contains("  lost "), "{text}");
}

/// The message in the middle of the run is lost, whether it has a number or not; what comes behind it is right.
#[test]
fn a_message_that_gets_lost_is_found_and_named() {
    for transport in ["uc", "ud"] {
        for more in
            ["", "--compress csum --layout enhanced", "--srq", "--depth 1", "--srq --depth 1", "--events --iters 40"]
        {
            let options = format!("--iters 104 --transport {transport} --fault lost-message {more}");
            // One that was given twice counts the second time.
            let iters = if more.contains("--iters") { 40 } else { 104 };
            let options = if more.contains("--iters") { options.replacen("--iters 104", "", 1) } else { options };
            let got = json(1, &options);
            let at = match (iters, more.contains("--depth 1")) {
                // Bursts of 16: 40 messages are one burst both ways and 8 of the next.
                (40, _) => 24,
                (_, true) => 52,
                // Three bursts both ways and 8 of the next.
                _ => 56,
            };
            let lost = format!("iteration {at} on the way from A to B");
            assert_eq!(got["error"], format!("message lost: {lost}"), "{options}");
            assert_eq!((&got["lost"], &got["lost_list"][0]), (&1.into(), &lost.into()), "{got}");
            assert_eq!((&got["verified"], &got["messages"]), (&(iters - 1).into(), &(2 * iters - 1).into()), "{got}");
            assert_eq!((&got["violations"], &got["teardown"]), (&0.into(), &"clean".into()), "{got}");
        }
    }
    let (text, stderr) = pingpong(1, "--transport uc --iters 104 --fault lost-message");
    assert!(text.contains("  lost        1 of 207 messages: iteration 56 on the way from A to B\n"), "{text}");
    assert!(stderr.contains("error: message lost: iteration 56 on the way from A to B"), "{stderr}");
}

/// One message in flight, or the last of all: no later completion shows that this one is missing, and it is not the message that
/// was lost. The run ends there.
#[test]
fn a_missing_completion_is_not_taken_for_a_lost_message() {
    for transport in ["uc", "ud"] {
        // Without --depth in bursts of 16: it is missing in the middle of the fourth.
        for (more, who, verified, messages) in [
            ("--iters 104", "B's receive with wr_id 56", 48, 112),
            ("--iters 104 --depth 1", "B's receive with wr_id 52", 52, 105),
            ("--iters 104 --depth 1 --size 1", "B's receive with wr_id 52", 52, 105),
            ("--iters 104 --depth 1 --srq", "B's receive with wr_id 104", 52, 105),
            ("--iters 104 --depth 1 --events", "B's receive with wr_id 52", 52, 105),
            ("--iters 1", "A's receive with wr_id 0", 0, 2),
        ] {
            let options = format!("--transport {transport} --fault lost-cqe {more}");
            let got = json(1, &options);
            let time = if more.contains("--events") { "5000 ms of wall-clock time" } else { "200 ms of model time" };
            let says = format!("completion missing: {who} did not complete within {time}");
            assert!(got["error"].as_str().is_some_and(|error| error.starts_with(&says)), "{options}: {got}");
            assert_eq!((&got["lost"], &got["teardown"]), (&0.into(), &"clean".into()), "{options}: {got}");
            assert_eq!((&got["verified"], &got["messages"]), (&verified.into(), &messages.into()), "{options}: {got}");
        }
    }
}

/// With this seed iterations 51 and 52 say the same byte: what is left of the one is not taken for the other.
#[test]
fn a_lost_message_like_the_one_before_it_is_not_taken_for_a_missing_completion() {
    for transport in ["uc", "ud"] {
        let options = format!("--transport {transport} --fault lost-message --iters 104 --depth 1 --size 1 --seed 35");
        assert_eq!(json(1, &options)["error"], "message lost: iteration 52 on the way from A to B", "{options}");
    }
}

/// What a completion carries itself is not in memory: that the next message finds no receive either shows that it is missing.
#[test]
fn a_missing_completion_with_its_message_in_it_ends_the_run_with_the_next_message() {
    let got = json(1, "--transport uc --fault lost-cqe --iters 104 --depth 1 --inline-cqe --size 32");
    let says = "completion missing: B's receive with wr_id 52 did not complete within 200 ms of model time";
    assert_eq!((&got["error"], &got["messages"]), (&says.into(), &106.into()), "{got}");
}

#[test]
fn the_other_faults_are_found_on_every_transport() {
    for transport in TRANSPORTS {
        for receives in ["", "--srq"] {
            for (fault, says) in [
                ("corrupt", "payload mismatch at iteration 56, byte 40: "),
                ("lost-cqe", "completion missing: B's receive with wr_id "),
                ("bad-order", "completion out of order at B's receive queue: expected wr_id "),
            ] {
                let options = format!("--iters 104 --transport {transport} {receives} --fault {fault}");
                let (stdout, stderr) = pingpong(1, &options);
                assert!(stderr.contains(says), "{options}: {stderr}");
                assert!(stdout.contains("result      FAILED") && stdout.contains("teardown    clean"), "{stdout}");
            }
        }
    }
}

#[test]
fn combinations_that_make_no_sense_are_refused_with_a_sentence() {
    for (options, says) in [
        ("--transport ud --inline-cqe", "datagrams have a network header in front and are never put into completions"),
        ("--srq --inline-cqe", "messages that a shared receive queue takes are never put into completions"),
        ("--fault lost-message", "a reliable connection sends again what gets lost; use --transport uc or ud"),
        ("--transport ud --size 4097", "--size 4097: a datagram is one packet of at most 4096 bytes"),
        ("--event-delay 5", "--events"),
        ("--events --event-delay 100001", "100001 is not in 0..=100000"),
        ("--transport xrc", "possible values: rc, uc, ud"),
        ("--srq --transport uc --pad", "only entries of 128 bytes can be padded"),
    ] {
        let (stdout, stderr) = pingpong(2, options);
        assert!(stdout.is_empty() && stderr.contains(says), "{options} says {says:?}: {stderr}");
    }
}
