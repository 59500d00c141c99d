//! What details mean: which say what a command is about, which number objects, which the device chose.

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

/// The command and what it is about, in words.
pub(super) fn label(line: &Line) -> String {
    let mut label = line.name.clone();
    for detail in line.details.iter().filter(|detail| SUBJECT.contains(&detail.key.as_str())) {
        label.push(' ');
        if NAMELESS.contains(&detail.key.as_str()) {
            label.push_str(&detail.key);
        } else {
            label.push_str(&detail.to_string());
        }
    }
    if label == line.name && line.op_mod != 0 {
        label.push_str(&format!(" opmod={}", line.op_mod));
    }
    label
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
