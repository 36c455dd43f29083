//! The measurements as a table or as JSON.

use anyhow::ensure;
use serde::Serialize;

use super::case::{CaseRun, Measured, Step, TOKEN_COUNT};
use super::{PIXELS_PER_LATENT, ResidencyBenchArgs};
use crate::args::ComputeDType;
use crate::bench::median;

/// Everything that `--json` prints.
#[derive(Serialize)]
struct Report {
    model: String,
    size: usize,
    latent: usize,
    batch: usize,
    tokens: usize,
    dtype: &'static str,
    /// `null` for one per core.
    threads: Option<usize>,
    offload_streams: usize,
    unit_count: usize,
    weight_bytes: u64,
    activation_bytes: u64,
    leases: Option<Leases>,
    cases: Vec<CaseReport>,
}

/// What leases cost where everything is resident.
#[derive(Serialize)]
struct Leases {
    /// Of a pass that only leases.
    seconds: f64,
    /// That over a step's.
    share_of_step: f64,
}

#[derive(Serialize)]
struct CaseReport {
    budget_percent: f64,
    policy: &'static str,
    budget_bytes: u64,
    /// Why there is no plan; then the rest is zeros.
    refused: Option<String>,
    resident_bytes: u64,
    streamed_bytes: u64,
    streamed_count: usize,
    ring_bytes: u64,
    /// Median of a step's.
    seconds: Option<f64>,
    /// That over the first case's.
    ratio: Option<f64>,
    /// Median of what all threads computed in a step.
    cpu_seconds: Option<f64>,
    /// Of one step; the same for each.
    moved_bytes: u64,
    /// Median of a step's.
    stall_seconds: f64,
    peak_bytes: u64,
    process_peak_bytes: Option<u64>,
    /// By how much the process's peak is above the ledger's, as a share of it.
    process_excess: Option<f64>,
    runs: Vec<f64>,
}

/// Checks that all cases predicted the same, and tells what they took.
pub(super) fn rendered(args: &ResidencyBenchArgs, measured: &[Measured]) -> anyhow::Result<String> {
    let report = report(args, measured)?;
    Ok(if args.json { serde_json::to_string(&report)? + "\n" } else { table(&report) })
}

fn report(args: &ResidencyBenchArgs, measured: &[Measured]) -> anyhow::Result<Report> {
    let first = &measured[0].runs[0];
    let predicted = measured.iter().flat_map(|measured| &measured.runs).filter(|run| run.refused.is_none());
    for run in predicted {
        ensure!(run.checksum == first.checksum, "the prediction depends on the budget: this is a bug");
    }
    let resident_seconds = (first.refused.is_none()).then(|| median_step(&measured[0], |step| step.seconds));
    let leases: Vec<f64> = measured[0].runs.iter().filter_map(|run| run.lease_seconds).collect();
    let leases = resident_seconds.filter(|_| !leases.is_empty()).map(|step| {
        let seconds = median(&leases);
        Leases { seconds, share_of_step: seconds / step }
    });
    Ok(Report {
        model: args.model.to_string(),
        size: args.size,
        latent: args.size / PIXELS_PER_LATENT,
        batch: 1,
        tokens: TOKEN_COUNT,
        dtype: ComputeDType::name(args.dtype),
        threads: args.threads,
        offload_streams: args.offload_streams,
        unit_count: first.unit_count,
        weight_bytes: first.weight_bytes,
        activation_bytes: first.activation_bytes,
        leases,
        cases: measured.iter().map(|measured| case_report(measured, resident_seconds)).collect(),
    })
}

