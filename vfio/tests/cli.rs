//! The tool as people use it: exit codes, messages, examples, JSON.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/hex.rs"]
mod hexes;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::tool;
use hexes::hex;
use serde_json::Value;

/// A requester error of a public report, as a kernel prints it.
const DUMP: &str = "\
[  100.000001] mlx5_core 0000:01:00.0: mlx5_ib: dump_cqe:274:(pid 0): dump error cqe
[  100.000002] 00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
[  100.000003] 00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
[  100.000004] 00000020: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
[  100.000005] 00000030: 00 00 00 00 00 00 88 13 08 00 01 13 07 47 67 d2
";

/// The bytes of [`DUMP`].
fn raw_dump() -> Vec<u8> {
    let mut raw = vec![0; 64];
    raw[54..].copy_from_slice(&[0x88, 0x13, 0x08, 0x00, 0x01, 0x13, 0x07, 0x47, 0x67, 0xd2]);
    raw
}

fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8(bytes.to_vec()).expect("UTF-8");
    assert!(!text.contains('\x1b'), "no colours in a pipe: {text:?}");
    text
}

/// Standard output and standard error of a run that ends with `code`.
fn run(code: i32, args: &[&str], input: &str) -> (String, String) {
    let out: Output = tool(args, input.as_bytes());
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(out.status.code(), Some(code), "mlx5 {args:?}\n{stdout}\n{stderr}");
    (stdout, stderr)
}

fn json(code: i32, args: &[&str], input: &str) -> Value {
    serde_json::from_str(&run(code, args, input).0).expect("JSON")
}

#[test]
fn wrong_arguments_end_with_a_helpful_line_and_exit_code_2() {
    for (args, says) in [
        (&[][..], "Usage: mlx5"),
        (&["nonsense"][..], "unrecognized subcommand 'nonsense'"),
        (&["pingpong"][..], "pass the PCI address of a function (BDF, `mlx5 list` shows them) or --model"),
        (&["info"][..], "or --model"),
        (&["cq", "--all"][..], "or --model"),
        (&["info", "03:00"][..], "'03:00' is no PCI address; they look like 0000:03:00.0"),
        (&["info", "03:00.0", "--model"][..], "cannot be used with"),
        (&["info", "--model", "--vectors", "0"][..], "0 is not in 1..=64"),
        (&["info", "--model", "--no-huge-pages"][..], "the software model has no pages of the system's"),
        (&["pingpong", "--model", "--firmware-wait", "0"][..], "0 is not in 1..=86400"),
        (
            &["pingpong", "03:00.0", "--fault", "corrupt"][..],
            "--fault: only the software model can do that; pass --model instead of 0000:03:00.0",
        ),
        (&["pingpong", "03:00.0", "--thread"][..], "--thread: only the software model"),
        (&["pingpong", "03:00.0", "--events", "--event-delay", "1"][..], "--event-delay: only the software model"),
        (&["pingpong", "03:00.0", "--without", "cq_oi"][..], "--without: only the software model"),
        (&["cq", "03:00.0", "--without", "cq_oi"][..], "--without: only the software model"),
        (&["pingpong", "--model", "--iters", "0"][..], "0 is not in 1.."),
        (&["pingpong", "--model", "--iters", "many"][..], "invalid value 'many' for '--iters <N>'"),
        (&["pingpong", "--model", "--size", "0"][..], "0 is not in 1..=1048576"),
        (&["pingpong", "--model", "--cqe", "65536"][..], "at most 65535 entries"),
        (
            &["pingpong", "--model", "--fault", "fire"][..],
            "possible values: corrupt, lost-message, lost-cqe, bad-order",
        ),
        (&["decode", "--as", "poem", "--hex", "00"][..], "possible values: cqe, command, mailbox, eqe, health, text"),
        (&["decode", "--compress", "zip", "--hex", "00"][..], "possible values: hash, csum"),
        (&["decode", "--cqe-size", "32", "--hex", "00"][..], "possible values: 64, 128"),
        (&["decode", "--hex", "00", "file"][..], "cannot be used with"),
    ] {
        let (_, stderr) = run(2, args, "");
        assert!(stderr.contains(says), "mlx5 {args:?} says {says:?}: {stderr}");
    }
}

