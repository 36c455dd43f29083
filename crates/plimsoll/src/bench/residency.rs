//! `plimsoll bench residency`: what streaming costs, measured: forward passes of a real UNet whose weights come from a file.
//!
//! A step is one forward pass, batch 1. `x %` is a budget of the activations' peak and `x %` of what the weights take
//! when all of them stay; the ring is part of it. Each case is a process of its own, so that the process's peak is the
//! case's, and the cases take turns. Every process begins with an unmeasured pass: the file is in the page cache then,
//! and copies are under way when the first measured step begins. That the prediction's bits don't depend on the case is
//! checked along the way.

mod case;
mod model;
mod report;
mod weights_file;

use std::io::Read;
use std::process::Stdio;

use anyhow::{Context, anyhow};
use clap::Args;
use plimsoll_residency::Policy;

pub(crate) use model::BenchModel;

use self::case::{CaseRun, Measured};
use self::model::ModelFiles;
use super::own_process;
use crate::args::{ComputeDType, THREADS_MAX, whole};
use crate::failure::Failure;
use crate::{console, unfinished};

/// The largest picture.
const PIXELS_MAX: usize = 4096;
/// Pixels of a picture for each number of its latent, along each side.
const PIXELS_PER_LATENT: usize = 8;

#[derive(Args, Clone, Debug)]
pub(crate) struct ResidencyBenchArgs {
    /// Whose UNet: shape:sd15 (Stable Diffusion 1.5's sizes, with made-up weights), emoji64, or a model folder
    #[arg(long, value_name = "NAME|DIR", default_value = "shape:sd15")]
    pub(crate) model: BenchModel,

    /// Pixels of the picture's sides, a multiple of 8; the latent has an eighth
    #[arg(long, value_name = "PIXELS", default_value = "256", value_parser = pixels)]
    pub(crate) size: usize,

    /// The format of weights and activations; the made-up weights are stored in it
    #[arg(long, value_enum, default_value_t = ComputeDType::Bf16)]
    pub(crate) dtype: ComputeDType,

    /// Threads that compute [default: one per core]
    #[arg(long, value_name = "N", value_parser = |text: &str| whole(text, 1, THREADS_MAX))]
    pub(crate) threads: Option<usize>,

    /// Side queues that copy weights in while others are used; 0 copies in between
    #[arg(long, value_name = "N", default_value = "1", value_parser = |text: &str| whole(text, 0, 16))]
    pub(crate) offload_streams: usize,

    /// Percentages of the weights for which there is to be room; 100 is always measured, to compare with
    #[arg(long, value_name = "X,..", value_delimiter = ',', default_value = "100,75,50,25", value_parser = percentage)]
    pub(crate) budgets: Vec<f64>,

    /// Measured steps of a process
    #[arg(long, value_name = "N", default_value = "3", value_parser = |text: &str| whole(text, 1, 1000))]
    pub(crate) steps: usize,

    /// How often each case is run, in a process of its own
    #[arg(long, value_name = "N", default_value = "3", value_parser = |text: &str| whole(text, 1, 1000))]
    pub(crate) runs: usize,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Measure this one case, in this process
    #[arg(long, hide = true, value_name = "PERCENT:POLICY")]
    pub(crate) case: Option<Case>,
}

/// A budget and a policy. Written `50:spread`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Case {
    percent: f64,
    policy: Policy,
}

impl std::str::FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (percent, policy) = text.split_once(':').ok_or("a case is a percentage and a policy: 50:spread")?;
        let policy = policy.parse().map_err(|error: plimsoll_residency::UnknownPolicy| error.to_string())?;
        Ok(Self { percent: percentage(percent)?, policy })
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.percent, self.policy)
    }
}

/// Measures and prints.
///
/// # Errors
/// [`Failure`] if a run fails, or two of them predict different things.
pub(crate) fn run(args: &ResidencyBenchArgs) -> Result<(), Failure> {
    if let Some(case) = args.case {
        end_with_parent();
        let run = case::measure(args, case)?;
        return Ok(console::print(&format!("{}\n", serde_json::to_string(&run).expect("numbers are JSON")))?);
    }
    let model = ModelFiles::prepare(&args.model, args.dtype.into())?;
    let mut measured: Vec<Measured> = cases(&args.budgets).into_iter().map(Measured::new).collect();
    for _ in 0..args.runs {
        for measured in measured.iter_mut().filter(|measured| !measured.is_refused()) {
            let run = run_case(args, &model, measured.case)?;
            measured.add(run);
        }
    }
    Ok(console::print(&report::rendered(args, &measured)?)?)
}

/// Each budget under each policy, the largest budget first, all of the weights in any case.
fn cases(percentages: &[f64]) -> Vec<Case> {
    let mut percentages: Vec<f64> = percentages.iter().copied().chain([100.0]).collect();
    percentages.sort_by(|a, b| b.total_cmp(a));
    percentages.dedup();
    let policies = |percent: f64| Policy::ALL.map(|policy| Case { percent, policy });
    percentages.into_iter().flat_map(policies).collect()
}

/// Measures a case in a process of its own.
fn run_case(args: &ResidencyBenchArgs, model: &ModelFiles, case: Case) -> Result<CaseRun, Failure> {
    let mut command = own_process::command()?;
    command.args(["bench", "residency", "--model"]).arg(model.argument());
    command.args(["--case", &case.to_string(), "--size", &args.size.to_string(), "--dtype", args.dtype.name()]);
    command.args(["--offload-streams", &args.offload_streams.to_string(), "--steps", &args.steps.to_string()]);
    if let Some(threads) = args.threads {
        command.args(["--threads", &threads.to_string()]);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("this program can't be started again")?;
    // Held open until the case has ended: a case whose parent is gone ends too.
    let _alive = child.stdin.take();
    let output = child.wait_with_output().context("this program can't be waited for")?;
    let outcome = own_process::json(&output)?;
    Ok(serde_json::from_value(outcome).map_err(|error| anyhow!("a run printed something else: {error}"))?)
}

/// Ends this process when the one that started it does.
fn end_with_parent() {
    let wait = || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        unfinished::end_program("the program that measures is gone", 1);
    };
    // Without a thread to wait, the case runs to its end.
    let _ = std::thread::Builder::new().name("plimsoll-parent".to_owned()).spawn(wait);
}

fn pixels(text: &str) -> Result<usize, String> {
    let number = text.parse().ok();
    let number = number.filter(|size| (PIXELS_PER_LATENT..=PIXELS_MAX).contains(size) && size % PIXELS_PER_LATENT == 0);
    number.ok_or_else(|| format!("it must be a multiple of {PIXELS_PER_LATENT} up to {PIXELS_MAX}"))
}

fn percentage(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').parse().ok().filter(|number| *number > 0.0 && *number <= 100.0);
    number.ok_or_else(|| "each must be a number above 0 and at most 100".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_resident_is_always_there_and_first() {
        let names: Vec<String> = cases(&[25.0, 50.0, 25.0]).iter().map(Case::to_string).collect();
        assert_eq!(
            names,
            ["100:spread", "100:largest-first", "50:spread", "50:largest-first", "25:spread", "25:largest-first"]
        );
        assert_eq!("12.5:largest-first".parse(), Ok(Case { percent: 12.5, policy: Policy::LargestFirst }));
        for text in ["50", "0:spread", "50:smallest", "x:spread"] {
            assert!(text.parse::<Case>().is_err(), "{text}");
        }
    }
}
