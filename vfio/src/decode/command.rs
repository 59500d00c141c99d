//! Command queue entries, with the mailbox blocks behind them, in words.

use mlx5_hw::cmd::{Opcode, PagesOp, Status};
use mlx5_hw::cmd_entry::{
    CmdIfBox, CmdQueueEntry, DATA_BYTES, DeliveryStatus, ENTRY_TYPE, INLINE_BYTES, mailboxes, xor,
};
use mlx5_hw::prm::{Field, Layout};
use serde_json::{Map, Value};

use super::messages;
use super::record::{hex, layout, meaning, named, number, words};
use super::{Kind, Record};

/// Size of a descriptor in bytes.
pub const DESCRIPTOR: usize = CmdQueueEntry::BYTES;
/// Size of a mailbox block in bytes.
pub const BLOCK: usize = CmdIfBox::BYTES;
/// First byte of a descriptor.
pub const TYPE: u8 = ENTRY_TYPE as u8;
/// Fields that every input and output has, shown apart from the others.
const HEAD: &[&str] = &["opcode", "uid", "op_mod", "status", "syndrome"];

/// A descriptor and what of its input and output is there.
struct Message {
    entry: CmdQueueEntry,
    input: Vec<u8>,
    output: Vec<u8>,
    used: usize,
    /// What is wrong with the blocks behind the descriptor.
    strays: Vec<String>,
}

/// Decodes the command at the head of `bytes`, and says how many bytes it takes; `None` if there are too few.
pub fn decode(bytes: &[u8]) -> Option<(Record, usize)> {
    let message = gather(bytes)?;
    let entry = &message.entry;
    let opcode = Opcode(be16(&message.input, 0));
    let status = Status(message.output.first().copied().unwrap_or(0));
    let syndrome = be32(&message.output, 4);
    let mut record = Record::new(Kind::Command, headline(entry, opcode, status, syndrome));
    put_opcode(&mut record, opcode);
    put_op_mod(&mut record, opcode, be16(&message.input, 6));
    put_status(&mut record, status, syndrome, !entry.ownership());
    describe(&mut record, entry, bytes.get(..DESCRIPTOR)?);
    fields(&mut record, opcode, &message);
    rows_of_descriptor(&mut record, entry);
    causes(&mut record, entry, opcode, status);
    if entry.r#type() != ENTRY_TYPE && !is_empty(entry) {
        let note = "A command's type is 7: these are other bytes, or their beginning is missing.";
        record.notes.push(note.into());
    }
    record.notes.extend(message.strays);
    Some((record, message.used))
}

/// Which command.
pub fn put_opcode(record: &mut Record, opcode: Opcode) {
    record.put("opcode", opcode.0);
    record.put("opcode_name", opcode.name().map_or(Value::Null, Value::from));
    let what = Opcode::VALUES.iter().find(|(_, n, _)| *n == u64::from(opcode.0)).map_or("", |(_, _, doc)| *doc);
    record.row("opcode", named(opcode.0.into(), opcode.name()), meaning(what));
}

/// Which variant of it.
pub fn put_op_mod(record: &mut Record, opcode: Opcode, op_mod: u16) {
    record.put("op_mod", op_mod);
    record.row("op_mod", number(op_mod.into()), op_mod_meaning(opcode, op_mod));
}

/// How it ended; `show` it to people as well.
pub fn put_status(record: &mut Record, status: Status, syndrome: u32, show: bool) {
    record.put("status", status.0);
    record.put("status_name", status.name().map_or(Value::Null, Value::from));
    put_errno(record, status.errno());
    record.put("fw_syndrome", syndrome);
    if show {
        record.row("status", named(status.0.into(), status.name()), status_meaning(status));
        let meaning = "The firmware's own number for the reason; support can look it up.";
        record.row("syndrome", number(syndrome.into()), meaning);
    }
}

/// The error number that a caller of verbs gets.
pub fn put_errno(record: &mut Record, errno: i32) {
    record.put("errno", errno);
    record.put("errno_name", errno_name(errno).map_or(Value::Null, Value::from));
}

/// A refusal in one sentence.
pub fn refusal(name: &str, status: Status, syndrome: u32) -> String {
    let errno = errno_name(status.errno()).unwrap_or("no errno");
    format!("{name} was refused: {status} ({:#x}), syndrome {syndrome:#x}, {errno} in verbs.", status.0)
}

