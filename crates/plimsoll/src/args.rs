//! The command line: each flag declared once, from which help and errors are made.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use plimsoll_device::{ByteCount, DType};
use plimsoll_pipeline::{COUNT_MAX, SIDE_MAX};
use plimsoll_residency::{ManagerOptions, Policy};
use plimsoll_sampling::{STEP_COUNT_MAX, Sampler, SigmaSchedule};
use plimsoll_sim::SimOptions;

use crate::bench::residency::ResidencyBenchArgs;
use crate::budget::Budget;
use crate::console;
use crate::failure::Failure;
use crate::plan::PlanModel;

/// More threads than this share no picture's work sensibly, and each takes memory.
pub(crate) const THREADS_MAX: usize = 256;

/// Draws pictures with diffusion models inside a hard memory budget.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Draw a picture of a text
    Generate(Box<GenerateArgs>),
    /// Tell what a model is: components, parameters, bytes, largest units
    Inspect(InspectArgs),
    /// Tell how a model would run on a device that need not be there: what stays, what is streamed, how long a step takes
    Plan(Box<PlanArgs>),
    /// Measure how long a picture takes, in processes of their own: unlimited, at half the memory, and one denoise step
    Bench(Box<BenchArgs>),
}

#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub(crate) struct GenerateArgs {
    /// What the picture shows
    pub(crate) prompt: String,

    /// A model folder as diffusers writes it [default: the built-in emoji64]
    #[arg(long, value_name = "DIR")]
    pub(crate) model: Option<PathBuf>,

    /// What the picture does not show; counts with a guidance other than 1
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) negative: String,

    /// Denoise steps [default: 20; 4 for an LCM model]
    #[arg(long, value_name = "N", value_parser = |text: &str| whole(text, 1, STEP_COUNT_MAX))]
    pub(crate) steps: Option<usize>,

    /// Classifier-free guidance; 1 draws without [default: the model's, or 7.5; 5 for an XL, 1 for an LCM model]
    #[arg(long, value_name = "X", value_parser = finite)]
    pub(crate) guidance: Option<f64>,

    /// The sampler [default: like the model's own scheduler]
    #[arg(long, value_name = "NAME", value_parser = sampler_names())]
    pub(crate) sampler: Option<Sampler>,

    /// The sigma schedule; `model` is the spacing of the model's own scheduler config [default: model]
    #[arg(long, value_name = "NAME", value_parser = schedule_names())]
    pub(crate) schedule: Option<SigmaSchedule>,

    /// Decides the noise: the same seed draws the same picture [default: random]
    #[arg(long, value_name = "N", value_parser = seed)]
    pub(crate) seed: Option<u64>,

    /// Pixels of a row [default: the model's; with --image, the picture's]
    #[arg(long, value_name = "PIXELS", value_parser = |text: &str| whole(text, 1, SIDE_MAX))]
    pub(crate) width: Option<usize>,

    /// Rows of pixels [default: the model's; with --image, the picture's]
    #[arg(long, value_name = "PIXELS", value_parser = |text: &str| whole(text, 1, SIDE_MAX))]
    pub(crate) height: Option<usize>,

    /// How many pictures
    #[arg(long, value_name = "N", default_value = "1", value_parser = |text: &str| whole(text, 1, COUNT_MAX))]
    pub(crate) count: usize,

    /// The format of weights and activations
    #[arg(long, value_enum, default_value_t = ComputeDType::F32)]
    pub(crate) dtype: ComputeDType,

    /// Bytes that weights and activations may take at any moment: 3MiB, 60% (of this machine's memory), or unlimited (all of it)
    #[arg(long, value_name = "BYTES", default_value = "unlimited")]
    pub(crate) budget: Budget,

    #[command(flatten)]
    pub(crate) residency: ResidencyArgs,

    /// Threads that compute [default: one per core]
    #[arg(long, value_name = "N", value_parser = |text: &str| whole(text, 1, THREADS_MAX))]
    pub(crate) threads: Option<usize>,

    /// Enlarge the pictures 4 times with the built-in Real-ESRGAN
    #[arg(long)]
    pub(crate) upscale: bool,

    /// Start from this PNG picture instead of noise
    #[arg(long, value_name = "FILE.png")]
    pub(crate) image: Option<PathBuf>,

    /// How much of --image is drawn anew, above 0 and at most 1 [default: 0.8]
    #[arg(long, value_name = "X", requires = "image", value_parser = strength)]
    pub(crate) strength: Option<f64>,

    /// Print a table after each phase
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) report: Option<Report>,

    /// Print the outcome as one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Where to write: a file.png, or a folder [default: a new file named after the prompt and the seed]
    #[arg(long, value_name = "PATH")]
    pub(crate) out: Option<PathBuf>,
}

