//! Two traces are compared by what they mean.

use mlx5_model::trace::{Difference, Ignore, Line, compare, read};

/// A trace of commands written as `NAME(0x…) opmod inlen outlen st details`.
fn trace(commands: &[&str]) -> Vec<Line> {
    let line = |command: &&str| {
        let (head, details) = command.split_once(';').unwrap_or((command, ""));
        let words: Vec<&str> = head.split_whitespace().collect();
        let [name, op_mod, in_len, out_len, status] = words[..] else { panic!("{command}") };
        format!("CMD slot=0 {name} opmod={op_mod} uid=0 inlen={in_len} outlen={out_len} st={status} {details}\n")
    };
    read(&commands.iter().map(line).collect::<String>()).into_iter().map(|(_, line)| line).collect()
}

fn differences(a: &[&str], b: &[&str]) -> Vec<Difference> {
    compare(&trace(a), &trace(b), &Ignore::default()).unwrap()
}

fn words(a: &[&str], b: &[&str]) -> Vec<String> {
    differences(a, b).iter().map(ToString::to_string).collect()
}

const ENABLE: &str = "ENABLE_HCA(0x104) 0 16 12 0";
const INIT: &str = "INIT_HCA(0x102) 0 32 16 0";
const ADAPTER: &str = "QUERY_ADAPTER(0x101) 0 16 272 0";

#[test]
fn a_trace_is_like_itself() {
    let a = [ENABLE, INIT, ADAPTER, "CREATE_EQ(0x301) 0 304 16 0; eqn 1 log 8 intr 0 mask 400 uar 8"];
    assert!(words(&a[..3], &a[..3]).is_empty());
    assert!(words(&[], &[]).is_empty());
}

#[test]
fn a_command_of_one_alone_is_named_with_its_place() {
    let found = differences(&[ENABLE, INIT], &[ENABLE, ADAPTER, INIT]);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].a, found[0].b), (None, Some(1)));
    assert_eq!(words(&[ENABLE, INIT], &[ENABLE, ADAPTER, INIT]), ["only-b: QUERY_ADAPTER"]);
    assert_eq!(words(&[ENABLE, ADAPTER, INIT], &[ENABLE, INIT]), ["only-a: QUERY_ADAPTER"]);
}

#[test]
fn lengths_and_status_are_compared() {
    let b = "INIT_HCA(0x102) 0 16 16 3";
    assert_eq!(words(&[INIT], &[b]), ["lengths: INIT_HCA: in 32 | 16", "status: INIT_HCA: st 0 | 3"]);
    assert_eq!(words(&[INIT], &["INIT_HCA(0x102) 0 32 16 ?"]), ["status: INIT_HCA: st 0 | ?"]);
}

#[test]
fn a_command_in_another_place_is_out_of_order() {
    assert_eq!(words(&[ENABLE, INIT, ADAPTER], &[ADAPTER, ENABLE, INIT]), ["order: QUERY_ADAPTER"]);
}

#[test]
fn inputs_are_told_from_answers() {
    let a = ["QUERY_PAGES(0x107) 1 16 16 0; pages=16", "MANAGE_PAGES(0x108) 1 144 16 0; GIVE 16 total 16"];
    let b = ["QUERY_PAGES(0x107) 1 16 16 0; pages=6", "MANAGE_PAGES(0x108) 1 144 16 0; give=6 total=6"];
    let expected = [
        "answers: QUERY_PAGES opmod=1: pages 16 | 6",
        "inputs: MANAGE_PAGES give: give 16 | 6",
        "answers: MANAGE_PAGES give: total 16 | 6",
    ];
    assert_eq!(words(&a, &b), expected);
}

#[test]
fn what_only_one_trace_tells_of_a_command_is_no_difference() {
    let a = "SET_HCA_CAP(0x109) 0 4112 16 0; type=0 diff []";
    let b = "SET_HCA_CAP(0x109) 0 4112 16 0; type=0 set=log_max_qp:17>18";
    assert!(words(&[a], &[b]).is_empty());
}

#[test]
fn event_queues_are_known_by_their_events() {
    let eq = |n: u32, mask: &str| format!("CREATE_EQ(0x301) 0 304 16 0; eqn {n} log 8 intr 0 mask {mask}");
    let (command, pages, both) = (eq(1, "400"), eq(2, "800"), eq(1, "c00"));
    assert_eq!(
        words(&[&command, &pages], &[&eq(1, "800"), &eq(2, "400")]),
        ["order: CREATE_EQ mask=0x400"],
        "not two queues with other events"
    );
    let expected = ["inputs: CREATE_EQ mask=0x400: mask 0x400 | 0xc00", "only-a: CREATE_EQ mask=0x800"];
    assert_eq!(words(&[&command, &pages], &[&both]), expected);
}

const UAR: &str = "ALLOC_UAR(0x802) 0 16 16 0; uar 8";

