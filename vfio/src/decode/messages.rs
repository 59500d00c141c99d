//! Inputs and outputs of the commands whose fields are known, as tables.

use mlx5_hw::be::Be32;
use mlx5_hw::cmd::{self, Opcode};
use mlx5_hw::prm::{Field, Layout};
use serde_json::{Map, Value};

/// The one field that is signed, in commands and events.
pub const SIGNED: &str = "num_pages";
/// Most elements of a list that are shown.
const LIST: usize = 1024;

macro_rules! messages {
    ($($opcode:ident: $input:ident, $output:ident;)*) => {
        /// The fields of a command's input and output.
        pub fn of(opcode: Opcode) -> Option<(&'static [Field], &'static [Field])> {
            match opcode {
                $(Opcode::$opcode => Some((<cmd::$input as Layout>::FIELDS, <cmd::$output as Layout>::FIELDS)),)*
                _ => None,
            }
        }
    };
}

messages! {
    ENABLE_HCA: EnableHcaIn, EnableHcaOut;
    DISABLE_HCA: DisableHcaIn, DisableHcaOut;
    QUERY_ISSI: QueryIssiIn, QueryIssiOut;
    SET_ISSI: SetIssiIn, SetIssiOut;
    QUERY_PAGES: QueryPagesIn, QueryPagesOut;
    MANAGE_PAGES: ManagePagesIn, ManagePagesOut;
    QUERY_HCA_CAP: QueryHcaCapIn, QueryHcaCapOut;
    SET_HCA_CAP: SetHcaCapIn, SetHcaCapOut;
    INIT_HCA: InitHcaIn, InitHcaOut;
    TEARDOWN_HCA: TeardownHcaIn, TeardownHcaOut;
    QUERY_ADAPTER: QueryAdapterIn, QueryAdapterOut;
    SET_DRIVER_VERSION: SetDriverVersionIn, SetDriverVersionOut;
    ACCESS_REG: AccessRegisterIn, AccessRegisterOut;
    ALLOC_UAR: AllocUarIn, AllocUarOut;
    DEALLOC_UAR: DeallocUarIn, DeallocUarOut;
    ALLOC_PD: AllocPdIn, AllocPdOut;
    DEALLOC_PD: DeallocPdIn, DeallocPdOut;
    CREATE_EQ: CreateEqIn, CreateEqOut;
    DESTROY_EQ: DestroyEqIn, DestroyEqOut;
    QUERY_EQ: QueryEqIn, QueryEqOut;
    CREATE_CQ: CreateCqIn, CreateCqOut;
    DESTROY_CQ: DestroyCqIn, DestroyCqOut;
    QUERY_CQ: QueryCqIn, QueryCqOut;
    MODIFY_CQ: ModifyCqIn, ModifyCqOut;
    CREATE_MKEY: CreateMkeyIn, CreateMkeyOut;
    DESTROY_MKEY: DestroyMkeyIn, DestroyMkeyOut;
    QUERY_MKEY: QueryMkeyIn, QueryMkeyOut;
    QUERY_SPECIAL_CONTEXTS: QuerySpecialContextsIn, QuerySpecialContextsOut;
    CREATE_QP: CreateQpIn, CreateQpOut;
    DESTROY_QP: DestroyQpIn, DestroyQpOut;
    QUERY_QP: QueryQpIn, QueryQpOut;
    RST2INIT_QP: Rst2initQpIn, Rst2initQpOut;
    INIT2RTR_QP: Init2rtrQpIn, Init2rtrQpOut;
    RTR2RTS_QP: Rtr2rtsQpIn, Rtr2rtsQpOut;
    QP_2ERR: Qp2errIn, Qp2errOut;
    QP_2RST: Qp2rstIn, Qp2rstOut;
    CREATE_RMP: CreateRmpIn, CreateRmpOut;
    MODIFY_RMP: ModifyRmpIn, ModifyRmpOut;
    DESTROY_RMP: DestroyRmpIn, DestroyRmpOut;
    QUERY_RMP: QueryRmpIn, QueryRmpOut;
    QUERY_NIC_VPORT_CONTEXT: QueryNicVportContextIn, QueryNicVportContextOut;
    MODIFY_NIC_VPORT_CONTEXT: ModifyNicVportContextIn, ModifyNicVportContextOut;
    QUERY_VPORT_STATE: QueryVportStateIn, QueryVportStateOut;
    QUERY_HCA_VPORT_CONTEXT: QueryHcaVportContextIn, QueryHcaVportContextOut;
    QUERY_HCA_VPORT_GID: QueryHcaVportGidIn, QueryHcaVportGidOut;
    QUERY_HCA_VPORT_PKEY: QueryHcaVportPkeyIn, QueryHcaVportPkeyOut;
    SET_ROCE_ADDRESS: SetRoceAddressIn, SetRoceAddressOut;
}

