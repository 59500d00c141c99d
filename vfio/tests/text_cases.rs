//! Every case whose report has only printed numbers: the line that its program prints decodes to what is known about it, by
//! the library and by the tool. The lines are written here in the forms of these programs' public sources.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/cases.rs"]
mod fixtures;

use common::tool;
use fixtures::{Case, Tally, cases};
use mlx5_vfio::decode::{Kind, Record, decode_text};
use serde_json::{Map, Value, json};

/// Something else that stands in logs, before and behind what is looked for.
const OTHER: &str = "2026-01-02 step 17 of 100, loss 0x1f";

/// The records of a log, the same from the library with and without its kind and from the tool.
fn records(log: &str) -> Vec<Record> {
    let log = format!("{OTHER}\n{log}\n{OTHER}\n");
    let guessed = decode_text(&log, None).unwrap_or_else(|e| panic!("{log}: {e}"));
    assert_eq!(guessed, decode_text(&log, Some(Kind::Text)).expect("decodes"));
    let out = tool(&["decode", "--json"], log.as_bytes());
    assert!(out.status.success(), "{log}\n{}", String::from_utf8_lossy(&out.stderr));
    let objects: Vec<Value> = guessed.iter().map(|r| Value::Object(r.json.clone())).collect();
    assert_eq!(
        serde_json::from_slice::<Value>(&out.stdout).expect("JSON"),
        Value::from(objects),
        "the tool prints the same"
    );
    assert_eq!(guessed.last().expect("a record").json["lines_passed_over"], 2, "{log}");
    guessed
}

/// The one record of a log.
fn record(log: &str) -> Record {
    let mut all = records(log);
    assert_eq!(all.len(), 1, "{log}: {all:#?}");
    assert_eq!((all[0].lines[0], &all[0].json["line"]), (2, &json!(2)), "{log}");
    all.remove(0)
}

/// Whether a sentence of the record has these words.
fn says(record: &Record, words: &str) -> bool {
    let text = record.to_text().split_whitespace().collect::<Vec<_>>().join(" ");
    text.contains(words)
}

/// Keys of `expected` that are not compared with a field, and why.
const NOT_FIELDS: &[(&str, &str)] = &[
    ("base", "a sentence: checked against the record's notes"),
    ("must_set", "a rule for the driver: tested with its polling"),
    ("driver_advice", "a rule for the driver: tested with its polling"),
    ("rule", "a rule"),
    ("driver_choice", "a rule"),
    ("order", "checked by the roles of the records"),
    ("cause", "a sentence: checked against the record's causes"),
    ("earlier_cause", "a sentence: checked with the command's line before it"),
    ("driver_check", "sentences: checked against the record's causes"),
    ("after_timeout", "a sentence: checked against what the record says to do next"),
    ("meaning", "a sentence: checked against the record's causes"),
    ("event_type", "compared with the input"),
    ("cqn_mask", "a rule of bytes"),
    ("not_this", "a sentence about a wrong reading"),
    ("trap", "a sentence about a wrong reading: checked against the record's notes"),
    ("qp_raw_fields", "compared with the record of the queue pair's own line"),
    ("driver_action", "a rule for the driver"),
];

/// What the program of a case printed.
fn completion_line(id: &str, input: &Value) -> String {
    let n = |key: &str| input[key].as_u64().unwrap_or_else(|| panic!("{id} has {key}"));
    let nccl = "host-1:5776:5902 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer 192.0.2.5<33092> with";
    match id {
        // NCCL: everything in decimal, in three ages of its message
        "A-025" => format!(
            "{nccl} error {}, opcode {}, len {}, vendor err {}",
            n("text_status"),
            n("text_opcode"),
            n("text_len"),
            n("text_vendor_err_decimal")
        ),
        "A-026" => format!(
            "{nccl} status={} opcode={} len={} vendor err {} (Recv) localGid ::ffff:192.0.2.1 remoteGids::ffff:192.0.2.5 hca mlx5_0",
            n("text_status"),
            n("text_opcode"),
            n("text_len"),
            n("text_vendor_err_decimal")
        ),
        "A-027" => format!(
            "{nccl} status={} opcode={} len={} vendor err {} (Send)",
            n("text_status"),
            n("text_opcode"),
            n("text_len"),
            n("text_vendor_err_decimal")
        ),
        // a message library that prints both in decimal
        "A-033" => {
            format!("[3] completion failed: status {}, vendor err {}", n("text_status"), n("text_vendor_err_decimal"))
        }
        // perftest: the code in hex
        "A-037" => format!(
            " Completion with error at client\n Failed status {}: wr_id {} syndrom {:#x}\nscnt=128, ccnt=0",
            n("text_status"),
            n("wr_id"),
            n("text_vendor_hex")
        ),
        // the kernel's Ethernet driver: everything in hex
        "A-038" => format!(
            "[ 5181.1] mlx5_core 0000:08:00.0 eth2: Error cqe on cqn {:#x}, ci {:#x}, qn {:#x}, opcode {:#x}, syndrome {:#x}, vendor syndrome {:#x}",
            n("cqn"),
            n("ci"),
            n("qn"),
            n("opcode"),
            n("syndrome"),
            n("vendor_syndrome")
        ),
        _ => ucx_line(id, input),
    }
}

