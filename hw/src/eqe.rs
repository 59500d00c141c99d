//! Event queue entries.

crate::prm! {
    /// Data of a completion event (PRM `comp_event`).
    pub struct CompEvent("comp_event", 28) {
        /// CQ that has completions.
        cq_number: 0xc8, 24;
    }
}

crate::prm! {
    /// Data of a CQ error (PRM `cq_error`).
    pub struct CqError("cq_error", 28) {
        /// CQ that failed.
        cqn: 0x08, 24;
        /// Why: [`CqErrorSyndrome`].
        syndrome: 0x58, 8;
    }
}

crate::prm! {
    /// Data of a command completion (PRM `cmd_inter_comp_event`).
    pub struct CmdInterCompEvent("cmd_inter_comp_event", 28) {
        /// Command queue slots that completed: bit n stands for slot n.
        command_completion_vector: 0x00, 32;
    }
}

crate::prm! {
    /// Data of a page request (`eqe_page_req`).
    pub struct PageReq("eqe_page_req", 28) {
        /// Flags: bit 15 the function is one of the embedded CPU, bit 14 all pages are to be released.
        ec_function: 0x00, 16;
        /// Function that wants the pages; 0 for one's own.
        func_id: 0x10, 16;
        /// Number of 4 KiB pages; signed: negative to give some back.
        num_pages: 0x20, 32;
    }
}

crate::prm! {
    /// Data of a port state change (PRM `port_state_change_event`).
    pub struct PortStateChangeEvent("port_state_change_event", 28) {
        /// Port, 1 for the first.
        port_num: 0x40, 4;
    }
}

crate::prm! {
    /// Data of an event on a work queue (PRM `qp_events`).
    pub struct QpEvents("qp_events", 28) {
        /// Kind of queue: [`QueueType`].
        r#type as "type": 0xa0, 8;
        /// Number of the queue.
        qpn_rqn_sqn: 0xc8, 24;
    }
}

crate::prm! {
    /// Data of an event on a dynamically connected target (PRM `dct_events`).
    pub struct DctEvents("dct_events", 28) {
        /// Number of the target.
        dct_number: 0xc8, 24;
    }
}

crate::prm! {
    /// Data of a general purpose I/O event (PRM `gpio_event`).
    pub struct GpioEvent("gpio_event", 28) {
        /// Pins 63 to 32 that changed.
        gpio_event_hi: 0x60, 32;
        /// Pins 31 to 0 that changed.
        gpio_event_lo: 0x80, 32;
    }
}

crate::prm! {
    /// Data of an event on a stalled virtual lane (PRM `stall_vl_event`).
    pub struct StallVlEvent("stall_vl_event", 24) {
        /// Port.
        port_num: 0x18, 1;
        /// Virtual lane.
        vl: 0x1c, 4;
    }
}

crate::prm! {
    /// Data of an event on congested doorbells (PRM `db_bf_congestion_event`).
    pub struct DbBfCongestionEvent("db_bf_congestion_event", 24) {
        /// Kind of congestion.
        event_subtype: 0x00, 8;
        /// How bad it is.
        congestion_level: 0x10, 8;
    }
}

crate::prm! {
    /// Data of a page fault on remote memory access (PRM `rdma_page_fault_event`).
    pub struct RdmaPageFaultEvent("rdma_page_fault_event", 28) {
        /// Bytes moved before the fault.
        bytes_committed: 0x00, 32;
        /// Memory key of the access.
        r_key: 0x20, 32;
        /// Bytes of the packet that faulted.
        packet_len: 0x50, 16;
        /// Bytes of the whole operation.
        rdma_op_len: 0x60, 32;
        /// Address that faulted.
        rdma_va: 0x80, 64;
        /// The access was a remote one.
        rdma: 0xc5, 1;
        /// The access was a write.
        write: 0xc6, 1;
        /// The fault is the requester's.
        requestor: 0xc7, 1;
        /// QP that stopped.
        qp_number: 0xc8, 24;
    }
}

