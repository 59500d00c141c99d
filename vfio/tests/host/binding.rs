//! Giving functions to vfio-pci and back, and as it was when that fails.

use std::time::Duration;

use mlx5_vfio::host::binding::{BindOptions, bind, unbind};
use mlx5_vfio::host::{Bdf, Function, Member, Obstacle, Process, check};

use crate::kernel::{EBUSY, EINVAL, ENODEV, FakeKernel};
use crate::machine::{CARD, Machine, bdf};

const EACCES: i32 = 13;
const MEMORY: &str = "run/mlx5/0000:03:00.0.json";

/// A ConnectX-5 that mlx5_core holds, behind an IOMMU, with VFIO loaded.
fn held() -> Machine {
    let machine = Machine::new();
    machine.vfio().pci(CARD, 0x15b3, 0x1017).group(12, &[CARD]).bind(CARD, "mlx5_core");
    machine
}

fn card() -> Bdf {
    bdf(CARD)
}

fn function(machine: &Machine) -> Function {
    machine.host().function(card()).unwrap()
}

fn quick() -> BindOptions {
    BindOptions { patience: Duration::ZERO, ..BindOptions::default() }
}

fn force() -> BindOptions {
    BindOptions { force: true, ..quick() }
}

#[test]
fn a_function_goes_to_vfio_pci_and_back_to_its_driver() {
    let machine = held();
    let before = function(&machine);
    let kernel = FakeKernel::new(&machine);
    let bound = bind(&machine.host(), &kernel, card(), &quick()).unwrap();
    assert_eq!((bound.before.as_deref(), bound.already, bound.group), (Some("mlx5_core"), false, 12));
    assert_eq!(bound.node, machine.path("dev/vfio/12"));
    assert!(bound.culprits.is_empty() && function(&machine).is_bound());
    let expected = [
        "sys/bus/pci/devices/0000:03:00.0/driver_override vfio-pci",
        "sys/bus/pci/devices/0000:03:00.0/driver/unbind 0000:03:00.0",
        "sys/bus/pci/drivers/vfio-pci/bind 0000:03:00.0",
    ];
    assert_eq!(kernel.written(), expected);
    let unbound = unbind(&machine.host(), &kernel, card()).unwrap();
    assert_eq!((unbound.driver.as_deref(), unbound.already), (Some("mlx5_core"), false));
    assert_eq!(function(&machine), before);
    assert!(!machine.path(MEMORY).exists());
}

#[test]
fn what_is_so_already_stays_so() {
    let machine = Machine::ready();
    let kernel = FakeKernel::new(&machine);
    assert!(bind(&machine.host(), &kernel, card(), &quick()).unwrap().already);
    let machine = held();
    let other = FakeKernel::new(&machine);
    let unbound = unbind(&machine.host(), &other, card()).unwrap();
    assert_eq!((unbound.driver.as_deref(), unbound.already), (Some("mlx5_core"), true));
    assert!(kernel.written().is_empty() && other.written().is_empty());
    assert!(!machine.path(MEMORY).exists());
}

#[test]
fn no_driver_and_an_override_are_remembered_as_well() {
    let machine = held();
    let kernel = FakeKernel::new(&machine);
    machine.unbind(CARD).write(&format!("{}/driver_override", machine.device(CARD)), "pci-stub\n");
    let before = function(&machine);
    bind(&machine.host(), &kernel, card(), &quick()).unwrap();
    assert_eq!(unbind(&machine.host(), &kernel, card()).unwrap().driver, None);
    assert_eq!(function(&machine), before);
}

#[test]
fn a_function_that_was_bound_by_hand_goes_to_the_driver_that_the_kernel_finds() {
    for remembered in [None, Some("no json"), Some("{\"driver\": \"../../evil\", \"driver_override\": null}")] {
        let machine = Machine::ready();
        let kernel = FakeKernel::new(&machine);
        machine.write(&format!("{}/driver_override", machine.device(CARD)), "vfio-pci\n");
        machine.write("sys/bus/evil/bind", "");
        remembered.map(|text| machine.write(MEMORY, text));
        assert_eq!(unbind(&machine.host(), &kernel, card()).unwrap().driver.as_deref(), Some("mlx5_core"));
        assert_eq!(function(&machine).driver_override, None);
    }
}