#[test]
fn unreadable_input_says_what_could_not_be_read_and_exits_2() {
    let short = "00".repeat(63);
    for (args, input, says) in [
        (&["decode"][..], "", "the input is empty"),
        (&["decode"][..], "00 11 2x", "line 1, column 8: 'x' in '2x' is not a hex digit"),
        (&["decode"][..], "0 11", "odd number of digits"),
        (&["decode", "--hex", &short][..], "", "63 bytes: possible are multiples of 64"),
        (&["decode", "--as", "mailbox", "--hex", "0011"][..], "", "2 bytes: a mailbox block has 576 bytes"),
        (&["decode"][..], "mlx5_core 0000:01:00.0: hello\n", "nothing in 1 line(s) that is known"),
        (&["decode", "--as", "text"][..], "mlx5_core: something", "nothing in 1 line(s) that is known"),
        (&["decode", "no-such-file"][..], "", "cannot read no-such-file"),
        (&["decode", "--hex", &"a5".repeat(64)][..], "", "look like nothing that is known"),
    ] {
        let (stdout, stderr) = run(2, args, input);
        assert!(stdout.is_empty() && stderr.contains(says), "mlx5 {args:?} says {says:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn a_log_a_file_and_raw_bytes_decode_alike() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut from_stdin = json(0, &["decode", "--json"], DUMP);
    assert_eq!(from_stdin[0]["syndrome_name"], "REMOTE_ACCESS_ERR");
    assert_eq!(from_stdin[0]["qpn"], 275);
    assert_eq!((&from_stdin[0]["line"], &from_stdin[0]["device"]), (&1.into(), &"0000:01:00.0".into()));
    std::fs::write(dir.join("alike.txt"), DUMP).unwrap();
    assert_eq!(json(0, &["--json", "decode", "alike.txt"], ""), from_stdin);
    let raw = raw_dump();
    std::fs::write(dir.join("alike.bin"), &raw).unwrap();
    // What only a log tells.
    let entry = from_stdin[0].as_object_mut().unwrap();
    entry.retain(|key, _| !["line", "lines", "device", "seconds", "source"].contains(&key.as_str()));
    assert_eq!(json(0, &["decode", "--json", "alike.bin"], ""), from_stdin);
    assert_eq!(json(0, &["decode", "--json", "--hex", &hex(&raw)], ""), from_stdin);
    let all_at_once = tool(&["decode", "--json", "-"], &raw);
    assert_eq!(serde_json::from_slice::<Value>(&all_at_once.stdout).unwrap(), from_stdin);
}

#[test]
fn decoding_tells_what_happened_and_why_in_words() {
    let (stdout, _) = run(0, &["decode"], &format!("something else\n{DUMP}"));
    for says in [
        "A send work request (RDMA_WRITE) of queue 0x113 failed: REMOTE_ACCESS_ERR (0x13)",
        "IBV_WC_REM_ACCESS_ERR",
        "Usual causes",
        "What to do next",
        "1 line(s) of other text were passed over",
    ] {
        assert!(stdout.contains(says), "{says:?}: {stdout}");
    }
    let (twice, _) = run(0, &["decode"], &[DUMP, DUMP].concat());
    assert!(
        twice.starts_with("[1 of 2] cqe (kernel), lines 1, 2\n")
            && twice.contains("\n[2 of 2] cqe (kernel), lines 6, 7\n"),
        "{twice}"
    );
}

#[test]
fn pingpong_says_that_it_is_the_model_and_passes() {
    let (stdout, stderr) = run(0, &["pingpong", "--model", "--iters", "100"], "");
    let first = stdout.lines().next().unwrap();
    assert!(first.contains("oftware model") && first.contains("not a card's"), "{first}");
    for says in ["100 of 100 round trips", "violations  0", "teardown    clean", "result      passed"] {
        assert!(stdout.contains(says), "{says:?}: {stdout}");
    }
    assert!(stderr.is_empty(), "{stderr}");
}

#[test]
fn pingpong_verifies_every_payload_at_all_sizes() {
    for (iters, size, cqe) in
        [(1, 1, 1), (50, 63, 2), (50, 64, 3), (50, 65, 1), (40, 1025, 100), (33, 5000, 31), (2, 1 << 20, 7)]
    {
        let (i, s, c) = (iters.to_string(), size.to_string(), cqe.to_string());
        let got = json(0, &["pingpong", "--model", "--json", "--iters", &i, "--size", &s, "--cqe", &c], "");
        assert_eq!(got["iters"], iters);
        assert_eq!(got["verified"], iters, "each iteration's payload was compared: {got}");
        assert_eq!(got["violations"], 0);
        assert!(got["commands"].as_u64().unwrap() > 30, "{got}");
        assert!(got["cq"]["cqe"].as_u64().unwrap() >= cqe, "{got}");
        assert_eq!(got["cq"]["cqe_size"], 64);
        assert_eq!(got["teardown"], "clean");
        assert_eq!(got["error"], Value::Null);
    }
}

#[test]
fn each_fault_is_found_named_and_exits_1() {
    for (fault, says) in [
        ("corrupt", "payload mismatch at iteration 56, byte 40: "),
        ("lost-cqe", "completion missing: B's receive with wr_id 56 did not complete"),
        ("bad-order", "completion out of order at B's receive queue: expected wr_id 56, got 57"),
    ] {
        let args = ["pingpong", "--model", "--iters", "104", "--fault", fault];
        let (stdout, stderr) = run(1, &args, "");
        assert!(stderr.contains(says), "{fault}: {stderr}");
        assert!(stdout.contains("result      FAILED") && stdout.contains("teardown    clean"), "{stdout}");
        let got = json(1, &[&args[..], &["--json"]].concat(), "");
        assert!(got["error"].as_str().unwrap().contains(says), "{got}");
        assert!(got["verified"].as_u64().unwrap() < 104, "{got}");
    }
}

#[test]
fn a_fault_that_does_not_show_is_not_taken_for_success() {
    let (_, stderr) = run(1, &["pingpong", "--model", "--iters", "1", "--fault", "bad-order"], "");
    assert!(stderr.contains("did not show"), "{stderr}");
}

#[test]
fn trace_lists_every_command_with_status_and_time() {
    let got = json(0, &["pingpong", "--model", "--iters", "1", "--trace", "--json"], "");
    let trace = got["trace"].as_array().unwrap();
    assert_eq!(trace.len() as u64, got["commands"].as_u64().unwrap());
    assert!(trace.iter().all(|c| c["status"] == "ok" && c["ns"].as_u64().is_some()), "{got}");
    let names: Vec<&str> = trace.iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!((names[0], names[names.len() - 1]), ("ENABLE_HCA", "DISABLE_HCA"));
    for (name, count) in [("CREATE_CQ", 2), ("CREATE_QP", 2), ("RTR2RTS_QP", 2), ("DESTROY_QP", 2), ("DESTROY_CQ", 2)] {
        assert_eq!(names.iter().filter(|n| **n == name).count(), count, "{name}");
    }
    let (stdout, _) = run(0, &["pingpong", "--model", "--iters", "1", "--trace"], "");
    assert!(names.iter().all(|n| stdout.contains(n)), "{stdout}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let once = |seed: &str| {
        let args = ["pingpong", "--model", "--iters", "50", "--fault", "corrupt", "--json", "--seed", seed];
        let mut got = json(1, &args, "");
        (got["elapsed_ns"], got["latency"]) = (Value::Null, Value::Null);
        got
    };
    assert_eq!(once("5"), once("5"));
    assert_ne!(once("5")["error"], once("6")["error"], "other payloads");
}

#[test]
fn info_shows_firmware_ids_and_capabilities() {
    let got = json(0, &["info", "--model", "--json"], "");
    assert_eq!(got["firmware"], "16.35.4030");
    assert_eq!(got["device_id"], "0x1018");
    assert_eq!(got["capabilities"]["general"]["cqe_version"], 1);
    let pages = got["capability_pages"].as_array().unwrap();
    let page = |name: &str| pages.iter().find(|page| page["page"] == name && page["mode"] == "current").unwrap();
    // PRM, HCA capabilities: cqe_version is bits 3:0 of dword 0x3c, the low half of byte 0x3f.
    assert_eq!(&page("cmd_hca_cap")["hex"].as_str().unwrap()[2 * 0x3f + 1..][..1], "1");
    let (raw, _) = run(0, &["info", "--model", "--raw"], "");
    assert!(raw.contains("cmd_hca_cap, current (4096 bytes; rows of zeros are left out):"), "{raw}");
    let (stdout, _) = run(0, &["info", "--model", "--firmware-wait", "1", "--vectors", "3"], "");
    for says in ["Software model", "16.35.4030", "0x1018", "log_max_cq_sz", "log2 of the most entries of a CQ."] {
        assert!(stdout.contains(says), "{says:?}: {stdout}");
    }
}

/// What tells one machine from all others is not in what people paste unless they ask for it.
#[test]
fn addresses_are_shown_only_when_asked_for() {
    let mac = mlx5_model::ModelConfig::default().mac;
    let mac: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    let [colons, plain] = [mac.join(":"), mac.concat()];
    let fields = ["mac", "gid", "node_guid", "system_image_guid"];
    for shown in [false, true] {
        let args: &[&str] = if shown { &["info", "--model", "--ids"] } else { &["info", "--model"] };
        let got = json(0, &[args, &["--json"]].concat(), "");
        let (text, _) = run(0, args, "");
        for field in fields {
            assert_eq!(got[field].is_string(), shown, "{field}: {got}");
            assert_eq!(text.lines().any(|line| line.trim_start().split(' ').next() == Some(field)), shown, "{text}");
        }
        for told in [&text, &got.to_string()] {
            assert_eq!(told.contains(&colons), shown, "{told}");
            assert!(shown || !told.contains(&plain[..6]), "{told}");
        }
    }
}

/// No other command tells them either, whatever it is asked for and however it ends.
#[test]
fn no_command_tells_addresses_unasked() {
    let mac = mlx5_model::ModelConfig::default().mac;
    // In one piece, in the middle of a GID and a GUID, with colons.
    let hex: String = mac[..3].iter().map(|byte| format!("{byte:02x}")).collect();
    let marks =
        [hex.clone(), hex[2..].to_string() + "ff", "15:b3".into(), "15b3:ff".into(), "02, 15".into(), "2, 21".into()];
    for (code, options) in [
        (0, "pingpong --iters 4 --trace"),
        (0, "pingpong --iters 4 --trace --transport ud --srq --events"),
        (1, "pingpong --iters 8 --transport ud --fault lost-message"),
        (1, "pingpong --iters 8 --fault corrupt --trace"),
        (0, "cq"),
        (1, "cq --cqe 0"),
        (0, "info --raw"),
    ] {
        for json in [&[][..], &["--json"]] {
            let args: Vec<&str> = options.split(' ').chain(["--model"]).chain(json.iter().copied()).collect();
            let (stdout, stderr) = run(code, &args, "");
            let told = (stdout + &stderr).to_lowercase();
            assert!(marks.iter().all(|mark| !told.contains(mark)), "{options}: {told}");
        }
    }
}

/// The address is beyond what machines have.
#[test]
fn a_function_that_is_not_there_is_told_in_text_and_in_json() {
    let bdf = "ffff:ff:1f.7";
    for command in ["info", "pingpong", "cq", "selftest"] {
        let (stdout, stderr) = run(1, &[command, bdf], "");
        assert!(stdout.is_empty() && stderr.starts_with("error: "), "{stdout}{stderr}");
        let got = json(1, &[command, bdf, "--json"], "");
        assert_eq!(got["device"], bdf, "{got}");
        assert!(stderr.contains(got["error"].as_str().unwrap()), "{got} {stderr}");
        assert_eq!(got["kind"], "no-such-function", "{got}");
    }
}

/// The commands under "Examples:" of a help text, their comments cut off.
fn examples(help: &str) -> Vec<String> {
    let (_, examples) = help.split_once("Examples:\n").expect("examples");
    let lines = examples.lines().take_while(|l| l.starts_with("  "));
    lines.map(|l| l.trim().split("   ").next().unwrap().trim().to_string()).collect()
}

#[test]
fn every_example_of_the_help_runs() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(dir.join("dump.txt"), DUMP).unwrap();
    std::fs::write(dir.join("entry.bin"), raw_dump()).unwrap();
    // A title of a session of two, and its array.
    let mut ring = vec![0; 128];
    (ring[47], ring[63]) = (2, 0x2c);
    std::fs::write(dir.join("ring.bin"), ring).unwrap();
    let mut ran = 0;
    let commands = ["list", "bind", "unbind", "selftest", "pingpong", "cq", "info", "decode"];
    let commands = commands.map(|command| format!("{command} --help"));
    for subject in std::iter::once("--help").chain(commands.iter().map(String::as_str)) {
        let subject: Vec<&str> = subject.split(' ').collect();
        let of_others = |example: &String| example.starts_with("sudo chown");
        for example in examples(&run(0, &subject, "").0).into_iter().filter(|example| !of_others(example)) {
            let own = |part: &&str| part.trim_start_matches("sudo ").starts_with("mlx5 ");
            let command = example.split(['|', '>']).map(str::trim).find(own).expect("the tool");
            let command = command.replace("\"$(xxd -p entry.bin)\"", &hex(&raw_dump())).replace('\'', "");
            // No machine has a function there.
            let command = command.replace("0000:03:00.0", "ffff:ff:1f.7");
            let command = command.replace("03:00.0", "ffff:ff:1f.7").replace("03:00.1", "ffff:ff:1f.6");
            assert!(!command.contains("03:00"), "this may be a function of this machine: {command}");
            let args: Vec<&str> = command.trim_start_matches("sudo ").split_whitespace().collect();
            let refused = ["ffff:ff:1f.7", "--fault", "--cqe 0", "--without cqe_compression"];
            let code = i32::from(refused.iter().any(|option| command.contains(option)));
            let (stdout, stderr) = run(code, &args[1..], if example.contains("| mlx5") { DUMP } else { "" });
            assert!(!stdout.is_empty() || stderr.contains("ffff:ff:1f.7"), "{example}");
            ran += 1;
        }
    }
    println!("{ran} examples ran");
    assert!(ran >= 40, "{ran}");
}

fn readme() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).unwrap()
}

