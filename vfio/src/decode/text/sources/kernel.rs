//! Linux (`mlx5_core`, `mlx5_ib`, `mlx5e` and users of verbs in the kernel) and the drivers that took its messages over.

use crate::decode::text::format::{Format, Side, What};
use crate::decode::text::notice as n;

const fn kernel(what: What, line: &'static str) -> Format {
    Format { source: "kernel", what, line }
}

/// Messages about commands, completions, events, bring-up and health.
pub const FORMATS: &[Format] = &[
    // cmd.c: mlx5_cmd_check, mlx5_cmd_out_err; the second is rdma-core's over VFIO, the third that of 2013.
    kernel(
        What::Command,
        "{command:w}({opcode:x}) op_mod({op_mod:x}) [[uid({uid:d}) ]]failed, status {status_text:t}({status:x}), syndrome ({fw_syndrome:x})[[, err({err:d})]]",
    ),
    Format {
        source: "rdma-core",
        what: What::Command,
        line: "mlx5_vfio_op_code({opcode:x}), op_mod({op_mod:x}) failed, status {status_text:t}({status:x}), syndrome ({fw_syndrome:x})",
    },
    kernel(What::Command, "command failed, status {status_text:t}({status:x}), syndrome {fw_syndrome:x}"),
    kernel(
        What::Timeout,
        "[[cmd[{slot:d}]: ]]{command:w}({opcode:x}) [[Async, ]]timeout. Will cause a leak of a command resource",
    ),
    kernel(What::Timeout, "cmd[{slot:d}]: {command:w}({opcode:x}) No done completion"),
    kernel(What::Timeout, "cmd{slot:d}: {command:w}({opcode:x}) No done completion"),
    kernel(What::Timeout, "{command:w}({opcode:x}) No done completion"),
    kernel(What::Timeout, "{command:w}({opcode:x}) canceled on out of queue timeout"),
    kernel(What::Recovered, "cmd[{slot:d}]: {command:w}({opcode:x}) [[Async, ]]recovered after timeout"),
    kernel(What::Late, "Command completion arrived after timeout (entry idx = {slot:d})"),
    // health.c: print_health_info, poll_health
    kernel(What::Health(false), "Health issue observed, {synd_text:t}, severity({severity:d}) {severity_text:w}"),
    kernel(What::Health(false), "assert_var[{index:d}] {assert_var:x}"),
    kernel(What::Health(false), "assert_exit_ptr {assert_exit_ptr:x}"),
    kernel(What::Health(false), "assert_callra {assert_callra:x}"),
    kernel(What::Health(false), "raw fw_ver {raw_fw_ver:x}"),
    kernel(What::Health(true), "fw_ver {major:d}.{minor:d}.{patch:d}"),
    kernel(What::Health(true), " time {time:d}$"),
    kernel(What::Health(true), "hw_id {hw_id:x}$"),
    kernel(What::Health(true), " rfr {rfr:d}$"),
    kernel(What::Health(true), " crr {crr:d}$"),
    kernel(What::Health(true), " severity {severity:d} ({severity_text:w})$"),
    kernel(What::Health(false), "irisc_index {irisc_index:d}$"),
    kernel(What::Health(false), "ext_synd {ext_synd:x}"),
    kernel(What::Health(true), " synd {synd:x}: {synd_text:t}$"),
    kernel(What::Notice(&n::MISS_COUNT), "health compromised - reached miss count"),
    kernel(What::Ours(&n::FATAL_SENSOR), "Fatal error {sensor:d} detected"),
    kernel(What::Ours(&n::SLOT_GONE), "PCI slot is unavailable"),
    kernel(What::Notice(&n::SLOT_GONE), "FW is unable to respond to initialization segment reads"),
    kernel(What::Ours(&n::COLD_RESET), "Cold reset is required"),
    // en: mlx5e_dump_error_cqe, reporters, cq_err; ib: cq.c, qp.c
    kernel(
        What::Completion(Side::Unknown),
        "Error cqe on cqn {cqn:x}, ci {ci:x}, qn {qpn:x}, opcode {cqe_opcode:x}, syndrome {syndrome:x}, vendor syndrome {vendor_err:x}",
    ),
    kernel(
        What::Completion(Side::Requester),
        "Error cqe on cqn {cqn:x}, ci {ci:x}, sqn {qpn:x}, [[opcode {cqe_opcode:x}, ]]syndrome {syndrome:x}, vendor syndrome {vendor_err:x}",
    ),
    kernel(What::Lead, "Requestor error cqe on cqn {cqn:x}"),
    kernel(What::Lead, "Responder error cqe on cqn {cqn:x}"),
    kernel(What::Completion(Side::Unknown), "syndrome {syndrome:x}, vendor syndrome {vendor_err:x}"),
    kernel(What::Completion(Side::Unknown), "WC error: {wc_status:d}, Message: {status_text:t}$"),
    kernel(What::Completion(Side::Unknown), "WC error: {wc_status:d}, message: {status_text:t}$"),
    kernel(What::DumpHead, "dump error cqe"),
    kernel(What::Completion(Side::Requester), "reg umr failed ({wc_status:d})"),
    kernel(
        What::Completion(Side::Unknown),
        "{operation:w} for CQE [[{cqe:x} ]]failed with status {status_text:t} ({wc_status:d})",
    ),
    kernel(What::QpError, "QP {qpn:d} error: {status_text:t} ({vendor_err:x} {hw_synd_type:x} {hw_err_synd:x})"),
    kernel(What::CqError, "CQ error on CQN {cqn:x}, syndrome {cq_err_syndrome:x}"),
    kernel(What::CqError, "CQ error on CQN {cqn:x}, syndrom {cq_err_syndrome:x}"),
    kernel(What::Notice(&n::MLX5E_CQ_EVENT), "mlx5e_cq_error_event: cqn={cqn:x} event={event_type:x}"),
    kernel(
        What::Notice(&n::TX_TIMEOUT),
        "TX timeout on queue: {queue:d}, SQ: {sqn:x}, CQ: {cqn:x}, SQ Cons: {consumer:x} SQ Prod: {producer:x}[[, usecs since last trans: {idle_us:d}]]",
    ),
    // main.c, pagealloc.c
    kernel(
        What::Notice(&n::FW_NOT_READY),
        "Waiting for FW {state:w}, timeout abort in {left_s:d}~s[[ ({initializing:x})]]",
    ),
    kernel(What::Notice(&n::FW_NOT_READY), "Firmware over {waited_ms:d} {unit:w} in {state:w} state, aborting"),
    kernel(What::Notice(&n::ENABLE_FAILED), "enable hca failed"),
    kernel(What::Notice(&n::INIT_FAILED), "init hca failed"),
    kernel(What::Notice(&n::CMDIF_FAILED), "Failed initializing command interface, aborting"),
    kernel(
        What::Notice(&n::CMDIF_FAILED),
        "Driver cmdif rev({driver_rev:d}) differs from firmware's({firmware_rev:d})",
    ),
    kernel(What::Notice(&n::ISSI_FAILED), "failed to set issi"),
    kernel(What::Ours(&n::PAGES_FAILED), "failed to allocate {which:w} pages"),
    kernel(What::Notice(&n::TEARDOWN_FAILED), "tear_down_hca failed, skip cleanup"),
    kernel(What::Notice(&n::PAGES_KEPT), "FW did not return all pages"),
    kernel(What::Ours(&n::PAGES_KEPT), "failed reclaiming pages ({err:d})[[ for func id {func_id:x}]]"),
    kernel(What::Notice(&n::PAGES_KEPT), "FW pages counter is {pages:d} after reclaiming all pages"),
    kernel(What::Ours(&n::LOAD_FAILED), "{function:w} failed with error code {err:d}"),
    kernel(What::Notice(&n::LOAD_FAILED), "mlx5_core: probe of {pci:w} failed with error {err:d}"),
    kernel(What::Notice(&n::LOAD_FAILED), "mlx5_core {pci:w} probe with driver mlx5_core failed with error {err:d}"),
    kernel(What::Notice(&n::NO_BAR), "Missing registers BAR, aborting"),
    kernel(What::Notice(&n::POWER), "Detected insufficient power on the PCIe slot ({watts:d}W)"),
];
