//! Logs: known lines between anything else, broken lines, lines that belong together, dumps beside their messages.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use mlx5_vfio::decode::{DecodeError, Kind, Record, decode_text};
use proptest::prelude::*;
use serde_json::{Value, json};

fn all(log: &str) -> Vec<Record> {
    decode_text(log, None).unwrap_or_else(|e| panic!("{log}: {e}"))
}

fn field<'a>(records: &'a [Record], key: &str) -> Vec<&'a Value> {
    records.iter().map(|r| r.json.get(key).unwrap_or(&Value::Null)).collect()
}

/// Rows of an error entry, as the kernel prints them: local protection error of a receive, queue 0x1e9.
const ROWS: &str = "\
[  408.380187] 00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
[  408.380189] 00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
[  408.380191] 00000020: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
[  408.380192] 00000030: 00 00 00 00 a9 00 56 04 00 00 01 e9 00 54 e8 e2
";

/// Lines that stand alone, with what they are and a number in them.
const KNOWN: &[(&str, &str, &str, u64)] = &[
    (
        "[ 12.3] mlx5_core 0000:3b:00.0: mlx5_cmd_check:704:(pid 20): CREATE_EQ(0x301) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x8fef)",
        "command-status",
        "fw_syndrome",
        0x8fef,
    ),
    (
        "mlx5_core 0000:03:00.0: wait_func:964:(pid 1): ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource",
        "command-timeout",
        "opcode",
        0x104,
    ),
    (
        "Jan  1 00:00:00 host kernel: mlx5_core 0000:56:00.0: mlx5_cmd_comp_handler:1709:(pid 0): Command completion arrived after timeout (entry idx = 7).",
        "command-late",
        "slots",
        7,
    ),
    (
        "mlx5_core 0000:41:00.0: poll_health:852:(pid 0): device's health compromised - reached miss count",
        "health-counter",
        "",
        0,
    ),
    (
        "mlx5_core 0000:02:00.0: cq_err_event_notifier:517:(pid 4374): CQ error on CQN 0x407, syndrome 0x2",
        "event",
        "cqn",
        0x407,
    ),
    (
        "mlx5_core 0000:08:00.0 eth2: TX timeout on queue: 3, SQ: 0x1a, CQ: 0x42, SQ Cons: 0x10 SQ Prod: 0x20, usecs since last trans: 5000000",
        "tx-timeout",
        "sqn",
        0x1a,
    ),
    (
        "mlx5_core 0000:6f:00.0: wait_fw_init:211:(pid 8): Waiting for FW pre-initializing, timeout abort in 100s (0x87010000)",
        "bring-up",
        "initializing",
        0x8701_0000,
    ),
    (
        "mlx5_core 0000:41:00.0: init_one:1371:(pid 803): mlx5_load_one failed with error code -22",
        "bring-up",
        "errno",
        22,
    ),
    (
        "mlx5_core 0000:18:00.0: mlx5_function_close:1288:(pid 1967079): tear_down_hca failed, skip cleanup",
        "teardown",
        "",
        0,
    ),
    (
        "mlx5_core 0000:19:00.0: mlx5_reclaim_root_pages:659:(pid 1): FW did not return all pages. giving up...",
        "teardown",
        "",
        0,
    ),
    (
        "host-1:1:2 [0] NCCL WARN NET/IB : Got completion from peer 192.0.2.5<1> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
        "completion",
        "vendor_err",
        129,
    ),
    (
        "host-2:1:2 [1] p2p.cc:648 NCCL WARN NET/IB: Got completion from peer 192.0.2.6<1> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Recv localGid ::ffff:192.0.2.1 remoteGids::ffff:192.0.2.2 hca mlx5_2",
        "completion",
        "request_size",
        0,
    ),
    (
        "[h3:1:0:1] ib_mlx5_log.c:177  Local protection on mlx5_3:1/IB (synd 0x4 vend 0x51 hw_synd 0/2)",
        "completion",
        "hw_err_synd",
        2,
    ),
    (" Failed status 10: wr_id 5 syndrom 0x88", "completion", "vendor_err", 0x88),
    (
        "mlx5_net: Unexpected CQE error syndrome 0x04 CQN = 231 SQN = 4641 wqe_counter = 11 wq_ci = 12 cq_ci = 13",
        "completion",
        "qpn",
        4641,
    ),
    (
        "mlx5_net: Unexpected CQE error syndrome 0x02 CQN = 232 RQN = 4642 wqe_counter = 11 rq_ci = 12 cq_ci = 13",
        "completion",
        "cqe_opcode",
        14,
    ),
    (
        "[[19373,1],54][btl_openib_component.c:3320:handle_wc] from a to: b error polling LP CQ with status RECEIVER NOT READY RETRY EXCEEDED ERROR status number 13 for wr_id 2a25c200 opcode 128  vendor error 135 qp_idx 0",
        "completion",
        "wr_id",
        0x2a25_c200,
    ),
    (
        "RDS/IB: send completion on 192.0.2.1 had status 10 (remote access error), vendor_err 0x88, disconnecting and reconnecting",
        "completion",
        "vendor_err",
        0x88,
    ),
    ("rdma.cc:851 error on send wc: transport retry counter exceeded", "completion", "wc_status", 12),
];

