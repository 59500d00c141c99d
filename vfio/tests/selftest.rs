//! `mlx5 selftest` on the model: what a good device, a lesser one and one that misbehaves look like in the report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;

use common::tool;
use serde_json::Value;

/// What runs always, before the steps and behind them.
const BEFORE: [&str; 2] = ["bring-up", "loopback"];
const BEHIND: [&str; 4] = ["health", "teardown", "second-bring-up", "nothing-left"];

/// Standard output and standard error of `mlx5 selftest --model` with options, which ends with `code`.
fn selftest(code: i32, options: &str) -> (String, String) {
    let args: Vec<&str> = ["selftest"].into_iter().chain(options.split_whitespace()).collect();
    let out = tool(&args, b"");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(out.status.code(), Some(code), "mlx5 {args:?}\n{stdout}\n{stderr}");
    (stdout, stderr)
}

fn json(code: i32, options: &str) -> Value {
    serde_json::from_str(&selftest(code, &format!("--model {options} --json")).0).expect("JSON")
}

fn steps(report: &Value) -> &[Value] {
    report["steps"].as_array().expect("steps")
}

/// The names of the steps that ended so.
fn ended(report: &Value, result: &str) -> BTreeSet<String> {
    let so = steps(report).iter().filter(|step| step["result"] == result);
    so.map(|step| step["step"].as_str().unwrap().to_string()).collect()
}

/// The names of all steps, as the tool lists them.
fn names() -> Vec<String> {
    let list: Value = serde_json::from_str(&selftest(0, "--list --json").0).expect("JSON");
    list.as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap().to_string()).collect()
}

#[test]
fn a_good_device_passes_every_step() {
    let report = json(0, "");
    let all: BTreeSet<String> = names().into_iter().collect();
    assert_eq!(ended(&report, "pass"), all);
    assert_eq!(report["pass"], all.len(), "{report}");
    assert_eq!((&report["fail"], &report["not_offered"], &report["not_run"]), (&0.into(), &0.into(), &0.into()));
    assert_eq!(
        (&report["result"], &report["error"], &report["complete"]),
        (&"passed".into(), &Value::Null, &true.into())
    );
    assert_eq!(report["commands"]["failed"], Value::Array(vec![]), "{report}");
    // As CapConfig and ModelConfig say.
    for (fact, value) in [("firmware", "16.35.4030"), ("device_id", "0x1018"), ("issi", "1"), ("port", "up")] {
        assert_eq!(report["facts"][fact], value, "{report}");
    }
    assert_eq!(report["counters"]["health"], "Ok");
}

/// Three sizes; plain and five formats in two layouts each.
#[test]
fn there_is_a_step_for_each_kind_of_entries() {
    let all = names();
    for size in ["cq-64", "cq-128", "cq-128-pad"] {
        assert!(all.iter().any(|name| name == size));
        for format in ["hash", "csum", "csum-stridx", "ftag-stridx", "l34h-stridx"] {
            for layout in ["basic", "enhanced"] {
                let name = format!("{size}-{format}-{layout}");
                assert!(all.contains(&name), "{name}");
            }
        }
    }
    let unique: BTreeSet<&String> = all.iter().collect();
    assert_eq!(unique.len(), all.len());
    assert_eq!([&all[0], &all[1]], BEFORE);
    assert!(all.ends_with(&BEHIND.map(String::from)));
}

/// The page as the PRM lays it out: `cqe_version` in the low half of byte 0x3f, `log_max_qp` in the low five bits of byte 0x13.
#[test]
fn the_pages_of_capabilities_are_there_as_they_are() {
    let report = json(0, "--only port");
    let pages = report["capability_pages"].as_array().unwrap();
    let hex = |page: &str, mode: &str| {
        let found = pages.iter().find(|p| p["page"] == page && p["mode"] == mode);
        found.unwrap_or_else(|| panic!("{page} {mode}"))["hex"].as_str().unwrap().to_string()
    };
    let byte = |hex: &str, at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
    for mode in ["current", "max"] {
        let general = hex("cmd_hca_cap", mode);
        assert_eq!(general.len(), 2 * 4096);
        assert_eq!((byte(&general, 0x3f) & 0xf, byte(&general, 0x13) & 0x1f), (1, 17), "{mode}");
    }
    // Compare and swap, fetch and add; RoCE v2.
    assert_eq!(byte(&hex("atomic_caps", "current"), 0x13), 3);
    assert_eq!(byte(&hex("roce_cap", "current"), 0x13), 4);
    let (text, _) = selftest(0, "--model --only port");
    assert!(text.contains("\ncmd_hca_cap, current (4096 bytes; rows of zeros are left out):\n  000: "), "{text}");
}

