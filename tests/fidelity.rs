//! What the driver asks of a function, beside what others ask of the same one: each difference stands in
//! `docs/fidelity.md` with its reason, and each row there is a difference that exists.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "not every test asserts cleanliness or opens the default model")]
mod control;

use std::collections::BTreeSet;

use control::{assert_clean, open};
use mlx5::{AccessFlags, DeviceConfig};
use mlx5_model::trace::{Ignore, Line, compare, read};
use mlx5_model::{CapConfig, DEVICE_ID_CX5_PF, DEVICE_ID_CX5_VF, Model, ModelConfig};

const DOCUMENT: &str = include_str!("../docs/fidelity.md");

fn recorded(text: &str) -> Vec<Line> {
    read(text).into_iter().map(|(_, line)| line).collect()
}

fn ours(model: &Model) -> Vec<Line> {
    model.commands().iter().map(Line::from).collect()
}

/// The differences that the table under a heading explains.
fn explained(heading: &str) -> BTreeSet<String> {
    let section = DOCUMENT.split("\n## ").find(|section| section.starts_with(heading)).expect("a heading");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split_once('`').expect("a closing quote").0.replace("\\|", "|")).collect()
}

fn assert_explained(theirs: &str, model: &Model, heading: &str) {
    let found = compare(&recorded(theirs), &ours(model), &Ignore::default()).unwrap();
    let found: BTreeSet<String> = found.iter().map(ToString::to_string).collect();
    let explained = explained(heading);
    let missing: Vec<_> = found.difference(&explained).collect();
    let stale: Vec<_> = explained.difference(&found).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "docs/fidelity.md, {heading}\nwithout a row: {missing:#?}\nrows of differences that are gone: {stale:#?}"
    );
}

#[test]
fn each_difference_from_linux_is_explained() {
    let model = Model::new(ModelConfig::core());
    open(&model, DeviceConfig::new(DEVICE_ID_CX5_VF)).unwrap().close().unwrap();
    assert_clean(&model, "closed");
    assert_explained(include_str!("data/linux-core-only.log"), &model, "Beside Linux");
}

/// The same model served both, so that its traces tell as much of both.
#[test]
fn each_difference_from_linux_on_the_model_itself_is_explained() {
    let model = Model::new(ModelConfig { device_id: DEVICE_ID_CX5_PF, ..ModelConfig::core() });
    open(&model, DeviceConfig::new(DEVICE_ID_CX5_PF)).unwrap().close().unwrap();
    assert_clean(&model, "closed");
    assert_explained(include_str!("data/linux-core-served.log"), &model, "Beside Linux");
}

#[test]
fn each_difference_from_rdma_cores_vfio_provider_is_explained() {
    // Their function had neither.
    let caps = CapConfig { atomic: false, driver_version: false, ..CapConfig::default() };
    let model = Model::new(ModelConfig { device_id: DEVICE_ID_CX5_PF, caps, ..ModelConfig::default() });
    let device = open(&model, DeviceConfig::new(DEVICE_ID_CX5_PF)).unwrap();
    let pd = device.alloc_pd().unwrap();
    let buf = pd.alloc_buf(0x2000, AccessFlags::LOCAL_WRITE).unwrap();
    buf.dereg().unwrap();
    pd.dealloc().unwrap();
    device.close().unwrap();
    assert_clean(&model, "closed");
    assert_explained(include_str!("data/rdma-core-vfio.log"), &model, "Beside rdma-core");
}