#[test]
fn each_known_line_is_found_alone() {
    for (line, what, key, number) in KNOWN {
        let got = all(line);
        assert_eq!((got.len(), &got[0].json["what"]), (1, &json!(what)), "{line}");
        if !key.is_empty() {
            let value = &got[0].json[*key];
            assert_eq!(value.as_array().map_or(value, |list| &list[0]), &json!(number), "{line}: {got:#?}");
        }
        assert!(
            !got[0].headline.is_empty() && !got[0].causes.is_empty() && !got[0].next.is_empty(),
            "{line}: {got:#?}"
        );
        assert!(got[0].json.get("lines_passed_over").is_none(), "{line}");
    }
}

/// Lines that say nothing about a device, some of them close to one that does.
fn noise() -> impl Strategy<Value = String> {
    let words = prop_oneof![
        Just("mlx5_core 0000:3b:00.0: firmware version: 16.35.4030"),
        Just("Traceback (most recent call last):"),
        Just("  File \"train.py\", line 12, in <module>"),
        Just("status 0, all good"),
        Just("CREATE_EQ(0x301) op_mod(0x0) succeeded"),
        Just("time 12"),
        Just("severity 3 (ERROR)"),
        Just("deadbeef"),
        Just("0x10 0x20"),
        Just("[  100.000001] usb 1-1: new device"),
        Just("got completion"),
        Just("the vendor error 129 again"),
        Just("syndrome"),
    ];
    prop_oneof![words.prop_map(String::from), "[ -~]{0,60}", "[a-z:\\[\\]0-9 é]{0,40}"]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mixture_gives_exactly_its_known_lines(
        order in Just((0..KNOWN.len()).collect::<Vec<_>>()).prop_shuffle(),
        take in 1..KNOWN.len(),
        between in proptest::collection::vec(proptest::collection::vec(noise(), 0..4), KNOWN.len() + 1),
    ) {
        let mut lines: Vec<String> = between[0].clone();
        let mut expected = Vec::new();
        for (i, known) in order.iter().take(take).enumerate() {
            let (line, what, ..) = KNOWN[*known];
            expected.push((lines.len() + 1, what));
            lines.push(line.into());
            lines.extend(between[i + 1].iter().cloned());
        }
        let got = all(&lines.join("\n"));
        let found: Vec<_> = got.iter().map(|r| (r.lines[0], r.json["what"].as_str().unwrap_or("?"))).collect();
        prop_assert_eq!(&found, &expected, "{:#?}", lines);
        let others = lines.iter().filter(|l| !l.trim().is_empty()).count() - expected.len();
        let counted = got.last().and_then(|r| r.json.get("lines_passed_over")).and_then(Value::as_u64).unwrap_or(0);
        prop_assert_eq!(counted, others as u64, "{:#?}", lines);
    }

    #[test]
    fn no_text_between_known_words_panics(parts in proptest::collection::vec((0..KNOWN.len(), any::<prop::sample::Index>(), "[ -~\\n]{0,20}"), 0..12)) {
        let text: String = parts.iter().map(|(known, at, between)| {
            let line = KNOWN[*known].0;
            format!("{}{between}", &line[..at.index(line.len())])
        }).collect();
        let _ = decode_text(&text, None).map(|records| records.iter().map(Record::to_text).collect::<String>());
        let _ = decode_text(&text, Some(Kind::Text));
    }
}

