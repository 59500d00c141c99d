//! The cases of `tests/data/public-cases.jsonl`.

use std::path::Path;

use serde_json::{Map, Value};

/// A case.
pub struct Case {
    pub id: String,
    pub input: Value,
    pub expected: Value,
}

/// The cases of a kind.
pub fn cases(kind: &str) -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/public-cases.jsonl");
    let text = std::fs::read_to_string(&path).expect("the cases are there");
    let all = text.lines().map(|l| serde_json::from_str::<Value>(l).expect("one JSON object a line"));
    all.filter(|c| c["kind"] == kind)
        .map(|mut c| Case {
            id: c["id"].as_str().unwrap().into(),
            input: c["input"].take(),
            expected: c["expected"].take(),
        })
        .collect()
}

/// What was compared.
#[derive(Default)]
pub struct Tally {
    pub cases: usize,
    pub fields: usize,
}

impl Tally {
    /// Compares every expected field with the record but those named in `not_fields`.
    pub fn compare(&mut self, case: &str, expected: &Value, got: &Map<String, Value>, not_fields: &[(&str, &str)]) {
        for (key, want) in expected.as_object().expect("an object") {
            if not_fields.iter().any(|(k, _)| k == key) {
                continue;
            }
            assert_eq!(got.get(key), Some(want), "{case}: {key}; the record: {}", Value::Object(got.clone()));
            self.fields += 1;
        }
    }

    /// Says how much was compared, and that it was enough.
    pub fn finish(&self, what: &str, at_least: usize) {
        println!("{what}: {} cases, {} fields compared", self.cases, self.fields);
        assert!(self.cases >= at_least && self.fields >= at_least, "cases are missing");
    }
}
