//! What `mlx5 decode` says when it cannot read its input.

use std::fmt;

use super::Kind;

/// What could not be read. Lines and columns count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// There are no bytes in the input.
    Empty {
        /// Lines that hold log text.
        text_lines: usize,
    },
    /// A word is not made of hex digits.
    NotHex {
        /// Line of the word.
        line: usize,
        /// Column of the character.
        column: usize,
        /// The character that is no hex digit.
        character: char,
        /// The word.
        token: String,
    },
    /// A group of digits is not made of whole bytes.
    OddDigits {
        /// Line of the group.
        line: usize,
        /// Column where it begins.
        column: usize,
        /// The digits.
        token: String,
    },
    /// The offset of a dump's row does not fit the rows before it.
    MissingRow {
        /// Line of the row.
        line: usize,
        /// The row's offset in bytes.
        offset: usize,
        /// Offset that would have followed.
        due: usize,
    },
    /// The number of bytes fits nothing, or not what `--as` says.
    Length {
        /// Line where the bytes begin, 0 if they come from no text.
        line: usize,
        /// Bytes found.
        found: usize,
        /// What they were to be.
        kind: Option<Kind>,
    },
    /// The bytes look like none of the structures.
    Unknown {
        /// Line where the bytes begin, 0 if they come from no text.
        line: usize,
        /// Position of the structure in the bytes.
        at: usize,
        /// Why not, one sentence a kind.
        reasons: Vec<String>,
    },
    /// The bytes were to be log text and are none.
    NotText,
}

impl DecodeError {
    /// Whether it is about how one word is written.
    pub(super) const fn is_of_a_word(&self) -> bool {
        matches!(self, Self::NotHex { .. } | Self::OddDigits { .. })
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { text_lines: 0 } => f.write_str(
                "the input is empty: pass the bytes of a CQE, command, mailbox block, EQE or health buffer as hex",
            ),
            Self::Empty { text_lines } => write!(
                f,
                "nothing in {text_lines} line(s) that is known: no dump, and no message about an mlx5 device in a form that this \
                 version reads; pass the lines as they were printed, those around them as well, or the bytes as hex"
            ),
            Self::NotHex { line, column, character, token } => {
                let character = character.escape_default();
                write!(f, "line {line}, column {column}: '{character}' in '{token}' is not a hex digit")
            }
            Self::OddDigits { line, column, token } => write!(
                f,
                "line {line}, column {column}: '{token}' has an odd number of digits: a byte is two, with leading zero"
            ),
            Self::MissingRow { line, offset, due } => write!(
                f,
                "line {line}: a row with offset {offset:#x} where {due:#x} is due: a row is missing, doubled or of the wrong length"
            ),
            Self::Length { line, found, kind } => {
                let possible = kind.map_or(ANY_LENGTH, Kind::lengths);
                write!(f, "{}{found} bytes: {possible}", place(*line))
            }
            Self::Unknown { line, at, reasons } => {
                write!(f, "{}the bytes from position {at} look like nothing that is known; ", place(*line))?;
                f.write_str("pass --as to decode them anyway")?;
                reasons.iter().try_for_each(|r| write!(f, "\n  {r}"))
            }
            Self::NotText => {
                f.write_str("these are raw bytes, not log text: leave out --as text, or say what they are")
            }
        }
    }
}

const ANY_LENGTH: &str = "possible are multiples of 64 (CQE, command, EQE, health buffer) and of 576 (mailbox block)";

fn place(line: usize) -> String {
    if line == 0 { String::new() } else { format!("line {line}: ") }
}

impl std::error::Error for DecodeError {}
