//! Mailbox blocks in words.

use mlx5_hw::cmd_entry::{CmdIfBox, DATA_BYTES};
use mlx5_hw::prm::Layout;

use super::record::{hex, layout, number};
use super::{Kind, Record};

/// Decodes the block at the head of `bytes`, and says how many bytes it takes; `None` if there are too few.
pub fn decode(bytes: &[u8]) -> Option<(Record, usize)> {
    let bytes = bytes.get(..CmdIfBox::BYTES)?;
    let block: CmdIfBox = layout(bytes, 0);
    let data = bytes.get(..DATA_BYTES)?;
    let end = data.iter().rposition(|&b| b != 0).map_or(0, |i| i + 1);
    let headline = format!(
        "Mailbox block {} of the command with token {:#x}{}.",
        block.block_number(),
        block.token(),
        if block.next() == 0 { ", the last of its chain" } else { "" }
    );
    let mut record = Record::new(Kind::Mailbox, headline);
    record.put("size", CmdIfBox::BYTES);
    record.put("data_bytes", DATA_BYTES);
    record.put("data", hex(data));
    record.put("next", block.next());
    record.put("number", block.block_number());
    record.put("token", block.token());
    record.put("ctrl_signature", block.ctrl_signature());
    record.put("signature", block.signature());
    record.row(
        "data",
        format!("{end} of {DATA_BYTES} bytes up to the last that is not zero"),
        "Input or output of the command.",
    );
    record.row("next", format!("{:#x}", block.next()), "I/O address of the next block; 0 in the last one.");
    for field in ["block_number", "token", "ctrl_signature", "signature"] {
        let value = CmdIfBox::FIELDS.iter().find(|f| f.name == field).map_or(0, |f| (f.get)(block.words(), 0));
        record.row_of::<CmdIfBox>(field, number(value));
    }
    record.notes.push(
        "What the data means depends on the command: pass its 64-byte descriptor with the blocks behind it.".into(),
    );
    Some((record, CmdIfBox::BYTES))
}
