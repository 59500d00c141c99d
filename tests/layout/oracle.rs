//! What the headers say: `tests/data/layouts.csv`, `c_structs.csv` and `constants.csv`.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Where a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Offset in bits from the most significant bit of the structure.
    pub offset: u32,
    /// Width in bits of the field or of one element.
    pub width: u32,
    /// Number of elements; 0 for a list of any length.
    pub count: u32,
    /// From a C structure: an array counts as one field of its whole extent.
    pub in_bytes: bool,
}

impl Place {
    /// Offset and extent in bits, all elements together.
    pub fn extent(self) -> (u32, u32) {
        (self.offset, self.width * self.count.max(1))
    }
}

/// Members, as the C structure names them and as the bit layout does.
type Renamed = &'static [(&'static str, &'static str)];

/// A C structure that describes the same bytes as a bit layout of another name, and members named differently in it.
const SAME_BYTES: &[(&str, &str, Renamed)] = &[
    ("initial_seg", "init_seg", &[("health", "health_buffer")]),
    ("cmd_queue_entry", "cmd_layout", &[]),
    ("cmd_if_box", "cmd_prot_block", &[]),
    ("eqe", "eqe", &[("data", "event_data")]),
];

/// A structure that stands in the headers only as a member of another: name, and where it is found.
const MEMBERS: &[(&str, &str, &str)] = &[("event_data", "eqe", "event_data"), ("wqe_av", "wqe_datagram_seg", "av")];

/// Whether a structure's rows are cut out of another's.
pub fn is_member(structure: &str) -> bool {
    MEMBERS.iter().any(|m| m.0 == structure)
}

/// A row: where it was found (`NAME` for a bit layout, `c NAME` for a C structure), the field and its place.
pub struct Row {
    /// Structure that has the row.
    pub source: String,
    /// Name of the field, members of members with dots.
    pub field: String,
    /// Where it is.
    pub place: Place,
}

/// All rows, by the structure that they describe.
pub struct Oracle(BTreeMap<String, Vec<Row>>);

fn records(file: &str) -> Vec<Vec<String>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file);
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_path(&path).expect("the file is there");
    reader.records().map(|r| r.expect("a row").iter().map(str::to_owned).collect()).collect()
}

fn number(text: &str) -> u32 {
    text.parse().expect("a decimal number")
}

/// The structure that a C structure's rows describe, and the field's name in it.
fn as_bit_layout(c: &str, field: &str) -> (String, String) {
    let Some((structure, _, renamed)) = SAME_BYTES.iter().find(|s| s.1 == c) else {
        return (c.to_owned(), field.to_owned());
    };
    let (first, rest) = field.split_once('.').map_or((field, None), |(first, rest)| (first, Some(rest)));
    let first = renamed.iter().find(|r| r.0 == first).map_or(first, |r| r.1);
    let field = rest.map_or(first.to_owned(), |rest| format!("{first}.{rest}"));
    ((*structure).to_owned(), field)
}

impl Oracle {
    /// Reads the files.
    pub fn read() -> Self {
        let mut oracle = Self(BTreeMap::new());
        for r in records("layouts.csv") {
            let place = Place { offset: number(&r[2]), width: number(&r[3]), count: number(&r[4]), in_bytes: false };
            oracle.add(&r[0], Row { source: r[0].clone(), field: r[1].clone(), place });
        }
        for r in records("c_structs.csv") {
            let place = Place { offset: 8 * number(&r[2]), width: 8 * number(&r[3]), count: 1, in_bytes: true };
            let (structure, field) = as_bit_layout(&r[0], &r[1]);
            oracle.add(&structure, Row { source: format!("c {}", r[0]), field, place });
        }
        for (name, of, member) in MEMBERS {
            oracle.cut_out(name, of, member);
        }
        oracle
    }

    fn add(&mut self, structure: &str, row: Row) {
        self.0.entry(structure.to_owned()).or_default().push(row);
    }

    fn cut_out(&mut self, name: &str, of: &str, member: &str) {
        let whole = self.place(of, member).expect("the member is there");
        let size = Place { offset: 0, ..whole };
        self.add(name, Row { source: name.to_owned(), field: "__size".to_owned(), place: size });
        let start = format!("{member}.");
        let inner: Vec<_> = self
            .rows(of)
            .filter_map(|row| {
                let field = row.field.strip_prefix(&start)?.to_owned();
                let place = Place { offset: row.place.offset - whole.offset, ..row.place };
                Some(Row { source: name.to_owned(), field, place })
            })
            .collect();
        for row in inner {
            self.add(name, row);
        }
    }

    fn rows(&self, structure: &str) -> impl Iterator<Item = &Row> {
        self.0.get(structure).into_iter().flatten()
    }

    /// Sizes in bytes, with the name of the structure that states them.
    pub fn sizes(&self, structure: &str) -> impl Iterator<Item = (&str, usize)> {
        let sizes = self.rows(structure).filter(|row| row.field == "__size");
        sizes.map(|row| (row.source.as_str(), row.place.width as usize / 8))
    }

    /// Where a field is; the bit layout counts before the C structure.
    pub fn place(&self, structure: &str, field: &str) -> Option<Place> {
        self.rows(structure).find(|row| row.field == field).map(|row| row.place)
    }

    /// All fields.
    pub fn fields(&self, structure: &str) -> impl Iterator<Item = &Row> {
        self.rows(structure).filter(|row| row.field != "__size")
    }
}

/// Named numbers, by group and name.
pub fn constants() -> BTreeMap<(String, String), u64> {
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a hexadecimal number");
    records("constants.csv").into_iter().map(|r| ((r[2].clone(), r[0].clone()), hex(&r[1]))).collect()
}
