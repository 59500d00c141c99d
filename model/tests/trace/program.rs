//! `mlx5-model trace`: exit codes and output.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const ENABLE: &str = "0.5 CMD slot=0 ENABLE_HCA(0x104) opmod=0 uid=0 inlen=16 outlen=12 st=0\n";
const DISABLE: &str = "0.7 CMD slot=0 DISABLE_HCA(0x105) opmod=0 uid=0 inlen=16 outlen=12 st=0\n";

fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path
}

/// Exit code, stdout and stderr.
fn run(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_mlx5-model")).arg("trace").args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_exit_code_tells_whether_traces_say_the_same() {
    let a = file("a.log", &format!("noise\n{ENABLE}{DISABLE}"));
    let b = file("b.log", ENABLE);
    let empty = file("empty.log", "noise\n");
    let (a, b, empty) = (a.to_str().unwrap(), b.to_str().unwrap(), empty.to_str().unwrap());
    assert_eq!(run(&["--diff", a, a]).0, 0);
    let (code, out, error) = run(&["--diff", a, b]);
    assert_eq!(code, 1, "{error}");
    assert!(out.contains("     3      -  only-a   DISABLE_HCA"), "{out}");
    assert!(!out.contains('\x1b'), "colour on a pipe: {out:?}");
    assert_eq!(run(&["--diff", a, b, "--ignore", "DISABLE_HCA"]).0, 0);
    for word in ["DISABEL_HCA", "lenghts", "order,lenghts", "intr", ""] {
        let (code, _, error) = run(&["--diff", a, b, "--ignore", word]);
        assert_eq!(code, 2, "{word}: {error}");
    }
    assert_eq!(run(&["--diff", a, b, "--ignore", "order,out,only-a,CREATE_EQ"]).0, 0);
    let (code, _, error) = run(&["--diff", a, empty]);
    assert_eq!(code, 2);
    assert!(error.contains("no command in it"), "{error}");
    assert_eq!(run(&["--diff", a, "/nowhere"]).0, 2);
    assert_eq!(run(&["--diff", a]).0, 2);
    assert_eq!(run(&[]).0, 2);
}

#[test]
fn whoever_stops_reading_the_output_ends_the_program_without_a_word() {
    let long = file("long.log", &ENABLE.repeat(20_000));
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5-model"));
    command.args(["trace", "--show", long.to_str().unwrap()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn differences_are_told_as_json() {
    let a = file("json-a.log", ENABLE);
    let b = file("json-b.log", &ENABLE.replace("outlen=12", "outlen=16"));
    let (code, out, _) = run(&["--diff", a.to_str().unwrap(), b.to_str().unwrap(), "--json"]);
    assert_eq!(code, 1);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["a"]["commands"], 1);
    let expected = serde_json::json!([{
        "kind": "lengths", "a_line": 1, "b_line": 1, "command": "ENABLE_HCA", "what": "out 12 | 16",
    }]);
    assert_eq!(json["differences"], expected);
}

#[test]
fn a_trace_is_shown_as_a_table_whose_columns_line_up() {
    let path = file("show.log", &format!("{ENABLE}{DISABLE}"));
    let (code, out, _) = run(&["--show", path.to_str().unwrap()]);
    assert_eq!(code, 0);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    let column = |line: &str, word: &str| line.find(word).map(|at| at + word.len());
    assert_eq!(column(lines[0], "seconds"), column(lines[1], "0.500000"));
    assert_eq!(column(lines[0], " out").unwrap(), column(lines[2], " 12").unwrap());
}

#[test]
fn a_missing_task_is_asked_for_and_nothing_else_is() {
    let (code, _, error) = run(&["--json"]);
    assert_eq!(code, 2);
    assert!(error.contains("<--diff <A> <B>|--show <FILE>>"), "{error}");
    let (code, _, error) = run(&["--diff", "a", "b", "--show", "c"]);
    assert_eq!(code, 2);
    assert!(error.contains("cannot be used with"), "{error}");
}
