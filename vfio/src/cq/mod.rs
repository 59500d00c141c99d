//! `mlx5 cq`: what options of a completion queue yield.

mod all;
mod attr;
mod report;

use std::io::Write;

use clap::Args;
use mlx5::{Device, Error, ParentDomain, ParentDomainInitAttr, ibv};

use crate::cli::{Failure, print_json};
use crate::options;
use crate::rig::{DeviceArgs, Rig};
use crate::traffic;
pub(crate) use attr::{Attributes, with_errno};
pub(crate) use report::Kind;
use report::{Created, Report};

#[derive(Debug, Args)]
pub(crate) struct CqArgs {
    #[command(flatten)]
    device: DeviceArgs,
    /// Every combination of size, padding, format, layout and some numbers of entries, each with real traffic, as a table
    #[arg(long, conflicts_with = "attributes")]
    all: bool,
    /// Capabilities that the model does not have
    #[arg(long, value_name = "CAP,...", value_delimiter = ',', value_parser = options::capabilities())]
    without: Vec<String>,
    #[command(flatten)]
    attributes: Attributes,
}

impl CqArgs {
    /// What to run on.
    pub(crate) fn rig(&self) -> Result<Box<dyn Rig>, Failure> {
        let without = ("--without", !self.without.is_empty());
        self.device.rig(options::model_without(&self.without, 0), &[without])
    }
}

/// Creates one completion queue, or all kinds of them, and prints what came of it.
pub(crate) fn run(args: &CqArgs, rig: &dyn Rig, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    if args.all {
        return all::run(rig, json, out);
    }
    let device = rig.open(rig.default_config())?;
    let report = create(&device, &args.attributes);
    traffic::close(rig, device).map_err(Failure::Job)?;
    if let Some(violation) = rig.violations().first() {
        return Err(Failure::Job(format!("the driver broke a rule of the hardware: {violation}")));
    }
    if json {
        print_json(&report.object(&rig.name(), &args.attributes), out)?;
    } else {
        writeln!(out, "{}.", rig.title())?;
        report.text(&args.attributes, out)?;
    }
    report.refusal().map_or(Ok(()), |why| Err(Failure::Job(format!("the completion queue was not created: {why}"))))
}

/// Creates a completion queue, asks for all about it, and destroys it.
fn create(device: &Device, attributes: &Attributes) -> Report {
    let limits = ibv::query_device(device);
    Report(in_domain(device, attributes, |domain| {
        let cq = attributes.create(device, domain, None)?;
        let created = Created::of(&cq, &cq.query()?, &limits);
        ibv::destroy_cq(cq).map_err(|e| e.error)?;
        Ok(created)
    }))
}

/// Does something within a parent domain if the attributes ask for one.
fn in_domain<T>(
    device: &Device,
    attributes: &Attributes,
    job: impl FnOnce(Option<&ParentDomain>) -> Result<T, Error>,
) -> Result<T, Error> {
    if !attributes.parent_domain {
        return job(None);
    }
    let pd = ibv::alloc_pd(device)?;
    let init = ParentDomainInitAttr { pd: Some(&pd), ..ParentDomainInitAttr::default() };
    let domain = ibv::alloc_parent_domain(device, &init)?;
    let done = job(Some(&domain));
    ibv::dealloc_parent_domain(domain).map_err(|e| e.error)?;
    ibv::dealloc_pd(pd).map_err(|e| e.error)?;
    done
}
