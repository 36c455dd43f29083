//! `plimsoll generate`: a text to pictures.

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_cpu::{CpuDevice, CpuOptions};
use plimsoll_device::{AccountRow, ByteCount, Device};
use plimsoll_pipeline::{Generated, Pipeline, PipelineError, PipelineOptions, Request, Upscaler};
use plimsoll_residency::Manager;
use serde::Serialize;

use crate::args::{GenerateArgs, Report};
use crate::budget::Budget;
use crate::console::{self, escaped};
use crate::failure::Failure;
use crate::output::Output;
use crate::picture_metadata::PictureMetadata;
use crate::progress::{Bars, ReportTo};
use crate::{built_in, cache_folder, demand, png_reader, png_writer, unfinished};

const UPSCALER_NAME: &str = "realesr-animevideov3-x4";

/// Draws what the arguments ask for, writes the pictures, and tells about it on stdout.
///
/// # Errors
/// [`Failure`]; then no picture is left half-written, and nothing was computed if the request or the output is wrong.
pub(crate) fn run(args: &GenerateArgs) -> Result<(), Failure> {
    let seed = args.seed.unwrap_or_else(random_seed);
    let source = built_in::model(args.model.as_deref())?;
    let start = args.image.as_deref().map(png_reader::read).transpose()?;
    let device = CpuDevice::new(&CpuOptions { budget: args.budget.line()?, threads: args.threads })?;
    let device: Arc<dyn Device> = Arc::new(device);
    let manager = Manager::with_peaks(&device, args.residency.manager_options(), cache_folder::activation_peaks());
    let options = PipelineOptions { dtype: args.dtype.into() };
    let pipeline = Pipeline::open(&source, manager.clone(), options)?;
    let upscaler = match args.upscale {
        true => Some(Upscaler::open(&built_in::upscaler()?, &manager, options.dtype)?),
        false => None,
    };
    let request = demand::request(args, &pipeline.defaults(), seed, start);
    let output = Output::prepare(args.out.as_deref(), &args.prompt, seed, args.count)?;

    let report = args.report.map(|Report::Memory| if args.json { ReportTo::Stderr } else { ReportTo::Stdout });
    let announcement = (!args.json).then(|| format!("seed {seed}"));
    let mut bars = Bars::new(announcement, args.budget, report);
    let drawn = pipeline.generate(&request, upscaler.as_ref(), &mut bars);
    let written = drawn.map_err(|error| refused(error, args.budget)).and_then(|generated| {
        let files = write_pictures(&output, &generated, &metadata(args, &request, pipeline.name()))?;
        Ok((generated, files))
    });
    let (generated, files) = written.inspect_err(|_| unfinished::abandon_folder())?;
    cache_folder::save(manager.peaks());
    bars.finish()?;
    if args.json {
        console::print(&format!("{}\n", Outcome::new(seed, args.budget, &files, &generated).to_json()))?;
    } else {
        let mut lines: String =
            files.iter().map(|file| format!("wrote {}\n", escaped(&file.to_string_lossy()))).collect();
        if report.is_some() {
            lines.push_str(&format!("peak {} bytes\n", generated.memory.peak_bytes.0));
        }
        console::print(&lines)?;
    }
    Ok(())
}

/// A request that fails, told to somebody who set this budget.
fn refused(error: PipelineError, budget: Budget) -> Failure {
    match (error, budget) {
        (PipelineError::OverBudget { component, needed, budget: line, .. }, Budget::Unlimited) => anyhow::anyhow!(
            "`{component}` needs {} bytes ({needed}), but this machine has {} bytes ({line}); draw a smaller picture",
            needed.0,
            line.0
        )
        .into(),
        (error, _) => error.into(),
    }
}

/// What the pictures of a request say about themselves; the picture's number is filled in later.
fn metadata(args: &GenerateArgs, request: &Request, model: &str) -> PictureMetadata {
    let image = args.image.as_ref().and_then(|path| path.file_name());
    PictureMetadata {
        prompt: request.prompt.clone(),
        negative: request.negative.clone(),
        model: model.to_owned(),
        steps: request.steps,
        guidance: request.guidance,
        sampler: request.sampler.name(),
        schedule: request.schedule.name(),
        seed: request.seed,
        width: request.width,
        height: request.height,
        count: request.count,
        picture_idx: 0,
        dtype: plimsoll_device::DType::from(args.dtype).to_string(),
        image: image.map(|name| name.to_string_lossy().into_owned()),
        strength: request.image.as_ref().map(|start| start.strength),
        upscaler: args.upscale.then_some(UPSCALER_NAME),
        version: env!("CARGO_PKG_VERSION"),
    }
}

fn write_pictures(output: &Output, generated: &Generated, metadata: &PictureMetadata) -> Result<Vec<PathBuf>, Failure> {
    let write = |(picture_idx, image)| {
        let metadata = PictureMetadata { picture_idx, ..metadata.clone() };
        output.write(picture_idx, &png_writer::encode(image, &metadata.chunks())?)
    };
    Ok(generated.images.iter().enumerate().map(write).collect::<anyhow::Result<_>>()?)
}

/// What `--json` prints.
#[derive(Serialize)]
struct Outcome<'a> {
    seed: u64,
    files: Vec<String>,
    /// `null` when there is none.
    budget_bytes: Option<ByteCount>,
    peak_bytes: ByteCount,
    /// By phase, in the order they ran.
    seconds: serde_json::Map<String, serde_json::Value>,
    accounts: &'a [AccountRow],
}

impl<'a> Outcome<'a> {
    fn new(seed: u64, budget: Budget, files: &[PathBuf], generated: &'a Generated) -> Self {
        let memory = &generated.memory;
        Self {
            seed,
            files: files.iter().map(|file| file.to_string_lossy().into_owned()).collect(),
            budget_bytes: (budget != Budget::Unlimited).then_some(memory.budget_bytes),
            peak_bytes: memory.peak_bytes,
            seconds: generated.seconds.iter().map(|(phase, seconds)| (phase.to_string(), (*seconds).into())).collect(),
            accounts: &memory.accounts,
        }
    }

    fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers are JSON")
    }
}

/// A seed that fits 32 bits, so that every program takes it.
fn random_seed() -> u64 {
    // The standard library's hash keys come from the system's generator.
    RandomState::new().hash_one("seed") >> 32
}
