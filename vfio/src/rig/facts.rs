//! What a maintainer wants to know of where a function runs.

use crate::host::{Function, Host, names_in, text};

/// Names and values; what the system does not tell is left out.
pub(super) fn of(host: &Host, function: &Function) -> Vec<(&'static str, String)> {
    let units = names_in(&host.path("sys/class/iommu"));
    let group = function.group.as_ref().map(|group| {
        let kind = text(&host.path(format!("sys/kernel/iommu_groups/{}/type", group.id)));
        let kind = kind.map_or_else(String::new, |kind| format!("type {kind}, "));
        format!("{} ({kind}members: {})", group.id, group.members.len())
    });
    let of_link = |name: &str| text(&function.sysfs.join(name));
    let link = of_link("current_link_speed").zip(of_link("current_link_width"));
    let facts = [
        ("driver", function.driver.clone()),
        ("iommu", Some(units.join(", ")).filter(|units| !units.is_empty())),
        ("iommu_group", group),
        ("pcie_link", link.map(|(speed, width)| format!("{speed}, x{width}"))),
        ("numa_node", function.numa.map(|node| node.to_string())),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The files as Linux writes them (`Documentation/ABI/testing/sysfs-bus-pci`, `sysfs-kernel-iommu_groups`).
    #[test]
    fn what_sysfs_tells_is_told_and_the_rest_left_out() {
        let machine = tempfile::tempdir().unwrap();
        let host = Host::at(machine.path());
        let folder = machine.path().join("sys/bus/pci/devices/0000:03:00.0");
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in [("vendor", "0x15b3\n"), ("device", "0x1018\n"), ("current_link_speed", "8.0 GT/s PCIe\n")]
        {
            fs::write(folder.join(name), text).unwrap();
        }
        let function = || host.function("0000:03:00.0".parse().unwrap()).unwrap();
        assert_eq!(of(&host, &function()), []);
        fs::write(folder.join("current_link_width"), "16\n").unwrap();
        fs::write(folder.join("numa_node"), "1\n").unwrap();
        let group = machine.path().join("sys/kernel/iommu_groups/7");
        fs::create_dir_all(group.join("devices/0000:03:00.0")).unwrap();
        fs::write(group.join("type"), "DMA-FQ\n").unwrap();
        std::os::unix::fs::symlink(&group, folder.join("iommu_group")).unwrap();
        for unit in ["dmar1", "dmar0"] {
            fs::create_dir_all(machine.path().join("sys/class/iommu").join(unit)).unwrap();
        }
        let right = [
            ("iommu", "dmar0, dmar1"),
            ("iommu_group", "7 (type DMA-FQ, members: 1)"),
            ("pcie_link", "8.0 GT/s PCIe, x16"),
            ("numa_node", "1"),
        ];
        assert_eq!(of(&host, &function()), right.map(|(name, value)| (name, value.to_string())));
    }
}
