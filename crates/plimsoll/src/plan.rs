//! `plimsoll plan`: how a model would run on a device that one need not own.
//!
//! The device is simulated, and the engine on it is the real one: it plans, loads, streams and books as `generate` does
//! it. No weight is read.

mod adapters;
mod facts;
mod model;
mod plot;
mod shape;
mod simulation;
mod text;
mod transformer_shape;
mod unet_shape;
mod why;
mod workload;

use std::path::{Path, PathBuf};

use plimsoll_device::ByteCount;
use plimsoll_residency::Policy;
use plimsoll_sim::SimOptions;

use crate::args::PlanArgs;
use crate::failure::{Failure, file_failure};
use crate::{built_in, console, unfinished};
use adapters::Adapters;
pub(crate) use model::PlanModel;
use simulation::{Setting, simulate};
use workload::{Demand, Workload};

/// A pass that takes longer than this, in seconds, is of no use to anybody.
const PASS_SECONDS_MAX: f64 = 1e6;

/// Prints the plan, for people or as JSON, and draws it if that is asked for.
///
/// # Errors
/// [`Failure`] when the request is wrong, the model can't be read, or there is no plan for the budget.
pub(crate) fn run(args: &PlanArgs) -> Result<(), Failure> {
    let card = card(args)?;
    let demand = Demand { width: args.width, height: args.height, dtype: args.dtype.into(), card: &card };
    let workload = workload(args, &demand)?;
    check_pace(&workload, &card)?;
    let adapters = Adapters::read(&args.lora, &workload)?;
    let setting = Setting {
        workload: &workload,
        adapters: &adapters,
        dtype: demand.dtype,
        card: &card,
        offload_streams: args.offload_streams,
        min_resident_bytes: args.min_resident,
    };
    let asked = simulate(&setting, args.policy)?;
    let other_policy = match args.policy {
        Policy::Spread => Policy::LargestFirst,
        Policy::LargestFirst => Policy::Spread,
    };
    // That the other policy has no plan is told as such.
    let other = simulate(&setting, other_policy).ok();
    let comparison = (other_policy, other.as_ref());
    if let Some(path) = &args.plot {
        refuse_to_replace_inputs(path, &args.lora)?;
        write_plot(path, &plot::render(&setting, &asked))?;
    }
    let text = match args.json {
        true => facts::to_json(&setting, &asked, comparison),
        false => text::render(&setting, &asked, comparison),
    };
    Ok(console::print(&text)?)
}

/// The device with the budget as its line.
fn card(args: &PlanArgs) -> Result<SimOptions, Failure> {
    let memory = args.device.memory;
    let budget = args.budget.unwrap_or(memory);
    if budget > memory {
        return Err(Failure::usage(format!(
            "the budget of {} bytes ({budget}) is more than the device has, {} bytes ({memory}); lower --budget, or \
             raise `vram` of --device",
            budget.0, memory.0
        )));
    }
    Ok(SimOptions { budget: Some(budget), ..args.device.clone() })
}

fn workload(args: &PlanArgs, demand: &Demand<'_>) -> Result<Workload, Failure> {
    let mut workload = match &args.model {
        Some(PlanModel::Shape(shape)) => shape.workload(demand)?,
        Some(PlanModel::Folder(folder)) => workload::of_model(&built_in::model(Some(folder))?, demand)?,
        None => workload::of_model(&built_in::model(None)?, demand)?,
    };
    if let Some(bytes) = args.activation_bytes {
        workload.activation_bytes = bytes;
        workload.activation_source = match bytes {
            ByteCount::ZERO => "none, as asked for: weights only".to_owned(),
            _ => "as asked for".to_owned(),
        };
    }
    Ok(workload)
}

/// Refuses a device on which a pass would take for ever.
fn check_pace(workload: &Workload, card: &SimOptions) -> Result<(), Failure> {
    let bytes: f64 = workload.units.iter().map(|unit| unit.bytes.0 as f64).sum();
    let latency = card.link_latency.as_secs_f64() * workload.units.len() as f64;
    let seconds = workload.seconds.iter().sum::<f64>() + bytes / card.link_bytes_per_second + latency;
    if seconds <= PASS_SECONDS_MAX {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "a pass of {} takes {seconds:.0} seconds on this device; give it a faster `link` or more `flops`",
        workload.name
    )))
}

/// Adapters are not drawn over.
fn refuse_to_replace_inputs(plot: &Path, adapters: &[PathBuf]) -> Result<(), Failure> {
    let is_input = |adapter: &&PathBuf| std::fs::canonicalize(adapter).ok() == std::fs::canonicalize(plot).ok();
    match adapters.iter().find(is_input) {
        Some(_) => Err(Failure::usage(format!("`{}` is an adapter; name another file with --plot", plot.display()))),
        None => Ok(()),
    }
}

fn write_plot(path: &Path, svg: &str) -> Result<(), Failure> {
    let written = unfinished::write_over(path, svg.as_bytes());
    Ok(written.map_err(|error| file_failure(path, "can't be written", &error, "choose another place with --plot"))?)
}
