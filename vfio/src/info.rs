//! `mlx5 info`: firmware, ids, capabilities.

use std::io::Write;

use clap::Args;
use mlx5::Device;
use mlx5::hw::caps::{CmdHcaCap, RoceCap};
use mlx5::hw::prm::{Field, Layout};
use mlx5_model::ModelConfig;
use serde_json::{Map, Value, json};

use crate::cli::{Failure, print_json};
use crate::decode::{meaning, number, table};
use crate::rig::{DeviceArgs, Rig};
use crate::selftest::{self, RawPage};
use crate::traffic;

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    device: DeviceArgs,
    /// Show the addresses as well, which tell one machine from all others: MAC, GID and GUIDs
    #[arg(long)]
    ids: bool,
    /// Show the pages of capabilities as the device gives them, in hex, as well (they are always in JSON)
    #[arg(long)]
    raw: bool,
}

impl InfoArgs {
    /// What to run on.
    pub(crate) fn rig(&self) -> Result<Box<dyn Rig>, Failure> {
        self.device.rig(ModelConfig::default(), &[])
    }
}

/// Opens the device, prints what it says of itself, and closes it.
pub(crate) fn run(args: &InfoArgs, rig: &dyn Rig, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let device = rig.open(rig.default_config())?;
    let printed = if json { print_json(&object(args, rig, &device), out) } else { text(args, rig, &device, out) };
    traffic::close(rig, device).map_err(Failure::Job)?;
    printed
}

/// Identity as names and values.
pub(crate) fn identity(device: &Device, ids: bool) -> Vec<(&'static str, String)> {
    let info = device.info();
    let (major, minor, sub) = info.firmware;
    let psid: String = info.psid.iter().take_while(|&&b| b != 0).map(|&b| char::from(b)).collect();
    let mac = info.mac.map(|b| format!("{b:02x}")).join(":");
    let gid = info.gid.map(|g| std::net::Ipv6Addr::from(g).to_string());
    let addresses = ["node_guid", "system_image_guid", "mac", "gid"];
    let of_others: &[&str] = if info.ethernet { &["lid"] } else { &["mac", "mtu"] };
    let mut all = vec![
        ("firmware", format!("{major}.{minor}.{sub:04}")),
        ("psid", psid),
        ("vendor_id", format!("{:#06x}", info.vendor_id)),
        ("device_id", format!("{:#06x}", info.device_id)),
        ("issi", info.issi.to_string()),
        ("node_guid", format!("{:016x}", info.node_guid)),
        ("system_image_guid", format!("{:016x}", info.system_image_guid)),
        ("link_layer", if info.ethernet { "Ethernet" } else { "InfiniBand" }.to_string()),
        ("port", if info.port_up { "up" } else { "down" }.to_string()),
        ("port_state", format!("{:?}", info.port_state)),
        ("lid", lid(info.lid)),
        ("mac", mac),
        ("mtu", info.mtu.to_string()),
        ("gid", gid.unwrap_or_else(|| "none".to_string())),
        ("health", format!("{:?}", device.health())),
    ];
    all.retain(|(name, _)| (ids || !addresses.contains(name)) && !of_others.contains(name));
    all
}

/// The local identifier of an InfiniBand port (IBA, 4.1.3: 0 is reserved, 0xffff the permissive one).
fn lid(lid: u16) -> String {
    if matches!(lid, 0 | 0xffff) { "none".to_string() } else { format!("{lid:#x}") }
}

/// The pages of capabilities: name, fields, and the numbers.
fn pages(device: &Device) -> Vec<(&'static str, &'static [Field], Vec<mlx5::hw::be::Be32>)> {
    let caps = device.caps();
    let general = ("general", CmdHcaCap::FIELDS, caps.general.words().to_vec());
    let roce = caps.roce.as_ref().map(|roce| ("roce", RoceCap::FIELDS, roce.words().to_vec()));
    std::iter::once(general).chain(roce).collect()
}

fn object(args: &InfoArgs, rig: &dyn Rig, device: &Device) -> Value {
    let mut object: Map<String, Value> =
        identity(device, args.ids).into_iter().map(|(name, value)| (name.to_string(), Value::from(value))).collect();
    object.insert("device".into(), rig.name().into());
    let pages = pages(device);
    let capabilities: Map<String, Value> = pages
        .iter()
        .map(|(name, fields, words)| {
            let values = fields.iter().map(|f| (f.name.to_string(), Value::from((f.get)(words, 0))));
            (name.to_string(), Value::Object(values.collect()))
        })
        .collect();
    object.insert("capabilities".into(), json!(capabilities));
    object.insert("capability_pages".into(), selftest::pages(device).iter().map(RawPage::object).collect());
    Value::Object(object)
}

fn text(args: &InfoArgs, rig: &dyn Rig, device: &Device, out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(out, "{}.", rig.title())?;
    let identity = identity(device, args.ids);
    let width = identity.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in &identity {
        writeln!(out, "  {name:width$}  {value}")?;
    }
    for (name, fields, words) in pages(device) {
        writeln!(out, "\nCapabilities: {name}\n")?;
        let rows = fields.iter().map(|f| [f.name.to_string(), number((f.get)(&words, 0)), meaning(f.doc)]);
        writeln!(out, "{}", table(["capability", "value", "meaning"], rows))?;
    }
    if args.raw {
        selftest::pages(device).iter().try_for_each(|page| page.text(out))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::ModelRig;

    fn told(config: ModelConfig, name: &str) -> Option<String> {
        let rig = ModelRig::new(config);
        let device = rig.open(rig.default_config()).unwrap();
        let found = identity(&device, false).into_iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value)
    }

    #[test]
    fn a_port_is_told_with_its_link_layer_state_and_the_lid_of_infiniband() {
        let infiniband = ModelConfig::infiniband;
        for (config, link_layer, state, lid) in [
            (ModelConfig::default(), "Ethernet", "Active", None),
            (ModelConfig { lid: 0x2a, ..infiniband() }, "InfiniBand", "Active", Some("0x2a")),
            (ModelConfig { lid: 0xffff, link_up: false, ..infiniband() }, "InfiniBand", "Down", Some("none")),
        ] {
            let told = |name| told(config.clone(), name);
            assert_eq!(told("link_layer").as_deref(), Some(link_layer));
            assert_eq!(told("port_state").as_deref(), Some(state));
            assert_eq!(told("lid").as_deref(), lid);
            assert_eq!(told("gid"), None, "a GID names the machine");
        }
    }
}
