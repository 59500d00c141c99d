//! Reads bytes out of text: plain hex, lists with `0x` and commas, and the rows that kernels and tools print.

use super::{DecodeError, Kind};

/// Bytes that lie one behind the other, as one dump of the input gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The bytes, in memory order.
    pub bytes: Vec<u8>,
    /// What the text around the bytes says they are, such as the name of the function that printed them.
    pub hint: Option<Kind>,
    /// Line of the input, counted from 1, where the bytes begin.
    pub line: usize,
    /// Its rows: the position of the first byte, and the line.
    pub rows: Vec<(usize, usize)>,
    /// What was odd about the text, in words.
    pub notes: Vec<String>,
}

/// What was read out of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// The dumps, in order.
    pub chunks: Vec<Chunk>,
    /// Number of lines that hold log text without bytes.
    pub text_lines: usize,
    /// Rows that did not fit their dump. Only [`read_log`] goes on behind one.
    pub misfits: Vec<DecodeError>,
}

impl Chunk {
    /// Line of the byte at a position.
    pub fn line_of(&self, at: usize) -> usize {
        let row = self.rows.iter().take_while(|(first, _)| *first <= at).last();
        row.map_or(self.line, |(_, line)| *line)
    }
}

/// One line, taken apart.
struct Row<'a> {
    offset: Option<usize>,
    prefix: &'a str,
    bytes: Vec<u8>,
}

/// Whether a file's content is the bytes themselves and not text about them. A few odd bytes do not make a log raw.
pub fn is_raw(content: &[u8]) -> bool {
    let foreign = |b: u8| !matches!(b, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b | 0x20..=0x7e);
    let text = std::str::from_utf8(content).is_ok();
    let odd = content.iter().filter(|&&b| foreign(b) && !(text && b >= 0x80)).count();
    content.contains(&0) || odd > content.len() / 16
}

/// Whether a text is mostly hex, if with mistakes: at least half of its words are hex, or have digits and are half hex.
pub fn looks_like_dump(text: &str) -> bool {
    let hex = |word: &&str| {
        let digits = word.bytes().filter(u8::is_ascii_hexdigit).count();
        digits == word.len() || (2 * digits >= word.len() && word.bytes().any(|b| b.is_ascii_digit()))
    };
    let words = text.split_whitespace();
    2 * words.clone().filter(hex).count() >= words.count()
}

/// Reads all bytes of a text.
///
/// A line is either log text, which is counted, or a row: an optional log prefix that ends in a colon, an optional
/// offset, and bytes in groups of whole bytes. Rows whose offset starts again at 0 begin a new chunk, so do rows behind
/// a line of text. A dump of a work queue entry (`WQE DUMP`) is left out.
pub fn read(text: &str) -> Result<Input, DecodeError> {
    let mut reader = Reader { many_rows: text.trim().lines().count() > 1, ..Reader::default() };
    for (i, line) in text.lines().enumerate() {
        if !line.trim().is_empty() {
            reader.line(line.trim_end(), i + 1)?;
        }
    }
    let input = reader.input;
    if input.chunks.is_empty() { Err(DecodeError::Empty { text_lines: input.text_lines }) } else { Ok(input) }
}

/// Reads the dumps of a log, any lines between them: what is no row is text. `known` lines are neither.
pub fn read_log(lines: &[&str], known: impl Fn(usize) -> bool) -> Input {
    let mut reader = Reader { many_rows: lines.len() > 1, ..Reader::default() };
    for (i, line) in lines.iter().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        if known(i) {
            reader.text(line);
            continue;
        }
        match reader.line(line.trim_end(), i + 1) {
            Ok(()) => {}
            Err(misfit @ DecodeError::MissingRow { .. }) => {
                reader.text(line);
                reader.input.misfits.push(misfit);
            }
            Err(_) => reader.text(line),
        }
    }
    reader.input
}

