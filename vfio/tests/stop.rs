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
