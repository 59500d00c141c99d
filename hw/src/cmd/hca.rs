//! Commands of the function as a whole: enabling, interface revision, start, stop, identity.

use super::{Opcode, Plain};

crate::cmd::inbox! {
    /// Input of ENABLE_HCA.
    pub struct EnableHcaIn("enable_hca_in", 16) {
        /// The function is one of the embedded CPU.
        embedded_cpu_function: 0x40, 1;
        /// How `function_id` is meant: 0 function number, 1 VHCA id.
        function_id_type: 0x43, 1;
        /// Function; 0 is the one that the command is issued on.
        function_id: 0x50, 16;
    }
}

crate::cmd::outbox! {
    /// Output of ENABLE_HCA.
    pub struct EnableHcaOut("enable_hca_out", 12) {
    }
}

crate::cmd::inbox! {
    /// Input of DISABLE_HCA.
    pub struct DisableHcaIn("disable_hca_in", 16) {
        /// The function is one of the embedded CPU.
        embedded_cpu_function: 0x40, 1;
        /// How `function_id` is meant: 0 function number, 1 VHCA id.
        function_id_type: 0x43, 1;
        /// Function; 0 is the one that the command is issued on.
        function_id: 0x50, 16;
    }
}

crate::cmd::outbox! {
    /// Output of DISABLE_HCA.
    pub struct DisableHcaOut("disable_hca_out", 12) {
    }
}

crate::cmd::inbox! {
    /// Input of QUERY_ISSI.
    pub struct QueryIssiIn("query_issi_in", 16) {
    }
}

crate::cmd::outbox! {
    /// Output of QUERY_ISSI.
    pub struct QueryIssiOut("query_issi_out", 112) {
        /// The interface revision in use.
        current_issi: 0x50, 16;
        /// The lowest 32 revisions on offer: bit n stands for revision n.
        supported_issi_dw0: 0x360, 32;
    }
}

crate::cmd::inbox! {
    /// Input of SET_ISSI.
    pub struct SetIssiIn("set_issi_in", 16) {
        /// The interface revision to use from now on.
        current_issi: 0x50, 16;
    }
}

crate::cmd::outbox! {
    /// Output of SET_ISSI.
    pub struct SetIssiOut("set_issi_out", 16) {
    }
}

crate::cmd::inbox! {
    /// Input of INIT_HCA.
    pub struct InitHcaIn("init_hca_in", 32) {
        /// Software's own number for the function, with capability `sw_vhca_id_valid`.
        sw_vhca_id: 0x62, 14;
        /// Number that tells the drivers of one device apart, with capability `sw_owner_id`.
        sw_owner_id: 0x80, [32; 4];
    }
}

crate::cmd::outbox! {
    /// Output of INIT_HCA.
    pub struct InitHcaOut("init_hca_out", 16) {
    }
}

crate::cmd::inbox! {
    /// Input of TEARDOWN_HCA.
    pub struct TeardownHcaIn("teardown_hca_in", 16) {
        /// How to stop: [`TeardownProfile`].
        profile: 0x50, 16;
    }
}

crate::cmd::outbox! {
    /// Output of TEARDOWN_HCA.
    pub struct TeardownHcaOut("teardown_hca_out", 16) {
        /// Outcome of a forced teardown: [`TeardownState`].
        state: 0x7f, 1;
    }
}

crate::cmd::inbox! {
    /// Input of QUERY_ADAPTER.
    pub struct QueryAdapterIn("query_adapter_in", 16) {
    }
}

crate::prm! {
    /// Vendor data of the adapter (PRM `query_adapter_param_block`).
    pub struct QueryAdapterParamBlock("query_adapter_param_block", 256) {
        /// The vendor's IEEE organisation number.
        ieee_vendor_id: 0xc8, 24;
        /// PCI vendor id of whoever defines `vsd`.
        vsd_vendor_id: 0xf0, 16;
        /// Vendor-specific data, a byte each.
        vsd: 0x100, [8; 208];
        /// Parameter set id of the firmware: up to 16 ASCII characters.
        vsd_contd_psid: 0x780, [8; 16];
    }
}

crate::cmd::outbox! {
    /// Output of QUERY_ADAPTER.
    pub struct QueryAdapterOut("query_adapter_out", 272) {
        /// The vendor data.
        query_adapter_struct: 0x80, QueryAdapterParamBlock;
    }
}

crate::cmd::inbox! {
    /// Input of SET_DRIVER_VERSION.
    pub struct SetDriverVersionIn("set_driver_version_in", 80) {
        /// Operating system, driver and version, separated by commas; ASCII with a closing zero.
        driver_version: 0x80, [8; 64];
    }
}

crate::cmd::outbox! {
    /// Output of SET_DRIVER_VERSION.
    pub struct SetDriverVersionOut("set_driver_version_out", 16) {
    }
}

/// Enables the function: the first command after a reset.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnableHca;

impl Plain for EnableHca {
    const CODE: Opcode = Opcode::ENABLE_HCA;
    type In = EnableHcaIn;
    type Reply = EnableHcaOut;
    type Value = ();
    fn fill(&self, _: &mut EnableHcaIn) {}
    fn read(&self, _: &EnableHcaOut) {}
}

/// Disables the function: the last command. All pages must have been taken back.
#[derive(Clone, Copy, Debug, Default)]
pub struct DisableHca;

impl Plain for DisableHca {
    const CODE: Opcode = Opcode::DISABLE_HCA;
    type In = DisableHcaIn;
    type Reply = DisableHcaOut;
    type Value = ();
    fn fill(&self, _: &mut DisableHcaIn) {}
    fn read(&self, _: &DisableHcaOut) {}
}