/// What UCX printed, in three ages of its messages.
fn ucx_line(id: &str, input: &Value) -> String {
    let n = |key: &str| input[key].as_u64().unwrap_or_else(|| panic!("{id} has {key}"));
    match id {
        // UCX: two lines, or one in the versions of 2017
        "A-030" => format!(
            "[host-1:481792:0:481792] ib_mlx5_log.c:179  Local protection on mlx5_0:1/IB (synd {:#x} vend {:#x} hw_synd {})\n\
             [host-1:481792:0:481792] ib_mlx5_log.c:179  RC QP {:#x} wqe[{}]: opcode RECV",
            n("synd"),
            n("vend"),
            input["hw_synd"].as_str().unwrap(),
            n("qp"),
            n("wqe_counter")
        ),
        "A-032" => format!(
            "[1503576000.1] [host-1:4242 :0]    ib_mlx5_log.c:101  UCX  ERROR Error on QP {:#x} wqe[{}]: Invalid request (synd {:#x} vend {:#x}) opcode {}",
            n("qp"),
            n("wqe_index"),
            n("synd"),
            n("vend"),
            input["wqe"].as_str().unwrap()
        ),
        "A-034" => format!(
            "[host-1:77   :0:77]  rc_verbs_iface.c:99   UCX  ERROR send completion with error: {} qpn {:#x} wrid {:#x} vendor_err {:#x}",
            input["text"].as_str().unwrap(),
            n("qpn"),
            n("wr_id"),
            n("vendor_err")
        ),
        _ => panic!("{id}: a new case: in which form does its program print it?"),
    }
}

#[test]
fn printed_error_completions_decode_to_what_the_reports_say() {
    let mut tally = Tally::default();
    for Case { id, input, expected } in cases("error-completion-text") {
        tally.cases += 1;
        if input.get("sequence").is_some() || input.get("flush").is_some() {
            continue; // a_sequence_… and a_flush_… below
        }
        let got = record(&completion_line(&id, &input));
        tally.compare(&id, &expected, &got.json, NOT_FIELDS);
        assert_eq!(got.json["what"], "completion", "{id}");
        match id.as_str() {
            "A-025" => assert!(says(&got, "nccl prints the vendor code in decimal: 81 is 0x51"), "{got:#?}"),
            "A-027" => assert!(says(&got, "left-over memory") && got.json["direction"] == "Send", "{got:#?}"),
            "A-030" => assert_eq!((&got.json["qpn"], &got.json["hw_err_synd"]), (&input["qp"], &json!(146))),
            "A-034" => assert_eq!((&got.json["qpn"], &got.json["wr_id"]), (&input["qpn"], &input["wr_id"])),
            "A-037" => assert!(!says(&got, "in decimal:") && got.json["side"] == "client", "{got:#?}"),
            "A-038" => assert!(says(&got, "The key belongs to another function"), "{got:#?}"),
            _ => {}
        }
    }
    tally.finish("error-completion-text", 11);
}