/// The name of a command, or its number.
pub fn name_of(opcode: Opcode) -> String {
    opcode.name().map_or(format!("Command {:#x}", opcode.0), String::from)
}

/// Whether a command ends the life of an object.
pub fn destroys(opcode: Opcode) -> bool {
    opcode.name().is_some_and(|n| n.starts_with("DE") || n.starts_with("DISABLE"))
}

/// Collects input and output: what the descriptor holds, and the mailbox blocks that follow and carry its token.
fn gather(bytes: &[u8]) -> Option<Message> {
    let entry: CmdQueueEntry = layout(bytes.get(..DESCRIPTOR)?, 0);
    let mut used = DESCRIPTOR;
    let mut strays = Vec::new();
    let mut take = |inline: &[u8], pointer: u64, length: u32| {
        let mut data = inline.to_vec();
        let blocks = if pointer == 0 { 0 } else { mailboxes(length as usize) };
        for number in 0..blocks {
            let Some(block) = bytes.get(used..).and_then(|rest| rest.get(..BLOCK)) else { break };
            if let Some(why) = stray(block, &entry, number) {
                strays.extend(why);
                break;
            }
            data.extend_from_slice(block.get(..DATA_BYTES).unwrap_or(&[]));
            used += BLOCK;
        }
        data.truncate((length as usize).max(INLINE_BYTES));
        data
    };
    let input = take(bytes.get(16..32)?, entry.input_mailbox(), entry.input_length());
    let output = take(bytes.get(32..48)?, entry.output_mailbox(), entry.output_length());
    Some(Message { entry, input, output, used, strays })
}

/// Why bytes are not block `number` of the command, if they are not; another descriptor needs no reason.
fn stray(block: &[u8], entry: &CmdQueueEntry, number: usize) -> Option<Option<String>> {
    let head: CmdIfBox = layout(block, 0);
    if head.token() == entry.token() && head.block_number() as usize == number {
        return None;
    }
    let descriptor = block.first() == Some(&TYPE);
    Some((!descriptor).then(|| {
        format!(
            "The bytes behind it are no mailbox block of this command: token {:#x} and number {} instead of {:#x} and {number}.",
            head.token(),
            head.block_number(),
            entry.token()
        )
    }))
}

