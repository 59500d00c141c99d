//! `mlx5 cq`: what options of a completion queue yield.

mod all;
mod attr;
mod report;

use std::io::Write;

use clap::Args;
use mlx5::{Device, DeviceConfig, Error, ParentDomain, ParentDomainInitAttr, ibv};
use mlx5_model::{Model, ModelConfig};

use crate::cli::{Failure, print_json};
use crate::options;
pub(crate) use attr::{Attributes, with_errno};
pub(crate) use report::Kind;
use report::{Created, Report};

#[derive(Debug, Args)]
pub(crate) struct CqArgs {
    #[command(flatten)]
    pub(crate) device: crate::cli::DeviceArgs,
    /// Every combination of size, padding, format, layout and some numbers of entries, each with real traffic, as a table
    #[arg(long, conflicts_with = "attributes")]
    all: bool,
    /// Capabilities that the device does not have
    #[arg(long, value_name = "CAP,...", value_delimiter = ',', value_parser = options::capabilities())]
    without: Vec<String>,
    #[command(flatten)]
    attributes: Attributes,
}

/// Creates one completion queue, or all kinds of them, and prints what came of it.
pub(crate) fn run(args: &CqArgs, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let config = options::model_without(&args.without, 0);
    if args.all {
        return all::run(&config, json, out);
    }
    let report = on_device(config, |device| create(device, &args.attributes))?;
    if json {
        print_json(&report.object(&args.attributes), out)?;
    } else {
        writeln!(out, "Software model of a ConnectX-5 function, no card.")?;
        report.text(&args.attributes, out)?;
    }
    report.refusal().map_or(Ok(()), |why| Err(Failure::Job(format!("the completion queue was not created: {why}"))))
}

/// Opens a model, does something with it, and closes it; what was done has to leave no trace.
fn on_device<T>(config: ModelConfig, job: impl FnOnce(&Device) -> T) -> Result<T, Failure> {
    let model = Model::new(config);
    let device = ibv::open_device(model.clone(), model.clone(), DeviceConfig::default())
        .map_err(|e| Failure::Job(format!("the device did not come up: {e}")))?;
    let done = job(&device);
    ibv::close_device(device).map_err(|e| Failure::Job(format!("closing the device failed: {e}")))?;
    match model.violations().first() {
        Some(violation) => Err(Failure::Job(format!("the driver broke a rule of the hardware: {violation}"))),
        None => Ok(done),
    }
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
