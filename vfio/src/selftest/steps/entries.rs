//! Completion queues of every kind of entries, with real traffic; polled by array at one end, by iterator at the other.

use clap::ValueEnum;
use mlx5::{CreateCqFlags, WcFlags};
use mlx5_model::CompletionCounts;

use super::{Step, step};
use crate::cq::{Attributes, Kind};
use crate::options::{Compress, Layout, word};
use crate::progress::Progress;
use crate::selftest::bench::Bench;
use crate::selftest::need::{Need, Page, Wants};
use crate::selftest::outcome::{Doing, Done, Trouble, ensure, wrong};
use crate::traffic::{self, Plan, Ran};

/// Entries of a queue, and round trips: enough to go around its ring some times.
const CQE: u32 = 31;
const TRIPS: u64 = 64;
const TRIPS_OF_QUICK: u64 = 16;
/// Most bytes of a message; they differ.
const SIZE: u32 = 64;
/// Entries of a small ring, and round trips in which it goes around more often than a byte can count.
const SMALL: u32 = 7;
const TRIPS_OF_SMALL: u64 = 1100;

pub(super) fn steps() -> Vec<Step> {
    let mut steps = Vec::new();
    for (cqe_size, pad) in [(64, false), (128, false), (128, true)] {
        let plain = Attributes { cqe: CQE, cqe_size: Some(cqe_size), pad, ..Attributes::default() };
        steps.push(mode(plain.clone()));
        for &format in Compress::value_variants() {
            for &layout in Layout::value_variants() {
                let compress = Some(format.bit().bits());
                steps.push(mode(Attributes { compress, layout: Some(layout), ..plain.clone() }));
            }
        }
    }
    steps.push(laps());
    let fields = WcFlags::all() - WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK;
    let fields = Attributes { cqe: CQE, wc_flags: Some(fields.bits()), ..Attributes::default() };
    steps.push(with_traffic("cq-fields", "completions with all fields that can be asked for", &[ticks()], fields));
    let flags = CreateCqFlags::IGNORE_OVERRUN.bits();
    let ignore = Attributes { cqe: CQE, flags: Some(flags), ..Attributes::default() };
    let shows = "a queue that ignores overrun, within its size";
    steps.push(with_traffic("cq-ignore-overrun", shows, &[Need::bit("cq_oi")], ignore));
    steps
}

/// Queue pairs may stamp with the counter.
pub(super) fn ticks() -> Need {
    Need::of(Page::Roce, "qp_ts_format", Wants::Not(1))
}

/// What a kind of entries needs.
fn needs(kind: Kind) -> Vec<Need> {
    let mut needs = Vec::new();
    if kind.padded {
        needs.push(Need::bit("cqe_128_always"));
    }
    let Some((format, layout)) = kind.compressed else { return needs };
    needs.extend([Need::bit("cqe_compression"), Need::bit("cqe_compression_max_num")]);
    if kind.cqe_size == 128 {
        needs.push(Need::bit("cqe_compression_128"));
    }
    match format {
        Compress::Hash | Compress::Csum => {}
        Compress::CsumStridx => needs.push(Need::bit("mini_cqe_resp_stride_index")),
        Compress::FtagStridx => needs.push(Need::bit("mini_cqe_resp_flow_tag")),
        Compress::L34hStridx => needs.push(Need::bit("mini_cqe_resp_l3_l4_tag")),
    }
    if layout == Layout::Enhanced {
        needs.push(Need::bit("enhanced_cqe_compression"));
    }
    needs
}

/// A kind of entries.
fn mode(attributes: Attributes) -> Step {
    let kind = attributes.kind();
    let mut name = format!("cq-{}", kind.cqe_size);
    if kind.padded {
        name += "-pad";
    }
    if let Some((format, layout)) = kind.compressed {
        name = format!("{name}-{}-{}", word(format), word(layout));
    }
    with_traffic(name, format!("entries of {}", kind.words()), &needs(kind), attributes)
}

fn with_traffic(name: impl Into<String>, shows: impl Into<String>, needs: &[Need], attributes: Attributes) -> Step {
    step(name, shows, needs, move |bench| {
        let iters = if bench.quick { TRIPS_OF_QUICK } else { TRIPS };
        trips(bench, &attributes, &Plan { iters, ..plan(&attributes) })
    })
}