/// The model's MAC address is 02:15:b3:00:00:01; GID and GUIDs are made of it.
#[test]
fn what_names_the_machine_is_told_only_when_asked_for() {
    let marks = ["02:15:b3", "15b3:ff", "15:b3ff", "0215b3", "15b3ff"];
    for options in ["", "--json", "--only port", "--infiniband --only port --json", "--port-down --only ud"] {
        let (text, _) = selftest(0, &format!("--model {options}"));
        let lower = text.to_lowercase();
        assert!(marks.iter().all(|mark| !lower.contains(mark)), "{text}");
        let (text, _) = selftest(0, &format!("--model --ids {options}"));
        assert!(text.contains("0215b3fffe000001"), "{text}");
        // An InfiniBand port has no MAC address.
        assert_eq!(text.contains("02:15:b3:00:00:01"), !options.contains("--infiniband"), "{text}");
        assert!(!text.contains("00:00:00:00:00:00"), "{text}");
    }
}

/// What each capability is needed for (PRM `cmd_hca_cap`, `atomic_caps`), and its name in the report.
#[test]
fn what_is_not_offered_names_the_capability_and_its_value_and_does_not_count_as_passed() {
    let all = names();
    let of =
        |fits: &dyn Fn(&str) -> bool| -> BTreeSet<String> { all.iter().filter(|name| fits(name)).cloned().collect() };
    let compressed = |name: &str| name.ends_with("-basic") || name.ends_with("-enhanced") || name == "cq-laps";
    let table: [(&str, &str, BTreeSet<String>); 13] = [
        ("cq_oi", "cq_oi", of(&|name| name == "cq-ignore-overrun")),
        ("cq_resize", "cq_resize", of(&|name| name == "cq-resize")),
        ("cq_moderation", "cq_moderation", of(&|name| name == "cq-moderation")),
        ("log_max_rmp", "log_max_srq", of(&|name| name.starts_with("srq"))),
        ("atomic", "atomic", of(&|name| name == "rc-atomics")),
        ("cqe_compression", "cqe_compression", of(&compressed)),
        ("cqe_compression_128", "cqe_compression_128", of(&|name| name.starts_with("cq-128") && compressed(name))),
        ("mini_cqe_resp_stride_index", "mini_cqe_resp_stride_index", of(&|name| name.contains("-csum-stridx-"))),
        ("mini_cqe_resp_flow_tag", "mini_cqe_resp_flow_tag", of(&|name| name.contains("-ftag-"))),
        ("mini_cqe_resp_l3_l4_tag", "mini_cqe_resp_l3_l4_tag", of(&|name| name.contains("-l34h-"))),
        (
            "enhanced_cqe_compression",
            "enhanced_cqe_compression",
            of(&|name| name.ends_with("-enhanced") || name == "cq-laps"),
        ),
        ("cqe_128_always", "cqe_128_always", of(&|name| name.starts_with("cq-128-pad"))),
        ("sctr_data_cqe", "sctr_data_cqe", of(&|name| name.starts_with("rc-inline-cqe"))),
    ];
    for (without, capability, right) in table {
        assert!(!right.is_empty(), "{without}");
        let report = json(0, &format!("--quick --without {without}"));
        assert_eq!(ended(&report, "not offered"), right, "{without}");
        assert_eq!(report["not_offered"], right.len(), "{without}");
        assert_eq!(report["pass"], all.len() - right.len(), "{without}: {report}");
        for step in steps(&report).iter().filter(|step| step["result"] == "not offered") {
            let missing = &step["missing"];
            assert_eq!((&missing["page"], &missing["value"]), (&"cmd_hca_cap".into(), &0.into()), "{step}");
            assert_eq!(missing["capability"], capability, "{step}");
            assert_eq!((&step["found"], &step["error"]), (&Value::Null, &Value::Null), "{step}");
        }
    }
    let (text, _) = selftest(0, "--model --only cq-resize --without cq_resize");
    let line = text.lines().find(|line| line.starts_with("  cq-resize ")).unwrap();
    assert!(line.contains(" not offered ") && line.ends_with("  cmd_hca_cap.cq_resize is 0"), "{line}");
    assert!(
        text.contains("Result: passed (6 pass, 0 fail, 1 not offered, 0 not run; the other steps were not asked for)")
    );
}

/// On a device without real time, times of day are made of ticks.
#[test]
fn a_device_without_real_time_stamps_passes() {
    for without in ["real_time_ts", "driver_version", "cq_period_mode_modify"] {
        let report = json(0, &format!("--quick --without {without}"));
        assert_eq!(ended(&report, "pass").len(), names().len(), "{without}: {report}");
    }
}

