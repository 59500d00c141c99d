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
    /// MAC address of the port.
    pub mac: [u8; 6],
    /// What CREATE_QP and CREATE_CQ may ask for and the rest of the general capabilities.
    pub caps: CapConfig,
}

/// The capabilities that a test may want to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapConfig {
    /// `cqe_version`: 1 puts the user index into completions.
    pub cqe_version: u8,
    /// `log_max_eq`, `log_max_cq`, `log_max_qp`, `log_max_mkey`, `log_max_pd`.
    pub log_max: [u8; 5],
    /// `log_max_cq_sz`: largest completion queue, log2 of entries.
    pub log_max_cq_sz: u8,
    /// `log_max_qp_sz`: largest work queue, log2 of entries.
    pub log_max_qp_sz: u8,
    /// `log_max_eq_sz`: largest event queue, log2 of entries.
    pub log_max_eq_sz: u8,
    /// `cq_oi`: whether a completion queue may ignore overruns.
    pub cq_oi: bool,
    /// `port_type` and `eth_virt`: the port is Ethernet; InfiniBand if not.
    pub ethernet: bool,
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
}

impl Default for CapConfig {
    fn default() -> Self {
        Self {
            cqe_version: 1,
            log_max: [5, 16, 17, 18, 16],
            log_max_cq_sz: 16,
            log_max_qp_sz: 13,
            log_max_eq_sz: 16,
            cq_oi: true,
            ethernet: true,
            roce: true,
            atomic: true,
            driver_version: true,
            page_request_disable: false,
            num_ports: 1,
        }
    }
}

impl ModelConfig {
    /// What Linux's `mlx5_core` needs to bind and nothing else: a function without Ethernet and RoCE, for which it creates
    /// its own event queues and no device for users.
    pub fn core() -> Self {
        let caps =
            CapConfig { ethernet: false, roce: false, atomic: false, driver_version: false, ..CapConfig::default() };
        Self { caps, ..Self::default() }
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
            mac: [0x02, 0x15, 0xb3, 0x00, 0x00, 0x01],
            caps: CapConfig::default(),
        }
    }
}