crate::prm! {
    /// Data of a page fault of a work request (PRM `wqe_associated_page_fault_event`).
    pub struct WqeAssociatedPageFaultEvent("wqe_associated_page_fault_event", 28) {
        /// Bytes moved before the fault.
        bytes_committed: 0x00, 32;
        /// Index of the work queue entry.
        wqe_index: 0x30, 16;
        /// Bytes of the packet that faulted.
        len: 0x50, 16;
        /// The access was a remote one.
        rdma: 0xc5, 1;
        /// The access was a write.
        write_read: 0xc6, 1;
        /// The fault is the requester's.
        requestor: 0xc7, 1;
        /// QP that stopped.
        qpn: 0xc8, 24;
    }
}

crate::prm! {
    /// Data of a change of a virtual port (`eqe_vport_change`).
    pub struct VportChange("eqe_vport_change", 28) {
        /// Port that changed.
        vport_num: 0x10, 16;
    }
}

crate::prm! {
    /// Data of a cable module event (`eqe_port_module`).
    pub struct PortModule("eqe_port_module", 8) {
        /// Module.
        module: 0x08, 8;
        /// 1 plugged, 2 unplugged, 3 error, 4 disabled.
        module_status: 0x18, 8;
        /// What is wrong, with status 3.
        error_type: 0x30, 8;
    }
}

crate::prm! {
    /// Data of a temperature warning (`eqe_temp_warning`).
    pub struct TempWarning("eqe_temp_warning", 16) {
        /// Sensors 127 to 64 that are too hot.
        sensor_warning_msb: 0x00, 64;
        /// Sensors 63 to 0 that are too hot.
        sensor_warning_lsb: 0x40, 64;
    }
}

crate::prm! {
    /// Data of an error of an extended receive queue (`eqe_xrq_err`).
    pub struct XrqErr("eqe_xrq_err", 28) {
        /// Kind of error in the top byte, number of the queue in the low 24 bits.
        type_xrqn: 0xa0, 32;
    }
}

crate::prm! {
    /// Data of an event, 28 bytes; the event's type tells which of the fields holds.
    pub struct EventData("event_data", 28) {
        /// Completions on a CQ.
        comp_event: 0x00, CompEvent;
        /// A CQ failed.
        cq_error: 0x00, CqError;
        /// Commands completed.
        cmd_inter_comp_event: 0x00, CmdInterCompEvent;
        /// The firmware wants pages or gives some back.
        req_pages: 0x00, PageReq;
        /// A port changed its state.
        port_state_change_event: 0x00, PortStateChangeEvent;
        /// Something happened to a work queue.
        qp_events: 0x00, QpEvents;
        /// Something happened to a dynamically connected target.
        dct_events: 0x00, DctEvents;
        /// Pins changed.
        gpio_event: 0x00, GpioEvent;
        /// A virtual lane stalled.
        stall_vl_event: 0x00, StallVlEvent;
        /// Doorbells are congested.
        db_bf_congestion_event: 0x00, DbBfCongestionEvent;
        /// A page fault on remote memory access.
        rdma_page_fault_event: 0x00, RdmaPageFaultEvent;
        /// A page fault of a work request.
        wqe_associated_page_fault_event: 0x00, WqeAssociatedPageFaultEvent;
        /// A virtual port changed.
        vport_change: 0x00, VportChange;
        /// A cable module was plugged, unplugged or failed.
        port_module: 0x00, PortModule;
        /// Sensors are too hot.
        temp_warning: 0x00, TempWarning;
        /// An extended receive queue failed.
        xrq_err: 0x00, XrqErr;
    }
}

crate::prm! {
    /// Event queue entry (PRM `eqe`), 64 bytes.
    pub struct Eqe("eqe", 64) {
        /// What happened: [`EventType`].
        event_type: 0x08, 8;
        /// Which variant of it.
        event_sub_type: 0x18, 8;
        /// The event's data.
        event_data: 0x100, EventData;
        /// Signature of the entry.
        signature: 0x1f0, 8;
        /// Ownership: the lap's parity.
        owner: 0x1ff, 1;
    }
}