/// How weights that don't fit are streamed.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ResidencyArgs {
    /// Side queues that copy weights in while others are used; 0 copies in between
    #[arg(long, value_name = "N", default_value = "0", value_parser = |text: &str| whole(text, 0, 16))]
    pub(crate) offload_streams: usize,

    /// Which weights stay when not all fit: spread evenly over the pass, or ComfyUI's rule of November 2025
    #[arg(long, value_name = "NAME", default_value = "spread", value_parser = policy_names())]
    pub(crate) policy: Policy,

    /// Bytes of weights that stay in any case
    #[arg(long, value_name = "BYTES", default_value = "0")]
    pub(crate) min_resident: ByteCount,
}

impl ResidencyArgs {
    /// For a manager whose components leave with their phase.
    pub(crate) fn manager_options(self) -> ManagerOptions {
        let Self { offload_streams, policy, min_resident } = self;
        ManagerOptions { policy, offload_streams, min_resident_bytes: min_resident, link: None, keep_idle: false }
    }
}

#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    /// A model folder, a component's folder, or a .safetensors file
    pub(crate) path: PathBuf,

    /// How many of the largest units to list
    #[arg(long, value_name = "N", default_value = "8", value_parser = |text: &str| whole(text, 0, 1_000_000))]
    pub(crate) units: usize,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    /// A model folder, or a built-in shape: shape:sd15, shape:sdxl, shape:flux, shape:wan14b [default: the built-in emoji64]
    #[arg(long, value_name = "DIR|SHAPE", value_parser = OsStringValueParser::new().try_map(PlanModel::parse))]
    pub(crate) model: Option<PlanModel>,

    /// The device: its memory, the rate of its link, its rate of computing; also latency=15us, what each copy takes besides
    #[arg(long, value_name = "DEVICE", default_value = "sim:vram=8GiB,link=25GB/s,flops=80T", value_parser = |text: &str| text.parse::<SimOptions>())]
    pub(crate) device: SimOptions,

    /// Bytes that weights and activations may take at any moment [default: all that the device has]
    #[arg(long, value_name = "BYTES", value_parser = some_bytes)]
    pub(crate) budget: Option<ByteCount>,

    /// Side queues that copy weights in while others are used; 0 copies in between
    #[arg(long, value_name = "N", default_value = "2", value_parser = |text: &str| whole(text, 0, 16))]
    pub(crate) offload_streams: usize,

    /// Which weights stay when not all fit; the other policy is told for comparison
    #[arg(long, value_name = "NAME", default_value = "spread", value_parser = policy_names())]
    pub(crate) policy: Policy,

    /// Bytes of weights that stay in any case
    #[arg(long, value_name = "BYTES", default_value = "0")]
    pub(crate) min_resident: ByteCount,

    /// An adapter's .safetensors file, of which only the header is read; may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) lora: Vec<PathBuf>,

    /// Bytes for activations; 0 plans weights only [default: counted in a rehearsal, or ComfyUI's estimate for flux and wan14b]
    #[arg(long, value_name = "BYTES")]
    pub(crate) activation_bytes: Option<ByteCount>,

    /// Pixels of a row [default: the model's]
    #[arg(long, value_name = "PIXELS", value_parser = |text: &str| whole(text, 1, SIDE_MAX))]
    pub(crate) width: Option<usize>,

    /// Rows of pixels [default: the model's]
    #[arg(long, value_name = "PIXELS", value_parser = |text: &str| whole(text, 1, SIDE_MAX))]
    pub(crate) height: Option<usize>,

    /// The format of weights and activations
    #[arg(long, value_enum, default_value_t = ComputeDType::Bf16)]
    pub(crate) dtype: ComputeDType,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Draw the last step's timeline and the memory into this file
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: Option<BenchCommand>,

    /// What is drawn
    #[arg(default_value = "red heart")]
    pub(crate) prompt: String,

    /// A model folder as diffusers writes it [default: the built-in emoji64]
    #[arg(long, value_name = "DIR")]
    pub(crate) model: Option<PathBuf>,

    /// Denoise steps
    #[arg(long, value_name = "N", default_value = "20", value_parser = |text: &str| whole(text, 1, STEP_COUNT_MAX))]
    pub(crate) steps: usize,

    /// How often each case is run
    #[arg(long, value_name = "N", default_value = "9", value_parser = |text: &str| whole(text, 1, 1000))]
    pub(crate) runs: usize,

    /// Threads that compute [default: one per core]
    #[arg(long, value_name = "N", value_parser = |text: &str| whole(text, 1, THREADS_MAX))]
    pub(crate) threads: Option<usize>,

    /// Print one JSON list
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure what streaming costs: passes of a UNet with room for all, three quarters, half and a quarter of its weights
    Residency(ResidencyBenchArgs),
}