/// The enhanced layout tells laps apart by a byte: a ring that goes around more often than that.
fn laps() -> Step {
    let (compress, layout) = (Some(Compress::Csum.bit().bits()), Some(Layout::Enhanced));
    let attributes = Attributes { cqe: SMALL, compress, layout, ..Attributes::default() };
    let needs = needs(attributes.kind());
    step("cq-laps", "the enhanced layout on a small ring, more often around than a byte counts", &needs, move |bench| {
        trips(bench, &attributes, &Plan { iters: TRIPS_OF_SMALL, ..plan(&attributes) })
    })
}

/// What messages over such queues are like.
fn plan(attributes: &Attributes) -> Plan {
    let numbered = attributes.compress.is_none();
    Plan { size: SIZE, varied: true, seed: attributes.cqe.into(), numbered, ..Plan::default() }
}

/// Runs round trips, and tells what came of them.
pub(super) fn trips(bench: &Bench<'_>, attributes: &Attributes, plan: &Plan) -> Done {
    let cqs = bench.cqs(attributes)?;
    for cq in &cqs {
        let kind = Kind::of(&cq.query().doing("asking for the queue's context")?);
        ensure(kind == attributes.kind(), || format!("the device says that entries are of {}", kind.words()))?;
    }
    let before = bench.rig.completions();
    let ran = traffic::run(bench.rig, bench.device, None, cqs, plan, &mut Progress::new(plan.iters, false));
    check(&ran, plan)?;
    let words = format!("{} round trips", ran.verified);
    match before.zip(bench.rig.completions()) {
        Some((before, now)) => counted(words, attributes, plan, &ran, before, now),
        None if attributes.compress.is_some() => Ok(words + "; whether completions came compressed is not told"),
        None if plan.scatter_to_cqe => Ok(words + "; whether completions had data in them is not told"),
        None => Ok(words),
    }
}

/// What a model has counted meanwhile, which alone tells whether completions were what they were to be.
fn counted(
    mut words: String,
    attributes: &Attributes,
    plan: &Plan,
    ran: &Ran,
    before: CompletionCounts,
    now: CompletionCounts,
) -> Done {
    let (all, compressed) = (now.written - before.written, now.compressed - before.compressed);
    let inlined = now.inlined - before.inlined;
    // A message alone in flight has nothing to be compressed with.
    if attributes.compress.is_some() && ran.in_flight > 1 {
        ensure(compressed > 0, || format!("not one of {all} completions came compressed"))?;
        words += &format!(", {compressed} of {all} completions compressed");
    }
    if plan.scatter_to_cqe {
        ensure(inlined > 0, || format!("not one of {all} completions had data in it"))?;
        words += &format!(", {inlined} of {all} completions with data");
    }
    Ok(words)
}

/// Fails unless all of it was right.
fn check(ran: &Ran, plan: &Plan) -> Result<(), Trouble> {
    if let Some(why) = ran.failure.as_ref().or(ran.teardown.as_ref()) {
        return wrong(why);
    }
    if let Some(lost) = ran.lost.first() {
        return wrong(format!("message lost: {lost}"));
    }
    ensure(ran.verified == plan.iters, || format!("{} of {} round trips were verified", ran.verified, plan.iters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_that_are_counted_and_never_what_they_were_to_be_fail() {
        let ran = Ran { in_flight: 4, ..Ran::default() };
        let counts =
            |written, compressed, inlined| CompletionCounts { written, compressed, inlined, ..Default::default() };
        let compress = Attributes { compress: Some(1), ..Attributes::default() };
        let (plain, plan, inline) =
            (Attributes::default(), Plan::default(), Plan { scatter_to_cqe: true, ..Plan::default() });
        let of = |attributes, plan, now| counted(String::new(), attributes, plan, &ran, counts(9, 3, 2), now);
        assert!(of(&compress, &plan, counts(19, 4, 2)).is_ok());
        assert!(of(&compress, &plan, counts(19, 3, 2)).is_err());
        assert!(of(&plain, &inline, counts(19, 3, 3)).is_ok());
        assert!(of(&plain, &inline, counts(19, 3, 2)).is_err());
        assert!(of(&plain, &plan, counts(19, 3, 2)).is_ok());
    }

    #[test]
    fn traffic_that_is_not_complete_and_clean_fails() {
        let plan = Plan { iters: 4, ..Plan::default() };
        let good = || Ran { verified: 4, ..Ran::default() };
        assert_eq!(check(&good(), &plan), Ok(()));
        let lost = vec![traffic::Lost { iteration: 1, from: "A", to: "B" }];
        for bad in [
            Ran { verified: 3, ..good() },
            Ran { failure: Some("payload".into()), ..good() },
            Ran { teardown: Some("busy".into()), ..good() },
            Ran { lost, ..good() },
        ] {
            assert!(check(&bad, &plan).is_err());
        }
    }
}
