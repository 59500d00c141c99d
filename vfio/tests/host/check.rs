//! What stands in the way, one after the other.

use mlx5_vfio::host::{Member, Obstacle, Process, check};

use crate::machine::{CARD, Machine, bdf};

fn obstacle(machine: &Machine) -> Obstacle {
    check::ready(&machine.host(), bdf(CARD)).unwrap_err()
}

fn member(device: &str, driver: &str) -> Member {
    Member { device: device.into(), driver: Some(driver.into()), harmless: false }
}

#[test]
fn a_function_that_is_bound_and_alone_in_its_group_is_ready() {
    let machine = Machine::ready();
    let ready = check::ready(&machine.host(), bdf(CARD)).unwrap();
    assert_eq!((ready.group, ready.node), (12, machine.path("dev/vfio/12")));
    assert_eq!(ready.container, machine.path("dev/vfio/vfio"));
    assert_eq!(ready.function.bdf, bdf(CARD));
}

#[test]
fn drivers_that_vfio_has_for_a_kind_of_device_are_as_good() {
    let machine = Machine::ready();
    machine.unbind(CARD).bind(CARD, "mlx5_vfio_pci");
    assert!(check::ready(&machine.host(), bdf(CARD)).is_ok());
    // One whose name says nothing: kernels since 6.1 have the folder vfio-dev for each function that VFIO holds.
    machine.unbind(CARD).bind(CARD, "other");
    machine.write(&format!("{}/vfio-dev/vfio0/dev", machine.device(CARD)), "511:0\n");
    assert!(check::ready(&machine.host(), bdf(CARD)).is_ok());
}

/// From an empty machine to one where all is well, the next obstacle each time.
#[test]
fn obstacles_come_in_the_order_in_which_one_removes_them() {
    let machine = Machine::new();
    let card = bdf(CARD);
    assert_eq!(obstacle(&machine), Obstacle::NoSuchFunction { bdf: card });
    machine.pci(CARD, 0x1234, 0x11e8);
    assert_eq!(obstacle(&machine), Obstacle::WrongId { bdf: card, vendor: 0x1234, device: 0x11e8 });
    let folder = machine.device(CARD);
    machine.write(&format!("{folder}/vendor"), "0x15b3\n").write(&format!("{folder}/device"), "0x1017\n");
    machine.write(&format!("{folder}/config"), [0xff; 256]);
    assert_eq!(obstacle(&machine), Obstacle::Dead { bdf: card });
    machine.write(&format!("{folder}/config"), [0; 256]);
    assert_eq!(obstacle(&machine), Obstacle::NoIommu { bdf: card });
    machine.pci("0000:03:00.1", 0x15b3, 0x1017).group(12, &[CARD, "0000:03:00.1"]);
    machine.bind(CARD, "mlx5_core").bind("0000:03:00.1", "mlx5_core");
    assert_eq!(obstacle(&machine), Obstacle::NoVfio { path: machine.path("sys/bus/pci/drivers/vfio-pci") });
    machine.driver("vfio-pci");
    assert_eq!(obstacle(&machine), Obstacle::NotBound { bdf: card, driver: Some("mlx5_core".into()) });
    machine.unbind(CARD);
    assert_eq!(obstacle(&machine), Obstacle::NotBound { bdf: card, driver: None });
    machine.bind(CARD, "vfio-pci");
    let culprits = vec![member("0000:03:00.1", "mlx5_core")];
    assert_eq!(obstacle(&machine), Obstacle::GroupNotViable { group: 12, culprits });
    machine.unbind("0000:03:00.1");
    // VFIO is loaded, as the function is bound: to load it would not help.
    assert_eq!(obstacle(&machine), Obstacle::NoNode { path: machine.path("dev/vfio/vfio") });
    machine.write("dev/vfio/vfio", "");
    assert_eq!(obstacle(&machine), Obstacle::NoNode { path: machine.path("dev/vfio/12") });
    machine.write("dev/vfio/12", "");
    assert!(check::ready(&machine.host(), card).is_ok());
}

/// C-088: three of four functions of a group are held by a driver of the kernel.
#[test]
fn a_group_that_is_not_given_away_whole_names_the_other_functions_and_their_drivers() {
    let machine = Machine::new();
    let functions = ["0000:03:00.0", "0000:03:00.1", "0000:03:00.2", "0000:03:00.3"];
    for name in functions {
        machine.pci(name, 0x15b3, 0x1017);
    }
    machine.vfio().group(12, &functions).bind(functions[3], "vfio-pci").write("dev/vfio/12", "");
    functions[..3].iter().for_each(|name| _ = machine.bind(name, "mlx5_core"));
    let error = check::ready(&machine.host(), bdf(functions[3])).unwrap_err();
    let culprits = functions[..3].iter().map(|name| member(name, "mlx5_core")).collect();
    assert_eq!(error, Obstacle::GroupNotViable { group: 12, culprits });
    let text = error.to_string();
    for name in &functions[..3] {
        assert!(text.contains(&format!("{name} (mlx5_core)")), "{text}");
    }
    assert!(!text.contains(functions[3]), "{text}");
}

