//! Every declared hardware structure and named number, compared with what three separately maintained public header
//! sets say (`tests/data`).
//!
//! A field is set to all ones in a zeroed buffer, and to zero in a buffer of ones, and the bits that moved are looked
//! at; then it is read from a pattern that this test takes apart by itself, and written. Nothing here asks the declaration
//! where a field is.
#![allow(clippy::expect_used, clippy::panic, reason = "a helper that cannot go on fails its test")]

mod declared;
mod oracle;
mod undeclared;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use mlx5_hw::be::Be32;
use mlx5_hw::prm::Field;

use declared::{Numbers, Structure};
use oracle::{Oracle, Place, Row};

/// Where a field stands when its position is kept apart from the headers' own declaration, and why.
const DIFFERENT: &[(&str, &str, u32, u32, &str)] = &[(
    "initial_seg",
    "nic_interface",
    0xb5,
    3,
    "headers declare two bits, drivers access three; the value of the software reset, 7, needs three",
)];

/// One field of a declared structure, with the way to it.
struct Leaf {
    path: Vec<&'static Field>,
}

impl Leaf {
    fn field(&self) -> &'static Field {
        self.path.last().copied().expect("a path is never empty")
    }

    fn name(&self) -> String {
        dotted(&self.path)
    }

    /// Elements to set one by one: a list of any length is tried with three, a nested structure has its dwords.
    fn elements(&self) -> usize {
        let field = self.field();
        match (field.count, field.nested.is_empty()) {
            (0, _) => 3,
            (count, true) => count as usize,
            (_, false) => field.bit_width as usize / 32,
        }
    }

    /// A list behind a nested structure: it lies outside, where the nested structure's accessors do not reach.
    fn is_inner_list(&self) -> bool {
        self.field().count == 0 && self.path.len() > 1
    }

    fn element_width(&self) -> u32 {
        if self.field().nested.is_empty() { self.field().bit_width } else { 32 }
    }

    fn set(&self, words: &mut [Be32], index: usize, value: u64) {
        set_path(&self.path, words, index, value);
    }

    fn get(&self, words: &[Be32], index: usize) -> u64 {
        get_path(&self.path, words, index)
    }
}

fn set_path(path: &[&'static Field], words: &mut [Be32], index: usize, value: u64) {
    let [outer, inner @ ..] = path else { return };
    if inner.is_empty() {
        return (outer.set)(words, index, value);
    }
    let (touched, mut nested) = nested_words(outer, inner, words, index);
    set_path(inner, &mut nested, index, value);
    for i in touched {
        (outer.set)(words, i, nested[i].get().into());
    }
}

fn get_path(path: &[&'static Field], words: &[Be32], index: usize) -> u64 {
    match path {
        [] => 0,
        [field] => (field.get)(words, index),
        [outer, inner @ ..] => get_path(inner, &nested_words(outer, inner, words, index).1, index),
    }
}

/// The dwords of a nested structure that an element of the field `inner` lies in, and the nested structure with just
/// these, read from the outer one. (All dwords of a page of capabilities for each field would take minutes.)
fn nested_words(outer: &Field, inner: &[&'static Field], words: &[Be32], index: usize) -> (Vec<usize>, Vec<Be32>) {
    let mut nested = vec![Be32::ZERO; outer.bit_width as usize / 32];
    set_path(inner, &mut nested, index, u64::MAX);
    let touched: Vec<usize> = (0..nested.len()).filter(|i| nested[*i] != Be32::ZERO).collect();
    for i in &touched {
        nested[*i] = Be32::new((outer.get)(words, *i) as u32);
    }
    (touched, nested)
}

/// All fields, those of nested structures too.
fn leaves(fields: &'static [Field]) -> Vec<Leaf> {
    fn walk(fields: &'static [Field], path: &[&'static Field], out: &mut Vec<Leaf>) {
        for field in fields {
            let mut path = path.to_vec();
            path.push(field);
            out.push(Leaf { path: path.clone() });
            walk(field.nested, &path, out);
        }
    }
    let mut out = Vec::new();
    walk(fields, &[], &mut out);
    out
}

fn bytes(words: &[Be32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_raw().to_ne_bytes()).collect()
}

/// `len` zero bytes in which the given bits are one, counted from the most significant bit of byte 0.
fn with_ones(len: usize, offset: u32, width: u32) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for bit in offset..offset + width {
        bytes[bit as usize / 8] |= 0x80 >> (bit % 8);
    }
    bytes
}

/// Takes a number out of bytes, bit by bit, most significant first.
fn extract(bytes: &[u8], offset: u32, width: u32) -> u64 {
    (offset..offset + width).fold(0, |v, i| v << 1 | u64::from(bytes[i as usize / 8] >> (7 - i % 8) & 1))
}

/// Dwords that follow no pattern of ours.
fn pattern(len: usize) -> Vec<Be32> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Be32::new((state >> 32) as u32)
    };
    (0..len).map(|_| next()).collect()
}

