//! What people paste: known lines with other numbers in them, and any text and bytes.

use std::hint::black_box;

use mlx5_vfio::decode::{Kind, Record, decode_bytes, decode_text};

/// Known lines, those of the seeds.
const KNOWN: &[&str] = &[
    include_str!("../seeds/decode_text/known.log"),
    include_str!("../seeds/decode_text/health.log"),
    include_str!("../seeds/decode_text/dump.log"),
];
const KINDS: [Kind; 5] = [Kind::Cqe, Kind::Command, Kind::Mailbox, Kind::Eqe, Kind::Health];
/// Bytes that describe one line: which, and what becomes of one of its numbers.
const LINE: usize = 5;
/// Most lines of one log.
const MOST: usize = 12;

/// Decodes an input in one of the ways that it can be taken. The last byte says which, so that a text, which ends its last
/// line, is a log.
pub fn run(data: &[u8]) {
    let Some((way, rest)) = data.split_last() else { return };
    let kind = KINDS[usize::from(way >> 3) % KINDS.len()];
    let text = || String::from_utf8_lossy(rest);
    let found = match way % 8 {
        2 => decode_text(&String::from_utf8_lossy(data), None),
        3 => decode_text(&text(), Some(Kind::Text)),
        4 => decode_text(&text(), Some(kind)),
        5 => decode_bytes(rest, None),
        6 => decode_bytes(rest, Some(kind)),
        _ => decode_text(&log(rest), None),
    };
    // The tables take most of the time.
    let shown = if way & 0x40 == 0 { 0 } else { 2 };
    for record in found.iter().flatten().take(shown) {
        let _ = black_box((record.title(), Record::to_text(record)));
    }
}

/// Known lines with one number each changed.
fn log(bytes: &[u8]) -> String {
    let lines: Vec<&str> = KNOWN.iter().flat_map(|log| log.lines()).collect();
    let mut log = String::new();
    for change in bytes.chunks_exact(LINE).take(MOST) {
        let line = lines.get(usize::from(change[0]) % lines.len()).copied().unwrap_or_default();
        let number = u16::from_be_bytes([change[3], change[4]]);
        changed(&mut log, line, usize::from(change[1]), change[2], number);
        log.push('\n');
    }
    log
}

/// Adds a line, its number at a place replaced.
fn changed(log: &mut String, line: &str, place: usize, how: u8, number: u16) {
    let digits: Vec<(usize, &str)> = line
        .split(|c: char| !c.is_ascii_digit())
        .filter(|run| !run.is_empty())
        .map(|run| (run.as_ptr() as usize - line.as_ptr() as usize, run))
        .collect();
    let Some((at, run)) = digits.get(place % digits.len().max(1)) else { return log.push_str(line) };
    let (before, after) = (&line[..*at], &line[at + run.len()..]);
    let value = match how % 8 {
        0 => run.to_string(),
        1 => number.to_string(),
        2 => format!("{number:x}"),
        3 => u64::MAX.wrapping_sub(number.into()).to_string(),
        4 => format!("{:x}", u64::MAX.wrapping_sub(number.into())),
        5 => format!("-{number}"),
        6 => format!("{}{number}", u64::MAX),
        // Broken here, as by mail.
        _ => "\n".to_string(),
    };
    log.extend([before, &value, after]);
}
