//! A plan as text for people.

use std::fmt::{self, Write};

use plimsoll_device::ByteCount;
use plimsoll_residency::Policy;

use super::facts::tier;
use super::simulation::{Setting, Simulated};
use super::why::{self, milliseconds};
use crate::console::escaped;

/// How many of the largest units are listed.
const UNITS_MAX: usize = 8;

/// The plan, what it takes and gives, and why it is as it is.
pub(super) fn render(setting: &Setting<'_>, asked: &Simulated, other: (Policy, Option<&Simulated>)) -> String {
    let mut text = String::new();
    let written = write_heading(&mut text, setting, asked)
        .and_then(|()| write_memory(&mut text, setting, asked))
        .and_then(|()| write_times(&mut text, asked, other))
        .and_then(|()| write_reasons(&mut text, setting, asked))
        .and_then(|()| write_adapters(&mut text, setting))
        .and_then(|()| write_units(&mut text, asked));
    written.expect("strings take all text");
    text
}

fn write_heading(text: &mut String, setting: &Setting<'_>, asked: &Simulated) -> fmt::Result {
    let (workload, card) = (setting.workload, setting.card);
    writeln!(text, "{}: {}", escaped(&workload.name), escaped(&workload.about))?;
    writeln!(
        text,
        "on a device with {}, a link of {} GB/s and {} us a copy, {} TFLOP/s",
        card.memory,
        short(card.link_bytes_per_second / 1e9),
        short(card.link_latency.as_secs_f64() * 1e6),
        short(card.flops_per_second / 1e12)
    )?;
    writeln!(text, "policy {}, offload streams {}", asked.policy, setting.offload_streams)
}

fn write_memory(text: &mut String, setting: &Setting<'_>, asked: &Simulated) -> fmt::Result {
    let plan = &asked.plan;
    let (streamed, count) = (plan.streamed_count(), plan.resident.len());
    let rows = [
        ("residents", plan.resident_bytes, format!("{} of {count} units", count - streamed)),
        ("ring", plan.ring_bytes, format!("for {streamed} streamed units, {} together", plan.streamed_bytes)),
        ("scratch", plan.transient_bytes + plan.staging_bytes, String::new()),
        ("adapters", asked.adapter_bytes, String::new()),
        ("activations", asked.activation_bytes, "reserved".to_owned()),
    ];
    writeln!(text)?;
    for (name, bytes, remark) in rows.iter().filter(|(_, bytes, _)| *bytes > ByteCount::ZERO) {
        write_row(text, name, *bytes, remark)?;
    }
    let budget = setting.card.budget.unwrap_or(setting.card.memory);
    write_row(text, "sum", asked.total_bytes(), "")?;
    write_row(text, "budget", budget, "")?;
    write_row(text, "peak", asked.peak_bytes, "as booked in the simulation")
}

fn write_row(text: &mut String, name: &str, bytes: ByteCount, remark: &str) -> fmt::Result {
    let line = format!("  {name:<14}{:>12}  {:>14}  {remark}", bytes.to_string(), bytes.0);
    writeln!(text, "{}", line.trim_end())
}

fn write_times(text: &mut String, asked: &Simulated, (policy, other): (Policy, Option<&Simulated>)) -> fmt::Result {
    let mut row = |name: &str, figure: &str, remark: &str| {
        let line = format!("  {name:<14}{figure:>12}  {remark}");
        writeln!(text, "{}", line.trim_end())
    };
    row("", "", "")?;
    row(
        "predicted step",
        &milliseconds(asked.step_seconds),
        &times(asked.step_seconds, asked.bound_seconds, "the bound"),
    )?;
    row("bound", &milliseconds(asked.bound_seconds), "all computing, or all streamed bytes over the link")?;
    row("computing", &milliseconds(asked.compute_seconds), "")?;
    row("stalls", &milliseconds(asked.stall_seconds()), "nothing computes")?;
    if asked.merge_seconds > 0.0 {
        row("merging", &milliseconds(asked.merge_seconds), "adapters into streamed weights")?;
    }
    row("moved", &asked.moved_bytes.to_string(), &format!("in {} copies", asked.copy_count))?;
    match other {
        Some(other) => {
            let remark = times(other.step_seconds, asked.step_seconds, "this plan's step");
            row(policy.name(), &milliseconds(other.step_seconds), &remark)
        }
        None => row(policy.name(), "no plan", "it does not fit the budget"),
    }
}

fn times(seconds: f64, reference: f64, what: &str) -> String {
    if reference > 0.0 { format!("{:.3} times {what}", seconds / reference) } else { String::new() }
}

fn write_reasons(text: &mut String, setting: &Setting<'_>, asked: &Simulated) -> fmt::Result {
    writeln!(text)?;
    for reason in why::reasons(setting, asked) {
        writeln!(text, "  {:<14}{}", reason.choice, reason.reason)?;
    }
    Ok(())
}

fn write_adapters(text: &mut String, setting: &Setting<'_>) -> fmt::Result {
    for file in &setting.adapters.files {
        writeln!(text, "\n{}: on {} units", escaped(&file.file), file.unit_count)?;
        if file.text_encoder_count > 0 {
            writeln!(text, "  not counted: pairs for text encoders, outside this plan ({})", file.text_encoder_count)?;
        }
        for (names, what) in
            [(&file.unmatched, "layers that are no units here"), (&file.unknown, "tensors of no known kind")]
        {
            if let Some(first) = names.first() {
                writeln!(text, "  not counted: {what} ({}), such as {first}", names.len())?;
            }
        }
    }
    Ok(())
}

fn write_units(text: &mut String, asked: &Simulated) -> fmt::Result {
    let units = asked.planner.units();
    let mut largest: Vec<usize> = (0..units.len()).collect();
    largest.sort_by_key(|&idx| (std::cmp::Reverse(units[idx].bytes), idx));
    let mut places = vec![0; units.len()];
    for (place, &idx) in asked.planner.rank().order().iter().enumerate() {
        places[idx] = place + 1;
    }
    writeln!(text, "\nlargest units, where they are, and their place in the order of becoming streamed")?;
    for idx in largest.into_iter().take(UNITS_MAX) {
        let (unit, tier) = (&units[idx], tier(asked.plan.resident[idx]));
        let place = format!("{} of {}", places[idx], units.len());
        writeln!(text, "  {:>12}  {tier:<6}  {place:>14}  {}", unit.bytes.to_string(), escaped(&unit.name))?;
    }
    Ok(())
}

/// A number without a fraction that says nothing.
fn short(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