/// What the kernels compute in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ComputeDType {
    /// 4 bytes a number
    F32,
    /// 2 bytes a number
    Bf16,
}

impl ComputeDType {
    /// As it is written on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }
}

impl From<ComputeDType> for DType {
    fn from(dtype: ComputeDType) -> Self {
        match dtype {
            ComputeDType::F32 => Self::F32,
            ComputeDType::Bf16 => Self::BF16,
        }
    }
}

/// What can be reported on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Report {
    /// Bytes by account; the rows sum to the total
    Memory,
}

impl Cli {
    /// Reads the program's arguments. Help and version are printed here.
    pub(crate) fn from_command_line() -> Result<Self, Failure> {
        Self::try_parse().map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                let printed = error.print().and_then(|()| std::io::stdout().flush());
                console::printed(printed).map_or_else(Failure::from, |()| Failure::Shown(ExitCode::SUCCESS))
            }
            _ => Failure::Usage(one_line(&error)),
        })
    }
}

/// What clap says in several paragraphs, as one line.
fn one_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "no command is given; see `plimsoll --help`".to_owned();
    }
    let text = error.to_string();
    let parts = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty());
    let said = parts.collect::<Vec<_>>().join("; ").replace(":; ", ": ");
    let said = said.strip_prefix("error: ").unwrap_or(&said);
    let is_stray_word = error.kind() == ErrorKind::UnknownArgument && !said.contains("argument '-");
    let hint = if is_stray_word { "; put a prompt of several words in quotes" } else { "" };
    format!("{said}{hint}; see `{} --help`", command_path().join(" "))
}

/// The program and the commands that lead to the one that was meant.
fn command_path() -> Vec<String> {
    let mut path = vec!["plimsoll".to_owned()];
    let mut command = Cli::command();
    for word in std::env::args_os().skip(1) {
        let Some(found) = command.find_subcommand(&word).cloned() else { break };
        path.push(found.get_name().to_owned());
        command = found;
    }
    path
}

fn sampler_names() -> impl TypedValueParser<Value = Sampler> {
    PossibleValuesParser::new(Sampler::ALL.map(Sampler::name)).try_map(|name| name.parse::<Sampler>())
}

fn schedule_names() -> impl TypedValueParser<Value = SigmaSchedule> {
    PossibleValuesParser::new(SigmaSchedule::ALL.map(SigmaSchedule::name)).try_map(|name| name.parse::<SigmaSchedule>())
}

fn policy_names() -> impl TypedValueParser<Value = Policy> {
    PossibleValuesParser::new(Policy::ALL.map(Policy::name)).try_map(|name| name.parse::<Policy>())
}

pub(crate) fn whole(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("it must be a whole number from {least} to {most}"))
}

fn some_bytes(text: &str) -> Result<ByteCount, String> {
    let bytes: ByteCount = text.parse().map_err(|error: plimsoll_device::ParseByteCountError| error.to_string())?;
    if bytes > ByteCount::ZERO {
        Ok(bytes)
    } else {
        Err("a budget of 0 holds nothing; write at least 1 byte".to_owned())
    }
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("it must be a whole number from 0 to {}", u64::MAX))
}

fn finite(text: &str) -> Result<f64, String> {
    // Samplers compute in f32.
    let number = text.parse().ok().filter(|number: &f64| (*number as f32).is_finite());
    number.ok_or_else(|| "it must be a number from -3.4e38 to 3.4e38".to_owned())
}

fn strength(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| *number > 0.0 && *number <= 1.0);
    number.ok_or_else(|| "it must be a number above 0 and at most 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declarations_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_lists_every_sampler_and_schedule() {
        let mut command = Cli::command();
        let help = command.find_subcommand_mut("generate").unwrap().render_long_help().to_string();
        for name in Sampler::ALL.map(Sampler::name).iter().chain(&SigmaSchedule::ALL.map(SigmaSchedule::name)) {
            assert!(help.contains(name), "{name} in {help}");
        }
    }
}
