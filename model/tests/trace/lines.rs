//! Lines are written as they are read.

use mlx5_model::trace::{Line, Value, read};

fn parse(text: &str) -> Line {
    Line::parse(text).unwrap_or_else(|| panic!("not read: {text}"))
}

fn number(line: &Line, key: &str) -> u64 {
    match line.detail(key) {
        Some(Value::Number(n)) => *n,
        other => panic!("{key} is {other:?} in {line}"),
    }
}

fn words(line: &Line) -> Vec<String> {
    line.details.iter().map(ToString::to_string).collect()
}

#[test]
fn the_head_of_a_line_is_read() {
    let line = parse("4.583105 CMD slot=31 ENABLE_HCA(0x104) opmod=2 uid=7 inlen=16 outlen=12 st=3 ");
    assert_eq!(line.time, Some(4_583_105));
    assert_eq!((line.slot, line.name.as_str(), line.opcode), (31, "ENABLE_HCA", 0x104));
    assert_eq!((line.op_mod, line.uid, line.in_len, line.out_len, line.status), (2, 7, 16, 12, Some(3)));
    assert!(line.details.is_empty());
}

#[test]
fn a_line_without_a_time_or_a_status_is_read() {
    let line = parse("CMD slot=0 2RST_QP(0x50a) opmod=0 uid=0 inlen=16 outlen=16 st=?");
    assert_eq!((line.time, line.status, line.name.as_str()), (None, None, "2RST_QP"));
    let line = parse("CMD slot=0 2RST_QP(0x50a) opmod=0 inlen=16 outlen=16 st=0");
    assert_eq!((line.uid, line.in_len), (0, 16), "nor a user context");
}

#[test]
fn details_are_read_in_the_style_of_other_programs() {
    let head = "CMD slot=0 X(0x1) opmod=0 uid=0 inlen=16 outlen=16 st=0 ";
    let of = |details: &str| words(&parse(&format!("{head}{details}")));
    assert_eq!(of("pages=16"), ["pages=16"]);
    assert_eq!(of("GIVE 16 total 16"), ["give=16", "total=16"]);
    assert_eq!(of("TAKE asked 768 returned 80 left 0"), ["take", "asked=768", "returned=80", "left=0"]);
    assert_eq!(of("type=0 CUR"), ["type=0", "cur"]);
    assert_eq!(of("type=0 diff []"), ["type=0", "diff=[]"]);
    assert_eq!(of("reg 7004 W ptys"), ["reg=0x7004", "w", "ptys"]);
    assert_eq!(
        of("eqn 1 log 13 intr 0 mask 1f02be uar 8"),
        ["eqn=0x1", "log=13", "intr=0", "mask=0x1f02be", "uar=0x8"]
    );
    assert_eq!(of("eqn 1 mask c00"), ["eqn=0x1", "mask=0xc00"]);
    assert_eq!(of("qpn 4e -> 0 remote 4d"), ["qpn=0x4e", "to=0", "remote=0x4d"]);
    assert_eq!(
        of("qpn 41 st 8 sq 8 rq 9/4 cqs 4 cqr 2 uidx ffffff cs (0, 0) pages 6"),
        ["qpn=0x41", "service=8", "sq=8", "rq=9/4", "cqs=0x4", "cqr=0x2", "uidx=0xffffff", "cs=(0,0)", "pages=6"]
    );
    assert_eq!(of("rqtn 1 n 256 -> [69, 74]"), ["rqtn=0x1", "n=256", "to=[69,74]"]);
    assert_eq!(of("roce_en"), ["roce_en"]);
    assert_eq!(
        of("idx 0 gid fe80000000000000000000fffe001018").last().unwrap(),
        "gid=fe80000000000000000000fffe001018"
    );
}

#[test]
fn what_is_written_is_read_as_the_same() {
    for text in [
        "0.000001 CMD slot=0 SET_HCA_CAP(0x109) opmod=0 uid=0 inlen=4112 outlen=16 st=0 type=0 set=log_max_qp:17>10",
        "12.500000 CMD slot=31 MANAGE_PAGES(0x108) opmod=2 uid=0 inlen=16 outlen=6160 st=0 take asked=768 returned=80 left=0",
        "CMD slot=1 CREATE_EQ(0x301) opmod=0 uid=0 inlen=304 outlen=16 st=8 log=8 intr=0 mask=0x400 uar=0x8 syndrome=0xabc",
        "CMD slot=1 ALLOC_PD(0x800) opmod=0 uid=65535 inlen=16 outlen=16 st=? delivery=0x3",
    ] {
        assert_eq!(parse(text).to_string(), text);
    }
    assert_eq!(number(&parse("CMD slot=0 X(0x1) opmod=0 uid=0 inlen=8 outlen=8 st=0 mask=0xc00"), "mask"), 0xc00);
}

#[test]
fn other_lines_and_broken_ones_are_passed_over() {
    let text = "\
0.184460 DMA_MAP fl=3 off=0 addr=0 size=40000000 fds=1
4.575856 BAR wr 10 00000000
4.583105 CMD slot=0 ENABLE_HCA(0x104) opmod=0 uid=0 inlen=16 outlen=12 st=0
CMD
CMD slot=0
CMD slot=256 ENABLE_HCA(0x104) opmod=0 uid=0 inlen=16 outlen=12 st=0
CMD slot=0 ENABLE_HCA(0x10400) opmod=0 uid=0 inlen=16 outlen=12 st=0
CMD slot=0 ENABLE_HCA(260) opmod=0 uid=0 inlen=16 outlen=12 st=0
CMD slot=0 ENABLE_HCA(0x104) opmod=0 uid=0 inlen=-1 outlen=12 st=0
18446744073709551615.0 CMD slot=0 ENABLE_HCA(0x104) opmod=0 uid=0 inlen=16 outlen=12 st=0
\u{fffd}\u{fffd} CMD
4.600000 CMD slot=0 DISABLE_HCA(0x105) opmod=0 uid=0 inlen=16 outlen=12 st=0 ( [ -> mask = mask";
    let found = read(text);
    let names: Vec<_> = found.iter().map(|(number, line)| (*number, line.name.as_str())).collect();
    assert_eq!(names, [(3, "ENABLE_HCA"), (12, "DISABLE_HCA")]);
}

#[test]
fn a_line_of_millions_of_words_is_passed_over() {
    let head = "CMD slot=0 ENABLE_HCA(0x104) opmod=0 uid=0 inlen=16 outlen=12 st=0";
    assert!(Line::parse(&(head.to_owned() + &" a".repeat(1000))).is_some());
    assert!(Line::parse(&(head.to_owned() + &" a".repeat(1_000_000))).is_none());
}

#[test]
fn recorded_lines_cut_anywhere_are_read_as_written_or_not_at_all() {
    let logs = [
        include_str!("../../../tests/data/linux-core-only.log"),
        include_str!("../../../tests/data/linux-core-served.log"),
        include_str!("../../../tests/data/rdma-core-vfio.log"),
    ];
    let mut read = 0;
    for line in logs.iter().flat_map(|log| log.lines()) {
        for cut in (0..=line.len()).filter_map(|at| line.get(..at)) {
            let Some(found) = Line::parse(cut) else { continue };
            assert_eq!(Line::parse(&found.to_string()).as_ref(), Some(&found), "{cut}");
            read += 1;
        }
    }
    assert!(read > 73, "{read} lines read");
}