/// Linux: `driver_managed_dma` is set in VFIO's drivers, pci-stub and pcieport, not in pci-pf-stub, uio_pci_generic or shpchp.
#[test]
fn members_without_a_driver_or_with_one_that_does_no_dma_are_harmless() {
    let names = ["0000:00:01.0", "0000:03:00.1", "0000:03:00.2", "0000:03:00.3"];
    for (driver, harmless) in [
        (None, true),
        (Some("vfio-pci"), true),
        (Some("mlx5_vfio_pci"), true),
        (Some("pci-stub"), true),
        (Some("pcieport"), true),
        (Some("pci-pf-stub"), false),
        (Some("uio_pci_generic"), false),
        (Some("shpchp"), false),
        (Some("nvme"), false),
    ] {
        let machine = Machine::ready();
        names.iter().for_each(|name| _ = machine.pci(name, 0x8086, 0x1901));
        machine.group(12, &names);
        names.iter().filter_map(|name| Some((name, driver?))).for_each(|(name, driver)| _ = machine.bind(name, driver));
        assert_eq!(check::ready(&machine.host(), bdf(CARD)).is_ok(), harmless, "{driver:?}");
    }
}

/// C-085: without an IOMMU locked memory still moves, so what the device was told goes wrong.
#[test]
fn the_mode_without_an_iommu_is_refused() {
    let machine = Machine::ready();
    machine.write("sys/kernel/iommu_groups/12/name", "vfio-noiommu\n").write("dev/vfio/noiommu-12", "");
    assert_eq!(obstacle(&machine), Obstacle::NoIommuMode { bdf: bdf(CARD) });
}

#[test]
fn a_user_without_permission_is_told_which_file() {
    use rustix::process::{Gid, Uid};
    use std::os::unix::fs::PermissionsExt;
    let machine = Machine::ready();
    let set = |file: &str, mode| std::fs::set_permissions(machine.path(file), PermissionsExt::from_mode(mode)).unwrap();
    for (container, node, missing) in [(0o666, 0o600, "dev/vfio/12"), (0o644, 0o666, "dev/vfio/vfio")] {
        set("dev/vfio/vfio", container);
        set("dev/vfio/12", node);
        set("", 0o755);
        // Only this thread becomes somebody else, where it may; otherwise the owner has no more rights than anybody.
        let error = std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                let (uid, gid) = (Uid::from_raw(65534), Gid::from_raw(65534));
                rustix::thread::set_thread_res_gid(gid, gid, gid)
                    .and_then(|()| rustix::thread::set_thread_res_uid(uid, uid, uid))
                    .ok()?;
                Some(obstacle(&machine))
            });
            asked.join().unwrap()
        });
        assert!(error.is_none_or(|error| error == Obstacle::Permission { path: machine.path(missing) }));
    }
}

#[test]
fn who_has_a_group_open_is_named_as_far_as_one_may_see_it() {
    let machine = Machine::ready();
    let group = machine.host().function(bdf(CARD)).unwrap().group.unwrap();
    machine.process(4242, "testpmd", "dev/vfio/12").process(17, "other", "dev/vfio/13").write("proc/uptime", "1 1\n");
    let holders = vec![Process { pid: 4242, name: "testpmd".into(), own: false }];
    assert_eq!(check::busy(&machine.host(), bdf(CARD), &group), Obstacle::Busy { bdf: bdf(CARD), group: 12, holders });
}

/// Two functions of one group in one program: the second one is told who is in its way.
#[test]
fn a_group_that_this_process_itself_has_open_is_told_so() {
    let machine = Machine::ready();
    let group = machine.host().function(bdf(CARD)).unwrap().group.unwrap();
    machine.process(std::process::id(), "app", "dev/vfio/12");
    let busy = check::busy(&machine.host(), bdf(CARD), &group);
    let holders = vec![Process { pid: std::process::id(), name: "app".into(), own: true }];
    assert_eq!(busy, Obstacle::Busy { bdf: bdf(CARD), group: 12, holders });
    let text = busy.to_string();
    assert!(
        text.contains("in use, this process (pid ") && text.contains("close what it has of the group first"),
        "{text}"
    );
}
