//! `mlx5 bind` and `mlx5 unbind`.

use std::io::Write;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::{Failure, print_json};
use crate::host::binding::{self, BindOptions, Bound, Linux, Unbound};
use crate::host::{Bdf, Host, Obstacle, check};
use crate::progress::Busy;

/// Arguments of `bind`.
#[derive(Debug, Args)]
pub(crate) struct BindArgs {
    /// Addresses of PCI functions, such as 0000:03:00.0
    #[arg(value_name = "BDF", required = true)]
    functions: Vec<Bdf>,
    /// Take also a function that the kernel's network uses, or that has virtual functions: these go
    #[arg(long)]
    force: bool,
}

/// Arguments of `unbind`.
#[derive(Debug, Args)]
pub(crate) struct UnbindArgs {
    /// Addresses of PCI functions, such as 0000:03:00.0
    #[arg(value_name = "BDF", required = true)]
    functions: Vec<Bdf>,
}

/// Gives functions to vfio-pci.
pub(crate) fn bind(args: &BindArgs, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let host = &Host::default();
    let options = BindOptions { force: args.force, ..BindOptions::default() };
    let step = |bdf| {
        let _busy = Busy::new(format!("giving {bdf} to vfio-pci"));
        let bound = binding::bind(host, &Linux, bdf, &options)?;
        Ok((bound_object(bdf, &bound), bound_text(bdf, &bound)))
    };
    each(&args.functions, step, json, out)?;
    if !json { told_culprits(host, &args.functions, out) } else { Ok(()) }
}

/// Gives functions back.
pub(crate) fn unbind(args: &UnbindArgs, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let host = &Host::default();
    let step = |bdf| {
        let _busy = Busy::new(format!("giving {bdf} back"));
        let unbound = binding::unbind(host, &Linux, bdf)?;
        Ok((unbound_object(bdf, &unbound), unbound_text(bdf, &unbound)))
    };
    each(&args.functions, step, json, out)
}

/// Does one after the other and prints each; the first that fails ends it, and is the last one in JSON.
fn each(
    functions: &[Bdf],
    step: impl Fn(Bdf) -> Result<(Value, String), Obstacle>,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut objects = Vec::new();
    let mut failed = Ok(());
    for &bdf in functions {
        match step(bdf) {
            Ok((object, text)) => {
                objects.push(object);
                if !json {
                    writeln!(out, "{text}")?;
                }
            }
            Err(obstacle) => {
                let why = obstacle.to_string();
                objects.push(json!({ "bdf": bdf.to_string(), "kind": obstacle.kind(), "error": why }));
                failed = Err(Failure::Job(why));
                break;
            }
        }
    }
    if json {
        print_json(&Value::Array(objects), out)?;
    }
    failed
}

/// Says what is still in the way once all of them are bound.
fn told_culprits(host: &Host, functions: &[Bdf], out: &mut dyn Write) -> Result<(), Failure> {
    let groups = functions.iter().filter_map(|&bdf| host.function(bdf).ok()?.group);
    let mut told = Vec::new();
    for group in groups {
        if let (Err(obstacle), false) = (check::viable(&group), told.contains(&group.id)) {
            writeln!(out, "Not enough yet: {obstacle}")?;
            told.push(group.id);
        }
    }
    Ok(())
}

fn bound_text(bdf: Bdf, bound: &Bound) -> String {
    let node = bound.node.display();
    if bound.already {
        return format!("VFIO has {bdf} already: IOMMU group {}, {node}", bound.group);
    }
    let before = bound.before.as_deref().unwrap_or("no driver");
    format!("{bdf}: from {before} to vfio-pci, IOMMU group {}, {node}", bound.group)
}

fn bound_object(bdf: Bdf, bound: &Bound) -> Value {
    let culprits: Vec<Value> =
        bound.culprits.iter().map(|member| json!({ "device": member.device, "driver": member.driver })).collect();
    json!({
        "bdf": bdf.to_string(),
        "before": bound.before,
        "already": bound.already,
        "iommu_group": bound.group,
        "node": bound.node,
        "culprits": culprits,
    })
}

fn unbound_text(bdf: Bdf, unbound: &Unbound) -> String {
    let driver = unbound.driver.as_deref();
    match (unbound.already, driver) {
        (true, _) => format!("VFIO does not have {bdf}: {} holds it", driver.unwrap_or("no driver")),
        (false, None) => format!("{bdf}: from VFIO to no driver, as before or as none knows it"),
        (false, Some(driver)) => format!("{bdf}: from VFIO to {driver}"),
    }
}

fn unbound_object(bdf: Bdf, unbound: &Unbound) -> Value {
    json!({ "bdf": bdf.to_string(), "driver": unbound.driver, "already": unbound.already })
}