#[test]
fn a_driver_that_was_unloaded_meanwhile_leaves_the_choice_to_the_kernel() {
    let machine = held();
    let mut kernel = FakeKernel::new(&machine);
    kernel.finds = Some("mlx5_core");
    bind(&machine.host(), &kernel, card(), &quick()).unwrap();
    std::fs::remove_dir(machine.path("sys/bus/pci/drivers/mlx5_core")).unwrap();
    kernel.finds = None;
    assert_eq!(unbind(&machine.host(), &kernel, card()).unwrap().driver, None);
    assert_eq!(kernel.written().last().unwrap(), "sys/bus/pci/drivers_probe 0000:03:00.0");
}

#[test]
fn what_the_kernel_uses_is_taken_by_force_only() {
    let machine = held();
    let kernel = FakeKernel::new(&machine);
    machine.netdev(CARD, "eth0", "0x1003\n").netdev(CARD, "eth1", "0x1002\n");
    let error = bind(&machine.host(), &kernel, card(), &quick()).unwrap_err();
    assert_eq!(error, Obstacle::NetworkUp { bdf: card(), netdevs: vec!["eth0".into()] });
    machine.netdev(CARD, "eth0", "0x1002\n").write(&format!("{}/sriov_numvfs", machine.device(CARD)), "8\n");
    let error = bind(&machine.host(), &kernel, card(), &quick()).unwrap_err();
    assert_eq!(error, Obstacle::HasVirtualFunctions { bdf: card(), vfs: 8 });
    assert!(kernel.written().is_empty(), "a refusal touches nothing");
    machine.netdev(CARD, "eth0", "0x1003\n");
    assert!(bind(&machine.host(), &kernel, card(), &force()).is_ok());
}

#[test]
fn foreign_functions_and_machines_without_iommu_or_vfio_are_refused_even_by_force() {
    let machine = Machine::new();
    let kernel = FakeKernel::new(&machine);
    let refused = || bind(&machine.host(), &kernel, card(), &force()).unwrap_err();
    assert_eq!(refused(), Obstacle::NoSuchFunction { bdf: card() });
    machine.pci(CARD, 0x1234, 0x11e8).bind(CARD, "edu");
    assert_eq!(refused(), Obstacle::WrongId { bdf: card(), vendor: 0x1234, device: 0x11e8 });
    assert!(matches!(unbind(&machine.host(), &kernel, card()), Err(Obstacle::WrongId { .. })));
    let folder = machine.device(CARD);
    machine.write(&format!("{folder}/vendor"), "0x15b3\n").write(&format!("{folder}/device"), "0x1017\n");
    assert_eq!(refused(), Obstacle::NoIommu { bdf: card() });
    machine.group(12, &[CARD]);
    assert_eq!(refused(), Obstacle::NoVfio { path: machine.path("sys/bus/pci/drivers/vfio-pci") });
    assert!(kernel.written().is_empty());
}

/// Each write fails once, and vfio-pci refuses in all ways: as it was, and nothing remembered.
#[test]
fn a_bind_that_fails_half_way_leaves_things_as_they_were() {
    for (fails, refuses, nodes) in [
        (Some((0, EACCES)), None, true),
        (Some((1, EINVAL)), None, true),
        (Some((2, EINVAL)), None, true),
        (None, Some(EBUSY), true),
        (None, Some(ENODEV), true),
        (None, Some(0), true),
        (None, None, false),
    ] {
        for driver in [Some("mlx5_core"), None] {
            if driver.is_none() && fails == Some((2, EINVAL)) {
                continue; // Two writes do: there is no driver to take it from.
            }
            let machine = held();
            if driver.is_none() {
                machine.unbind(CARD);
            }
            let before = function(&machine);
            let mut kernel = FakeKernel::new(&machine);
            kernel.fails.set(fails);
            kernel.nodes = nodes;
            refuses.map(|errno| kernel.refuses.borrow_mut().insert("vfio-pci".into(), errno));
            let error = bind(&machine.host(), &kernel, card(), &quick()).unwrap_err();
            let case = format!("{fails:?} {refuses:?} {nodes} {driver:?}: {error}");
            assert!(!matches!(error, Obstacle::NotRestored { .. }), "{case}");
            assert_eq!(function(&machine), before, "{case}");
            assert!(!machine.path(MEMORY).exists(), "{case}");
        }
    }
}

