//! What a trace tells of a command beyond its name and lengths.

use super::line::Detail;
use crate::bytes::{be16, be24, be32, be64, bits, u8_at};
use crate::command;
use crate::device::Device;
use crate::objects::{Cq, Eq, Mkey, Qp};

/// `field_select` of MODIFY_NIC_VPORT_CONTEXT: names by bit.
const VPORT_FIELDS: [(u32, &str); 11] = [
    (1, "roce_en"),
    (2, "addresses_list"),
    (4, "promisc"),
    (5, "change_event"),
    (6, "mtu"),
    (7, "min_inline"),
    (8, "port_guid"),
    (9, "node_guid"),
    (10, "disable_mc_local_lb"),
    (11, "disable_uc_local_lb"),
    (13, "affiliation"),
];

/// The name of the command; empty for an unknown one.
fn name(input: &[u8]) -> &'static str {
    command::name(be16(input, 0)).unwrap_or("")
}

/// What the input of a command tells, before it is executed.
pub(crate) fn of_input(dev: &Device, input: &[u8]) -> Vec<Detail> {
    let op_mod = be16(input, 6);
    match name(input) {
        "QUERY_HCA_CAP" => {
            let mode = if op_mod & 1 == 1 { "cur" } else { "max" };
            vec![Detail::number("type", op_mod >> 1), Detail::word(mode)]
        }
        "SET_HCA_CAP" => set_cap(dev, op_mod >> 1, input),
        "MANAGE_PAGES" => pages(op_mod, be32(input, 0xc)),
        "SET_ISSI" => vec![Detail::number("issi", be16(input, 0xa))],
        "TEARDOWN_HCA" => vec![Detail::number("profile", be16(input, 0xa))],
        "ACCESS_REG" => {
            let direction = if op_mod == 0 { "w" } else { "r" };
            vec![Detail::number("reg", be16(input, 0xa)), Detail::word(direction)]
        }
        "CREATE_EQ" => create_eq(input),
        "CREATE_CQ" => create_cq(input),
        "CREATE_MKEY" => create_mkey(input),
        "CREATE_QP" => create_qp(input),
        "RST2INIT_QP" | "INIT2RTR_QP" | "RTR2RTS_QP" | "2ERR_QP" | "2RST_QP" => transition(input),
        "MODIFY_NIC_VPORT_CONTEXT" => {
            let select = be32(input, 0xc);
            let set = VPORT_FIELDS.iter().filter(|(bit, _)| select >> bit & 1 == 1);
            let mut fields: Vec<Detail> = set.map(|(_, name)| Detail::word(name)).collect();
            if select & 2 != 0 {
                fields.push(Detail::number("on", u8_at(input, 0x103) & 1));
            }
            fields
        }
        "SET_ROCE_ADDRESS" => {
            let gid: String = input.get(0x10..0x20).unwrap_or(&[]).iter().map(|byte| format!("{byte:02x}")).collect();
            vec![Detail::number("idx", be16(input, 0x8)), Detail::text("gid", gid)]
        }
        command => {
            object(command).filter(|object| !object.made).map(|object| object.number(input)).into_iter().collect()
        }
    }
}

/// What the answer tells, from the output of a command that succeeded.
pub(crate) fn of_output(dev: &Device, input: &[u8], output: &[u8]) -> Vec<Detail> {
    match name(input) {
        "QUERY_PAGES" => match be32(output, 0xc) as i32 {
            pages @ 0.. => vec![Detail::number("pages", pages as u32)],
            pages => vec![Detail::text("pages", pages.to_string())],
        },
        "MANAGE_PAGES" => match be16(input, 6) {
            1 => vec![Detail::number("total", dev.pages.count() as u64)],
            2 => vec![Detail::number("returned", be32(output, 0x8)), Detail::number("left", dev.pages.count() as u64)],
            _ => Vec::new(),
        },
        "QUERY_ISSI" => {
            vec![Detail::number("issi", be16(output, 0xa)), Detail::number("supported", be32(output, 0x6c))]
        }
        command => {
            object(command).filter(|object| object.made).map(|object| object.number(output)).into_iter().collect()
        }
    }
}

/// An object whose number stands in the input or, when it is made, in the output.
struct Object {
    key: &'static str,
    /// Width of the number, which ends at byte 0xc.
    width: usize,
    made: bool,
}

impl Object {
    fn number(&self, bytes: &[u8]) -> Detail {
        Detail::number(self.key, bits(bytes, 0xc * 8 - self.width, self.width))
    }
}