#[test]
fn a_message_its_head_and_its_rows_are_one_record() {
    let log = format!(
        "noise\n[  408.372201] infiniband mlx5_0: mlx5_handle_error_cqe:332:(pid 0): WC error: 4, Message: local protection error\n\
         [  408.380181] infiniband mlx5_0: dump_cqe:272:(pid 0): dump error cqe\n{ROWS}more noise\n"
    );
    let got = all(&log);
    assert_eq!((got.len(), got[0].kind), (1, Kind::Cqe), "{got:#?}");
    assert_eq!((&got[0].json["line"], &got[0].json["lines"]), (&json!(2), &json!([2, 3, 4])));
    assert_eq!((&got[0].json["qpn"], &got[0].json["device"]), (&json!(0x1e9), &json!("mlx5_0")));
    assert_eq!(got[0].json["lines_passed_over"], 2);
}

#[test]
fn a_dump_of_another_error_keeps_apart_from_the_message_before_it() {
    let log = format!("mlx5_0: WC error: 12, Message: transport retry counter exceeded\n{ROWS}");
    let got = all(&log);
    assert_eq!(field(&got, "wc_status"), [&json!(12), &json!(4)]);
}

#[test]
fn libmlx5_and_its_rows_are_read_with_text_around_them() {
    let log = "step 1\nmlx5: host-1: got completion with error:\n\
        00000000 00000000 00000000 00000000\n00000000 00000000 00000000 00000000\n00000000 00000000 00000000 00000000\n\
        00000000 00008716 0a001f8e 000027d2\ncompletion was found in CQ with status 0xd\n\
        got bad completion with status: 0xd, vendor syndrome: 0x87\npoll completion failed\n";
    let got = all(log);
    assert_eq!(field(&got, "wc_status"), [&json!(13), &json!(13)]);
    assert_eq!((&got[0].json["source"], &got[0].json["lines"]), (&json!("libmlx5"), &json!([2, 3])));
    assert_eq!((&got[1].json["vendor_err"], &got[1].json["line"]), (&json!(0x87), &json!(8)));
}

#[test]
fn rows_that_a_filter_dropped_are_missed() {
    let got = all("[  408.380181] infiniband mlx5_0: dump_cqe:272:(pid 0): dump error cqe\nanything\n");
    assert!(got[0].headline.contains("its rows are missing") && got[0].next[0].contains("grep -A4"), "{got:#?}");
}

#[test]
fn a_dump_that_lacks_a_row_is_noted_beside_what_was_found() {
    let short = ROWS.lines().filter(|l| !l.contains("00000020:")).collect::<Vec<_>>().join("\n");
    let got = all(&format!("{}\n{short}\n", KNOWN[0].0));
    assert_eq!(got.len(), 1);
    let note = got[0].notes.iter().find(|n| n.starts_with("Bytes that could not be read")).expect("a note");
    assert!(note.contains("line 4: a row with offset 0x30 where 0x20 is due"), "{note}");
}

#[test]
fn lines_that_mail_broke_are_put_together() {
    let log = "> [  257.111349] mlx5_core 0000:56:00.0: \n> wait_func_handle_exec_timeout:1159:(pid 72061): cmd[3]: \n\
        > ACCESS_REG(0x805) No done completion\n> [  257.137072] mlx5_core 0000:56:00.0: wait_func:1189:(pid 72061): \n\
        > ACCESS_REG(0x805) timeout. Will cause a leak of a command resource\n";
    let got = all(log);
    assert_eq!(got.len(), 1, "the two lines of one timeout: {got:#?}");
    assert_eq!((&got[0].json["device"], &got[0].json["slots"]), (&json!("0000:56:00.0"), &json!([3])));
    assert_eq!((&got[0].json["lines"], got[0].json.get("count")), (&json!([1, 2, 3, 4, 5]), None));
    let openmpi = "[[12770,1],0][btl_openib_component.c:3227:handle_wc] from bn0103 to:\nbn0122 error polling LP CQ with status LOCAL\n\
        LENGTH ERROR status number 1 for wr_id 560618664 opcode 1  vendor error 105 qp_idx 3\n";
    assert_eq!(all(openmpi)[0].json["vendor_err"], 105);
}