/// Linux 6.12 with virtio-iommu: a function has no group until a driver has it.
#[test]
fn a_function_whose_group_comes_with_its_driver_is_bound_and_one_that_gets_none_is_put_back() {
    let machine = Machine::new();
    machine.vfio().pci(CARD, 0x15b3, 0x1017).write("sys/class/iommu/virtio1/uevent", "");
    let ready = || check::ready(&machine.host(), card()).unwrap_err();
    assert_eq!(ready(), Obstacle::NotBound { bdf: card(), driver: None });
    machine.bind(CARD, "mlx5_core");
    assert_eq!(ready(), Obstacle::NoIommu { bdf: card() }, "with a driver it would have come");
    machine.unbind(CARD);
    let before = function(&machine);
    let mut kernel = FakeKernel::new(&machine);
    assert_eq!(bind(&machine.host(), &kernel, card(), &quick()), Err(Obstacle::NoIommu { bdf: card() }));
    assert_eq!(function(&machine), before);
    kernel.late_group = Some(3);
    let bound = bind(&machine.host(), &kernel, card(), &quick()).unwrap();
    assert_eq!((bound.group, bound.node), (3, machine.path("dev/vfio/3")));
    assert!(check::ready(&machine.host(), card()).is_ok());
}

#[test]
fn errors_of_a_bind_say_what_was_refused() {
    let machine = held();
    let kernel = FakeKernel::new(&machine);
    // 0: the kernel says nothing, and the driver does not have it.
    for errno in [EBUSY, 0] {
        kernel.refuses.borrow_mut().insert("vfio-pci".into(), errno);
        let error = bind(&machine.host(), &kernel, card(), &quick()).unwrap_err();
        assert_eq!(error, Obstacle::DriverRefused { bdf: card(), driver: "vfio-pci".into(), errno });
    }
    let mut kernel = FakeKernel::new(&machine);
    kernel.nodes = false;
    let error = bind(&machine.host(), &kernel, card(), &quick()).unwrap_err();
    assert_eq!(error, Obstacle::NoNode { path: machine.path("dev/vfio/12") });
    let kernel = FakeKernel::new(&machine);
    kernel.fails.set(Some((0, EACCES)));
    let error = bind(&machine.host(), &kernel, card(), &quick()).unwrap_err();
    let path = machine.path("sys/bus/pci/devices/0000:03:00.0/driver_override");
    assert_eq!(error, Obstacle::Permission { path });
}

#[test]
fn what_cannot_be_put_back_is_said_and_can_be_mended_later() {
    let machine = held();
    let kernel = FakeKernel::new(&machine);
    kernel.refuses.borrow_mut().extend([("vfio-pci".into(), EINVAL), ("mlx5_core".into(), EBUSY)]);
    let error = bind(&machine.host(), &kernel, card(), &quick()).unwrap_err();
    let refused = |driver: &str, errno| Box::new(Obstacle::DriverRefused { bdf: card(), driver: driver.into(), errno });
    let (first, then) = (refused("vfio-pci", EINVAL), refused("mlx5_core", EBUSY));
    assert_eq!(error, Obstacle::NotRestored { bdf: card(), first, then });
    assert_eq!(function(&machine).driver, None);
    // What it was is still known, also to a bind that is tried again and fails again.
    bind(&machine.host(), &kernel, card(), &quick()).unwrap_err();
    kernel.refuses.borrow_mut().clear();
    assert_eq!(unbind(&machine.host(), &kernel, card()).unwrap().driver.as_deref(), Some("mlx5_core"));
    assert!(!machine.path(MEMORY).exists());
}

