//! The forms in which people have bytes, and what is said about those that cannot be read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use mlx5_vfio::decode::hex::{is_raw, read};
use mlx5_vfio::decode::{DecodeError, Kind};

/// Sixteen bytes, different in each row.
fn row(n: u8) -> Vec<u8> {
    (0..16).map(|i| n * 16 + i).collect()
}

fn entry() -> Vec<u8> {
    (0..4).flat_map(row).collect()
}

fn one(text: &str) -> Vec<u8> {
    let input = read(text).expect("readable");
    assert_eq!(input.chunks.len(), 1, "one dump: {input:?}");
    input.chunks[0].bytes.clone()
}

fn spaced(bytes: &[u8], group: usize, before: &str, between: &str) -> String {
    let groups =
        bytes.chunks(group).map(|g| format!("{before}{}", g.iter().map(|b| format!("{b:02x}")).collect::<String>()));
    groups.collect::<Vec<_>>().join(between)
}

fn rows(head: impl Fn(usize) -> String, group: usize, tail: &str) -> String {
    let lines = entry()
        .chunks(16)
        .enumerate()
        .map(|(i, r)| format!("{}{}{tail}\n", head(i * 16), spaced(r, group, "", " ")))
        .collect::<Vec<_>>();
    lines.concat()
}

#[test]
fn plain_hex_is_read_with_and_without_separators_and_prefixes() {
    let bytes = entry();
    assert_eq!(one(&spaced(&bytes, 64, "", "")), bytes);
    assert_eq!(one(&spaced(&bytes, 64, "0x", "")), bytes);
    assert_eq!(one(&spaced(&bytes, 1, "", " ")), bytes);
    assert_eq!(one(&spaced(&bytes, 1, "0x", ", ")), bytes);
    assert_eq!(one(&format!("{{ {} }}", spaced(&bytes, 1, "0x", ","))), bytes);
    assert_eq!(one(&spaced(&bytes, 4, "0x", " ").to_uppercase().replace("0X", "0x")), bytes);
    assert_eq!(one(&format!("\n\n  {}\t\r\n", spaced(&bytes, 16, "", "\r\n  "))), bytes);
}

#[test]
fn rows_of_kernel_and_tool_dumps_are_read() {
    let bytes = entry();
    assert_eq!(one(&rows(|o| format!("{o:08x}: "), 1, "")), bytes);
    assert_eq!(
        one(&rows(
            |o| format!("[   12.3456{}] mlx5_core 0000:01:00.0: dump_cqe:274:(pid 12): {o:08x}: ", o / 16),
            1,
            ""
        )),
        bytes
    );
    assert_eq!(one(&rows(|_| String::new(), 4, "")), bytes, "libmlx5: four dwords a row");
    assert_eq!(one(&rows(|o| format!("{o:08X}: "), 1, " | .seen..........")), bytes, "DPDK");
    assert_eq!(one(&(rows(|o| format!("{o:08x}  "), 1, "  |................|") + "00000040\n")), bytes, "hexdump -C");
    assert_eq!(one(&rows(|o| format!("{o:08x}: "), 2, "  ..ab cd 12 ......")), bytes, "xxd");
    assert_eq!(one(&rows(|o| format!("cmd[3]: {o:03x}: "), 4, "")), bytes, "command dump of the kernel");
    assert_eq!(one(&rows(|o| format!("{:08x}: ", o + 0x80), 1, "")), bytes, "offsets in a page");
}

#[test]
fn a_row_with_a_byte_too_many_does_not_shift_the_next() {
    let text = rows(|o| format!("{o:08x}: "), 1, "").replacen(" 0f\n", " 0f 00\n", 1);
    let input = read(&text).unwrap();
    assert_eq!(input.chunks[0].bytes, entry());
    assert!(input.chunks[0].notes[0].contains("line 1 shows 17 bytes"), "{:?}", input.chunks[0].notes);
}

#[test]
fn several_dumps_in_a_log_stay_apart() {
    let dump = rows(|o| format!("{o:08x}: "), 1, "");
    let log = format!(
        "[ 1.0] mlx5_core 0000:01:00.0: Error cqe on cqn 0x40b, ci 0x0, syndrome 0x2\n{dump}{dump}\
         [ 1.1] WQE DUMP: WQ size 1024 WQ cur size 0, WQE index 0x0, len: 64\n{dump}"
    );
    let input = read(&log).unwrap();
    assert_eq!(input.chunks.iter().map(|c| c.bytes.clone()).collect::<Vec<_>>(), [entry(), entry()]);
    assert_eq!((input.text_lines, input.chunks[0].line), (2, 2));
    let cqe = read(&rows(|o| format!("mlx5_core 0000:01:00.0: dump_cqe: {o:08x}: "), 1, "")).unwrap();
    assert_eq!(cqe.chunks[0].hint, Some(Kind::Cqe));
}

#[test]
fn what_cannot_be_read_is_named_with_its_place() {
    let not_hex =
        |line, column, character, token: &str| DecodeError::NotHex { line, column, character, token: token.into() };
    assert_eq!(read("00 11\n22 3g 44"), Err(not_hex(2, 5, 'g', "3g")));
    assert_eq!(read("hello"), Err(not_hex(1, 1, 'h', "hello")));
    assert_eq!(read("0xzz"), Err(not_hex(1, 3, 'z', "0xzz")));
    assert_eq!(read("0Xzz"), Err(not_hex(1, 3, 'z', "0Xzz")));
    assert_eq!(read("0x"), Err(not_hex(1, 2, 'x', "0x")));
    assert_eq!(read("00 é0"), Err(not_hex(1, 4, 'é', "é0")));
    assert_eq!(read("é0 0"), Err(not_hex(1, 1, 'é', "é0")));
    assert_eq!(read("00 0é 0g"), Err(not_hex(1, 5, 'é', "0é")));
    assert_eq!(read("001 22"), Err(DecodeError::OddDigits { line: 1, column: 1, token: "001".into() }));
    assert_eq!(read(""), Err(DecodeError::Empty { text_lines: 0 }));
    assert_eq!(read(" \n\t\n"), Err(DecodeError::Empty { text_lines: 0 }));
    assert_eq!(read("mlx5_core 0000:01:00.0: firmware version: 16.35"), Err(DecodeError::Empty { text_lines: 1 }));
    let gap = "00000000: 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f\n00000020: 00";
    assert_eq!(read(gap), Err(DecodeError::MissingRow { line: 2, offset: 0x20, due: 0x10 }));
}

#[test]
fn raw_bytes_are_told_from_text() {
    assert!(is_raw(&[0; 64]));
    assert!(is_raw(&[b'a', 0x07]));
    assert!(is_raw(&[0xff, 0xfe]));
    assert!(!is_raw(b"00 11\r\n\t22"));
    assert!(!is_raw("grüße".as_bytes()));
}
