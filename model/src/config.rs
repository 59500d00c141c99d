//! What kind of function the model is.

/// PCI device id of a ConnectX-5 virtual function.
pub const DEVICE_ID_CX5_VF: u16 = 0x1018;
/// PCI device id of a ConnectX-5 physical function.
pub const DEVICE_ID_CX5_PF: u16 = 0x1017;
/// PCI device id of virtual functions from ConnectX-6 Dx on.
pub const DEVICE_ID_GENERIC_VF: u16 = 0x101e;

/// Properties of a [`Model`](crate::Model), fixed when it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelConfig {
    /// PCI device id: [`DEVICE_ID_CX5_VF`] unless changed.
    pub device_id: u16,
    /// Size of BAR 0 in bytes, a power of two from 64 KiB on.
    pub bar_size: usize,
    /// MSI-X vectors, 1 to 1024.
    pub vectors: u32,
    /// Where pseudo-random choices start.
    pub seed: u64,
    /// Nanoseconds after a reset during which the init segment says `initializing`.
    pub boot_ns: u64,
    /// Nanoseconds from a command doorbell to the completion of the command.
    pub command_ns: u64,
    /// Pages that firmware wants before capabilities can be read; 0 to skip the step.
    pub boot_pages: u32,
    /// Pages that firmware wants before INIT_HCA; 0 to skip the step.
    pub init_pages: u32,
    /// Firmware version: major, minor, subminor.
    pub firmware: (u16, u16, u16),
    /// Nanoseconds by which [`now`](mlx5_hw::platform::Platform::now) moves the virtual clock.
    pub now_ns: u64,
    /// Nanoseconds by which [`relax`](mlx5_hw::platform::Platform::relax) moves the virtual clock at first; doubled with each
    /// call while nothing happens, up to a millisecond.
    pub relax_ns: u64,
    /// Nanoseconds by which reading a register moves the virtual clock, before the register answers.
    pub read_ns: u64,
    /// The time of day when model time begins, in seconds since 1970: the platform's, and that of completion queues with time
    /// stamps in real time.
    pub epoch_s: u64,
    /// What the free-running counter (`internal_timer`, 64 bits) shows when model time begins, in ticks.
    pub timer_start: u64,
    /// By how many millionths the device's clocks run faster than the platform's; negative: slower.
    pub clock_drift_ppm: i32,
    /// MAC address of the port.
    pub mac: [u8; 6],
    /// LID of an InfiniBand port, and how many low bits of it are path bits (`lmc`, at most 7). With 0 and 7, unless changed, it has
    /// all LIDs of 0 to 127, which is convenient though no subnet manager gives them.
    pub lid: u16,
    /// See `lid`.
    pub lmc: u8,
    /// The port has its link; [`Fault::Link`](crate::Fault::Link) changes that later.
    pub link_up: bool,
    /// The function can be reset by itself: PCI Express device capabilities, bit 28. If not, its reset bit does nothing.
    pub flr: bool,
    /// The processor combines stores to the UAR pages: [`Bar::has_wc`](mlx5_hw::platform::Bar::has_wc). False unless changed, as
    /// vfio-pci maps registers. [`Model::set_store_pace`](crate::Model::set_store_pace) says how whole such a store arrives.
    pub write_combining: bool,
    /// What CREATE_QP and CREATE_CQ may ask for and the rest of the general capabilities.
    pub caps: CapConfig,
}

