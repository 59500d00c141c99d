//! What details mean: which say what a command is about, which number objects, which the device chose.

use std::collections::HashMap;

use super::{Detail, Line, Value};

/// Details that belong to the name of a command: what it asks for or works on.
const SUBJECT: [&str; 21] = [
    "addresses_list",
    "affiliation",
    "change_event",
    "cur",
    "disable_mc_local_lb",
    "disable_uc_local_lb",
    "give",
    "mask",
    "max",
    "min_inline",
    "mtu",
    "node_guid",
    "port_guid",
    "promisc",
    "r",
    "reg",
    "roce_en",
    "service",
    "take",
    "type",
    "w",
];
/// Of these only the name counts, not the value.
const NAMELESS: [&str; 1] = ["give"];
/// Commands with answers, and which details those are.
const ANSWERS: [(&str, &[&str]); 3] = [
    ("QUERY_PAGES", &["pages"]),
    ("MANAGE_PAGES", &["total", "returned", "left"]),
    ("QUERY_ISSI", &["issi", "supported"]),
];
/// Addresses, other functions' numbers, and numbers that a driver is free to choose.
const INCOMPARABLE: [&str; 5] = ["gid", "remote", "start", "uidx", "val"];
/// Commands that make objects, and the detail with the number.
const MAKES: [(&str, &str); 18] = [
    ("ALLOC_PD", "pd"),
    ("ALLOC_Q_COUNTER", "qc"),
    ("ALLOC_TRANSPORT_DOMAIN", "td"),
    ("ALLOC_UAR", "uar"),
    ("ALLOC_XRCD", "xrcd"),
    ("CREATE_CQ", "cqn"),
    ("CREATE_EQ", "eqn"),
    ("CREATE_FLOW_GROUP", "fg"),
    ("CREATE_FLOW_TABLE", "ft"),
    ("CREATE_MKEY", "mkey"),
    ("CREATE_QP", "qpn"),
    ("CREATE_RMP", "rmpn"),
    ("CREATE_RQ", "rqn"),
    ("CREATE_RQT", "rqtn"),
    ("CREATE_SQ", "sqn"),
    ("CREATE_TIR", "tirn"),
    ("CREATE_TIS", "tis"),
    ("CREATE_XRC_SRQ", "srqn"),
];
/// Details that name an object of a kind under another name.
const ALIASES: [(&str, &str); 2] = [("cqs", "cqn"), ("cqr", "cqn")];

/// Each command and what it is about, in words. Of an object that an earlier command made, that command tells it:
/// `DESTROY_EQ mask=0x400`; or `makers` does, which has words for commands by their places.
pub(super) fn labels(lines: &[Line], makers: &HashMap<usize, String>) -> Vec<String> {
    let mut subjects: HashMap<(&str, u64), String> = HashMap::new();
    let label = |(at, line): (usize, &Line)| {
        let mut subject = subject(line);
        let made = makes(&line.name);
        for object in objects(line) {
            if made == Some(object.0) {
                subjects.insert(object, makers.get(&at).unwrap_or(&subject).clone());
            } else if made.is_none() {
                subject.push_str(subjects.get(&object).map_or("", String::as_str));
            }
        }
        if subject.is_empty() && line.op_mod != 0 {
            subject = format!(" opmod={}", line.op_mod);
        }
        line.name.clone() + &subject
    };
    lines.iter().enumerate().map(label).collect()
}

/// What a command is about, as far as it says so itself.
pub(super) fn subject(line: &Line) -> String {
    let about = line.details.iter().filter(|detail| SUBJECT.contains(&detail.key.as_str()));
    let word = |detail: &Detail| match NAMELESS.contains(&detail.key.as_str()) {
        true => format!(" {}", detail.key),
        false => format!(" {detail}"),
    };
    about.map(word).collect()
}

/// Whether a word without a value says what the command is about.
pub(super) fn is_subject(detail: &Detail) -> bool {
    detail.value.is_none() && SUBJECT.contains(&detail.key.as_str())
}

/// Whether the detail of this command is an answer.
pub(super) fn is_answer(command: &str, key: &str) -> bool {
    ANSWERS.iter().any(|(name, keys)| *name == command && keys.contains(&key))
}

/// Whether two values of this detail can be compared: not addresses and not numbers of objects.
pub(super) fn comparable(key: &str) -> bool {
    !INCOMPARABLE.contains(&key) && kind_of(key).is_none()
}

/// The kind of object that a detail numbers.
pub(super) fn kind_of(key: &str) -> Option<&'static str> {
    let alias = ALIASES.iter().find(|(from, _)| *from == key).map(|(_, kind)| *kind);
    alias.or_else(|| MAKES.iter().find(|(_, kind)| *kind == key).map(|(_, kind)| *kind))
}

/// The kind of object that the command makes.
pub(super) fn makes(command: &str) -> Option<&'static str> {
    MAKES.iter().find(|(name, _)| *name == command).map(|(_, kind)| *kind)
}

/// The objects that a line names: kind and number.
pub(super) fn objects(line: &Line) -> impl Iterator<Item = (&'static str, u64)> + '_ {
    line.details.iter().filter_map(|detail| match (kind_of(&detail.key), &detail.value) {
        (Some(kind), Some(Value::Number(number))) => Some((kind, *number)),
        _ => None,
    })
}
