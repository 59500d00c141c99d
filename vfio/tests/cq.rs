//! `mlx5 cq` and the options of `mlx5 pingpong` about completion queues: every kind of queue, what is refused and why.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::tool;
use serde_json::Value;

const FORMATS: [&str; 5] = ["hash", "csum", "csum-stridx", "ftag-stridx", "l34h-stridx"];
const LAYOUTS: [&str; 2] = ["basic", "enhanced"];

/// Standard output and standard error of a run that ends with `code`.
fn run(code: i32, args: &[&str]) -> (String, String) {
    let out = tool(args, b"");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(out.status.code(), Some(code), "mlx5 {args:?}\n{stdout}\n{stderr}");
    assert!(!stdout.contains('\x1b') && !stderr.contains('\x1b'), "no colours in a pipe: {stdout:?} {stderr:?}");
    (stdout, stderr)
}

fn json(code: i32, args: &[&str]) -> Value {
    serde_json::from_str(&run(code, &[args, &["--json"]].concat()).0).expect("JSON")
}

/// `mlx5 cq --model` with options given as in a shell.
fn cq(code: i32, options: &str) -> Value {
    let args: Vec<&str> = ["cq", "--model"].into_iter().chain(options.split_whitespace()).collect();
    json(code, &args)
}

/// Size, padding, format and layout, entries asked for.
type Combination = (u64, bool, Option<(&'static str, &'static str)>, u64);

/// Every combination in the order of the table.
fn combinations() -> Vec<Combination> {
    let formats: Vec<_> = FORMATS.iter().flat_map(|f| LAYOUTS.iter().map(|l| Some((*f, *l)))).collect();
    let mut all = vec![];
    for (size, pad) in [(64, false), (64, true), (128, false), (128, true)] {
        for format in [None].into_iter().chain(formats.iter().copied()) {
            all.extend([1, 7, 100, 1000].map(|cqe| (size, pad, format, cqe)));
        }
    }
    all
}

/// The man page: padding is for entries of 128 bytes. Nothing else is refused on a device that can do everything.
#[test]
fn every_combination_of_the_options_runs_clean_but_padding_of_small_entries() {
    let got = json(0, &["cq", "--model", "--all"]);
    let rows = got["combinations"].as_array().unwrap();
    let expected = combinations();
    assert_eq!(rows.len(), expected.len());
    for (row, (size, pad, format, cqe)) in rows.iter().zip(expected) {
        let layout = format.map(|(_, layout)| layout);
        assert_eq!((row["cqe_size"].as_u64(), row["padded"].as_bool()), (Some(size), Some(pad)), "{row}");
        assert_eq!((row["format"].as_str(), row["layout"].as_str()), (format.map(|(f, _)| f), layout), "{row}");
        assert_eq!(row["asked_cqe"].as_u64(), Some(cqe), "{row}");
        if pad && size == 64 {
            assert_eq!(
                (&row["result"], &row["errno"], &row["errno_name"]),
                (&"refused".into(), &22.into(), &"EINVAL".into())
            );
            continue;
        }
        assert_eq!(row["result"], "clean", "{row}");
        assert_eq!(row["cqe"].as_u64(), Some((cqe + 1).next_power_of_two() - 1), "{row}");
        let (trips, all) = (row["round_trips"].as_u64().unwrap(), row["completions"].as_u64().unwrap());
        // A send and a receive at each end.
        assert!(trips >= 64 && all == 4 * trips, "{row}");
        let compressed = row["compressed"].as_u64().unwrap();
        assert!(compressed <= all && (compressed > 0) == (format.is_some() && cqe > 1), "{row}");
    }
    let options = got["options"].as_array().unwrap();
    assert!(
        options.iter().all(|row| row["result"] == "clean" && row["round_trips"].as_u64() >= Some(64)),
        "{options:?}"
    );
    let named = |name: &str| options.iter().any(|row| row["option"] == name);
    for field in
        "0 byte-len imm qp-num src-qp slid sl dlid-path-bits completion-timestamp cvlan flow-tag tm-info completion-timestamp-wallclock 0x7ff 0xf7f"
            .split(' ')
    {
        assert!(named(&format!("--wc-flags {field}")), "{field}: {options:?}");
    }
    for option in ["--flags single-threaded", "--flags ignore-overrun", "--parent-domain"] {
        assert!(named(option), "{option}: {options:?}");
    }
    let clean = 132 + options.len();
    assert_eq!((&got["clean"], &got["refused"], &got["failed"]), (&clean.into(), &44.into(), &0.into()));
}

