//! What a report tells of machine and device before it tells what works.

use mlx5::device::Caps;
use mlx5::hw::caps::CapPage;
use mlx5::hw::cmd::{CapMode, CapType, QueryHcaCap};
use mlx5::hw::prm::Layout;
use mlx5::{Device, Error};

use crate::info;
use crate::rig::Rig;

/// Names and values, and the pages of capabilities as they are.
pub(super) struct Facts {
    pub(super) values: Vec<(&'static str, String)>,
    pub(super) pages: Vec<RawPage>,
}

/// A page of capabilities, or why it could not be read.
pub(crate) struct RawPage {
    /// The PRM's name of it.
    pub(super) name: &'static str,
    /// Values in force or the most that can be set.
    pub(super) mode: &'static str,
    pub(super) words: Result<Vec<u32>, Error>,
}

/// What the machine is.
pub(super) fn of_machine(rig: &dyn Rig) -> Facts {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    let release = release.map_or_else(|_| "release unknown".into(), |release| release.trim().to_string());
    let system = format!("{} {release} ({})", std::env::consts::OS, std::env::consts::ARCH);
    let mut values = vec![
        ("tool", concat!("mlx5 ", env!("CARGO_PKG_VERSION")).to_string()),
        ("system", system),
        ("device", rig.title()),
    ];
    values.extend(rig.facts());
    Facts { values, pages: Vec::new() }
}

impl Facts {
    /// What the device says of itself; addresses, which name the machine, only if they are wanted.
    pub(super) fn add_device(&mut self, device: &Device, ids: bool) {
        self.values.extend(info::identity(device, ids));
        self.pages = pages(device);
    }
}

/// All pages that the driver uses.
pub(crate) fn pages(device: &Device) -> Vec<RawPage> {
    let Caps { atomic, roce, .. } = device.caps();
    let mut wanted =
        vec![("cmd_hca_cap", CapType::GENERAL, CapMode::Current), ("cmd_hca_cap", CapType::GENERAL, CapMode::Max)];
    wanted.extend(atomic.map(|_| ("atomic_caps", CapType::ATOMIC, CapMode::Current)));
    wanted.extend(roce.as_ref().map(|_| ("roce_cap", CapType::ROCE, CapMode::Current)));
    wanted.into_iter().map(|(name, cap_type, mode)| RawPage::of(device, name, cap_type, mode)).collect()
}

impl RawPage {
    fn of(device: &Device, name: &'static str, cap_type: CapType, mode: CapMode) -> Self {
        // SAFETY: a query names no memory and takes nothing away.
        let page: Result<CapPage, Error> = unsafe { device.general_cmd(&QueryHcaCap { cap_type, mode }) };
        let words = page.map(|page| page.words().iter().map(|word| word.get()).collect());
        Self { name, mode: if mode == CapMode::Max { "max" } else { "current" }, words }
    }
}