#[test]
fn a_sequence_gives_one_cause_for_each_peer_and_its_flushes_once() {
    let case =
        cases("error-completion-text").into_iter().find(|c| c.input.get("sequence").is_some()).expect("a sequence");
    let sequence = case.input["sequence"].as_array().unwrap();
    let line = |peer: usize, c: &Value| {
        let (status, opcode) = (c["status"].as_u64().unwrap(), c["opcode"].as_u64().unwrap_or(0));
        let vendor = c["vendor_err_decimal"].as_u64().unwrap();
        format!(
            "NET/IB : Got completion from peer 192.0.2.{peer}<1> with error {status}, opcode {opcode}, len 0, vendor err {vendor}"
        )
    };
    let first: Vec<String> = sequence.iter().zip([1, 2, 2]).map(|(c, peer)| line(peer, c)).collect();
    let got = records(&first.join("\n"));
    let of = |key: &str| got.iter().map(|r| r.json[key].clone()).collect::<Vec<_>>();
    assert_eq!(Value::from(of("vendor_err")), case.expected["vendor_err"], "{}", case.id);
    assert_eq!(of("role"), ["cause", "cause", "flush"]);
    assert!(says(&got[2], "The cause stands on line 3"), "{:#?}", got[2]);
    let many = [&first[..], &[line(2, &sequence[2]), line(2, &sequence[2])]].concat();
    let got = records(&many.join("\n"));
    assert_eq!((got.len(), &got[2].json["count"], &got[2].json["lines"]), (3, &json!(3), &json!([4, 5, 6])));
    assert!(got[2].headline.starts_with("3 work requests were flushed"), "{}", got[2].headline);
}

#[test]
fn a_flush_without_its_cause_says_where_to_look_and_takes_no_opcode_for_true() {
    let case = cases("error-completion-text").into_iter().find(|c| c.input.get("flush").is_some()).expect("a flush");
    let got = record("Got completion from peer 192.0.2.1<1> with status=5 opcode=31245 len=0 vendor err 249 (Recv)");
    assert_eq!((&got.json["vendor_err"], &got.json["role"]), (&json!(0xf9), &json!("flush")), "{}", case.id);
    assert_eq!((&got.json["wc_opcode"], &got.json["printed_opcode"]), (&json!("undefined on error"), &json!(31245)));
    assert!(says(&got, "The cause is not in this input"), "{got:#?}");
}

#[test]
fn a_completion_behind_a_refused_command_points_to_it() {
    let case = cases("error-completion-text").into_iter().find(|c| c.id == "A-033").unwrap();
    let refused = "mlx5_core 0000:5e:00.0: mlx5_cmd_check:772:(pid 77): RTR2RTS_QP(0x504) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x6a3f1c)";
    let got = records(&format!("{refused}\n{}", completion_line(&case.id, &case.input)));
    assert_eq!((&got[0].json["opcode_name"], &got[1].json["wc_status"]), (&json!("RTR2RTS_QP"), &json!(9)));
    assert!(says(&got[1], "A command failed before this, on line 2"), "{:#?}", got[1]);
}

/// The three ages of the kernel's line about a refused command, and rdma-core's.
fn refusals(log: &Value) -> [String; 4] {
    let n = |key: &str| log[key].as_u64().unwrap();
    let (opcode, op_mod, status, syndrome) = (n("opcode"), n("op_mod"), n("status"), n("syndrome"));
    let text = match status {
        3 => "bad parameter",
        4 => "bad system state",
        8 => "limits exceeded",
        9 => "bad resource state",
        _ => panic!("what does the kernel call status {status}?"),
    };
    let head = "[  12.345678] mlx5_core 0000:3b:00.0:";
    [
        format!(
            "{head} mlx5_cmd_check:704:(pid 20): SOME_NAME({opcode:#x}) op_mod({op_mod:#x}) failed, status {text}({status:#x}), syndrome ({syndrome:#x})"
        ),
        format!(
            "{head} mlx5_cmd_out_err:808:(pid 8267): SOME_NAME({opcode:#x}) op_mod({op_mod:#x}) failed, status {text}({status:#x}), syndrome ({syndrome:#x}), err(-22)"
        ),
        format!(
            "mlx5_cmd_out_err:808:(pid 8267): SOME_NAME({opcode:#x}) op_mod({op_mod:#x}) failed,\nstatus {text}({status:#x}), syndrome ({syndrome:#x}), err(-5)"
        ),
        format!(
            "mlx5_vfio_op_code({opcode:#x}), op_mod({op_mod:#x}) failed, status {text}({status:#x}), syndrome ({syndrome:#x})"
        ),
    ]
}

#[test]
fn printed_refusals_decode_to_status_errno_and_syndrome() {
    let mut tally = Tally::default();
    for Case { id, input, expected } in cases("command-status") {
        for (age, line) in refusals(&input["log"]).iter().enumerate() {
            let got = record(line);
            tally.compare(&format!("{id} {line}"), &expected, &got.json, &[]);
            assert_eq!(got.json["what"], "command-status", "{id}");
            if age < 2 {
                assert_eq!(
                    (&got.json["device"], &got.json["seconds"]),
                    (&json!("0000:3b:00.0"), &json!(12.345678)),
                    "{id}"
                );
            }
        }
        tally.cases += 1;
    }
    tally.finish("command-status", 9);
}