#[test]
fn the_lines_of_processes_that_print_at_once_are_told_apart() {
    let one = |p: &str| {
        format!("[{p}:1:0:1] ib_mlx5_log.c:177  Remote access on mlx5_0:1/IB (synd 0x13 vend 0x88 hw_synd 0/0)")
    };
    let two = |p: &str, qpn: u32| {
        format!("[{p}:1:0:1] ib_mlx5_log.c:177  RC QP {qpn:#x} wqe[3]: RDMA_READ s-- [rva 0x1 rkey 0x2]")
    };
    let got = all(&[one("a"), one("b"), two("b", 0xb), two("a", 0xa)].join("\n"));
    assert_eq!(field(&got, "qpn"), [&json!(0xa), &json!(0xb)]);
    assert_eq!(field(&got, "wqe_opcode_name"), [&json!("RDMA_READ"), &json!("RDMA_READ")]);
}

#[test]
fn only_the_first_error_of_a_known_queue_is_its_cause() {
    let line = |qpn: u32, synd: u8| {
        format!(
            "mlx5_core 0000:08:00.0: Error cqe on cqn 0x5, ci 0x1, qn {qpn:#x}, opcode 0xd, syndrome {synd:#x}, vendor syndrome 0x0"
        )
    };
    let got = all(&[line(1, 0x13), line(2, 0x15), line(1, 0x15), line(1, 5), line(2, 5), line(1, 5)].join("\n"));
    assert_eq!(field(&got, "role"), ["cause", "cause", "later", "flush", "flush"]);
    assert_eq!(field(&got, "count"), [&Value::Null, &Value::Null, &Value::Null, &json!(2), &json!(1)]);
    assert!(got[2].notes.iter().any(|n| n.contains("stands on line 1")), "{got:#?}");
}

#[test]
fn two_devices_give_two_health_reports_and_a_lone_word_none() {
    let line = |device: &str, text: &str| format!("mlx5_core {device}: print_health_info:1:(pid 0): {text}");
    let (a, b) = ("0000:01:00.0", "0000:02:00.0");
    let log = [
        line(a, "assert_var[0] 0x00000001"),
        line(b, "assert_var[0] 0x00000002"),
        line(a, "synd 0x7: irisc not responding"),
        line(b, "synd 0x10: High temperature"),
        line(a, "assert_var[0] 0x00000003"),
    ];
    let got = all(&log.join("\n"));
    assert_eq!(field(&got, "device"), [&json!(a), &json!(b), &json!(a)]);
    assert_eq!(field(&got, "synd"), [&json!(7), &json!(0x10), &Value::Null]);
    assert_eq!(got[1].json["assert_var"][0], 2);
    assert!(decode_text("time 12\nseverity 3 (ERROR)", Some(Kind::Text)).is_err());
}

#[test]
fn health_fields_of_all_ones_say_that_the_device_is_gone() {
    let head = "[   36.447471] mlx5_core 0000:00:00.0: print_health_info:377:(pid 0): ";
    let fields = [
        "assert_callra 0xffffffff",
        "fw_ver 65535.65535.65535",
        "hw_id 0xffffffff",
        "irisc_index 255",
        "synd 0xff: unrecognized error",
        "ext_synd 0xffff",
        "raw fw_ver 0xffffffff",
    ];
    let got = all(&fields.map(|f| format!("{head}{f}")).join("\n"));
    assert!(got.len() == 1 && got[0].headline.contains("has left the bus"), "{got:#?}");
}

#[test]
fn colours_and_odd_bytes_do_not_hide_a_line() {
    let coloured = format!("\u{1b}[31;1m{}\u{1b}[0m é\n", KNOWN[0].0);
    assert_eq!(all(&coloured)[0].json["status"], 3);
    let success = "completion: status 0, vendor_err 0\n";
    assert_eq!(decode_text(success, Some(Kind::Text)), Err(DecodeError::Empty { text_lines: 1 }));
}

