//! `mlx5 list`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::{Failure, print_json};
use crate::decode::table;
use crate::host::{Function, Group, Host, Obstacle, check};

/// Arguments of `list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Look at a machine whose /sys, /dev and /proc lie in this folder, such as a copy in a bug report
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// Prints the mlx5 functions of a machine and what is missing before each can be opened.
pub(crate) fn list(args: &ListArgs, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let host = &Host::at(&args.root);
    if !host.path("sys").is_dir() {
        return Err(Failure::Usage(format!("--root {}: there is no folder `sys` in it", args.root.display())));
    }
    let functions: Vec<(Function, Option<Obstacle>)> =
        host.functions().into_iter().map(|function| (function.clone(), missing(host, &function))).collect();
    if json {
        let list = functions.iter().map(|(function, missing)| object(function, missing.as_ref()));
        return print_json(&Value::Array(list.collect()), out);
    }
    if functions.is_empty() {
        writeln!(out, "This machine has no mlx5 function. Try it without: `mlx5 pingpong --model`.")?;
        return Ok(());
    }
    let rows = functions.iter().map(|(function, missing)| row(function, missing.is_none()));
    writeln!(out, "{}", table(["address", "id", "name", "driver", "group", "with", "NUMA", "network", "ready"], rows))?;
    let mut missing =
        functions.iter().filter_map(|(function, missing)| Some((function.bdf, missing.as_ref()?))).peekable();
    if missing.peek().is_some() {
        writeln!(out, "\nMissing:")?;
    }
    for (bdf, obstacle) in missing {
        writeln!(out, "  {bdf}  {obstacle}")?;
    }
    Ok(())
}

/// What stands in the way; also that a process has it open, as far as this user may see that.
fn missing(host: &Host, function: &Function) -> Option<Obstacle> {
    match check::ready(host, function.bdf) {
        Err(obstacle) => Some(obstacle),
        Ok(_) => check::in_use(host, function),
    }
}

fn row(function: &Function, ready: bool) -> [String; 9] {
    let none = || "-".to_string();
    let lines = |lines: Vec<String>| if lines.is_empty() { none() } else { lines.join("\n") };
    let netdevs =
        function.netdevs.iter().map(|netdev| format!("{} {}", netdev.name, if netdev.up { "up" } else { "down" }));
    [
        function.bdf.to_string(),
        format!("{:04x}:{:04x}", function.vendor, function.device),
        function.name.unwrap_or("unknown").to_string(),
        function.driver.clone().unwrap_or_else(none),
        function.group.as_ref().map_or_else(none, |group| group.id.to_string()),
        lines(function.group.as_ref().map(|group| others(function, group)).unwrap_or_default()),
        function.numa.map_or_else(none, |numa| numa.to_string()),
        lines(netdevs.collect()),
        if ready { "yes" } else { "no" }.to_string(),
    ]
}

/// The other members of a function's group.
fn others(function: &Function, group: &Group) -> Vec<String> {
    let own = function.bdf.to_string();
    group.members.iter().filter(|member| member.device != own).map(ToString::to_string).collect()
}

fn object(function: &Function, missing: Option<&Obstacle>) -> Value {
    let group = function.group.as_ref().map(|group| {
        let members = group.members.iter();
        let members = members.map(|m| json!({ "device": m.device, "driver": m.driver, "harmless": m.harmless }));
        json!({ "id": group.id, "members": members.collect::<Vec<_>>(), "node": group.node, "no_iommu": group.no_iommu })
    });
    let netdevs = function.netdevs.iter().map(|netdev| json!({ "name": netdev.name, "up": netdev.up }));
    json!({
        "bdf": function.bdf.to_string(),
        "vendor_id": format!("{:#06x}", function.vendor),
        "device_id": format!("{:#06x}", function.device),
        "name": function.name,
        "driver": function.driver,
        "driver_override": function.driver_override,
        "iommu_group": group,
        "netdevs": netdevs.collect::<Vec<_>>(),
        "rdma_devices": function.rdma,
        "virtual_functions": function.vfs,
        "physical_function": function.physical.map(|bdf| bdf.to_string()),
        "numa_node": function.numa,
        "answers": function.answers,
        "ready": missing.is_none(),
        "missing": missing.map(|obstacle| {
            json!({ "kind": obstacle.kind(), "what": obstacle.what(), "cure": obstacle.cure() })
        }),
    })
}