#[test]
fn a_chain_of_refused_destroys_names_its_first() {
    let logs: Vec<Value> = ["B-009", "B-010"]
        .iter()
        .map(|id| cases("command-status").into_iter().find(|c| c.id == *id).unwrap().input["log"].clone())
        .collect();
    let got = records(&logs.iter().map(|log| refusals(log)[0].clone()).collect::<Vec<_>>().join("\n"));
    assert_eq!(got.len(), 2);
    assert!(
        !says(&got[0], "a chain of refused") && says(&got[1], "on line 2: a chain of refused destroys"),
        "{got:#?}"
    );
}

/// The kernel's lines of a command that did not complete in time.
fn timeout_lines(id: &str, input: &Value) -> String {
    let opcode = input["opcode"].as_u64().unwrap();
    let lines: Vec<String> = match id {
        "B-017" => vec![format!(
            "[   66.816635] mlx5_core 0000:03:00.0: wait_func:964:(pid 112): ENABLE_HCA({opcode:#x}) timeout. Will cause a leak of a command resource"
        )],
        "B-018" => vec![format!(
            "mlx5_core 0000:18:00.0: wait_func:1155:(pid 1967079): TEARDOWN_HCA({opcode:#x}) timeout. Will cause a leak of a command resource"
        )],
        "B-021" => {
            let times = input["times_s"].as_array().unwrap().iter().map(|t| t.as_f64().unwrap());
            times.map(|t| format!("[{t:12.6}] mlx5_core 0000:c1:00.0: wait_func_handle_exec_timeout:1062:(pid 1): cmd[0]: CREATE_EQ({opcode:#x}) recovered after timeout")).collect()
        }
        "B-023" => {
            let slots = input["slots"].as_array().unwrap().iter().map(|s| s.as_u64().unwrap());
            slots.map(|s| format!("mlx5_core 0000:21:00.0: wait_func_handle_exec_timeout:1062:(pid 99): cmd[{s}]: CREATE_DCT({opcode:#x}) No done completion")).collect()
        }
        _ => panic!("{id}: a new case: what did the kernel print?"),
    };
    lines.join("\n")
}

#[test]
fn printed_timeouts_decode_to_the_command_and_what_to_check() {
    let mut tally = Tally::default();
    for Case { id, input, expected } in cases("command-timeout") {
        let got = record(&timeout_lines(&id, &input));
        tally.compare(&id, &expected, &got.json, NOT_FIELDS);
        assert_eq!(got.json["opcode"], input["opcode"], "{id}");
        match id.as_str() {
            "B-017" => {
                for words in ["bus mastering", "aligned to 4 KiB, an I/O address", "`initializing` bit must be clear"] {
                    assert!(says(&got, words), "{words}: {got:#?}");
                }
                assert!(
                    says(&got, "keep the command's buffers mapped") && says(&got, "until its ownership bit clears")
                );
            }
            "B-018" => {
                assert!(says(&got, "Do not unmap or free pages given to the device; reset the function (FLR) first"))
            }
            "B-021" => assert!(says(&got, "No interrupt arrives at all") && says(&got, "Use polling")),
            "B-023" => {
                assert_eq!(got.json["slots"], input["slots"]);
                assert!(says(&got, "6 slots timed out together: the firmware has stopped serving commands"));
                assert!(says(&got, "Mark the device failed and read the health buffer"));
            }
            _ => {}
        }
        tally.cases += 1;
    }
    tally.finish("command-timeout", 4);
}

/// The lines of a health buffer as Linux prints them; those of `without` were not printed by the kernel of the case.
fn health_lines(health: &Map<String, Value>, raw_fw_ver: Option<u64>, without: &[&str]) -> String {
    let n = |key: &str| health[key].as_u64().unwrap();
    let words = health["assert_var"].as_array().unwrap().iter().map(|w| w.as_u64().unwrap());
    let mut lines: Vec<(&str, String)> =
        words.enumerate().map(|(i, w)| ("assert_var", format!("assert_var[{i}] {w:#010x}"))).collect();
    lines.extend([
        ("assert_exit_ptr", format!("assert_exit_ptr {:#010x}", n("assert_exit_ptr"))),
        ("assert_callra", format!("assert_callra {:#010x}", n("assert_callra"))),
        ("fw_ver", format!("fw_ver {}", health["fw_ver"].as_str().unwrap())),
        ("time", format!("time {}", n("time"))),
        ("hw_id", format!("hw_id {:#010x}", n("hw_id"))),
        ("rfr", format!("rfr {}", n("rfr"))),
        ("severity", format!("severity {} ({})", n("severity"), health["severity_name"].as_str().unwrap())),
        ("irisc_index", format!("irisc_index {}", n("irisc_index"))),
        ("synd", format!("synd {:#x}: {}", n("synd"), health["synd_name"].as_str().unwrap())),
        ("ext_synd", format!("ext_synd {:#06x}", n("ext_synd"))),
    ]);
    lines.extend(raw_fw_ver.map(|raw| ("raw", format!("raw fw_ver {raw:#010x}"))));
    let head = "mlx5_core 0000:08:00.0: print_health_info:437:(pid 912): ";
    lines.retain(|(name, _)| !without.contains(name));
    lines.iter().map(|(_, line)| format!("{head}{line}")).collect::<Vec<_>>().join("\n")
}