/// Lines of other drivers and programs, most of them close to a form that is known.
const INNOCENT: &str = "\
mlx4_core 0000:05:00.0: command 0x54 timed out (go bit not cleared)
mlx4_core 0000:05:00.0: device is going to be reset
mlx4_core 0000:05:00.0: Failed to initialize event queue table, aborting
<mlx4_ib> mlx4_ib_handle_error_cqe: local QP operation err (QPN 0001c7, WQE index 0, vendor syndrome 70, opcode = 5e)
ib_mthca 0000:02:00.0: INIT_HCA command failed, aborting.
nvme nvme0: I/O 12 QID 3 timeout, aborting
nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10
nvme 0000:01:00.0: probe with driver nvme failed with error -19
e1000e: probe of 0000:00:1f.6 failed with error -2
pcieport 0000:00:1c.0: pciehp: Slot(3): PCI slot is unavailable
bnxt_en 0000:3b:00.0: Error (timeout: 5000) msg {0x41 0x52c} len:0
hns3 0000:7d:00.0: failed to allocate boot pages
zram: failed to allocate 16 pages
ena 0000:00:05.0: failed reclaiming pages (-12)
i915 0000:00:02.0: intel_guc_init failed with error code -5
mount.nfs: mount failed with error code 32
megaraid_sas 0000:02:00.0: Waiting for FW to come to ready state
NETDEV WATCHDOG: eth0 (igb): transmit queue 3 timed out
ata1.00: failed command: READ FPDMA QUEUED
ata1.00: status: { DRDY ERR }, error: { ABRT }
usb 1-1: device descriptor read/64, error -110
amdgpu: ring gfx timeout, signaled seq=1, emitted seq=2
bmc: Cold reset is required to apply the update
Fatal error 5 detected, see the report
systemd[1]: backup.service: Main process exited, code=exited, status=12/n/a
job 17 finished with status=12 after 30 s
HTTP status 4, vendor none
worker: command failed, status 1
rsync: operation aborted by user
vpn: remote access error: no route
modbus: response timeout error on /dev/ttyS0
monitor: time 12
monitor: fw_ver 1.2.3
monitor: severity 3 (ERROR)
postgres: ERROR: canceling statement due to statement timeout";

#[test]
fn lines_of_other_drivers_and_programs_are_not_claimed() {
    for line in INNOCENT.lines() {
        assert_eq!(decode_text(line, Some(Kind::Text)), Err(DecodeError::Empty { text_lines: 1 }), "{line}");
        assert_eq!(decode_text(line, None), Err(DecodeError::Empty { text_lines: 1 }), "{line}");
    }
    let text_lines = INNOCENT.lines().count();
    assert_eq!(decode_text(INNOCENT, None), Err(DecodeError::Empty { text_lines }));
}

#[test]
fn everyday_words_count_where_the_line_is_about_a_device() {
    assert_eq!(all("mlx5_core 0000:05:00.0: Fatal error 5 detected")[0].json["what"], "health-fatal");
    assert_eq!(all("rdma_server: wc error: remote access error")[0].json["wc_status"], 10);
    assert_eq!(all("nvme nvme1: RECV for CQE 0x1 failed with status operation aborted (16)")[0].json["wc_status"], 16);
}

#[test]
fn text_without_anything_known_is_not_taken_for_hex_with_mistakes() {
    let nothing = Err(DecodeError::Empty { text_lines: 2 });
    assert_eq!(decode_text("hello world\n\nthe end\n", None), nothing);
    assert_eq!(decode_text("hello\n", None), Err(DecodeError::Empty { text_lines: 1 }));
    let typo = decode_text("00 00 0g 00\n", None);
    assert!(matches!(typo, Err(DecodeError::NotHex { line: 1, column: 8, .. })), "{typo:?}");
}

#[test]
fn numbers_that_no_device_has_are_not_cut_down_to_known_ones() {
    let refused = |status: &str, syndrome: &str| {
        format!("mlx5_cmd_check: CREATE_EQ(0x301) op_mod(0x0) failed, status odd({status}), syndrome ({syndrome})")
    };
    assert_eq!(all(&refused("0x3", "0x8fef"))[0].json["status"], 3);
    for line in [refused("0x103", "0x8fef"), refused("0x3", "0x100008fef")] {
        assert_eq!(decode_text(&line, Some(Kind::Text)), Err(DecodeError::Empty { text_lines: 1 }), "{line}");
    }
    let aborted = |vendor: u32| format!("Got completion with error 16, opcode 0, len 0, vendor err {vendor}");
    assert_ne!(all(&aborted(0x1_0093))[0].causes, all(&aborted(0x93))[0].causes, "another vendor's code");
}