fn object(command: &str) -> Option<Object> {
    let (key, width, made) = match command {
        "ALLOC_UAR" => ("uar", 24, true),
        "DEALLOC_UAR" => ("uar", 24, false),
        "ALLOC_PD" => ("pd", 24, true),
        "DEALLOC_PD" => ("pd", 24, false),
        "ALLOC_TRANSPORT_DOMAIN" => ("td", 24, true),
        "DEALLOC_TRANSPORT_DOMAIN" => ("td", 24, false),
        "CREATE_EQ" => ("eqn", 8, true),
        "DESTROY_EQ" | "QUERY_EQ" => ("eqn", 8, false),
        "CREATE_CQ" => ("cqn", 24, true),
        "DESTROY_CQ" | "QUERY_CQ" | "MODIFY_CQ" => ("cqn", 24, false),
        "CREATE_MKEY" => ("mkey", 24, true),
        "DESTROY_MKEY" | "QUERY_MKEY" => ("mkey", 24, false),
        "CREATE_RMP" => ("rmpn", 24, true),
        "MODIFY_RMP" | "DESTROY_RMP" | "QUERY_RMP" => ("rmpn", 24, false),
        "CREATE_QP" => ("qpn", 24, true),
        "DESTROY_QP" | "QUERY_QP" => ("qpn", 24, false),
        _ => return None,
    };
    Some(Object { key, width, made })
}

fn set_cap(dev: &Device, kind: u16, input: &[u8]) -> Vec<Detail> {
    let changes = dev.hca.caps.changes(kind, input.get(0x10..).unwrap_or(&[]));
    let changes = if changes.is_empty() { "nothing".into() } else { changes.join(",") };
    vec![Detail::number("type", kind), Detail::text("set", changes)]
}

fn pages(op_mod: u16, count: u32) -> Vec<Detail> {
    match op_mod {
        0 => vec![Detail::word("refuse")],
        1 => vec![Detail::number("give", count)],
        _ => vec![Detail::word("take"), Detail::number("asked", count)],
    }
}

/// A context of 64 bytes at byte 0x10 of the input.
fn context(input: &[u8]) -> &[u8] {
    input.get(0x10..0x50).unwrap_or(&[])
}

fn create_eq(input: &[u8]) -> Vec<Detail> {
    let eq = Eq::decode(context(input), be64(input, 0x58), &[]);
    vec![
        Detail::number("log", eq.log_size),
        Detail::number("intr", eq.vector),
        Detail::number("mask", eq.event_mask),
        Detail::number("uar", eq.uar),
    ]
}

fn create_cq(input: &[u8]) -> Vec<Detail> {
    let pages = input.len().saturating_sub(0x110) / 8;
    let cq = Cq::decode(context(input), &[]);
    vec![
        Detail::number("log", cq.log_size),
        Detail::number("eqn", cq.eqn),
        Detail::number("uar", cq.uar),
        Detail::number("bytes", cq.entry_size),
        Detail::number("pages", pages as u64),
    ]
}

fn create_mkey(input: &[u8]) -> Vec<Detail> {
    let context = context(input);
    let mkey = Mkey::decode(context, &[]);
    vec![
        Detail::number("mode", bits(context, 3, 3) << 2 | bits(context, 22, 2)),
        Detail::number("l64", u8::from(mkey.whole_space)),
        Detail::number("start", mkey.start),
        Detail::number("len", mkey.len),
        Detail::number("lps", mkey.page_shift),
        Detail::number("free", u8::from(mkey.free)),
    ]
}

/// The QP context of CREATE_QP and of the transitions.
fn qp_context(input: &[u8]) -> &[u8] {
    input.get(0x18..0x100).unwrap_or(&[])
}

fn create_qp(input: &[u8]) -> Vec<Detail> {
    let qp = Qp::decode(qp_context(input), &[]);
    vec![
        Detail::number("service", qp.st),
        Detail::number("sq", qp.log_sq_size),
        Detail::text("rq", format!("{}/{}", qp.log_rq_size, qp.rq_stride.ilog2())),
        Detail::number("cqs", qp.cqn_send),
        Detail::number("cqr", qp.cqn_recv),
        Detail::number("uidx", qp.user_index),
        Detail::number("uar", qp.uar),
        Detail::number("rqtype", qp.rq_type),
    ]
}

fn transition(input: &[u8]) -> Vec<Detail> {
    let to = match name(input) {
        "RST2INIT_QP" => 1_u8,
        "INIT2RTR_QP" => 2,
        "RTR2RTS_QP" => 3,
        "2ERR_QP" => 6,
        _ => 0,
    };
    let mut found = vec![Detail::number("qpn", be24(input, 0x9)), Detail::number("to", to)];
    if name(input) == "INIT2RTR_QP" {
        found.push(Detail::number("remote", Qp::decode(qp_context(input), &[]).remote_qpn));
    }
    found
}