#[test]
fn printed_health_buffers_are_one_record() {
    let mut tally = Tally::default();
    for Case { id, input, expected } in cases("health-buffer") {
        let (lines, expected) = match id.as_str() {
            // the kernel of that time did not print these
            "B-026" => {
                (health_lines(expected.as_object().unwrap(), Some(0x1018_03e8), &["time", "rfr", "severity"]), expected)
            }
            "B-027" => {
                let mut all = input["printed"].as_object().unwrap().clone();
                for (key, value) in
                    [("time", 0), ("hw_id", 0), ("rfr", 0), ("irisc_index", 0), ("synd", 0), ("ext_synd", 0)]
                {
                    all.insert(key.into(), value.into());
                }
                all.extend([
                    ("fw_ver".into(), "0.0.0".into()),
                    ("severity_name".into(), "CRITICAL".into()),
                    ("synd_name".into(), "".into()),
                ]);
                (
                    health_lines(&all, None, &["fw_ver", "time", "hw_id", "rfr", "irisc_index", "synd", "ext_synd"]),
                    expected,
                )
            }
            _ => (health_lines(expected.as_object().unwrap(), None, &[]), expected),
        };
        let got = record(&lines);
        let not: Vec<_> = match id.as_str() {
            "B-026" => NOT_FIELDS.iter().copied().chain([("time", "not printed"), ("rfr", "not printed")]).collect(),
            _ => NOT_FIELDS.to_vec(),
        };
        tally.compare(&id, &expected, &got.json, &not);
        assert_eq!((&got.json["what"], &got.json["device"]), (&json!("health"), &json!("0000:08:00.0")), "{id}");
        assert_eq!(got.lines.len(), lines.lines().count(), "{id}");
        tally.cases += 1;
    }
    tally.finish("health-buffer", 3);
}

#[test]
fn printed_queue_events_decode_to_their_reason() {
    let mut tally = Tally::default();
    for Case { id, input, expected } in cases("async-event") {
        let (cqn, syndrome) = (input["cqn"].as_u64().unwrap(), input["cq_err_syndrome"].as_u64().unwrap());
        for word in ["syndrome", "syndrom"] {
            let got = record(&format!(
                "mlx5_core 0000:02:00.0: cq_err_event_notifier:517:(pid 4374): CQ error on CQN {cqn:#x}, {word} {syndrome:#x}"
            ));
            tally.compare(&id, &expected, &got.json, NOT_FIELDS);
            for key in ["event_type", "cqn", "cq_err_syndrome"] {
                assert_eq!(got.json[key], input[key], "{id}");
            }
        }
        if let Some(raw) = expected.get("qp_raw_fields") {
            let n = |key: &str| raw[key].as_u64().unwrap();
            let qpn = input["qp_event"]["qpn"].as_u64().unwrap();
            let tail = format!("({:#x} {:#x} {:#x})", n("vendor"), n("hw_synd_type"), n("hw_err_synd"));
            let got = record(&format!("rocep2s0/1: QP {qpn} error: unrecognized status {tail}"));
            tally.compare(&id, raw, &got.json, &[]);
            assert_eq!((&got.json["qpn"], got.json.get("syndrome")), (&json!(qpn), None));
            assert!(says(&got, "0x13 is status 10, 0x15 is 12"), "{got:#?}");
            // the text of status 19 stands for the syndrome with that number
            let got = record(&format!("rocep2s0/1: QP {qpn} error: fatal error {tail}"));
            assert_eq!((&got.json["syndrome"], &got.json["wc_status"]), (&json!(0x13), &json!(10)));
        }
        tally.cases += 1;
    }
    tally.finish("async-event", 2);
}
