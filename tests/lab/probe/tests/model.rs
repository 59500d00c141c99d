//! The probe on the software function: what it measures there is right, and faults are noticed.
#![allow(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

use std::process::Command;

/// What the probe said behind `@@probe`, and whether it succeeded.
fn probe(args: &[&str]) -> (Vec<String>, bool) {
    let out = Command::new(env!("CARGO_BIN_EXE_mlx5-lab-probe")).args(args).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    (text.lines().filter_map(|line| line.strip_prefix("@@probe ")).map(str::to_owned).collect(), out.status.success())
}

/// As above, of a run that must succeed.
fn sound(args: &[&str]) -> Vec<String> {
    let (lines, success) = probe(args);
    assert!(success, "{args:?}: {lines:?}");
    lines
}

/// The number behind `key=` in a line.
fn number(line: &str, key: &str) -> u64 {
    let word = line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    assert!(word.is_some(), "no {key} in {line}");
    word.unwrap().parse().unwrap()
}

#[test]
fn completions_on_each_vector_come_by_its_interrupt() {
    let lines = sound(&["vectors", "model", "--vectors", "4", "--rounds", "10"]);
    // Three completion vectors in pairs of two: the first is in both.
    for (line, events) in lines.iter().zip([20, 10, 10]) {
        assert_eq!(number(line, "events"), events, "{line}");
        assert!((1..=events).contains(&number(line, "interrupts")), "{line}");
    }
    assert_eq!(lines.len(), 3);
}

#[test]
fn idle_waits_end_at_their_deadline_and_not_before() {
    let lines = sound(&["idle", "model", "--seconds", "1"]);
    assert!(number(&lines[0], "ms") >= 1000, "{lines:?}");
    // Each of them slept at least once.
    let each = ["completion", "event", "asynchronous"].map(|wait| number(&lines[0], wait));
    assert!(each.iter().all(|&switches| switches > 0), "{lines:?}");
    assert_eq!(number(&lines[0], "switches"), each.iter().sum(), "{lines:?}");
}

#[test]
fn messages_flow_on_several_functions_at_once() {
    for how in [&[][..], &["--events"]] {
        let lines = sound(&[&["traffic", "model", "model", "--rounds", "120"], how].concat());
        let done = "traffic device=model messages=120 bytes=61440";
        assert_eq!(lines, ["traffic running", done, done]);
    }
}

#[test]
fn memory_of_the_program_is_written_and_read_by_the_device() {
    let lines = sound(&["memory", "model", "--bytes", "70001"]);
    assert!(lines[0].starts_with("memory device=model bytes=70001 "), "{lines:?}");
}

/// A key's page that the IOMMU does not let through is an error of the end that uses it: local protection on both, and a
/// remote operation for who sent to it. The queue pairs made afterwards work.
#[test]
fn requests_to_where_nothing_is_mapped_fail_at_the_end_that_made_them() {
    let wanted = [
        "gather side=sender status=LOC_PROT_ERR",
        "scatter side=receiver status=LOC_PROT_ERR",
        "scatter side=sender status=REM_OP_ERR",
    ];
    let lines = sound(&["unmapped", "model"]);
    for (line, wanted) in lines.iter().zip(wanted) {
        assert!(line.starts_with(&format!("unmapped {wanted} ")), "{line}");
    }
    assert_eq!(lines.last().unwrap(), "unmapped messages=20 failure=None");
}

#[test]
fn messages_arrive_while_a_forked_child_has_the_memory() {
    let lines = sound(&["fork", "model", "--child-ms", "200"]);
    assert!(number(&lines[1], "messages") > 1 && number(&lines[1], "child") == 0, "{lines:?}");
}

/// Calls that block, and the command that has no answer meanwhile.
const CALLS: [(&str, &str); 12] = [
    ("open", "INIT_HCA has no answer: "),
    ("command", "QUERY_QP has no answer: "),
    ("destroy", "DESTROY_QP has no answer: "),
    ("dereg", "DESTROY_MKEY has no answer: "),
    ("resize", "MODIFY_CQ has no answer: "),
    ("close", "TEARDOWN_HCA has no answer: "),
    ("cq-wait", ""),
    ("get-event", ""),
    ("async-event", ""),
    ("traffic", ""),
    ("drop-object", ""),
    ("drop-device", ""),
];

/// Whether a line tells of one of these errors, with ENODEV (19 on Linux) and this sentence.
fn tells(line: &str, errors: &[&str], text: &str) -> bool {
    errors.iter().any(|error| line.contains(&format!(" error={error} errno=19 text={text}")))
}

/// Each call, on a device to which `what` happens (`gone`, `reset`), ends with one of `errors`; so does the next one.
fn each_call_ends(what: &str, errors: &[&str]) {
    for (call, before) in CALLS {
        let lines = sound(&[what, call, "model"]);
        let said = |start: &str| lines.iter().find(|line| line.starts_with(&format!("{what} {start}={call}")));
        assert!(said("struck call").is_some(), "{lines:?}");
        let end = said("call").unwrap();
        match call.starts_with("drop") {
            true => assert!(end.ends_with(" error=none"), "{end}"),
            false => assert!(tells(end, errors, &format!("{before}the ")), "{end}"),
        }
        if !["open", "close", "drop-device"].contains(&call) {
            let after = said("after").unwrap();
            assert!(tells(after, errors, "ALLOC_PD was not sent: "), "{after}");
        }
        let works = lines.last().filter(|line| line.starts_with(&format!("{what} call={call} messages=20 ")));
        assert_eq!(works.is_some(), what == "reset", "{lines:?}");
        assert!(works.is_none_or(|line| number(line, "interrupts") > 0), "{works:?}");
    }
}

#[test]
fn every_call_that_blocks_ends_with_device_gone_when_the_device_leaves() {
    each_call_ends("gone", &["Gone"]);
}

/// While a function is reset its registers may read as ones.
const RESET: [&str; 2] = ["Reset", "Gone"];

#[test]
fn every_call_that_blocks_ends_when_somebody_else_resets_the_function_and_it_works_again() {
    each_call_ends("reset", &RESET);
}

#[test]
fn all_calls_that_block_at_the_same_time_end() {
    for (what, errors) in [("gone", &["Gone"][..]), ("reset", &RESET)] {
        let lines = sound(&[what, "all", "model"]);
        let ends: Vec<_> = lines.iter().filter(|line| line.starts_with(&format!("{what} call=all:"))).collect();
        assert_eq!(ends.len(), 5, "{lines:?}");
        assert!(ends.iter().all(|end| tells(end, errors, "")), "{lines:?}");
        assert!(lines.iter().any(|line| line.starts_with("event the device has failed")), "{lines:?}");
    }
}

#[test]
fn a_device_that_is_none_is_told() {
    let (lines, success) = probe(&["traffic", "0000:ff:1f.7"]);
    assert!(!success && lines[0].starts_with("failed "), "{lines:?}");
}
