//! Runs on models that fail in one way or another.

use mlx5_model::{DataFault, Effect, Fault, Match, ModelConfig};

use super::*;
use crate::rig::ModelRig;

#[derive(clap::Parser)]
struct Only {
    #[command(flatten)]
    args: SelftestArgs,
}

/// A run on a model that does `effect` to the next command of this number.
fn run(opcode: u16, effect: Effect, options: &[&str]) -> Run {
    let rig = ModelRig::new(ModelConfig::default());
    if let Some(model) = rig.model() {
        model.inject(Fault::Command { at: Match::Opcode(opcode), effect });
    }
    let Only { args } = clap::Parser::parse_from(["mlx5", "--model", "--quick"].iter().chain(options));
    let steps = steps::all();
    let Ok(chosen) = choose(&steps, &args.only) else { panic!("{options:?}") };
    Run::of(&rig, &chosen, &args, false)
}

fn ended(run: &Run, is: fn(&Outcome) -> bool) -> Vec<&str> {
    run.records.iter().filter(|record| is(&record.outcome)).map(|record| record.name.as_str()).collect()
}

/// MODIFY_CQ is 0x403, ENABLE_HCA 0x104, ALLOC_PD 0x800, DESTROY_CQ 0x401 (PRM, command opcodes).
#[test]
fn a_device_that_is_lost_ends_the_run_and_what_did_not_run_is_not_known_to_work() {
    let run = run(0x403, Effect::Removed, &["--only", "port,cq-resize,uc,ud"]);
    assert_eq!(ended(&run, |outcome| matches!(outcome, Outcome::Pass(_)))[..3], ["bring-up", "loopback", "port"]);
    let failed = ended(&run, |outcome| matches!(outcome, Outcome::Fail(_)));
    assert_eq!(failed[0], "cq-resize", "{failed:?}");
    assert!(failed.contains(&"teardown"), "{failed:?}");
    let not_run = ended(&run, |outcome| matches!(outcome, Outcome::NotRun(_)));
    assert_eq!(not_run, ["uc", "ud", "health", "second-bring-up"]);
    let why = run.records.iter().find(|record| record.name == "uc").map(|record| record.outcome.words());
    assert_eq!(why.as_deref(), Some("the device was lost: the device does not answer, its registers read as all ones"));
    assert!(run.verdict().is_some_and(|why| why.starts_with("selftest: cq-resize failed: ")), "{:?}", run.verdict());
}

#[test]
fn a_device_that_does_not_come_up_passes_nothing() {
    let run = run(0x104, Effect::Status { status: 1, syndrome: 0x1234 }, &["--only", "port"]);
    assert_eq!(ended(&run, |outcome| matches!(outcome, Outcome::Fail(_))), ["bring-up", "teardown"]);
    let not_run = ended(&run, |outcome| matches!(outcome, Outcome::NotRun(_)));
    assert_eq!(not_run, ["loopback", "port", "health", "second-bring-up"]);
    assert!(run.verdict().is_some_and(|why| why.contains("ENABLE_HCA failed")), "{:?}", run.verdict());
}

/// As a function does: by the clock on the wall, while the program sleeps.
#[test]
fn a_device_that_runs_by_itself_passes_as_well() {
    let rig = ModelRig::new(ModelConfig::default());
    assert_eq!(rig.run_by_itself(), Ok(()));
    let only = "clock,cq-64-csum-basic,timestamps*,cq-resize,cq-moderation,event*,rc-rdma,error-no-receive";
    let Only { args } = clap::Parser::parse_from(["mlx5", "--model", "--quick", "--only", only]);
    let steps = steps::all();
    let Ok(chosen) = choose(&steps, &args.only) else { panic!("{only}") };
    let run = Run::of(&rig, &chosen, &args, false);
    assert_eq!(run.verdict(), None);
    assert_eq!(ended(&run, |outcome| matches!(outcome, Outcome::Pass(_))).len(), chosen.len() + ALWAYS as usize);
}

/// The first `lost` completions are never written.
fn without_completions(rig: &ModelRig, lost: usize, only: &str) -> Run {
    let Some(model) = rig.model() else { panic!("no model") };
    (0..lost).for_each(|_| model.inject_data(DataFault::LostCqe, 0));
    let Only { args } = clap::Parser::parse_from(["mlx5", "--model", "--quick", "--only", only]);
    let steps = steps::all();
    let Ok(chosen) = choose(&steps, &args.only) else { panic!("{only}") };
    Run::of(rig, &chosen, &args, false)
}