#[test]
fn the_table_has_a_row_for_each_combination_and_lines_up() {
    let (stdout, stderr) = run(0, &["cq", "--model", "--all"]);
    assert!(stderr.is_empty(), "{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    let head = lines.iter().position(|l| l.trim_start().starts_with("size")).expect("a head");
    let columns: Vec<usize> =
        ["size", "pad", "format", "layout", "cqe", "gives", "round trips", "compressed", "result"]
            .map(|name| lines[head].find(name).expect(name))
            .to_vec();
    let rows: Vec<&str> = lines[head + 1..].iter().copied().take_while(|l| !l.is_empty()).collect();
    let first = |row: &str| row.get(columns[0]..columns[1]).is_some_and(|cell| !cell.trim().is_empty());
    let rows: Vec<&str> = rows.into_iter().filter(|row| first(row)).collect();
    let expected = combinations();
    assert_eq!(rows.len(), expected.len(), "{stdout}");
    for (row, (size, pad, format, cqe)) in rows.into_iter().zip(expected) {
        let cell = |i: usize| row[columns[i]..columns.get(i + 1).map_or(row.len(), |end| (*end).min(row.len()))].trim();
        let (format, layout) = format.unwrap_or(("-", "-"));
        let asked =
            [size.to_string(), if pad { "yes" } else { "no" }.into(), format.into(), layout.into(), cqe.to_string()];
        assert_eq!((0..5).map(cell).collect::<Vec<_>>(), asked, "{row}");
        let result = cell(8);
        let refused = size == 64 && pad;
        assert!(if refused { result.starts_with("EINVAL (22): ") } else { result == "runs clean" }, "{row}");
        // Numbers begin where the column does: nothing has slipped.
        assert!(columns.iter().all(|&at| at == 0 || row.as_bytes()[at - 1] == b' '), "{row}");
    }
    assert_eq!(lines.last(), Some(&"176 combinations and 19 options: 151 run clean, 44 are refused"));
}

/// Cases C-002 and C-003: what is asked for, and what comes.
#[test]
fn a_queue_says_how_many_entries_and_slots_it_has() {
    for (asked, cqe) in [(1, 1), (2, 3), (3, 3), (63, 63), (64, 127), (100, 127), (4095, 4095), (4096, 8191)] {
        for (size, bytes) in [("64", 64), ("128", 128)] {
            let got = cq(0, &format!("--cqe {asked} --cqe-size {size}"));
            assert_eq!((&got["cqe"], &got["slots"]), (&cqe.into(), &(cqe + 1).into()), "{got}");
            assert_eq!((&got["cqe_size"], &got["bytes"]), (&bytes.into(), &((cqe + 1) * bytes).into()), "{got}");
        }
    }
}

#[test]
fn a_queue_says_what_its_entries_are_and_what_polling_gives() {
    let got = cq(0, "--cqe-size 128 --pad --compress csum --layout enhanced --flags ignore-overrun");
    for (field, value) in [
        ("errno", Value::from(0)),
        ("error", Value::Null),
        ("cqe_size", 128.into()),
        ("padded", true.into()),
        ("format", "csum".into()),
        ("layout", "enhanced".into()),
        ("ignores_overrun", true.into()),
        ("real_time", false.into()),
        ("clock_khz", mlx5_model::CapConfig::default().device_frequency_khz.into()),
    ] {
        assert_eq!(got[field], value, "{field}: {got}");
    }
    assert!(got["cqn"].is_u64() && got["most_in_session"].as_u64().unwrap() > 1, "{got}");
    let plain = cq(0, "");
    assert_eq!((&plain["cqe_size"], &plain["padded"], &plain["format"]), (&64.into(), &false.into(), &Value::Null));
    let fields = |options: &str| {
        let got = cq(0, options);
        got["fields"].as_array().unwrap().iter().map(|f| f.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let always = ["wr_id", "status", "opcode", "vendor_err", "wc_flags"];
    assert_eq!(fields("--wc-flags 0"), always);
    assert_eq!(fields("--wc-flags imm")[5..], ["imm_data", "invalidated_rkey"]);
    assert_eq!(fields("--wc-flags byte-len,completion-timestamp")[5..], ["byte_len", "completion_ts"]);
    assert_eq!(fields("--wc-flags standard"), fields("--wc-flags 0x7f"));
    assert_eq!(cq(0, "--wc-flags completion-timestamp-wallclock")["real_time"], true);
    assert_eq!(cq(0, "--wc-flags completion-timestamp-wallclock --without real_time_ts")["real_time"], false);
    for format in FORMATS {
        assert_eq!(cq(0, &format!("--compress {format}"))["format"], format);
    }
    let (stdout, _) = run(0, &["cq", "--model", "--compress", "hash", "--cqe", "100"]);
    for says in [
        "cqe 100",
        "127",
        "128 slots of 64 bytes, 8192 bytes",
        "compressed (hash, basic layout)",
        "imm_data",
        "free-running clock, ",
    ] {
        assert!(stdout.contains(says), "{says}: {stdout}");
    }
    cq(0, "--parent-domain --comp-vector 0 --flags single-threaded");
}

/// Cases C-006, C-008 and C-049: one wrong argument each, with the man page's number.
#[test]
fn what_is_refused_comes_with_its_errno_and_why() {
    const EINVAL: (i32, &str) = (22, "EINVAL");
    const EOPNOTSUPP: (i32, &str) = (95, "EOPNOTSUPP");
    for (options, (errno, name), why) in [
        ("--cqe 0", EINVAL, "cqe is 0"),
        ("--comp-mask 4", EINVAL, "comp_mask"),
        ("--flags 4", EINVAL, "flags"),
        ("--wc-flags 0x1000", EOPNOTSUPP, "wc_flags"),
        ("--dv-comp-mask 0x10", EINVAL, "comp_mask"),
        ("--comp-mask 2", EINVAL, "parent domain"),
        ("--cqe 16777216", EINVAL, "cqe"),
        ("--cqe 65536", EINVAL, "max_cqe"),
        ("--cqe 4294967295", EINVAL, "cqe"),
        ("--cqe-size 96", EINVAL, "64 or 128"),
        ("--compress hash --without cqe_compression", EINVAL, "cqe_compression"),
        ("--compress hash --cqe-size 128 --without cqe_compression_128", EINVAL, "cqe_compression_128"),
        ("--compress csum-stridx --without mini_cqe_resp_stride_index", EOPNOTSUPP, "format"),
        ("--compress ftag-stridx --without mini_cqe_resp_flow_tag", EOPNOTSUPP, "format"),
        ("--compress l34h-stridx --without mini_cqe_resp_l3_l4_tag", EOPNOTSUPP, "format"),
        ("--compress hash --layout enhanced --without enhanced_cqe_compression", EOPNOTSUPP, "enhanced"),
        ("--compress hash,csum", EINVAL, "exactly one"),
        ("--compress 0", EINVAL, "exactly one"),
        ("--layout enhanced", EINVAL, "layout"),
        ("--pad", EINVAL, "128"),
        ("--pad --cqe-size 64", EINVAL, "128"),
        ("--pad --cqe-size 128 --without cqe_128_always", EINVAL, "cqe_128_always"),
        ("--comp-vector 4096", EINVAL, "comp_vector"),
        ("--flags ignore-overrun --without cq_oi", EOPNOTSUPP, "cq_oi"),
    ] {
        let got = cq(1, options);
        assert_eq!((&got["errno"], &got["errno_name"]), (&errno.into(), &name.into()), "{options}: {got}");
        assert!(got["error"].as_str().unwrap().contains(why), "{options}: {got}");
        assert!(got.get("cqn").is_none(), "{got}");
        let args: Vec<&str> = ["cq", "--model"].into_iter().chain(options.split_whitespace()).collect();
        let (stdout, stderr) = run(1, &args);
        let line = format!("{name} ({errno}): ");
        assert!(stdout.contains(&line) && stderr.starts_with("error: ") && stderr.contains(&line), "{stdout}{stderr}");
    }
}

#[test]
fn wrong_options_of_a_queue_end_with_exit_code_2() {
    for (args, says) in [
        ("cq", "or --model"),
        ("cq --model --wc-flags byte-len,colour", "'colour' is neither a number nor one of standard, byte-len"),
        ("cq --model --flags fast", "'fast' is neither a number nor one of single-threaded, ignore-overrun"),
        ("cq --model --flags 0x100000000", "more than 32 bits"),
        ("cq --model --compress zip", "'zip' is neither a number nor one of hash"),
        ("cq --model --compress 256", "more than 8 bits"),
        ("cq --model --comp-mask x", "not a number"),
        ("cq --model --layout tight", "possible values: basic, enhanced"),
        ("cq --model --without magic", "possible values: cq_oi, cq_resize"),
        ("cq --model --cqe -1", "unexpected argument"),
        ("cq --model --all --cqe 5", "cannot be used with"),
        ("pingpong --model --cqe-size 96", "possible values: 64, 128"),
        ("pingpong --model --compress zip", "possible values: hash, csum, csum-stridx, ftag-stridx, l34h-stridx"),
        ("pingpong --model --layout enhanced", "--compress <FORMAT>"),
        ("pingpong --model --pad", "pass --cqe-size 128"),
        ("pingpong --model --pad --cqe-size 64", "pass --cqe-size 128"),
        ("pingpong --model --depth 0", "0 is not in 1..=4096"),
        ("pingpong --model --cqe 63 --depth 33", "makes a ring of 64"),
        ("pingpong --model --cqe 4095 --depth 100 --size 1048576", "more than 64 MiB"),
    ] {
        let (stdout, stderr) = run(2, &args.split_whitespace().collect::<Vec<_>>());
        assert!(stderr.contains(says), "mlx5 {args} says {says:?}: {stderr}");
        assert!(stdout.is_empty(), "{stdout}");
    }
}

#[test]
fn round_trips_over_every_kind_of_queue_say_what_it_was_and_how_many_completions_came_compressed() {
    for (i, format) in FORMATS.into_iter().enumerate() {
        for layout in LAYOUTS {
            let size = if i % 2 == 0 { "128" } else { "64" };
            let pad: &[&str] = if i == 0 { &["--pad"] } else { &[] };
            let args =
                ["pingpong", "--model", "--iters", "100", "--cqe-size", size, "--compress", format, "--layout", layout];
            let got = json(0, &[&args[..], pad].concat());
            assert_eq!(
                (&got["verified"], &got["violations"], &got["error"]),
                (&100.into(), &0.into(), &Value::Null),
                "{got}"
            );
            assert_eq!((&got["cq"]["format"], &got["cq"]["layout"]), (&format.into(), &layout.into()), "{got}");
            assert_eq!(got["cq"]["cqe_size"].as_u64().unwrap().to_string(), size);
            assert_eq!(got["cq"]["padded"], !pad.is_empty());
            let [all, compressed, sessions] =
                ["completions", "compressed", "sessions"].map(|n| got[n].as_u64().unwrap());
            assert!(all == 400 && 300 < compressed && compressed <= all, "{got}");
            assert!(0 < sessions && sessions <= compressed, "{got}");
        }
    }
    let (stdout, _) = run(0, &["pingpong", "--model", "--iters", "100", "--compress", "csum"]);
    assert!(stdout.contains("64 bytes, compressed (csum, basic layout)"), "{stdout}");
    assert!(
        stdout.contains("written     400 completions, ") && stdout.contains(" of them compressed, in "),
        "{stdout}"
    );
}

#[test]
fn a_run_that_was_to_compress_and_never_did_fails_and_says_what_to_change() {
    for more in [&["--depth", "1"][..], &["--cqe", "1"], &["--iters", "1"]] {
        let args = [&["pingpong", "--model", "--iters", "50", "--compress", "hash"][..], more].concat();
        let args: Vec<&str> =
            if more[0] == "--iters" { args[..2].iter().chain(&args[4..]).copied().collect() } else { args };
        let (stdout, stderr) = run(1, &args);
        assert!(stderr.contains("none of ") && stderr.contains("use larger --iters, --cqe or --depth"), "{stderr}");
        assert!(stdout.contains("result      FAILED") && stdout.contains("teardown    clean"), "{stdout}");
    }
}

#[test]
fn faults_in_compressed_queues_are_found_as_in_others() {
    for (fault, says) in [
        ("corrupt", "payload mismatch at iteration 56, byte 40: "),
        ("lost-cqe", "completion missing: B's receive with wr_id 56 did not complete"),
        ("bad-order", "completion out of order at B's receive queue: expected wr_id 56, got 57"),
    ] {
        for layout in LAYOUTS {
            let args =
                ["pingpong", "--model", "--iters", "104", "--compress", "csum", "--layout", layout, "--fault", fault];
            let got = json(1, &args);
            assert!(got["error"].as_str().unwrap().contains(says), "{fault}, {layout}: {got}");
            assert!(got["compressed"].as_u64() > Some(0) && got["teardown"] == "clean", "{got}");
        }
    }
}

#[test]
fn what_the_device_cannot_do_ends_round_trips_with_the_errno() {
    let (_, stderr) = run(1, &["pingpong", "--model", "--compress", "hash", "--without", "cqe_compression"]);
    assert!(stderr.contains("EINVAL (22): "), "{stderr}");
    let args = ["pingpong", "--model", "--compress", "csum-stridx", "--without", "mini_cqe_resp_stride_index"];
    assert!(run(1, &args).1.contains("EOPNOTSUPP (95): "));
}

#[test]
fn short_messages_come_in_the_completion_when_that_is_asked_for() {
    for (cqe_size, size, inlined) in
        [("64", "32", true), ("64", "33", false), ("128", "64", true), ("128", "65", false)]
    {
        let args = ["pingpong", "--model", "--iters", "50", "--inline-cqe", "--cqe-size", cqe_size, "--size", size];
        let got = json(i32::from(!inlined), &args);
        assert_eq!(got["verified"], 50, "{got}");
        // Each round trip has two messages.
        assert_eq!(got["inlined"], if inlined { 100 } else { 0 }, "{got}");
        assert_eq!(got["error"].as_str().is_some_and(|error| error.ends_with("bytes fit (--size)")), !inlined, "{got}");
    }
    let args = ["pingpong", "--model", "--inline-cqe", "--size", "32", "--without", "sctr_data_cqe"];
    assert!(run(1, &args).1.contains("the device has no capability sctr_data_cqe"));
}

#[test]
fn depth_is_what_is_in_flight() {
    for (depth, more) in [("1", &[][..]), ("16", &[]), ("64", &["--compress", "hash"]), ("4096", &["--cqe", "8191"])] {
        let got = json(0, &[&["pingpong", "--model", "--iters", "5000", "--depth", depth], more].concat());
        assert_eq!(got["in_flight"].as_u64().unwrap().to_string(), depth);
    }
}
