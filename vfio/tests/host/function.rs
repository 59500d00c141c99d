//! What is read of a function.

use mlx5_vfio::host::{Netdev, Obstacle};

use crate::machine::{CARD, Machine, bdf};

#[test]
fn a_function_is_read_with_all_that_sysfs_says_of_it() {
    let machine = Machine::new();
    machine.pci(CARD, 0x15b3, 0x1017).group(7, &[CARD]).bind(CARD, "mlx5_core");
    machine.netdev(CARD, "ens1f0np0", "0x1003\n").netdev(CARD, "ens1f0np1", "0x1002\n");
    let folder = machine.device(CARD);
    machine.write(&format!("{folder}/numa_node"), "1\n").write(&format!("{folder}/sriov_numvfs"), "4\n");
    machine.write(&format!("{folder}/infiniband/mlx5_0/node_type"), "1: CA\n");
    let function = machine.host().function(bdf(CARD)).unwrap();
    assert_eq!((function.vendor, function.device, function.name), (0x15b3, 0x1017, Some("ConnectX-5")));
    assert_eq!((function.driver.as_deref(), function.driver_override), (Some("mlx5_core"), None));
    assert_eq!((function.numa, function.vfs, function.physical), (Some(1), 4, None));
    let expected = [("ens1f0np0", true), ("ens1f0np1", false)];
    assert_eq!(function.netdevs, expected.map(|(name, up)| Netdev { name: name.into(), up }));
    assert_eq!(function.rdma, ["mlx5_0"]);
    assert!(function.answers);
    let group = function.group.unwrap();
    assert_eq!((group.id, group.no_iommu, group.members.len()), (7, false, 1));
    assert_eq!(group.node, machine.path("dev/vfio/7"));
}

#[test]
fn a_virtual_function_names_the_physical_one_and_a_machine_with_one_node_has_no_numa() {
    let machine = Machine::new();
    machine.pci(CARD, 0x15b3, 0x1017).pci("0000:03:00.2", 0x15b3, 0x1018);
    let link = machine.path(format!("{}/physfn", machine.device("0000:03:00.2")));
    std::os::unix::fs::symlink(format!("../{CARD}"), link).unwrap();
    let function = machine.host().function(bdf("0000:03:00.2")).unwrap();
    assert_eq!((function.physical, function.numa), (Some(bdf(CARD)), None));
}

/// PCI Express Base Specification, 9.3.4.1: vendor and device of a virtual function read as all ones; class and revision are its own.
/// Linux shows that in `config`, and what it knows itself in `vendor` and `device`.
#[test]
fn a_virtual_function_answers_though_its_ids_read_as_all_ones_and_one_that_is_gone_does_not() {
    let machine = Machine::new();
    machine.pci(CARD, 0x15b3, 0x101e);
    let config = |head: [u8; 12]| {
        machine.write(&format!("{}/config", machine.device(CARD)), head);
        machine.host().function(bdf(CARD)).unwrap().answers
    };
    assert!(config([0xff, 0xff, 0xff, 0xff, 0x04, 0x00, 0x10, 0x00, 0x00, 0x00, 0x00, 0x02]));
    assert!(!config([0xff; 12]));
}

#[test]
fn the_list_has_the_mlx5_functions_in_order_and_no_others() {
    let machine = Machine::new();
    machine.pci("0000:81:00.0", 0x15b3, 0xa2dc).pci("0000:00:04.0", 0x1234, 0x11e8).pci(CARD, 0x15b3, 0x1017);
    machine.pci("0000:05:00.0", 0x15b3, 0x1003).pci("10000:01:00.0", 0x15b3, 0x1021);
    let found: Vec<String> = machine.host().functions().iter().map(|function| function.bdf.to_string()).collect();
    assert_eq!(found, [CARD, "0000:81:00.0", "10000:01:00.0"]);
}

#[test]
fn a_function_that_is_not_there_is_named() {
    let machine = Machine::new();
    assert_eq!(machine.host().function(bdf(CARD)), Err(Obstacle::NoSuchFunction { bdf: bdf(CARD) }));
    assert!(Machine::new().host().functions().is_empty());
}

/// Files that are empty, cut short or no numbers are no reason to end: sysfs of another kernel may differ.
#[test]
fn odd_files_are_passed_over() {
    let machine = Machine::ready();
    let folder = machine.device(CARD);
    for file in ["numa_node", "sriov_numvfs", "driver_override", "net/eth0/flags", "config"] {
        machine.write(&format!("{folder}/{file}"), "\n");
    }
    let function = machine.host().function(bdf(CARD)).unwrap();
    assert_eq!((function.numa, function.vfs, function.driver_override.clone()), (None, 0, None));
    assert!(function.answers && function.up().is_empty());
    machine.write(&format!("{folder}/vendor"), "none\n");
    assert_eq!(machine.host().function(bdf(CARD)), Err(Obstacle::NoSuchFunction { bdf: bdf(CARD) }));
}
