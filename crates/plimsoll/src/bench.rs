//! `plimsoll bench`: how fast a picture is drawn, from the start of the process to the written file.
//!
//! Each run is a process of its own, so loading is part of it, and the cases take turns, so that what else the machine
//! does hits them alike. One unmeasured run comes first, to have the files in the page cache.

mod own_process;
pub(crate) mod residency;

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use serde::Serialize;

use crate::args::{BenchArgs, BenchCommand};
use crate::failure::Failure;
use crate::{console, unfinished};

/// What is measured, with the flags that make it.
struct Case {
    name: &'static str,
    flags: Vec<String>,
    seconds: Vec<f64>,
    peak_bytes: u64,
    /// Why it can't be run.
    refused: Option<String>,
}

/// The case that the others are compared with.
const UNLIMITED: &str = "unlimited";

/// A case's result.
#[derive(Serialize)]
struct CaseReport {
    name: &'static str,
    /// Median wall-clock seconds of a process; none if the case was refused.
    seconds: Option<f64>,
    /// `seconds` over those of the first case.
    ratio: Option<f64>,
    peak_bytes: u64,
    runs: Vec<f64>,
    refused: Option<String>,
}

/// Measures and prints.
///
/// # Errors
/// [`Failure`] if a run fails.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    match &args.what {
        Some(BenchCommand::Residency(args)) => residency::run(args),
        None => run_pictures(args),
    }
}

fn run_pictures(args: &BenchArgs) -> Result<(), Failure> {
    let folder = unfinished::scratch_folder().context("no temporary folder can be made; check the disk")?;
    let picture = folder.path().join("bench.png");
    let (_, unlimited_peak) = draw(args, &picture, &[])?;
    let half = (unlimited_peak / 2).to_string();
    let owned = |flags: &[&str]| flags.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>();
    let steps = args.steps.to_string();
    let at_half = |streams: &str| owned(&["--steps", &steps, "--budget", &half, "--offload-streams", streams]);
    let case = |name, flags| Case { name, flags, seconds: Vec::new(), peak_bytes: 0, refused: None };
    let mut cases = [
        case(UNLIMITED, owned(&["--steps", &steps])),
        case("half the unlimited peak", at_half("0")),
        case("half, 1 offload stream", at_half("1")),
        case("unlimited, 1 denoise step", owned(&["--steps", "1"])),
    ];
    for case in &mut cases {
        // At half of its peak a model may have no plan: when activations outweigh the weights.
        match draw(args, &picture, &case.flags) {
            Err(failure) if case.name != UNLIMITED => case.refused = Some(failure.line()),
            outcome => drop(outcome?),
        }
    }
    for _ in 0..args.runs {
        for case in cases.iter_mut().filter(|case| case.refused.is_none()) {
            let (seconds, peak_bytes) = draw(args, &picture, &case.flags)?;
            case.seconds.push(seconds);
            case.peak_bytes = peak_bytes;
        }
    }
    let unlimited = median(&cases[0].seconds);
    let reports: Vec<CaseReport> = cases.into_iter().map(|case| report(case, unlimited)).collect();
    Ok(console::print(&rendered(args, &reports))?)
}

/// Seconds of a process that draws, and its peak in bytes.
fn draw(args: &BenchArgs, picture: &Path, flags: &[String]) -> Result<(f64, u64), Failure> {
    let mut command = own_process::command()?;
    command.args(["generate", &args.prompt, "--json", "--seed", "1", "--out"]).arg(picture);
    if let Some(model) = &args.model {
        command.arg("--model").arg(model);
    }
    if let Some(threads) = args.threads {
        command.args(["--threads", &threads.to_string()]);
    }
    command.args(flags);
    let began = Instant::now();
    let output = command.output().context("this program can't be started again")?;
    let seconds = began.elapsed().as_secs_f64();
    let outcome = own_process::json(&output)?;
    let peak_bytes = outcome["peak_bytes"].as_u64().context("a run told no peak")?;
    Ok((seconds, peak_bytes))
}

fn report(case: Case, unlimited: f64) -> CaseReport {
    let Case { name, peak_bytes, seconds: runs, refused, .. } = case;
    let seconds = refused.is_none().then(|| median(&runs));
    CaseReport { name, seconds, ratio: seconds.map(|seconds| seconds / unlimited), peak_bytes, runs, refused }
}

fn median(seconds: &[f64]) -> f64 {
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

fn rendered(args: &BenchArgs, reports: &[CaseReport]) -> String {
    if args.json {
        return serde_json::to_string(reports).expect("numbers and names are JSON") + "\n";
    }
    let mut text = format!("{:<28} {:>9} {:>7} {:>12}\n", "case", "seconds", "ratio", "peak bytes");
    for report in reports {
        let CaseReport { name, seconds, ratio, peak_bytes, refused, .. } = report;
        text.push_str(&match (seconds, ratio, refused) {
            (Some(seconds), Some(ratio), _) => format!("{name:<28} {seconds:>9.3} {ratio:>7.2} {peak_bytes:>12}\n"),
            (_, _, refused) => format!("{name:<28} {}\n", refused.as_deref().unwrap_or_default()),
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