fn case_report(measured: &Measured, resident_seconds: Option<f64>) -> CaseReport {
    let most = |of: fn(&CaseRun) -> u64| measured.runs.iter().map(of).max().unwrap_or(0);
    let run = &measured.runs[0];
    let seconds = (!measured.is_refused()).then(|| median_step(measured, |step| step.seconds));
    let peak_bytes = most(|run| run.peak_bytes);
    let process_peak_bytes = measured.runs.iter().filter_map(|run| run.process_peak_bytes).max();
    let has_cpu_seconds = steps(measured).next().is_some_and(|step| step.cpu_seconds.is_some());
    CaseReport {
        budget_percent: measured.case.percent,
        policy: measured.case.policy.name(),
        budget_bytes: run.budget_bytes,
        refused: run.refused.clone(),
        resident_bytes: run.resident_bytes,
        streamed_bytes: run.streamed_bytes,
        streamed_count: run.streamed_count,
        ring_bytes: run.ring_bytes,
        seconds,
        ratio: seconds.zip(resident_seconds).map(|(seconds, resident)| seconds / resident),
        cpu_seconds: has_cpu_seconds.then(|| median_step(measured, |step| step.cpu_seconds.unwrap_or(0.0))),
        moved_bytes: steps(measured).map(|step| step.moved_bytes).max().unwrap_or(0),
        stall_seconds: seconds.map_or(0.0, |_| median_step(measured, |step| step.stall_seconds)),
        peak_bytes,
        process_peak_bytes,
        process_excess: process_peak_bytes.map(|process| (process as f64 - peak_bytes as f64) / peak_bytes as f64),
        runs: steps(measured).map(|step| step.seconds).collect(),
    }
}

fn steps(measured: &Measured) -> impl Iterator<Item = &Step> {
    measured.runs.iter().flat_map(|run| &run.steps)
}

fn median_step(measured: &Measured, of: impl Fn(&Step) -> f64) -> f64 {
    median(&steps(measured).map(of).collect::<Vec<_>>())
}

fn table(report: &Report) -> String {
    let Report { model, size, latent, batch, tokens, dtype, offload_streams, unit_count, .. } = report;
    let threads = report.threads.map_or("a thread per core".to_owned(), |threads| format!("threads: {threads}"));
    let mut text = format!(
        "{model}: a step is one UNet pass, batch {batch}, {size} x {size} pixels (latent {latent} x {latent}), \
         {tokens} tokens, {dtype}, {threads}, offload streams: {offload_streams}\n\
         weights {} bytes in {unit_count} units, activations {} bytes\n\n",
        report.weight_bytes, report.activation_bytes
    );
    text.push_str(&format!(
        "{:>6} {:<13} {:>12} {:>8} {:>6} {:>12} {:>8} {:>12} {:>13} {:>7}  {}\n",
        "budget",
        "policy",
        "bytes",
        "seconds",
        "ratio",
        "moved bytes",
        "stall s",
        "peak bytes",
        "process peak",
        "above",
        "all steps"
    ));
    for case in &report.cases {
        let name = format!("{:>5}% {:<13} {:>12}", case.budget_percent, case.policy, case.budget_bytes);
        let (Some(seconds), Some(ratio)) = (case.seconds, case.ratio) else {
            text.push_str(&format!("{name} {}\n", case.refused.as_deref().unwrap_or_default()));
            continue;
        };
        let process_peak = case.process_peak_bytes.map_or("?".to_owned(), |bytes| bytes.to_string());
        let excess = case.process_excess.map_or("?".to_owned(), |excess| format!("{:+.1}%", excess * 100.0));
        let runs: Vec<String> = case.runs.iter().map(|seconds| format!("{seconds:.3}")).collect();
        text.push_str(&format!(
            "{name} {seconds:>8.3} {ratio:>6.3} {:>12} {:>8.3} {:>12} {process_peak:>13} {excess:>7}  {}\n",
            case.moved_bytes,
            case.stall_seconds,
            case.peak_bytes,
            runs.join(" ")
        ));
    }
    if let Some(Leases { seconds, share_of_step }) = &report.leases {
        let share = share_of_step * 100.0;
        text.push_str(&format!("\nleases of all units take {:.1} us, {share:.4}% of a resident step\n", seconds * 1e6));
    }
    text
}