/// Short names: command, path of the field, the name under which the object has it as well.
pub const SHORT: &[(Opcode, &str, &str)] = &[
    (Opcode::MANAGE_PAGES, "input_num_entries", "num_entries"),
    (Opcode::CREATE_EQ, "eq_context_entry.log_eq_size", "log_eq_size"),
    (Opcode::CREATE_EQ, "eq_context_entry.uar_page", "uar_page"),
    (Opcode::CREATE_EQ, "eq_context_entry.intr", "interrupt"),
    (Opcode::CREATE_EQ, "eq_context_entry.log_page_size", "log_page_size"),
    (Opcode::CREATE_EQ, "event_bitmask.0", "event_mask"),
    (Opcode::CREATE_EQ, "pas.0", "pas0"),
    (Opcode::CREATE_EQ, "eq_number", "eqn"),
];

/// The values of fields, by their names; nested structures as objects, arrays as lists.
pub fn values(fields: &[&Field], words: &[Be32]) -> Map<String, Value> {
    let mut out = Map::new();
    for field in fields {
        let value = if !field.nested.is_empty() {
            let inner: Vec<&Field> = field.nested.iter().collect();
            Value::Object(values(&inner, words.get((field.bit_offset / 32) as usize..).unwrap_or(&[])))
        } else if field.count == 1 {
            one(field, words, 0)
        } else {
            (0..elements(field, words)).map(|i| one(field, words, i)).collect()
        };
        out.insert(field.name.into(), value);
    }
    out
}

/// Number of elements of an array, or of a list behind a structure as far as the bytes reach.
pub fn elements(field: &Field, words: &[Be32]) -> usize {
    let there = (32 * words.len()).saturating_sub(field.bit_offset as usize) / field.bit_width.max(1) as usize;
    if field.count == 0 { there.min(LIST) } else { (field.count as usize).min(LIST) }
}

/// One element. Page counts are signed.
fn one(field: &Field, words: &[Be32], index: usize) -> Value {
    let value = (field.get)(words, index);
    if field.name == SIGNED { Value::from(value as u32 as i32) } else { Value::from(value) }
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_command_of_the_driver_is_known_field_by_field() {
        let mut declared = BTreeSet::new();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hw/src/cmd");
        for file in std::fs::read_dir(folder).expect("the commands' sources") {
            let source = std::fs::read_to_string(file.expect("a file").path()).expect("text");
            let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
            let named = code.flat_map(|line| line.split("Opcode::").skip(1));
            let names = named.filter_map(|rest| {
                rest.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')).next()
            });
            // Rust's name of `2ERR_QP` is `QP_2ERR`.
            declared.extend(names.filter(|name| !name.is_empty()).map(|name| match name.strip_prefix("QP_") {
                Some(to) => format!("{to}_QP"),
                None => name.to_owned(),
            }));
        }
        assert!(declared.len() > 35, "{declared:?}");
        let opcodes = Opcode::VALUES.iter().map(|(name, number, _)| (*name, Opcode(*number as u16)));
        let known: BTreeSet<String> = opcodes.filter(|(_, o)| of(*o).is_some()).map(|(n, _)| n.to_owned()).collect();
        assert_eq!(declared, known);
    }
}