#[test]
fn where_no_message_arrives_only_the_first_steps_wait_for_one() {
    let rig = ModelRig::new(ModelConfig::default());
    let run = without_completions(&rig, 1000, "clock,cq-64,cq-128,rc,uc,user-memory,error-no-peer");
    let failed = ["loopback", "cq-64", "cq-128", "second-bring-up"];
    assert_eq!(ended(&run, |outcome| matches!(outcome, Outcome::Fail(_))), failed);
    let not_run = ended(&run, |outcome| matches!(outcome, Outcome::NotRun(_)));
    assert_eq!(not_run, ["rc", "uc", "user-memory", "error-no-peer"]);
    let why = run.records.iter().find(|record| record.name == "rc").map(|record| record.outcome.words());
    assert_eq!(why.as_deref(), Some("none of the 3 steps that tried a connection has passed"));
    assert_eq!((run.result(), run.count(|outcome| matches!(outcome, Outcome::Pass(_)))), ("FAILED", 5));
}

/// Once something has arrived every step has its turn.
#[test]
fn steps_that_fail_behind_one_that_passes_keep_no_other_from_running() {
    let rig = ModelRig::new(ModelConfig::default());
    let Some(model) = rig.model() else { panic!("no model") };
    // Those of the loopback come.
    model.inject_data(DataFault::LostCqe, 2);
    let run = without_completions(&rig, 3, "cq-64,cq-128,rc,uc");
    assert_eq!(ended(&run, |outcome| matches!(outcome, Outcome::NotRun(_))), Vec::<&str>::new());
    assert!(ended(&run, |outcome| matches!(outcome, Outcome::Fail(_))).contains(&"cq-64"));
}

/// By the clock on the wall: 5 s, which a hundred steps would wait again and again.
#[test]
fn waits_are_shorter_once_one_was_in_vain() {
    let lose_one = |only| {
        let rig = ModelRig::new(ModelConfig::default());
        assert_eq!(rig.run_by_itself(), Ok(()));
        let before = rig.patience();
        let Some(model) = rig.model() else { panic!("no model") };
        // Those of the loopback come.
        model.inject_data(DataFault::LostCqe, 2);
        let run = without_completions(&rig, 0, only);
        assert_eq!(ended(&run, |outcome| matches!(outcome, Outcome::Fail(_))), [only]);
        assert_eq!(rig.patience(), before / 10, "{only}");
    };
    std::thread::scope(|scope| {
        for only in ["cq-64", "user-memory", "events"] {
            scope.spawn(move || lose_one(only));
        }
    });
}

#[test]
fn without_a_connection_nothing_has_passed_unless_none_was_asked_for() {
    let mut config = ModelConfig::default();
    ["roce", "fl_rc_qp_when_roce_disabled"].into_iter().for_each(|name| _ = config.caps.without(name));
    for (only, result) in [("port,rc", "INCOMPLETE"), ("port,clock", "passed")] {
        let run = without_completions(&ModelRig::new(config.clone()), 0, only);
        assert_eq!((run.result(), run.connected), (result, false), "{only}");
        let why = "selftest: no connection could be tried: cmd_hca_cap.roce is 0";
        assert_eq!(run.verdict().as_deref(), (only == "port,rc").then_some(why));
    }
}

/// What a step leaves behind is found by the teardown.
#[test]
fn a_command_that_is_refused_fails_the_step_it_is_of_and_no_other() {
    let refused = Effect::Status { status: 0xf, syndrome: 7 };
    for (opcode, says) in [(0x800, "ALLOC_PD"), (0x401, "DESTROY_CQ"), (0x403, "MODIFY_CQ")] {
        let run = run(opcode, refused, &["--only", "cq-resize"]);
        let failed = ended(&run, |outcome| matches!(outcome, Outcome::Fail(_)));
        let step = if opcode == 0x403 { "cq-resize" } else { "loopback" };
        assert_eq!(failed, [step], "{says}");
        assert!(run.verdict().is_some_and(|why| why.contains(says)), "{:?}", run.verdict());
        assert!(run.commands.iter().any(|command| command.result.is_err()), "{says}");
    }
}

#[test]
fn one_step_that_did_not_run_is_enough_for_the_run_to_fail() {
    let good = |outcome| Record { name: "x".into(), shows: String::new(), outcome, took: Duration::ZERO };
    let missing = Missing::Other("none".into());
    for (outcome, fails) in [
        (Outcome::Pass(String::new()), false),
        (Outcome::NotOffered(missing), false),
        (Outcome::NotRun("lost".into()), true),
        (Outcome::Fail("bad".into()), true),
    ] {
        let mut run = run(0xffff, Effect::Never, &["--only", "port"]);
        run.records.push(good(outcome.clone()));
        assert_eq!(run.verdict().is_some(), fails, "{outcome:?}");
    }
}
