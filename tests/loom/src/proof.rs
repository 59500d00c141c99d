//! Running a model with all orderings, and with each of them taken away.

use std::collections::BTreeSet;
use std::thread;

use loom::model::Builder;
use mlx5_hw::sync::{Site, seen, take_away};

/// A model, and its name.
pub(crate) type Model = (&'static str, fn());

/// Whether a model holds in every order, with `away` taken away; the places that asked for an ordering.
fn check(model: fn(), away: Option<Site>) -> (bool, BTreeSet<Site>) {
    let run = move || {
        if let Some(site) = away {
            take_away(site);
        }
        let mut builder = Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
        seen()
    };
    match thread::spawn(run).join() {
        Ok(seen) => (true, seen),
        Err(_) => (false, BTreeSet::new()),
    }
}

/// A model that lacks something does not hold.
pub(crate) fn fails(model: fn()) -> bool {
    !check(model, None).0
}

/// Each model holds; and each place in `files` that asks for an ordering, `expected` of them, needs it: without it a model
/// fails.
pub(crate) fn each_ordering_is_needed(models: &[Model], files: &[&str], expected: usize) {
    let mut sites = BTreeSet::new();
    for (name, model) in models {
        let (holds, seen) = check(*model, None);
        assert!(holds, "{name} does not hold");
        sites.extend(seen.into_iter().filter(|site| files.iter().any(|file| site.file().ends_with(file))));
    }
    println!("{} places ask for an ordering", sites.len());
    for site in sites.iter().copied() {
        let failing = models.iter().find(|(_, model)| !check(*model, Some(site)).0);
        let Some((name, _)) = failing else { panic!("nothing fails without the ordering at {site}") };
        println!("without {}:{}: {name} fails", site.file(), site.line());
    }
    assert_eq!(sites.len(), expected, "places that ask for an ordering");
}
