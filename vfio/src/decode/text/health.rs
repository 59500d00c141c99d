//! The fields of a health buffer, printed one a line, as one record.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Spot;
use super::format::What;
use crate::decode::{Kind, Record, health};

/// Most lines between two fields of one report: those of other messages.
const GAP: usize = 40;

/// A report that is being put together.
#[derive(Default)]
struct Report {
    spots: Vec<usize>,
    fields: BTreeMap<String, u64>,
    texts: BTreeMap<String, String>,
}

/// One record for each report: the lines of one device until a field comes again.
pub fn records(spots: &mut [Spot]) -> Vec<Record> {
    let mut reports: Vec<Report> = Vec::new();
    let mut open: BTreeMap<Option<String>, usize> = BTreeMap::new();
    let mut last = None;
    for (i, spot) in spots.iter().enumerate() {
        let What::Health(needs_neighbour) = spot.format.what else { continue };
        let alone = last.is_none_or(|end| spot.begin() > end + 1) && !spot.text.contains("mlx5");
        if needs_neighbour && alone {
            continue;
        }
        last = Some(spot.end());
        let current = open.get(&spot.place.device).and_then(|&at| reports.get(at));
        let fits = current.is_some_and(|report| {
            let near = report.spots.last().and_then(|&s| spots.get(s)).is_some_and(|s| spot.begin() < s.end() + GAP);
            near && !keys(spot).any(|key| report.fields.contains_key(&key)) && !starts(spot)
        });
        if !fits {
            open.insert(spot.place.device.clone(), reports.len());
            reports.push(Report::default());
        }
        let at = open.get(&spot.place.device).copied();
        if let Some(report) = at.and_then(|at| reports.get_mut(at)) {
            add(report, i, spot);
        }
    }
    reports.iter().map(|report| record(report, spots)).collect()
}

/// The line that a newer kernel begins a report with.
fn starts(spot: &Spot) -> bool {
    spot.fields.contains_key("synd_text") && !spot.fields.contains_key("synd")
}

/// The names under which a line's numbers are kept; the elements of an array have one each. The severity comes twice.
fn keys(spot: &Spot) -> impl Iterator<Item = String> {
    let index = spot.number("index");
    let numbers =
        spot.fields.iter().filter(|(name, value)| value.is_u64() && !matches!(name.as_str(), "index" | "severity"));
    numbers.map(move |(name, _)| index.map_or(name.clone(), |i| format!("{name}{i}")))
}

fn add(report: &mut Report, at: usize, spot: &Spot) {
    report.spots.push(at);
    for key in keys(spot) {
        let name = key.trim_end_matches(|c: char| c.is_ascii_digit());
        if let Some(number) = spot.number(name).or_else(|| spot.number(&key)) {
            report.fields.insert(key, number);
        }
    }
    if let Some(severity) = spot.number("severity") {
        report.fields.insert("severity".into(), severity);
    }
    for (name, value) in &spot.fields {
        if let Some(text) = value.as_str() {
            report.texts.insert(name.clone(), text.into());
        }
    }
}

/// Place of a field in the buffer, in bytes, with its length, the name in the record and that of the row.
const PLACES: &[(&str, usize, usize, &str, &str)] = &[
    ("assert_exit_ptr", 32, 4, "assert_exit_ptr", "assert_existptr"),
    ("assert_callra", 36, 4, "assert_callra", "assert_callra"),
    ("time", 44, 4, "time", "time"),
    ("raw_fw_ver", 48, 4, "fw_ver", "fw_version"),
    ("hw_id", 52, 4, "hw_id", "hw_id"),
    ("irisc_index", 60, 1, "irisc_index", "irisc_index"),
    ("synd", 61, 1, "synd", "synd"),
    ("ext_synd", 62, 2, "ext_synd", "ext_synd"),
];

/// The buffer that was printed, as far as it was.
fn buffer(fields: &BTreeMap<String, u64>) -> [u8; 64] {
    let mut bytes = [0; 64];
    let mut put = |at: usize, length: usize, number: u64| {
        let number = number.to_be_bytes();
        for (to, from) in bytes.iter_mut().skip(at).zip(number.iter().skip(8 - length)).take(length) {
            *to = *from;
        }
    };
    for i in 0..6_usize {
        put(4 * i, 4, fields.get(&format!("assert_var{i}")).copied().unwrap_or(0));
    }
    for (name, at, length, ..) in PLACES {
        put(*at, *length, fields.get(*name).copied().unwrap_or(0));
    }
    if let Some(severity) = fields.get("severity") {
        put(56, 1, 0x08 | (severity & 7) | fields.get("rfr").map_or(0, |rfr| (rfr & 1) << 7));
    }
    bytes
}

fn record(report: &Report, spots: &mut [Spot]) -> Record {
    let mut fields = report.fields.clone();
    if let (None, Some(major), Some(minor), Some(patch)) =
        (fields.get("raw_fw_ver"), fields.get("major"), fields.get("minor"), fields.get("patch"))
    {
        let raw = (major & 0xff) << 24 | (minor & 0xff) << 16 | (patch & 0xffff);
        fields.insert("raw_fw_ver".into(), raw);
    }
    let gone = fields.get("raw_fw_ver") == Some(&0xffff_ffff);
    let bytes = if gone { [0xff; 64] } else { buffer(&fields) };
    let Some((mut record, _)) = health::decode(&bytes) else { return Record::new(Kind::Text, "") };
    if !gone {
        only_printed(&mut record, &fields);
    }
    record.kind = Kind::Text;
    let mut all = Record::new(Kind::Text, "");
    if let Some(first) = report.spots.first().and_then(|&at| spots.get(at)) {
        all = first.record("health", "");
    }
    all.json.append(&mut std::mem::take(&mut record.json));
    all.put("kind", Kind::Text.name());
    if let Some(text) = report.texts.get("synd_text").filter(|text| !text.is_empty()) {
        all.put("printed_text", text.clone());
    }
    record.json = all.json;
    if !gone && !fields.contains_key("synd") {
        let what = report.texts.get("synd_text").map_or("the line with synd is not here", String::as_str);
        record.headline = format!("The device reports a failure: {what}.");
        record.put("unhealthy", true);
        record.causes.clear();
    }
    record.lines = report.spots.iter().filter_map(|&at| spots.get(at)).flat_map(Spot::lines).collect();
    for &at in &report.spots {
        if let Some(spot) = spots.get_mut(at) {
            spot.used = true;
        }
    }
    record.next.push(
        "Keep all of these lines and the firmware's version for the vendor; look for PCIe errors just before.".into(),
    );
    record
}

/// Leaves out what was not printed. A severity that was not is assumed, as the driver does.
fn only_printed(record: &mut Record, fields: &BTreeMap<String, u64>) {
    for (printed, _, _, name, row) in PLACES {
        if !fields.contains_key(*printed) {
            record.json.remove(*name);
            record.rows.retain(|r| r.name != *row);
        }
    }
    if !fields.contains_key("synd") {
        record.json.remove("synd_name");
    }
    if !fields.contains_key("rfr") {
        record.json.remove("rfr");
        record.rows.retain(|r| r.name != "rfr");
    }
    if let Some(crr) = fields.get("crr") {
        record.put("crr", Value::from(*crr));
    }
}
