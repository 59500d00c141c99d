//! `mlx5 list` and what of `mlx5 bind` and `mlx5 unbind` needs no machine, as people see them.

use serde_json::{Value, json};

use crate::common::tool;
use crate::machine::{CARD, Machine};

/// Standard output and standard error of a run that ends with `code`.
fn run(code: i32, args: &[&str]) -> (String, String) {
    let out = tool(args, b"");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!(out.status.code(), Some(code), "{args:?}: {}{}", text(&out.stdout), text(&out.stderr));
    (text(&out.stdout), text(&out.stderr))
}

fn list(machine: &Machine) -> String {
    run(0, &["list", "--root", machine.path("").to_str().unwrap()]).0
}

fn objects(machine: &Machine) -> Value {
    serde_json::from_str(&run(0, &["list", "--json", "--root", machine.path("").to_str().unwrap()]).0).unwrap()
}

/// A card whose second function is held by the kernel, and a virtual function without an IOMMU.
fn two() -> Machine {
    let machine = Machine::ready();
    machine.pci("0000:03:00.1", 0x15b3, 0x1017).group(12, &["0000:03:00.1"]).bind("0000:03:00.1", "mlx5_core");
    machine.netdev("0000:03:00.1", "ens1f1", "0x1003\n").pci("0000:81:00.2", 0x15b3, 0x101e);
    machine
}

#[test]
fn the_list_shows_who_holds_what_and_what_is_missing() {
    let shown = list(&two());
    let line = |start: &str| shown.lines().find(|line| line.trim_start().starts_with(start)).unwrap();
    for (start, parts) in [
        ("address", ["id", "name", "driver", "group", "with", "NUMA", "network", "ready"]),
        (CARD, ["15b3:1017", "ConnectX-5", "vfio-pci", "12", "0000:03:00.1", "(mlx5_core)", "-", "no"]),
        ("0000:03:00.1", ["15b3:1017", "ConnectX-5", "mlx5_core", "12", CARD, "(vfio-pci)", "ens1f1 up", "no"]),
    ] {
        assert!(parts.iter().all(|part| line(start).contains(part)), "{parts:?}: {shown}");
    }
    let (_, missing) = shown.split_once("\nMissing:\n").unwrap();
    for says in
        ["drivers of the kernel hold 0000:03:00.1 (mlx5_core)", "`mlx5 bind 0000:03:00.1`", "no IOMMU stands between"]
    {
        assert!(missing.contains(says), "{says}: {shown}");
    }
    assert!(!list(&Machine::ready()).contains("Missing"));
}

#[test]
fn the_list_as_json_has_all_of_it() {
    let found = objects(&two());
    assert_eq!(found[0]["bdf"], CARD);
    assert_eq!(found[0]["iommu_group"]["id"], 12);
    assert_eq!(found[0]["missing"]["kind"], "group-not-viable");
    assert_eq!(found[1]["driver"], "mlx5_core");
    assert_eq!(found[1]["netdevs"], json!([{ "name": "ens1f1", "up": true }]));
    assert_eq!((&found[2]["iommu_group"], &found[2]["ready"]), (&Value::Null, &Value::Bool(false)));
    let ready = objects(&Machine::ready());
    assert_eq!((&ready[0]["ready"], &ready[0]["missing"]), (&Value::Bool(true), &Value::Null));
    assert_eq!(objects(&Machine::new()), json!([]));
}

#[test]
fn a_function_that_is_open_elsewhere_is_not_ready() {
    let machine = Machine::ready();
    machine.process(4242, "testpmd", "dev/vfio/12");
    assert_eq!(objects(&machine)[0]["missing"]["kind"], "busy");
    assert!(list(&machine).contains("testpmd (pid 4242) has IOMMU group 12 open"));
}

#[test]
fn a_machine_without_functions_is_pointed_to_the_model() {
    assert!(list(&Machine::new()).contains("no mlx5 function"));
}

#[test]
fn bind_and_unbind_want_addresses_and_name_what_is_not_there() {
    for command in ["bind", "unbind"] {
        assert!(run(2, &[command]).1.contains("<BDF>"));
        assert!(run(2, &[command, "eth0"]).1.contains("they look like 0000:03:00.0"));
        let (_, error) = run(1, &[command, "fffe:ff:1f.7"]);
        assert!(error.contains("there is no PCI function fffe:ff:1f.7: `mlx5 list`"), "{error}");
        // The first that fails ends it.
        let (output, _) = run(1, &[command, "fffe:ff:1f.7", "fffe:ff:1f.6", "--json"]);
        let told: Value = serde_json::from_str(&output).unwrap();
        let right = json!([{ "bdf": "fffe:ff:1f.7", "kind": "no-such-function", "error": told[0]["error"] }]);
        assert_eq!(told, right);
        assert!(error.contains(told[0]["error"].as_str().unwrap()), "{told} {error}");
    }
}

#[test]
fn a_folder_that_is_no_machine_is_not_taken_for_one_without_cards() {
    let empty = tempfile::tempdir().unwrap();
    let (stdout, stderr) = run(2, &["list", "--root", empty.path().to_str().unwrap()]);
    assert!(stdout.is_empty() && stderr.contains("there is no folder `sys` in it"), "{stdout}{stderr}");
}