/// Where reading stands.
#[derive(Default)]
struct Reader {
    input: Input,
    /// The last chunk still takes rows.
    open: bool,
    /// The rows of a work queue entry are being passed over.
    skip: bool,
    /// Offset that the chunk's first row carries: 0, or an address in a page.
    base: usize,
    /// The text has more than one line.
    many_rows: bool,
}

impl Reader {
    fn line(&mut self, line: &str, number: usize) -> Result<(), DecodeError> {
        let open_end = self.open.then(|| self.end());
        let Some(row) = row(line, number, open_end)? else {
            self.input.text_lines += 1;
            self.text(line);
            return Ok(());
        };
        if self.skip || row.bytes.is_empty() {
            return Ok(());
        }
        if !self.open || row.offset == Some(0) {
            self.input.chunks.push(Chunk { hint: hint(row.prefix), line: number, ..Chunk::default() });
            self.base = row.offset.unwrap_or(0);
            self.open = true;
        }
        self.append(row, number)
    }

    /// A line of text ends a dump. Those that head a dump of work queue entries have it passed over.
    fn text(&mut self, line: &str) {
        self.skip = ["WQE DUMP", "MLX5 Error SQ", "MLX5 Error RQ"].iter().any(|head| line.contains(head));
        self.open = false;
    }

    /// Offset at which the next row of the open chunk is due.
    fn end(&self) -> usize {
        self.base.saturating_add(self.input.chunks.last().map_or(0, |c| c.bytes.len()))
    }

    /// Adds a row to its chunk. Some logs show a seventeenth byte in a row of sixteen: it is left out.
    fn append(&mut self, mut row: Row<'_>, line: usize) -> Result<(), DecodeError> {
        let due = self.end();
        if let Some(offset) = row.offset.filter(|&o| o != due) {
            return Err(DecodeError::MissingRow { line, offset, due });
        }
        let Some(chunk) = self.input.chunks.last_mut() else { return Ok(()) };
        chunk.rows.push((chunk.bytes.len(), line));
        if row.bytes.len() == 17 && self.many_rows {
            row.bytes.truncate(16);
            chunk.notes.push(format!("line {line} shows 17 bytes where a row has 16; the last one was left out"));
        }
        chunk.bytes.append(&mut row.bytes);
        Ok(())
    }
}

/// What the name of the printing function says.
fn hint(prefix: &str) -> Option<Kind> {
    if prefix.contains("cqe") {
        Some(Kind::Cqe)
    } else if prefix.contains("cmd[") || prefix.contains("dump_command") {
        Some(Kind::Command)
    } else {
        None
    }
}

/// Takes a line apart; `None` when it is log text without bytes. `due` is the offset at which a next row is expected.
fn row(line: &str, number: usize, due: Option<usize>) -> Result<Option<Row<'_>>, DecodeError> {
    let data = without_ascii_column(line);
    let tokens: Vec<(usize, &str)> = tokens(data);
    let first = tokens.iter().rposition(|(_, t)| digits(t).is_none()).map_or(0, |i| i + 1);
    let (before, mut after) = tokens.split_at(first);
    let mut row = Row { offset: None, prefix: "", bytes: Vec::new() };
    if let Some(&(at, label)) = before.last() {
        let labels = before.iter().all(|(_, t)| t.ends_with([':', ']']));
        if after.is_empty() || !label.ends_with([':', ']']) || !(labels || is_log_text(line)) {
            return if is_log_text(line) { Ok(None) } else { Err(unreadable(data, before, number)) };
        }
        row.offset = label.strip_suffix(':').and_then(offset_of);
        row.prefix = data.get(..at + label.len()).unwrap_or("");
        let digits: usize = after.iter().map(|(_, t)| t.len()).sum();
        if row.offset.is_none() && digits < 32 && is_log_text(line) {
            return Ok(None);
        }
    } else if let Some(offset) = plain_offset(after, due) {
        row.offset = Some(offset);
        after = after.get(1..).unwrap_or(&[]);
    }
    for &(at, token) in after {
        let digits = digits(token).unwrap_or("");
        if !digits.len().is_multiple_of(2) {
            return Err(DecodeError::OddDigits { line: number, column: column(data, at), token: shorten(token) });
        }
        push_bytes(&mut row.bytes, digits);
    }
    Ok(Some(row))
}

