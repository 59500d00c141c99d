//! Running `mlx5 pingpong --model`.

use serde_json::Value;

use crate::common::tool;

/// Standard output and standard error of `mlx5 pingpong --model` with options, which ends with `code`.
pub fn pingpong(code: i32, options: &str) -> (String, String) {
    let args: Vec<&str> = ["pingpong", "--model"].into_iter().chain(options.split_whitespace()).collect();
    let out = tool(&args, b"");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(out.status.code(), Some(code), "mlx5 {args:?}\n{stdout}\n{stderr}");
    (stdout, stderr)
}

pub fn json(code: i32, options: &str) -> Value {
    serde_json::from_str(&pingpong(code, &format!("{options} --json")).0).expect("JSON")
}
