//! The control side's encodings against bytes and numbers from outside: a kernel's trace of a real device and other public
//! reports (`tests/data/public-cases.jsonl`), the lengths that Linux's driver uses, header constants.
#![allow(clippy::expect_used, clippy::panic, reason = "a helper that cannot go on fails its test")]

mod commands;
mod events;
mod lengths;
mod registers;

use mlx5_hw::be::Be32;
use mlx5_hw::cmd::{Command, Sink, Source};
use serde_json::Value;

/// A case of `tests/data/public-cases.jsonl`.
fn case(id: &str) -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/public-cases.jsonl");
    let text = std::fs::read_to_string(path).expect("the cases are there");
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a case a line"))
        .find(|case| case["id"] == id)
        .unwrap_or_else(|| panic!("case {id}"))
}

/// The bytes of a hexadecimal string.
fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().expect("a string");
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hexadecimal")).collect()
}

/// Bytes as dwords in memory order.
fn words(bytes: &[u8]) -> Vec<Be32> {
    bytes.chunks_exact(4).map(|b| Be32::new(u32::from_be_bytes([b[0], b[1], b[2], b[3]]))).collect()
}

/// Dwords as bytes in memory order.
fn bytes(words: &[Be32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.get().to_be_bytes()).collect()
}

/// The input or output of a command.
struct Message(Vec<Be32>);

impl Sink for Message {
    fn put(&mut self, at: usize, words: &[Be32]) {
        for (i, word) in words.iter().enumerate() {
            if let Some(to) = self.0.get_mut(at / 4 + i) {
                *to = *word;
            }
        }
    }
}

impl Source for Message {
    fn get(&self, at: usize, words: &mut [Be32]) {
        for (i, word) in words.iter_mut().enumerate() {
            *word = self.0.get(at / 4 + i).copied().unwrap_or(Be32::ZERO);
        }
    }
}

/// The bytes of a command's input.
fn encoded<C: Command>(command: &C) -> Vec<u8> {
    let mut message = Message(vec![Be32::ZERO; command.in_len() / 4]);
    command.encode(&mut message);
    bytes(&message.0)
}

/// What a command makes of the bytes of an output.
fn decoded<C: Command>(command: &C, output: &[u8]) -> C::Out {
    command.decode(&Message(words(output)))
}