/// The descriptor's own fields.
fn describe(record: &mut Record, entry: &CmdQueueEntry, bytes: &[u8]) {
    let delivery = entry.delivery_status();
    record.put("type", entry.r#type());
    record.put("in_len", entry.input_length());
    record.put("in_mailbox", entry.input_mailbox());
    record.put("inline_in", hex(bytes.get(16..32).unwrap_or(&[])));
    record.put("inline_out", hex(bytes.get(32..48).unwrap_or(&[])));
    record.put("out_mailbox", entry.output_mailbox());
    record.put("out_len", entry.output_length());
    record.put("token", entry.token());
    record.put("signature", entry.signature());
    record.put("delivery_status", delivery.0);
    record.put("delivery_status_name", delivery.name().map_or(Value::Null, Value::from));
    record.put("owner_bit", u8::from(entry.ownership()));
    record.put("xor_of_64", xor(entry.words()));
    record.put("mailbox_blocks_needed", mailboxes(entry.input_length() as usize));
}

/// The same for people.
fn rows_of_descriptor(record: &mut Record, entry: &CmdQueueEntry) {
    let delivery = entry.delivery_status();
    record.row_of::<CmdQueueEntry>("type", number(entry.r#type().into()));
    record.row_of::<CmdQueueEntry>("input_length", blocks(entry.input_length()));
    record.row_of::<CmdQueueEntry>("output_length", blocks(entry.output_length()));
    for (name, pointer) in [("input mailbox", entry.input_mailbox()), ("output mailbox", entry.output_mailbox())] {
        if pointer != 0 {
            record.row(name, format!("{pointer:#x}"), "I/O address of the first mailbox block.");
        }
    }
    record.row_of::<CmdQueueEntry>("token", number(entry.token().into()));
    let sum = format!("All 64 bytes XOR to {:#x}: {}", xor(entry.words()), signature_meaning(entry));
    record.row("signature", number(entry.signature().into()), sum);
    let doc =
        DeliveryStatus::VALUES.iter().find(|(_, n, _)| *n == u64::from(delivery.0)).map_or("", |(_, _, doc)| *doc);
    let doc = if entry.ownership() { "The device sets it with its answer.".into() } else { meaning(doc) };
    record.row("delivery status", named(delivery.0.into(), delivery.name()), doc);
    let owner = if entry.ownership() { "1 device" } else { "0 software" };
    record.row("ownership", owner, "Whose the entry is: the device clears the bit last, when the answer is complete.");
}

fn blocks(length: u32) -> String {
    match mailboxes(length as usize) {
        0 => number(length.into()),
        n => format!("{}, {n} mailbox block(s)", number(length.into())),
    }
}

fn signature_meaning(entry: &CmdQueueEntry) -> &'static str {
    match (entry.ownership(), xor(entry.words())) {
        (true, 0xff) => "right for a command handed to the device.",
        (false, 0xfe) => "0xff before the owner bit was cleared; the device signed its answer.",
        (false, _) => "not a signed answer: after INIT_HCA the signature stays as the driver sent it.",
        (true, _) => "not 0xff, the device refuses it while command checksums are on.",
    }
}

fn is_empty(entry: &CmdQueueEntry) -> bool {
    entry.words().iter().all(|w| w.get() == 0)
}

/// One sentence.
fn headline(entry: &CmdQueueEntry, opcode: Opcode, status: Status, syndrome: u32) -> String {
    let name = name_of(opcode);
    let delivery = entry.delivery_status();
    if is_empty(entry) {
        "An empty slot: no command was written to it.".into()
    } else if entry.ownership() {
        format!("{name}: handed to the device, which has not answered yet.")
    } else if delivery != DeliveryStatus::OK {
        format!("{name} was not delivered: {delivery} ({:#x}). Its status does not count.", delivery.0)
    } else if status == Status::OK {
        format!("{name} succeeded.")
    } else {
        refusal(&name, status, syndrome)
    }
}

/// The command's own fields, as far as the bytes reach.
fn fields(record: &mut Record, opcode: Opcode, message: &Message) {
    let Some((input, output)) = messages::of(opcode) else {
        record.notes.push(
            "The fields of this command are not known to this version; inline_in and inline_out hold its head.".into(),
        );
        return;
    };
    let done = !message.entry.ownership() && message.output.first() == Some(&0);
    for (direction, fields, bytes, show) in
        [("input", input, &message.input, true), ("output", output, &message.output, done)]
    {
        let whole = if direction == "input" { message.entry.input_length() } else { message.entry.output_length() };
        if show && (whole as usize) > bytes.len() {
            record.notes.push(format!(
                "Of the {direction}'s {whole} bytes {} are here: put its mailbox blocks behind the descriptor to see the rest.",
                bytes.len()
            ));
        }
        if show {
            let body: Vec<&Field> = fields.iter().filter(|f| !HEAD.contains(&f.name)).collect();
            let all = messages::values(&body, &words(bytes));
            flat(record, opcode, &all);
            record.rows_of_some("", &body, &words(bytes));
            record.put(direction, Value::Object(all));
        }
    }
    if opcode == Opcode::CREATE_EQ {
        derived_eq(record);
    }
    if opcode == Opcode::MANAGE_PAGES {
        let op = PagesOp(record.json.get("op_mod").and_then(Value::as_u64).unwrap_or(0) as u16);
        record.put("op_mod_name", op.name().map_or(Value::Null, |n| n.to_lowercase().into()));
    }
}

/// Puts the fields under the short names that the cases use. Fields within contexts only have those.
fn flat(record: &mut Record, opcode: Opcode, all: &Map<String, Value>) {
    for (name, value) in all {
        let nested = value.is_object();
        if !nested && !record.json.contains_key(name) {
            record.put(name, value.clone());
        }
    }
    for (code, path, short) in messages::SHORT {
        let found = path.split('.').try_fold(None, |at: Option<&Value>, part| match at {
            None => all.get(part).map(Some),
            Some(value) => value.get(part).or_else(|| value.get(part.parse::<usize>().ok()?)).map(Some),
        });
        if let (true, Some(Some(value))) = (*code == opcode, found) {
            record.put(short, value.clone());
        }
    }
}

/// Sizes that follow from an event queue's context.
fn derived_eq(record: &mut Record) {
    let log = |name: &str| record.json.get(name).and_then(Value::as_u64).filter(|&n| n < 48);
    let (page, eq) = (log("log_page_size"), log("log_eq_size"));
    if let (Some(page), Some(eq)) = (page, eq) {
        record.put("page_bytes", 4096_u64 << page);
        record.put("eqe_bytes", 64_u64 << eq);
    }
}

fn op_mod_meaning(opcode: Opcode, op_mod: u16) -> String {
    match opcode {
        Opcode::MANAGE_PAGES => {
            let known = PagesOp::VALUES.iter().find(|(_, n, _)| *n == u64::from(op_mod));
            known.map_or(String::new(), |(_, _, doc)| meaning(doc))
        }
        Opcode::QUERY_PAGES => match op_mod {
            1 => "Boot pages: to give before anything else.".into(),
            2 => "Init pages: to give before INIT_HCA.".into(),
            3 => "Pages wanted while running.".into(),
            _ => String::new(),
        },
        _ => "Which variant of the command.".into(),
    }
}

fn status_meaning(status: Status) -> String {
    Status::VALUES.iter().find(|(_, n, _)| *n == u64::from(status.0)).map_or(String::new(), |(_, _, doc)| meaning(doc))
}

/// What to look at when a command failed.
fn causes(record: &mut Record, entry: &CmdQueueEntry, opcode: Opcode, status: Status) {
    let delivery = entry.delivery_status();
    let mut say = |text: &str| record.causes.push(text.into());
    if entry.ownership() {
        say(
            "If it stays like this: bus mastering is off, the doorbell was not rung, the queue's address is wrong, or the firmware hangs (see the health buffer).",
        );
        return;
    }
    match delivery {
        DeliveryStatus::OK => {}
        DeliveryStatus::SIGNAT_ERR => {
            say("The signature was not computed last, or over other bytes; the owner bit counts as set.")
        }
        DeliveryStatus::TOK_ERR => {
            say("Entry and mailbox blocks carry different tokens: a block of an older command was linked in.")
        }
        DeliveryStatus::BAD_BLK_NUM_ERR => say("Blocks are numbered from 0 in each chain."),
        DeliveryStatus::FW_ERR => say("The firmware failed by itself: look at the health buffer."),
        _ => say("The driver built the entry wrongly: lengths, alignment of mailboxes (1 KiB), reserved bits."),
    }
    if delivery == DeliveryStatus::OK {
        status_causes(record, opcode, status);
    }
}

/// What to look at when a command was refused.
pub fn status_causes(record: &mut Record, opcode: Opcode, status: Status) {
    let mut say = |text: &str| record.causes.push(text.into());
    match status {
        Status::BAD_RES_STATE_ERR if destroys(opcode) => {
            say("The object is still in use by another one: destroy what refers to it first.");
        }
        Status::BAD_PARAM_ERR => {
            say("A field is out of the range that the capabilities allow, or a reserved bit is set.")
        }
        Status::BAD_OP_ERR => {
            say("The firmware does not know this command, or not for this function: check the capability for it.")
        }
        Status::BAD_SYS_STATE_ERR => say(
            "The function is not in the state for it (before INIT_HCA, after teardown), or the firmware restricts it.",
        ),
        Status::LIM_ERR => say("A limit of the device is reached: objects leak, or too many are wanted."),
        Status::BAD_RES_ERR => say("The number of an object is wrong, or the object was destroyed before."),
        Status::BAD_QP_STATE_ERR => say("The queue pair is not in the state that this transition starts from."),
        Status::BAD_INP_LEN_ERR | Status::BAD_OUTP_LEN_ERR => {
            say("The length is not what this firmware's command has.")
        }
        _ => {}
    }
}

/// Names of the error numbers that commands, bring-up and verbs end with.
pub(crate) fn errno_name(errno: i32) -> Option<&'static str> {
    const NAMES: &[(i32, &str)] = &[
        (5, "EIO"),
        (11, "EAGAIN"),
        (12, "ENOMEM"),
        (16, "EBUSY"),
        (19, "ENODEV"),
        (22, "EINVAL"),
        (28, "ENOSPC"),
        (95, "EOPNOTSUPP"),
        (110, "ETIMEDOUT"),
        (125, "ECANCELED"),
    ];
    NAMES.iter().find(|(n, _)| *n == errno).map(|(_, name)| *name)
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_be_bytes(*b))
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b))
}