/// Compares what a field's accessors do with where it should be.
fn check_accessors(what: &str, bytes_of_structure: usize, leaf: &Leaf, place: Place) {
    let words = bytes_of_structure / 4 + 8;
    let width = leaf.element_width();
    let all_ones = if width == 64 { u64::MAX } else { (1 << width) - 1 };
    for index in 0..leaf.elements() {
        let at = place.offset + width * index as u32;
        let expected = with_ones(4 * words, at, width);

        let mut buffer = vec![Be32::ZERO; words];
        leaf.set(&mut buffer, index, all_ones);
        assert!(bytes(&buffer) == expected, "{what}[{index}]: setting it to ones moves bits other than {at}/{width}");

        let mut buffer = vec![Be32::new(u32::MAX); words];
        leaf.set(&mut buffer, index, 0);
        let left: Vec<u8> = expected.iter().map(|b| !b).collect();
        assert!(bytes(&buffer) == left, "{what}[{index}]: setting it to zero moves bits other than {at}/{width}");

        let foreign = pattern(words);
        let value = extract(&bytes(&foreign), at, width);
        assert_eq!(leaf.get(&foreign, index), value, "{what}[{index}]: read from a pattern");

        let mut buffer = vec![Be32::ZERO; words];
        leaf.set(&mut buffer, index, value);
        assert_eq!(extract(&bytes(&buffer), at, width), value, "{what}[{index}]: written and taken apart");
    }
}

