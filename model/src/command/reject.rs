//! Why firmware refuses a command: a status, and a syndrome of its own for each reason.

use crate::violation::ViolationKind;

/// Command status codes.
pub(crate) mod status {
    pub(crate) const BAD_OP: u8 = 0x02;
    pub(crate) const BAD_PARAM: u8 = 0x03;
    pub(crate) const BAD_SYS_STATE: u8 = 0x04;
    pub(crate) const BAD_RESOURCE: u8 = 0x05;
    pub(crate) const BUSY: u8 = 0x06;
    pub(crate) const LIMIT: u8 = 0x08;
    pub(crate) const BAD_RES_STATE: u8 = 0x09;
    pub(crate) const BAD_INDEX: u8 = 0x0a;
    pub(crate) const NO_RESOURCES: u8 = 0x0f;
    pub(crate) const BAD_QP_STATE: u8 = 0x10;
    pub(crate) const BAD_SIZE_OUTS_CQES: u8 = 0x40;
    pub(crate) const BAD_INPUT_LENGTH: u8 = 0x50;
    pub(crate) const BAD_OUTPUT_LENGTH: u8 = 0x51;
}

macro_rules! rejects {
    ($($name:ident = $status:ident, $syndrome:literal, $text:literal $(, $violation:ident)?;)*) => {
        /// A reason to refuse a command.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Reject {
            $($name,)*
        }

        impl Reject {
            const ALL: &'static [Reject] = &[$(Reject::$name,)*];

            /// Command status.
            pub(crate) const fn status(self) -> u8 {
                match self { $(Reject::$name => status::$status,)* }
            }

            /// Syndrome; each reason has another.
            pub(crate) const fn syndrome(self) -> u32 {
                match self { $(Reject::$name => $syndrome,)* }
            }

            /// The reason in words.
            pub(crate) const fn text(self) -> &'static str {
                match self { $(Reject::$name => $text,)* }
            }

            /// The violation that it is as well: what no driver may send, whatever its user asks for.
            pub(crate) fn violation(self) -> Option<ViolationKind> {
                let kinds: &[ViolationKind] = match self {
                    $(Reject::$name => &[$(ViolationKind::$violation)?],)*
                };
                kinds.first().copied()
            }
        }
    };
}

