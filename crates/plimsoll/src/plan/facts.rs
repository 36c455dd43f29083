//! A plan as JSON.

use plimsoll_device::ByteCount;
use plimsoll_residency::{Policy, RankCandidate};
use serde::Serialize;

use super::adapters::AdapterFile;
use super::simulation::{Setting, Simulated};
use super::why::{self, Reason};

/// What `--json` prints.
#[derive(Serialize)]
pub(super) struct Facts<'a> {
    model: &'a str,
    about: &'a str,
    component: &'a str,
    device: DeviceFacts,
    budget_bytes: ByteCount,
    policy: Policy,
    offload_streams: usize,
    /// A pass, as the engine ran it on the simulated device.
    step_seconds: f64,
    /// The longer of all computing and all streamed bytes over the link.
    bound_seconds: f64,
    compute_seconds: f64,
    /// A pass by the planner's own formula.
    predicted_seconds: f64,
    /// Of a step, in which nothing computed.
    stall_seconds: f64,
    merge_seconds: f64,
    /// What a step copied in.
    moved_bytes: ByteCount,
    copy_count: u64,
    streamed_bytes: ByteCount,
    resident_bytes: ByteCount,
    ring_bytes: ByteCount,
    transient_bytes: ByteCount,
    staging_bytes: ByteCount,
    adapter_bytes: ByteCount,
    activation_bytes: ByteCount,
    /// All but `streamed_bytes` and `moved_bytes` together.
    total_bytes: ByteCount,
    peak_bytes: ByteCount,
    streamed_count: usize,
    rank: &'a str,
    candidates: &'a [RankCandidate],
    adapters: &'a [AdapterFile],
    comparison: Comparison,
    why: Vec<Reason>,
    units: Vec<UnitFacts<'a>>,
}

#[derive(Serialize)]
struct DeviceFacts {
    vram_bytes: ByteCount,
    link_bytes_per_second: f64,
    link_latency_seconds: f64,
    flops_per_second: f64,
}

#[derive(Serialize)]
struct UnitFacts<'a> {
    name: &'a str,
    bytes: ByteCount,
    tier: &'static str,
}

/// The other policy on the same workload; nulls where it has no plan.
#[derive(Serialize)]
struct Comparison {
    policy: Policy,
    offload_streams: usize,
    step_seconds: Option<f64>,
    bound_seconds: Option<f64>,
    /// Its step over this plan's.
    ratio: Option<f64>,
    stall_seconds: Option<f64>,
    moved_bytes: Option<ByteCount>,
    resident_bytes: Option<ByteCount>,
    ring_bytes: Option<ByteCount>,
    peak_bytes: Option<ByteCount>,
}

/// Where a unit's weights are between its uses.
pub(super) fn tier(is_resident: bool) -> &'static str {
    if is_resident { "device" } else { "host" }
}

/// The facts of a plan, as JSON.
pub(super) fn to_json(
    setting: &Setting<'_>,
    asked: &Simulated,
    (policy, other): (Policy, Option<&Simulated>),
) -> String {
    let plan = &asked.plan;
    let units = setting.workload.units.iter().zip(&plan.resident);
    let card = setting.card;
    let facts = Facts {
        model: &setting.workload.name,
        about: &setting.workload.about,
        component: setting.workload.component,
        device: DeviceFacts {
            vram_bytes: card.memory,
            link_bytes_per_second: card.link_bytes_per_second,
            link_latency_seconds: card.link_latency.as_secs_f64(),
            flops_per_second: card.flops_per_second,
        },
        budget_bytes: card.budget.unwrap_or(card.memory),
        policy: asked.policy,
        offload_streams: setting.offload_streams,
        step_seconds: asked.step_seconds,
        bound_seconds: asked.bound_seconds,
        compute_seconds: asked.compute_seconds,
        predicted_seconds: asked.planner.step_seconds(plan),
        stall_seconds: asked.stall_seconds(),
        merge_seconds: asked.merge_seconds,
        moved_bytes: asked.moved_bytes,
        copy_count: asked.copy_count,
        streamed_bytes: plan.streamed_bytes,
        resident_bytes: plan.resident_bytes,
        ring_bytes: plan.ring_bytes,
        transient_bytes: plan.transient_bytes,
        staging_bytes: plan.staging_bytes,
        adapter_bytes: asked.adapter_bytes,
        activation_bytes: asked.activation_bytes,
        total_bytes: asked.total_bytes(),
        peak_bytes: asked.peak_bytes,
        streamed_count: plan.streamed_count(),
        rank: asked.planner.rank_name(),
        candidates: asked.planner.candidates(),
        adapters: &setting.adapters.files,
        comparison: Comparison {
            policy,
            offload_streams: setting.offload_streams,
            step_seconds: other.map(|other| other.step_seconds),
            bound_seconds: other.map(|other| other.bound_seconds),
            ratio: other.map(|other| other.step_seconds / asked.step_seconds).filter(|ratio| ratio.is_finite()),
            stall_seconds: other.map(Simulated::stall_seconds),
            moved_bytes: other.map(|other| other.moved_bytes),
            resident_bytes: other.map(|other| other.plan.resident_bytes),
            ring_bytes: other.map(|other| other.plan.ring_bytes),
            peak_bytes: other.map(|other| other.peak_bytes),
        },
        why: why::reasons(setting, asked),
        units: units
            .map(|(unit, &resident)| UnitFacts { name: unit.name(), bytes: unit.bytes, tier: tier(resident) })
            .collect(),
    };
    serde_json::to_string(&facts).expect("strings and numbers are JSON") + "\n"
}