/// Cuts off the column of characters that `hexdump -C`, DPDK and `xxd` print behind the bytes.
fn without_ascii_column(line: &str) -> &str {
    if let Some((data, _)) = line.split_once('|') {
        return data;
    }
    // xxd: `00000000: 0000 0000  ....`
    let start = line.split_once(": ").filter(|(o, _)| offset_of(o.trim()).is_some());
    match start.and_then(|(o, rest)| rest.trim_start().split_once("  ").map(|(d, _)| (o, rest, d))) {
        Some((o, rest, d)) => {
            let lead = rest.len() - rest.trim_start().len();
            line.get(..o.len() + 2 + lead + d.len()).unwrap_or(line)
        }
        None => line,
    }
}

/// Words of a line with their byte positions; commas and braces separate like blanks.
fn tokens(line: &str) -> Vec<(usize, &str)> {
    let separator = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | '{' | '}' | '"' | '\'');
    line.split(separator).filter(|t| !t.is_empty()).map(|t| (t.as_ptr() as usize - line.as_ptr() as usize, t)).collect()
}

/// The hex digits of a word, without `0x`; `None` if it is not made of hex digits.
fn digits(token: &str) -> Option<&str> {
    let token = token.strip_prefix("0x").or_else(|| token.strip_prefix("0X")).unwrap_or(token);
    (!token.is_empty() && token.bytes().all(|b| b.is_ascii_hexdigit())).then_some(token)
}

/// The number before a row's colon.
fn offset_of(label: &str) -> Option<usize> {
    let d = digits(label)?;
    if d.len() <= 8 { usize::from_str_radix(d, 16).ok() } else { None }
}

/// `hexdump -C` writes the offset without a colon: eight digits before groups of two, or alone at the end.
fn plain_offset(tokens: &[(usize, &str)], due: Option<usize>) -> Option<usize> {
    let ((_, first), rest) = tokens.split_first()?;
    let offset = usize::from_str_radix(first, 16).ok().filter(|_| first.len() == 8)?;
    let groups = rest.len() > 1 && rest.iter().all(|(_, t)| t.len() == 2);
    (groups || (rest.is_empty() && due == Some(offset))).then_some(offset)
}

/// A line of a log, as opposed to rubbish where bytes should be.
fn is_log_text(line: &str) -> bool {
    let line = line.trim_start();
    line.ends_with(':') || line.starts_with(['[', '#', '<']) || line.contains("mlx5") || line.contains("kernel:")
}

fn push_bytes(bytes: &mut Vec<u8>, digits: &str) {
    let pairs = digits.as_bytes().chunks_exact(2);
    bytes.extend(pairs.filter_map(|p| std::str::from_utf8(p).ok().and_then(|s| u8::from_str_radix(s, 16).ok())));
}

/// The column of byte `at` of a line, in characters from 1.
fn column(line: &str, at: usize) -> usize {
    line.get(..at).map_or(at, |before| before.chars().count()) + 1
}

/// The first word that is not hex, and the character in it that is not.
fn unreadable(line: &str, words: &[(usize, &str)], number: usize) -> DecodeError {
    let (at, token) = words.iter().find(|(_, t)| digits(t).is_none()).copied().unwrap_or((0, ""));
    let skip = if token.starts_with("0x") || token.starts_with("0X") { 2 } else { 0 };
    let foreign = |skip| token.char_indices().skip(skip).find(|(_, c)| !c.is_ascii_hexdigit());
    // A prefix without digits behind it: its `x` is the foreign one.
    let (i, character) = foreign(skip).or_else(|| foreign(0)).unwrap_or((0, char::REPLACEMENT_CHARACTER));
    DecodeError::NotHex { line: number, column: column(line, at + i), character, token: shorten(token) }
}

fn shorten(token: &str) -> String {
    let mut s: String = token.chars().take(24).collect();
    if s.len() < token.len() {
        s.push('…');
    }
    s
}