rejects! {
    UnknownOpcode = BAD_OP, 0x4d_0001, "unknown opcode", UnknownCommand;
    UnknownOpMod = BAD_OP, 0x4d_0002, "unknown op_mod for this opcode", UnknownCommand;
    Disabled = BAD_SYS_STATE, 0x4d_0003, "the function is not enabled", CommandOrder;
    AlreadyEnabled = BAD_SYS_STATE, 0x4d_0004, "the function is enabled already", CommandOrder;
    NoBootPages = BAD_SYS_STATE, 0x4d_0005, "firmware waits for its boot pages", CommandOrder;
    NotInitialized = BAD_SYS_STATE, 0x4d_0006, "INIT_HCA has not been done", CommandOrder;
    AlreadyInitialized = BAD_SYS_STATE, 0x4d_0007, "INIT_HCA has been done already", CommandOrder;
    NoInitPages = BAD_SYS_STATE, 0x4d_0008, "firmware waits for its init pages", CommandOrder;
    InputLength = BAD_INPUT_LENGTH, 0x4d_0009, "input length differs from the command's", CommandLength;
    InputTail = BAD_INPUT_LENGTH, 0x4d_000a, "length of the list differs from what the context says", CommandLength;
    OutputLength = BAD_OUTPUT_LENGTH, 0x4d_000b, "output length differs from the command's", CommandLength;
    Reserved = BAD_PARAM, 0x4d_000c, "a reserved bit is set", ReservedBits;
    OtherFunction = BAD_PARAM, 0x4d_000d, "a function other than this one is named";
    Issi = BAD_PARAM, 0x4d_000e, "interface step sequence id is not supported";
    PageCount = BAD_PARAM, 0x4d_000f, "no page in the list", BadPage;
    PageAlign = BAD_PARAM, 0x4d_0010, "a page is not aligned to 4 KiB or is 0", BadPage;
    PageTwice = BAD_PARAM, 0x4d_0011, "a page is with firmware already", BadPage;
    PageUnmapped = BAD_PARAM, 0x4d_0012, "a page is not mapped for the device", BadPage;
    PageInUse = BAD_PARAM, 0x4d_0013, "a page is in use by an object", BadPage;
    PagesRefused = NO_RESOURCES, 0x4d_0014, "the driver could not give the pages";
    CapType = BAD_PARAM, 0x4d_0015, "this capability type does not exist here";
    CapMaximum = BAD_PARAM, 0x4d_0016, "a capability exceeds its maximum";
    CapUnknown = BAD_PARAM, 0x4d_0017, "a capability that this function does not have";
    CapChecksum = BAD_PARAM, 0x4d_0018, "cmdif_checksum is neither off nor on";
    Register = BAD_PARAM, 0x4d_0019, "this register does not exist here";
    RegisterWriteOnly = BAD_PARAM, 0x4d_001a, "this register cannot be read";
    HostEndianness = BAD_PARAM, 0x4d_001b, "host endianness must be 0 (little)";
    TeardownProfile = BAD_PARAM, 0x4d_001c, "teardown profile is not supported";
    DriverVersion = BAD_OP, 0x4d_001d, "driver_version capability is off";
    NoUar = NO_RESOURCES, 0x4d_001e, "no UAR page is left";
    UarUnknown = BAD_RESOURCE, 0x4d_001f, "no such UAR";
    UarBusy = BUSY, 0x4d_0020, "the UAR is in use by a queue";
    NoPd = NO_RESOURCES, 0x4d_0021, "no PD is left";
    PdUnknown = BAD_RESOURCE, 0x4d_0022, "no such PD";
    PdBusy = BUSY, 0x4d_0023, "the PD is in use by an mkey, a QP or an RMP";
    NoTransportDomain = NO_RESOURCES, 0x4d_0024, "no transport domain is left";
    TransportDomainUnknown = BAD_RESOURCE, 0x4d_0025, "no such transport domain";
    NoEq = NO_RESOURCES, 0x4d_0026, "no EQ is left";
    EqUnknown = BAD_RESOURCE, 0x4d_0027, "no such EQ";
    EqBusy = BUSY, 0x4d_0028, "the EQ is in use by a CQ";
    EqSize = LIMIT, 0x4d_0029, "log_eq_size exceeds log_max_eq_sz";
    EqVector = BAD_PARAM, 0x4d_002a, "intr is not an MSI-X vector of this function";
    EqEvents = BAD_PARAM, 0x4d_002b, "event_bitmask has an event type that does not exist";
    EqUar = BAD_RESOURCE, 0x4d_002c, "the EQ's UAR does not exist";
    NoCq = NO_RESOURCES, 0x4d_002d, "no CQ is left";
    CqUnknown = BAD_RESOURCE, 0x4d_002e, "no such CQ";
    CqBusy = BUSY, 0x4d_002f, "the CQ is in use by a QP";
    CqSize = LIMIT, 0x4d_0030, "log_cq_size exceeds log_max_cq_sz";
    CqEntrySize = BAD_PARAM, 0x4d_0031, "cqe_sz is not a size";
    CqEq = BAD_RESOURCE, 0x4d_0032, "the CQ's EQ does not exist";
    CqUar = BAD_RESOURCE, 0x4d_0033, "the CQ's UAR does not exist";
    CqOverrunIgnore = BAD_PARAM, 0x4d_0034, "oi without the cq_oi capability";
    CqCompression = BAD_PARAM, 0x4d_0035, "compression of 64-byte entries without its capability";
    RingAlign = BAD_PARAM, 0x4d_0036, "a page of the queue is not aligned to its log_page_size", ReservedBits;
    RingUnmapped = BAD_PARAM, 0x4d_0037, "a page of the queue is not mapped for the device", DmaUnmapped;
    RecordAlign = BAD_PARAM, 0x4d_0038, "the doorbell record is not aligned to 8 bytes";
    RecordUnmapped = BAD_PARAM, 0x4d_0039, "the doorbell record is not mapped for the device", DmaUnmapped;
    NoMkey = NO_RESOURCES, 0x4d_003a, "no mkey is left";
    MkeyUnknown = BAD_INDEX, 0x4d_003b, "no such mkey";
    MkeyPd = BAD_RESOURCE, 0x4d_003c, "the mkey's PD does not exist";
    MkeyMode = BAD_PARAM, 0x4d_003d, "access mode is not supported";
    MkeyPageSize = BAD_PARAM, 0x4d_003e, "log_page_size is out of range";
    MkeyTooShort = BAD_PARAM, 0x4d_003f, "the translations do not cover the range";
    MkeyPageAlign = BAD_PARAM, 0x4d_0040, "a page of the mkey is not aligned to its log_page_size", ReservedBits;
    MkeyOnDemand = BAD_PARAM, 0x4d_0041, "pg_access without the pg capability";
    MkeyRange = BAD_PARAM, 0x4d_0042, "start_addr and len wrap";
    NoQp = NO_RESOURCES, 0x4d_0043, "no QP is left";
    QpUnknown = BAD_RESOURCE, 0x4d_0044, "no such QP";
    QpService = BAD_PARAM, 0x4d_0045, "service type is not supported";
    QpPd = BAD_RESOURCE, 0x4d_0046, "the QP's PD does not exist";
    QpSendCq = BAD_RESOURCE, 0x4d_0047, "cqn_snd does not exist";
    QpRecvCq = BAD_RESOURCE, 0x4d_0048, "cqn_rcv does not exist";
    QpUar = BAD_RESOURCE, 0x4d_0049, "the QP's UAR does not exist";
    QpSize = LIMIT, 0x4d_004a, "a work queue exceeds log_max_qp_sz";
    QpReceiveType = BAD_PARAM, 0x4d_004b, "rq_type is not supported";
    QpUserIndex = BAD_PARAM, 0x4d_004c, "user_index 0xffffff under cqe_version 1";
    QpMessageSize = BAD_PARAM, 0x4d_004d, "log_msg_max exceeds the capability";
    QpState = BAD_QP_STATE, 0x4d_004e, "the transition does not start from this state";
    QpMtu = BAD_PARAM, 0x4d_004f, "mtu is not a path MTU";
    QpPort = BAD_PARAM, 0x4d_0050, "vhca_port_num is not a port of this function";
    QpSourceAddress = BAD_PARAM, 0x4d_0051, "src_addr_index has no RoCE address";
    QpMigration = BAD_PARAM, 0x4d_0052, "pm_state is not 'migrated'";
    QpOptional = BAD_PARAM, 0x4d_0053, "opt_param_mask names a parameter that this transition does not take";
    QpStride = BAD_PARAM, 0x4d_0054, "receive stride is out of range";
    Vport = BAD_PARAM, 0x4d_0055, "another vport is named";
    VportList = BAD_PARAM, 0x4d_0056, "allowed_list_type is not supported";
    VportField = BAD_PARAM, 0x4d_0057, "field_select names a field that cannot be changed";
    VportMtu = BAD_PARAM, 0x4d_0058, "mtu is out of range";
    RoceOff = BAD_OP, 0x4d_0059, "the function has no RoCE";
    RoceIndex = BAD_INDEX, 0x4d_005a, "roce_address_index exceeds the table";
    RocePort = BAD_PARAM, 0x4d_005b, "vhca_port_num is not a port of this function";
    RoceVersion = BAD_PARAM, 0x4d_005c, "roce_version is not supported";
    MkeyRights = BAD_PARAM, 0x4d_005d, "remote write or atomics without local write";
    QpResponderDepth = BAD_PARAM, 0x4d_005e, "log_rra_max exceeds log_max_ra_res_qp";
    QpRequesterDepth = BAD_PARAM, 0x4d_005f, "log_sra_max exceeds log_max_ra_req_qp";
    QpScatter = BAD_PARAM, 0x4d_0060, "cs_req or cs_res is not a value of its side";
    QpScatterCapability = BAD_PARAM, 0x4d_0061, "cs_req or cs_res without the sctr_data_cqe capability";
    QpScatterEntry = BAD_PARAM, 0x4d_0062, "64 bytes of data in completions of 64 bytes";
    CqPadding = BAD_PARAM, 0x4d_0063, "cqe_sz 2 without the cqe_128_always capability";
    CqTimestamp = BAD_PARAM, 0x4d_0064, "cq_timestamp_format is not a format";
    CqRealTime = BAD_PARAM, 0x4d_0065, "cq_timestamp_format real time without its capability";
    CqCompressionOff = BAD_PARAM, 0x4d_0066, "a mini format or layout without cqe_comp_en", ReservedBits;
    CqCompression128 = BAD_PARAM, 0x4d_0067, "compression of 128-byte entries without its capability";
    CqLayout = BAD_PARAM, 0x4d_0068, "cqe_comp_layout is not a layout";
    CqEnhanced = BAD_PARAM, 0x4d_0069, "the enhanced layout without its capability";
    CqMiniFormat = BAD_PARAM, 0x4d_006a, "mini_cqe_res_format and its extension are not a format";
    CqMiniFlowTag = BAD_PARAM, 0x4d_006b, "minis with a flow tag without their capability";
    CqMiniStride = BAD_PARAM, 0x4d_006c, "minis with checksum and stride index without their capability";
    CqMiniHeaders = BAD_PARAM, 0x4d_006d, "minis with header types without their capability";
    CqCollapsed = BAD_PARAM, 0x4d_006e, "a collapsed CQ cannot be compressed";
    QpTimestamp = BAD_PARAM, 0x4d_006f, "ts_format is not a format";
    QpRealTime = BAD_PARAM, 0x4d_0070, "ts_format real time without its capability";
    QpClock = BAD_PARAM, 0x4d_0071, "a CQ in real time, and a ts_format that is not";
    CqModeration = BAD_PARAM, 0x4d_0072, "moderation without the cq_moderation capability";
    CqPeriodMode = BAD_PARAM, 0x4d_0073, "cq_period_mode is not a mode";
    CqPeriodModeFromCqe = BAD_PARAM, 0x4d_0074, "cq_period_mode 1 without the cq_period_start_from_cqe capability";
    CqPeriodModeModify = BAD_PARAM, 0x4d_0075, "another cq_period_mode without the cq_period_mode_modify capability";
    CqSolicitedBreaks = BAD_PARAM, 0x4d_0076, "scqe_break_moderation_en without the scqe_break_moderation capability";
    CqResize = BAD_PARAM, 0x4d_0077, "resizing without the cq_resize capability";
    CqSelect = BAD_PARAM, 0x4d_0078, "a field is selected that cannot be changed", ReservedBits;
    CqUnselected = BAD_PARAM, 0x4d_0079, "a field that is not selected differs from the CQ's", ReservedBits;
    CqOutstanding = BAD_SIZE_OUTS_CQES, 0x4d_007a, "more entries wait than the ring has room for";
    CqBroken = BAD_RES_STATE, 0x4d_007b, "the CQ is in error";
    CqCollapsedResize = BAD_PARAM, 0x4d_007c, "a collapsed CQ has no ring to resize";
    QpScatterService = BAD_PARAM, 0x4d_0080, "cs_req or cs_res for a transport that has no such data";
    RmpOff = BAD_OP, 0x4d_0090, "the function has no RMP";
    NoRmp = NO_RESOURCES, 0x4d_0091, "no RMP is left";
    RmpUnknown = BAD_RESOURCE, 0x4d_0092, "no such RMP";
    RmpBusy = BUSY, 0x4d_0093, "the RMP is in use by a QP";
    RmpState = BAD_PARAM, 0x4d_0094, "state is not 'ready', or the RMP's is not";
    RmpType = BAD_PARAM, 0x4d_0095, "wq_type is not a linked list";
    RmpSize = LIMIT, 0x4d_0096, "log_wq_sz exceeds log_max_srq_sz";
    RmpStride = BAD_PARAM, 0x4d_0097, "log_wq_stride is out of range";
    RmpPd = BAD_RESOURCE, 0x4d_0098, "the RMP's PD does not exist";
    RmpLimit = BAD_PARAM, 0x4d_0099, "lwm exceeds the entries of the RMP";
    NicVportOff = BAD_OP, 0x4d_009b, "the port is not Ethernet";
    HcaVportOff = BAD_OP, 0x4d_009c, "the port is not InfiniBand, or ib_virt is off";
    HcaVportPort = BAD_PARAM, 0x4d_009d, "port_num is not a port of this function";
    HcaVportIndex = BAD_INDEX, 0x4d_009e, "the index exceeds the table";
    QpForceLoopback = BAD_PARAM, 0x4d_009f, "fl without its capability";
    QpPkey = BAD_INDEX, 0x4d_00a0, "pkey_index exceeds the table";
    QpRmp = BAD_RESOURCE, 0x4d_009a, "srqn_rmpn does not exist";
}

/// What a syndrome of the model means, in words; `None` for a syndrome that it never gives.
pub fn syndrome_text(syndrome: u32) -> Option<&'static str> {
    Reject::ALL.iter().find(|reject| reject.syndrome() == syndrome).map(|reject| reject.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_reason_has_a_syndrome_of_its_own() {
        let syndromes: BTreeSet<u32> = Reject::ALL.iter().map(|r| r.syndrome()).collect();
        assert_eq!(syndromes.len(), Reject::ALL.len());
        let texts: BTreeSet<&str> = Reject::ALL.iter().map(|r| r.text()).collect();
        assert!(texts.len() + 2 >= Reject::ALL.len());
    }
}
