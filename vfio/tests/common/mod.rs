//! Running the tool.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs the tool with an input.
pub fn tool(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mlx5"))
        .args(args)
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool starts");
    // A tool that rejects its arguments ends without reading.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().expect("the tool ends")
}