/// The capabilities that a test may want to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapConfig {
    /// `cqe_version`: 1 puts the user index into completions.
    pub cqe_version: u8,
    /// `device_frequency_khz`: ticks of the free-running counter in a millisecond.
    pub device_frequency_khz: u32,
    /// `log_max_eq`, `log_max_cq`, `log_max_qp`, `log_max_mkey`, `log_max_pd`.
    pub log_max: [u8; 5],
    /// `log_max_cq_sz`: largest completion queue, log2 of entries.
    pub log_max_cq_sz: u8,
    /// `log_max_qp_sz`: largest work queue, log2 of entries.
    pub log_max_qp_sz: u8,
    /// `log_max_rmp` and `log_max_srq`: how many shared receive queues, log2; 0 for none.
    pub log_max_rmp: u8,
    /// `log_max_srq_sz`: largest shared receive queue, log2 of entries.
    pub log_max_srq_sz: u8,
    /// `log_max_eq_sz`: largest event queue, log2 of entries.
    pub log_max_eq_sz: u8,
    /// `cq_oi`: whether a completion queue may ignore overruns.
    pub cq_oi: bool,
    /// `cq_resize`: MODIFY_CQ may give a completion queue another ring.
    pub cq_resize: bool,
    /// `cq_moderation`: completion events may be moderated, at CREATE_CQ and by MODIFY_CQ.
    pub cq_moderation: bool,
    /// `cq_period_mode_modify`: MODIFY_CQ may change what starts the moderation timer.
    pub cq_period_mode_modify: bool,
    /// `cq_period_start_from_cqe`: the moderation timer may start with each entry.
    pub cq_period_start_from_cqe: bool,
    /// `scqe_break_moderation`: a solicited entry may raise the event at once.
    pub scqe_break_moderation: bool,
    /// `port_type` and `eth_virt`: the port is Ethernet; InfiniBand if not.
    pub ethernet: bool,
    /// `ib_virt`: an InfiniBand port is described by its HCA vport context.
    pub ib_virt: bool,
    /// `fl_rc_qp_when_roce_disabled`: reliable connections may be forced to loop back while RoCE is off, and on an InfiniBand
    /// port.
    pub fl_rc_qp_when_roce_disabled: bool,
    /// `fl_rc_qp_when_roce_enabled`: the same while RoCE is on.
    pub fl_rc_qp_when_roce_enabled: bool,
    /// `bf`: a work request may be stored to a BlueFlame buffer instead of a doorbell.
    pub bf: bool,
    /// `log_bf_reg_size`: log2 of the bytes of a BlueFlame register, which is two buffers of the same size; 4 to 11.
    pub log_bf_reg_size: u8,
    /// `roce`: the function has RoCE; its own capability page then exists.
    pub roce: bool,
    /// `atomic`: the function does 8-byte atomics; their own capability page then exists.
    pub atomic: bool,
    /// `driver_version`: SET_DRIVER_VERSION exists.
    pub driver_version: bool,
    /// `page_request_disable`: firmware never asks for pages by an event.
    pub page_request_disable: bool,
    /// `num_ports`.
    pub num_ports: u8,
    /// `cqe_compression`: completion queues of 64-byte entries may be compressed.
    pub cqe_compression: bool,
    /// `cqe_compression_128`: completion queues of 128-byte entries may be compressed.
    pub cqe_compression_128: bool,
    /// `cqe_compression_max_num`: completions of a session at most; 0 is taken as 1.
    pub cqe_compression_max_num: u16,
    /// `cqe_compression_timeout`: microseconds (a reading; no source names the unit) after which a title is not used any more.
    pub cqe_compression_timeout: u16,
    /// `mini_cqe_resp_stride_index`: format 3, checksum and stride index.
    pub mini_cqe_resp_stride_index: bool,
    /// `mini_cqe_resp_flow_tag`: format 2, flow tag and stride index.
    pub mini_cqe_resp_flow_tag: bool,
    /// `mini_cqe_resp_l3_l4_tag`: format 4, header types and stride index.
    pub mini_cqe_resp_l3_l4_tag: bool,
    /// `enhanced_cqe_compression`: the enhanced layout exists.
    pub enhanced_cqe_compression: bool,
    /// `cqe_128_always`: 64-byte completions may be padded to 128 bytes.
    pub cqe_128_always: bool,
    /// `sctr_data_cqe`: short data may be scattered to the completion.
    pub sctr_data_cqe: bool,
    /// `sq_ts_format`, `rq_ts_format` and RoCE's `qp_ts_format`: 2 (free running and real time) if set, 0 (free running) if
    /// not.
    pub real_time_ts: bool,
}

impl Default for CapConfig {
    fn default() -> Self {
        Self {
            cqe_version: 1,
            device_frequency_khz: 156_250,
            log_max: [5, 16, 17, 18, 16],
            log_max_cq_sz: 16,
            log_max_qp_sz: 13,
            log_max_rmp: 16,
            log_max_srq_sz: 15,
            log_max_eq_sz: 16,
            cq_oi: true,
            cq_resize: true,
            cq_moderation: true,
            cq_period_mode_modify: true,
            cq_period_start_from_cqe: true,
            scqe_break_moderation: true,
            ethernet: true,
            ib_virt: false,
            fl_rc_qp_when_roce_disabled: true,
            fl_rc_qp_when_roce_enabled: true,
            bf: true,
            log_bf_reg_size: 9,
            roce: true,
            atomic: true,
            driver_version: true,
            page_request_disable: false,
            num_ports: 1,
            cqe_compression: true,
            cqe_compression_128: true,
            cqe_compression_max_num: 64,
            cqe_compression_timeout: 16,
            mini_cqe_resp_stride_index: true,
            mini_cqe_resp_flow_tag: true,
            mini_cqe_resp_l3_l4_tag: true,
            enhanced_cqe_compression: true,
            cqe_128_always: true,
            sctr_data_cqe: true,
            real_time_ts: true,
        }
    }
}

