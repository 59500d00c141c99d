//! The registry: every structure and every set of named numbers that `mlx5-hw` declares.
//!
//! A declaration that is missing here fails `every_declaration_in_the_sources_is_registered`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mlx5_hw::prm::{Field, Layout};

/// A declared structure.
pub struct Structure {
    /// Name as in the headers.
    pub name: &'static str,
    /// Size in bytes.
    pub bytes: usize,
    /// Its fields.
    pub fields: &'static [Field],
}

impl Structure {
    fn of<L: Layout>() -> Self {
        Self { name: L::NAME, bytes: L::BYTES, fields: L::FIELDS }
    }
}

/// A declared set of named numbers.
pub struct Numbers {
    /// Name of the Rust type.
    pub name: &'static str,
    /// Name, number and meaning of each.
    pub values: &'static [(&'static str, u64, &'static str)],
    /// Group of `constants.csv`.
    pub group: &'static str,
    /// What the headers' names have in front of ours.
    pub prefixes: &'static [&'static str],
    /// The headers' numbers are ours shifted left by this.
    pub shift: u32,
    /// Every number with such a name must be declared.
    pub complete: bool,
}

macro_rules! structures {
    ($($module:ident: $($name:ident),+;)*) => {
        /// All declared structures.
        pub fn structures() -> Vec<Structure> {
            vec![$($(Structure::of::<mlx5_hw::$module::$name>()),+),*]
        }
    };
}

macro_rules! numbers {
    ($($module:ident::$name:ident: $group:literal, [$($prefix:literal),+], $shift:literal, $complete:literal;)*) => {
        /// All declared sets of named numbers.
        pub fn numbers() -> Vec<Numbers> {
            vec![$(Numbers {
                name: stringify!($name),
                values: mlx5_hw::$module::$name::VALUES,
                group: $group,
                prefixes: &[$($prefix),+],
                shift: $shift,
                complete: $complete,
            }),*]
        }
    };
}

structures! {
    caps: CmdHcaCap, RoceCap, AtomicCaps, CapPage;
    cmd: QueryHcaCapIn, QueryHcaCapOut, SetHcaCapIn, SetHcaCapOut, CreateCqIn, CreateCqOut, DestroyCqIn,
        DestroyCqOut, QueryCqIn, QueryCqOut, ModifyCqIn, ModifyCqOut, CreateEqIn, CreateEqOut, DestroyEqIn, DestroyEqOut, QueryEqIn,
        QueryEqOut, EnableHcaIn, EnableHcaOut, DisableHcaIn, DisableHcaOut, QueryIssiIn, QueryIssiOut, SetIssiIn,
        SetIssiOut, InitHcaIn, InitHcaOut, TeardownHcaIn, TeardownHcaOut, QueryAdapterIn, QueryAdapterParamBlock,
        QueryAdapterOut, SetDriverVersionIn, SetDriverVersionOut, CreateMkeyIn, CreateMkeyOut, DestroyMkeyIn,
        DestroyMkeyOut, QueryMkeyIn, QueryMkeyOut, QuerySpecialContextsIn, QuerySpecialContextsOut, MboxIn, MboxOut,
        QueryPagesIn, QueryPagesOut, ManagePagesIn, ManagePagesOut, AllocPdIn, AllocPdOut, DeallocPdIn, DeallocPdOut,
        CreateQpIn, CreateQpOut, DestroyQpIn, DestroyQpOut, QueryQpIn, QpPasOrQpcExtAndPas, QueryQpOut, Rst2initQpIn,
        Rst2initQpOut, Init2rtrQpIn, Init2rtrQpOut, Rtr2rtsQpIn, Rtr2rtsQpOut, Qp2errIn, Qp2errOut, Qp2rstIn,
        Qp2rstOut, CreateRmpIn, CreateRmpOut, ModifyRmpIn, ModifyRmpOut, DestroyRmpIn, DestroyRmpOut, QueryRmpIn,
        QueryRmpOut, RmpBitmask, AccessRegisterIn, AccessRegisterOut, RegisterHostEndianness, SetRoceAddressIn, SetRoceAddressOut,
        AllocUarIn, AllocUarOut, DeallocUarIn, DeallocUarOut, QueryNicVportContextIn, QueryNicVportContextOut,
        ModifyNicVportContextIn, ModifyNicVportContextOut, QueryVportStateIn, QueryVportStateOut, QueryHcaVportContextIn,
        QueryHcaVportContextOut, QueryHcaVportGidIn, QueryHcaVportGidOut, QueryHcaVportPkeyIn, QueryHcaVportPkeyOut;
    cmd_entry: CmdQueueEntry, CmdIfBox;
    cqc: Cqc;
    cqe: Cqe64Layout, TmCqe, ErrCqe, SigErrCqe;
    dbrec: CqDoorbellRecord, QpDoorbellRecord;
    eqc: Eqc;
    eqe: CompEvent, CqError, CmdInterCompEvent, PageReq, PortStateChangeEvent, QpEvents, DctEvents, GpioEvent,
        StallVlEvent, DbBfCongestionEvent, RdmaPageFaultEvent, WqeAssociatedPageFaultEvent, VportChange, PortModule,
        TempWarning, XrqErr, EventData, Eqe;
    hca_vport: HcaVportContext;
    health: HealthBuffer;
    init_segment: InitialSeg;
    mini_cqe: MiniCqe8;
    mkc: Mkc;
    nic_vport: MacAddressLayout, NicVportContext, ModifyNicVportFieldSelect;
    qpc: Ads, Qpc, CqeErrorSyndrome, QpContextExtension, QpcExtensionAndPasListIn;
    rmpc: Wq, Rmpc;
    roce_address: RoceAddrLayout;
    wqe: CtrlSeg, RaddrSeg, DataSeg, InlineSeg, AtomicSeg, SrqNextSeg, Av;
}