#[test]
fn numbers_of_objects_may_differ_but_not_which_object_is_meant() {
    let create = |n: u32| format!("CREATE_EQ(0x301) 0 304 16 0; eqn {n} mask 0 uar 8");
    let destroy = |n: u32| format!("DESTROY_EQ(0x302) 0 16 16 0; eqn {n}");
    let run = |numbers: [u32; 4]| {
        let [a, b, c, d] = numbers;
        [UAR.to_string(), create(a), create(b), destroy(c), destroy(d)]
    };
    let words = |a: [u32; 4], b: [u32; 4]| {
        let (a, b) = (run(a), run(b));
        words(&a.each_ref().map(String::as_str), &b.each_ref().map(String::as_str))
    };
    assert!(words([1, 2, 2, 1], [5, 7, 7, 5]).is_empty());
    let crossed = words([1, 2, 2, 1], [5, 7, 5, 7]);
    assert_eq!(crossed[0], "objects: DESTROY_EQ mask=0x0: eqn 0x2 | 0x5, which do not belong together");
    assert_eq!(words([1, 2, 2, 1], [5, 7, 7, 6])[0], "objects: DESTROY_EQ: | eqn 0x6 was not made before");
    assert_eq!(words([1, 2, 1, 1], [5, 7, 5, 7])[0], "objects: DESTROY_EQ mask=0x0: eqn 0x1 was not made before |");
}

#[test]
fn the_end_of_an_object_belongs_to_the_end_of_the_one_made_for_the_same() {
    let eq = |n: u32, mask: &str| format!("CREATE_EQ(0x301) 0 304 16 0; eqn {n} mask {mask} uar 8");
    let destroy = |n: u32| format!("DESTROY_EQ(0x302) 0 16 16 0; eqn {n}");
    let a = [UAR.to_string(), eq(1, "c00"), destroy(1)];
    let b = [UAR.to_string(), eq(1, "400"), eq(2, "0"), destroy(2), destroy(1)];
    let found = words(&a.each_ref().map(String::as_str), &b.each_ref().map(String::as_str));
    let expected = [
        "inputs: CREATE_EQ mask=0xc00: mask 0xc00 | 0x400",
        "only-b: CREATE_EQ mask=0x0",
        "only-b: DESTROY_EQ mask=0x0",
    ];
    assert_eq!(found, expected);
}

#[test]
fn times_slots_and_addresses_are_not_compared() {
    let a = "1.0 CMD slot=3 CREATE_MKEY(0x200) opmod=0 uid=0 inlen=288 outlen=16 st=0 mkey 10 mode 1 start 5556d47e4000 len 2000";
    let b =
        "2.0 CMD slot=0 CREATE_MKEY(0x200) opmod=0 uid=0 inlen=288 outlen=16 st=0 mkey 99 mode 1 start 1000 len 2000";
    let of = |text: &str| vec![Line::parse(text).unwrap()];
    assert_eq!(compare(&of(a), &of(b), &Ignore::default()), Ok(vec![]));
    let longer = b.replace("len 2000", "len 3000");
    assert_eq!(compare(&of(a), &of(&longer), &Ignore::default()).unwrap()[0].what, "len 0x2000 | 0x3000");
}

#[test]
fn another_register_is_another_command() {
    let reg = |n: &str| format!("ACCESS_REG(0x805) 0 32 32 0; reg {n} W");
    let expected = ["only-a: ACCESS_REG reg=0x7004 w", "only-b: ACCESS_REG reg=0x5004 w"];
    let mut found = words(&[&reg("7004")], &[&reg("5004")]);
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn kinds_commands_and_details_can_be_left_out() {
    let (a, b) = (trace(&[INIT, ADAPTER, UAR]), trace(&["INIT_HCA(0x102) 0 16 16 3", UAR]));
    let left = |words: &[&str]| {
        let mut ignore = Ignore::default();
        words.iter().for_each(|word| ignore.add(word));
        compare(&a, &b, &ignore).unwrap().len()
    };
    assert_eq!(left(&[]), 3);
    assert_eq!(left(&["only-a"]), 2);
    assert_eq!(left(&["INIT_HCA"]), 1);
    assert_eq!(left(&["in"]), 2);
    assert_eq!(left(&["in", "st", "QUERY_ADAPTER"]), 0);
}

#[test]
fn long_traces_are_compared_where_they_differ_and_refused_where_they_differ_all_over() {
    let many = |command: &'static str, n| vec![command; n];
    let a = trace(&[many(INIT, 50_000), vec![ADAPTER], many(INIT, 50_000)].concat());
    let b = trace(&many(INIT, 100_000));
    assert_eq!(compare(&a, &b, &Ignore::default()).unwrap().len(), 1);
    let other = trace(&many(ADAPTER, 5_000));
    assert!(compare(&other, &b, &Ignore::default()).is_err());
}