/// What an event says: the fields that the driver acts on. Numbers are as the device wrote them, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A CQ has completions.
    Completion {
        /// The CQ.
        cqn: u32,
    },
    /// A CQ failed: nothing more is written to it.
    CqError {
        /// The CQ.
        cqn: u32,
        /// Why.
        syndrome: CqErrorSyndrome,
    },
    /// Commands completed.
    Command {
        /// Their slots: bit n stands for slot n.
        vector: u32,
    },
    /// The firmware wants pages, or gives some back.
    PageRequest {
        /// Function that wants the pages; 0 for one's own.
        func_id: u16,
        /// Number of 4 KiB pages; negative to take some back.
        num_pages: i32,
        /// The function is one of the embedded CPU.
        ec_function: bool,
        /// All pages of the function are free without a command.
        release_all: bool,
    },
    /// A port changed its state.
    Port {
        /// Port, 1 for the first.
        port: u8,
        /// What changed.
        change: PortChange,
    },
    /// Something happened to a work queue or shared receive queue.
    Queue {
        /// What happened.
        event_type: EventType,
        /// Kind of queue.
        queue_type: QueueType,
        /// Its number.
        number: u32,
    },
    /// Something else.
    Other {
        /// What happened.
        event_type: EventType,
        /// Which variant of it.
        sub_type: u8,
    },
}

impl Eqe {
    /// What the entry says.
    pub fn event(&self) -> Event {
        let data = self.event_data();
        match EventType(self.event_type() as u8) {
            EventType::COMP => Event::Completion { cqn: data.comp_event().cq_number() },
            EventType::CQ_ERROR => {
                let error = data.cq_error();
                Event::CqError { cqn: error.cqn(), syndrome: CqErrorSyndrome(error.syndrome() as u8) }
            }
            EventType::CMD => Event::Command { vector: data.cmd_inter_comp_event().command_completion_vector() },
            EventType::PAGE_REQUEST => page_request(data.req_pages()),
            EventType::PORT_CHANGE => Event::Port {
                port: data.port_state_change_event().port_num() as u8,
                change: PortChange(self.event_sub_type() as u8),
            },
            event_type if event_type.is_queue() => Event::Queue {
                event_type,
                queue_type: QueueType(data.qp_events().r#type() as u8),
                number: data.qp_events().qpn_rqn_sqn(),
            },
            event_type => Event::Other { event_type, sub_type: self.event_sub_type() as u8 },
        }
    }
}

fn page_request(request: PageReq) -> Event {
    Event::PageRequest {
        func_id: request.func_id() as u16,
        num_pages: request.num_pages() as i32,
        ec_function: request.ec_function() & EC_FUNCTION != 0,
        release_all: request.ec_function() & RELEASE_ALL_PAGES != 0,
    }
}

/// Flag of a page request (constant `EC_FUNCTION_MASK`).
const EC_FUNCTION: u32 = 0x8000;
/// Flag of a page request (constant `RELEASE_ALL_PAGES_MASK`).
const RELEASE_ALL_PAGES: u32 = 0x4000;

impl EventType {
    /// The type's bit in CREATE_EQ's event bitmask; 0 for a type beyond 63.
    pub const fn bit(self) -> u64 {
        if self.0 < 64 { 1 << self.0 } else { 0 }
    }