impl CapConfig {
    /// The same without what a completion queue can do beyond 64- and 128-byte entries: no compression, no padding, no data
    /// in completions, no real time.
    pub fn plain_cqs(self) -> Self {
        Self {
            cqe_compression: false,
            cqe_compression_128: false,
            cqe_compression_max_num: 0,
            cqe_compression_timeout: 0,
            mini_cqe_resp_stride_index: false,
            mini_cqe_resp_flow_tag: false,
            mini_cqe_resp_l3_l4_tag: false,
            enhanced_cqe_compression: false,
            cqe_128_always: false,
            sctr_data_cqe: false,
            real_time_ts: false,
            ..self
        }
    }
}

/// Turns a capability off.
type Off = fn(&mut CapConfig);

/// The capabilities that can be taken away by name, as the headers spell them.
const NAMED: &[(&str, Off)] = &[
    ("cq_oi", |c| c.cq_oi = false),
    ("cq_resize", |c| c.cq_resize = false),
    ("cq_moderation", |c| c.cq_moderation = false),
    ("cq_period_mode_modify", |c| c.cq_period_mode_modify = false),
    ("cq_period_start_from_cqe", |c| c.cq_period_start_from_cqe = false),
    ("scqe_break_moderation", |c| c.scqe_break_moderation = false),
    ("log_max_rmp", |c| c.log_max_rmp = 0),
    ("ib_virt", |c| c.ib_virt = false),
    ("fl_rc_qp_when_roce_disabled", |c| c.fl_rc_qp_when_roce_disabled = false),
    ("fl_rc_qp_when_roce_enabled", |c| c.fl_rc_qp_when_roce_enabled = false),
    ("bf", |c| c.bf = false),
    ("roce", |c| c.roce = false),
    ("atomic", |c| c.atomic = false),
    ("driver_version", |c| c.driver_version = false),
    ("cqe_compression", |c| c.cqe_compression = false),
    ("cqe_compression_128", |c| c.cqe_compression_128 = false),
    ("mini_cqe_resp_stride_index", |c| c.mini_cqe_resp_stride_index = false),
    ("mini_cqe_resp_flow_tag", |c| c.mini_cqe_resp_flow_tag = false),
    ("mini_cqe_resp_l3_l4_tag", |c| c.mini_cqe_resp_l3_l4_tag = false),
    ("enhanced_cqe_compression", |c| c.enhanced_cqe_compression = false),
    ("cqe_128_always", |c| c.cqe_128_always = false),
    ("sctr_data_cqe", |c| c.sctr_data_cqe = false),
    ("real_time_ts", |c| c.real_time_ts = false),
];

impl CapConfig {
    /// The names that [`without`](Self::without) takes: those of the fields that can be off, and `log_max_rmp`.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name)
    }

    /// Takes the capability of this name away. False when there is none.
    pub fn without(&mut self, name: &str) -> bool {
        let found = NAMED.iter().find(|(known, _)| *known == name);
        found.map(|(_, off)| off(self)).is_some()
    }
}

impl ModelConfig {
    /// A function whose port is InfiniBand: no Ethernet and no RoCE, else as the default.
    pub fn infiniband() -> Self {
        let caps = CapConfig { ethernet: false, ib_virt: true, roce: false, ..CapConfig::default() };
        Self { lid: 0x15, lmc: 0, caps, ..Self::default() }
    }

    /// What Linux's `mlx5_core` needs to bind and nothing else: a function without Ethernet and RoCE, for which it creates
    /// its own event queues and no device for users.
    pub fn core() -> Self {
        let caps = CapConfig {
            ethernet: false,
            fl_rc_qp_when_roce_disabled: false,
            fl_rc_qp_when_roce_enabled: false,
            bf: false,
            roce: false,
            atomic: false,
            driver_version: false,
            cq_resize: false,
            cq_moderation: false,
            cq_period_mode_modify: false,
            cq_period_start_from_cqe: false,
            scqe_break_moderation: false,
            log_max_rmp: 0,
            log_max_srq_sz: 0,
            ..CapConfig::default()
        };
        Self { caps: caps.plain_cqs(), ..Self::default() }
    }
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            device_id: DEVICE_ID_CX5_VF,
            bar_size: 1 << 20,
            vectors: 32,
            seed: 0,
            boot_ns: 0,
            command_ns: 0,
            boot_pages: 16,
            init_pages: 64,
            firmware: (16, 35, 4030),
            now_ns: 50,
            relax_ns: 200,
            read_ns: 0,
            epoch_s: 1_700_000_000,
            timer_start: 0,
            clock_drift_ppm: 0,
            mac: [0x02, 0x15, 0xb3, 0x00, 0x00, 0x01],
            lid: 0,
            lmc: 7,
            link_up: true,
            flr: true,
            write_combining: false,
            caps: CapConfig::default(),
        }
    }
}