/// The place of a declared field according to the headers.
fn place_of(oracle: &Oracle, structure: &str, path: &[&'static Field]) -> Option<Place> {
    let name = dotted(path);
    if let Some((_, _, offset, width, _)) = DIFFERENT.iter().find(|d| d.0 == structure && d.1 == name) {
        let headers = oracle.place(structure, &name)?;
        assert!((headers.offset, headers.width) != (*offset, *width), "{name} is no longer different");
        return Some(Place { offset: *offset, width: *width, count: 1, in_bytes: false });
    }
    if let Some(place) = oracle.place(structure, &name) {
        return Some(place);
    }
    // The headers may flatten an older form of a nested structure, or not flatten it at all: ask for it by itself.
    (1..path.len()).rev().find_map(|split| {
        let (outer, inner) = path.split_at(split);
        let inner = place_of(oracle, outer.last()?.nested_name, inner)?;
        let outer = place_of(oracle, structure, outer)?;
        Some(Place { offset: outer.offset + inner.offset, ..inner })
    })
}

fn dotted(path: &[&'static Field]) -> String {
    path.iter().map(|f| f.name).collect::<Vec<_>>().join(".")
}

/// Compares what the table of fields says, from which decoders and traces read.
fn check_shape(what: &str, path: &[&'static Field], place: Place) {
    let Some(field) = path.last() else { return };
    let offset: u32 = path.iter().map(|f| f.bit_offset).sum();
    assert_eq!(offset, place.offset, "{what}: offset in bits");
    assert_eq!(field.count == 0, place.count == 0, "{what}: a list of any length in one and not in the other");
    if place.in_bytes {
        let total = field.bit_width * field.count.max(1);
        let theirs = if field.nested.is_empty() { place.width } else { place.width.next_multiple_of(32) };
        assert_eq!(total, theirs, "{what}: width in bits, a nested structure to the end of its last dword");
    } else if field.nested.is_empty() {
        assert_eq!((field.bit_width, field.count), (place.width, place.count), "{what}: width and count");
    } else {
        assert_eq!(field.bit_width, place.width, "{what}: size of the nested structure in bits");
    }
}

fn check_structure(oracle: &Oracle, structure: &Structure) -> usize {
    let name = structure.name;
    assert!(oracle.sizes(name).next().is_some(), "{name}: the headers do not declare it");
    for (source, size) in oracle.sizes(name) {
        let excused = undeclared::SIZES.iter().any(|(s, bytes, _)| *s == source && *bytes == size);
        assert!((size == structure.bytes) != excused, "{source}: {size} bytes, declared with {}", structure.bytes);
    }
    let mut compared = 0;
    for leaf in leaves(structure.fields) {
        let what = format!("{name}.{}", leaf.name());
        assert!(!leaf.field().doc.trim().is_empty(), "{what}: no meaning given");
        let place = place_of(oracle, name, &leaf.path).unwrap_or_else(|| panic!("{what}: the headers do not have it"));
        check_shape(&what, &leaf.path, place);
        if !leaf.is_inner_list() {
            check_accessors(&what, structure.bytes, &leaf, place);
        }
        compared += 1;
    }
    compared
}

/// Places of all declared fields, in bits: offset and extent.
fn declared_places(oracle: &Oracle, structure: &Structure) -> BTreeSet<(u32, u32)> {
    leaves(structure.fields)
        .iter()
        .filter_map(|leaf| place_of(oracle, structure.name, &leaf.path))
        .map(Place::extent)
        .collect()
}

#[test]
fn every_declared_field_lies_where_the_headers_say() {
    let oracle = Oracle::read();
    let structures = declared::structures();
    let fields: usize = structures.iter().map(|s| check_structure(&oracle, s)).sum();
    assert!(structures.len() > 100 && fields > 1000, "the registry shrank");
    say(&format!("layout: {} structures, {fields} fields compared with the headers", structures.len()));
}

#[test]
fn every_field_of_a_declared_structure_is_declared_or_has_a_reason_not_to_be() {
    let oracle = Oracle::read();
    let mut used = BTreeSet::new();
    let mut missing = Vec::new();
    let mut spellings = 0;
    let structures = declared::structures();
    for structure in structures.iter().filter(|s| !oracle::is_member(s.name)) {
        let declared: BTreeSet<String> = leaves(structure.fields).iter().map(Leaf::name).collect();
        let places = declared_places(&oracle, structure);
        for Row { source, field, place } in oracle.fields(structure.name) {
            if declared.contains(field) {
                continue;
            }
            let reason = undeclared::FIELDS
                .iter()
                .position(|(s, pattern, _)| s == source && undeclared::matches(pattern, field));
            match reason {
                Some(at) => drop(used.insert(at)),
                None if !undeclared::is_union(field) && places.contains(&place.extent()) => spellings += 1,
                None => missing.push(format!("{source}.{field}")),
            }
        }
    }
    assert!(missing.is_empty(), "neither declared nor excused:\n{}", missing.join("\n"));
    let reasons = undeclared::FIELDS.iter().enumerate();
    let stale: Vec<_> = reasons.filter(|(i, _)| !used.contains(i)).map(|(_, r)| (r.0, r.1)).collect();
    assert!(stale.is_empty(), "excused but declared, or gone: {stale:?}");
    say(&format!("layout: {spellings} other spellings of declared fields, {} reasons in use", used.len()));
}

#[test]
fn every_named_number_is_the_headers() {
    let constants = oracle::constants();
    let mut compared = 0;
    for set in declared::numbers() {
        compared += check_numbers(&constants, &set);
    }
    assert!(compared > 400, "the registry shrank");
    say(&format!("layout: {} sets, {compared} named numbers compared with the headers", declared::numbers().len()));
}

fn check_numbers(constants: &BTreeMap<(String, String), u64>, set: &Numbers) -> usize {
    let Numbers { name, values, group, prefixes, shift, complete } = set;
    for (value, number, doc) in *values {
        let spelled: Vec<_> =
            prefixes.iter().filter_map(|p| constants.get(&((*group).into(), format!("{p}{value}")))).collect();
        let expected = spelled.first().unwrap_or_else(|| panic!("{name}::{value}: not in group {group}"));
        assert_eq!(**expected, number << shift, "{name}::{value}");
        assert!(!doc.trim().is_empty(), "{name}::{value}: no meaning given");
    }
    if *complete {
        for ((_, theirs), number) in constants.iter().filter(|((g, _), _)| g == group) {
            let excused = undeclared::NUMBERS.iter().any(|(name, _)| name == theirs);
            let named = prefixes.iter().any(|p| theirs.starts_with(p)) && !excused;
            let known = values.iter().any(|(_, n, _)| n << shift == *number);
            assert!(!named || known, "{name}: {theirs} = {number:#x} is not declared");
        }
    }
    values.len()
}

/// The registry lists what the sources declare: nothing escapes the comparison.
#[test]
fn every_declaration_in_the_sources_is_registered() {
    let declared = declared::in_sources();
    let registered: BTreeSet<String> = declared::structures()
        .iter()
        .map(|s| s.name.to_owned())
        .chain(declared::numbers().iter().map(|n| n.name.to_owned()))
        .collect();
    let missing: Vec<_> = declared.difference(&registered).collect();
    assert!(missing.is_empty(), "declared in hw/src but not compared: {missing:?}");
    let stale: Vec<_> = registered.difference(&declared).collect();
    assert!(stale.is_empty(), "registered but not found in hw/src: {stale:?}");
}

/// Prints past the harness's capture: a user who runs the tests sees what was compared.
fn say(line: &str) {
    writeln!(std::io::stderr(), "{line}").expect("standard error is open");
}