numbers! {
    caps::AtomicOps: "hca_cap_values", ["MLX5_ATOMIC_OPS_"], 0, true;
    caps::AtomicOrder: "cmd_interface", ["MLX5_ATOMIC_REQ_MODE_"], 0, true;
    caps::PortType: "port_type", ["MLX5_CMD_HCA_CAP_PORT_TYPE_"], 0, true;
    cmd::CapType: "hca_cap_type", ["MLX5_CAP_"], 0, true;
    cmd::CqOp: "cmd_op_mod", ["MLX5_MODIFY_CQ_IN_OP_MOD_"], 0, true;
    cmd::CqModifyField: "cq_modify", ["MLX5_CQ_MODIFY_"], 0, true;
    cmd::CqResizeField: "cq_modify", ["MLX5_MODIFY_CQ_MASK_"], 0, true;
    cmd::TeardownState: "teardown_profile", ["MLX5_TEARDOWN_HCA_OUT_FORCE_STATE_"], 0, true;
    cmd::Opcode: "cmd_opcode", ["MLX5_CMD_OP_", "MLX5_CMD_OPCODE_", "MLX5_CMD_"], 0, true;
    cmd::PagesOp: "cmd_op_mod", ["MLX5_PAGES_"], 0, true;
    cmd::RegisterId: "register_id", ["MLX5_REG_"], 0, false;
    cmd::RegisterOp: "cmd_op_mod", ["MLX5_ACCESS_REGISTER_IN_OP_MOD_"], 0, true;
    cmd::Status: "cmd_status", ["MLX5_CMD_STAT_"], 0, true;
    cmd_entry::DeliveryStatus: "cmd_delivery_status", ["MLX5_CMD_DELIVERY_STAT_"], 0, true;
    cqc::CqeSz: "cq_context", ["MLX5_CQC_CQE_SZ_", "CQE_STRIDE_"], 0, true;
    cqc::CqPeriodMode: "cq_context", ["MLX5_CQ_PERIOD_MODE_"], 0, true;
    cqc::CqStatus: "cq_state", ["MLX5_CQC_STATUS_"], 0, true;
    cqc::CqState: "cq_state", ["MLX5_CQC_ST_", "MLX5_CQ_STATE_"], 0, true;
    cqe::CqeOpcode: "cqe_opcode", ["MLX5_CQE_"], 0, true;
    cqe::CqeDataFormat: "cqe_owner_format", ["MLX5_"], 0, false;
    cqe::CqeSyndrome: "cqe_syndrome", ["MLX5_CQE_SYNDROME_"], 0, true;
    eqc::EqStatus: "eq_state", ["MLX5_EQC_STATUS_"], 0, true;
    eqc::EqState: "eq_state", ["MLX5_EQ_STATE_"], 0, true;
    eqe::EventType: "eqe_type", ["MLX5_EVENT_TYPE_"], 0, true;
    eqe::CqErrorSyndrome: "eqe_subtype", ["MLX5_CQ_ERROR_SYNDROME_"], 0, true;
    eqe::PortChange: "eqe_subtype", ["MLX5_PORT_CHANGE_SUBTYPE_"], 0, true;
    eqe::QueueType: "eqe_subtype", ["MLX5_EVENT_QUEUE_TYPE_"], 0, true;
    health::HealthSyndrome: "health_syndrome", ["MLX5_INITIAL_SEG_HEALTH_SYNDROME_", "MLX5_HEALTH_SYNDR_"], 0, true;
    init_segment::NicInterface: "nic_interface", ["MLX5_INITIAL_SEG_NIC_INTERFACE_"], 0, true;
    mkc::AccessMode: "mkey_access_mode", ["MLX5_MKC_ACCESS_MODE_"], 0, true;
    nic_vport::ListType: "nic_vport", ["MLX5_NVPRT_LIST_TYPE_"], 0, true;
    qpc::QpState: "qp_state", ["MLX5_QP_STATE_"], 0, true;
    qpc::ServiceType: "qp_service_type", ["MLX5_QP_ST_", "MLX5_QPC_ST_"], 0, true;
    qpc::PmState: "qp_context", ["MLX5_QP_PM_"], 0, true;
    qpc::QpMtu: "qp_context", ["MLX5_QPC_MTU_"], 0, true;
    qpc::TsFormat: "qp_context", ["MLX5_TIMESTAMP_FORMAT_"], 0, false;
    qpc::AtomicMode: "qp_context", ["MLX5_QPC_ATOMIC_MODE_"], 0, true;
    qpc::RqType: "qp_context", ["MLX5_"], 0, false;
    qpc::CsReq: "qp_context", ["MLX5_QPC_CS_REQ_"], 0, true;
    qpc::CsRes: "qp_context", ["MLX5_QPC_CS_RES_"], 0, true;
    qpc::StatRate: "qp_context", ["MLX5_ADS_STAT_RATE_"], 0, true;
    qpc::OptParam: "qp_opt_param", ["MLX5_QP_OPTPAR_"], 0, true;
    roce_address::RoceL3Type: "roce", ["MLX5_ROCE_L3_TYPE_"], 0, false;
    roce_address::RoceVersion: "roce", ["MLX5_ROCE_VERSION_"], 0, false;
    wqe::WqeOpcode: "wqe_opcode", ["MLX5_OPCODE_"], 0, true;
    wqe::CompletionMode: "wqe_ctrl", ["MLX5_COMP_"], 0, false;
    wqe::FenceMode: "wqe_ctrl", ["MLX5_FENCE_MODE_"], 5, true;
    rmpc::RmpState: "queue_state", ["MLX5_RMPC_STATE_"], 0, true;
    rmpc::WqType: "wq_type", ["MLX5_WQ_TYPE_", "MLX5_WQ_WQ_TYPE_WQ_"], 0, true;
}

/// Names of all declarations in the sources of `mlx5-hw`: a structure's name in the headers, a set's Rust name.
pub fn in_sources() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in rust_files(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("hw/src")) {
        if file.ends_with("prm.rs") {
            continue; // the macros themselves, with an example
        }
        let text = std::fs::read_to_string(&file).expect("a source file");
        let mut in_numbers = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("crate::prm_values!") {
                in_numbers = true;
            }
            let Some(rest) = line.strip_prefix("pub struct ") else { continue };
            if let Some((_, quoted)) = rest.split_once("(\"") {
                names.extend(quoted.split('"').next().map(str::to_owned));
            } else if std::mem::take(&mut in_numbers) {
                names.extend(rest.split('(').next().map(str::to_owned));
            }
        }
    }
    names
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files
}