/// Those on the model pass; those on a function are understood, and there is none of that address.
#[test]
fn the_commands_of_the_readme_run() {
    let (mut on_model, mut on_function) = (0, 0);
    for line in readme().lines().filter_map(|line| line.strip_prefix("    ")) {
        let line = line.replace("cargo run --release -p mlx5-vfio --", "mlx5").replace("0000:03:00.0", "ffff:ff:1f.7");
        let args: Vec<&str> = line.trim_start_matches("sudo ").split(' ').collect();
        assert!(!line.contains("03:00"), "{line}");
        // The longest one is an example of the help too.
        if args[0] != "mlx5" || args.contains(&"--all") {
            continue;
        } else if args.contains(&"--model") {
            run(0, &args[1..], "");
            on_model += 1;
        } else if args.contains(&"ffff:ff:1f.7") {
            let (_, stderr) = run(1, &args[1..], "");
            assert!(stderr.contains("there is no PCI function ffff:ff:1f.7"), "{stderr}");
            on_function += 1;
        }
    }
    assert!(on_model >= 5 && on_function >= 5, "{on_model}, {on_function}");
}

#[test]
fn the_example_of_the_readme_decodes() {
    let readme = readme();
    let example = readme.lines().find_map(|l| l.strip_prefix("    mlx5 decode --hex ")).expect("an example");
    let (stdout, _) = run(0, &["decode", "--hex", example.trim_matches('"')], "");
    assert!(stdout.contains("failed: MW_BIND_ERR (0x6)"), "{stdout}");
}

#[test]
fn a_closed_pipe_ends_the_tool_without_a_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mlx5"))
        .args(["info", "--model"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert_eq!(text(&out.stderr), "");
}