/// What the capabilities for the way back to the port leave (PRM `cmd_hca_cap`, `roce_cap`): without RoCE and without being
/// forced back there is no connection on Ethernet; only reliable connections are forced back there, on InfiniBand the others too,
/// whatever the capability says; an InfiniBand port has no LID without a link.
#[test]
fn what_the_port_cannot_do_is_not_offered() {
    let all = names();
    let connected = |name: &&String| {
        let without = ["bring-up", "capabilities", "port", "clock"];
        !without.contains(&name.as_str()) && !BEHIND.contains(&name.as_str())
    };
    let none: BTreeSet<String> = all.iter().filter(connected).cloned().collect();
    let these = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|name| (*name).to_string()).collect() };
    for (options, missing, says) in [
        ("--infiniband", these(&[]), ""),
        ("--port-down", these(&[]), ""),
        ("--without fl_rc_qp_when_roce_enabled", these(&[]), ""),
        ("--infiniband --port-down", these(&[]), ""),
        ("--infiniband --port-down --without fl_rc_qp_when_roce_disabled", none.clone(), "the port is down, "),
        ("--infiniband --without ib_virt --only port", these(&["port"]), "cmd_hca_cap.ib_virt is 0"),
        ("--without roce", these(&["uc", "ud"]), "cmd_hca_cap.roce is 0"),
        ("--without roce,fl_rc_qp_when_roce_disabled", none.clone(), "cmd_hca_cap.roce is 0"),
    ] {
        let options = format!("--quick --model {options}");
        let (text, stderr) = selftest(i32::from(missing == none), &options);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("  not offered  ")).collect();
        let got: BTreeSet<String> =
            lines.iter().filter_map(|l| l.split_whitespace().next()).map(String::from).collect();
        assert_eq!(got, missing, "{options}: {text}");
        assert!(lines.iter().all(|line| line.contains(says)), "{options}: {text}");
        assert!(text.contains(" 0 fail, ") && text.contains(" 0 not run"), "{options}: {text}");
        assert_eq!(text.ends_with("; no connection could be tried)\n"), missing == none, "{options}: {text}");
        assert_eq!(text.contains("\nResult: INCOMPLETE ("), missing == none, "{options}: {text}");
        let says = "selftest: no connection could be tried: ";
        assert_eq!(stderr.contains(says), missing == none, "{options}: {stderr}");
    }
}

/// The way that is taken stands in the report.
#[test]
fn a_connection_is_forced_back_where_the_port_has_no_address_that_can_be_reached() {
    for (options, found) in [
        ("", "with the port up"),
        ("--infiniband", "with the port up, forced to loop back"),
        ("--port-down", "with the port down, forced to loop back"),
        ("--without fl_rc_qp_when_roce_enabled --port-down", "with the port down"),
        ("--infiniband --without fl_rc_qp_when_roce_disabled", "with the port up"),
        ("--without roce", "with the port up, forced to loop back"),
    ] {
        let report = json(0, &format!("--only port {options}"));
        let step = steps(&report).iter().find(|step| step["step"] == "loopback").unwrap();
        assert_eq!(step["found"], found, "{options}");
    }
}

/// Steps with payloads, without, with completions that are polled in each way.
const STEPS: [&str; 14] = [
    "loopback",
    "cq-64",
    "cq-64-hash-basic",
    "cq-128-pad-csum-enhanced",
    "timestamps",
    "cq-resize",
    "cq-moderation",
    "events",
    "rc-inline-cqe-64",
    "rc-rdma",
    "uc",
    "ud",
    "srq",
    "user-memory",
];

/// Each fault of traffic, once, at the first message or completion of a step: that step fails, and it alone.
#[test]
fn a_device_that_misbehaves_is_noticed_by_the_step_that_it_does_it_in() {
    let empty = ["loopback", "timestamps", "cq-resize", "cq-moderation", "events"];
    // The messages and completions of the step before it.
    let loopback = |fault: &str| {
        if fault == "corrupt" || fault == "lost-message" {
            0
        } else if fault == "fail-send" {
            1
        } else {
            2
        }
    };
    for fault in
        ["corrupt", "fail-send", "no-answer", "lost-message", "lost-cqe", "bad-order", "wrong-counter", "late-cqe"]
    {
        for step in STEPS {
            let applies = match fault {
                "corrupt" => !empty.contains(&step),
                "lost-message" => step == "uc" || step == "ud",
                // Nothing to change places with.
                "bad-order" => step.starts_with("cq-") || step == "uc" || step == "ud" || step == "srq",
                _ => true,
            };
            if !applies {
                continue;
            }
            let fault_of_first = if fault == "no-answer" { "fail-send" } else { fault };
            let after = if step == "loopback" { 0 } else { loopback(fault_of_first) };
            let only = if step == "loopback" { "port" } else { step };
            let report = json(1, &format!("--only {only} --fault {fault} --fault-after {after}"));
            let failed: Vec<String> = ended(&report, "fail").into_iter().collect();
            assert_eq!(failed, [step], "{fault}: {report}");
            assert_eq!((&report["fail"], &report["result"]), (&1.into(), &"failed".into()), "{fault} {step}");
            assert_eq!(ended(&report, "not run"), BTreeSet::new(), "{fault} {step}");
        }
    }
}

