//! Tag matching in words: what the device did with a message's tag or with its list of tags.

use mlx5_hw::cqe::{Cqe64Layout, TmCqe};
use mlx5_hw::prm::Layout;

use super::Record;
use super::record::{layout, named, number};

/// The number of tag matching among the applications that make entries (`MLX5_CQE_APP_TAG_MATCHING`).
const TAG_MATCHING: u32 = 1;

/// What was done (`MLX5_CQE_APP_OP_TM_*`): number, name, in words.
const OPERATIONS: [(u32, &str, &str); 11] = [
    (1, "TM_CONSUMED", "A message matched a tag; its data comes later."),
    (2, "TM_EXPECTED", "The data of a message that matched a tag is in place."),
    (3, "TM_UNEXPECTED", "A message matched no tag of the list and went to the receive queue."),
    (4, "TM_NO_TAG", "A message without a tag went to the receive queue."),
    (5, "TM_APPEND", "A tag was added to the list."),
    (6, "TM_REMOVE", "A tag was taken from the list."),
    (7, "TM_NOOP", "A list operation that changes nothing, to bring software and device into step."),
    (9, "TM_CONSUMED_SW_RDNV", "A message matched a tag; software has to carry out the rendezvous."),
    (10, "TM_CONSUMED_MSG", "A message matched a tag and its data is in place."),
    (
        11,
        "TM_CONSUMED_MSG_SW_RDNV",
        "A message matched a tag, its data is in place; software has to carry out the rendezvous.",
    ),
    (12, "TM_MSG_COMPLETION_CANCELED", "A message matched a tag and was given up."),
];

/// Numbers of the operations on the list, whose entries begin with its state and not with a message's header.
const LIST: std::ops::RangeInclusive<u32> = 5..=7;

/// Adds what tag matching says, if it made the entry; the sentence for it.
pub fn explain(record: &mut Record, descriptor: &[u8]) -> Option<String> {
    let cqe: Cqe64Layout = layout(descriptor, 0);
    if cqe.app() != TAG_MATCHING {
        return None;
    }
    let known = OPERATIONS.iter().find(|(number, ..)| *number == cqe.app_op());
    let (name, words) =
        known.map_or((None, "An operation that is not known."), |(_, name, words)| (Some(*name), *words));
    record.put("app_op", cqe.app_op());
    record.put("app_op_name", name);
    record.put("app_info", cqe.app_info());
    record.row("app_op", named(cqe.app_op().into(), name), "What tag matching did.");
    record.row("app_info", number(cqe.app_info().into()), "Index in the list of tags.");
    if LIST.contains(&cqe.app_op()) {
        let list: TmCqe = layout(descriptor, 0);
        let success = list.success() >> 31 != 0;
        record.put("success", success);
        record.put("hw_phase_cnt", list.hw_phase_cnt());
        record.row("success", if success { "yes" } else { "no" }, "Whether the list operation was carried out.");
        record.row_of::<TmCqe>("hw_phase_cnt", number(list.hw_phase_cnt().into()));
    } else {
        // struct ibv_tmh: opcode, three bytes of padding, app_ctx, tag.
        let word = |i: usize| cqe.words().get(i).map_or(0, |w| w.get());
        let tag = u64::from(word(2)) << 32 | u64::from(word(3));
        record.put("tag", tag);
        record.put("app_ctx", word(1));
        record.row("tag", number(tag), "Tag in the message's header.");
        record.row("app_ctx", number(word(1).into()), "What the sender put beside the tag (verbs' priv).");
    }
    Some(words.into())
}
