//! The health buffer: what the firmware writes about its own failures.

crate::prm! {
    /// Health buffer (PRM `health_buffer`), 64 bytes of the initialization segment.
    pub struct HealthBuffer("health_buffer", 64) {
        /// Words that the failed assertion left.
        assert_var: 0x00, [32; 6];
        /// Address in the firmware at which the assertion was left.
        assert_existptr: 0x100, 32;
        /// Address in the firmware from which the assertion was called.
        assert_callra: 0x120, 32;
        /// Seconds since 1970, or 0.
        time: 0x160, 32;
        /// Firmware version: major in bits 31:24, minor in bits 23:16, patch in bits 15:0. All ones when the device
        /// is gone.
        fw_version: 0x180, 32;
        /// Hardware id.
        hw_id: 0x1a0, 32;
        /// The firmware asks to be reset.
        rfr: 0x1c0, 1;
        /// `severity` holds.
        valid: 0x1c4, 1;
        /// How bad it is: [`Severity`].
        severity: 0x1c5, 3;
        /// Processor that found the failure.
        irisc_index: 0x1e0, 8;
        /// What failed: [`HealthSyndrome`]; 0 while all is well.
        synd: 0x1e8, 8;
        /// The firmware's own number for the failure.
        ext_synd: 0x1f0, 16;
    }
}

impl HealthBuffer {
    /// The firmware version: major, minor, patch.
    pub const fn fw_version_parts(&self) -> (u8, u8, u16) {
        let v = self.fw_version();
        ((v >> 24) as u8, (v >> 16) as u8, v as u16)
    }

    /// What failed; 0 while all is well.
    pub const fn syndrome(&self) -> HealthSyndrome {
        HealthSyndrome(self.synd() as u8)
    }

    /// How bad it is; [`Severity::ERROR`] when the firmware does not say.
    pub const fn severity_or_default(&self) -> Severity {
        if self.valid() { Severity(self.severity() as u8) } else { Severity::ERROR }
    }

    /// Whether something failed.
    pub const fn unhealthy(&self) -> bool {
        self.synd() != 0
    }
}

/// How bad a failure is, on the scale of syslog: smaller is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Severity(pub u8);

impl Severity {
    /// Taken for granted when the firmware does not say.
    pub const ERROR: Self = Self(3);

    /// The name of the step.
    pub const fn name(self) -> &'static str {
        match self.0 {
            0 => "EMERGENCY",
            1 => "ALERT",
            2 => "CRITICAL",
            3 => "ERROR",
            4 => "WARNING",
            5 => "NOTICE",
            6 => "INFO",
            _ => "DEBUG",
        }
    }
}

crate::prm_values! {
    /// What failed (constants `MLX5_INITIAL_SEG_HEALTH_SYNDROME_*`).
    pub struct HealthSyndrome(u8) {
        /// The firmware failed an assertion.
        FW_INTERNAL_ERR = 0x1;
        /// A processor of the device does not respond.
        DEAD_IRISC = 0x7;
        /// The hardware failed for good.
        HW_FATAL_ERR = 0x8;
        /// The firmware image has a wrong checksum.
        FW_CRC_ERR = 0x9;
        /// A read of context memory failed on PCIe.
        ICM_FETCH_PCI_ERR = 0xa;
        /// A page of context memory failed.
        ICM_PAGE_ERR = 0xb;
        /// An event queue for asynchronous events overran.
        ASYNCHRONOUS_EQ_BUF_OVERRUN = 0xc;
        /// An event queue failed.
        EQ_IN_ERR = 0xd;
        /// An event queue that does not exist was named.
        EQ_INV = 0xe;
        /// A serial link inside the device failed.
        FFSER_ERR = 0xf;
        /// The device is too hot.
        HIGH_TEMP_ERR = 0x10;
        /// Context memory came back poisoned over PCIe.
        ICM_PCI_POISONED_ERR = 0x12;
        /// The device locked itself for security.
        TRUST_LOCKDOWN_ERR = 0x13;
    }
}

impl HealthSyndrome {
    /// What it means, in plain words.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self(0) => "no failure",
            Self::FW_INTERNAL_ERR => "firmware internal error",
            Self::DEAD_IRISC => "processor of the device not responding",
            Self::HW_FATAL_ERR => "unrecoverable hardware error",
            Self::FW_CRC_ERR => "firmware checksum error",
            Self::ICM_FETCH_PCI_ERR => "context memory could not be read over PCIe",
            Self::ICM_PAGE_ERR => "context memory page error",
            Self::ASYNCHRONOUS_EQ_BUF_OVERRUN => "asynchronous event queue overrun",
            Self::EQ_IN_ERR => "event queue in error",
            Self::EQ_INV => "invalid event queue referenced",
            Self::FFSER_ERR => "internal serial link error",
            Self::HIGH_TEMP_ERR => "temperature too high",
            Self::ICM_PCI_POISONED_ERR => "context memory came back poisoned over PCIe",
            Self::TRUST_LOCKDOWN_ERR => "locked down for security",
            _ => "unknown failure",
        }
    }
}