/// Asks which interface revisions (ISSI) the firmware speaks. Old firmware answers BAD_OP: it speaks revision 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueryIssi;

/// Answer of [`QueryIssi`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IssiInfo {
    /// The revision in use.
    pub current: u16,
    /// The lowest 32 revisions on offer: bit n stands for revision n.
    pub supported: u32,
}

impl Plain for QueryIssi {
    const CODE: Opcode = Opcode::QUERY_ISSI;
    type In = QueryIssiIn;
    type Reply = QueryIssiOut;
    type Value = IssiInfo;
    fn fill(&self, _: &mut QueryIssiIn) {}
    fn read(&self, out: &QueryIssiOut) -> IssiInfo {
        IssiInfo { current: out.current_issi() as u16, supported: out.supported_issi_dw0() }
    }
}

/// Chooses the interface revision.
#[derive(Clone, Copy, Debug)]
pub struct SetIssi {
    /// The revision, one of those that [`QueryIssi`] offers.
    pub issi: u16,
}

impl Plain for SetIssi {
    const CODE: Opcode = Opcode::SET_ISSI;
    type In = SetIssiIn;
    type Reply = SetIssiOut;
    type Value = ();
    fn fill(&self, input: &mut SetIssiIn) {
        input.set_current_issi(self.issi.into());
    }
    fn read(&self, _: &SetIssiOut) {}
}

/// Starts the function; the init pages must have been given.
#[derive(Clone, Copy, Debug, Default)]
pub struct InitHca {
    /// Number that tells the drivers of one device apart; `None` where capability `sw_owner_id` is absent.
    pub sw_owner_id: Option<[u32; 4]>,
}

impl Plain for InitHca {
    const CODE: Opcode = Opcode::INIT_HCA;
    type In = InitHcaIn;
    type Reply = InitHcaOut;
    type Value = ();
    fn fill(&self, input: &mut InitHcaIn) {
        for (i, word) in self.sw_owner_id.iter().flatten().enumerate() {
            input.set_sw_owner_id(i, *word);
        }
    }
    fn read(&self, _: &InitHcaOut) {}
}

/// How TEARDOWN_HCA stops the function (PRM `teardown_hca_in.profile`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u16)]
pub enum TeardownProfile {
    /// All objects have been destroyed.
    #[default]
    Graceful = 0,
    /// Stop with objects alive, with capability `force_teardown`.
    Force = 1,
    /// Get ready for a fast teardown through the NIC interface state, with capability `fast_teardown`.
    PrepareFast = 2,
}

crate::prm_values! {
    /// Outcome of a forced teardown (PRM `teardown_hca_out.state`).
    pub struct TeardownState(u8) {
        /// The function has stopped.
        SUCCESS = 0x0;
        /// The function could not be stopped by force: use the graceful profile or reset it.
        FAIL = 0x1;
    }
}

/// Stops the function.
#[derive(Clone, Copy, Debug)]
pub struct TeardownHca {
    /// How to stop.
    pub profile: TeardownProfile,
}

impl Plain for TeardownHca {
    const CODE: Opcode = Opcode::TEARDOWN_HCA;
    type In = TeardownHcaIn;
    type Reply = TeardownHcaOut;
    type Value = TeardownState;
    fn fill(&self, input: &mut TeardownHcaIn) {
        input.set_profile(self.profile as u32);
    }
    fn read(&self, out: &TeardownHcaOut) -> TeardownState {
        TeardownState(out.state().into())
    }
}

/// Reads the adapter's vendor data.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueryAdapter;

/// Answer of [`QueryAdapter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdapterInfo {
    /// The vendor's IEEE organisation number.
    pub vendor_id: u32,
    /// PCI vendor id of whoever defines the vendor-specific data.
    pub vsd_vendor_id: u16,
    /// Parameter set id of the firmware, padded with zeros. ASCII on a card; not checked.
    pub psid: [u8; 16],
}

impl Plain for QueryAdapter {
    const CODE: Opcode = Opcode::QUERY_ADAPTER;
    type In = QueryAdapterIn;
    type Reply = QueryAdapterOut;
    type Value = AdapterInfo;
    fn fill(&self, _: &mut QueryAdapterIn) {}
    fn read(&self, out: &QueryAdapterOut) -> AdapterInfo {
        let block = out.query_adapter_struct();
        AdapterInfo {
            vendor_id: block.ieee_vendor_id(),
            vsd_vendor_id: block.vsd_vendor_id() as u16,
            psid: core::array::from_fn(|i| block.vsd_contd_psid(i) as u8),
        }
    }
}

/// Tells the firmware the driver's name and version, with capability `driver_version`.
#[derive(Clone, Copy, Debug)]
pub struct SetDriverVersion<'a> {
    /// Operating system, driver and version, separated by commas; ASCII. What is beyond 63 bytes is cut.
    pub version: &'a str,
}

impl Plain for SetDriverVersion<'_> {
    const CODE: Opcode = Opcode::SET_DRIVER_VERSION;
    type In = SetDriverVersionIn;
    type Reply = SetDriverVersionOut;
    type Value = ();
    fn fill(&self, input: &mut SetDriverVersionIn) {
        for (i, byte) in self.version.bytes().take(63).enumerate() {
            input.set_driver_version(i, byte.into());
        }
    }
    fn read(&self, _: &SetDriverVersionOut) {}
}
