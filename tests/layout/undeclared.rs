//! What the headers have and `mlx5-hw` does not declare, with the reason. An entry that excuses nothing fails.

/// Sizes that are not ours: where, its bytes, why.
pub const SIZES: &[(&str, usize, &str)] = &[
    ("c eqe_port_module", 7, "ends within a dword; declared to the dword's end"),
    ("c init_seg", 8208, "each source states the extent that it happens to declare"),
];

/// Fields: structure (`c NAME` for a C structure), name with `*` at the end for all that start so, why.
pub const FIELDS: &[(&str, &str, &str)] = &[
    ("cmd_hca_cap", "*", "of the capability pages only what the driver or the tool uses"),
    ("hca_cap_union", "*", "pages that neither the driver nor the tool reads"),
    ("query_hca_cap_out", "capability.*", "pages that neither the driver nor the tool reads"),
    ("set_hca_cap_in", "capability.*", "pages that the driver does not set"),
    (
        "create_qp_in",
        "qpc_extension_and_pas_list*",
        "behind the structure, only with `qpc_ext`: a structure of its own",
    ),
    ("create_qp_in", "qpc_pas_list.pas", "the list `pas`"),
    ("qp_pas_or_qpc_ext_and_pas", "qp_pas_list.*", "the list `pas` of QUERY_QP's output"),
    ("query_qp_out", "qp_pas_or_qpc_ext_and_pas.qp_pas_list.*", "the list `pas`"),
    ("wq", "pas[]*", "the halves of an address of the list"),
    ("rmpc", "wq.pas[]*", "the halves of an address of the list"),
    ("create_rmp_in", "ctx.wq.pas[]*", "the halves of an address of the list"),
    ("modify_rmp_in", "ctx.wq.pas[]*", "the halves of an address of the list"),
    ("query_rmp_out", "rmp_context.wq.pas[]*", "the halves of an address of the list"),
    ("query_hca_vport_gid_out", "gid*", "addresses of 16 bytes: read as two numbers each"),
    ("query_hca_vport_pkey_out", "pkey[]*", "the lower half of a dword of the list"),
    ("c cmd_layout", "in_ptr", "declared as high and low part: the low bits are reserved"),
    ("c cmd_layout", "iptr", "another spelling of `in_ptr`"),
    ("c cmd_layout", "out_ptr", "declared as high and low part: the low bits are reserved"),
    ("c cmd_layout", "optr", "another spelling of `out_ptr`"),
    ("c cmd_layout", "status_own", "declared as `status` and `ownership`"),
    ("c cmd_prot_block", "next", "declared as high and low part: the low bits are reserved"),
    ("c health_buffer", "rfr_severity", "declared as `rfr`, `valid` and `severity`"),
    ("c init_seg", "health_buffer.rfr_severity", "declared as `rfr`, `valid` and `severity`"),
    ("c init_seg", "fw_rev", "declared as `fw_rev_major` and `fw_rev_minor`"),
    ("c init_seg", "cmdif_rev_fw_sub", "declared as `cmd_interface_rev` and `fw_rev_subminor`"),
    ("c init_seg", "cmdq_addr_l_sz", "declared field by field"),
    ("c init_seg", "real_time_*", "the halves of `real_time`"),
    ("c eqe", "event_data.cmd*", "another spelling of `cmd_inter_comp_event`"),
    ("c eqe", "event_data.comp*", "another spelling of `comp_event`"),
    ("c eqe", "event_data.cq_err*", "another spelling of `cq_error`"),
    ("c eqe", "event_data.dct*", "another spelling of `dct_events`"),
    ("c eqe", "event_data.qp_srq*", "another spelling of `qp_events`"),
    ("c eqe", "event_data.port", "another spelling of `port_state_change_event`"),
    ("c eqe", "event_data.port.port", "the byte of `port_num` in `port_state_change_event`"),
    ("c eqe", "event_data.gpio*", "another spelling of `gpio_event`"),
    ("c eqe", "event_data.stall_vl*", "another spelling of `stall_vl_event`"),
    ("c eqe", "event_data.cong*", "another spelling of `db_bf_congestion_event`"),
    ("c eqe", "event_data.raw", "the whole of the data"),
    ("c eqe", "event_data.page_fault*", "page faults are not asked for: no on-demand paging"),
    ("c eqe", "event_data.pps*", "pulse events are not asked for"),
    ("c eqe", "event_data.obj_change*", "events on general objects are not asked for"),
    ("c eqe", "event_data.vhca_state*", "events on other functions are not asked for"),
    ("c eqe", "event_data.sync_fw_update*", "firmware update events are not asked for"),
    ("eqe", "event_data.dropped_packet_logged", "an event without data"),
    ("c cqe64", "lro", "the group of the `lro_` fields"),
    ("c cqe64", "shampo*", "receive queues that split headers are not offered"),
    ("c cqe64", "hdr_type_etc", "declared as `hds_ip_ext` and `l4_hdr_type_etc`"),
    ("c cqe64", "lro_num_seg", "the byte above the user index, in `srqn_uidx`"),
    ("c cqe64", "user_index_*", "the low 24 bits of `srqn_uidx`"),
    ("c cqe64", "timestamp_*", "the halves of `timestamp`"),
    ("c wqe_ctrl_seg", "flags", "the whole dword of `signature`, `dci_stream_channel_id` and `fm_ce_se`"),
    ("c wqe_data_seg", "inline_data", "inlined data begins behind `byte_count`"),
];

/// Names that have the prefix of a set but are none of its numbers, and what they are.
pub const NUMBERS: &[(&str, &str)] =
    &[("MLX5_CMD_OP_MOD_UPDATE_HEADER_MODIFY_ARGUMENT", "a modifier of MODIFY_GENERAL_OBJECT, not an opcode")];

/// Whether an entry's name fits a field.
pub fn matches(pattern: &str, field: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == field, |start| field.starts_with(start))
}

/// Whether a field is an alternative among others at the same place: that its bits are declared says nothing then.
pub fn is_union(field: &str) -> bool {
    field.starts_with("event_data.")
}
