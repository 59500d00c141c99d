//! Signals: the tool gives the device back before it ends.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// The tool with more to do than anybody waits for, once it has said what it runs on.
fn endless(options: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mlx5"))
        .args("pingpong --model --iters 1000000000".split(' '))
        .args(options.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.starts_with("Software model"), "{line}");
    (child, out)
}

/// Whether a process hears a signal.
fn hears(pid: u32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (signal.as_raw() - 1) != 0
}

/// What did not run has not failed, and the function is not brought up again.
#[test]
fn a_signal_ends_a_selftest_with_the_report_of_what_was_done() {
    let args = "selftest --model --only cq-laps".split(' ');
    let tool =
        Command::new(env!("CARGO_BIN_EXE_mlx5")).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let tool = tool.unwrap();
    while !hears(tool.id(), Signal::INT) {
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&tool), Signal::INT).unwrap();
    let out = tool.wait_with_output().unwrap();
    let [text, errors] = [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(out.status.code(), Some(130), "{text}{errors}");
    assert!(errors.contains(" was not run: stopped by SIGINT"), "{errors}");
    for says in ["\n  second-bring-up  not run ", "\n  nothing-left     pass ", "\nResult: INCOMPLETE (", " 0 fail, "] {
        assert!(text.contains(says), "{says}: {text}");
    }
}

#[test]
fn a_signal_ends_round_trips_in_order_and_with_its_own_exit_code() {
    for (options, signal, code, name) in [
        ("", Signal::INT, 130, "SIGINT"),
        ("--thread --transport ud", Signal::TERM, 143, "SIGTERM"),
        ("--events --depth 1", Signal::INT, 130, "SIGINT"),
    ] {
        let (mut child, mut out) = endless(options);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let (mut text, mut errors) = (String::new(), String::new());
        out.read_to_string(&mut text).unwrap();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{text}{errors}");
        assert_eq!(errors, format!("error: stopped by {name}\n"));
        for says in ["  result      stopped\n", "  teardown    clean", "  violations  0\n"] {
            assert!(text.contains(says), "{options}: {text}");
        }
    }
}
