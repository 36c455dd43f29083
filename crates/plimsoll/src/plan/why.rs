//! Why a plan is as it is: one line a choice.

use plimsoll_device::ByteCount;
use plimsoll_residency::{Lookahead, Policy};
use serde::Serialize;

use super::simulation::{Setting, Simulated};

/// A choice, and the reason for it.
#[derive(Debug, Serialize)]
pub(super) struct Reason {
    pub(super) choice: &'static str,
    pub(super) reason: String,
}

/// The reasons for everything in the plan that was decided.
pub(super) fn reasons(setting: &Setting<'_>, simulated: &Simulated) -> Vec<Reason> {
    let choices = [
        ("streamed", Some(streamed(setting, simulated))),
        ("order", order(simulated)),
        ("ring", ring(simulated)),
        ("scratch", scratch(simulated)),
        ("adapters", adapters(setting, simulated)),
        ("activations", Some(setting.workload.activation_source.clone())),
        ("time", Some(time(setting, simulated))),
    ];
    let given = choices.into_iter().filter_map(|(choice, reason)| Some((choice, reason?)));
    given.map(|(choice, reason)| Reason { choice, reason }).collect()
}

fn streamed(setting: &Setting<'_>, simulated: &Simulated) -> String {
    let plan = &simulated.plan;
    let (streamed, count) = (plan.streamed_count(), plan.resident.len());
    let beside = simulated.adapter_bytes + simulated.activation_bytes;
    let whole = plan.resident_bytes + plan.streamed_bytes + beside;
    let budget = setting.card.budget.unwrap_or(setting.card.memory);
    match streamed {
        0 => format!("none of {count} units, for all of them fit with {beside} beside them"),
        _ => format!(
            "{streamed} of {count} units, for all of them take {} more than the budget",
            whole.saturating_sub(budget)
        ),
    }
}

fn order(simulated: &Simulated) -> Option<String> {
    if simulated.plan.streamed_count() == 0 {
        return None;
    }
    let planner = &simulated.planner;
    if simulated.policy == Policy::LargestFirst {
        return Some("what costs most to stream was kept first, by ComfyUI's rule of November 2025".to_owned());
    }
    let chosen = planner.rank_name();
    let slowdowns = |is_chosen: bool| {
        let candidates = planner.candidates().iter().filter(move |other| (other.order.name() == chosen) == is_chosen);
        candidates.map(|candidate| candidate.slowdown)
    };
    let taken = slowdowns(true).fold(0.0, f64::max);
    let (least, most) =
        slowdowns(false).fold((f64::MAX, 0.0), |(least, most), other| (other.min(least), other.max(most)));
    Some(format!(
        "they come first in the rank `{chosen}`, so a larger budget only adds residents; of {} ranks simulated it takes \
         the least, {taken:.3} times what is possible on average over budgets (others {least:.3} to {most:.3})",
        planner.candidates().len()
    ))
}

fn ring(simulated: &Simulated) -> Option<String> {
    let plan = &simulated.plan;
    let units = simulated.planner.units().iter().zip(&plan.resident);
    let largest = units.filter(|(_, resident)| !**resident).map(|(unit, _)| unit.bytes).max()?;
    let size = plan.ring_bytes;
    Some(match (plan.lookahead, plan.offload_streams) {
        (_, 0) => format!("the largest streamed unit, {largest}: copies run on the compute queue, one at a time"),
        (Lookahead::Streams(streams), _) => {
            format!(
                "by the rule: {streams} copies and one unit in use, {largest} the largest; copies run {} ahead",
                streams - 1
            )
        }
        (Lookahead::Ring, _) if size == largest * 3 => {
            format!("3 times the largest streamed unit, {largest}; copies run ahead as far as it holds")
        }
        (Lookahead::Ring, _) if size == plan.streamed_bytes => "all that is streamed".to_owned(),
        (Lookahead::Ring, streams) => {
            format!("the largest {} streamed units in a row; copies run ahead as far as it holds", streams + 1)
        }
    })
}

fn scratch(simulated: &Simulated) -> Option<String> {
    let is_needed = simulated.plan.staging_bytes + simulated.plan.transient_bytes > ByteCount::ZERO;
    is_needed.then(|| "the largest product of an adapter's matrices, in f32, while it is merged".to_owned())
}

fn adapters(setting: &Setting<'_>, simulated: &Simulated) -> Option<String> {
    let how = match simulated.policy {
        Policy::Spread => "read beside the weights, resident; the rest of the plan is made around them",
        Policy::LargestFirst => "merged into each weight when it arrives; a streamed one is merged in every pass",
    };
    (!setting.adapters.is_empty()).then(|| how.to_owned())
}

fn time(setting: &Setting<'_>, simulated: &Simulated) -> String {
    let link_seconds = simulated.plan.streamed_bytes.0 as f64 / setting.card.link_bytes_per_second;
    let compute = simulated.compute_seconds;
    let (link, compute_shown) = (milliseconds(link_seconds), milliseconds(compute));
    match link_seconds {
        0.0 => format!("nothing is streamed, so a step is the computing of {compute_shown}"),
        _ if link_seconds > compute => {
            format!("the link: {link} for what is streamed, and {compute_shown} of computing")
        }
        _ => format!("computing: {compute_shown}, and {link} of the link for what is streamed"),
    }
}

/// `1234.5 ms`.
pub(super) fn milliseconds(seconds: f64) -> String {
    let milliseconds = seconds * 1e3;
    if milliseconds < 10.0 { format!("{milliseconds:.3} ms") } else { format!("{milliseconds:.1} ms") }
}