/// A process that was killed between two writes: `driver_override` set, no driver.
#[test]
fn a_bind_that_was_killed_is_mended_by_either_command() {
    for again in [true, false] {
        let machine = held();
        let before = function(&machine);
        let kernel = FakeKernel::new(&machine);
        machine.write(MEMORY, "{\"driver\":\"mlx5_core\",\"driver_override\":null}\n").unbind(CARD);
        machine.write(&format!("{}/driver_override", machine.device(CARD)), "vfio-pci\n");
        if again {
            assert!(bind(&machine.host(), &kernel, card(), &quick()).is_ok());
        }
        assert_eq!(unbind(&machine.host(), &kernel, card()).unwrap().driver.as_deref(), Some("mlx5_core"));
        assert_eq!(function(&machine), before);
    }
}

/// The kernel would wait until it is closed.
#[test]
fn a_function_in_use_is_not_unbound_and_its_user_is_named() {
    let machine = Machine::ready();
    machine.process(4242, "testpmd", "dev/vfio/12");
    let mut kernel = FakeKernel::new(&machine);
    kernel.open = true;
    let error = unbind(&machine.host(), &kernel, card()).unwrap_err();
    let holders = vec![Process { pid: 4242, name: "testpmd".into(), own: false }];
    assert_eq!(error, Obstacle::Busy { bdf: card(), group: 12, holders });
    assert!(kernel.written().is_empty() && function(&machine).is_bound());
}

/// The kernel keeps the ids that it read when it found the function; only its configuration space is all ones.
#[test]
fn a_dead_function_is_given_back_and_not_taken() {
    let machine = held();
    let kernel = FakeKernel::new(&machine);
    bind(&machine.host(), &kernel, card(), &quick()).unwrap();
    machine.write(&format!("{}/config", machine.device(CARD)), [0xff; 256]);
    assert!(!function(&machine).answers);
    // A driver that looks at it does not take it; then no driver has it.
    kernel.refuses.borrow_mut().insert("mlx5_core".into(), ENODEV);
    let refused = Obstacle::DriverRefused { bdf: card(), driver: "mlx5_core".into(), errno: ENODEV };
    assert_eq!(unbind(&machine.host(), &kernel, card()), Err(refused));
    assert_eq!(function(&machine).driver, None);
    kernel.refuses.borrow_mut().clear();
    assert_eq!(unbind(&machine.host(), &kernel, card()).unwrap().driver.as_deref(), Some("mlx5_core"));
    assert!(!machine.path(MEMORY).exists());
    assert_eq!(bind(&machine.host(), &kernel, card(), &quick()), Err(Obstacle::Dead { bdf: card() }));
}

#[test]
fn an_old_driver_that_refuses_can_be_tried_again() {
    let machine = held();
    let kernel = FakeKernel::new(&machine);
    bind(&machine.host(), &kernel, card(), &quick()).unwrap();
    kernel.refuses.borrow_mut().insert("mlx5_core".into(), EBUSY);
    let error = unbind(&machine.host(), &kernel, card()).unwrap_err();
    assert_eq!(error, Obstacle::DriverRefused { bdf: card(), driver: "mlx5_core".into(), errno: EBUSY });
    kernel.refuses.borrow_mut().clear();
    assert_eq!(unbind(&machine.host(), &kernel, card()).unwrap().driver.as_deref(), Some("mlx5_core"));
}

#[test]
fn members_of_the_group_that_still_stand_in_the_way_are_told() {
    let machine = held();
    machine.pci("0000:03:00.1", 0x15b3, 0x1017).group(12, &["0000:03:00.1"]).bind("0000:03:00.1", "mlx5_core");
    let bound = bind(&machine.host(), &FakeKernel::new(&machine), card(), &quick()).unwrap();
    let culprit = Member { device: "0000:03:00.1".into(), driver: Some("mlx5_core".into()), harmless: false };
    assert_eq!(bound.culprits, [culprit]);
}