/// A failing step does not end the run.
#[test]
fn after_a_step_that_fails_the_others_run() {
    let report = json(1, "--fault corrupt");
    assert_eq!(ended(&report, "fail").into_iter().collect::<Vec<_>>(), ["cq-64"]);
    assert_eq!(report["pass"], names().len() - 1);
    let error = report["error"].as_str().unwrap();
    assert!(error.starts_with("selftest: cq-64 failed: payload mismatch at iteration 0, byte 0: "), "{error}");
    let (text, stderr) = selftest(1, "--model --fault corrupt");
    assert!(text.contains("\nResult: FAILED (") && stderr.contains(error), "{stderr}");
}

#[test]
fn a_port_without_link_is_tried_and_one_that_does_not_deliver_to_itself_then_offers_no_connection() {
    let report = json(0, "--port-down --only rc,ud");
    assert_eq!((&report["facts"]["port"], &report["not_offered"]), (&"down".into(), &0.into()), "{report}");
    let report = json(1, "--port-down --fault no-answer --only rc,ud");
    assert_eq!((&report["result"], &report["connected"]), (&"incomplete".into(), &false.into()), "{report}");
    let none: BTreeSet<String> = ["loopback", "rc", "ud"].map(String::from).into();
    assert_eq!(ended(&report, "not offered"), none);
    for step in steps(&report).iter().filter(|step| step["result"] == "not offered") {
        assert!(step["missing"]["why"].as_str().unwrap().starts_with("the port is down, "), "{step}");
    }
    // With a link, that is a fault.
    let report = json(1, "--fault no-answer --only rc");
    assert_eq!(ended(&report, "fail").into_iter().collect::<Vec<_>>(), ["loopback"]);
}

/// Result and time of each step stand in columns.
#[test]
fn the_steps_line_up() {
    let (text, _) = selftest(0, "--model --quick");
    let rows = text.lines().skip_while(|line| *line != "Steps:").skip(1).take_while(|line| !line.is_empty());
    let columns: BTreeSet<(usize, usize)> =
        rows.map(|row| (row.find("  pass  ").unwrap(), row.find(" ms").unwrap())).collect();
    assert_eq!(columns.len(), 1, "{text}");
    assert!(text.ends_with(" not run)\n") && text.contains("\nResult: passed ("), "{text}");
    let (list, _) = selftest(0, "--list");
    assert_eq!(list.lines().count(), names().len());
    assert!(list.contains("  entries of 64 bytes, not compressed\n"), "{list}");
    let needs =
        "needs cqe_128_always, cqe_compression, cqe_compression_max_num, cqe_compression_128, enhanced_cqe_compression";
    let line = list.lines().find(|line| line.starts_with("cq-128-pad-hash-enhanced ")).unwrap();
    assert!(line.ends_with(needs), "{line}");
}

#[test]
fn steps_are_chosen_by_name() {
    let ran = |only: &str| -> Vec<String> {
        let report = json(0, &format!("--only {only}"));
        assert_eq!(report["complete"], false, "{report}");
        steps(&report).iter().map(|step| step["step"].as_str().unwrap().to_string()).collect()
    };
    let with = |steps: &[&str]| -> Vec<String> {
        BEFORE.iter().chain(steps).chain(&BEHIND).map(|name| (*name).to_string()).collect()
    };
    assert_eq!(ran("uc,cq-64"), with(&["cq-64", "uc"]));
    assert_eq!(ran("rc-inline*,port"), with(&["port", "rc-inline-send", "rc-inline-cqe-64", "rc-inline-cqe-128"]));
    for (options, says) in [
        ("--model --only nonsense", "--only nonsense: there is no such step; --list names them"),
        ("--model --only cq-64,cq-65", "--only cq-65"),
        ("", "pass the PCI address of a function"),
        ("--model --fault-after 3", "--fault"),
        ("0000:03:00.0 --port-down", "--port-down: only the software model can do that"),
        ("0000:03:00.0 --without cq_oi", "--without: only the software model can do that"),
    ] {
        let (stdout, stderr) = selftest(2, options);
        assert!(stdout.is_empty() && stderr.contains(says), "{options} says {says:?}: {stderr}");
    }
}