    /// Whether its data names a work queue or shared receive queue.
    const fn is_queue(self) -> bool {
        matches!(
            self,
            Self::PATH_MIG
                | Self::COMM_EST
                | Self::SQ_DRAINED
                | Self::WQ_CATAS_ERROR
                | Self::PATH_MIG_FAILED
                | Self::WQ_INVAL_REQ_ERROR
                | Self::WQ_ACCESS_ERROR
                | Self::SRQ_CATAS_ERROR
                | Self::SRQ_LAST_WQE
                | Self::SRQ_RQ_LIMIT
        )
    }
}

crate::prm_values! {
    /// What an event queue entry tells (constants `MLX5_EVENT_TYPE_*`).
    pub struct EventType(u8) {
        /// Completions on a CQ.
        COMP = 0x0;
        /// A path migrated.
        PATH_MIG = 0x1;
        /// A QP that is not yet ready to send received its first message.
        COMM_EST = 0x2;
        /// A send queue is drained.
        SQ_DRAINED = 0x3;
        /// A CQ failed.
        CQ_ERROR = 0x4;
        /// A work queue failed fatally.
        WQ_CATAS_ERROR = 0x5;
        /// A path did not migrate.
        PATH_MIG_FAILED = 0x7;
        /// The device failed internally.
        INTERNAL_ERROR = 0x8;
        /// A port changed its state.
        PORT_CHANGE = 0x9;
        /// Commands completed.
        CMD = 0xa;
        /// The firmware wants pages or gives some back.
        PAGE_REQUEST = 0xb;
        /// A page fault.
        PAGE_FAULT = 0xc;
        /// A NIC vport context changed.
        NIC_VPORT_CHANGE = 0xd;
        /// The functions of an embedded switch changed.
        ESW_FUNCTIONS_CHANGED = 0xe;
        /// A function changed its state.
        VHCA_STATE_CHANGE = 0xf;
        /// A work queue received an invalid request.
        WQ_INVAL_REQ_ERROR = 0x10;
        /// A work queue was refused access to memory.
        WQ_ACCESS_ERROR = 0x11;
        /// A shared receive queue failed fatally.
        SRQ_CATAS_ERROR = 0x12;
        /// The last entry of a shared receive queue was used by a QP in error.
        SRQ_LAST_WQE = 0x13;
        /// A shared receive queue ran low.
        SRQ_RQ_LIMIT = 0x14;
        /// Pins changed.
        GPIO_EVENT = 0x15;
        /// A cable module was plugged, unplugged or failed.
        PORT_MODULE_EVENT = 0x16;
        /// A sensor is too hot.
        TEMP_WARN_EVENT = 0x17;
        /// An extended receive queue failed.
        XRQ_ERROR = 0x18;
        /// A remote configuration event.
        REMOTE_CONFIG = 0x19;
        /// Doorbells are congested.
        DB_BF_CONGESTION = 0x1a;
        /// A virtual lane stalled.
        STALL_EVENT = 0x1b;
        /// All connections of a dynamically connected target are closed.
        DCT_DRAINED = 0x1c;
        /// An access key of dynamically connected transport was violated.
        DCT_KEY_VIOLATION = 0x1d;
        /// A dropped packet was logged.
        CODING_DROPPED_PACKET_LOGGED_EVENT = 0x1f;
        /// The FPGA failed.
        FPGA_ERROR = 0x20;
        /// A QP of the FPGA failed.
        FPGA_QP_ERROR = 0x21;
        /// A general event; the subtype tells which.
        GENERAL_EVENT = 0x22;
        /// A monitored counter crossed its threshold.
        MONITOR_COUNTER = 0x24;
        /// A pulse of the clock.
        PPS_EVENT = 0x25;
        /// The tracer has something.
        DEVICE_TRACER = 0x26;
        /// A general object changed.
        OBJECT_CHANGE = 0x27;
    }
}

crate::prm_values! {
    /// Why a CQ failed (constants `MLX5_CQ_ERROR_SYNDROME_*`).
    pub struct CqErrorSyndrome(u8) {
        /// A completion found the ring full.
        CQ_OVERRUN = 0x1;
        /// The device was refused access to the ring.
        CQ_ACCESS_VIOLATION_ERROR = 0x2;
    }
}

crate::prm_values! {
    /// What changed at a port (constants `MLX5_PORT_CHANGE_SUBTYPE_*`).
    pub struct PortChange(u8) {
        /// It went down.
        DOWN = 0x1;
        /// It is up.
        ACTIVE = 0x4;
        /// The link is up, addresses are not yet set.
        INITIALIZED = 0x5;
        /// Its LID changed.
        LID = 0x6;
        /// Its P_Key table changed.
        PKEY = 0x7;
        /// Its GUIDs changed.
        GUID = 0x8;
        /// Clients have to register again with the subnet manager.
        CLIENT_REREG = 0x9;
    }
}

crate::prm_values! {
    /// Kind of queue that an event names (constants `MLX5_EVENT_QUEUE_TYPE_*`).
    pub struct QueueType(u8) {
        /// A QP.
        QP = 0x0;
        /// A receive queue.
        RQ = 0x1;
        /// A send queue.
        SQ = 0x2;
        /// A dynamically connected target.
        DCT = 0x6;
    }
}
